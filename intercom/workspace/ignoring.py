"""What .gitignore files leave out, rule by rule as git reads them.

An agent writes these files, and what matches them runs in this process: no pattern may take long, however it is made.
Names are matched one by one by wcmatch, whose `*` never turns back, and `**` between them by a walk that goes back to
the last one only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from attrs import field, frozen
from wcmatch import fnmatch

#: The file that holds the rules of a directory and all below it.
NAME = ".gitignore"
#: How much of one such file is read, in bytes, and how long a line may be to count, in characters.
MAX_BYTES = 1024 * 1024
MAX_LINE = 1024
#: How many rules of one file count.
MAX_RULES = 5000

_FLAGS = fnmatch.CASE | fnmatch.DOTMATCH
_WILD = frozenset("*?[\\")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@frozen
class _Any:
    """`**` as a whole name: any number of names, none too."""


@frozen
class _One:
    """`*` as a whole name: any one name."""


#: One name of a pattern: as it stands, as an expression, or one of the two above.
_Name = str | re.Pattern[str] | _Any | _One


@frozen
class Rule:
    """One line. `keeps` undoes an earlier rule; `anywhere` matches the last name at any depth."""

    names: tuple[_Name, ...]
    keeps: bool = False
    only_directories: bool = False
    anywhere: bool = False

    def fits(self, names: Sequence[str], is_directory: bool) -> bool:
        """Whether this very entry is meant; what lies in a directory that is meant is not looked at."""
        if self.only_directories and not is_directory:
            return False
        if self.anywhere:
            return _same(self.names[0], names[-1])
        return _fits(self.names, names)


@frozen
class Rules:
    """The rules of one directory, the last first, since the last that fits decides."""

    rules: tuple[Rule, ...]
    _plain: frozenset[str] = field(init=False, repr=False)
    _is_plain: bool = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        plain = [rule.names[0] for rule in self.rules if rule.anywhere and isinstance(rule.names[0], str)]
        object.__setattr__(self, "_plain", frozenset(name for name in plain if isinstance(name, str)))
        object.__setattr__(self, "_is_plain", len(plain) == len(self.rules))

    def ignores(self, names: Sequence[str], is_directory: bool) -> bool | None:
        """Whether the entry at `names`, relative to this directory, is left out; None where no rule says."""
        if self._is_plain and names[-1] not in self._plain:
            return None
        for rule in self.rules:
            if rule.fits(names, is_directory):
                return not rule.keeps
        return None


#: The rules above an entry, the nearest last, each with how many names of a path lead to its directory.
Chain = tuple[tuple[int, Rules], ...]


def ignored(chain: Chain, names: Sequence[str], is_directory: bool) -> bool:
    """Whether an entry is left out by the rules above it, if none of the directories above it is."""
    for depth, rules in reversed(chain):
        verdict = rules.ignores(names[depth:], is_directory)
        if verdict is not None:
            return verdict
    return False


def ignored_by(rules: Mapping[str, Rules], path: str, hurry: Callable[[], None] = lambda: None) -> bool:
    """Whether the file `path` or a directory above it is left out by `rules`, which are given by directory ("" is the
    workspace). `hurry` is called now and then, and raises what is to end this."""
    names = path.split("/")
    chain: Chain = ()
    for depth in range(len(names)):
        hurry()
        found = rules.get("/".join(names[:depth]))
        if found is not None:
            chain = (*chain, (depth, found))
        if ignored(chain, names[: depth + 1], is_directory=depth < len(names) - 1):
            return True
    return False


def read_rules(data: bytes) -> Rules:
    """The rules in the bytes of a .gitignore file; what git passes over is passed over, and what is beyond the limits
    above."""
    text = data[:MAX_BYTES].decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    rules = (rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r"))) is not None)
    return Rules(tuple(reversed(tuple(islice(rules, MAX_RULES)))))


def _rule(line: str) -> Rule | None:
    if line.startswith("#") or len(line) > MAX_LINE:
        return None
    pattern = _trimmed(line)
    keeps = pattern.startswith("!")
    pattern = pattern.removeprefix("!")
    only_directories = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    if not pattern:
        return None
    anywhere = "/" not in pattern
    names = [_name(each) for each in _split(pattern)]
    if any(name is None for name in names):
        return None
    found = [name for name in names if name is not None]
    if anywhere and isinstance(found[0], _Any):
        found = [_One()]
    elif isinstance(found[-1], _Any):
        # At the end it stands for what is inside, and not for the directory itself.
        found.append(_One())
    return Rule(tuple(found), keeps, only_directories, anywhere)


def _trimmed(line: str) -> str:
    """Without the spaces at its end, unless a backslash keeps one."""
    bare = line.rstrip(" ")
    if len(bare) < len(line):
        slashes = len(bare) - len(bare.rstrip("\\"))
        if slashes % 2:
            return bare + " "
    return bare


def _split(pattern: str) -> Iterable[str]:
    return pattern.removeprefix("/").split("/")


def _name(name: str) -> _Name | None:
    """One name of a pattern; None where it can match nothing."""
    if name == "**":
        return _Any()
    if name == "*":
        return _One()
    if not name or _is_unfinished(name):
        return None
    if _WILD.isdisjoint(name):
        return name
    if _WILD.isdisjoint(_ESCAPED.sub("", name)):
        return _ESCAPED.sub(r"\1", name)
    expressions, _ = fnmatch.translate(name, flags=_FLAGS)
    return re.compile(expressions[0])


def _is_unfinished(name: str) -> bool:
    """Whether a bracket is not closed, or a backslash has nothing to escape: git matches nothing with it."""
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
    """The place after the bracket that closes the one at `at`; -1 where none does."""
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
    return isinstance(wanted, _One) or (not isinstance(wanted, _Any) and wanted.match(name) is not None)


def _fits(wanted: Sequence[_Name], names: Sequence[str]) -> bool:
    at = now = 0
    turn, turned = -1, 0
    while now < len(names):
        if at < len(wanted) and isinstance(wanted[at], _Any):
            turn, turned, at = at, now, at + 1
        elif at < len(wanted) and _same(wanted[at], names[now]):
            at, now = at + 1, now + 1
        elif turn >= 0:
            turned += 1
            at, now = turn + 1, turned
        else:
            return False
    return at == len(wanted)
