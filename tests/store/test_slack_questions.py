"""What the next reply in a thread answers."""

from __future__ import annotations

from intercom.store import retention, slack_questions
from intercom.store.slack_questions import Question

from . import cases
from .cases import NOW, after

FIRST = Question("C1", "1.5", "card 1", "reject", "U1", NOW)


def test_a_question_is_answered_once() -> None:
    with cases.database() as db:
        slack_questions.ask(db, FIRST)
        assert slack_questions.peek(db, "C1", "1.5") == FIRST
        assert slack_questions.peek(db, "C1", "1.6") is None
        assert slack_questions.forget(db, "C1", "1.5")
        assert slack_questions.peek(db, "C1", "1.5") is None


def test_of_two_questions_in_a_thread_the_later_is_open() -> None:
    with cases.database() as db:
        slack_questions.ask(db, FIRST)
        second = Question("C1", "1.5", "card 2", "refine", "U2", after(1))
        slack_questions.ask(db, second)
        assert slack_questions.peek(db, "C1", "1.5") == second


def test_a_question_can_be_forgotten_and_is_not_kept_for_ever() -> None:
    with cases.database() as db:
        slack_questions.ask(db, FIRST)
        assert slack_questions.forget(db, "C1", "1.5")
        assert not slack_questions.forget(db, "C1", "1.5")
        slack_questions.ask(db, FIRST)
        assert retention.purge(db, after(1), after(1))["slack_question"] == 1
