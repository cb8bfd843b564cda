"""What of a workspace's policy is in force, and the actor that watches the file and knows it.

A policy takes effect when a person accepts its content, by hash, for this workspace. If the file then changes, only
what the accepted policy grants too is in force: a narrower file takes effect at once, a wider one waits. What a file
has removed stays removed even if the older content returns, because a person may have removed it.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import trio
from attrs import evolve, frozen
from watchfiles import Change, awatch

from actors import Actor, Refused, Request
from intercom.model.errors import IntercomError
from intercom.model.policy import (
    DENY_ALL,
    PolicyAnswer,
    PolicyDecision,
    WorkspacePolicy,
)
from intercom.model.request import RiskLevel
from intercom.workspace import policy
from intercom.workspace.files import digest
from intercom.workspace.policy import NO_LIMITS, Limits, Query, narrowed, widens
from intercom.workspace.policy_file import POLICY_FILES, Loaded, load, parse, render

logger = logging.getLogger(__name__)


@frozen
class PolicyRecord:
    """The stored decisions on a workspace's policy. `accepted` is the content in force, or None. `narrowing` is the
    text it is narrowed to, or None. `rejected` are the hashes of rejected contents."""

    accepted: PolicyDecision | None = None
    narrowing: str | None = None
    rejected: frozenset[str] = frozenset()

    def after(self, decision: PolicyDecision) -> PolicyRecord:
        """Return the record with one more decision. The content accepted last counts, unless rejected later. A decision
        whose text does not match its hash is ignored."""
        if not decision.is_sound:
            return self
        sha = decision.sha256
        if decision.accepted:
            return PolicyRecord(decision, None, self.rejected - {sha})
        is_withdrawn = self.accepted is not None and self.accepted.sha256 == sha
        return evolve(self, accepted=None if is_withdrawn else self.accepted, rejected=self.rejected | {sha})


def record_of(decisions: Iterable[PolicyDecision], narrowing: str | None) -> PolicyRecord:
    """Reduce `decisions`, oldest first, to a record."""
    return evolve(functools.reduce(PolicyRecord.after, decisions, PolicyRecord()), narrowing=narrowing)


@frozen
class StatedPolicy:
    """A policy, a text that states it, and the hash of that text. If it waits for a person, `ways` says how it grants
    more than the policy in force."""

    policy: WorkspacePolicy
    sha256: str
    text: str
    ways: tuple[str, ...] = ()


@frozen
class PolicyState:
    """The state of a workspace's policy.

    `policy` is what decides now. `in_force` is what was last in force without a fault in the file. A `fault` grants
    nothing, but `in_force` returns without a new decision after the fault is repaired. `is_trusted`: the server's
    configuration accepts every content without asking.
    """

    in_force: StatedPolicy
    record: PolicyRecord = PolicyRecord()
    source: str | None = None
    proposed: StatedPolicy | None = None
    fault: str | None = None
    is_trusted: bool = False

    @property
    def policy(self) -> WorkspacePolicy:
        return DENY_ALL if self.fault is not None else self.in_force.policy

    @property
    def narrowing(self) -> str | None:
        """The text that the accepted policy is narrowed to, for the record; None if it is not narrowed."""
        accepted = self.record.accepted
        if accepted is None or self.is_trusted or self.in_force.policy == parse(accepted.text)[0]:
            return None
        return self.in_force.text


def started(loaded: Loaded, record: PolicyRecord, trust: bool = False) -> PolicyState:
    """Return the state at start, from the file as `loaded` and the stored decisions."""
    return changed(PolicyState(_granted_by(record), record), loaded, trust)


def changed(state: PolicyState, loaded: Loaded, trust: bool = False) -> PolicyState:
    """Return the state after the file was read again. `trust` accepts every content."""
    if loaded.fault is not None:
        return evolve(state, source=loaded.source, fault=loaded.fault, proposed=None)
    ways = () if trust else widens(state.in_force.policy, loaded.policy)
    if not ways:
        found = loaded.sha256 is not None and loaded.text is not None
        in_force = (
            StatedPolicy(loaded.policy, loaded.sha256 or "", loaded.text or "") if found else _rendered(loaded.policy)
        )
        return PolicyState(in_force, state.record, loaded.source, is_trusted=trust)
    both = narrowed(state.in_force.policy, loaded.policy)
    in_force = state.in_force if both == state.in_force.policy else _rendered(both)
    proposed = StatedPolicy(loaded.policy, loaded.sha256 or "", loaded.text or "", ways)
    return PolicyState(in_force, state.record, loaded.source, proposed)


def decided(state: PolicyState, decision: PolicyDecision, loaded: Loaded, trust: bool = False) -> PolicyState:
    """Return the state after a person's decision, with the file as `loaded` now."""
    record = state.record.after(decision)
    is_same = record is state.record or (not decision.accepted and record.accepted == state.record.accepted)
    return changed(PolicyState(state.in_force if is_same else _granted_by(record), record, state.source), loaded, trust)


def _granted_by(record: PolicyRecord) -> StatedPolicy:
    accepted = record.accepted
    if accepted is None or not accepted.is_sound:
        return _rendered(DENY_ALL)
    # A text that this version cannot parse grants nothing.
    policy = parse(accepted.text)[0]
    both = policy if record.narrowing is None else narrowed(policy, parse(record.narrowing)[0])
    return StatedPolicy(policy, accepted.sha256, accepted.text) if both == policy else _rendered(both)


def _rendered(policy: WorkspacePolicy) -> StatedPolicy:
    text = render(policy)
    return StatedPolicy(policy, digest(text.encode()), text)


@frozen
class Evaluate(Request[PolicyAnswer]):
    """A request to evaluate whether the policy allows this operation without a person."""

    query: Query


@frozen
class EvaluateFiles(Request[PolicyAnswer]):
    """A request to evaluate whether the policy allows a proposal that changes all of these files without a person.

    `paths` are canonical. `in_place`: a client writes to the files themselves, and so changes every hard link to them.
    """

    paths: tuple[str, ...]
    risk: RiskLevel
    in_place: bool = False


@frozen
class Current(Request[PolicyState]):
    """A request for the present state: the policy in force, the proposed one, and the file's fault."""


@frozen
class PolicyDecided(Request[PolicyState]):
    """A request to act on a decision of a person about a policy file's content, already recorded."""

    decision: PolicyDecision


@frozen
class FileTouched:
    """A notification that the policy file may have changed."""


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

    async def on_receive(self, message: object) -> Any:
        """Answer from the policy file as it is at this moment."""
        match message:
            case Evaluate() | EvaluateFiles():
                await self._refresh()
                # In a thread: matching hundreds of patterns with a deep path takes seconds.
                return await trio.to_thread.run_sync(answer_of, self._root, self._state.policy, message, self._limits)
            case Current():
                await self._refresh()
                return self._state
            case PolicyDecided(decision):
                loaded = await self._read()
                await self._become(decided(await self._still_in_force(loaded), decision, loaded, self._trusted))
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
        state = await self._still_in_force(loaded)
        if (loaded, self._trusted) != before:
            await self._become(changed(state, loaded, self._trusted))

    async def _still_in_force(self, loaded: Loaded) -> PolicyState:
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
        self._loaded = await trio.to_thread.run_sync(load, self._root, self._loaded)
        return self._loaded

    async def _become(self, state: PolicyState) -> None:
        if state != self._state:
            self._state = state
            await self._on_change(state)


def answer_of(root: Path, in_force: WorkspacePolicy, asked: Evaluate | EvaluateFiles, limits: Limits) -> PolicyAnswer:
    """Evaluate a policy for the workspace `root`, then check whether links protect the paths. Reads the disk."""
    if isinstance(asked, Evaluate):
        answer = policy.evaluate(in_force, asked.query, limits)
        paths = tuple(filter(None, [asked.query.file_path]))
    else:
        answer, paths = policy.evaluate_files(in_force, asked.paths, asked.risk, limits), asked.paths
        twin = next((path for path in paths if asked.in_place and policy.has_other_name(root, path)), None)
        if twin is not None:
            return PolicyAnswer(False, why=f"{twin} has another name (a hard link), which would change with it")
    why = policy.why_protected(root, paths) if answer.auto_approved and paths else None
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
    for name in POLICY_FILES:
        path = root / os.path.dirname(name)
        try:
            if path.is_dir():
                found.append((path, path.stat().st_ino))
        except OSError:
            continue
    return tuple(found)
