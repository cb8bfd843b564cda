"""Restores move along their table only, are found by what they made, and keep what they need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from intercom.model.checkpoint import RESTORE_TRANSITIONS, UNDER_WAY, WAITING, Restore, RestoreState
from intercom.model.decision import Decided
from intercom.model.errors import IntercomError, InvalidState
from intercom.model.session import SessionStatus
from intercom.sessions.checkpoints import restore as checkpoints_restore
from intercom.store import checkpoints, retention, sessions
from intercom.store.checkpoints import restores
from intercom.store.database import Database
from tests.store import cases
from tests.store.cases import NOW, after, restore


@pytest.fixture
def db() -> Iterator[Database]:
    with cases.database() as opened:
        yield opened


def test_a_restore_is_read_as_it_was_written_and_written_once(db: Database) -> None:
    decided = Decided("v1", "proceed", "ada", "ctl", NOW)
    assert restores.insert(db, restore(state=RestoreState.ACCEPTED, decided=decided))
    assert not restores.insert(db, restore(label="another"))
    assert restores.get(db, "r1") == restore(state=RestoreState.ACCEPTED, decided=decided)
    restores.save_steps(db, "r1", '[{"path":"a"}]')
    assert restores.steps(db, "r1") == '[{"path":"a"}]'
    assert restores.get(db, "nothing") is None
    assert restores.with_prefix(db, "r") == ("r1",)


@pytest.mark.parametrize("to", RestoreState)
@pytest.mark.parametrize("now", RestoreState)
def test_a_restore_moves_only_along_the_table(db: Database, now: RestoreState, to: RestoreState) -> None:
    restores.insert(db, restore(state=now))
    if to not in RESTORE_TRANSITIONS[now]:
        with pytest.raises(InvalidState):
            restores.advance(db, "r1", now, to, updated_at=after(1))
        return
    assert restores.advance(db, "r1", now, to, updated_at=after(1), note="why")
    assert not restores.advance(db, "r1", now, to, updated_at=after(2))
    found = restores.get(db, "r1")
    assert found == restore(state=to, note="why", updated_at=after(1))


def test_what_waits_and_what_is_under_way_is_found(db: Database) -> None:
    for number, state in enumerate(RestoreState):
        restores.insert(db, restore(id=state.value, state=state, created_at=after(number)))
    assert {each.state for each in restores.waiting(db)} == WAITING
    assert {each.state for each in restores.under_way(db)} == UNDER_WAY


def test_sessions_are_followed_through_their_restores(db: Database) -> None:
    restores.insert(db, restore(id="r1", state=RestoreState.DONE))
    restores.insert(db, restore(id="r2", session_id="s2", successor_id="s3", state=RestoreState.STUCK))
    restores.insert(db, restore(id="r3", session_id="s3", successor_id="s4"))
    assert restores.latest_successor(db, "s1") == restores.latest_successor(db, "s2") == "s3"
    assert restores.latest_successor(db, "elsewhere") == "elsewhere"
    made = restores.by_successor(db, "s2")
    assert made.id == "r1"
    assert restores.by_successor(db, "s4") is None
    ended = restores.by_ended(db, "s1")
    assert ended.successor_id == "s2"


@pytest.mark.parametrize("state", RestoreState)
def test_what_a_restore_that_is_not_over_needs_is_not_purged(db: Database, state: RestoreState) -> None:
    for id in ("old", "s2"):
        sessions.insert(db, cases.session(id, status=SessionStatus.TERMINATED, terminated_at=after(-9)))
    checkpoints.insert(db, cases.checkpoint("c1", session_id="old", created_at=after(-9)))
    restores.insert(db, restore(session_id="old", state=state, created_at=after(-9)))
    retention.purge(db, NOW, NOW, checkpoints_before=NOW)
    stays = state in WAITING | UNDER_WAY
    assert (checkpoints.line(db, "c1") is not None) == stays
    assert (sessions.get(db, "old") is not None) == stays
    assert (sessions.get(db, "s2") is not None) == stays, "the one that it began"
    assert (restores.get(db, "r1") is not None) == stays


@pytest.mark.parametrize("session_id", ["old", "new"])
def test_a_session_that_a_restore_ends_or_begins_is_not_abandoned_before_that_is_over(
    db: Database, session_id: str
) -> None:
    sessions.insert(db, cases.session(session_id, status=SessionStatus.INTERRUPTED, updated_at=after(-9)))
    restores.insert(db, restore(session_id="old", successor_id="new", state=RestoreState.STUCK))
    assert sessions.abandoned_before(db, NOW, 9) == ()
    restores.advance(db, "r1", RestoreState.STUCK, RestoreState.GIVEN_UP)
    assert sessions.abandoned_before(db, NOW, 9) == (session_id,)


def test_a_restore_stays_as_long_as_the_session_that_it_made(db: Database) -> None:
    sessions.insert(db, cases.session("s2"))
    restores.insert(db, restore(state=RestoreState.DONE, created_at=after(-9)))
    retention.purge(db, NOW, NOW)
    assert restores.get(db, "r1") is not None
    sessions.set_status(db, "s2", SessionStatus.ACTIVE, SessionStatus.TERMINATED, after(-5))
    retention.purge(db, NOW, NOW)
    assert restores.get(db, "r1") is None


def test_a_large_manifest_is_read_as_it_was_written(db: Database) -> None:
    hashes = {f"d{number % 7}/f{number}": f"{number:064x}" for number in range(4500)}
    checkpoints.insert(db, cases.checkpoint("c1", file_hashes=hashes))
    found = checkpoints.get(db, "c1")
    assert found.file_hashes == hashes
    assert sorted(checkpoints.hashes_named(db)) == sorted(hashes.values())


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        (None, False),
        (restore(id="r0", state=RestoreState.ACCEPTED), False),
        (restore(id="r0", state=RestoreState.CANCELLED), False),
        (restore(id="r0", state=RestoreState.COMMITTED, session_id="another"), False),
        (restore(id="r0", state=RestoreState.COMMITTED, successor_id="s3"), True),
        (restore(id="r0", state=RestoreState.HANDED_OVER, successor_id="s3"), True),
        (restore(id="r0", state=RestoreState.DONE, successor_id="s3"), True),
    ],
)
def test_one_restore_at_a_time_is_committed_to_for_a_session(
    db: Database, other: Restore | None, refused: bool
) -> None:
    restores.insert(db, restore(state=RestoreState.ACCEPTED))
    if other is not None:
        restores.insert(db, other)
    accepted = restore(state=RestoreState.ACCEPTED)
    if refused:
        with pytest.raises(IntercomError, match="another restore of this session"):
            checkpoints_restore.commit(db, accepted, "[]", after(1))
    else:
        assert checkpoints_restore.commit(db, accepted, "[]", after(1)).state is RestoreState.COMMITTED


def test_one_that_was_given_up_is_found_until_its_end_is_seen_to(db: Database) -> None:
    restores.insert(db, restore(state=RestoreState.STUCK))
    steps = '[{"path":"a"}]'
    assert restores.advance(db, "r1", RestoreState.STUCK, RestoreState.GIVEN_UP, updated_at=after(1), steps=steps)
    assert [each.id for each in restores.to_clean_up(db)] == ["r1"]
    restores.forget_steps(db, "r1")
    assert restores.to_clean_up(db) == ()
    assert restores.steps(db, "r1") == "[]"
