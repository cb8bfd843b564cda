"""Whatever is done to a request in whatever order, it moves only as the model's tables say, and its verdict stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.model.request import APPROVAL_TRANSITIONS, WAIT_TRANSITIONS, ApprovalStatus, WaitStatus
from intercom.store.apply_journal import JournalState, journal
from intercom.store.database import Database
from intercom.store.requests import approvals, prompts, waits

from . import cases
from .cases import after, verdict

seconds = st.integers(0, 100)
number = st.integers(0, 2)

Act = Callable[[Database, Any, tuple[str, ...]], object]


def decide(status: Any, word: int, id: int, at: int) -> Act:
    return lambda db, module, words: module.decide(db, "r1", status, verdict(f"v{id}", words[word], after(at)))


def reopen(id: int, at: int) -> Act:
    return lambda db, module, words: module.reopen(db, "r1", f"v{id}", after(at))


def acts(statuses: list[Any]) -> st.SearchStrategy[Act]:
    return st.one_of(
        st.builds(decide, st.sampled_from(statuses), st.integers(0, 1), number, seconds),
        st.builds(lambda at: lambda db, module, words: module.expire(db, "r1", after(at)), seconds),
        st.builds(lambda at: lambda db, module, words: module.mark_delivered(db, "r1", after(at)), seconds),
        st.builds(lambda at: lambda db, module, words: module.interrupt(db, "s1", after(at)), seconds),
        st.builds(reopen, number, seconds),
    )


def of_approvals() -> st.SearchStrategy[Act]:
    states = st.sampled_from(JournalState)
    return st.one_of(
        acts([ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED]),
        st.builds(lambda at: lambda db, module, words: module.consume(db, "r1", after(at)), seconds),
        st.builds(
            lambda before, at: lambda db, module, words: module.lapse(db, after(before), after(at)), seconds, seconds
        ),
        st.builds(lambda state: lambda db, module, words: journal.begin(db, cases.entry("r1", state=state)), states),
    )


OF_WAITS = acts([WaitStatus.DECIDED, WaitStatus.EXPIRED])


@pytest.mark.parametrize(
    ("module", "make", "table", "strategy", "words"),
    [
        (approvals, cases.approval, APPROVAL_TRANSITIONS, of_approvals(), ("approve", "reject")),
        (prompts, cases.prompt, WAIT_TRANSITIONS, OF_WAITS, ("continue", "stop")),
        (waits, cases.wait, WAIT_TRANSITIONS, OF_WAITS, ("resume", "stop")),
    ],
    ids=["approval", "prompt", "wait"],
)
def test_a_request_moves_only_along_the_table(
    module: Any, make: Any, table: Any, strategy: st.SearchStrategy[Act], words: tuple[str, ...]
) -> None:
    seen = set()
    with cases.database() as db:

        @settings(max_examples=150, deadline=None)
        @given(st.lists(strategy, max_size=8), st.none() | seconds)
        def check(sequence: list[Act], deadline: int | None) -> None:
            db.execute("begin")
            module.insert(db, make("r1", expires_at=None if deadline is None else after(deadline)))
            before = asked = module.get(db, "r1")
            for act in sequence:
                act(db, module, words)
                now = module.get(db, "r1")
                if now.status != before.status:
                    assert now.status in table[before.status]
                    seen.add((before.status, now.status))
                if now.status == "pending":
                    # Also if a decision was taken back: before its answer was delivered, and not while it is applied.
                    assert now == asked
                    assert before.delivered_at is None
                elif before.decided is not None:
                    assert now.decided == before.decided
                if before.delivered_at is not None:
                    assert now.delivered_at == before.delivered_at
                if now.status == "pending":
                    assert (now.decided, now.delivered_at) == (None, None)
                before = now
            db.rollback()

        check()
    assert seen
