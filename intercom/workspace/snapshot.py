"""A snapshot: the hashes of a workspace's files, how they differ from a checkpoint's, and the steps that undo that."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import define, field, frozen

from intercom.model.checkpoint import Divergence, DivergenceKind, FileState, Manifest
from intercom.workspace import walk
from intercom.workspace.files import (
    ABSENT,
    NotRegular,
    directory_id,
    is_taken,
    open_regular,
    opened_directory,
    opened_root,
)
from intercom.workspace.transaction import Step
from intercom.workspace.walk import FoundFile, LimitReached, Limits, Omissions, Rules, Walk

#: How often a file is read if it changes meanwhile.
TRIES = 3
_CHUNK = 1024 * 1024


class ContentStore(Protocol):
    """Stores contents by hash. `put` returns whether the content is stored, now or before."""

    def put(self, hash: str, data: bytes) -> bool: ...


@frozen
class _KeepsChanging(Exception):
    """A file changed during each attempt to read it."""


def snapshot(
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
        root_id = directory_id(top)
        taking = _Taking(Walk(top, limits or Limits(), Omissions(), now), store, frozenset(also))
        try:
            for file in taking.walk.found():
                taking.take(file)
            taking.look_at_the_rest()
        except LimitReached:
            taking.unclear |= taking.also - taking.files.keys()
    omissions = taking.walk.omissions
    return Manifest(
        files=taking.files,
        size=taking.size,
        left_out=omissions.as_left_out(),
        whole=omissions.whole,
        skipped=tuple(omissions.skipped),
        unclear=frozenset(taking.unclear),
        root_id=root_id,
    )


@define
class _Taking:
    walk: Walk
    store: ContentStore | None
    also: frozenset[str]
    files: dict[str, FileState] = field(factory=dict)
    unclear: set[str] = field(factory=set)
    size: int = 0

    def take(self, file: FoundFile) -> None:
        try:
            state = self._link(file) if file.is_link else self._file(file)
        except _KeepsChanging:
            self._leave_out("files that kept changing while they were read", file.path)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
                # A file was replaced by a link since, or the other way round.
                self._leave_out("files that kept changing while they were read", file.path)
            else:
                why = (error.strerror or "unknown").lower()
                self._leave_out(f"files that cannot be read ({why})", file.path)
        else:
            if state is not None:
                self.files[file.path] = state

    def look_at_the_rest(self) -> None:
        """Examine the paths of `also` that the walk did not meet: they are removed or ignored since."""
        for path in sorted(self.also - self.files.keys() - self.unclear):
            self.walk.check_time()
            *above, name = path.split("/")
            try:
                with opened_directory(self.walk.root, above) as parent:
                    kind = os.lstat(name, dir_fd=parent).st_mode
                    if stat.S_ISLNK(kind) or stat.S_ISREG(kind):
                        self.take(FoundFile(path, parent, name, stat.S_ISLNK(kind)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._leave_out(f"files that cannot be read ({(error.strerror or 'unknown').lower()})", path)

    def _leave_out(self, why: str, path: str) -> None:
        self.walk.omissions.add(why, path)
        if path in self.also:
            self.unclear.add(path)

    def _link(self, file: FoundFile) -> FileState | None:
        target = os.readlink(file.name, dir_fd=file.parent)
        try:
            data = target.encode()
        except UnicodeEncodeError:
            self._leave_out("links whose target is not UTF-8", file.path)
            return None
        return FileState(hashlib.sha256(data).hexdigest(), 0, target)

    def _file(self, file: FoundFile) -> FileState | None:
        try:
            fd = open_regular(file.parent, file.name)
        except NotRegular:
            self._leave_out("what is no regular file (a pipe, socket or device)", file.path)
            return None
        try:
            before = os.fstat(fd)
            for _ in range(TRIES):
                if self.size + before.st_size > self.walk.limits.max_bytes:
                    raise self.walk.omissions.end(f"the limit of {self.walk.limits.max_bytes} bytes was reached")
                hash, data = self._read(fd, before.st_size)
                after = os.fstat(fd)
                if _stamp(before) == _stamp(after):
                    kept = data is not None and self.store is not None and self.store.put(hash, data)
                    if self.store is not None and not kept:
                        why = "too large to be kept" if data is None else "not kept: the store is full"
                        self.walk.omissions.note(f"contents {why}", file.path)
                    self.size += before.st_size
                    return FileState(hash, stat.S_IMODE(before.st_mode) & 0o777, None, kept)
                before = after
                os.lseek(fd, 0, os.SEEK_SET)
            raise _KeepsChanging
        finally:
            os.close(fd)

    def _read(self, fd: int, size: int) -> tuple[str, bytes | None]:
        """Return the hash of a file, and its content if it is small enough to be kept."""
        limit = self.walk.limits.max_file_bytes
        if self.store is not None and size <= limit:
            # Read one byte more, so that a file that grows is detected as changed.
            data = _whole(fd, size + 1)
            return hashlib.sha256(data).hexdigest(), data
        sum = hashlib.sha256()
        while chunk := os.read(fd, _CHUNK):
            self.walk.check_time()
            sum.update(chunk)
        return sum.hexdigest(), None


def _whole(fd: int, most: int) -> bytes:
    parts = []
    while most > 0 and (chunk := os.read(fd, min(most, _CHUNK))):
        parts.append(chunk)
        most -= len(chunk)
    return b"".join(parts)


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
            if not _is_below(path, skipped) and not ignored_then(path)
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
        directory, _, name = path.rpartition("/")
        if name == walk.NAME and state.link is None:
            check_time()
            data = read(state.hash) if state.kept else None
            if data is None:
                return None
            rules[directory] = walk.read_rules(data)
    return rules


def _is_below(path: str, directories: frozenset[str]) -> bool:
    if not directories:
        return False
    names = path.split("/")
    return any("/".join(names[: i + 1]) in directories for i in range(len(names)))


#: Why a file is blocked if a directory has its name.
IN_THE_WAY = "a directory that is not empty stands there now"


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
    directories = _directories(staying)
    steps = [Step(path, now.files[path].fingerprint, ABSENT, strict=False) for path in sorted(going)]
    blocked = []
    with opened_root(root, now.root_id) as top:
        for each in found:
            if each.kind is DivergenceKind.ADDED:
                continue
            path, state = each.path, then.files[each.path]
            why = _obstacle(path, state, staying, directories, missing)
            if why is None and is_taken(top, path, going):
                # The manifest may lack the directory's files, because .gitignore hides them.
                why = IN_THE_WAY
            if why is not None:
                blocked.append(Blocked(path, why))
                continue
            before = ABSENT if path not in now.files else now.files[path].fingerprint
            steps.append(Step(path, before, state.fingerprint, mode=state.mode, link=state.link, strict=False))
    return RestorePlan(tuple(steps), tuple(blocked))


def _obstacle(
    path: str, state: FileState, staying: Collection[str], directories: Collection[str], missing: Collection[str]
) -> str | None:
    """Return why a file cannot be restored beside the files that stay, in words; None if it can."""
    if state.link is None and (not state.kept or state.hash in missing):
        return "its content was not kept"
    if path in directories:
        return IN_THE_WAY
    names = path.split("/")
    for i in range(1, len(names)):
        above = "/".join(names[:i])
        if above in staying:
            return f"{above} is a file or link now"
    return None


def _directories(paths: Collection[str]) -> set[str]:
    """Return every directory above one of the paths."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found
