"""Masks secrets in what leaves the machine. Pure: the same text is masked the same way, and masked text stays.

Only the secret is replaced, so a person still sees the meaning of a line; a diff keeps its lines and their marks. Mask
the whole source and cut it afterwards, because the rest of a cut secret is not recognised.

The tokens of our own sockets are hexadecimal, as digests are, so no rule can distinguish them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from attrs import define, field, frozen

from intercom.masking import keys
from intercom.masking.context_rules import (
    CONTEXTS,
    PASSWORD,
    STEMS,
    Found,
    find_kubernetes,
    find_lists,
    find_parts,
    holds_name,
)
from intercom.masking.shapes import SHAPES

#: Shorter values occur in texts by chance.
_SHORTEST = 12


@define
class KnownSecrets:
    """Secrets by value. The process adds each one that it reads or creates, and keeps it until it ends."""

    _kinds: dict[str, str] = field(factory=dict, repr=False)
    _pattern: re.Pattern[str] | None = field(default=None, init=False, repr=False)

    def add(self, secret: str, kind: str) -> None:
        """Mask `secret` from now on. `kind` replaces it in texts for people."""
        if len(secret) >= _SHORTEST and self._kinds.get(secret) != kind:
            # Each attribute is set in one assignment, because other threads may be masking.
            self._kinds = {**self._kinds, secret: kind}
            longest_first = sorted(self._kinds, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def mask(self, text: str, kinds: list[str]) -> str:
        """Return `text` without these secrets. The kind of each secret found is added to `kinds`."""
        if self._pattern is None:
            return text
        known = self._kinds

        def replaced(match: re.Match[str]) -> str:
            kind = known[match.group()]
            kinds.append(kind)
            return f"[masked: {kind}]"

        return self._pattern.sub(replaced, text)


#: The secrets of this process.
KNOWN = KnownSecrets()

_RULES = (*SHAPES, *CONTEXTS)
#: The rules of each keyword, by their positions. A rule is skipped if the text contains none of its keywords.
_RULES_OF: dict[str, list[int]] = {}
for _position, _rule in enumerate(_RULES):
    for _word in _rule.keywords:
        _RULES_OF.setdefault(_word, []).append(_position)
#: The rules without keywords, which are never skipped.
_ALWAYS = tuple(position for position, rule in enumerate(_RULES) if not rule.keywords)

#: The maximum number of rounds. Masking may reveal another secret next to the first. Three rounds were always enough in
#: practice, and every round leaves less text to mask.
_ROUNDS = 8
#: The number of lines around a mask that are searched again. No rule reaches further.
_REACH = 14

_MASK = re.compile(r"\[masked(?:: (?P<kind>[A-Za-z0-9 -]{1,40}))?\]")


@frozen
class Masked:
    """The text without its secrets, and the kind of each masked secret, in the order of discovery."""

    text: str
    kinds: tuple[str, ...]

    def lines(self, first: int, last: int | None = None) -> Masked:
        """Return the lines from `first` to `last` (counted from 1, both included; the default is the end), with the
        kinds masked in them."""
        part = self.text.split("\n")[first - 1 : last]
        text = "\n".join(part)
        kinds = tuple(match["kind"] for match in _MASK.finditer(text) if match["kind"]) if self.kinds else ()
        if not kinds and self.kinds and "[masked]" in text:
            # The lines are in the middle of a key, whose kind is on its first line.
            kinds = (keys.KIND,)
        return Masked(text, kinds)


@frozen
class Masker:
    """Masks secrets: the values in `known`, and all text that looks like a secret."""

    known: KnownSecrets = field(default=KNOWN, repr=False)

    def mask(self, text: str) -> Masked:
        """Replace every secret in `text` by its kind, as in `[masked: AWS access key]`.

        The number of lines does not change, and neither does a line's first character if it may be a diff mark. 100 KB
        of code take about 40 ms. The time is proportional to the length, also of a line, so mask large texts in a
        thread.
        """
        kinds: list[str] = []
        text = self.known.mask(text, kinds)
        text = keys.mask(text, kinds)
        regions = [(0, len(text))]
        for _ in range(_ROUNDS):
            spans = [
                Found(start + found.start, start + found.end, found.kind)
                for start, end in regions
                for found in _find(text[start:end])
            ]
            spans = _merged(text, sorted(spans, key=lambda span: (span.start, -span.end)))
            if not spans:
                break
            text, places = _replaced(text, spans)
            kinds += [span.kind for span in spans]
            regions = _around(text, places)
        return Masked(text, tuple(kinds))

    def mask_all(self, value: Any, literal: Collection[str] = ()) -> Any:
        """Mask every string in a JSON value, field names included. The values of the names in `literal` are kept."""
        if isinstance(value, str):
            return self.mask(value).text
        if isinstance(value, Mapping):
            return {
                self.mask(str(name)).text: each if name in literal else self.mask_all(each, literal)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.mask_all(each, literal) for each in value]
        return value


def _find(text: str) -> Iterator[Found]:
    """Iterate over the secrets in a text, unordered. They may overlap."""
    low = _lowered(text)
    present = {word for word in _RULES_OF if word in low}
    lines: dict[tuple[tuple[str, ...], int], list[tuple[int, int]]] = {}
    # In the order of the rules: of two that find the same span, the first names it.
    positions = sorted({*_ALWAYS, *(each for word in present for each in _RULES_OF[word])}) if present else _ALWAYS
    for position in positions:
        rule = _RULES[position]
        near = (rule.keywords, rule.reach)
        if near not in lines:
            lines[near] = _lines_with(low, tuple(present.intersection(rule.keywords)), rule.reach)
            if rule.keywords == STEMS:
                lines[near] = [span for span in lines[near] if holds_name(text, *span)]
        for start, end in lines[near]:
            for match in rule.pattern.finditer(text, start, end):
                if rule.judge(match["name"], match["value"]):
                    yield Found(*match.span("value"), rule.kind)
    yield from find_kubernetes(text)
    yield from find_parts(text)
    for (keywords, _), spans in lines.items():
        if keywords == STEMS:
            yield from find_lists(text, spans)


def _lowered(text: str) -> str:
    low = text.lower()
    # Some letters become two in lower case. They are kept, so that positions stay valid.
    return low if len(low) == len(text) else "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _lines_with(low: str, keywords: tuple[str, ...], reach: int) -> list[tuple[int, int]]:
    """Return the ordered spans of lines that contain a keyword, each with `reach` more lines. Without keywords, return
    one span for the whole text."""
    if not keywords:
        return [(0, len(low))]
    spans: list[tuple[int, int]] = []
    for keyword in keywords:
        at = low.find(keyword)
        while at >= 0:
            start, end = low.rfind("\n", 0, at) + 1, _lines_on(low, at, reach + 1)
            spans.append((start, end))
            # The rest of this line is already in the span.
            line_end = low.find("\n", at)
            at = low.find(keyword, line_end) if line_end >= 0 else -1
    return _united(sorted(spans))


def _lines_on(text: str, at: int, count: int) -> int:
    """Return the end of the line that is `count` - 1 lines below that of `at`."""
    for _ in range(count):
        end = text.find("\n", at)
        if end < 0:
            return len(text)
        at = end + 1
    return at - 1


def _united(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    united: list[tuple[int, int]] = []
    for start, end in spans:
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def _around(text: str, places: list[int]) -> list[tuple[int, int]]:
    """Return the spans of lines around these places."""
    spans: list[tuple[int, int]] = []
    for place in places:
        if spans and place < spans[-1][1] - 1 and spans[-1][1] == len(text):
            break
        start = place
        for _ in range(_REACH):
            start = text.rfind("\n", 0, start)
            if start <= 0:
                break
        spans.append((max(0, start + 1 if start > 0 else 0), _lines_on(text, place, _REACH)))
    return _united(sorted(spans))


def _replaced(text: str, spans: list[Found]) -> tuple[str, list[int]]:
    """Return the text with masks in place of the spans, and the positions of the masks in it."""
    parts: list[str] = []
    places: list[int] = []
    at = length = 0
    for span in spans:
        before, mask = text[at : span.start], f"[masked: {span.kind}]"
        length += len(before)
        places.append(length)
        parts += [before, mask]
        length += len(mask)
        at = span.end
    return "".join(parts) + text[at:], places


def _merged(text: str, spans: list[Found]) -> list[Found]:
    """Return the spans in order, with overlapping ones merged. Spans that touch a mask are left out, and none starts
    with a diff mark."""
    masks = [match.span() for match in _MASK.finditer(text)] if spans and "[masked" in text else []
    begins = [begin for begin, _ in masks]
    merged: list[Found] = []
    for span in spans:
        start = span.start
        if text[start] in "+- " and (start == 0 or text[start - 1] == "\n"):
            start += 1
        # Find the last mask that starts before the span's end. They touch if it ends after the span's start.
        before = bisect_right(begins, span.end - 1) - 1
        if start >= span.end or (before >= 0 and masks[before][1] > start):
            continue
        if merged and start < merged[-1].end:
            # Keep the more specific kind.
            kind = span.kind if merged[-1].kind == PASSWORD else merged[-1].kind
            merged[-1] = Found(merged[-1].start, max(span.end, merged[-1].end), kind)
        else:
            merged.append(span._replace(start=start))
    return merged


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
