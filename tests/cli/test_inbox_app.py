"""The inbox on a screen of Textual's own, with a feed that a test fills: what is drawn, and what a key does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual import events
from textual.pilot import Pilot

from intercom.cli import ctl_amend, ctl_draw
from intercom.cli.inbox import app as inbox_app
from intercom.cli.inbox import feed as inbox_feed
from intercom.cli.inbox.app import Inbox
from intercom.cli.inbox.board import INBOX_KEYS, KEYS, Act, Board, Waiting, request_of
from intercom.cli.inbox.feed import Arrived, Feed, Link
from intercom.cli.inbox.first_frame import STARTING, frame
from intercom.cli.inbox.pages import TWO_PANES, shown_key
from intercom.local.places import Places, places
from intercom.model.audit import AuditEntry
from intercom.model.card import Card, CardKind, CardState
from intercom.model.json_types import JsonObject
from intercom.model.request import ChangeKind, FileChange, RiskLevel
from intercom.operators.commands.json_forms import card_entry, plain
from intercom.operators.ctl.client import NoServer, Refusal
from tests.operators.stand_in_service import START, card, session

LOW: dict[str, Any] = {"risk": RiskLevel.LOW}


class Server(Feed):
    """A feed that a test fills, and the requests that were sent to its server."""

    def __init__(self, where: Places) -> None:
        super().__init__(where)
        self.sent: list[tuple[str, JsonObject]] = []
        self.answers: dict[str, Any] = {
            "keys": {"required": True},
            "list": {"sessions": []},
            "grants": {"grants": []},
            "log": {"entries": []},
        }

    def put(self, *arrived: Card | Link | str) -> None:
        self._put([Arrived(each) for each in arrived])

    def request(self, where: Places, command: str, fields: JsonObject, **_: Any) -> Any:
        self.sent.append((command, dict(fields)))
        answer = self.answers.get(command, {"status": "done"})
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sender(self, where: Places, act: str = "") -> Server:
        """What signs decisions, of which none has to be signed."""
        return self

    def asks_pin(self) -> bool:
        return False

    def send(self, verb: str, fields: JsonObject, *, card: Any = None) -> Any:
        return self.request(self.where, verb, fields)

    @property
    def decided(self) -> list[tuple[str, JsonObject]]:
        shown_only = ("keys", "show", "list", "log", "grants")
        return [each for each in self.sent if each[0] not in shown_only]


class Person:
    """A person at the inbox: what they type, and what they see."""

    def __init__(self, app: Inbox, pilot: Pilot[int], server: Server) -> None:
        self.app = app
        self.pilot = pilot
        self.server = server

    @property
    def screen(self) -> str:
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    async def until(self, is_so: Callable[[], object] | str) -> None:
        """Until something holds, or a text is on the screen."""
        deadline = time.monotonic() + 20
        while not (is_so in self.screen if isinstance(is_so, str) else is_so()):
            assert time.monotonic() < deadline, f"{is_so} is not on the screen:\n{self.screen}"
            await self.pilot.pause()

    async def sees(self) -> None:
        """Until a key counts."""
        await self.until(lambda: self.app.board.counts(time.monotonic()))

    async def press(self, *keys: str) -> None:
        """Press keys, each after the screen shows what the one before did."""
        for key in keys:
            await self.sees()
            await self.pilot.press(key)
        await self.sees()

    async def sent(self, count: int) -> list[tuple[str, JsonObject]]:
        await self.until(lambda: len(self.server.decided) >= count)
        return self.server.decided


def at_inbox(
    where: Places, monkeypatch: pytest.MonkeyPatch, *cards: Card, size: tuple[int, int] = (100, 24), undo: float = 0.0
) -> Callable[[Callable[[Person], Coroutine[Any, Any, None]]], None]:
    """Return what runs a scene with a person at the inbox, in which these cards are open."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Person]:
        server = Server(where)
        monkeypatch.setattr(inbox_feed, "Sender", server.sender)
        monkeypatch.setattr(inbox_app, "request", server.request)
        app = Inbox(where, server, Board(undo))
        async with app.run_test(size=size) as pilot:
            server.put(Link.UP, *cards)
            person = Person(app, pilot, server)
            await person.until(lambda: app.board.waiting == len(cards))
            await person.sees()
            yield person

    def run(scene: Callable[[Person], Coroutine[Any, Any, None]]) -> None:
        async def all_of_it() -> None:
            async with opened() as person:
                await scene(person)

        asyncio.run(all_of_it())

    return run


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return places(environ={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_person_selects_a_card_and_approves_it(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.until("1 waiting")
        assert "1 card waiting: ↓ selects one" in person.screen
        await person.press("a")
        await person.press("down")
        assert "+new = 2" in person.screen
        assert " a approve  r reject " in person.screen
        await person.press("a")
        assert await person.sent(1) == [("approve", {"id": "one"})]
        await person.until("done one 'approval one' (low)")

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_what_weighs_much_is_confirmed_by_name(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "a")
        assert "approve one 'approval one' (critical)? type y" in person.screen
        await person.press("n")
        await person.until("approve left undone: one 'approval one' (critical)")
        await person.press("a", "y")
        assert await person.sent(1) == [("approve", {"id": "one"})]

    at_inbox(where, monkeypatch, card("one", risk=RiskLevel.CRITICAL))(scene)


def test_a_long_diff_is_seen_by_scrolling_through_it(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    long = card("one", diff="".join(f"+{number}\n" for number in range(100)), **LOW)

    async def scene(person: Person) -> None:
        await person.press("down")
        await person.until("lines not seen")
        await person.press("end")
        await person.until("+99")
        await person.press("a")
        # What is between the first and the last page was never there.
        assert "lines not seen)? type y" in person.screen
        await person.press("escape", "home")
        for _ in range(7):
            await person.press("pagedown")
        await person.press("a")
        assert await person.sent(1) == [("approve", {"id": "one"})]

    at_inbox(where, monkeypatch, long)(scene)


def test_keys_typed_together_decide_nothing_that_was_not_on_the_screen(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        # All three are read before anything can be drawn for the first.
        typed = [events.Key("down", None), events.Key("a", "a"), events.Key("y", "y")]
        for each in typed:
            each.set_sender(person.app)
            person.app.post_message(each)
        await person.until("+new = 2")
        await person.sees()
        assert person.app.board.deciding == ()
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_a_text_is_asked_for_and_esc_cancels_it(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "r")
        assert "reject one 'approval one' (low), with what text (may be empty)?" in person.screen
        await person.press(*"too", "escape")
        await person.until("reject left undone")
        await person.press("r", *"ab", "enter")
        assert await person.sent(1) == [("reject", {"id": "one", "reason": "ab"})]

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_a_decision_can_be_taken_back_before_it_is_sent(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "a")
        await person.until("approve one 'approval one' (low): sent in")
        assert "u takes it back" in person.screen
        await person.press("u")
        await person.until("undone: approve one")
        assert person.server.decided == []
        # Leaving sends what was decided, as it was not taken back.
        await person.press("a")
        await person.pilot.press("q")
        assert await person.sent(1) == [("approve", {"id": "one"})]

    at_inbox(where, monkeypatch, card("one", **LOW), undo=1000.0)(scene)


def test_a_decision_that_was_sent_is_taken_back_unless_the_agent_may_know_it(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        server = person.server
        server.answers["take-back"] = {"status": "taken back", "note": "kim took back a decision: approved by kim"}
        await person.press("down", "a")
        assert await person.sent(1) == [("approve", {"id": "one"})]
        await person.until("done one")
        server.put(card("one", state=CardState.APPROVED, **LOW))
        await person.until("0 waiting")
        await person.press("u")
        assert (await person.sent(2))[1:] == [("take-back", {"id": "one"})]
        await person.until("taken back one 'approval one' (low): kim took back a decision: approved by kim")
        server.put(card("one", **LOW))
        await person.until("1 waiting")
        server.answers["take-back"] = Refusal({"error": "the agent has it", "error_code": "already_decided"})
        await person.press("down", "a")
        await person.sent(3)
        await person.until("done one")
        await person.press("u")
        await person.until("take-back one 'approval one' (low): the agent has it")
        await person.press("u")
        await person.until("nothing to undo")
        assert len(server.decided) == 4

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def after_sending() -> NoServer:
    return NoServer("gone", may_be_done=True)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (NoServer("gone"), "not sent: approve one 'approval one' (low), because no server answers; try the key again"),
        (after_sending(), "approve one 'approval one' (low): no server answers; what you asked for may still be done"),
        (Refusal({"error": "kim was \x1b[2Jfirst"}), "approve one 'approval one' (low): kim was \\x1b[2Jfirst"),
    ],
)
def test_what_is_refused_is_said(where: Places, monkeypatch: pytest.MonkeyPatch, fault: Exception, says: str) -> None:
    async def scene(person: Person) -> None:
        person.server.answers["approve"] = fault
        await person.press("down", "a")
        await person.until(says)

    at_inbox(where, monkeypatch, card("one", **LOW), size=(120, 20))(scene)


def test_the_selection_stays_while_cards_come_and_go(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "down")
        person.server.put(card("three", **LOW), card("one", state=CardState.EXPIRED))
        await person.until("three")
        assert person.app.board.selected == card("two", **LOW)
        person.server.put(card("two", state=CardState.REJECTED))
        await person.until("↓ selects one")
        await person.press("a")
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW), card("two", **LOW))(scene)


def test_nothing_is_drawn_when_the_app_has_taken_its_screens_down(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps: list[Inbox] = []

    async def scene(person: Person) -> None:
        apps.append(person.app)

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)
    drawings = apps[0].drawings
    # A timer may call it so late.
    apps[0]._tick()
    assert apps[0].drawings == drawings


def test_a_server_that_goes_takes_selection_and_unsent_decisions_with_it(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "a")
        await person.until("sent in")
        person.server.put(Link.GONE)
        await person.until("not sent: approve one 'approval one' (low), because the server went away")
        assert "the server went away; waiting for it" in person.screen
        person.server.put(Link.UP, card("one", **LOW))
        await person.until("the server is back")
        await person.press("a")
        assert person.app.board.selected is None
        assert person.app.board.deciding == ()

    at_inbox(where, monkeypatch, card("one", **LOW), undo=1000.0)(scene)


def test_a_narrow_screen_shows_one_pane_and_decides_only_with_the_card_open(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        await person.press("down")
        assert "+new = 2" not in person.screen
        await person.press("a")
        await person.until("enter opens the card")
        await person.press("enter")
        await person.until("+new = 2")
        await person.press("escape")
        await person.until(lambda: "+new = 2" not in person.screen)
        await person.press("enter", "a")
        assert await person.sent(1) == [("approve", {"id": "one"})]

    at_inbox(where, monkeypatch, card("one", **LOW), size=(60, 20))(scene)


def test_a_burst_is_drawn_once(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        before = person.app.drawings
        person.server.put(*(card(f"more-{number}", **LOW) for number in range(500)))
        await person.until("501 waiting")
        assert person.app.drawings - before == 1

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_of_a_thousand_cards_only_those_on_the_screen_are_drawn(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        drawn: list[int] = []
        draw = person.app._list._draw_row
        person.app._list._draw_row = lambda row, width: (drawn.append(row), draw(row, width))[1]
        await person.press("down", "down")
        assert drawn
        assert max(drawn) < 30

    at_inbox(where, monkeypatch, *(card(f"c{number}", **LOW) for number in range(1000)))(scene)


def test_a_diff_that_the_listing_left_out_is_fetched(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    from intercom.operators.commands.json_forms import card_entry

    async def scene(person: Person) -> None:
        person.server.answers["show"] = card_entry(card("one", **LOW))
        await person.press("down")
        await person.until("+new = 2")
        assert ("show", {"id": "one"}) in person.server.sent

    at_inbox(where, monkeypatch, card("one", **LOW).without_diff())(scene)


def test_several_are_decided_together(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "space", "down", "space", "down", "space", "a")
        await person.until("approve these 2 cards? type y")
        assert "approve 2 cards:" in person.screen
        assert "one 'approval one' (low, 9 of 9 lines not seen)" not in person.screen
        assert "stays open, because approve does not answer it:" in person.screen
        await person.press("y")
        assert await person.sent(2) == [("approve", {"id": "one"}), ("approve", {"id": "two"})]
        await person.until("2 decisions sent")

    at_inbox(where, monkeypatch, card("one", **LOW), card("two", **LOW), card("p", CardKind.PROMPT))(scene)


def test_of_many_all_that_will_happen_is_shown_before_it_counts(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [card(f"c{number}", **LOW) for number in range(12)]

    async def scene(person: Person) -> None:
        for _ in cards:
            await person.pilot.press("down", "space")
        await person.press("a")
        await person.until("approve these 12 cards? type y")
        await person.press("y")
        await person.until("c11")
        assert person.server.decided == []
        await person.press("pagedown", "y")
        assert len(await person.sent(12)) == 12

    at_inbox(where, monkeypatch, *cards, size=(100, 13))(scene)


def test_the_wheel_shows_lines_too(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    long = card("one", diff="".join(f"+{number}\n" for number in range(30)), **LOW)

    async def scene(person: Person) -> None:
        await person.press("down")
        await person.until("lines not seen")
        for _ in range(20):
            await person.pilot._post_mouse_events([events.MouseScrollDown], "#card", offset=(5, 5))
        await person.until(lambda: person.app.board.not_seen(long) == "")

    at_inbox(where, monkeypatch, long)(scene)


def test_a_filter_is_typed_and_taken_away(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.pilot.press("slash")
        await person.until("list only cards with these words:")
        await person.pilot.press(*"two")
        await person.until("1 of 2 waiting · filter: two")
        await person.pilot.press("enter")
        await person.press("down")
        assert person.app.board.selected == card("two", **LOW)
        await person.pilot.press("escape")
        await person.until("2 waiting")

    at_inbox(where, monkeypatch, card("one", **LOW), card("two", **LOW))(scene)


def test_the_sessions_are_a_tab_on_which_one_is_paused_and_ended(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        sessions = [plain(session("s-1", client_name="codex")), plain(session("s-2"))]
        person.server.answers["list"] = {"sessions": [{**each, "session_id": each["id"]} for each in sessions]}
        await person.press("2")
        await person.until("s-2")
        await person.press("a", "p")
        assert person.server.decided == []
        await person.press("down", "p")
        assert await person.sent(1) == [("pause", {"id": "s-1"})]
        await person.until("approval one")
        await person.press("t", *"go", "enter")
        assert (await person.sent(2))[-1] == ("steer", {"id": "s-1", "text": "go"})
        await person.press("down", "e")
        await person.until("end session s-2 of /home/me/project? type y")
        await person.press("y")
        assert (await person.sent(3))[-1] == ("clear", {"id": "s-2"})

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_the_log_is_a_tab(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        entry = AuditEntry(1, START, "approved", "s-1", "kim", "approved one \x1b[2J", None)
        person.server.answers["log"] = {"entries": [plain(entry)]}
        await person.press("tab", "tab")
        await person.until("approved       kim approved one \\x1b[2J  s-1")
        await person.press("a", "tab")
        await person.until("↓ selects one")
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_the_help_lists_every_key_and_decides_nothing(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "question_mark")
        for kind, rows in KEYS.items():
            await person.until(kind)
            for row in rows:
                assert f"{row.key} {row.shown}" in person.screen
        await person.until("approve it, with a note that the agent gets")
        for row in INBOX_KEYS:
            assert shown_key(row.key) in person.screen
            assert row.label in person.screen
        await person.press("a", "escape")
        await person.until("+new = 2")
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW), size=(120, 70))(scene)


def test_the_whole_file_is_shown_around_the_change(
    where: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    file = tmp_path / "src" / "app.py"
    file.write_text("old = 1\nsame = 3\nfurther = \x1b[2J\n")
    shown = card("one", workspace_root=str(tmp_path), **LOW)

    async def scene(person: Person) -> None:
        await person.press("down")
        assert "further" not in person.screen
        await person.press("f")
        await person.until(" further = \\x1b[2J")
        assert "+new = 2" in person.screen
        await person.press("f")
        await person.until(lambda: "further" not in person.screen)
        file.write_text("another\n")
        await person.press("f")
        await person.until("src/app.py is not what the change was made from")
        file.unlink()
        os.mkfifo(file)
        await person.press("f")
        await person.until("src/app.py cannot be read: it is no file")
        await person.press("a")
        assert await person.sent(1) == [("approve", {"id": "one"})]

    at_inbox(where, monkeypatch, shown)(scene)


def test_a_click_selects_a_card_or_a_tab_and_decides_nothing(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.pilot.click("#list", offset=(5, 1))
        await person.until(lambda: person.app.board.selected == card("two", **LOW))
        await person.pilot.click("#tabs", offset=(25, 0))
        await person.until("the log is empty")
        await person.pilot.click("#tabs", offset=(2, 0))
        await person.until("+new = 2")
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW), card("two", **LOW))(scene)


@pytest.mark.parametrize("columns", [20, 60, 79, 80, 81, 100, 174, 176, 200])
def test_the_first_frame_is_what_the_inbox_draws_over_it(
    where: Places, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    wide = card("two", title="漢字" * 60, **LOW)
    cards = (card("one"), wide, card("three", kind=CardKind.PROMPT, body="go on?"), card("four"))

    async def scene(person: Person) -> None:
        first = [row.plain.rstrip() for row in frame(person.app.board, columns, 24, ctl_draw.now())]
        drawn = person.screen.split("\n")
        assert len(first) == len(drawn) == 24
        # The keys take two lines of a narrow screen.
        assert [line for line in first[:-3] if line.strip(" │")] == [line for line in drawn[:-3] if line.strip(" │")]
        assert STARTING[:16] in first[-1]
        assert "quit" in drawn[-1]

    at_inbox(where, monkeypatch, *cards, size=(columns, 24))(scene)


@pytest.mark.parametrize(("columns", "lines"), [(1, 1), (1, 40), (4, 3), (80, 2), (80, 4), (300, 100)])
def test_the_first_frame_fits_any_terminal(columns: int, lines: int) -> None:
    board = Board()
    for number in range(60):
        board.take(card(f"{number}", title="漢字" * 80))
    rows = frame(board, columns, lines, ctl_draw.now())
    assert len(rows) == lines
    assert all(row.cell_len <= columns and "\n" not in row.plain for row in rows)


@pytest.mark.parametrize("width", [20, 60, 79, 80, 100, 200])
def test_a_resized_screen_shows_the_card_again(where: Places, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    wide = card("one", title="漢字" * 60, diff="--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+" + "漢字" * 100 + "\n", **LOW)

    async def scene(person: Person) -> None:
        await person.press("down")
        await person.pilot.resize_terminal(width, 30)
        await person.until(lambda: person.app.size.width == width)
        # At once, without a key.
        await person.until(lambda: person.app.query_one("#card").display == (width >= TWO_PANES))
        await person.press("enter")
        while person.app.board.not_seen(wide):
            await person.press("pagedown")
        lines = person.screen.split("\n")
        assert len(lines) == 30
        assert all(cell_len(line) <= width for line in lines)

    at_inbox(where, monkeypatch, wide)(scene)


def test_a_notice_is_shown_and_acts_on_nothing(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        person.server.put("[red]hello[/red] \x1b[2J")
        await person.until("• [red]hello[/red] \\x1b[2J")

    at_inbox(where, monkeypatch, card("one"))(scene)


def test_what_is_typed_after_its_question_is_withdrawn_is_no_key(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "r", *"bad n")
        person.server.put(card("one", title="another title", **LOW))
        await person.until("reject left undone, because the card has changed; this text is not sent")
        await person.press(*"ame a", "q", "space", "2")
        assert "another title" in person.screen
        await person.press("enter")
        assert person.app.board.marked == ()
        assert person.server.decided == []
        await person.press("r", *"no", "enter")
        assert await person.sent(1) == [("reject", {"id": "one", "reason": "no"})]

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_quitting_waits_if_what_was_decided_could_not_be_sent(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        person.server.answers["approve"] = NoServer("gone")
        await person.press("down", "a")
        await person.pilot.press("q")
        await person.until("not sent: approve one 'approval one' (low), because no server answers; try the key again")
        assert person.app.is_running
        await person.pilot.press("q")
        await person.until(lambda: not person.app.is_running)

    at_inbox(where, monkeypatch, card("one", **LOW), undo=1000.0, size=(120, 20))(scene)


def test_a_key_typed_while_the_screen_becomes_another_one_decides_nothing(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        await person.press("down")
        typed_at = time.monotonic()
        await person.pilot.resize_terminal(100, 20)
        await person.until("+new = 2")
        # The screen was narrow, and showed only the list, when this key was typed.
        assert not person.app.board.counts(typed_at)
        await person.press("a")
        assert await person.sent(1) == [("approve", {"id": "one"})]

    at_inbox(where, monkeypatch, card("one", **LOW), size=(60, 20))(scene)


@pytest.mark.parametrize("size", [(1, 1), (2, 40), (10, 3), (400, 4)])
def test_no_size_is_too_small(where: Places, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
    async def scene(person: Person) -> None:
        await person.press("down")
        await person.pilot.resize_terminal(*size)
        await person.pilot.pause()
        for key in ("enter", "r", "escape", "pagedown", "question_mark", "escape", "2", "3", "1", "slash", "escape"):
            await person.pilot.press(key)
        await person.pilot.resize_terminal(100, 24)
        await person.until("+new = 2")
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


#: Markup of Rich and Textual, and sequences and characters that act on a terminal.
HOSTILE = (
    "[bold red]b[/] [@click=app.quit]c[/] [link=http://x]l[/link] \x1b]8;;http://x\x07y\x1b]52;c;QQ==\x07 \u202ez\u2066"
)
SHOWN = (
    "[bold red]b[/] [@click=app.quit]c[/] [link=http://x]l[/link] "
    "\\x1b]8;;http://x\\x07y\\x1b]52;c;QQ==\\x07 <U+202E>z<U+2066>"
)


def test_what_agents_write_is_text_everywhere(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    change = FileChange(f"a/{HOSTILE}.py", ChangeKind.CREATE, "", "bb" * 32, added=1, removed=0)
    diff = f"--- /dev/null\n+++ b/a/x.py\n@@ -0,0 +1 @@\n+{SHOWN}\n"
    hostile = card("one", title=HOSTILE, body=f"{HOSTILE}\n{HOSTILE}", note=HOSTILE, files=(change,), diff=diff, **LOW)
    asks = card("two", CardKind.PROMPT, body=HOSTILE)

    async def scene(person: Person) -> None:
        row = session("s-1", client_name=HOSTILE, workspace_root=f"/w/{HOSTILE}", last_tool=HOSTILE, prompt=HOSTILE)
        person.server.answers["list"] = {"sessions": [{**plain(row), "session_id": "s-1"}]}
        entry = AuditEntry(1, START, HOSTILE, "s-1", HOSTILE, HOSTILE, None)
        person.server.answers["log"] = {"entries": [plain(entry)]}
        person.server.put(HOSTILE)
        screens = []
        for keys in (
            ("down",),
            ("f",),
            ("escape", "a"),
            ("escape", "space", "a"),
            ("escape", "escape", "r"),
            ("escape",),
        ):
            await person.press(*keys)
            screens.append(person.screen)
        for tab in "23":
            await person.press(tab)
            await person.until("[bold red]b")
            await person.press("down")
            screens.append(person.screen)
        # A click on what only looks like a link does nothing.
        await person.pilot.click("#card", offset=(20, 1))
        assert person.app.is_running
        assert all(SHOWN in screen for screen in screens[:1])
        for screen in screens:
            assert not {each for each in screen if ord(each) < 32 and each != "\n"} | {*screen} & {*"\x9b\u202e\u2066"}
        for strip in person.app.screen._compositor.render_strips(person.app.size):
            for segment in strip:
                style = segment.style
                assert style is None or (style.link is None and "@click" not in style.meta)

    at_inbox(where, monkeypatch, hostile, asks, size=(250, 40))(scene)


def test_a_pasted_text_is_no_key_and_does_not_act_on_the_terminal(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def paste(person: Person, text: str) -> None:
        event = events.Paste(text)
        event.set_sender(person.app)
        person.app.post_message(event)
        await person.pilot.pause()

    async def scene(person: Person) -> None:
        await person.press("down")
        await paste(person, "ay")
        assert person.server.decided == []
        await person.press("r")
        await paste(person, "why \x1b[2J\x1b]0;owned\x07\u202e\nnot")
        await person.until("why")
        assert not {each for each in person.screen if ord(each) < 32 and each != "\n"} | {*person.screen} & {
            *"\x9b\u202e"
        }
        await person.press("enter")
        ((verb, fields),) = await person.sent(1)
        assert verb == "reject"
        assert str(fields["reason"]).startswith("why ")

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_a_key_that_was_revoked_since_gives_the_time_to_undo(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(where.keys_directory)
    Path(where.keys_directory, "mine.json").write_text("{}")

    async def scene(person: Person) -> None:
        person.server.answers["keys"] = {"required": False}
        await person.press("down", "a")
        await person.until("u takes it back")
        await person.press("u")
        await person.until("undone: approve one")
        assert person.server.decided == []

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)


def test_a_narrow_line_of_keys_keeps_the_help_and_quit(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(person: Person) -> None:
        await person.until("1 waiting")
        for keys in ((), ("down",), ("enter",)):
            await person.press(*keys)
            last = person.screen.splitlines()[-1]
            assert last.rstrip().endswith("? help  q quit")
            assert cell_len(last) <= 60

    at_inbox(where, monkeypatch, card("one", **LOW), size=(60, 20))(scene)


def test_to_interrupt_what_is_named_before_the_pin_leaves_all_undone(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(where)
    due = [Waiting(Act("approve", card(id, **LOW)), None, 0.0) for id in ("one", "two")]
    named = []

    def interrupted(text: str) -> None:
        named.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(inbox_feed, "Sender", server.sender)
    monkeypatch.setattr(Server, "asks_pin", lambda _: True)
    monkeypatch.setattr(inbox_feed.key_agent, "say", interrupted)
    said = inbox_feed.sent_together(where, due, {"one", "two"})
    assert [each.sentence for each in said if not each.is_done] == [
        "approve left undone: one 'approval one' (low)",
        "approve left undone: two 'approval two' (low)",
    ]
    assert named[0].startswith("you sign these 2 decisions:\napprove one [LOW]: approval one\n")
    assert server.sent == []


@pytest.mark.parametrize("word", ["hunks", "edit", "changes"])
def test_what_was_decided_on_the_terminal_is_taken_back_by_its_id(
    where: Places, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    server, asked = Server(where), card("one", amendable=True, **LOW)
    path = asked.files[0].path
    shown = {"card": card_entry(asked), "hunks": [], "text": "", "contents": {path: "new = 1\n"}}
    server.answers |= {"amend": shown, "show": card_entry(asked)}
    server.answers |= {each: {"status": "done", "decision_id": "v-1"} for each in ("approve", "changes")}

    def editor(files: Sequence[Path]) -> None:
        files[0].write_text(f"{path}: why?\n")

    monkeypatch.setattr(ctl_amend, "request", server.request)
    monkeypatch.setattr(ctl_amend, "Sender", lambda _: server)
    monkeypatch.setattr(Server, "send", lambda self, verb, fields, **_: self.request(where, verb, fields))
    monkeypatch.setattr(ctl_amend, "_run_editor", editor)
    monkeypatch.setattr(inbox_feed, "_wait_for_enter", lambda: None)
    act, board = Act(word, asked), Board(0.0)
    [end] = inbox_feed.sent_together(where, [Waiting(act, "1", 0.0)], {"one"})
    assert (end.is_done, end.decision_id) == (True, "v-1")
    board.sent([act._replace(decision_id=end.decision_id)])
    board.undo(1.0)
    [back] = board.due(1.0)
    assert request_of(back.act, back.text) == ("take-back", {"id": "one", "decision_id": "v-1"})


def test_the_help_begins_with_the_answers_and_leads_back_to_the_open_card(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(person: Person) -> None:
        await person.press("down", "enter")
        await person.until("+new = 2")
        await person.press("question_mark")
        await person.until("Answers to a card, by its kind")
        await person.press("escape")
        await person.until("+new = 2")

    at_inbox(where, monkeypatch, card("one", **LOW), size=(60, 20))(scene)


def test_the_age_of_the_card_goes_on(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctl_draw, "now", lambda: START + timedelta(minutes=7))

    async def scene(person: Person) -> None:
        await person.press("down")
        await person.until("7 min ago")
        monkeypatch.setattr(ctl_draw, "now", lambda: START + timedelta(minutes=9))
        person.app._draw_ages()
        await person.until("9 min ago")

    at_inbox(where, monkeypatch, card("one", **LOW))(scene)
