"""With an operator key, what SQL makes of genuine signatures and of states without one: nothing counts."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trio.testing
from attrs import evolve

from intercom.model import crash_points
from intercom.model.card import CardKind, CardState
from intercom.model.checkpoint import RestoreState
from intercom.model.config import Config
from intercom.model.decision import Decision
from intercom.model.errors import ApplyStuck, SignatureRefused
from intercom.model.request import PromptType
from intercom.sessions.keyring import Keyring
from intercom.sessions.messages import AwaitDecision
from intercom.sessions.session import permissions
from intercom.sessions.signatures import Signatures, without_keys
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.transmit import Transmit
from intercom.store.database import Database, open_database
from tests.sessions.house import House, house
from tests.sessions.test_checkpoints import ask, ended, spoil, take
from tests.sessions.test_policy_trust import OTHER, POLICY, TRUSTING, content, passes, waiting, write
from tests.sessions.test_signed_decisions import approve, ask_leave, keyed, sql
from tests.support.keys import Key

Clock = trio.testing.MockClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("one\n")
    (made / "sub/b.txt").write_text("two\n")
    return made


def between_runs(root: Path, statement: str, *values: str) -> None:
    """SQL while no server runs."""
    with contextlib.closing(sqlite3.connect(root.parent / "intercom.db")) as db:
        assert db.execute(statement, values).rowcount == 1
        db.commit()


async def say(at: House, key: Key, id: str, decision: Decision) -> None:
    await at.app.service.decide(id, key.verdict(await at.app.service.card(id), decision, at.now()))


async def test_a_policy_that_a_person_rejected_is_not_made_an_accepted_one(clock: Clock, root: Path) -> None:
    """Failed before: the signed rejection passed for the acceptance."""
    key = Key()
    write(root, POLICY)
    async with keyed(root, clock, key) as at:
        await at.arrive(root)
        await say(at, key, (await waiting(at, root)).id, Decision.REJECT)
    between_runs(root, "update policy_decision set accepted = 1")
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        assert not await passes(guest)
        assert "does not count" in (await at.people.notice("on record as accepted")).text


async def test_a_policy_that_a_person_accepted_counts_after_a_restart(clock: Clock, root: Path) -> None:
    key = Key()
    write(root, POLICY)
    async with keyed(root, clock, key) as at:
        await at.arrive(root)
        await say(at, key, (await waiting(at, root)).id, Decision.ACCEPT)
    async with keyed(root, clock, key) as at:
        assert await passes(await at.arrive(root))


async def test_an_older_acceptance_does_not_come_back_when_the_later_one_is_removed(clock: Clock, root: Path) -> None:
    """Failed before: it is signed, and was the last one left."""
    key = Key()
    async with keyed(root, clock, key) as at:
        await at.arrive(root)
        for policy in (POLICY, OTHER):
            write(root, policy)
            await at.later(5)
            card = await at.people.card(detail=content(policy), state=CardState.PENDING)
            await say(at, key, card.id, Decision.ACCEPT)
    write(root, POLICY)
    between_runs(root, "delete from policy_decision where sha = ?", content(OTHER))
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        assert not await passes(guest)
        assert "later decision" in (await at.people.notice("on record as accepted")).text


#: What grants all that POLICY and OTHER do.
BOTH = {"enabled": True, "file_patterns": {"write": ["docs/**", "src/**"]}}


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("delete from policy_narrowing", ()),
        ("update policy_narrowing set text = ?", (json.dumps(BOTH),)),
        ("update policy_narrowing set text = ?", (json.dumps(OTHER),)),
    ],
    ids=["deleted", "widened", "exchanged"],
)
async def test_what_a_policy_was_narrowed_to_is_not_widened_by_sql(
    clock: Clock, root: Path, statement: str, values: tuple[str, ...]
) -> None:
    async with house(root.parent, clock) as at:
        write(root, BOTH)
        await at.accept(root)
        guest = await at.arrive(root)
        write(root, POLICY)
        assert not await passes(guest, "src/a")
        await at.later(0)
    between_runs(root, statement, *values)
    write(root, BOTH)
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert not await passes(guest, "src/a")
        assert "its file took away" in (await at.people.notice("does not count")).text
        await at.accept(root)
        assert await passes(guest, "src/a")
    async with house(root.parent, clock) as at:
        assert await passes(await at.arrive(root), "src/a")


async def test_a_policy_that_was_narrowed_counts_after_a_restart_and_after_nobody_was_asked(
    clock: Clock, root: Path
) -> None:
    async with house(root.parent, clock) as at:
        write(root, BOTH)
        await at.accept(root)
        guest = await at.arrive(root)
        write(root, POLICY)
        assert not await passes(guest, "src/a")
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        assert (await passes(guest), await passes(guest, "src/a")) == (True, False)
    write(root, BOTH)
    async with house(root.parent, clock, TRUSTING) as at:
        assert await passes(await at.arrive(root), "src/a")
        await at.later(0)
        assert [each.kind for each in await at.app.service.audit(20)].count("policy_widened") == 1
    async with house(root.parent, clock) as at:
        assert await passes(await at.arrive(root), "src/a")
        assert not [notice for notice in at.people.notices if "does not count" in notice.text]


@pytest.mark.parametrize("state", ["accepted", "committed", "handed_over"])
async def test_a_restore_that_a_person_cancelled_is_not_carried_out(clock: Clock, root: Path, state: str) -> None:
    """Failed before: the signed "cancel" passed for "proceed", and later states were not looked at."""
    key = Key()
    async with keyed(root, clock, key) as at:
        taken = await take(at, await at.arrive(root))
        spoil(root)
        asked = await ask(at, taken)
        await say(at, key, asked.id, Decision.CANCEL)
    between_runs(root, f"update restore set state = '{state}' where id = ?", asked.id)
    async with keyed(root, clock, key) as at:
        refused = await ended(at, asked.id)
        assert refused.state is not RestoreState.DONE
        assert "contradicts itself" in (await at.people.notice("refused to restore")).text
        assert (root / "a.txt").read_text() == "spoiled\n"
        assert (root / "new.txt").exists()


async def test_a_restore_is_of_the_checkpoint_that_was_shown(clock: Clock, root: Path) -> None:
    """Failed before: two checkpoints of one label had one card, but for its session."""
    key = Key()
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        shown = await take(at, guest)
        (root / "sub/b.txt").write_text("of the agent\n")
        other = await take(at, guest)
        spoil(root)
        asked = await ask(at, shown)
        card = await at.app.service.card(asked.id)
        signed = key.verdict(card, Decision.PROCEED, at.now())
        sql(at, "update restore set checkpoint_id = ? where id = ?", other.checkpoint.id, asked.id)
        with pytest.raises(SignatureRefused, match="not what the request says now"):
            await at.app.service.decide(asked.id, signed)


async def test_a_restore_whose_card_sql_changed_before_it_was_signed_changes_no_file(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as at:
        taken = await take(at, await at.arrive(root))
        spoil(root)
        asked = await ask(at, taken)
        nothing = '{"modified": 0, "deleted": 0, "added": 0, "first": [], "remarks": []}'
        sql(at, "update restore set divergence = ? where id = ?", nothing, asked.id)
        assert "No file has changed since." in ((await at.app.service.card(asked.id)).body or "")
        await say(at, key, asked.id, Decision.PROCEED)
        anew = await at.people.card(lambda card: card.id != asked.id, kind=CardKind.RESTORE, state=CardState.PENDING)
        assert "1 modified, 1 deleted, 1 added" in (anew.body or "")
        assert (root / "a.txt").read_text() == "spoiled\n"
        assert (root / "new.txt").exists()


async def test_a_signed_restore_is_carried_out(clock: Clock, root: Path) -> None:
    key = Key()
    async with keyed(root, clock, key) as at:
        taken = await take(at, await at.arrive(root))
        spoil(root)
        asked = await ask(at, taken)
        await say(at, key, asked.id, Decision.PROCEED)
        done = await ended(at, asked.id)
        assert done.state is RestoreState.DONE, done.note
        assert (root / "a.txt").read_text() == "one\n"


async def test_entries_that_are_no_json_stop_neither_an_apply_nor_a_restore(clock: Clock, root: Path) -> None:
    """Failed before: one row that SQL put into the audit log, and the session fell over it at each."""
    key = Key()
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        taken = await take(at, guest)
        id = (await guest.propose("new.txt")).request_id
        await approve(at, key, id)
        entry = "insert into audit (at, kind, session_id, who, summary, data) values ('', ?, ?, 'x', 'x', 'no json')"
        for kind in ("applied", "permission_used", "restore"):
            sql(at, entry, kind, guest.session_id)
        await guest.ask(CheckDiff(id))
        assert (root / "new.txt").exists()
        asked = await ask(at, taken)
        await say(at, key, asked.id, Decision.PROCEED)
        assert (await ended(at, asked.id)).state is RestoreState.DONE
        assert not (root / "new.txt").exists()


@pytest.mark.parametrize("status", ["decided", "expired"])
async def test_an_answer_that_nobody_gave_says_so(clock: Clock, root: Path, status: str) -> None:
    """Failed before: "decided" by the timeout was told as a person's "continue"."""
    async with keyed(root, clock, Key()) as at:
        guest = await at.arrive(root)
        id = (await guest.ask(Transmit("go on?", PromptType.CONTINUATION))).request_id
        sql(
            at,
            f"update continuation_prompt set status = '{status}', decision = 'continue', verdict_id = 'x',"
            " verdict = 'continue', decided_by = 'kim', decided_via = 'timeout',"
            " decided_at = '2026-01-01T00:00:01.000000+00:00' where id = ?",
            id,
        )
        if status == "decided":
            with pytest.raises(SignatureRefused):
                await guest.ask(AwaitDecision(guest.call(), id))
        else:
            answered = await guest.ask(AwaitDecision(guest.call(), id))
            assert answered is not None
            assert answered.answer.timed_out


async def test_an_apply_that_is_stuck_is_given_up_by_a_signed_word_only(
    clock: Clock, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed before: any genuine signature let any process of the user give it up."""

    def meddle(point: str) -> None:
        if point == "journal.committed":
            (root / "new.txt").write_text("meddled\n")

    key = Key()
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        id = (await guest.propose("new.txt")).request_id
        await approve(at, key, id)
        monkeypatch.setattr(crash_points, "hook", meddle)
        with pytest.raises(ApplyStuck):
            await guest.ask(CheckDiff(id))
        card = await at.app.service.card(f"apply-{id}")
        used = (await at.app.service.card(id)).decided
        assert used is not None
        for signature in (None, used.signature):
            with pytest.raises(SignatureRefused):
                await at.app.service.decide(card.id, evolve(at.verdict(Decision.DISMISS), signature=signature))
        assert (await at.app.service.card(card.id)).state is CardState.PENDING
        await say(at, key, card.id, Decision.DISMISS)


LATER = "2027-01-01T00:00:00.000000+00:00"
UNUSE = "update approval_request set status = 'approved', consumed_at = null where id = ?"


@pytest.mark.parametrize("restarted", [False, True])
async def test_leave_that_was_used_is_not_used_again(clock: Clock, root: Path, restarted: bool) -> None:
    """Failed before: one "yes" to `make` let it run for ever."""
    key = Key()
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        asked = await ask_leave(guest, "make", "one")
        await approve(at, key, asked.request_id)
        assert (await ask_leave(guest, "make", "one")).answered.answer.status == "allowed"
        if not restarted:
            sql(at, UNUSE, asked.request_id)
            with pytest.raises(SignatureRefused, match="used before"):
                await ask_leave(guest, "make", "two")
    if restarted:
        between_runs(root, UNUSE, asked.request_id)
        async with keyed(root, clock, key) as at:
            guest = await at.arrive(root)
            with pytest.raises(SignatureRefused, match="used before"):
                await ask_leave(guest, "make", "two")


async def test_leave_that_was_used_long_ago_covers_nothing(clock: Clock, root: Path) -> None:
    """Failed before: with a later time in the row of its use, it covered one more hook."""
    key = Key()
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        asked = await ask_leave(guest, "make", "one")
        await approve(at, key, asked.request_id)
        assert (await ask_leave(guest, "make", "one")).answered.answer.status == "allowed"
        await at.later(2 * permissions.COVERED.total_seconds())
        sql(at, "update permission_use set used_at = ? where request_id = ?", LATER, asked.request_id)
        again = await ask_leave(guest, "make", "two")
        assert again.answered is None
        assert again.request_id != asked.request_id


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_change_that_was_applied_is_not_applied_again(clock: Clock, root: Path, forgotten: bool) -> None:
    """Failed before: what a person had put back was written again."""
    key = Key()
    async with keyed(root, clock, key) as at:
        guest = await at.arrive(root)
        id = (await guest.propose("new.txt")).request_id
        await approve(at, key, id)
        await guest.ask(CheckDiff(id))
        (root / "new.txt").unlink()
        sql(at, UNUSE, id)
        sql(at, "delete from apply_journal where request_id = ?", id)
        if forgotten:
            with contextlib.closing(sqlite3.connect(at.app.database)) as db:
                db.execute("delete from audit where kind = 'applied'")
                db.commit()
        with pytest.raises(SignatureRefused, match="used before"):
            await guest.ask(CheckDiff(id))
        assert not (root / "new.txt").exists()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("update approval_request set session_id = 'other'", "may be half written"),
        ("delete from approval_request", "may be half written"),
        ("update apply_journal set steps = 'no json'", "cannot be read"),
    ],
    ids=["moved", "deleted", "unreadable"],
)
async def test_an_apply_that_sql_spoiled_is_told_of_once_and_its_session_goes_on(
    clock: Clock, root: Path, statement: str, said: str
) -> None:
    """Failed before: the session could not start any more."""
    async with house(root.parent, clock) as at:
        guest = await at.arrive(root)
        id = (await guest.propose("new.txt")).request_id
        await at.decide(id, Decision.APPROVE)
        await guest.ask(CheckDiff(id))
        sql(at, UNUSE, id)
    (root / "new.txt").unlink()
    between_runs(root, "update apply_journal set state = 'committed'")
    between_runs(root, statement)
    for is_told in (True, False):
        async with house(root.parent, clock) as at:
            guest = await at.arrive(root)
            await guest.settled()
            told = [each.text for each in at.people.notices] + [card.body or "" for card in at.people.cards]
            assert any(said in text for text in told) == is_told
            assert not (root / "new.txt").exists()


@pytest.mark.parametrize("has_key", [False, True])
def test_what_was_used_is_kept_in_mind_only_where_there_are_keys(tmp_path: Path, has_key: bool) -> None:
    """A server without one must not grow with every change that it applies."""
    signatures = without_keys() if not has_key else Signatures(Keyring(without_keys().keyring.places, Config()))
    at = datetime.now(UTC)
    for number in range(1000):
        signatures.note_use(f"r{number}", at)
    with contextlib.closing(open_database(tmp_path / "a.db").db.conn) as connection:
        kept = [signatures.first_use(Database(connection), "s", f"r{number}") for number in range(1000)]
    assert kept == [at if has_key else None] * 1000
