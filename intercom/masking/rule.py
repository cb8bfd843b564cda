"""A rule for one kind of secret, in the form that gitleaks and TruffleHog give theirs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from attrs import field, frozen

Judge = Callable[[str, str], bool]


@frozen
class Rule:
    """In a line that holds one of `keywords` (lower case; without any, in every line), each match of the pattern
    `source` whose groups `name` and `value` satisfy `judge`. The group `value` is the secret, and never goes past a
    line's end; the match may go on for `reach` more lines. `kind` is what people read in place of the secret.

    Every repetition in a pattern is bounded, so that it takes time in proportion to the text.
    """

    kind: str
    keywords: tuple[str, ...]
    source: str = field(repr=False)
    judge: Judge = field(repr=False)
    flags: int = 0
    reach: int = 0

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a text has one of the keywords first: all rules together take 0.2 s."""
        return _compiled(self.source, self.flags)


@cache
def _compiled(source: str, flags: int) -> re.Pattern[str]:
    return re.compile(source, flags)


def rule(kind: str, keywords: str, pattern: str, judge: Judge, *, flags: int = 0, reach: int = 0) -> Rule:
    """A rule from its keywords, with spaces between. A pattern without the groups has the whole match for its value,
    and no name."""
    if "(?P<value>" not in pattern:
        pattern = f"(?P<value>{pattern})"
    if "(?P<name>" not in pattern:
        pattern = f"(?P<name>){pattern}"
    return Rule(kind, tuple(keywords.split()), pattern, judge, flags, reach)


def always(_name: str, _value: str) -> bool:
    """The judge of a shape that nothing else has."""
    return True
