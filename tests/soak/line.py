"""A straight line through measurements."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen


@frozen
class Line:
    """`first` and `last` are its heights over the first and the last measurement."""

    first: float
    last: float

    @property
    def growth(self) -> float:
        """How much it rises from end to end, as a share of where it begins (0.02: two percent)."""
        return (self.last - self.first) / self.first if self.first else 0.0


def fit(times: Sequence[float], values: Sequence[float]) -> Line:
    """The line with the least squares through at least two measurements at different times."""
    count = len(times)
    middle, height = sum(times) / count, sum(values) / count
    spread = sum((time - middle) ** 2 for time in times)
    slope = sum((time - middle) * (value - height) for time, value in zip(times, values, strict=True)) / spread
    return Line(height + slope * (times[0] - middle), height + slope * (times[-1] - middle))
