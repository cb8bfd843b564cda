"""Masking of selected lines of a text, with enough context for multi-line secrets, but without reading all of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from intercom.masking.masker import Masker

#: The number of characters to read on either side of a line. No secret is longer.
SURROUNDINGS = 64 * 1024


def masked_lines(lines: Sequence[str], wanted: Iterable[int]) -> dict[int, str]:
    """Return those of the `wanted` lines (by index) that contain a secret, masked. `lines` are one text, all with their
    line end or all without."""
    found: dict[int, str] = {}
    for first, last, some in _stretches(lines, sorted(wanted)):
        bare = [line.removesuffix("\n") for line in lines[first:last]]
        masked = Masker().mask("\n".join(bare)).text.split("\n")
        for index in some:
            if masked[index - first] != bare[index - first]:
                end = "\n" if lines[index].endswith("\n") else ""
                found[index] = masked[index - first] + end
    return found


def _stretches(lines: Sequence[str], wanted: list[int]) -> list[tuple[int, int, list[int]]]:
    """Return parts of the text (first line, end line, wanted lines). Each wanted line has enough context in its
    part."""
    begins = [0, *accumulate(len(line) + 1 for line in lines)]
    stretches: list[tuple[int, int, list[int]]] = []
    for index in wanted:
        first = max(0, bisect_right(begins, begins[index] - SURROUNDINGS) - 1)
        last = min(len(lines), bisect_left(begins, begins[index + 1] + SURROUNDINGS))
        if stretches and first <= stretches[-1][1]:
            before, _, some = stretches[-1]
            some.append(index)
            stretches[-1] = (before, last, some)
        else:
            stretches.append((first, last, [index]))
    return stretches
