"""The board of watch: what is before the person, and what a key means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.cli.ctl_board import KEYS, Board, request_of
from intercom.model.card import ANSWERED, CHOICES, CardKind
from intercom.operators.ctl.verbs import VERBS


def card(name: str, kind: str = "approval", status: str = "pending") -> dict[str, Any]:
    return {"request_id": name, "kind": kind, "status": status}


def test_the_oldest_card_is_before_the_person_until_it_ends() -> None:
    board = Board()
    assert board.current is None
    assert board.take(card("a")) is True
    assert board.take(card("b")) is False
    assert board.take(card("a")) is False
    assert board.take(card("b", status="expired")) is False
    assert board.take(card("c")) is False
    assert board.take(card("a", status="approved")) is True
    assert board.current == card("c")
    assert board.take(card("c", status="rejected")) is True
    assert board.current is None


def test_next_goes_round() -> None:
    board = Board()
    assert board.next() is False
    board.take(card("a"))
    assert board.next() is False
    board.take(card("b"))
    assert [board.next() and board.current and board.current["request_id"] for _ in range(3)] == ["b", "a", "b"]


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
        ("stall", "u", "hey", "nudge", {"id": "x", "text": "hey"}),
        ("stall", "s", None, "answer", {"id": "x", "decision": "stop"}),
        ("stall", "d", None, "answer", {"id": "x", "decision": "dismiss"}),
        ("policy", "a", None, "policy-accept", {"id": "x"}),
        ("policy", "r", "no", "reject", {"id": "x", "reason": "no"}),
    ],
)
def test_a_key_stands_for_a_request(kind: str, key: str, text: str | None, verb: str, fields: dict[str, str]) -> None:
    board = Board()
    board.take(card("x", kind))
    act = board.key(key)
    assert act is not None
    assert request_of(act, text) == (verb, fields)
    assert verb in VERBS


@pytest.mark.parametrize("kind", [kind for kind in ANSWERED if kind is not CardKind.APPLY])
def test_every_choice_of_a_card_has_a_key(kind: CardKind) -> None:
    words = {word for _, word, _ in KEYS[kind.value]}
    # A standby is resumed, with words or without.
    wanted = {"continue", "refine", "stop"} if kind is CardKind.STANDBY else {choice.value for choice in CHOICES[kind]}
    assert words == wanted
    keys = [key for key, _, _ in KEYS[kind.value]]
    assert len(set(keys) | {"v", "n", "q"}) == len(keys) + 3


def test_a_key_means_nothing_where_nothing_waits() -> None:
    assert Board().key("a") is None
    quit_ = Board().key("q")
    assert quit_ is not None
    assert quit_.word == "quit"


def test_the_prompt_says_which_keys_there_are() -> None:
    board = Board()
    assert board.prompt() == "nothing waits; [q]uit "
    board.take(card("a"))
    assert board.prompt() == "[a]pprove [r]eject [v]iew whole [q]uit "
    board.take(card("b", "stall"))
    board.next()
    assert board.prompt() == "2 waiting; n[u]dge [s]top [d]ismiss [v]iew whole [n]ext [q]uit "


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["pending", "approved"])) | st.just(None)))
def test_whoever_is_before_the_person_waits(acts: list[tuple[str, str] | None]) -> None:
    board = Board()
    waiting: dict[str, None] = {}
    for act in acts:
        if act is None:
            board.next()
            continue
        name, status = act
        board.take(card(name, status=status))
        if status == "pending":
            waiting[name] = None
        else:
            waiting.pop(name, None)
        assert board.waiting == len(waiting)
        assert (board.current or {}).get("request_id") in (waiting or {None})
