"""The rules of the inbox: selection, filter, marks, what was on the screen, questions, and decisions not sent yet."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from intercom.cli.inbox.board import (
    INBOX_KEYS,
    KEYS,
    REACTION,
    SESSION_KEYS,
    UNDO,
    Act,
    Board,
    Stage,
    keys_of,
    needs_terminal,
    request_of,
)
from intercom.cli.inbox.feed import Link
from intercom.cli.inbox.pages import View, no_use, nothing_lines, session_lines, session_row, tabs_line
from intercom.cli.inbox.panes import WARNED, Said
from intercom.model.card import ANSWERED, Card, CardKind, CardState
from intercom.model.grant import Grant, GrantEntry, GrantKind, GrantLine, GrantScope
from intercom.model.request import ChangeKind, FileChange, RiskLevel
from intercom.operators.commands.command_table import COMMANDS
from tests.operators import stand_in_service
from tests.operators.stand_in_service import START, session

LOW: dict[str, Any] = {"risk": RiskLevel.LOW}


def card(name: str, kind: CardKind = CardKind.APPROVAL, **more: Any) -> Card:
    fields = {"title": f"change {name}", "diff": None, "files": (), **more}
    return stand_in_service.card(name, kind, **fields)


def board_of(*cards: Card, selected: int | None = 0) -> Board:
    """A board with these cards, one of which is selected and on the screen."""
    board = Board()
    for each in cards:
        board.take(each)
    if selected is not None:
        board.select(cards[selected].id)
    board.drawn(board.version, 0.0)
    return board


def decide(board: Board, key: str, now: float = 1.0) -> str:
    return board.begin(board.acts(key), now)


@pytest.mark.parametrize("kind", ANSWERED)
def test_a_key_has_one_meaning_on_a_card(kind: CardKind) -> None:
    always = [row.key for row in INBOX_KEYS if not row.kinds or kind in row.kinds]
    keys = [*always, *(row.key for row in keys_of(card("a", kind, amendable=kind is CardKind.APPROVAL)))]
    assert len(set(keys)) == len(keys)
    assert len({*always, *(row.key for row in SESSION_KEYS)}) == len(always) + len(SESSION_KEYS)


def test_every_kind_that_people_answer_has_keys() -> None:
    assert set(KEYS) == {kind.value for kind in ANSWERED}


@pytest.mark.parametrize("row", SESSION_KEYS)
def test_a_key_on_a_session_is_a_command_about_it(row: Any) -> None:
    verb, fields = request_of(Act(row.word, None, row.wants, session("s-1")), "do" if row.wants else None)
    assert verb == row.word
    assert fields == {"id": "s-1", **({"text": "do"} if row.wants else {})}
    assert COMMANDS[verb].takes_session


def test_a_key_that_does_nothing_says_which_do_something() -> None:
    board = board_of(card("one", CardKind.STANDBY), selected=None)
    assert no_use("a", board) == "nothing is selected: ↓ selects a card, then a key answers it"
    board.select("one")
    assert no_use("a", board) == "a does nothing on this standby card; its keys: c continue, f refine, s stop"


def test_a_sessions_page_shows_its_grants() -> None:
    scope = GrantScope(GrantKind.CHANGE, None, ("docs/*",), RiskLevel.LOW)
    mine = session("s-1")
    granted = Grant("g-1", mine.id, scope, 600, 5, mine.created_at, "kim", "ctl", "r-1", "Add a page")
    lines = [GrantLine(granted, 2, is_away=True), GrantLine(evolve(granted, session_id="s-2"), 0)]
    shown = [each.plain for each in session_lines(mine, (), mine.created_at, map(GrantEntry.of, lines))]
    at = shown.index("permitted in advance (agent-intercom-ctl revoke ID ends it)")
    until = f"{granted.until:%H:%M:%S}"
    assert shown[at + 1 :] == [
        "agent-intercom-ctl grants lists them all",
        '  g-1 proposed changes of "docs/*", up to risk low'
        f" (in force, its agent is away; 2 of 5 used, until {until} UTC)",
    ]


def test_a_sessions_row_shows_its_agent_and_its_grants_in_the_list_of_110_columns() -> None:
    mine = session("s-1", client_name="codex-mcp-client", workspace_root="/home/me/a-project-with-a-long-name")
    row = session_row(mine, 1, 44, grants=1, is_selected=False).plain
    assert " Codex · a" in row
    assert row.endswith(" 1 grant")
    assert len(row) == 44


def test_without_a_server_the_inbox_says_so_once_and_what_starts_one() -> None:
    (said,) = nothing_lines(0, Link.NONE_YET)
    assert "an agent that uses Intercom starts one" in said.plain
    assert Link.NONE_YET.value in tabs_line(Board(), View.INBOX, Link.NONE_YET).plain
    assert Link.NONE_YET.value not in said.plain


def test_a_warning_stays_for_some_seconds_of_keys_and_a_report_until_the_next() -> None:
    at = [0.0]
    said = Said(lambda: at[0])
    said.say("done", "green", is_warning=False)
    said.typed()
    assert not said.text.plain
    said.say("refused", "yellow", is_warning=True)
    # Nobody is there.
    at[0] += 1000.0
    said.typed()
    at[0] += WARNED - 1
    said.typed()
    assert said.text.plain == "refused"
    at[0] += 1
    said.typed()
    assert not said.text.plain


def test_moving_goes_to_the_neighbour_and_stops_at_the_ends() -> None:
    board = board_of(card("a"), card("b"), card("c"), selected=None)
    chosen = [(board.move(by), board.selected and board.selected.id) for by in (1, 1, 5, 1, -1, -9)]
    assert chosen == [(True, "a"), (True, "b"), (True, "c"), (False, "c"), (True, "b"), (True, "a")]


def test_after_the_selected_card_closes_the_next_key_goes_to_its_neighbour() -> None:
    board = board_of(card("a"), card("b"), card("c"), selected=1)
    assert board.take(card("b", state=CardState.APPROVED)) is True
    assert board.selected is None
    board.move(1)
    assert board.selected == card("c")


def test_a_filter_lists_what_contains_each_word_and_deselects_what_it_hides() -> None:
    board = board_of(card("a", title="Drop the table"), card("b", CardKind.PROMPT, title="Which table?"))
    board.filter("TABLE prompt")
    assert [each.id for each in board.listed] == ["b"]
    assert board.selected is None
    board.filter("")
    assert [each.id for each in board.listed] == ["a", "b"]


def test_a_key_counts_only_if_it_was_typed_after_the_card_was_on_the_screen() -> None:
    board = Board()
    board.take(card("a"))
    board.move(1)
    assert not board.counts(5.0)
    board.drawn(board.version - 1, 4.0)
    assert not board.counts(5.0)
    board.drawn(board.version, 6.0)
    assert not board.counts(5.9)
    assert not board.counts(6.0)
    assert board.counts(6.1)


def test_after_a_change_by_the_server_a_key_counts_only_when_one_can_have_read_it() -> None:
    board = board_of(card("a"))
    board.take(card("a", title="another"))
    board.drawn(board.version, 10.0)
    assert not board.counts(10.0 + REACTION)
    assert board.counts(10.1 + REACTION)


def test_a_card_that_comes_leaves_what_a_key_means_and_when_it_counts() -> None:
    board = board_of(card("a"))
    version = board.version
    board.take(card("b"))
    board.take(card("b", state=CardState.EXPIRED))
    assert board.version == version
    assert board.counts(0.1)


def test_a_light_decision_is_sent_after_the_time_to_undo_it() -> None:
    board = board_of(card("a", **LOW))
    assert decide(board, "a") == ""
    assert board.due(1.0 + UNDO - 0.1) == ()
    assert [(waits.act.word, waits.act.card) for waits in board.due(1.0 + UNDO)] == [("approve", card("a", **LOW))]
    assert board.deciding == ()


def test_undo_takes_back_what_was_decided_last() -> None:
    board = board_of(card("a", **LOW), card("b", **LOW))
    decide(board, "a")
    board.move(1)
    decide(board, "r", 2.0)
    assert board.asked is not None
    assert board.asked.stage is Stage.TEXT
    board.give_text(" no ", 2.0)
    assert board.undo(1.0) == "undone: reject b 'change b' (low)"
    assert [waits.act.word for waits in board.due(9.0)] == ["approve"]
    assert board.undo(1.0) == "nothing to undo: what was decided last cannot be taken back"


def test_undo_takes_back_by_a_command_what_was_sent_last() -> None:
    board = board_of(card("a", **LOW), card("b", **LOW))
    decide(board, "a")
    [sent] = board.due(9.0)
    board.sent([sent.act._replace(decision_id="v-1")])
    assert board.undo(9.0) == "taking back: approve a 'change a' (low)"
    # What the server says of the decision does not stop it: the server knows whether it is too late.
    board.take(card("a", state=CardState.APPROVED, **LOW))
    [back] = board.due(9.0)
    assert request_of(back.act, back.text) == ("take-back", {"id": "a", "decision_id": "v-1"})
    board.sent([back.act])
    assert board.undo(9.0) == "nothing to undo: what was decided last cannot be taken back"
    board.take(card("a", **LOW))
    assert board.is_open("a")


def test_a_card_that_is_open_again_has_its_old_place() -> None:
    first, second = card("a"), card("b", created_at=START + timedelta(seconds=1))
    board = board_of(first, second, selected=1)
    board.take(card("a", state=CardState.APPROVED))
    board.take(first)
    assert ([each.id for each in board.listed], board.selected) == (["a", "b"], second)


@pytest.mark.parametrize(
    "act",
    [
        Act("dismiss", card("s", CardKind.STALL)),
        Act("accept", card("p", CardKind.POLICY)),
        Act("grant", card("g")),
        Act("pause", None, session=session("s-1")),
    ],
)
def test_an_older_decision_is_not_taken_back_for_one_that_cannot_be(act: Act) -> None:
    board = board_of(card("a", **LOW))
    board.sent([Act("approve", card("a", **LOW))])
    board.sent([act])
    assert board.undo(1.0).startswith("nothing to undo")
    assert board.due(9.0) == ()


def test_a_card_that_is_decided_takes_no_second_decision_before_it_is_sent() -> None:
    board = board_of(card("a", **LOW))
    decide(board, "a")
    assert board.acts("r") == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"title": "another"}, "because the card has changed"),
        ({"state": CardState.REJECTED}, "because the card has closed"),
        (None, "because the server went away"),
    ],
)
def test_a_decision_whose_card_changes_before_it_is_sent_is_dropped(change: dict[str, Any] | None, says: str) -> None:
    board = board_of(card("a", **LOW))
    decide(board, "a")
    if change is None:
        board.restart()
    else:
        board.take(evolve(card("a", **LOW), **change))
    assert board.due(float("inf")) == ()
    assert board.told() == [f"not sent: approve a 'change a' (low), {says}"]
    assert board.told() == []


def test_a_question_about_a_card_that_changes_is_withdrawn() -> None:
    board = board_of(card("a"))
    decide(board, "a")
    assert board.asked is not None
    board.take(card("a", title="another"))
    assert board.asked is None
    assert board.agree(2.0) == ""
    assert board.due(float("inf")) == ()
    assert board.told() == ["approve left undone, because the card has changed"]


def test_a_proposal_is_amended_at_once_and_only_alone() -> None:
    board = board_of(card("a", amendable=True, **LOW), card("b", **LOW))
    decide(board, "h")
    assert board.asked is not None
    assert board.asked.sentence == "approve only which hunks of a 'change a' (low), by number, as in 1,3-5?"
    board.give_text("1,3", 1.0)
    (waits,) = board.due(1.0)
    assert (waits.act.word, waits.text) == ("hunks", "1,3")
    assert needs_terminal(waits.act)
    assert [row.word for row in keys_of(card("b"))] == ["approve", "reject", "approve", "grant"]
    assert [row.word for row in keys_of(card("c", CardKind.PROMPT))] == [row.word for row in KEYS["prompt"]]
    board.mark()
    assert board.acts("e") == ()
    board.select("b")
    board.unmark()
    assert board.acts("e") == ()


@pytest.mark.parametrize(("hunks", "offered"), [(1, False), (2, True)])
def test_hunks_are_offered_if_there_are_several(hunks: int, offered: bool) -> None:
    change = FileChange("a.txt", ChangeKind.WRITE, "aa" * 32, "bb" * 32)
    diff = "diff --git a/a.txt b/a.txt\n" + "".join(f"@@ -{n}0 +{n}0 @@\n-old\n+new\n" for n in range(1, hunks + 1))
    keys = keys_of(card("a", amendable=True, diff=diff, files=(change,), **LOW))
    assert ("hunks" in [row.word for row in keys]) is offered
    assert {"edit", "changes"} < {row.word for row in keys}


def test_an_approval_is_given_with_a_note() -> None:
    board = board_of(card("a", **LOW))
    decide(board, "n")
    assert board.asked is not None
    assert board.asked.sentence == "approve a 'change a' (low), with what text?"
    board.give_text("but keep the name", 1.0)
    (waits,) = board.due(1.0 + UNDO)
    assert request_of(waits.act, waits.text) == ("approve", {"id": "a", "text": "but keep the name"})
    assert {row.key for row in keys_of(card("b"))} - {row.key for row in keys_of(card("c", CardKind.TOOLS))} == {
        "n",
        "p",
    }


def test_a_text_that_must_be_there_and_is_not_leaves_all_undone() -> None:
    board = board_of(card("a", CardKind.PROMPT))
    decide(board, "f")
    assert board.give_text("  ", 1.0) == "refine left undone: a 'change a'"
    assert board.due(float("inf")) == ()


def test_several_are_decided_after_a_question_that_says_what_happens() -> None:
    board = board_of(card("a", **LOW), card("b"), card("p", CardKind.PROMPT), selected=None)
    for _ in range(3):
        board.move(1)
        board.mark()
    assert decide(board, "a") == ""
    assert board.asked is not None
    assert board.asked.sentence == "approve these 2 cards? type y"
    assert board.due(float("inf")) == ()
    board.agree(2.0)
    assert [waits.act.card and waits.act.card.id for waits in board.due(float("inf"))] == ["a", "b"]
    assert [each.id for each in board.marked] == ["p"]


def test_one_marked_card_is_named_first_too_because_it_need_not_be_on_the_screen() -> None:
    board = board_of(card("a", **LOW), card("b", **LOW))
    board.mark()
    board.move(1)
    decide(board, "a")
    assert board.asked is not None
    assert board.asked.is_batch
    assert board.asked.sentence == "approve this card? type y"
    board.agree(2.0)
    assert [waits.act.card and waits.act.card.id for waits in board.due(float("inf"))] == ["a"]


def test_a_marked_card_that_changes_is_not_marked_any_more() -> None:
    board = board_of(card("a"))
    board.mark()
    board.take(card("a", title="another"))
    assert board.marked == ()


def test_lines_in_between_that_were_never_on_the_screen_are_not_seen() -> None:
    shown = card("a", **LOW, diff="+1\n+2\n+3\n")
    board = board_of(shown)
    board.saw(shown, range(3), 10)
    board.saw(shown, range(8, 10), 10)
    assert board.not_seen(shown) == "5 of 10 lines not seen"
    decide(board, "a")
    assert board.asked is not None
    assert board.asked.sentence == "approve a 'change a' (low, 5 of 10 lines not seen)? type y"
    board.cancel()
    board.saw(shown, range(3, 8), 10)
    assert board.not_seen(shown) == ""


def test_lines_that_get_other_numbers_have_to_be_seen_again() -> None:
    shown = card("a", **LOW, diff="+1\n+2\n")
    board = board_of(shown)
    board.saw(shown, range(6), 6)
    assert board.not_seen(shown) == ""
    board.saw(shown, range(4), 5)
    assert board.not_seen(shown) == "1 of 5 lines not seen"


def test_a_diff_that_was_fetched_stays_when_a_listing_sends_the_card_without_it() -> None:
    board = board_of(card("a", diff="+1\n"))
    board.take(card("a", diff_omitted=True))
    assert board.selected is not None
    assert board.selected.diff == "+1\n"


@given(st.floats(0, 10), st.floats(0, 10))
def test_a_key_from_before_the_drawing_never_counts(drawn: float, typed: float) -> None:
    board = Board()
    board.take(card("a"))
    board.move(1)
    board.drawn(board.version, drawn)
    assert board.counts(typed) == (typed > drawn)


NAMES = st.sampled_from("abcd")


class Inbox(RuleBasedStateMachine):
    """A person and a server act on a board in any order. What is sent is compared with a plain account."""

    @initialize()
    def begin(self) -> None:
        self.board = Board()
        self.now = 0.0
        self.open: dict[str, Card] = {}
        self.selected: str | None = None
        #: Of each card: the content for which the person pressed a key last.
        self.meant: dict[str, Card] = {}

    @rule(name=NAMES, title=st.sampled_from(["one", "two"]), risk=st.sampled_from([RiskLevel.LOW, RiskLevel.HIGH]))
    def server_sends(self, name: str, title: str, risk: RiskLevel) -> None:
        sent = card(name, title=title, risk=risk)
        self.board.take(sent)
        self.open[name] = sent

    @rule(name=NAMES)
    def server_closes(self, name: str) -> None:
        self.board.take(card(name, state=CardState.EXPIRED))
        self.open.pop(name, None)
        self.selected = None if name == self.selected else self.selected

    @rule()
    def server_goes(self) -> None:
        self.board.restart()
        self.open.clear()
        self.selected = None

    @rule(by=st.sampled_from([-1, 1]))
    def person_moves(self, by: int) -> None:
        if self.board.asked is None:
            self.board.move(by)
            self.selected = self.board.selected.id if self.board.selected else None

    @rule()
    def person_marks(self) -> None:
        if self.board.asked is None:
            self.board.mark()

    @rule(words=st.sampled_from(["", "one", "two", "none"]))
    def person_filters(self, words: str) -> None:
        if self.board.asked is None:
            self.board.filter(words)
            self.selected = self.board.selected.id if self.board.selected else None

    @rule()
    def screen_is_drawn(self) -> None:
        self.now += 1.0
        self.board.drawn(self.board.version, self.now)
        self.now += 1.0

    @rule(key=st.sampled_from(["a", "r"]))
    def person_decides(self, key: str) -> None:
        if self.board.asked is None and self.board.counts(self.now):
            acts = self.board.acts(key)
            for act in acts:
                assert act.card is not None
                assert act.card.id == self.selected or self.board.is_marked(act.card)
                self.meant[act.card.id] = act.card
            self.board.begin(acts, self.now)

    @rule(yes=st.booleans())
    def person_answers(self, yes: bool) -> None:
        asked = self.board.asked
        if asked is None or not self.board.counts(self.now):
            return
        if not yes:
            self.board.cancel()
        elif asked.stage is Stage.TEXT:
            self.board.give_text("because", self.now)
        else:
            self.board.agree(self.now)

    @rule()
    def person_undoes(self) -> None:
        before = self.board.deciding
        self.board.undo(self.now)
        assert len(self.board.deciding) < len(before) or not before

    @rule(after=st.floats(0, 2 * UNDO))
    def time_passes(self, after: float) -> None:
        self.now += after
        for waits in self.board.due(self.now):
            sent = waits.act.card
            assert sent is not None
            assert waits.due <= self.now
            # What is sent is what the person meant, and it is still what the server asks.
            assert self.meant[sent.id] == sent == self.open[sent.id]

    @invariant()
    def only_the_person_selects(self) -> None:
        assert (self.board.selected.id if self.board.selected else None) == self.selected
        assert {each.id for each in self.board.marked} <= set(self.open)


TestInbox = Inbox.TestCase


def test_a_session_names_its_agent_as_people_know_its_client() -> None:
    codex = session("s-1", client_name="codex-mcp-client")
    assert session_row(codex, 0, 80, is_selected=False).plain.split()[2] == "Codex"
    assert "agent      Codex" in [each.plain for each in session_lines(codex, (), codex.created_at)]
