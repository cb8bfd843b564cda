"""The line that decides whether a server grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.line import fit

numbers = st.floats(-1e6, 1e6)


@given(st.lists(st.floats(0, 1e5), min_size=2, unique=True).filter(lambda t: max(t) - min(t) > 1), numbers, numbers)
def test_a_line_is_found_again(times: list[float], start: float, slope: float) -> None:
    times.sort()
    line = fit(times, [start + slope * time for time in times])
    assert line.first == pytest.approx(start + slope * times[0], rel=1e-6, abs=1)
    assert line.last == pytest.approx(start + slope * times[-1], rel=1e-6, abs=1)


def test_growth_is_a_share_of_the_beginning() -> None:
    assert fit([0, 10, 20], [100, 101, 102]).growth == pytest.approx(0.02)
    assert fit([0, 10, 20], [100, 130, 100]).growth == pytest.approx(0)
    assert fit([0, 1], [0, 0]).growth == 0
