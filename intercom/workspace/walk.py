"""Walks a workspace: every file that .gitignore does not leave out, through no link and within limits.

The files of version control and Intercom are skipped, and so is what .gitignore files exclude. In memory are only the
names of one directory and of the directories still to visit.

Agents write these files and their patterns run in this process, so no pattern may take long. wcmatch matches single
names without backtracking in `*`. A walk matches `**` between names and only backtracks to the last one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from attrs import define, field, frozen
from wcmatch import fnmatch

from intercom.model.checkpoint import LeftOut
from intercom.workspace.files import STAGED, open_regular, opened_directory

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


@frozen
class _Any:
    """`**` as a whole name: any number of names, including none."""


@frozen
class _One:
    """`*` as a whole name: any one name."""


#: One name of a pattern: literal, a regular expression, or one of the two above.
_Name = str | re.Pattern[str] | _Any | _One


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
        # At the end it matches what is inside, but not the directory itself.
        found.append(_One())
    return Rule(tuple(found), keeps, only_directories, anywhere)


def _trimmed(line: str) -> str:
    """Remove trailing spaces, except one that a backslash escapes."""
    bare = line.rstrip(" ")
    if len(bare) < len(line):
        slashes = len(bare) - len(bare.rstrip("\\"))
        if slashes % 2:
            return bare + " "
    return bare


def _split(pattern: str) -> Iterable[str]:
    return pattern.removeprefix("/").split("/")


def _name(name: str) -> _Name | None:
    """Compile one name of a pattern; None if it can match nothing."""
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


#: Directories (or files) that are skipped at any depth: version control or Intercom manages them.
KEPT_OUT = frozenset({".git", ".intercom", ".monocoque"})
#: How deep directories may be nested, and how many examples and skipped paths are stored.
DEEPEST = 200
EXAMPLES = 5
MAX_SKIPPED = 1000


@frozen
class Limits:
    """The limits of a walk. `max_bytes` is how much is read of all files together. `max_file_bytes` is the largest
    file whose content is kept. `max_seconds` is how long the walk may take."""

    max_files: int = 100_000
    max_bytes: int = 2 * 2**30
    max_file_bytes: int = 8 * 2**20
    max_seconds: float = 30.0


class LimitReached(Exception):
    """A limit of a walk is reached, which ends it."""


@define
class Omissions:
    """What is left out, and why."""

    counts: dict[str, int] = field(factory=dict)
    examples: dict[str, list[str]] = field(factory=dict)
    skipped: list[str] = field(factory=list)
    whole: bool = True

    def add(self, why: str, path: str) -> None:
        """Count a file or directory that exists but is left out."""
        self.note(why, path)
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(path)
        else:
            self.whole = False

    def note(self, why: str, path: str | None = None) -> None:
        """Count something to report."""
        self.counts[why] = self.counts.get(why, 0) + 1
        some = self.examples.setdefault(why, [])
        if path is not None and len(some) < EXAMPLES:
            some.append(path)

    def end(self, why: str) -> LimitReached:
        """Record that the walk ends before everything was seen."""
        self.whole = False
        self.note(why)
        return LimitReached(why)

    def as_left_out(self) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(why, count, tuple(self.examples[why])) for why, count in self.counts.items())


@frozen
class FoundFile:
    """A regular file or a link: `name` in the open directory `parent`."""

    path: str
    parent: int
    name: str
    is_link: bool


@define
class Walk:
    """One walk through the workspace whose directory is open as `root`."""

    root: int
    limits: Limits
    omissions: Omissions
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    files: int = 0

    def __attrs_post_init__(self) -> None:
        self.began = self.now()

    def found(self) -> Iterator[FoundFile]:
        """Yield every relevant file. Process each before requesting the next, which closes its directory. Raises
        LimitReached at a limit."""
        ahead: list[tuple[tuple[str, ...], Chain]] = [((), ())]
        while ahead:
            self.check_time()
            names, chain = ahead.pop()
            path = "/".join(names)
            try:
                with opened_directory(self.root, names) as parent:
                    chain = self._with_rules(parent, names, chain)
                    below, here = self._sorted_out(parent, names, chain)
                    ahead += [((*names, name), chain) for name in reversed(below)]
                    for name, is_link in here:
                        self.check_time()
                        self.files += 1
                        if self.files > self.limits.max_files:
                            raise self.omissions.end(f"the limit of {self.limits.max_files} files was reached")
                        yield FoundFile(f"{path}/{name}" if path else name, parent, name, is_link)
            except (FileNotFoundError, NotADirectoryError):
                # The directory was removed or replaced since its name was read.
                continue
            except OSError as error:
                self.omissions.add(f"directories that cannot be read ({(error.strerror or 'unknown').lower()})", path)

    def check_time(self) -> None:
        """Raise LimitReached if the time is up."""
        if self.now() - self.began > self.limits.max_seconds:
            raise self.omissions.end(f"the limit of {self.limits.max_seconds:g} seconds was reached")

    def _sorted_out(
        self, parent: int, names: tuple[str, ...], chain: Chain
    ) -> tuple[list[str], list[tuple[str, bool]]]:
        """Return the directories and the files in a directory, by name."""
        below: list[str] = []
        here: list[tuple[str, bool]] = []
        with os.scandir(parent) as entries:
            for entry in entries:
                # Check here too: a directory may hold any number of excluded entries, with many rules for each.
                self.check_time()
                name = entry.name
                if name in KEPT_OUT or (name.startswith(".intercom-") and STAGED.fullmatch(name)):
                    continue
                path = "/".join((*names, name))
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_valid(name):
                    self.omissions.note("names that are not UTF-8")
                    # The name cannot be stored, so added files cannot be detected.
                    self.omissions.whole = False
                elif ignored(chain, (*names, name), is_directory):
                    continue
                elif is_directory:
                    if len(names) >= DEEPEST:
                        self.omissions.add(f"directories more than {DEEPEST} deep", path)
                    else:
                        below.append(name)
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    here.append((name, entry.is_symlink()))
                else:
                    self.omissions.add("what is no regular file (a pipe, socket or device)", path)
        return sorted(below), sorted(here)

    def _with_rules(self, parent: int, names: tuple[str, ...], chain: Chain) -> Chain:
        rules = rules_in(parent)
        return chain if rules is None or not rules.rules else (*chain, (len(names), rules))


def rules_in(parent: int) -> Rules | None:
    """Return the rules of an open directory; None if absent or unreadable. Follows no link, as git does."""
    try:
        with os.fdopen(open_regular(parent, NAME), "rb") as file:
            return read_rules(file.read(MAX_BYTES))
    except OSError:
        return None


def is_valid(name: str) -> bool:
    """Whether a name can be stored as text."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
