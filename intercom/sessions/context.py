"""What every session is given, and the lock under which files of a workspace are changed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import trio
from attrs import define, field, frozen

from actors import Name
from intercom.model.config import Config
from intercom.model.metrics import Measured, unmeasured
from intercom.model.policy import WorkspacePolicy
from intercom.sessions.chat import Chat
from intercom.sessions.signatures import Signatures, without_keys
from intercom.store.client import Store

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
    above = (_inode(directory) for directory in root.parents)
    return _Place(root, _inode(root), frozenset(inode for inode in above if inode is not None))


def _inode(directory: Path) -> _Inode | None:
    try:
        found = os.stat(directory)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@frozen
class Context:
    """`now` is wall time. `policy` returns the policy in force for a workspace root (deny-all if none is known),
    `watcher` the actor that evaluates it. `present` says whether the agent of a key is connected. `chat` is None if no
    chat is set up. `measured` receives metrics. `unattended` are pending requests that no call waits for, as their
    cards say. `signatures` says which decisions count. Files are changed under `locks`."""

    config: Config
    store: Store
    operators: Name
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    policy: Callable[[str], WorkspacePolicy]
    watcher: Callable[[str], Name]
    present: Callable[[str | None], bool]
    chat: Chat | None = None
    measured: Measured = unmeasured
    signatures: Signatures = field(factory=without_keys)
    locks: WorkspaceLocks = field(factory=WorkspaceLocks)
    unattended: set[str] = field(factory=set)
