"""The locks under which files of a workspace are changed: one at a time where workspaces overlap."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import define, field, frozen

#: A directory, whatever it is called: its device and inode numbers.
_Inode = tuple[int, int]


@frozen
class _Place:
    """Where a workspace lies. `inode` is None, and `above` may lack directories, where they cannot be looked at."""

    path: Path
    inode: _Inode | None
    above: frozenset[_Inode]

    def overlaps(self, other: _Place) -> bool:
        """Whether the two are one directory, or one contains the other, by their paths or by their inodes."""
        return self._holds(other) or other._holds(self)

    def _holds(self, other: _Place) -> bool:
        if self.path == other.path or self.path in other.path.parents:
            return True
        return self.inode is not None and (self.inode == other.inode or self.inode in other.above)


@define(eq=False)
class _Turn:
    place: _Place
    over: trio.Event = field(factory=trio.Event)


@define
class WorkspaceLocks:
    """Locks of one server's workspaces, by their canonical paths.

    Two sessions may change the same file, also from two workspaces of which one contains the other, and its base must
    not move between check and write. Who asks waits for all that asked before for an overlapping workspace: waits never
    form a circle, and nobody is overtaken for ever. A task that holds one lock must not ask for another.
    """

    _turns: list[_Turn] = field(factory=list)

    @asynccontextmanager
    async def hold(self, workspace_root: str) -> AsyncIterator[None]:
        """Hold the workspace alone, with all that contain it and all that lie in it."""
        # In a thread: a file system that hangs must not stop the other workspaces.
        mine = _Turn(await trio.to_thread.run_sync(partial(_place, Path(workspace_root)), abandon_on_cancel=True))
        earlier = [turn for turn in self._turns if turn.place.overlaps(mine.place)]
        self._turns.append(mine)
        try:
            for turn in earlier:
                await turn.over.wait()
            yield
        finally:
            self._turns.remove(mine)
            mine.over.set()


def _place(root: Path) -> _Place:
    above = (_inode(directory) for directory in root.parents)
    return _Place(root, _inode(root), frozenset(inode for inode in above if inode is not None))


def _inode(directory: Path) -> _Inode | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino
