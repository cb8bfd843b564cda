"""Checkpoints are taken, and restored once a person says so: the session, what waits in it, and the files."""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from intercom.model import crash_points
from intercom.model.card import CardKind, CardState
from intercom.model.checkpoint import (
    UNDER_WAY,
    CheckpointTaken,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Files,
    Restore,
    RestoreState,
)
from intercom.model.config import CheckpointSettings, Config
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided, FileError, InvalidState, NotFound, SpawnFailed
from intercom.model.request import Operation, OperationKind, PromptType, RiskLevel
from intercom.model.session import ProgressItem, ProgressStatus, SessionStatus
from intercom.sessions.checkpoints import archive
from intercom.sessions.checkpoints import restore as checkpoints_restore
from intercom.sessions.checkpoints.checkpoint_messages import SweepContents
from intercom.sessions.checkpoints.restored_session import Successors
from intercom.sessions.messages import Adopt, Agent, AskPermission
from intercom.sessions.processes.spawner import AgentProcesses
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.transmit import Transmit
from intercom.store import checkpoints, requests
from intercom.store.checkpoints import OpenContents
from intercom.store.writer_messages import Transact
from tests.store import cases
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

Clock = trio.testing.MockClock
MODIFIED, DELETED, ADDED = DivergenceKind.MODIFIED, DivergenceKind.DELETED, DivergenceKind.ADDED
_ENDS = {*RestoreState} - UNDER_WAY - {RestoreState.ASKED}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    (made / "a.txt").write_text("one\n")
    (made / "sub").mkdir()
    (made / "sub/b.txt").write_text("two\n")
    return made


async def take(server: VirtualServer, agent: AgentClient, label: str | None = "before") -> CheckpointTaken:
    return await server.app.service.checkpoints.take(agent.session_id, label, "kim", "ctl")


@asynccontextmanager
async def checkpointed(
    root: Path, clock: Clock, config: Config | None = None
) -> AsyncIterator[tuple[VirtualServer, AgentClient, CheckpointTaken]]:
    """A server with one agent's session, of which a checkpoint was just taken."""
    async with virtual_server(root.parent, clock, config or Config()) as server:
        agent = await server.arrive(root)
        yield server, agent, await take(server, agent)


async def ask(server: VirtualServer, taken: CheckpointTaken, files: Files = Files.EXACT) -> Restore:
    return await server.app.service.checkpoints.ask_restore(taken.checkpoint.id, files, "kim", "ctl")


async def proceed(server: VirtualServer, restore: Restore) -> Restore:
    """Say so, and wait for how it comes out."""
    await server.decide(restore.id, Decision.PROCEED)
    return await ended(server, restore.id)


async def succeed(server: VirtualServer, restore: Restore) -> Restore:
    done = await proceed(server, restore)
    assert done.state is RestoreState.DONE, done.note
    return done


async def ended(server: VirtualServer, id: str) -> Restore:
    async with server.restarting():
        # Not by waiting for quiet: what creeps waits for that too, and would never get there.
        while (  # noqa: ASYNC110 - the database tells nobody when it changes
            found := await server.app.service.checkpoints.restore(id)
        ).state not in _ENDS:
            await trio.sleep(0.05)
    return found


def spoil(root: Path) -> None:
    (root / "a.txt").write_text("spoiled\n")
    (root / "sub/b.txt").unlink()
    (root / "new.txt").write_text("new\n")


def files(root: Path) -> dict[str, str]:
    return {str(file.relative_to(root)): file.read_text() for file in root.rglob("*") if file.is_file()}


def kinds(restore: Restore) -> dict[str, DivergenceKind]:
    return {each.path: each.kind for each in restore.divergence.first}


def staged(root: Path) -> list[Path]:
    return list(root.rglob(".intercom*"))


async def until_clean(root: Path) -> None:
    while staged(root):
        # What was staged goes in a thread, which nothing here waits for.
        await trio.testing.wait_all_tasks_blocked(0.002)


def move(root: Path, name: str) -> Path:
    return root.rename(root.parent / name)


BEFORE = {"a.txt": "one\n", "sub/b.txt": "two\n"}


async def test_a_checkpoint_holds_the_session_its_progress_and_what_waits_in_it(
    server: VirtualServer, agent: AgentClient
) -> None:
    items = (ProgressItem("half of it", ProgressStatus.DONE),)
    await agent.ask(Ping(None, items))
    id = (await agent.propose("a.txt", "two\n", RiskLevel.HIGH)).request_id
    taken = await take(server, agent)
    assert (taken.checkpoint.label, taken.checkpoint.files, taken.checkpoint.kept) == ("before", 2, 2)
    kept = await server.app.reader.read(partial(checkpoints.get, id=taken.checkpoint.id))
    assert kept.progress_snapshot == items
    assert kept.session_state["status"] == "active"
    [waiting] = kept.session_state["pending"]
    wanted = {"request_id": id, "kind": "approval", "paths": ["a.txt"], "diff": "two\n"}
    assert waiting == waiting | wanted
    assert set(kept.file_hashes) == set(BEFORE)
    assert (await server.operator.notice("checkpoint taken")).session_id == agent.session_id
    answered = await agent.ask(Reboot())
    assert answered.answer.last_checkpoint.checkpoint_id == kept.id
    assert await server.app.service.checkpoints.listed() == (taken.checkpoint,)


async def test_the_same_act_takes_one_checkpoint_and_asks_one_question(
    server: VirtualServer, agent: AgentClient
) -> None:
    calls = server.app.service.checkpoints
    taken = [await calls.take(agent.session_id, "x", "kim", "ctl", "act-1") for _ in range(2)]
    assert taken[0] == taken[1]
    asked = [await calls.ask_restore(taken[0].checkpoint.id, Files.BACK, "kim", "ctl", "act-2") for _ in range(2)]
    assert asked[0] == asked[1]
    assert len(await calls.listed()) == 1
    assert [card.kind for card in await server.app.service.pending()] == [CardKind.RESTORE]


async def test_nothing_changes_until_a_person_says_so_and_nothing_after_they_say_no(clock: Clock, root: Path) -> None:
    async with checkpointed(root, clock) as (server, agent, taken):
        spoil(root)
        spoiled = files(root)
        restore = await ask(server, taken, Files.EXACT)
        assert kinds(restore) == {"a.txt": MODIFIED, "new.txt": ADDED, "sub/b.txt": DELETED}
        card = await server.operator.card(id=restore.id)
        assert (card.kind, card.state, card.session_id) == (CardKind.RESTORE, CardState.PENDING, agent.session_id)
        assert "1 modified, 1 deleted, 1 added" in (card.body or "")
        assert (await server.decide(restore.id, Decision.CANCEL)).state is CardState.REJECTED
        with pytest.raises(AlreadyDecided, match="cancel by kim"):
            await server.decide(restore.id, Decision.PROCEED)
        assert files(root) == spoiled
        assert [session.id for session in await server.app.service.sessions()] == [agent.session_id]


@pytest.mark.parametrize(
    ("how", "after", "counts"),
    [
        (Files.BACK, BEFORE | {"new.txt": "new\n"}, "; 2 files put back"),
        (Files.EXACT, BEFORE, "; 2 files put back; 1 file removed"),
    ],
)
async def test_a_restore_ends_that_session_alone_and_another_goes_on(
    server: VirtualServer, root: Path, how: Files, after: dict[str, str], counts: str
) -> None:
    agent, other = await server.arrive(root), await server.arrive(root, "other")
    items = (ProgressItem("half of it", ProgressStatus.IN_PROGRESS),)
    await agent.ask(Ping(None, items))
    taken = await take(server, agent)
    spoil(root)
    done = await succeed(server, await ask(server, taken, how))
    assert files(root) == after
    live = {session.id: session for session in await server.app.service.sessions()}
    assert set(live) == {other.session_id, done.successor_id}
    assert live[done.successor_id].progress_snapshot == items
    assert live[done.successor_id].client_name == "client"
    with pytest.raises(InvalidState, match=f"restored a checkpoint.*session_id {done.successor_id}"):
        await agent.ask(Ping())
    assert (await other.ask(Ping())).answer.acknowledged
    assert (await server.operator.card(id=done.id, state=CardState.APPLIED)).note == done.note
    assert done.note == f"restored as session {done.successor_id}{counts}"
    # How things were is a checkpoint too, and there is a way back to it.
    undone = await proceed(
        server, await server.app.service.checkpoints.ask_restore(done.safety_id, Files.EXACT, "kim", "ctl")
    )
    assert undone.state is RestoreState.DONE, undone.note
    assert files(root) == {"a.txt": "spoiled\n", "new.txt": "new\n"}
    live_now = {session.id for session in await server.app.service.sessions()}
    assert live_now == {other.session_id, undone.successor_id}


async def test_what_still_waits_moves_what_was_answered_is_asked_again_and_what_came_since_ends(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    waits = (await agent.propose("a.txt", "two\n", RiskLevel.HIGH)).request_id
    answered = (await agent.propose("sub/b.txt", "three\n", RiskLevel.HIGH)).request_id
    question = (await agent.ask(Transmit("Go on?", PromptType.CLARIFICATION))).request_id
    taken = await take(server, agent)
    await server.decide(answered, Decision.APPROVE)
    await agent.ask(CheckDiff(answered))
    await server.decide(question, Decision.CONTINUE)
    since = (await agent.propose("later.txt", "later\n", RiskLevel.HIGH)).request_id
    pending = await server.wait(agent, waits)
    done = await succeed(server, await ask(server, taken, Files.BACK))
    with pytest.raises(InvalidState, match="call reboot with session_id"):
        await pending()
    assert files(root) == BEFORE
    found = await server.app.reader.read(partial(requests.pending, session_id=done.successor_id))
    by_text = {getattr(each, "diff_content", None) or getattr(each, "prompt_text", ""): each for each in found}
    assert set(by_text) == {"two\n", "three\n", "Go on?"}
    assert by_text["two\n"].id == waits
    assert by_text["three\n"].id != answered
    assert by_text["Go on?"].id != question
    old = await server.app.reader.read(partial(requests.find, id=since))
    assert old.status.value == "interrupted"
    cards = {card.id: card for card in await server.app.service.pending()}
    assert {card.session_id for card in cards.values()} == {done.successor_id}
    assert all(card.away for card in cards.values())

    # Whoever takes the session over finds the same requests, and the checkpoint it comes from.
    new = Agent("new", "client", str(root))
    server.app.connected_agents.came("new", "door")
    adopted = server.begin(partial(server.ask, "registry", Adopt(new, done.successor_id)))
    await server.later(5)
    assert await adopted() == done.successor_id
    agent = AgentClient(server, new, done.successor_id)
    told = (await agent.ask(Reboot(adopted=True))).answer
    assert {each.request_id for each in told.pending_requests} == set(cards)
    assert told.last_checkpoint.checkpoint_id == taken.checkpoint.id
    assert (await agent.propose("a.txt", "two\n", RiskLevel.HIGH)).request_id == waits
    await server.decide(waits, Decision.APPROVE)
    await agent.ask(CheckDiff(waits))
    assert (root / "a.txt").read_text() == "two\n"


async def test_what_a_permission_hook_asked_ends_with_the_session_it_was_asked_in(
    server: VirtualServer, agent: AgentClient
) -> None:
    run = Operation(OperationKind.COMMAND, "Bash", "Run make", '["Bash",{"command":"make"}]')
    opened = await agent.ask(AskPermission("h1", "claude-code", run, "claude-code/PreToolUse"))
    id = opened.request_id
    taken = await take(server, agent)
    done = await succeed(server, await ask(server, taken))
    assert not await server.app.reader.read(partial(requests.pending, session_id=done.successor_id))
    old = await server.app.reader.read(partial(requests.find, id=id))
    assert old.status.value == "interrupted"


async def test_whoever_says_proceed_is_asked_again_when_files_have_changed_since(clock: Clock, root: Path) -> None:
    async with checkpointed(root, clock) as (server, agent, taken):
        spoil(root)
        first = await ask(server, taken, Files.EXACT)
        (root / "new.txt").write_text("newer\n")
        outdated = await proceed(server, first)
        assert outdated.state is RestoreState.OUTDATED
        card = await server.operator.card(
            lambda card: card.id != first.id, kind=CardKind.RESTORE, state=CardState.PENDING
        )
        assert "asked again as " + card.id in (outdated.note or "")
        assert files(root)["a.txt"] == "spoiled\n"
        assert (await agent.ask(Ping())).answer.acknowledged
        await succeed(server, await server.app.service.checkpoints.restore(card.id))
        assert files(root) == BEFORE


async def test_a_question_that_nobody_answers_expires_and_one_asked_anew_takes_the_place_of_the_old(
    clock: Clock, root: Path
) -> None:
    async with checkpointed(root, clock) as (server, _guest, taken):
        first, second = await ask(server, taken), await ask(server, taken, Files.BACK)
        assert (await server.app.service.checkpoints.restore(first.id)).state is RestoreState.OUTDATED
        assert [card.id for card in await server.app.service.pending()] == [second.id]
        await server.later(server.app.config.timeouts.approval_seconds + 1)
        assert (await server.operator.card(id=second.id)).state is CardState.EXPIRED
        with pytest.raises(AlreadyDecided):
            await server.decide(second.id, Decision.PROCEED)


async def test_a_file_that_stands_in_the_way_stops_it_and_a_person_tries_again_or_gives_up(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with checkpointed(root, clock) as (server, _guest, taken):
        for last in (Decision.PROCEED, Decision.CANCEL):
            spoil(root) if not (root / "new.txt").exists() else None
            (root / "a.txt").write_text("spoiled\n")

            def meddle(point: str) -> None:
                if point == "restore.handed_over":
                    (root / "a.txt").write_text("meddled\n")

            monkeypatch.setattr(crash_points, "hook", meddle)
            restore = await ask(server, taken, Files.EXACT)
            stuck = await proceed(server, restore)
            monkeypatch.setattr(crash_points, "hook", None)
            assert stuck.state is RestoreState.STUCK
            assert "a.txt changed in between" in (stuck.note or "")
            assert files(root)["a.txt"] == "meddled\n"
            card = await server.app.service.card(restore.id)
            assert card.state is CardState.PENDING
            (root / "a.txt").write_text("spoiled\n")
            await server.decide(restore.id, last)
            done = await ended(server, restore.id)
            await until_clean(root)
            if last is Decision.PROCEED:
                assert done.state is RestoreState.DONE
                assert files(root) == BEFORE
            else:
                assert done.state is RestoreState.GIVEN_UP
                assert files(root)["a.txt"] == "spoiled\n"
            # Either way the session that follows begins.
            await server.operator.notice(f"it waits for an agent that calls reboot with its id, {done.successor_id}")


async def test_a_checkpoint_of_an_ended_session_is_restored_too(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    id = (await agent.propose("a.txt", "two\n", RiskLevel.HIGH)).request_id
    taken = await take(server, agent)
    await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
    spoil(root)
    done = await succeed(server, await ask(server, taken, Files.EXACT))
    assert files(root) == BEFORE
    [anew] = await server.app.reader.read(partial(requests.pending, session_id=done.successor_id))
    assert anew.id != id


async def test_what_can_not_be_put_back_or_brought_back_is_said_before_anybody_decides(
    clock: Clock, root: Path
) -> None:
    (root / "large.bin").write_bytes(b"x" * 200)
    config = Config(checkpoint=CheckpointSettings(max_file_bytes=100))
    async with checkpointed(root, clock, config) as (server, _guest, taken):
        assert [(each.why, each.count) for each in taken.left_out] == [("contents too large to be kept", 1)]
        (root / "large.bin").write_bytes(b"y" * 200)
        (root / "a.txt").write_bytes(b"z" * 200)
        restore = await ask(server, taken, Files.BACK)
        assert "cannot be put back: large.bin (its content was not stored)" in restore.divergence.remarks
        assert any("cannot be restored: a.txt" in remark for remark in restore.divergence.remarks)
        await succeed(server, restore)
        assert (root / "a.txt").read_text() == "one\n"
        assert (root / "large.bin").read_bytes() == b"y" * 200


async def test_where_there_is_no_room_to_keep_what_is_overwritten_it_is_said_before_it_is(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with checkpointed(root, clock) as (server, _guest, taken):
        spoil(root)
        first = await ask(server, taken, Files.EXACT)
        assert not any("cannot be restored" in remark for remark in first.divergence.remarks)
        monkeypatch.setattr(OpenContents, "_used", lambda _: 2**60)
        outdated = await proceed(server, first)
        assert outdated.state is RestoreState.OUTDATED
        assert files(root)["a.txt"] == "spoiled\n"
        card = await server.operator.card(
            lambda card: card.id != first.id, kind=CardKind.RESTORE, state=CardState.PENDING
        )
        words = "there is no room, so their current content cannot be restored: new.txt, a.txt"
        assert words in (card.body or "")
        await succeed(server, await server.app.service.checkpoints.restore(card.id))
        assert files(root) == BEFORE


async def test_files_that_were_ignored_then_are_never_taken_for_added(clock: Clock, root: Path) -> None:
    (root / ".gitignore").write_text(".env\nout/\n")
    (root / ".env").write_text("SECRET=1\n")
    async with checkpointed(root, clock) as (server, _guest, taken):
        (root / ".gitignore").write_text("")
        (root / "out").mkdir()
        (root / "out/made").write_text("made\n")
        (root / "new.txt").write_text("new\n")
        restore = await ask(server, taken, Files.EXACT)
        assert kinds(restore) == {".gitignore": MODIFIED, "new.txt": ADDED}
        await succeed(server, restore)
        assert files(root) == BEFORE | {".gitignore": ".env\nout/\n", ".env": "SECRET=1\n", "out/made": "made\n"}


async def test_a_directory_with_nothing_but_ignored_files_keeps_one_file_from_its_place_and_no_other(
    clock: Clock, root: Path
) -> None:
    (root / ".gitignore").write_text("*.o\n")
    async with checkpointed(root, clock) as (server, _, taken):
        spoil(root)
        (root / "a.txt").unlink()
        (root / "a.txt").mkdir()
        (root / "a.txt/made.o").write_text("made\n")
        asked = await ask(server, taken, Files.BACK)
        words = "cannot be put back: a.txt (its path is now a directory that is not empty)"
        assert words in asked.divergence.remarks
        await succeed(server, asked)
        kept = {".gitignore": "*.o\n", "a.txt/made.o": "made\n"}
        assert files(root) == {**kept, "new.txt": "new\n", "sub/b.txt": "two\n"}


async def test_where_rules_take_too_long_nothing_is_taken_for_added(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".gitignore").write_text("*.o\n")
    async with checkpointed(root, clock) as (server, _, taken):
        (root / ".gitignore").write_text("")
        (root / "new.txt").write_text("new\n")
        ticks = itertools.count(step=20.0)
        monkeypatch.setattr(archive, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        restore = await ask(server, taken, Files.EXACT)
        assert kinds(restore) == {".gitignore": MODIFIED}
        assert any("not known for certain" in remark for remark in restore.divergence.remarks)


async def test_without_contents_a_checkpoint_compares_and_says_that_nothing_can_be_put_back(
    clock: Clock, root: Path
) -> None:
    config = Config(checkpoint=CheckpointSettings(keep_contents=False))
    async with checkpointed(root, clock, config) as (server, _guest, taken):
        assert taken.checkpoint.kept == 0
        spoil(root)
        restore = await ask(server, taken)
        assert restore.divergence.total == 3
        assert any("cannot be put back: a.txt" in remark for remark in restore.divergence.remarks)
        # Nothing that differs could be put back, and the session would end.
        with pytest.raises(InvalidState, match="none of these files would be put back, and session"):
            await ask(server, taken, Files.BACK)


def test_a_file_that_an_agent_named_has_one_line_of_the_question() -> None:
    named = Divergence("a\nAsked by kim.", DivergenceKind.MODIFIED)
    asked = cases.restore(divergence=DivergenceSummary(1, 0, 0, (named,), ("stays b\nc",)))
    lines = (checkpoints_restore.of_restore(asked).body or "").split("\n")
    assert lines[1:3] == ["modified: a Asked by kim.", "stays b c"]


async def test_a_restore_that_would_put_nothing_back_ends_no_session(clock: Clock, root: Path) -> None:
    """`restore` without flags ended the session, and left every file as it was."""
    async with checkpointed(root, clock) as (server, agent, taken):
        spoil(root)
        with pytest.raises(
            InvalidState, match=r"1 modified, 1 deleted, 1 added since.*ask for the files too"
        ) as refused:
            await ask(server, taken, Files.LEAVE)
        assert [each["path"] for each in refused.value.details["diverged"]] == ["a.txt", "new.txt", "sub/b.txt"]
        assert not [card for card in await server.app.service.pending() if card.kind is CardKind.RESTORE]
        assert (await agent.ask(Ping())).answer.acknowledged
        # One that an older server asked is not carried out either.
        restore = await ask(server, taken, Files.EXACT)
        await server.ask("store", Transact(lambda db: db.execute("update restore set files = 'leave'")))
        failed = await proceed(server, restore)
        assert (failed.state, "nothing was changed" in (failed.note or "")) == (RestoreState.FAILED, True)
        assert (await agent.ask(Ping())).answer.acknowledged
        # From one that is over another may go on without a file being touched.
        await server.app.service.end(agent.session_id, "kim", "ctl", "enough")
        await succeed(server, await ask(server, taken, Files.LEAVE))
        assert files(root) == {"a.txt": "spoiled\n", "new.txt": "new\n"}


async def test_what_is_gone_is_refused_and_nothing_else_is(clock: Clock, root: Path) -> None:
    async with checkpointed(root, clock) as (server, agent, taken):
        calls = server.app.service.checkpoints
        with pytest.raises(NotFound):
            await calls.ask_restore("nothing", Files.LEAVE, "kim", "ctl")
        with pytest.raises(NotFound):
            await calls.take("nothing", None, "kim", "ctl")
        away = move(root, "elsewhere")
        for wish in (partial(take, server, agent), partial(ask, server, taken)):
            with pytest.raises(FileError, match="cannot be opened"):
                await wish()
        move(away, root.name)
        restore = await ask(server, taken)
        move(root, "elsewhere")
        failed = await proceed(server, restore)
        assert failed.state is RestoreState.FAILED
        assert "nothing was changed" in (failed.note or "")
        assert (await agent.ask(Ping())).answer.acknowledged


async def test_a_session_that_was_paused_is_paused_again(server: VirtualServer, agent: AgentClient) -> None:
    await server.app.service.steering.pause(agent.session_id, "kim", "ctl")
    taken = await take(server, agent)
    await server.app.service.steering.unpause(agent.session_id, "kim", "ctl")
    done = await proceed(server, await ask(server, taken))
    made = {session.id: session for session in await server.app.service.sessions()}[done.successor_id]
    assert made.is_paused
    assert made.status is SessionStatus.INTERRUPTED


async def test_contents_go_with_the_last_checkpoint_that_names_them(
    server: VirtualServer, agent: AgentClient, root: Path
) -> None:
    await take(server, agent, "first")
    (root / "a.txt").write_text("changed\n")
    await take(server, agent, "second")

    def kept() -> int:
        with sqlite3.connect(server.app.database.with_name("intercom-contents.db")) as db:
            return int(db.execute("select count(*) from content").fetchone()[0])

    assert kept() == 3
    await server.ask("store", Transact(lambda db: db.execute("delete from checkpoint where label = 'first'")))
    server.app.system.named("checkpoints").tell(SweepContents())
    async with server.restarting():
        while kept() != 2:
            await trio.testing.wait_all_tasks_blocked(0.002)
    spoil(root)
    second = next(line for line in await server.app.service.checkpoints.listed() if line.label == "second")
    await succeed(server, await server.app.service.checkpoints.ask_restore(second.id, Files.EXACT, "kim", "ctl"))
    assert files(root) == BEFORE | {"a.txt": "changed\n"}


@pytest.mark.parametrize("starts", [True, False])
async def test_no_agent_is_started_for_a_session_that_another_has_taken_up(
    clock: Clock, root: Path, starts: bool
) -> None:
    config = Config(host_cli=sys.executable, host_cli_args=("-c", "")) if starts else Config()

    async def until_quiet(self: Successors, restore: Restore) -> None:
        # Its agent was told of the end, and asks for the one that follows while files are still put back.
        assert await server.ask("registry", Adopt(agent.identity, restore.successor_id)) == restore.successor_id

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Successors, "until_quiet", until_quiet)
        async with virtual_server(root.parent, clock, config) as server:
            agent = await server.arrive(root)
            done = await succeed(server, await ask(server, await take(server, agent)))
            assert "an agent has resumed it" in (await server.operator.notice("session restored from checkpoint")).text
            assert await server.app.service.agent_processes.everyone() == {}
            (session,) = await server.app.service.sessions()
            assert (session.id, session.status) == (done.successor_id, SessionStatus.ACTIVE)


async def test_an_agent_is_started_for_the_session_that_follows_where_one_can_be(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, dict[str, Any]]] = []
    refusals = [SpawnFailed("no such program")]

    async def start(self: AgentProcesses, prompt: str, **more: Any) -> None:
        started.append((prompt, more))
        if refusals:
            raise refusals.pop()

    monkeypatch.setattr(AgentProcesses, "start", start)
    async with virtual_server(root.parent, clock, Config(host_cli="agent")) as server:
        agent = await server.arrive(root)
        taken = await take(server, agent)
        for word in ("none could be started: no such program", "its agent was started"):
            done = await succeed(server, await ask(server, taken, Files.BACK))
            assert word in (await server.operator.notice(word)).text
            prompt, more = started[-1]
            assert (more["session_id"], more["workspace"]) == (done.successor_id, str(root))
            assert "Call reboot first" in prompt
            assert "before" in prompt
