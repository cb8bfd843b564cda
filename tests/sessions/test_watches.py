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
from intercom.store.messages import Transact
from tests.sessions.house import Guest, House, house
from tests.sessions.test_checkpoints import take

Clock = trio.testing.MockClock
DAY = 86400.0
CONFIG = Config(timeouts=TimeoutSettings(approval_seconds=3600.0), stall=StallSettings(enabled=False))


async def fall(at: House, who: str) -> None:
    """Let an actor crash; its next incarnation runs when this returns."""
    before = at.app.system.named(who).present()
    before._crash(RuntimeError("as a test wants it"))
    async with at.restarting():
        while (now := at.app.system.ref(who)) is None or now is before:  # noqa: ASYNC110
            await trio.sleep(0.01)


@pytest.mark.server(CONFIG)
async def test_a_clock_that_is_set_after_its_watch_crashed_is_noticed(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    await fall(at, "clock-watch")
    await at.set_clock(DAY)
    await at.people.card(lambda card: card.state is not CardState.PENDING, id=id)


@pytest.mark.server(CONFIG)
async def test_a_clock_that_is_set_while_its_watch_restarts_is_noticed(at: House, guest: Guest) -> None:
    id = (await guest.propose()).request_id
    at.shifted[0] += DAY
    await fall(at, "clock-watch")
    await at.later(WATCH_SECONDS)
    await at.people.card(lambda card: card.state is not CardState.PENDING, id=id)


async def test_deadlines_are_judged_again_although_the_watch_crashed_when_it_noticed(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifts = []

    def shift(_db: object, seconds: float) -> None:
        shifts.append(round(seconds))
        if len(shifts) == 1:
            trio.from_thread.run_sync(crash, trio_token=token)

    async with house(root.parent, clock, CONFIG) as at:
        token = trio.lowlevel.current_trio_token()
        watch = at.app.system.named("clock-watch").present()
        crash = partial(watch._crash, RuntimeError("as a test wants it"))
        monkeypatch.setattr(outbox, "shift", shift)
        guest = await at.arrive(root)
        id = (await guest.propose()).request_id
        async with at.restarting():
            at.shifted[0] += DAY
            await at.people.card(lambda card: card.state is not CardState.PENDING, id=id)
        # What waits to be sent again is not put off twice.
        assert shifts == [DAY]


async def test_the_lock_of_the_database_is_renewed_after_its_watch_crashed(clock: Clock, root: Path) -> None:
    renewed = []
    async with house(root.parent, clock, renew_lock=lambda: renewed.append(clock.current_time())) as at:

        async def renewed_again() -> None:
            """Wait for one more: it is made in a thread, which the virtual clock does not wait for."""
            before = len(renewed)
            async with at.restarting():
                while len(renewed) == before:  # noqa: ASYNC110
                    await trio.sleep(0.01)

        await renewed_again()
        await fall(at, "database-watch")
        await renewed_again()


@pytest.mark.parametrize("crashed", ["nobody", "checkpoints", "database-watch"])
async def test_contents_of_checkpoints_that_another_program_removes_are_told_of(
    clock: Clock, root: Path, crashed: str
) -> None:
    """Failed before: the next restore found nothing, and until then nobody knew."""
    (root / "a.txt").write_text("one\n")
    async with house(root.parent, clock, CONFIG) as at:
        await take(at, await at.arrive(root))
        if crashed != "nobody":
            await fall(at, crashed)
        at.app.contents.path.unlink()
        await at.later(WATCH_SECONDS)
        notice = await at.people.notice("where the files of checkpoints are kept, was removed")
        assert notice.level == "error"
        await at.later(2 * WATCH_SECONDS)
        assert at.people.notices.count(notice) == 1


async def test_what_is_done_in_a_thread_is_done_when_the_time_for_it_has_passed(clock: Clock, root: Path) -> None:
    """Failed now and then before, wherever a test looked for it right after the jump."""
    renewed = []

    def renew() -> None:
        for _ in range(50):
            trio.from_thread.run(trio.testing.wait_all_tasks_blocked)
        renewed.append(clock.current_time())

    async with house(root.parent, clock, renew_lock=renew) as at:
        await at.later(WATCH_SECONDS)
        assert renewed == [WATCH_SECONDS]


async def test_the_head_of_the_log_is_kept_after_its_watch_crashed(at: House) -> None:
    file, database = Path(at.app.places.audit_anchor_file), at.app.database
    await at.later(ANCHOR_SECONDS)
    await fall(at, "audit-watch")
    note = partial(audit.record, at=at.now(), kind="note", session_id=None, who="t", summary="one")
    await at.ask("store", Transact(note))
    while not (kept := audit_chain.read_anchors(file, database)) or kept[-1].sequence < 2:
        await at.later(1.0)
    assert audit_chain.examine(database, file).faults == []
