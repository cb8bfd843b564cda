"""The rules of .gitignore files: parsed, and matched to paths as git does.

Agents write these files and their patterns run in this process, so no pattern may take long. wcmatch matches single
names without backtracking in `*`. `**` is matched between names, and only the last one is backtracked to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import islice

from attrs import field, frozen
from wcmatch import fnmatch

from intercom.workspace.files import open_regular

#: The file with the rules of a directory and everything below it.
NAME = ".gitignore"
#: How many bytes of one such file are read; and the longest line, in characters, that is not skipped.
MAX_BYTES = 1024 * 1024
MAX_LINE = 1024
#: How many rules of one file are used.
MAX_RULES = 5000

_FLAGS = fnmatch.CASE | fnmatch.DOTMATCH
_WILD = frozenset("*?[\\")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class _Wild(Enum):
    """A whole name of wildcards: `**` is any number of names, including none; `*` is any one name."""

    ANY = "**"
    ONE = "*"


#: One name of a pattern: literal, a regular expression, or wildcards alone.
_Name = str | re.Pattern[str] | _Wild


@frozen
class Rule:
    """One line. `keeps` reverses an earlier rule; `anywhere` matches the last name at any depth."""

    names: tuple[_Name, ...]
    keeps: bool = False
    only_directories: bool = False
    anywhere: bool = False

    def fits(self, names: Sequence[str], is_directory: bool) -> bool:
        """Whether the rule matches this entry itself. Entries inside a matching directory are not considered."""
        if self.only_directories and not is_directory:
            return False
        if self.anywhere:
            return _same(self.names[0], names[-1])
        return _fits(self.names, names)


@frozen
class Rules:
    """The rules of one directory, in reverse order, because the last one that matches decides."""

    rules: tuple[Rule, ...]
    _plain: frozenset[str] = field(init=False, repr=False)
    _is_plain: bool = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        plain = [rule.names[0] for rule in self.rules if rule.anywhere and isinstance(rule.names[0], str)]
        object.__setattr__(self, "_plain", frozenset(name for name in plain if isinstance(name, str)))
        object.__setattr__(self, "_is_plain", len(plain) == len(self.rules))

    def ignores(self, names: Sequence[str], is_directory: bool) -> bool | None:
        """Whether the entry at `names`, relative to this directory, is ignored; None if no rule matches."""
        if self._is_plain and names[-1] not in self._plain:
            return None
        for rule in self.rules:
            if rule.fits(names, is_directory):
                return not rule.keeps
        return None


#: The rules above an entry, the nearest last, each with the depth of its directory.
Chain = tuple[tuple[int, Rules], ...]


def ignored(chain: Chain, names: Sequence[str], is_directory: bool) -> bool:
    """Whether the rules ignore an entry, provided that they ignore no directory above it."""
    for depth, rules in reversed(chain):
        decision = rules.ignores(names[depth:], is_directory)
        if decision is not None:
            return decision
    return False


def ignored_by(rules: Mapping[str, Rules], path: str, check_time: Callable[[], None] = lambda: None) -> bool:
    """Whether `rules` ignore the file `path` or a directory above it. `rules` are keyed by directory ("" is the
    workspace). `check_time` is called repeatedly and raises to cancel the search."""
    names = path.split("/")
    chain: Chain = ()
    for depth in range(len(names)):
        check_time()
        found = rules.get("/".join(names[:depth]))
        if found is not None:
            chain = (*chain, (depth, found))
        if ignored(chain, names[: depth + 1], is_directory=depth < len(names) - 1):
            return True
    return False


def read_rules(data: bytes) -> Rules:
    """Parse the bytes of a .gitignore file. Skips lines that git skips, and what exceeds the limits above."""
    text = data[:MAX_BYTES].decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    rules = (rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r"))) is not None)
    return Rules(tuple(reversed(tuple(islice(rules, MAX_RULES)))))


def rules_in(parent: int) -> Rules | None:
    """Return the rules of an open directory; None if absent or unreadable. Follows no link, as git does."""
    try:
        with os.fdopen(open_regular(parent, NAME), "rb") as file:
            return read_rules(file.read(MAX_BYTES))
    except OSError:
        return None


def _rule(line: str) -> Rule | None:
    if line.startswith("#") or len(line) > MAX_LINE:
        return None
    pattern = line.rstrip(" ")
    # A backslash keeps one trailing space.
    if pattern != line and (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        pattern += " "
    keeps = pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    only_directories = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern:
        return None
    anywhere = "/" not in pattern
    names = [name for each in pattern.removeprefix("/").split("/") if (name := _name(each)) is not None]
    if len(names) != pattern.removeprefix("/").count("/") + 1:
        return None
    if anywhere and names[0] is _Wild.ANY:
        names = [_Wild.ONE]
    elif names[-1] is _Wild.ANY:
        # At the end it matches what is inside, but not the directory itself.
        names.append(_Wild.ONE)
    return Rule(tuple(names), keeps, only_directories, anywhere)


def _name(name: str) -> _Name | None:
    """Compile one name of a pattern; None if it can match nothing."""
    if name in ("**", "*"):
        return _Wild(name)
    if not name or _is_unfinished(name):
        return None
    if _WILD.isdisjoint(_ESCAPED.sub("", name)):
        return _ESCAPED.sub(r"\1", name)
    expressions, _ = fnmatch.translate(name, flags=_FLAGS)
    return re.compile(expressions[0])


def _is_unfinished(name: str) -> bool:
    """Whether a bracket is unclosed or a backslash escapes nothing: git matches nothing with it."""
    at = 0
    while at < len(name):
        if name[at] == "\\":
            at += 2
            if at > len(name):
                return True
        elif name[at] == "[":
            at = _end_of_class(name, at)
            if at < 0:
                return True
        else:
            at += 1
    return False


def _end_of_class(name: str, at: int) -> int:
    """Return the index after the bracket that closes the one at `at`; -1 if there is none."""
    at += 1
    if name[at : at + 1] in ("!", "^"):
        at += 1
    first = True
    while at < len(name):
        if name[at] == "]" and not first:
            return at + 1
        if name.startswith("[:", at):
            closed = name.find(":]", at)
            if closed > 0:
                at, first = closed + 2, False
                continue
        at += 2 if name[at] == "\\" else 1
        first = False
    return -1


def _same(wanted: _Name, name: str) -> bool:
    if isinstance(wanted, str):
        return wanted == name
    return wanted is _Wild.ONE if isinstance(wanted, _Wild) else wanted.match(name) is not None


def _fits(wanted: Sequence[_Name], names: Sequence[str]) -> bool:
    at = now = 0
    turn, turned = -1, 0
    while now < len(names):
        if at < len(wanted) and wanted[at] is _Wild.ANY:
            turn, turned, at = at, now, at + 1
        elif at < len(wanted) and _same(wanted[at], names[now]):
            at, now = at + 1, now + 1
        elif turn >= 0:
            turned += 1
            at, now = turn + 1, turned
        else:
            return False
    return at == len(wanted)
