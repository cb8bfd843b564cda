"""A snapshot of a workspace: the hashes of its files, and their contents for a store. For worker threads."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from attrs import define, field, frozen

from intercom.model.manifest import FileState, Manifest
from intercom.workspace.descriptors import NotRegular, open_regular, opened_directory, opened_root
from intercom.workspace.walking import Enough, Limits, Spotted, Tally, Walk

#: How often a file is read if it changes meanwhile.
TRIES = 3
_CHUNK = 1024 * 1024


class Keeper(Protocol):
    """Stores contents by hash. `keep` returns whether the content is stored, now or before."""

    def keep(self, hash: str, data: bytes) -> bool: ...


@frozen
class _Unsteady(Exception):
    """A file changed during each attempt to read it."""


def snapshot(
    root: Path,
    limits: Limits | None = None,
    keeper: Keeper | None = None,
    *,
    also: Collection[str] = (),
    now: Callable[[], float] = time.monotonic,
) -> Manifest:
    """Return the manifest of the workspace `root`: every relevant regular file and link, hashed.

    Files up to `limits.max_file_bytes` are given to `keeper`. The paths of `also` are examined even if .gitignore
    excludes them now. The manifest says what was left out. Raises FileError, and what the keeper raises.
    """
    with opened_root(root) as top:
        inode = os.fstat(top).st_ino
        taking = _Taking(Walk(top, limits or Limits(), Tally(), now), keeper, frozenset(also))
        try:
            for spotted in taking.walk.spotted():
                taking.take(spotted)
            taking.look_at_the_rest()
        except Enough:
            taking.unclear |= taking.also - taking.files.keys()
    tally = taking.walk.tally
    return Manifest(
        taking.files, taking.size, tally.told(), tally.whole, tuple(tally.skipped), frozenset(taking.unclear), inode
    )


@define
class _Taking:
    walk: Walk
    keeper: Keeper | None
    also: frozenset[str]
    files: dict[str, FileState] = field(factory=dict)
    unclear: set[str] = field(factory=set)
    size: int = 0

    def take(self, spotted: Spotted) -> None:
        try:
            state = self._link(spotted) if spotted.is_link else self._file(spotted)
        except _Unsteady:
            self._leave_out("files that kept changing while they were read", spotted.path)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
                # A file was replaced by a link since, or the other way round.
                self._leave_out("files that kept changing while they were read", spotted.path)
            else:
                why = (error.strerror or "unknown").lower()
                self._leave_out(f"files that can not be read ({why})", spotted.path)
        else:
            if state is not None:
                self.files[spotted.path] = state

    def look_at_the_rest(self) -> None:
        """Examine the paths of `also` that the walk did not meet: they are removed or ignored since."""
        for path in sorted(self.also - self.files.keys() - self.unclear):
            self.walk.hurry()
            *above, name = path.split("/")
            try:
                with opened_directory(self.walk.root, above) as parent:
                    kind = os.lstat(name, dir_fd=parent).st_mode
                    if stat.S_ISLNK(kind) or stat.S_ISREG(kind):
                        self.take(Spotted(path, parent, name, stat.S_ISLNK(kind)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._leave_out(f"files that can not be read ({(error.strerror or 'unknown').lower()})", path)

    def _leave_out(self, why: str, path: str) -> None:
        self.walk.tally.add(why, path)
        if path in self.also:
            self.unclear.add(path)

    def _link(self, spotted: Spotted) -> FileState | None:
        target = os.readlink(spotted.name, dir_fd=spotted.parent)
        try:
            data = target.encode()
        except UnicodeEncodeError:
            self._leave_out("links whose target is not UTF-8", spotted.path)
            return None
        return FileState(hashlib.sha256(data).hexdigest(), 0, target)

    def _file(self, spotted: Spotted) -> FileState | None:
        try:
            fd = open_regular(spotted.parent, spotted.name)
        except NotRegular:
            self._leave_out("what is no regular file (a pipe, socket or device)", spotted.path)
            return None
        try:
            before = os.fstat(fd)
            for _ in range(TRIES):
                if self.size + before.st_size > self.walk.limits.max_bytes:
                    raise self.walk.tally.end(f"the limit of {self.walk.limits.max_bytes} bytes was reached")
                hash, data = self._read(fd, before.st_size)
                after = os.fstat(fd)
                if _stamp(before) == _stamp(after):
                    kept = data is not None and self.keeper is not None and self.keeper.keep(hash, data)
                    if self.keeper is not None and not kept:
                        why = "too large to be kept" if data is None else "not kept: the store is full"
                        self.walk.tally.note(f"contents {why}", spotted.path)
                    self.size += before.st_size
                    return FileState(hash, stat.S_IMODE(before.st_mode) & 0o777, None, kept)
                before = after
                os.lseek(fd, 0, os.SEEK_SET)
            raise _Unsteady
        finally:
            os.close(fd)

    def _read(self, fd: int, size: int) -> tuple[str, bytes | None]:
        """Return the hash of a file, and its content if it is small enough to be kept."""
        limit = self.walk.limits.max_file_bytes
        if self.keeper is not None and size <= limit:
            # Read one byte more, so that a file that grows is detected as changed.
            data = _whole(fd, size + 1)
            return hashlib.sha256(data).hexdigest(), data
        sum = hashlib.sha256()
        while chunk := os.read(fd, _CHUNK):
            self.walk.hurry()
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
