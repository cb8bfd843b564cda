"""Walking a workspace: every relevant file, within limits and without following links.

The files of version control and Intercom are skipped, and so is what .gitignore files exclude. In memory are only the
names of one directory and of the directories still to visit.
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

#: Directories (or files) that are skipped at any depth: version control or Intercom manages them.
KEPT_OUT = frozenset({".git", ".intercom", ".monocoque"})
#: The names of our staged files and directories.
STAGED = re.compile(r"\.intercom-(restore-.+|[A-Za-z0-9_-]{1,64}-\d+\.tmp)")
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


class Enough(Exception):
    """A limit is reached, which ends the walk."""


@define
class Tally:
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

    def end(self, why: str) -> Enough:
        """Record that the walk ends before everything was seen."""
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
    """One walk through the workspace whose directory is open as `root`."""

    root: int
    limits: Limits
    tally: Tally
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    files: int = 0

    def __attrs_post_init__(self) -> None:
        self.began = self.now()

    def spotted(self) -> Iterator[Spotted]:
        """Yield every relevant file. Process each before requesting the next, which closes its directory. Raises
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
                # The directory was removed or replaced since its name was read.
                continue
            except OSError as error:
                self.tally.add(f"directories that can not be read ({(error.strerror or 'unknown').lower()})", path)

    def hurry(self) -> None:
        """Raise Enough if the time is up."""
        if self.now() - self.began > self.limits.max_seconds:
            raise self.tally.end(f"the limit of {self.limits.max_seconds:g} seconds was reached")

    def _sorted_out(
        self, parent: int, names: tuple[str, ...], chain: Chain
    ) -> tuple[list[str], list[tuple[str, bool]]]:
        """Return the directories and the files in a directory, by name."""
        below: list[str] = []
        here: list[tuple[str, bool]] = []
        with os.scandir(parent) as entries:
            for entry in entries:
                # Check here too: a directory may hold any number of excluded entries, with many rules for each.
                self.hurry()
                name = entry.name
                if name in KEPT_OUT or (name.startswith(".intercom-") and STAGED.fullmatch(name)):
                    continue
                path = "/".join((*names, name))
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_valid(name):
                    self.tally.note("names that are not UTF-8")
                    # The name cannot be stored, so added files cannot be detected.
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
    """Return the rules of an open directory; None if absent or unreadable. Follows no link, as git does."""
    try:
        with os.fdopen(open_regular(parent, ignoring.NAME), "rb") as file:
            return ignoring.read_rules(file.read(ignoring.MAX_BYTES))
    except OSError:
        return None


def is_valid(name: str) -> bool:
    """Whether a name can be stored as text."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)
