"""The watches over the clock, the database and the audit log: each one that crashes is back, and watches again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio.testing

from intercom.model.card import CardState
from intercom.model.config import Config, StallSettings, TimeoutSettings
from intercom.sessions.housekeeping import ANCHOR_SECONDS, WATCH_SECONDS
from intercom.store import audit, audit_chain, outbox
from intercom.store.writer_messages import Transact
from tests.sessions.test_checkpoints import take
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
DAY = 86400.0
CONFIG = Config(timeouts=TimeoutSettings(approval_seconds=3600.0), stall=StallSettings(enabled=False))


async def fall(server: VirtualServer, who: str) -> None:
    """Let an actor crash; its next incarnation runs when this returns."""
    before = server.app.system.named(who).present()
    before._crash(RuntimeError("as a test wants it"))
    async with server.restarting():
        while (now := server.app.system.ref(who)) is None or now is before:  # noqa: ASYNC110
            await trio.sleep(0.01)


@pytest.mark.server(CONFIG)
async def test_a_clock_that_is_set_after_its_watch_crashed_is_noticed(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    await fall(server, "clock-watch")
    await server.set_clock(DAY)
    await server.operator.card(lambda card: card.state is not CardState.PENDING, id=id)


@pytest.mark.server(CONFIG)
async def test_a_clock_that_is_set_while_its_watch_restarts_is_noticed(
    server: VirtualServer, agent: AgentClient
) -> None:
    id = (await agent.propose()).request_id
    server.shifted[0] += DAY
    await fall(server, "clock-watch")
    await server.later(WATCH_SECONDS)
    await server.operator.card(lambda card: card.state is not CardState.PENDING, id=id)


async def test_deadlines_are_judged_again_although_the_watch_crashed_when_it_noticed(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifts = []

    def shift(_db: object, seconds: float) -> None:
        shifts.append(round(seconds))
        if len(shifts) == 1:
            trio.from_thread.run_sync(crash, trio_token=token)

    async with virtual_server(root.parent, clock, CONFIG) as server:
        token = trio.lowlevel.current_trio_token()
        watch = server.app.system.named("clock-watch").present()
        crash = partial(watch._crash, RuntimeError("as a test wants it"))
        monkeypatch.setattr(outbox, "shift", shift)
        agent = await server.arrive(root)
        id = (await agent.propose()).request_id
        async with server.restarting():
            server.shifted[0] += DAY
            await server.operator.card(lambda card: card.state is not CardState.PENDING, id=id)
        # What waits to be sent again is not put off twice.
        assert shifts == [DAY]


async def test_the_lock_of_the_database_is_renewed_after_its_watch_crashed(clock: Clock, root: Path) -> None:
    renewed = []
    async with virtual_server(root.parent, clock, renew_lock=lambda: renewed.append(clock.current_time())) as server:

        async def renewed_again() -> None:
            """Wait for one more: it is made in a thread, which the virtual clock does not wait for."""
            before = len(renewed)
            async with server.restarting():
                while len(renewed) == before:  # noqa: ASYNC110
                    await trio.sleep(0.01)

        await renewed_again()
        await fall(server, "database-watch")
        await renewed_again()


@pytest.mark.parametrize("crashed", ["nobody", "checkpoints", "database-watch"])
async def test_contents_of_checkpoints_that_another_program_removes_are_told_of(
    clock: Clock, root: Path, crashed: str
) -> None:
    (root / "a.txt").write_text("one\n")
    async with virtual_server(root.parent, clock, CONFIG) as server:
        await take(server, await server.arrive(root))
        if crashed != "nobody":
            await fall(server, crashed)
        server.app.contents.path.unlink()
        await server.later(WATCH_SECONDS)
        notice = await server.operator.notice("where the files of checkpoints are kept, was removed")
        assert notice.level == "error"
        await server.later(2 * WATCH_SECONDS)
        assert server.operator.notices.count(notice) == 1


async def test_what_is_done_in_a_thread_is_done_when_the_time_for_it_has_passed(clock: Clock, root: Path) -> None:
    """Failed now and then before, wherever a test looked for it right after the jump."""
    renewed = []

    def renew() -> None:
        for _ in range(50):
            trio.from_thread.run(trio.testing.wait_all_tasks_blocked)
        renewed.append(clock.current_time())

    async with virtual_server(root.parent, clock, renew_lock=renew) as server:
        await server.later(WATCH_SECONDS)
        assert renewed == [WATCH_SECONDS]


async def test_the_head_of_the_log_is_kept_after_its_watch_crashed(server: VirtualServer) -> None:
    file, database = Path(server.app.places.audit_anchor_file), server.app.database
    await server.later(ANCHOR_SECONDS)
    await fall(server, "audit-watch")
    note = partial(audit.record, at=server.now(), kind="note", session_id=None, who="t", summary="one")
    await server.ask("store", Transact(note))
    while not (kept := audit_chain.read_anchors(file, database)) or kept[-1].sequence < 2:
        await server.later(1.0)
    assert audit_chain.examine(database, file).faults == []
