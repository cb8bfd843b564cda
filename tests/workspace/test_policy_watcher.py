"""The policy watcher: against real files, in real time; never waiting longer than for what it waits for."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import field, frozen

from actors import ChildSpec, Name, System, ask
from intercom.model.decision import Decided
from intercom.model.policy import DENY_ALL, PolicyDecision
from intercom.model.request import RiskLevel
from intercom.workspace import policy_watcher
from intercom.workspace.files import digest
from intercom.workspace.policy import Limits, Query
from intercom.workspace.policy_watcher import (
    Current,
    Evaluate,
    EvaluateFiles,
    FileTouched,
    PolicyDecided,
    PolicyRecord,
    PolicyState,
    PolicyWatcher,
    record_of,
    watcher_name,
)
from tests.support.machine_speed import is_below

pytestmark = pytest.mark.real_time

PING = '{"enabled": true, "tools": ["ping"]}'
BOTH = '{"enabled": true, "tools": ["ping", "broadcast"]}'


@frozen
class Watched:
    root: Path
    name: Name
    seen: list[PolicyState]
    arrived: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    def write(self, text: str, directory: str = ".intercom") -> None:
        """As a careful editor does: a new file renamed into place."""
        (self.root / directory).mkdir(exist_ok=True)
        new = self.root / directory / "settings.json.new"
        new.write_text(text)
        new.replace(self.root / directory / "settings.json")

    async def next(self, count: int) -> PolicyState:
        """The state number `count`, once the watcher has told it by itself."""
        while len(self.seen) < count:
            await self.arrived.park()
        return self.seen[count - 1]

    async def passes(self, tool: str) -> bool:
        return (await ask(self.name, Evaluate(Query(tool)))).auto_approved


@asynccontextmanager
async def watching(root: Path, *accepted: str, **options: Any) -> AsyncIterator[Watched]:
    """A watcher in a workspace for which a person accepted these contents, one after the other."""
    seen: list[PolicyState] = []
    arrived = trio.lowlevel.ParkingLot()

    async def told(state: PolicyState) -> None:
        seen.append(state)
        arrived.unpark_all()

    async def recall() -> PolicyRecord:
        return record_of([said(text) for text in accepted], None)

    name = watcher_name(root)
    async with System(ChildSpec(name, lambda: PolicyWatcher(root, told, recall, **options))) as system:
        yield Watched(root, system.named(name), seen, arrived)


def always() -> bool:
    return True


def said(text: str, accepted: bool = True) -> PolicyDecision:
    """A person's decision about this content."""
    by = Decided("v", "accept" if accepted else "reject", "pat", "ctl", datetime(2026, 1, 1, tzinfo=UTC))
    return PolicyDecision("policy-1", "/ws", digest(text.encode()), text, accepted, by)


async def test_a_policy_is_followed_from_before_its_directory_exists(tmp_path: Path) -> None:
    older = '{"autoApprove": {"enabled": true, "tools": ["heartbeat"]}}'
    async with watching(tmp_path, trust_changes=always) as watched:
        assert (await watched.next(1)).policy == DENY_ALL
        watched.write(PING)
        assert (await watched.next(2)).policy.tools == ("ping",)
        watched.write(BOTH)
        assert (await watched.next(3)).policy.tools == ("ping", "broadcast")
        shutil.rmtree(tmp_path / ".intercom")
        assert (await watched.next(4)).policy == DENY_ALL
        watched.write(PING)
        assert (await watched.next(5)).policy.tools == ("ping",)
        (tmp_path / ".intercom").rename(tmp_path / "elsewhere")
        assert (await watched.next(6)).policy == DENY_ALL
        watched.write(older, ".monocoque")
        state = await watched.next(7)
        assert (state.policy.tools, state.source) == (("heartbeat",), ".monocoque/settings.json")


async def test_a_change_counts_from_the_next_question_on_noticed_or_not(tmp_path: Path) -> None:
    async with watching(tmp_path, PING) as watched:
        assert not await watched.passes("ping")
        watched.write("{")
        assert not await watched.passes("ping")
        assert "not JSON" in ((await ask(watched.name, Current())).fault or "")


async def test_what_was_never_accepted_grants_nothing_whenever_it_was_written(tmp_path: Path) -> None:
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "settings.json").write_text(PING)
    async with watching(tmp_path) as watched:
        assert not await watched.passes("ping")
        proposed = watched.seen[0].proposed
        assert proposed.sha256 == digest(PING.encode())
        watched.write(BOTH)
        assert not await watched.passes("ping")
        assert not await watched.passes("broadcast")


async def test_what_grants_more_than_was_accepted_waits_for_a_person(tmp_path: Path) -> None:
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "settings.json").write_text(PING)
    async with watching(tmp_path, PING) as watched:
        assert await watched.passes("ping")
        watched.write(BOTH)
        assert not await watched.passes("broadcast")
        assert await watched.passes("ping")
        held = watched.seen[-1]
        assert held.proposed.ways == ('tool added: "broadcast"',)
        state = await ask(watched.name, PolicyDecided(said(BOTH)))
        assert state == watched.seen[-1]
        assert (state.proposed, state.in_force.text) == (None, BOTH)
        assert await watched.passes("broadcast")


async def test_content_that_is_swapped_with_the_same_size_and_times_is_seen(tmp_path: Path) -> None:
    path = tmp_path / ".intercom" / "settings.json"
    path.parent.mkdir()
    path.write_text(PING)
    async with watching(tmp_path, PING) as watched:
        assert await watched.passes("ping")
        before = path.stat()
        with path.open("r+") as file:
            file.write(PING.replace("ping", "beat"))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert not await watched.passes("ping")
        assert not await watched.passes("beat")


async def test_an_older_accepted_content_does_not_come_back_with_its_file(tmp_path: Path) -> None:
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "settings.json").write_text(BOTH)
    async with watching(tmp_path, BOTH, PING) as watched:
        assert await watched.passes("ping")
        assert not await watched.passes("broadcast")


async def test_trusted_changes_are_in_force_at_once(tmp_path: Path) -> None:
    async with watching(tmp_path, "{}", trust_changes=always) as watched:
        watched.write(PING)
        assert await watched.passes("ping")


async def test_it_answers_for_proposals_and_within_the_servers_limits(tmp_path: Path) -> None:
    (tmp_path / ".intercom").mkdir()
    (tmp_path / ".intercom" / "settings.json").write_text(
        '{"enabled": true, "risk_level_threshold": "high", "file_patterns": {"write": ["docs/**"]}}'
    )
    async with watching(tmp_path, trust_changes=always, limits=Limits(max_risk_level=RiskLevel.LOW)) as watched:
        for paths, risk, granted in (
            (("docs/a",), RiskLevel.LOW, True),
            (("docs/a", "b"), RiskLevel.LOW, False),
            (("docs/a",), RiskLevel.HIGH, False),
        ):
            assert (await ask(watched.name, EvaluateFiles(paths, risk))).auto_approved is granted


async def test_it_is_told_only_of_changes_and_only_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.write(PING)
        await ask(watched.name, Current())
        for _ in range(3):
            watched.name.tell(FileTouched())
        watched.write(PING)
        await ask(watched.name, Current())
        assert len(watched.seen) == 2


async def test_it_stops_at_once_although_a_thread_watches(tmp_path: Path) -> None:
    async with watching(tmp_path) as watched:
        watched.write(PING)
        await watched.next(2)
        began = time.monotonic()
    assert is_below(2, time.monotonic() - began, time.monotonic)


async def test_where_notices_can_not_be_had_the_file_is_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more watches")

    monkeypatch.setattr(policy_watcher, "awatch", refuse)
    monkeypatch.setattr(policy_watcher, "POLL_SECONDS", 0.01)
    async with watching(tmp_path, trust_changes=always) as watched:
        watched.write(PING)
        assert (await watched.next(2)).policy.tools == ("ping",)


async def test_a_workspace_that_goes_away_takes_its_policy_with_it_and_says_so(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    async with watching(root, PING) as watched:
        watched.write(PING)
        await ask(watched.name, PolicyDecided(said(PING)))
        assert await watched.passes("ping")
        shutil.rmtree(root)
        assert not await watched.passes("ping")
        assert "cannot be opened" in ((await ask(watched.name, Current())).fault or "")


async def test_more_workspaces_than_worker_threads_leave_threads_for_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_watcher, "POLL_SECONDS", 3600)
    limit = trio.to_thread.current_default_thread_limiter()
    before = limit.total_tokens
    roots = [tmp_path / str(number) for number in range(int(before) + 10)]
    for root in roots:
        root.mkdir()

    async def told(_: PolicyState) -> None: ...

    async def recall() -> PolicyRecord:
        return PolicyRecord()

    specs = [ChildSpec(watcher_name(root), lambda root=root: PolicyWatcher(root, told, recall)) for root in roots]
    async with System(specs) as system:
        while limit.borrowed_tokens < len(roots):  # noqa: ASYNC110 - a limiter tells nobody
            # Until every watch stands.
            await trio.sleep(0.01)
        for root in roots:
            assert not (await ask(system.named(watcher_name(root)), Evaluate(Query("ping")))).auto_approved
    assert limit.total_tokens == before


async def test_what_was_in_force_by_trust_alone_ends_with_it(tmp_path: Path) -> None:
    trusts = True
    async with watching(tmp_path, PING, trust_changes=lambda: trusts) as watched:
        watched.write(BOTH)
        assert await watched.passes("broadcast")
        trusts = False
        assert not await watched.passes("broadcast")
        assert await watched.passes("ping")
        assert watched.seen[-1].proposed is not None
        trusts = True
        assert await watched.passes("broadcast")
