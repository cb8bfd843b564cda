"""The board of watch: what is before the person, and what a key means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.cli.inbox.board import KEYS, Board, request_of
from intercom.model.card import ANSWERED, Card, CardKind, CardState
from intercom.model.request import ChangeKind, FileChange, Remark, RiskLevel
from intercom.operators.commands.command_table import COMMANDS
from tests.operators import stand_in_service


def card(name: str, kind: str = "approval", state: str = "pending", **more: Any) -> Card:
    fields = {"title": "", "state": CardState(state), "risk": None, "files": (), "diff": None, **more}
    return stand_in_service.card(name, CardKind(kind), **fields)


def change(path: str, after: str = "") -> FileChange:
    return FileChange(path, ChangeKind.WRITE, "before", after)


def test_nothing_is_selected_until_the_person_selects() -> None:
    board = Board()
    board.take(card("a"))
    board.take(card("b"))
    assert board.selected is None
    assert board.key("a") is None
    board.next()
    assert board.selected == card("a")


def test_a_card_that_comes_leaves_the_selection() -> None:
    board = Board()
    board.take(card("a"))
    board.next()
    assert board.take(card("b")) is False
    assert board.take(card("b", state="expired")) is False
    assert board.selected == card("a")


def test_when_the_selected_card_closes_nothing_is_selected() -> None:
    board = Board()
    board.take(card("a"))
    board.take(card("b"))
    board.next()
    assert board.take(card("a", state="approved")) is True
    assert board.selected is None
    assert board.key("a") is None
    board.next()
    assert board.selected == card("b")


def test_a_selected_card_that_says_something_else_is_another_question_and_was_not_seen() -> None:
    board = Board()
    board.take(card("a", diff="+1\n"))
    board.next()
    board.saw(card("a", diff="+1\n"), range(1))
    assert board.take(card("a", diff="+1\n", away=True)) is False
    assert board.not_seen(card("a", diff="+1\n")) == ""
    assert board.take(card("a", diff="+1\n", proposal_hash="other")) is True
    other = card("a", diff="+2\n", files=(change("x", "other"),))
    assert board.take(other) is True
    assert board.not_seen(other) == "1 of 1 lines not seen"


def test_next_goes_round() -> None:
    board = Board()
    assert board.next() is False
    board.take(card("a"))
    assert board.next() is True
    assert board.next() is False
    board.take(card("b"))
    assert [board.next() and board.selected and board.selected.id for _ in range(3)] == ["b", "a", "b"]


LONG = "".join(f"+{number}\n" for number in range(755))


@pytest.mark.parametrize(
    ("kind", "key", "more", "seen", "question"),
    [
        ("approval", "a", {"risk": RiskLevel.LOW, "diff": "+1\n"}, 1, None),
        ("approval", "a", {"risk": RiskLevel.HIGH, "diff": "+1\n"}, 1, "approve x 'do it' (high)? type y "),
        (
            "approval",
            "a",
            {"risk": RiskLevel.CRITICAL, "diff": LONG},
            60,
            "approve x 'do it' (critical, 695 of 755 lines not seen)? type y ",
        ),
        (
            "approval",
            "a",
            {"risk": RiskLevel.LOW, "diff": LONG},
            60,
            "approve x 'do it' (low, 695 of 755 lines not seen)? type y ",
        ),
        ("approval", "a", {"risk": RiskLevel.LOW, "diff": LONG}, 755, None),
        (
            "approval",
            "a",
            {"risk": RiskLevel.LOW, "diff": None, "diff_omitted": True},
            0,
            "approve x 'do it' (low, diff not seen)? type y ",
        ),
        (
            "approval",
            "a",
            {"risk": RiskLevel.LOW, "diff": "+1\n", "remarks": (Remark(None, "binary"),)},
            1,
            "approve x 'do it' (low, 1 remark on the diff)? type y ",
        ),
        (
            "approval",
            "a",
            {"risk": RiskLevel.LOW, "diff": "+1\n", "diff_from_agent": True},
            1,
            "approve x 'do it' (low, the diff is the agent's own text)? type y ",
        ),
        ("approval", "r", {"risk": RiskLevel.CRITICAL, "diff": LONG}, 0, None),
        ("policy", "a", {}, 0, "accept x 'do it'? type y "),
        ("restore", "p", {}, 0, "proceed x 'do it'? type y "),
        ("restore", "c", {}, 0, None),
        ("apply", "d", {}, 0, "dismiss x 'do it'? type y "),
        ("stall", "d", {}, 0, None),
        ("prompt", "c", {}, 0, None),
    ],
)
def test_what_weighs_much_or_was_not_seen_whole_is_asked_once_more_by_name(
    kind: str, key: str, more: dict[str, Any], seen: int, question: str | None
) -> None:
    board = Board()
    shown = card("x", kind, title="do it", **more)
    board.take(shown)
    board.next()
    if seen:
        board.saw(shown, range(seen))
    act = board.key(key)
    assert act is not None
    assert board.question(act) == question


@pytest.mark.parametrize(
    ("kind", "key", "text", "verb", "fields"),
    [
        ("approval", "a", None, "approve", {"id": "x"}),
        ("approval", "r", "no", "reject", {"id": "x", "reason": "no"}),
        ("approval", "r", "", "reject", {"id": "x"}),
        ("prompt", "c", None, "answer", {"id": "x", "decision": "continue"}),
        ("prompt", "f", "so", "answer", {"id": "x", "decision": "refine", "text": "so"}),
        ("prompt", "s", None, "answer", {"id": "x", "decision": "stop"}),
        ("standby", "c", None, "answer", {"id": "x", "decision": "continue"}),
        ("standby", "f", "do", "answer", {"id": "x", "decision": "refine", "text": "do"}),
        ("stall", "g", "hey", "nudge", {"id": "x", "text": "hey"}),
        ("stall", "s", None, "answer", {"id": "x", "decision": "stop"}),
        ("stall", "d", None, "answer", {"id": "x", "decision": "dismiss"}),
        ("apply", "d", None, "answer", {"id": "x", "decision": "dismiss"}),
        ("policy", "a", None, "policy-accept", {"id": "x"}),
        ("policy", "r", "no", "reject", {"id": "x", "reason": "no"}),
    ],
)
def test_a_key_stands_for_a_request(kind: str, key: str, text: str | None, verb: str, fields: dict[str, str]) -> None:
    board = Board()
    board.take(card("x", kind))
    board.next()
    act = board.key(key)
    assert act is not None
    assert request_of(act, text) == (verb, fields)
    assert verb in COMMANDS


@pytest.mark.parametrize("kind", ANSWERED)
def test_a_key_of_a_card_has_one_meaning(kind: CardKind) -> None:
    keys = [row.key for row in KEYS[kind.value]]
    assert len(set(keys) | {"v", "n", "q"}) == len(keys) + 3


def test_a_key_means_nothing_where_nothing_waits() -> None:
    assert Board().key("a") is None
    quit_ = Board().key("q")
    assert quit_ is not None
    assert quit_.word == "quit"


def test_the_prompt_names_the_selected_card_and_its_keys() -> None:
    board = Board()
    assert board.prompt() == "nothing waits; [q]uit "
    board.take(card("a", title="add\na file", risk=RiskLevel.LOW, files=(change("x.py"),), diff="+1\n"))
    assert board.prompt() == "1 waiting, none selected; [n]ext [q]uit "
    board.next()
    assert board.prompt() == (
        "approval a 'add a file' (low, x.py, 1 of 1 lines not seen)\n[a]pprove [r]eject [v]iew whole [q]uit "
    )
    board.take(card("b", "stall", title="Quiet"))
    board.next()
    assert board.prompt() == "stall b 'Quiet'\n2 waiting; nud[g]e [s]top [d]ismiss [v]iew whole [n]ext [q]uit "


def test_many_files_are_counted_and_a_long_title_is_cut() -> None:
    files = tuple(change(f"{number}.py") for number in range(4))
    board = Board()
    board.take(card("a", title="t" * 100, files=files))
    board.next()
    assert board.prompt().startswith(f"approval a '{'t' * 57}...' (0.py, and 3 more files)\n")


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["pending", "approved"])) | st.just(None)))
def test_the_selection_moves_by_the_person_alone(acts: list[tuple[str, str] | None]) -> None:
    board = Board()
    waiting: dict[str, None] = {}
    selected: str | None = None
    for act in acts:
        if act is None:
            board.next()
            selected = getattr(board.selected, "id", None)
            assert selected in (waiting or {None})
            continue
        name, state = act
        board.take(card(name, state=state))
        if state == "pending":
            waiting[name] = None
        else:
            waiting.pop(name, None)
            selected = None if name == selected else selected
        assert board.waiting == len(waiting)
        assert getattr(board.selected, "id", None) == selected
