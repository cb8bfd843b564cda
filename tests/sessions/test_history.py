"""People search what was asked before and what the log says, page by page, and verify the log beside the server."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from intercom.local.places import Places, places
from intercom.model.decision import Decision
from intercom.model.errors import DatabaseError, FileError, NotFound
from intercom.model.json_types import Json
from intercom.operators.commands.command_execution import carry_out, read_fields
from intercom.operators.router_messages import Channel
from intercom.sessions.history import MOST_WORDS, REST, LogVerifier, words_of
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.store import rows
from intercom.store.audit_chain import AnchorError, Verification
from tests.support.virtual_server import AgentClient, VirtualServer


async def do(server: VirtualServer, command: str, **fields: Json) -> dict[str, Json]:
    answer = await carry_out(server.app.service, read_fields(command, fields), "kim", None, Channel.WEB)
    assert isinstance(answer, dict)
    return answer


async def titles(server: VirtualServer, **fields: Json) -> list[str]:
    found = (await do(server, "history", **fields))["requests"]
    assert isinstance(found, list)
    return [str(each["title"]) for each in found if isinstance(each, dict)]


CHANGE, QUESTION, IDLE = "Round the total", "Shall I go on?", "Waits for work"


@pytest.fixture
async def asked(server: VirtualServer, agent: AgentClient) -> VirtualServer:
    """Three requests that were answered, the oldest first, and one that waits; a second apart."""
    idle = await agent.ask(Standby("nothing to do"))
    await server.decide(idle.request_id, Decision.STOP)
    await server.later(1)
    change = await agent.ask(CheckClearance("Round the total", "total = 100%\n", "shop/basket.py"))
    await server.decide(change.request_id, Decision.REJECT, "not_before friday")
    await server.later(1)
    question = await agent.ask(Transmit("Which way?"))
    await server.decide(question.request_id, Decision.REFINE, "Left, then up")
    await agent.ask(Transmit("And now?"))
    return server


async def test_past_requests_are_listed_newest_first_without_what_waits(asked: VirtualServer) -> None:
    whole = await titles(asked)
    assert whole == [QUESTION, CHANGE, IDLE]
    assert await titles(asked, limit=2) == whole[:2]
    assert await titles(asked, limit=2, start=2) == whole[2:]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("round", [CHANGE]),
        ("BASKET reject", [CHANGE]),
        ("100%", [CHANGE]),
        ("100% left", []),
        ("t_before", [CHANGE]),
        ("t%before", []),
        ("then LEFT,", [QUESTION]),
        ("kim", [QUESTION, CHANGE, IDLE]),
        ("\\", []),
    ],
)
async def test_all_words_are_looked_for_in_what_was_asked_and_answered(
    asked: VirtualServer, text: str, found: list[str]
) -> None:
    assert await titles(asked, text=text) == found


async def test_a_page_of_past_requests_has_no_diffs_and_is_of_one_session(asked: VirtualServer) -> None:
    [first, *_] = (await do(asked, "history", text="basket"))["requests"]  # type: ignore[misc]
    assert isinstance(first, dict)
    assert (first["diff"], first["diff_omitted"], first["status"]) == (None, True, "rejected")
    assert await titles(asked, session=str(first["session_id"]), limit=1) == [QUESTION]
    with pytest.raises(NotFound):
        await titles(asked, session="nobody")


async def test_the_log_is_read_page_by_page_and_searched(asked: VirtualServer) -> None:
    whole = await asked.app.service.audit(100)
    newest = await asked.app.service.audit(3)
    assert await asked.app.service.audit(3, before=newest[0].id) == whole[-6:-3]
    assert await asked.app.service.audit(3, before=whole[0].id) == ()
    decided = await asked.app.service.audit(100, text="decided REFINE")
    assert [(each.kind, each.summary) for each in decided] == [("decided", "refine")]
    assert (await do(asked, "log", text="decided refine", before=decided[0].id))["entries"] == []
    # Also by the title of the request, as people read it.
    (rejected,) = await asked.app.service.audit(100, text="round the TOTAL decided")
    assert (rejected.summary, rejected.title) == ("reject", CHANGE)


def test_a_search_has_a_limit() -> None:
    assert words_of("a a b") == ("a", "b")
    assert words_of(None) == words_of("  ") == ()
    assert len(words_of(" ".join(map(str, range(100))))) == MOST_WORDS
    assert [len(each) for each in words_of("x" * 100_000)] == [200]


@given(st.text("ab%_\\A", max_size=8), st.lists(st.text("ab%_\\A", min_size=1, max_size=3), max_size=3))
def test_a_text_contains_words_as_they_are(text: str, words: list[str]) -> None:
    matches, values = rows.containing(":text", words)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        found = db.execute(f"select {matches}", {"text": text, **values}).fetchone()[0]
    assert bool(found) is all(word.lower() in text.lower() for word in words)


def test_a_word_that_nearly_fits_everywhere_takes_no_long_search() -> None:
    matches, values = rows.containing(":text", [f"{'a' * 199}b"])
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        began = time.thread_time()
        found = db.execute(f"select {matches}", {"text": "a" * 4_000_000, **values}).fetchone()[0]
    # With `like` it takes seconds, with `instr` some hundredths of one.
    assert (bool(found), time.thread_time() - began < 0.3) == (False, True)


async def test_the_log_is_verified_over_the_socket_as_ctl_verifies_it(asked: VirtualServer) -> None:
    found = await do(asked, "audit-verify")
    assert (found["ok"], found["faults"], found["more_faults"]) == (True, [], 0)
    assert found["entries"] == len(await asked.app.service.audit(1000))
    with contextlib.closing(sqlite3.connect(asked.app.database)) as db:
        db.execute("update audit set summary = 'approve' where summary = 'reject' and kind = 'decided'")
        db.commit()
    found = await do(asked, "audit-verify")
    assert found["ok"] is False
    assert "it was edited: its hash is not that of its columns" in str(found["faults"])


async def test_one_run_answers_everybody_who_asked_before_it_began() -> None:
    runs: list[threading.Event] = []
    begun: list[trio.Event] = [trio.Event(), trio.Event()]
    token = trio.lowlevel.current_trio_token()

    def verify(database: Path, where: Places) -> Verification:
        gate = threading.Event()
        runs.append(gate)
        token.run_sync_soon(begun[len(runs) - 1].set)
        assert gate.wait(30)
        return Verification(entries=len(runs))

    rests: list[float] = []
    seconds = iter((0.0, 0.0, 5.0, 6.0, 6.0, 7.0))
    verifier, told = LogVerifier(verify, rests.append, lambda: next(seconds)), []

    async def ask() -> None:
        told.append((await verifier.run(Path("x"), places())).entries)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await begun[0].wait()
        for _ in range(5):
            nursery.start_soon(ask)
        # The event loop is free while the thread works.
        await trio.testing.wait_all_tasks_blocked()
        runs[0].set()
        await begun[1].wait()
        runs[1].set()
    assert (told, len(runs)) == ([1, 2, 2, 2, 2, 2], 2)
    # A program that asks all the time leaves the processor to others for most of it.
    assert rests == [REST * 5.0 - 1.0]


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [(AnchorError("open to others"), FileError), (sqlite3.DatabaseError("no"), DatabaseError)],
)
async def test_a_log_that_cannot_be_read_says_why(fault: Exception, refusal: type[Exception]) -> None:
    def verify(database: Path, where: Places) -> Verification:
        raise fault

    with pytest.raises(refusal, match=str(fault)):
        await LogVerifier(verify).run(Path("x"), places())
