"""Walking a workspace: every file that counts, wherever it lies, through no link and within limits.

What version control and Intercom keep for themselves is passed over, and so is what .gitignore files leave out. Held in
memory are the names of one directory and of those still to be visited.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from intercom.model.manifest import LeftOut
from intercom.workspace import ignoring
from intercom.workspace.descriptors import open_regular, opened_directory
from intercom.workspace.ignoring import Chain, Rules

#: Directories (or files) that are never looked into, at any depth: they have keepers of their own.
KEPT_OUT = frozenset({".git", ".intercom", ".monocoque"})
#: What we stage beside files that are being changed.
STAGED = re.compile(r"\.intercom-(restore-.+|[A-Za-z0-9_-]{1,64}-\d+\.tmp)")
#: How deep directories may lie within each other, and how many examples and skipped paths are remembered.
DEEPEST = 200
EXAMPLES = 5
MAX_SKIPPED = 1000


@frozen
class Limits:
    """`max_bytes` is how much is read of all files together; `max_file_bytes` is the largest file whose content is
    kept; `max_seconds` is how long a look may take."""

    max_files: int = 100_000
    max_bytes: int = 2 * 2**30
    max_file_bytes: int = 8 * 2**20
    max_seconds: float = 30.0


class Enough(Exception):
    """A limit is reached: the look ends here."""


@define
class Tally:
    """What is left out, and why."""

    counts: dict[str, int] = field(factory=dict)
    examples: dict[str, list[str]] = field(factory=dict)
    skipped: list[str] = field(factory=list)
    whole: bool = True

    def add(self, why: str, path: str) -> None:
        """A file or directory is there and is not taken in."""
        self.note(why, path)
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(path)
        else:
            self.whole = False

    def note(self, why: str, path: str | None = None) -> None:
        """There is something to be told, once more."""
        self.counts[why] = self.counts.get(why, 0) + 1
        some = self.examples.setdefault(why, [])
        if path is not None and len(some) < EXAMPLES:
            some.append(path)

    def end(self, why: str) -> Enough:
        """Note that the look ends before everything was seen."""
        self.whole = False
        self.note(why)
        return Enough(why)

    def told(self) -> tuple[LeftOut, ...]:
        return tuple(LeftOut(why, count, tuple(self.examples[why])) for why, count in self.counts.items())


@frozen
class Spotted:
    """A regular file or a link: `name` in the open directory `parent`."""

    path: str
    parent: int
    name: str
    is_link: bool


@define
class Walk:
    """One look through the workspace whose directory is open as `root`."""

    root: int
    limits: Limits
    tally: Tally
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    files: int = 0

    def __attrs_post_init__(self) -> None:
        self.began = self.now()

    def spotted(self) -> Iterator[Spotted]:
        """Every file that counts, in the order of a walk. Each is to be dealt with before the next is asked for. Raises
        Enough at a limit."""
        ahead: list[tuple[tuple[str, ...], Chain]] = [((), ())]
        while ahead:
            self.hurry()
            names, chain = ahead.pop()
            path = "/".join(names)
            try:
                with opened_directory(self.root, names) as parent:
                    chain = self._with_rules(parent, names, chain)
                    below, here = self._sorted_out(parent, names, chain)
                    ahead += [((*names, name), chain) for name in reversed(below)]
                    for name, is_link in here:
                        self.hurry()
                        self.files += 1
                        if self.files > self.limits.max_files:
                            raise self.tally.end(f"the limit of {self.limits.max_files} files was reached")
                        yield Spotted(f"{path}/{name}" if path else name, parent, name, is_link)
            except (FileNotFoundError, NotADirectoryError):
                # Gone, or swapped for something else, since its name was read.
                continue
            except OSError as error:
                self.tally.add(f"directories that can not be read ({(error.strerror or 'unknown').lower()})", path)

    def hurry(self) -> None:
        """Raises Enough when the time is up."""
        if self.now() - self.began > self.limits.max_seconds:
            raise self.tally.end(f"the limit of {self.limits.max_seconds:g} seconds was reached")

    def _sorted_out(
        self, parent: int, names: tuple[str, ...], chain: Chain
    ) -> tuple[list[str], list[tuple[str, bool]]]:
        """The directories and the files in a directory, by name."""
        below: list[str] = []
        here: list[tuple[str, bool]] = []
        with os.scandir(parent) as entries:
            for entry in entries:
                # Here too: a directory may hold any number of what is left out, with as many rules for each.
                self.hurry()
                name = entry.name
                if name in KEPT_OUT or (name.startswith(".intercom-") and STAGED.fullmatch(name)):
                    continue
                path = "/".join((*names, name))
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_valid(name):
                    self.tally.note("names that are not UTF-8")
                    # It can not be written down, and so nothing can be said of what is new.
                    self.tally.whole = False
                elif ignoring.ignored(chain, (*names, name), is_directory):
                    continue
                elif is_directory:
                    if len(names) >= DEEPEST:
                        self.tally.add(f"directories more than {DEEPEST} deep", path)
                    else:
                        below.append(name)
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    here.append((name, entry.is_symlink()))
                else:
                    self.tally.add("what is no regular file (a pipe, socket or device)", path)
        return sorted(below), sorted(here)

    def _with_rules(self, parent: int, names: tuple[str, ...], chain: Chain) -> Chain:
        rules = rules_in(parent)
        return chain if rules is None or not rules.rules else (*chain, (len(names), rules))


def rules_in(parent: int) -> Rules | None:
    """The rules of an open directory, None where it has none, or they can not be read. Through no link, as git does."""
    try:
        with os.fdopen(open_regular(parent, ignoring.NAME), "rb") as file:
            return ignoring.read_rules(file.read(ignoring.MAX_BYTES))
    except OSError:
        return None


def is_valid(name: str) -> bool:
    """Whether a name can be written down as text."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
