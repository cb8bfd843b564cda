"""Sessions: one per agent, moved only along the transition table."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from attrs import evolve

from intercom.model.errors import InvalidState
from intercom.model.process import AgentProcess, AgentProcessState
from intercom.model.session import (
    SESSION_TRANSITIONS,
    ProgressItem,
    ProgressStatus,
    Session,
    SessionMode,
    SessionStatus,
)
from intercom.store import audit, sessions
from intercom.store.database import Database, connect, open_database, transaction
from intercom.store.processes import agent_processes
from tests.store import cases
from tests.store.cases import NOW, after


def got(db: Database, id: str) -> Session:
    session = sessions.get(db, id)
    assert session is not None
    return session


def ids(found: tuple[Session, ...]) -> list[str]:
    return [session.id for session in found]


@pytest.mark.parametrize("to", SessionStatus)
@pytest.mark.parametrize("now", SessionStatus)
def test_a_session_moves_only_along_the_table(db: Database, now: SessionStatus, to: SessionStatus) -> None:
    sessions.insert(db, cases.session("s2", status=now))
    if to not in SESSION_TRANSITIONS[now]:
        with pytest.raises(InvalidState, match=f"a session that is {now} cannot become {to}"):
            sessions.set_status(db, "s2", now, to, after(5))
        assert got(db, "s2").status is now
        return
    moved = sessions.set_status(db, "s2", now, to, after(5))
    assert moved == got(db, "s2")
    assert (moved.status, moved.updated_at) == (to, after(5))
    assert moved.terminated_at == (after(5) if to is SessionStatus.TERMINATED else None)


def test_a_session_in_another_status_is_not_moved(db: Database) -> None:
    before = got(db, "s1")
    assert sessions.set_status(db, "s1", SessionStatus.PAUSED, SessionStatus.ACTIVE, after(5)) is None
    assert sessions.set_status(db, "nobody", SessionStatus.PAUSED, SessionStatus.ACTIVE, after(5)) is None
    assert got(db, "s1") == before
    either = {SessionStatus.ACTIVE, SessionStatus.PAUSED}
    assert sessions.set_status(db, "s1", either, SessionStatus.INTERRUPTED, after(5)) is not None


def test_of_two_that_pause_and_end_a_session_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    db = open_database(path).db
    names = [f"s{number}" for number in range(20)]
    for name in names:
        sessions.insert(db, cases.session(name))
    won: dict[str, list[str]] = {name: [] for name in names}
    together = threading.Barrier(2)

    def move(to: SessionStatus) -> None:
        mine = connect(path)
        together.wait()
        for name in names:
            with transaction(mine):
                if sessions.set_status(mine, name, SessionStatus.ACTIVE, to, after(1)):
                    won[name].append(to)
        mine.close()

    threads = [threading.Thread(target=move, args=(to,)) for to in (SessionStatus.PAUSED, SessionStatus.INTERRUPTED)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: [got(db, name).status] for name in names} == won
    db.close()


def test_an_agent_has_one_session_that_is_not_terminated(db: Database) -> None:
    sessions.insert(db, cases.session("old", agent_key="k", status=SessionStatus.TERMINATED))
    assert sessions.by_agent(db, "k") is None
    sessions.insert(db, cases.session("new", agent_key="k"))
    with pytest.raises(InvalidState, match="already has session new"):
        sessions.insert(db, cases.session("third", agent_key="k"))
    found = sessions.by_agent(db, "k")
    assert found.id == "new"
    assert not sessions.insert(db, cases.session("new", agent_key="k"))


def test_binding_takes_the_agent_from_its_other_session(db: Database) -> None:
    sessions.insert(db, cases.session("fresh", agent_key="k"))
    sessions.insert(db, cases.session("ended", agent_key="k", status=SessionStatus.TERMINATED))
    bound = sessions.bind_agent(db, "s1", "k", after(5))
    assert bound == evolve(cases.session("s1"), agent_key="k", updated_at=after(5))
    assert got(db, "fresh").agent_key is None
    assert got(db, "ended").agent_key == "k"
    found = sessions.by_agent(db, "k")
    assert found.id == "s1"
    named = sessions.bind_agent(db, "s1", "other", after(6), client_name="cursor")
    assert (named.agent_key, named.client_name) == ("other", "cursor")


def test_a_session_that_ended_is_not_bound(db: Database) -> None:
    sessions.insert(db, cases.session("fresh", agent_key="k"))
    sessions.set_status(db, "s1", SessionStatus.ACTIVE, SessionStatus.TERMINATED, after(1))
    assert sessions.bind_agent(db, "s1", "k", after(5)) is None
    assert sessions.bind_agent(db, "nobody", "k", after(5)) is None
    assert got(db, "fresh").agent_key == "k"


def test_adoptable_are_those_of_the_same_workspace_and_client(db: Database) -> None:
    for number, status in enumerate(SessionStatus):
        sessions.insert(db, cases.session(status.value, status=status, updated_at=after(number)))
    sessions.insert(db, cases.session("elsewhere", workspace_root="/other"))
    sessions.insert(db, cases.session("stranger", client_name="cursor"))
    sessions.insert(db, cases.session("unnamed", client_name=None))
    found = sessions.adoptable(db, "/project", "codex")
    assert ids(found) == ["interrupted", "paused", "active", "s1"]
    assert ids(sessions.adoptable(db, "/project", None)) == ["unnamed"]


@pytest.mark.parametrize("state", AgentProcessState)
def test_no_other_agent_adopts_a_session_while_anything_runs_of_what_people_started_in_it(
    db: Database, state: AgentProcessState
) -> None:
    agent_processes.insert(db, AgentProcess("s1", state, NOW, "kim"))
    assert ids(sessions.adoptable(db, "/project", "codex")) == (["s1"] if state is AgentProcessState.OVER else [])


@pytest.mark.parametrize(
    ("asked", "found"), [(None, ["s1", "s2", "s3"]), ([], []), (["s3", "s1", "none"], ["s1", "s3"])]
)
def test_agent_processes_are_read_for_the_sessions_that_are_asked_for(
    db: Database, asked: list[str] | None, found: list[str]
) -> None:
    """Ended sessions are kept for days: a list of the live ones must not grow with them."""
    for id in ("s2", "s3"):
        sessions.insert(db, cases.session(id))
    for number, id in enumerate(("s1", "s2", "s3")):
        agent_processes.insert(db, AgentProcess(id, AgentProcessState.OVER, after(number), "kim"))
    assert [each.session_id for each in agent_processes.everyone(db, asked)] == found


def test_live_and_by_status_are_oldest_first(db: Database) -> None:
    sessions.insert(db, cases.session("s0", created_at=after(-1)))
    sessions.insert(db, cases.session("s2", status=SessionStatus.INTERRUPTED, created_at=after(1)))
    sessions.insert(db, cases.session("s3", status=SessionStatus.TERMINATED))
    assert ids(sessions.live(db)) == ["s0", "s1", "s2"]
    assert ids(sessions.by_status(db, SessionStatus.ACTIVE)) == ["s0", "s1"]
    assert ids(sessions.by_status(db, SessionStatus.TERMINATED)) == ["s3"]
    assert sessions.with_prefix(db, "s") == ("s0", "s1", "s2", "s3")
    assert sessions.with_prefix(db, "s2") == ("s2",)


def test_the_mode_before_is_told(db: Database) -> None:
    assert sessions.set_mode(db, "s1", SessionMode.HYBRID, after(1)) is SessionMode.LOCAL
    assert sessions.set_mode(db, "s1", SessionMode.REMOTE, after(2)) is SessionMode.HYBRID
    assert got(db, "s1").mode is SessionMode.REMOTE
    assert sessions.set_mode(db, "nobody", SessionMode.REMOTE, after(2)) is None


def test_with_a_chat_the_mode_that_nobody_chose_becomes_hybrid_once(db: Database) -> None:
    for id, kind, data in (
        ("switched", "mode", None),
        ("restored", "session_restored", None),
        ("started in it", "session_started", {"mode": "local"}),
        ("started", "session_started", {"label": "x"}),
    ):
        sessions.insert(db, cases.session(id))
        audit.record(db, NOW, kind, id, "kim", "", data)
    sessions.insert(db, cases.session("gone", status=SessionStatus.INTERRUPTED))
    sessions.insert(db, cases.session("over", status=SessionStatus.TERMINATED))
    sessions.insert(db, cases.session("remote", mode=SessionMode.REMOTE))
    for later in (1, 2):
        sessions.include_chat(db, after(later))
    changed = {each.id for each in sessions.live(db) if each.mode is SessionMode.HYBRID}
    assert changed == {"s1", "started", "gone"}
    assert got(db, "over").mode is SessionMode.LOCAL
    assert got(db, "gone").updated_at == NOW, "nothing has happened in it"
    entries = audit.recent(db, 50)
    assert sorted(each.session_id or "" for each in entries if each.who == "intercom") == ["gone", "s1", "started"]
    sessions.set_mode(db, "s1", SessionMode.LOCAL, after(3))
    sessions.include_chat(db, after(4))
    assert got(db, "s1").mode is SessionMode.LOCAL


def test_progress_and_stall_are_kept(db: Database) -> None:
    progress = (ProgressItem("build", ProgressStatus.DONE), ProgressItem("test", ProgressStatus.PENDING))
    assert sessions.set_progress(db, "s1", progress, after(1))
    assert sessions.set_stall(db, "s1", 3, True)
    session = got(db, "s1")
    assert (session.progress_snapshot, session.nudge_count, session.stall_paused) == (progress, 3, True)
    assert session.updated_at == after(1)
    assert sessions.set_progress(db, "s1", None, after(2))
    assert got(db, "s1").progress_snapshot is None


def test_a_session_that_ended_is_changed_no_more(db: Database) -> None:
    ended = sessions.set_status(db, "s1", SessionStatus.ACTIVE, SessionStatus.TERMINATED, after(1))
    assert sessions.set_mode(db, "s1", SessionMode.REMOTE, after(2)) is None
    assert not sessions.set_progress(db, "s1", (), after(2))
    assert not sessions.set_stall(db, "s1", 1, True)
    assert not sessions.touch(db, "s1", after(2), "ping")
    assert got(db, "s1") == ended


def test_a_touch_never_goes_back_in_time(db: Database) -> None:
    assert sessions.touch(db, "s1", after(5), "ping")
    assert not sessions.touch(db, "s1", after(4), "standby")
    assert sessions.touch(db, "s1", after(6))
    assert (got(db, "s1").updated_at, got(db, "s1").last_tool) == (after(6), "ping")
    assert sessions.set_progress(db, "s1", (), NOW)
    assert got(db, "s1").updated_at == after(6)
