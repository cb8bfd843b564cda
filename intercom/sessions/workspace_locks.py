"""The locks under which files of workspaces change. Workspaces that overlap lock each other, by path and by inode."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import define, field, frozen

#: A directory's identity under any name: its device and inode numbers.
_Inode = tuple[int, int]


@frozen
class _Place:
    """The location of a workspace. `inode` is None, and `above` may be incomplete, if directories cannot be read."""

    path: Path
    inode: _Inode | None
    above: frozenset[_Inode]

    def overlaps(self, other: _Place) -> bool:
        """Return whether both are one directory, or one contains the other, by path or by inode."""
        return self._holds(other) or other._holds(self)

    def _holds(self, other: _Place) -> bool:
        if self.path == other.path or self.path in other.path.parents:
            return True
        return self.inode is not None and (self.inode == other.inode or self.inode in other.above)


@define(eq=False)
class _Turn:
    """One task that holds the lock of its workspace, or waits for it. `over` is set when it is done."""

    place: _Place
    over: trio.Event = field(factory=trio.Event)


@define
class WorkspaceLocks:
    """The locks of one server's workspaces, by canonical path.

    Two sessions may change the same file, also from nested workspaces, and its base must not change between check and
    write. A task waits for all earlier tasks with an overlapping workspace. So waits never form a circle, and no task
    starves. A task that holds one lock must not ask for another.
    """

    _turns: list[_Turn] = field(factory=list)

    @asynccontextmanager
    async def hold(self, workspace_root: str) -> AsyncIterator[None]:
        """Lock the workspace, with all that contain it and all that it contains."""
        # In a thread: a file system that hangs must not block the other workspaces.
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
    """Return the location of a workspace. Reads directories, so it may block."""
    above = (_inode(directory) for directory in root.parents)
    return _Place(root, _inode(root), frozenset(inode for inode in above if inode is not None))


def _inode(directory: Path) -> _Inode | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino
