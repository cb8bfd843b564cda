"""A short storm of swaps in every run; `python -m tests.attack.swaps` makes a long one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from intercom.workspace import files, policy_file
from tests.attack.swaps import storm
from tests.attack.swaps.storm import Result

SWAPS = 12_000


def swept(base: Path, seed: int = 0, *, through_server: bool = False) -> Result:
    storms = partial(storm.run, base, SWAPS, seed, through_server=through_server)
    return trio.run(storms, clock=trio.testing.MockClock())


@pytest.mark.parametrize("through_server", [False, True], ids=["the engine", "a server"])
@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_nothing_is_written_but_at_the_recorded_path_while_names_are_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, *, through_server: bool
) -> None:
    if way == "walk":
        monkeypatch.setattr(files, "has_openat2", lambda: False)
    result = swept(tmp_path, through_server=through_server)
    assert (result.wrong, result.leaks, result.crashes) == ((), 0, 0)
    assert result.swaps >= SWAPS
    applied = result.said["applied"] + result.said["applied with force"]
    assert 0 < applied < result.said.total(), result.said


def test_the_storm_finds_an_opening_that_follows_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(top: int | None, names: Sequence[str]) -> int:
        path = "/".join(names) or "."
        flags = os.O_RDONLY | os.O_DIRECTORY
        return os.open("/" + path, flags) if top is None else os.open(path, flags, dir_fd=top)

    monkeypatch.setattr(files, "_open", careless)
    # Each storm is a matter of luck; that none of so many hits is not.
    found = (swept(tmp_path / str(seed), seed) for seed in range(20))
    assert any(result.strayed and result.touched for result in found)


def test_a_link_that_vanishes_while_a_policy_is_read_is_a_fault_of_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(path: object, **_options: object) -> str:
        raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(os.path, "realpath", vanished)
    assert "changed while it was looked at" in str(policy_file.load(tmp_path).fault)
