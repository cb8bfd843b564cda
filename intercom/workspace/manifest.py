"""The manifest of a workspace: its files' hashes, how they differ from a checkpoint's, and the steps that undo that.

The walk takes every file that .gitignore does not leave out, through no link and within limits. The files of version
control and Intercom are skipped. In memory are only the names of one directory and of the directories still to visit.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import define, field, frozen

from intercom.model.checkpoint import Divergence, DivergenceKind, FileState, LeftOut, Manifest
from intercom.workspace import gitignore
from intercom.workspace.files import (
    ABSENT,
    STAGED,
    NotRegular,
    directories_above,
    directory_id,
    directory_of,
    is_taken,
    name_of,
    names,
    open_regular,
    opened_directory,
    opened_root,
)
from intercom.workspace.gitignore import Chain, Rules
from intercom.workspace.transaction import Step

#: Directories (or files) that are skipped at any depth: version control or Intercom manages them.
KEPT_OUT = frozenset({".git", ".intercom", ".monocoque"})
#: How deep directories may be nested, and how many examples and skipped paths are stored.
DEEPEST = 200
EXAMPLES = 5
MAX_SKIPPED = 1000
#: How often a file is read if it changes meanwhile.
TRIES = 3
_CHUNK = 1024 * 1024
_CHANGING = "files that kept changing while they were read"
_NO_FILE = "files that are not regular (pipes, sockets or devices)"


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


class ContentStore(Protocol):
    """Stores contents by hash. `put` returns whether the content is stored, now or before."""

    def put(self, hash: str, data: bytes) -> bool: ...


def take_manifest(
    root: Path,
    limits: Limits | None = None,
    store: ContentStore | None = None,
    *,
    also: Collection[str] = (),
    now: Callable[[], float] = time.monotonic,
) -> Manifest:
    """Return the manifest of the workspace `root`: every relevant regular file and link, hashed.

    Files up to `limits.max_file_bytes` are given to `store`. The paths of `also` are examined even if .gitignore
    excludes them now. The manifest says what was left out. Raises FileError, and what the store raises.
    """
    with opened_root(root) as top:
        walk = _Walk(top, limits or Limits(), store, frozenset(also), now)
        try:
            walk.take_all()
        except LimitReached as reached:
            walk.whole = False
            walk.note(str(reached))
            walk.unclear |= walk.also - walk.files.keys()
        return Manifest(
            files=walk.files,
            size=walk.size,
            left_out=tuple(LeftOut(why, count, tuple(walk.examples[why])) for why, count in walk.counts.items()),
            whole=walk.whole,
            skipped=tuple(walk.skipped),
            unclear=frozenset(walk.unclear),
            root_id=directory_id(top),
        )


@define
class _Walk:
    """One walk through the workspace whose directory is open as `root`: what was taken, and what is left out."""

    root: int
    limits: Limits
    store: ContentStore | None
    also: frozenset[str]
    now: Callable[[], float]
    began: float = field(init=False)
    seen: int = 0
    files: dict[str, FileState] = field(factory=dict)
    size: int = 0
    unclear: set[str] = field(factory=set)
    whole: bool = True
    skipped: list[str] = field(factory=list)
    counts: dict[str, int] = field(factory=dict)
    examples: dict[str, list[str]] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.began = self.now()

    def check_time(self) -> None:
        """Raise LimitReached if the time is up."""
        if self.now() - self.began > self.limits.max_seconds:
            raise LimitReached(f"the limit of {self.limits.max_seconds:g} seconds was reached")

    # --- what is left out --------------------------------------------------------------------------------------------

    def leave_out(self, why: str, path: str) -> None:
        """Count a file or directory that exists but is left out."""
        self.note(why, path)
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(path)
        else:
            self.whole = False

    def miss(self, why: str, path: str) -> None:
        """Leave out a file that could not be read, so it may be as it was."""
        self.leave_out(why, path)
        if path in self.also:
            self.unclear.add(path)

    def note(self, why: str, path: str | None = None) -> None:
        """Count something to report."""
        self.counts[why] = self.counts.get(why, 0) + 1
        some = self.examples.setdefault(why, [])
        if path is not None and len(some) < EXAMPLES:
            some.append(path)

    # --- directories -------------------------------------------------------------------------------------------------

    def take_all(self) -> None:
        """Take every relevant file, then the paths of `also` that the walk did not meet: they are removed or ignored
        since. Raises LimitReached at a limit."""
        ahead: list[tuple[tuple[str, ...], Chain]] = [((), ())]
        while ahead:
            self.check_time()
            above, chain = ahead.pop()
            try:
                with opened_directory(self.root, above) as parent:
                    rules = gitignore.rules_in(parent)
                    if rules is not None and rules.rules:
                        chain = (*chain, (len(above), rules))
                    below, here = self._sorted_out(parent, above, chain)
                    ahead += [((*above, name), chain) for name in reversed(below)]
                    for name, is_link in here:
                        self.check_time()
                        self.seen += 1
                        if self.seen > self.limits.max_files:
                            raise LimitReached(f"the limit of {self.limits.max_files} files was reached")
                        self._take("/".join((*above, name)), parent, is_link=is_link)
            except (FileNotFoundError, NotADirectoryError):
                # The directory was removed or replaced since its name was read.
                continue
            except OSError as error:
                self.leave_out(f"directories that cannot be read ({_why(error)})", "/".join(above))
        for path in sorted(self.also - self.files.keys() - self.unclear):
            self.check_time()
            try:
                with opened_directory(self.root, names(path)[:-1]) as parent:
                    kind = os.lstat(name_of(path), dir_fd=parent).st_mode
                    if stat.S_ISLNK(kind) or stat.S_ISREG(kind):
                        self._take(path, parent, is_link=stat.S_ISLNK(kind))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.miss(f"files that cannot be read ({_why(error)})", path)

    def _sorted_out(
        self, parent: int, above: tuple[str, ...], chain: Chain
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
                is_directory = entry.is_dir(follow_symlinks=False)
                if not _is_text(name):
                    self.note("names that are not UTF-8")
                    # The name cannot be stored, so added files cannot be detected.
                    self.whole = False
                elif gitignore.ignored(chain, (*above, name), is_directory):
                    continue
                elif is_directory and len(above) < DEEPEST:
                    below.append(name)
                elif is_directory:
                    self.leave_out(f"directories more than {DEEPEST} deep", "/".join((*above, name)))
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    here.append((name, entry.is_symlink()))
                else:
                    self.leave_out(_NO_FILE, "/".join((*above, name)))
        return sorted(below), sorted(here)

    # --- files -------------------------------------------------------------------------------------------------------

    def _take(self, path: str, parent: int, *, is_link: bool) -> None:
        """Take a regular file or a link, whose directory is open as `parent`."""
        try:
            state = self._link(path, parent) if is_link else self._file(path, parent)
        except FileNotFoundError:
            return
        except OSError as error:
            # ELOOP, EINVAL, ENXIO: a file was replaced by a link since, or the other way round.
            changing = error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO)
            self.miss(_CHANGING if changing else f"files that cannot be read ({_why(error)})", path)
        else:
            if state is not None:
                self.files[path] = state

    def _link(self, path: str, parent: int) -> FileState | None:
        target = os.readlink(name_of(path), dir_fd=parent)
        if not _is_text(target):
            self.miss("links whose target is not UTF-8", path)
            return None
        return FileState(hashlib.sha256(target.encode()).hexdigest(), 0, target)

    def _file(self, path: str, parent: int) -> FileState | None:
        try:
            fd = open_regular(parent, name_of(path))
        except NotRegular:
            self.miss(_NO_FILE, path)
            return None
        try:
            before = os.fstat(fd)
            for _ in range(TRIES):
                if self.size + before.st_size > self.limits.max_bytes:
                    raise LimitReached(f"the limit of {self.limits.max_bytes} bytes was reached")
                hash, data = self._read(fd, before.st_size)
                after = os.fstat(fd)
                if _stamp(before) == _stamp(after):
                    kept = data is not None and self.store is not None and self.store.put(hash, data)
                    if self.store is not None and not kept:
                        why = "too large to be kept" if data is None else "not kept: the store is full"
                        self.note(f"contents {why}", path)
                    self.size += before.st_size
                    return FileState(hash, stat.S_IMODE(before.st_mode) & 0o777, None, kept)
                before = after
                os.lseek(fd, 0, os.SEEK_SET)
        finally:
            os.close(fd)
        self.miss(_CHANGING, path)
        return None

    def _read(self, fd: int, size: int) -> tuple[str, bytes | None]:
        """Return the hash of a file, and its content if it is small enough to be kept."""
        if self.store is not None and size <= self.limits.max_file_bytes:
            # Read one byte more, so that a file that grows is detected as changed.
            data = b"".join(_parts(fd, size + 1))
            return hashlib.sha256(data).hexdigest(), data
        sum = hashlib.sha256()
        for part in _parts(fd):
            self.check_time()
            sum.update(part)
        return sum.hexdigest(), None


def _parts(fd: int, most: int | None = None) -> Iterator[bytes]:
    """Yield the content of an open file, at most so many bytes."""
    left = most
    while part := os.read(fd, _CHUNK if left is None else min(left, _CHUNK)):
        left = None if left is None else left - len(part)
        yield part


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _why(error: OSError) -> str:
    return (error.strerror or "unknown").lower()


def _is_text(name: str) -> bool:
    """Whether a name can be stored as text."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


# --- differences -----------------------------------------------------------------------------------------------------

_ABSENT = FileState("", 0)


def divergences(
    then: Manifest, now: Manifest, ignored_then: Callable[[str], bool] = lambda _: False
) -> list[Divergence]:
    """Return every file that differs, sorted by path.

    A file counts as added only if it certainly did not exist then. So nothing is added if the manifest `then` is not
    whole, nor is a file that was left out then or was `ignored_then`. Files that cannot be read now are not included.
    """
    found = []
    for path, was in then.files.items():
        found_now = now.files.get(path)
        if found_now is None:
            if path not in now.unclear:
                found.append(Divergence(path, DivergenceKind.DELETED))
        elif (found_now.fingerprint, found_now.mode) != (was.fingerprint, was.mode):
            found.append(Divergence(path, DivergenceKind.MODIFIED))
    if then.whole:
        skipped = frozenset(then.skipped)
        found += [
            Divergence(path, DivergenceKind.ADDED)
            for path in now.files.keys() - then.files.keys()
            if skipped.isdisjoint((path, *directories_above(path))) and not ignored_then(path)
        ]
    return sorted(found, key=lambda each: each.path)


def digest(found: list[Divergence], now: Manifest, remarked: Iterable[str] = ()) -> str:
    """Return a hash of these divergences, the files' present content and the remarks on them. It is equal only while
    nothing changes, and in the same workspace directory."""
    sum = hashlib.sha256(f"{now.root_id}\n".encode())
    for each in found:
        state = now.files.get(each.path, _ABSENT)
        text = f"{each.kind.value}\0{each.path}\0{state.fingerprint}\0{state.mode}\n"
        sum.update(text.encode("utf-8", "surrogatepass"))
    for each_remark in remarked:
        sum.update(f"remark\0{each_remark}\n".encode("utf-8", "surrogatepass"))
    return sum.hexdigest()


def rules_of(
    then: Manifest, read: Callable[[str], bytes | None], check_time: Callable[[], None] = lambda: None
) -> Mapping[str, Rules] | None:
    """Return the .gitignore rules in force when the manifest was made, by directory.

    `read` returns contents by hash. Returns None if the content of a rules file is not available. `check_time` is
    called before each, and raises to cancel.
    """
    rules: dict[str, Rules] = {}
    for path, state in then.files.items():
        if name_of(path) == gitignore.NAME and state.link is None:
            check_time()
            data = read(state.hash) if state.kept else None
            if data is None:
                return None
            rules[directory_of(path)] = gitignore.read_rules(data)
    return rules


# --- the way back ----------------------------------------------------------------------------------------------------

#: Why a file is blocked if a directory has its name.
IN_THE_WAY = "its path is now a directory that is not empty"


@frozen
class Blocked:
    """A file that cannot be restored, and why."""

    path: str
    why: str


@frozen
class RestorePlan:
    steps: tuple[Step, ...]
    blocked: tuple[Blocked, ...]


def plan_restore(
    root: Path, then: Manifest, now: Manifest, found: Sequence[Divergence], missing: Collection[str], *, exact: bool
) -> RestorePlan:
    """Return how to undo `found`, the divergences between the two manifests of the workspace `root`.

    `missing` are the hashes whose content is not stored. With `exact`, files added since are removed. Raises FileError.
    """
    going = {each.path for each in found if each.kind is DivergenceKind.ADDED} if exact else set()
    staying = now.files.keys() - going
    directories = {directory for path in staying for directory in directories_above(path)}
    steps = [Step(path, now.files[path].fingerprint, ABSENT, strict=False) for path in sorted(going)]
    blocked = []
    with opened_root(root, now.root_id) as top:
        for each in found:
            if each.kind is DivergenceKind.ADDED:
                continue
            path, state = each.path, then.files[each.path]
            file = next((above for above in directories_above(path) if above in staying), None)
            if state.link is None and (not state.kept or state.hash in missing):
                blocked.append(Blocked(path, "its content was not stored"))
            elif path in directories:
                blocked.append(Blocked(path, IN_THE_WAY))
            elif file is not None:
                blocked.append(Blocked(path, f"{file} is a file or link now"))
            elif is_taken(top, path, going):
                # The manifest may lack the directory's files, because .gitignore hides them.
                blocked.append(Blocked(path, IN_THE_WAY))
            else:
                before = ABSENT if path not in now.files else now.files[path].fingerprint
                steps.append(Step(path, before, state.fingerprint, mode=state.mode, link=state.link, strict=False))
    return RestorePlan(tuple(steps), tuple(blocked))
