"""The actor that holds a workspace's policy and watches its file."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import trio
from watchfiles import Change, awatch

from actors import Actor, Refused
from intercom.model.errors import IntercomError
from intercom.model.policy import PolicyAnswer, WorkspacePolicy
from intercom.workspace import policy, policy_file, protected_links
from intercom.workspace.messages import Current, Evaluate, EvaluateFiles, FileTouched, PolicyDecided
from intercom.workspace.policy import NO_LIMITS, Limits, Query
from intercom.workspace.policy_file import OLDER_POLICY_FILE, POLICY_FILE, Loaded
from intercom.workspace.policy_state import PolicyRecord, PolicyState, changed, decided, started

logger = logging.getLogger(__name__)

_FILES = (POLICY_FILE, OLDER_POLICY_FILE)

#: How long an editor that writes a file in several steps has to finish, in milliseconds.
DEBOUNCE_MS = 200
#: After how many seconds a change without a notification is seen (network file systems, a full queue).
POLL_SECONDS = 5.0


def watcher_name(root: Path) -> str:
    """Return the name under which the watcher of a workspace is registered."""
    return f"policy/{root}"


class PolicyWatcher(Actor):
    """Holds the policy of the workspace `root` and evaluates operations against it.

    `on_change` is awaited with the new state at start and at each change. The caller stores what is in force, shows
    what is proposed, and reports a fault. `recall` returns the earlier decisions of people on this policy. Only they,
    or `trust_changes`, let a file grant anything. `trust_changes` is called at each check, on the event loop. If it
    becomes false, only what was decided is in force. Loading never fails: a file with a fault grants nothing.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused, IntercomError)

    def __init__(
        self,
        root: Path,
        on_change: Callable[[PolicyState], Awaitable[object]],
        recall: Callable[[], Awaitable[PolicyRecord]],
        *,
        trust_changes: Callable[[], bool] = lambda: False,
        limits: Limits = NO_LIMITS,
    ) -> None:
        super().__init__()
        self._root = root
        self._on_change = on_change
        self._recall = recall
        self._trust_changes = trust_changes
        self._trusted = False
        self._limits = limits
        self._loaded: Loaded | None = None
        self._state: PolicyState

    async def on_start(self) -> None:
        """Read the file and start to watch it."""
        self._trusted = self._trust_changes()
        self._state = started(await self._read(), await self._recall(), self._trusted)
        await self._on_change(self._state)
        self.spawn(_follow, self._root, self._touched)

    async def on_receive(self, message: Any) -> Any:
        """Answer from the policy file as it is at this moment."""
        match message:
            case Evaluate(query):
                await self._refresh()
                # In a thread, as below: matching hundreds of patterns with a deep path takes seconds.
                return await trio.to_thread.run_sync(_evaluate, self._root, self._state.policy, query, self._limits)
            case EvaluateFiles():
                await self._refresh()
                return await trio.to_thread.run_sync(
                    _evaluate_files, self._root, self._state.policy, message, self._limits
                )
            case Current():
                await self._refresh()
                return self._state
            case PolicyDecided(decision):
                loaded = await self._read()
                await self._become(decided(await self._kept(loaded), decision, loaded, self._trusted))
                return self._state
            case FileTouched():
                await self._refresh()
                return None
        return super().on_receive(message)

    def _touched(self) -> None:
        self.actor_ref.tell(FileTouched())

    async def _refresh(self) -> None:
        before = self._loaded, self._trusted
        loaded = await self._read()
        state = await self._kept(loaded)
        if (loaded, self._trusted) != before:
            await self._become(changed(state, loaded, self._trusted))

    async def _kept(self, loaded: Loaded) -> PolicyState:
        """Return the state to continue from. If changes are no longer trusted, only what was decided is in force."""
        trusted = self._trust_changes()
        state = self._state
        if self._trusted and not trusted:
            state = started(loaded, await self._recall())
        # Last: if `recall` fails, the next check tries again.
        self._trusted = trusted
        return state

    async def _read(self) -> Loaded:
        """Read the file as it is now, always whole: its status alone may not reveal a change."""
        self._loaded = await trio.to_thread.run_sync(policy_file.load, self._root, self._loaded)
        return self._loaded

    async def _become(self, state: PolicyState) -> None:
        if state != self._state:
            self._state = state
            await self._on_change(state)


def _evaluate(root: Path, in_force: WorkspacePolicy, query: Query, limits: Limits) -> PolicyAnswer:
    """Evaluate the policy, then check whether links protect the path."""
    answer = policy.evaluate(in_force, query, limits)
    return answer if query.file_path is None else _unless_protected(answer, root, (query.file_path,))


def _evaluate_files(root: Path, in_force: WorkspacePolicy, asked: EvaluateFiles, limits: Limits) -> PolicyAnswer:
    answer = policy.evaluate_files(in_force, asked.paths, asked.risk, limits)
    twin = next((path for path in asked.paths if asked.in_place and protected_links.has_other_name(root, path)), None)
    if twin is not None:
        return PolicyAnswer(False, why=f"{twin} has another name (a hard link), which would change with it")
    return _unless_protected(answer, root, asked.paths)


def _unless_protected(answer: PolicyAnswer, root: Path, paths: Sequence[str]) -> PolicyAnswer:
    why = protected_links.why_protected(root, paths) if answer.auto_approved else None
    return answer if why is None else PolicyAnswer(False, why=why)


async def _follow(root: Path, touched: Callable[[], None]) -> None:
    """Call `touched` whenever a policy file may have changed, until cancelled."""
    while True:
        try:
            await _follow_directories(root, touched)
        except* (OSError, RuntimeError) as error:
            # No notifications (a system limit, a missing directory): poll.
            logger.warning("changes of the policy of %s are seen late: %s", root, error.exceptions[0])
            await trio.sleep(POLL_SECONDS)
        touched()


async def _follow_directories(root: Path, touched: Callable[[], None]) -> None:
    """Do as `_follow`, until a policy directory appears, disappears or is replaced."""
    directories = _directories(root)
    stop = trio.Event()

    async def stop_when_cancelled() -> None:
        try:
            # The watch is now established: check once for changes before it was.
            await trio.lowlevel.checkpoint()
            touched()
            await trio.sleep_forever()
        finally:
            stop.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_when_cancelled)
        # A cancelled watch waits for its thread, which reacts to the event but not to the cancellation.
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
    """Raise Trio's limit of 40 worker threads by one while the block runs. A watch occupies a thread all the time,
    so a server with many workspaces would otherwise run out of threads."""
    threads = trio.to_thread.current_default_thread_limiter()
    threads.total_tokens += 1
    try:
        yield
    finally:
        threads.total_tokens -= 1


def _concerns(_change: Change, path: str) -> bool:
    return os.path.basename(path) in (".intercom", ".monocoque", "settings.json")


def _directories(root: Path) -> tuple[tuple[Path, int], ...]:
    """Return the existing directories of policy files, with their inodes."""
    found = []
    for name in _FILES:
        path = root / os.path.dirname(name)
        try:
            if path.is_dir():
                found.append((path, path.stat().st_ino))
        except OSError:
            continue
    return tuple(found)
