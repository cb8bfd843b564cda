"""A rule for one kind of secret, in the style of gitleaks and TruffleHog."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from attrs import field, frozen

Judge = Callable[[str, str], bool]


@frozen
class Rule:
    """A rule, for lines that contain one of `keywords` (lower case), or for all lines if there are none.

    Each match of the pattern `source` is a secret if `judge` accepts its groups `name` and `value`. The group `value`
    is the secret, always within one line. The match may extend over `reach` more lines. `kind` replaces the secret for
    people. Every repetition in a pattern is bounded, so the time is proportional to the length of the text.
    """

    kind: str
    keywords: tuple[str, ...]
    source: str = field(repr=False)
    judge: Judge = field(repr=False)
    flags: int = 0
    reach: int = 0

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern. It is compiled on first use, because all rules together take 0.2 s."""
        return _compiled(self.source, self.flags)


@cache
def _compiled(source: str, flags: int) -> re.Pattern[str]:
    return re.compile(source, flags)


def rule(kind: str, keywords: str, pattern: str, judge: Judge, *, flags: int = 0, reach: int = 0) -> Rule:
    """Create a rule from keywords that are separated by spaces. In a pattern without these groups, the value is the
    whole match and the name is empty."""
    if "(?P<value>" not in pattern:
        pattern = f"(?P<value>{pattern})"
    if "(?P<name>" not in pattern:
        pattern = f"(?P<name>){pattern}"
    return Rule(kind, tuple(keywords.split()), pattern, judge, flags, reach)


def always(_name: str, _value: str) -> bool:
    """Accept every match: the judge for unique shapes."""
    return True
