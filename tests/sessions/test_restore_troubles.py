"""Restores that meet what nobody foresaw: each comes to an end that people are told, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio.testing

from intercom.model import crash_points
from intercom.model.card import CardKind, CardState
from intercom.model.checkpoint import Files, RestoreState
from intercom.model.decision import Decision
from intercom.sessions.checkpoints import archive, restore
from intercom.sessions.checkpoints import checkpointer as actor
from intercom.store import restores, rows
from intercom.store.messages import Transact
from tests.sessions.house import House, house, in_house
from tests.sessions.test_checkpoints import ask, ended, files, proceed, spoil, staged, take
from tests.sessions.test_restore_kills import Fell

Clock = trio.testing.MockClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("one\n")
    (made / "sub/b.txt").write_text("two\n")
    return made


async def until_clean(root: Path) -> None:
    while staged(root):
        # What was staged goes in a thread, which nothing here waits for.
        await trio.testing.wait_all_tasks_blocked(0.002)


async def alter(at: House, sql: str, *values: str) -> None:
    await at.ask("store", Transact(lambda db: rows.changed(db, sql, values)))


@in_house
async def test_a_question_about_a_session_that_was_restored_since_is_asked_anew_of_the_one_that_follows(
    clock: Clock, root: Path
) -> None:
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        taken = await take(at, guest)
        first = await proceed(at, await ask(at, taken))
        second = await ask(at, taken)
        # As where it was asked while the first was accepted.
        await alter(at, "update restore set session_id = ? where id = ?", guest.session_id, second.id)
        outdated = await proceed(at, second)
        assert outdated.state is RestoreState.OUTDATED
        assert "the session was restored since" in (outdated.note or "")
        card = await at.people.card(
            lambda card: card.id not in (first.id, second.id), kind=CardKind.RESTORE, state=CardState.PENDING
        )
        assert card.session_id == first.successor_id
        done = await proceed(at, await at.app.service.checkpoints.restore(card.id))
        assert done.state is RestoreState.DONE, done.note
        assert [session.id for session in await at.app.service.sessions()] == [done.successor_id]


@in_house
async def test_what_was_staged_before_a_fall_goes_when_files_have_changed_since(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(point: str) -> None:
        if point == "files.staged" and "spoiled" in (root / "a.txt").read_text():
            (root / "a.txt").write_text("edited\n")
            raise Fell(point)

    async with house(root.parent, clock) as at:
        taken = await take(at, await at.arrive(root))
        spoil(root)
        asked = await ask(at, taken, Files.EXACT)
        monkeypatch.setattr(crash_points, "hook", fall)
        outdated = await proceed(at, asked)
        assert outdated.state is RestoreState.OUTDATED
        assert not staged(root)
        assert files(root)["a.txt"] == "edited\n"


@in_house
async def test_one_that_was_given_up_when_the_server_fell_is_seen_to_by_the_next(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(point: str) -> None:
        if point == "restore.handed_over":
            (root / "a.txt").write_text("meddled\n")

    async with house(root.parent, clock) as at:
        taken = await take(at, await at.arrive(root))
        spoil(root)
        monkeypatch.setattr(crash_points, "hook", meddle)
        stuck = await proceed(at, await ask(at, taken, Files.EXACT))
        assert stuck.state is RestoreState.STUCK
        assert staged(root)
        await alter(at, "update restore set state = 'given_up' where id = ?", stuck.id)
    async with house(root.parent, clock) as at:
        await until_clean(root)
        assert stuck.successor_id in (await at.people.notice("session restored from checkpoint")).text
        while await at.app.reader.read(restores.to_clean_up):
            await trio.testing.wait_all_tasks_blocked(0.002)
        assert files(root)["a.txt"] == "meddled\n"


@pytest.mark.parametrize(
    ("module", "name", "end", "words"),
    [
        (archive, "compare", RestoreState.FAILED, "nothing was changed: it was tried 3 times"),
        (restore, "_place", RestoreState.STUCK, "it was tried 3 times"),
    ],
)
def test_what_fails_each_time_is_told_and_not_tried_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, end: RestoreState, words: str
) -> None:
    @in_house
    async def check(clock: Clock) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ValueError("nobody foresaw this")

        monkeypatch.setattr(actor, "AGAIN_SECONDS", 0.05)
        monkeypatch.setattr(actor, "TRIES", 3)
        async with house(root.parent, clock) as at:
            taken = await take(at, await at.arrive(root))
            spoil(root)
            asked = await ask(at, taken, Files.EXACT)
            original = getattr(module, name)
            monkeypatch.setattr(module, name, fail)
            stopped = await proceed(at, asked)
            assert stopped.state is end
            assert words in (stopped.note or "")
            assert files(root)["a.txt"] == "spoiled\n"
            if end is RestoreState.STUCK:
                monkeypatch.setattr(module, name, original)
                await at.decide(asked.id, Decision.PROCEED)
                assert (await ended(at, asked.id)).state is RestoreState.DONE
                assert files(root)["a.txt"] == "one\n"
            await until_clean(root)

    check()
