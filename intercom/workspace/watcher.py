"""The actor that holds a workspace's policy and follows its file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import trio
from watchfiles import Change, awatch

from actors import Actor, Refused
from intercom.model.errors import IntercomError
from intercom.workspace import policy, policy_file
from intercom.workspace.messages import Accept, AgentsConnected, Current, Evaluate, EvaluateFiles, FileTouched
from intercom.workspace.policy import NO_LIMITS, Limits
from intercom.workspace.policy_file import OLDER_POLICY_FILE, POLICY_FILE, Loaded
from intercom.workspace.policy_state import PolicyState, accepted, changed, started

logger = logging.getLogger(__name__)

_FILES = (POLICY_FILE, OLDER_POLICY_FILE)

#: An editor that writes a file in several steps is given this long to finish, in milliseconds.
DEBOUNCE_MS = 200
#: What no notice was received of (network file systems, a full notification queue) is seen after so long.
POLL_SECONDS = 5.0

Signature = tuple[tuple[int, ...] | None, ...]


def watcher_name(root: Path) -> str:
    """The name under which the watcher of a workspace is registered."""
    return f"policy/{root}"


class PolicyWatcher(Actor):
    """Holds the policy of the workspace `root`, and answers by it.

    `on_change` is called on the loop with the new state at start and whenever it changes: the caller keeps what is in
    force, shows what is proposed, and tells people of a fault. `in_force` is the hash and text of what was in force
    before this actor or the server went down while agents lived, None where none did: what the file says now is held
    against it. `agents` is how many are connected at start. `trust_changes` puts every change in force at once.
    Loading fails never: a file with a fault grants nothing.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused, IntercomError)

    def __init__(
        self,
        root: Path,
        on_change: Callable[[PolicyState], object],
        *,
        in_force: tuple[str, str] | None = None,
        trust_changes: bool = False,
        agents: int = 0,
        limits: Limits = NO_LIMITS,
    ) -> None:
        super().__init__()
        self._root = root
        self._on_change = on_change
        self._kept = in_force
        self._trust = trust_changes
        self._agents = agents
        self._limits = limits
        self._signature: Signature | None = None
        self._state: PolicyState

    async def on_start(self) -> None:
        """Read the file, and begin to follow it."""
        loaded = await self._read()
        assert loaded is not None
        self._state = started(loaded, None if self._trust else self._kept)
        self._on_change(self._state)
        self.spawn(_follow, self._root, self._touched)

    async def on_receive(self, message: Any) -> Any:
        """Answer by the policy as the file states it at this moment."""
        match message:
            case Evaluate(query):
                await self._refresh()
                # Beside the loop, as below: hundreds of patterns and a deep path take seconds to match.
                return await trio.to_thread.run_sync(policy.evaluate, self._state.policy, query, self._limits)
            case EvaluateFiles(paths, risk):
                await self._refresh()
                return await trio.to_thread.run_sync(
                    policy.evaluate_files, self._state.policy, paths, risk, self._limits
                )
            case Current():
                await self._refresh()
                return self._state
            case Accept(sha256, by):
                self._become(accepted(self._state, sha256))
                logger.info("policy of %s accepted by %s", self._root, by)
                return self._state
            case AgentsConnected(count):
                # A change not yet seen may be the work of those who just came, or just left.
                self._agents = max(self._agents, count)
                await self._refresh()
                self._agents = count
                return None
            case FileTouched():
                await self._refresh()
                return None
        return super().on_receive(message)

    def _touched(self) -> None:
        self.actor_ref.tell(FileTouched())

    async def _refresh(self) -> None:
        loaded = await self._read()
        if loaded is not None:
            self._become(changed(self._state, loaded, agents=self._agents > 0, trust=self._trust))

    async def _read(self) -> Loaded | None:
        """The file's content, None where it has not changed since it was last read."""
        found = await trio.to_thread.run_sync(_read_if_changed, self._root, self._signature)
        if found is None:
            return None
        self._signature, loaded = found
        return loaded

    def _become(self, state: PolicyState) -> None:
        if state != self._state:
            self._state = state
            self._on_change(state)


def _read_if_changed(root: Path, known: Signature | None) -> tuple[Signature, Loaded] | None:
    # Looked at before the file is read: a change in between is seen the next time.
    there = _status(root)
    signature = (there and there[:2], *(_status(root / name) for name in _FILES))
    return None if signature == known else (signature, policy_file.load(root))


def _status(path: Path) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns)


async def _follow(root: Path, touched: Callable[[], None]) -> None:
    """Call `touched` whenever a policy file may have changed, until cancelled."""
    while True:
        try:
            await _follow_directories(root, touched)
        except* (OSError, RuntimeError) as error:
            # No notices (a limit of the system, a directory that is gone): look now and then.
            logger.warning("changes of the policy of %s are seen late: %s", root, error.exceptions[0])
            await trio.sleep(POLL_SECONDS)
        touched()


async def _follow_directories(root: Path, touched: Callable[[], None]) -> None:
    """As `_follow`, until one of the policy's directories comes, goes, or is replaced."""
    directories = _directories(root)
    stop = trio.Event()

    async def stop_when_cancelled() -> None:
        try:
            # By now the watch stands: what happened before it did is looked at once.
            await trio.lowlevel.checkpoint()
            touched()
            await trio.sleep_forever()
        finally:
            stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_cancelled)
        # A cancelled watch waits for its thread, which notices the event at once but not the cancellation.
        with trio.CancelScope(shield=True), _one_thread_more():
            changes = awatch(
                root,
                *(path for path, _ in directories),
                watch_filter=_concerns,
                debounce=DEBOUNCE_MS,
                step=20,
                stop_event=stop,
                rust_timeout=int(POLL_SECONDS * 1000),
                yield_on_timeout=True,
                recursive=False,
                ignore_permission_denied=True,
            )
            async with aclosing(changes):
                async for _ in changes:
                    touched()
                    if _directories(root) != directories:
                        break
        nursery.cancel_scope.cancel()


@contextmanager
def _one_thread_more() -> Iterator[None]:
    """Trio runs so many worker threads at once, 40, and a watch keeps one all the time: each brings its own, or a
    server with many workspaces would have none left for anything else."""
    threads = trio.to_thread.current_default_thread_limiter()
    threads.total_tokens += 1
    try:
        yield
    finally:
        threads.total_tokens -= 1


def _concerns(_change: Change, path: str) -> bool:
    return os.path.basename(path) in (".intercom", ".monocoque", "settings.json")


def _directories(root: Path) -> tuple[tuple[Path, int], ...]:
    """The directories of policy files that are there, and which they are."""
    found = []
    for name in _FILES:
        path = root / os.path.dirname(name)
        try:
            if path.is_dir():
                found.append((path, path.stat().st_ino))
        except OSError:
            continue
    return tuple(found)
