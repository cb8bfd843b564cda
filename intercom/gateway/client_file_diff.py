"""What a person sees of a client's file: texts and differences without secrets. Pure.

The masking by shape and context does not know every key of every service. So the values at the places where servers get
their secrets are masked, too: variables, headers, arguments after a flag such as `--api-key`, and parts of addresses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

from attrs import field, frozen

from intercom.masking import Masker, masked_lines
from intercom.masking.values import Strength, strength

#: Shorter values occur in texts by chance, and longer lines are cut after masking (characters).
_SHORTEST_SECRET, _LONGEST_LINE = 8, 400
#: The lines around a change that are shown, and that must be equal after it.
_CONTEXT, _SYNC = 3, 3
#: The most lines that one change may remove and add; more are shown as one change of all the rest.
_LONGEST_CHANGE: Final = 2_000
#: Stands for a secret in what a person sees.
MASKED: Final = "[masked: secret]"
_REFERENCE: Final = re.compile(r"(?:\.{0,2}/|~|https?://|.*\$\{).*", re.DOTALL)
_NOT_SECRET: Final = re.compile(r"(?:\.{0,2}/|~|https?://|.*\$\{).*|[a-z]{1,16}|[0-9]{1,10}", re.DOTALL)
_SECRET_FLAG: Final = re.compile(r"-.*(?:key|token|secret|pass|pwd|auth|credential|bearer|header|cookie|pat\b)", re.I)
#: Names of variables that have a secret. Those that say what a program runs, such as GIT_ASKPASS, are none.
_SECRET_VARIABLE: Final = re.compile(
    r"key|token|secret|(?<!ask)pass|pwd|auth|credential|bearer|cookie|(?:^|_)(?:pat|pin)(?:$|_)", re.I
)
_TABLES: Final = ("env", "environment", "headers", "http_headers", "oauth", "auth")


def looks_secret(value: str) -> bool:
    """Whether a value at the place of a secret may be one: it is no reference, no path and no plain word."""
    return len(value) >= _SHORTEST_SECRET and not _NOT_SECRET.fullmatch(value)


def is_named_secret(name: str, value: str) -> bool:
    """Whether a variable or header has the name of a secret, and a value of any length: no reference and no path."""
    return bool(value) and strength(name) is not Strength.NONE and not _REFERENCE.fullmatch(value)


def masked_value(name: str, value: str) -> str:
    """Return the value of a variable or a header, masked if it may be a secret."""
    return MASKED if looks_secret(value) or is_named_secret(name, value) else Masker().mask(value).text


def masked_variable(name: str, value: str) -> str:
    """Return the value of a variable as a person must see it who does not know the entry's author.

    Variables such as NODE_OPTIONS decide what runs. So only one word in a variable with the name of a secret is masked,
    and no option and no path.
    """
    is_secret = looks_secret(value) or is_named_secret(name, value)
    is_one_word = not value.startswith("-") and not re.search(r"\s", value)
    return MASKED if is_one_word and _SECRET_VARIABLE.search(name) and is_secret else value


def secret_arguments(args: Sequence[object]) -> Iterator[str]:
    """Yield the values of arguments that follow a flag for a secret, or are written behind it with `=`."""
    before = ""
    for each in args:
        word = each if isinstance(each, str) else ""
        flag, equals, value = word.partition("=")
        if _SECRET_FLAG.match(before) and not word.startswith("-"):
            # A header has its name in the same argument.
            yield from (part for part in (word, word.partition(":")[2].strip()) if looks_secret(part))
        elif equals and _SECRET_FLAG.match(flag) and looks_secret(value):
            yield value
        before = "" if equals else word


def _secret_values(entry: object) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        return
    for key in _TABLES:
        values = entry.get(key)
        for value in values.values() if isinstance(values, Mapping) else ():
            if isinstance(value, str) and looks_secret(value):
                yield value
    # opencode has the program and its arguments in one list.
    for args in (entry.get("args"), entry.get("command")):
        yield from secret_arguments(args if isinstance(args, list) else [])
    token = entry.get("bearer_token")
    if isinstance(token, str) and token:
        yield token
    for url in (entry.get("url"), entry.get("httpUrl")):
        if isinstance(url, str):
            # What follows the host may be a secret: many services have the key in the path.
            yield from (part for part in re.split(r"[/?#&=@:]", url.partition("://")[2])[1:] if looks_secret(part))


def _named_secrets(entry: object) -> Iterator[tuple[str, str]]:
    for key in _TABLES:
        values = entry.get(key) if isinstance(entry, Mapping) else None
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if isinstance(name, str) and isinstance(value, str) and is_named_secret(name, value):
                yield name, value


@frozen
class Secrets:
    """The values that are masked wherever they are, besides all that looks like a secret."""

    _pattern: re.Pattern[str] | None = field(default=None, repr=False)
    #: Short values occur in texts by chance, so they are masked behind the name of their variable only.
    _named: re.Pattern[str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, entries: Iterable[object]) -> Secrets:
        """The likely secrets of these entries of a client, as they are and as JSON writes them."""
        listed = [*entries]
        found = {form for entry in listed for value in _secret_values(entry) for form in _forms(value)}
        named = [pair for entry in listed for pair in _named_secrets(entry)]
        names, values = {name for name, _ in named}, {form for _, value in named for form in _forms(value)}
        behind = rf"((?:{_any_of(names)})[\"']?\s*[:=]\s*[\"'])(?:{_any_of(values)})(?=[\"'])"
        return cls(re.compile(_any_of(found)) if found else None, re.compile(behind) if named else None)

    def mask(self, text: str) -> str:
        """Return the text without its secrets."""
        return Masker().mask(self._mask_known(text)).text

    def lines(self, lines: Sequence[str], wanted: Sequence[int]) -> dict[int, str]:
        """Return the wanted lines (by index) without secrets, and shortened."""
        known = [self._mask_known(line) for line in lines]
        masked = masked_lines(known, wanted)
        found = {at: masked.get(at, known[at]) for at in wanted}
        return {at: line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..." for at, line in found.items()}

    def _mask_known(self, text: str) -> str:
        text = self._pattern.sub(MASKED, text) if self._pattern is not None else text
        return self._named.sub(rf"\1{MASKED}", text) if self._named is not None else text


def _forms(value: str) -> set[str]:
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))


@frozen
class _Hunk:
    """Lines of the old text that lines of the new one replace; one of the two may be empty."""

    old: range
    new: range


def diff(before: str, after: str, secrets: Secrets) -> str:
    """Return the differences of two texts in the form of a unified diff, without secrets.

    The time is proportional to the texts' length for a few changes, as an import makes them in a large file.
    """
    old, new = before.splitlines(), after.splitlines()
    groups: list[list[_Hunk]] = []
    for hunk in _hunks(old, new):
        if groups and hunk.old.start - groups[-1][-1].old.stop <= 2 * _CONTEXT:
            groups[-1].append(hunk)
        else:
            groups.append([hunk])
    spans = [_span(group, old, new) for group in groups]
    old_shown = secrets.lines(old, [at for span in spans for at in span.old])
    new_shown = secrets.lines(new, [at for span in spans for at in span.new])
    found: list[str] = []
    for group, span in zip(groups, spans, strict=True):
        found.append(f"@@ -{span.old.start + 1},{len(span.old)} +{span.new.start + 1},{len(span.new)} @@")
        at = span.old.start
        for hunk in group:
            found += [f" {old_shown[line]}" for line in range(at, hunk.old.start)]
            found += [f"-{old_shown[line]}" for line in hunk.old]
            found += [f"+{new_shown[line]}" for line in hunk.new]
            at = hunk.old.stop
        found += [f" {old_shown[line]}" for line in range(at, span.old.stop)]
    return "".join(f"{line}\n" for line in found)


def _span(group: Sequence[_Hunk], old: Sequence[str], new: Sequence[str]) -> _Hunk:
    """Return the lines of a group with its context."""
    first, last = group[0], group[-1]
    start, end = min(_CONTEXT, first.old.start), min(_CONTEXT, len(old) - last.old.stop, len(new) - last.new.stop)
    return _Hunk(
        range(first.old.start - start, last.old.stop + end), range(first.new.start - start, last.new.stop + end)
    )


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[_Hunk]:
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            i, j = i + 1, j + 1
            continue
        removed, added = _next_equal(old, new, i, j)
        yield from _refined(old, new, range(i, i + removed), range(j, j + added))
        i, j = i + removed, j + added


def _refined(old: Sequence[str], new: Sequence[str], olds: range, news: range) -> Iterator[_Hunk]:
    """Leave out equal lines between changes, which are too few to be found as the next equal ones."""
    if len(olds) + len(news) > _LONGEST_CHANGE:
        yield _Hunk(olds, news)
        return
    matcher = SequenceMatcher(None, old[olds.start : olds.stop], new[news.start : news.stop], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield _Hunk(olds[i1:i2], news[j1:j2])


def _next_equal(old: Sequence[str], new: Sequence[str], i: int, j: int) -> tuple[int, int]:
    """Return how many lines of each to pass until some are equal, as few as possible."""
    rest_old, rest_new = len(old) - i, len(new) - j
    for total in range(1, min(rest_old + rest_new, _LONGEST_CHANGE) + 1):
        for removed in range(max(0, total - rest_new), min(total, rest_old) + 1):
            added = total - removed
            if old[i + removed : i + removed + _SYNC] == new[j + added : j + added + _SYNC]:
                return removed, added
    return rest_old, rest_new
