"""What a long run has to tell: printed when all tests are over, since a worker of a parallel run has no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: The property under which a test leaves its figures for `tests/conftest.py` to print.
PROPERTY = "figures"

#: pytest's fixture `record_property`.
Record = Callable[[str, object], None]


def tell(record_property: Record, title: str, counts: Mapping[str, int]) -> None:
    """Have these counts printed at the end of the run, one a line."""
    lines = [f"{counts[what]:9,}  {what}" for what in sorted(counts)]
    record_property(PROPERTY, "\n".join([f"{title}:", *lines]))
