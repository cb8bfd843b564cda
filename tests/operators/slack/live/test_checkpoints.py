"""Checkpoints from Slack: taken, listed, and restored by a tap on a card that says what has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from actors import ask
from intercom.store.messages import Transact
from tests.operators.slack.live.embedded import PATIENCE, Room, quick, room
from tests.slack import ALICE, BOB, CHANNEL, buttons, text_of


async def typed(here: Room, text: str, user: str = ALICE) -> str:
    """What one person alone reads in answer to a command, at once or a little later."""
    before = len(here.slack.ephemerals(user))
    answer = await here.slack.command(user, CHANNEL, text).answer()
    if answer:
        return "\n".join([answer.get("text", ""), text_of(answer)])
    await here.slack.wait_for(lambda: len(here.slack.ephemerals(user)) > before, PATIENCE)
    told = here.slack.ephemerals(user)[-1]
    return f"{told['text']}\n{text_of(told)}"


def spoil(workspace: Path) -> None:
    (workspace / "a.txt").write_text("spoiled\n")
    (workspace / "new.txt").write_text("new\n")


@quick
async def test_a_checkpoint_is_taken_listed_and_restored(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await here.slack.connected()
        agent, workspace = here.agent(), tmp_path / "agent"
        (workspace / "a.txt").write_text("one\n")
        await agent.ping("here")
        assert "took checkpoint" in (told := await typed(here, "session-checkpoint before the refactoring"))
        assert "before the refactoring" in told
        [line] = await here.app.service.checkpoints.listed()
        listed = await typed(here, "session-checkpoints")
        assert line.id[:8] in listed
        assert "before the refactoring" in listed
        help = await typed(here, "help checkpoint")
        assert all(name in help for name in ("session-checkpoint", "session-checkpoints", "session-restore"))

        spoil(workspace)
        assert "2 files changed since" in await typed(here, f"session-restore {line.id[:8]} --files exact")
        card = await here.card("Restore checkpoint before the refactoring?")
        assert buttons(card) == ["restore_proceed", "restore_cancel"]
        assert "1 modified, 0 deleted, 1 added" in text_of(card)
        assert [element.get("confirm", {}).get("style") for element in card["blocks"][-1]["elements"]] == [
            "danger",
            None,
        ]
        await here.slack.tap(ALICE, card["ts"], "restore_proceed").answer()
        done = await here.shows(card["ts"], "*Applied*")
        assert not buttons(done)
        assert "restored as session" in text_of(done)
        assert sorted(file.name for file in workspace.iterdir()) == ["a.txt"]
        assert (workspace / "a.txt").read_text() == "one\n"
        [live] = await here.app.service.sessions()
        assert live.id in text_of(done)


@quick
async def test_a_restore_is_cancelled_and_one_of_somebody_elses_session_refused(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await here.slack.connected()
        agent, workspace = here.agent(), tmp_path / "agent"
        (workspace / "a.txt").write_text("one\n")
        await agent.ping("here")
        await typed(here, "session-checkpoint")
        [line] = await here.app.service.checkpoints.listed()
        spoil(workspace)
        await typed(here, f"session-restore {line.id[:8]} --files back")
        card = await here.card("Restore checkpoint")
        [session] = await here.app.service.sessions()
        await ask(here.app.system.named("store"), Transact(lambda db: own(db, session.id, BOB)))
        await here.slack.tap(ALICE, card["ts"], "restore_proceed").answer()
        await here.slack.wait_for(lambda: [one for one in here.slack.ephemerals(ALICE) if refused(one)], PATIENCE)
        assert "alone may do that" in await typed(here, f"session-restore {line.id[:8]}")
        card = await here.card("Restore checkpoint")
        await here.slack.tap(BOB, card["ts"], "restore_cancel").answer()
        await here.shows(card["ts"], "Cancelled")
        assert (workspace / "a.txt").read_text() == "spoiled\n"
        assert [each.id for each in await here.app.service.sessions()] == [session.id]


def refused(told: dict[str, Any]) -> bool:
    return "who alone may do that" in f"{told['text']}{text_of(told)}"


def own(db: Any, id: str, person: str) -> None:
    db.execute("update session set owner_user_id = ? where id = ?", (person, id))


@quick
async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await here.slack.connected()
        await here.agent().ping("here")
        assert "No checkpoint yet" in await typed(here, "session-checkpoints")
        assert "no checkpoint has an id" in await typed(here, "session-restore 1234")
        assert "name a checkpoint" in await typed(here, "session-restore")
        assert "--files takes one of" in await typed(here, "session-restore 1234 --files all")
