"""The full-screen inbox: a list of the open cards, the selected one beside it, and the keys that answer it.

The rules are those of `board`; this module draws what the board says, and sends what the person decided. What arrives
in a burst is drawn once. A decision that needs the PIN leaves the screen to the terminal while it is typed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from intercom.cli import ctl_draw, key_agent
from intercom.cli.ctl_sign import NO_KEY, has_key
from intercom.cli.ctl_text import count, discard_typed, one_line
from intercom.cli.inbox.board import (
    INBOX_KEYS,
    SESSION_KEYS,
    UNDO,
    Act,
    Asked,
    Board,
    Key,
    Stage,
    Waiting,
    needs_terminal,
)
from intercom.cli.inbox.card_rows import LONG_CARD, CardText
from intercom.cli.inbox.feed import Feed, Link, sent_together
from intercom.cli.inbox.pages import (
    TABS,
    TWO_PANES,
    View,
    batch_lines,
    card_row,
    help_lines,
    keys_line,
    log_lines,
    no_use,
    nothing_lines,
    rows_that_act,
    session_page,
    session_row,
    status_line,
    tabs_line,
    waiting_by_session,
    whole_file,
)
from intercom.cli.inbox.panes import LAYOUT, Bar, Entry, ListPane, Said, TextPane
from intercom.cli.inbox.terminal import INTERRUPTED, TerminalApp
from intercom.local.places import Places
from intercom.model.audit import LogEntry
from intercom.model.card import Card
from intercom.model.errors import IntercomError
from intercom.model.grant import GrantEntry
from intercom.model.session import Session
from intercom.operators.commands.json_forms import read
from intercom.operators.ctl.client import NoServer, Refusal, request

#: Seconds between two drawings of what arrives.
BURST = 0.05
#: Seconds between two drawings of ages.
AGES = 10.0
#: Seconds between two looks at the sessions or the log while they are shown.
LOOK = 2.0
#: The most entries of the log that are shown.
LOG_ENTRIES = 300

#: The keys that end the help.
_CLOSES_HELP = ("escape", "left", "question_mark", "q", "enter")
#: Actions that are for the inbox alone.
_INBOX_ONLY = frozenset({"mark", "file", "filter"})


class Inbox(TerminalApp, inherit_bindings=False):
    """The inbox. `feed` brings the cards; `where` is the server that decisions are sent to."""

    CSS: ClassVar[str] = LAYOUT

    def __init__(
        self,
        where: Places,
        feed: Feed,
        board: Board | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._where = where
        self._feed = feed
        self._clock = clock
        self.board = Board() if board is None else board
        self._link = Link.CONNECTING
        self._said = Said(clock)
        self._view = View.INBOX
        #: The view that the help was opened from, and whether its card was open.
        self._before_help = (View.INBOX, False)
        self._sessions: list[Session] = []
        self._grants: list[GrantEntry] = []
        self._session: str | None = None
        self._entries: list[LogEntry] = []
        #: Whether the narrow screen shows the card instead of the list.
        self._is_open = False
        #: What the pane of the card shows now, so that it is not made again.
        self._shown: object = None
        self._text: CardText | None = None
        #: The path of the file that is shown whole; empty for the card itself.
        self._file = ""
        self._asked: Asked | None = None
        self._columns = TWO_PANES
        self._is_ready = False
        self._is_drawing = False
        self._drew_at = 0.0
        #: The field in which a text is typed: an answer, or the words of the filter.
        self._entry: Entry | None = None
        self._sending = asyncio.Lock()
        #: Whether a decision is sent at once because the PIN is asked for. It is checked: the key may be revoked.
        self._is_at_once = not self.board.undo_time and has_key(where)
        self.drawings = 0

    def compose(self) -> ComposeResult:
        yield Bar("tabs")
        with Horizontal(id="panes"):
            yield ListPane(self._row, "list")
            yield TextPane("card")
        yield Bar("said", most=3)
        yield Bar("keys", most=2)

    def on_mount(self) -> None:
        self._list = self.query_one("#list", ListPane)
        self._card = self.query_one("#card", TextPane)
        self._bars = {name: self.query_one(f"#{name}", Bar) for name in ("tabs", "said", "keys")}
        self._is_ready = True
        self.begin()
        loop = asyncio.get_running_loop()
        self.set_interval(AGES, self._draw_ages)
        self.set_interval(LOOK, self._look)
        self._draw()
        self._feed.notify(partial(self._wake, loop))
        if not has_key(self._where):
            self.in_background(self._say_without_key)

    def on_resize(self, event: events.Resize) -> None:
        was_narrow, self._columns = self.is_narrow, event.size.width
        if self.is_narrow != was_narrow:
            # Another pane is on the screen: no key was typed for it yet.
            self.board.changed(by_server=True)
        self._draw()

    # What the server sends

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        # The loop is closed once the app has ended; the feed goes on until the program does.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._on_arrival)

    def _on_arrival(self) -> None:
        """Draw what has arrived, now or a moment after the last drawing."""
        if self._is_drawing:
            return
        self._is_drawing = True
        after = max(0.0, self._drew_at + BURST - time.monotonic())
        asyncio.get_running_loop().call_later(after, self._take)

    def _take(self) -> None:
        self._is_drawing = False
        self._drew_at = time.monotonic()
        for arrived in self._feed.take():
            if isinstance(arrived.what, Card):
                self.board.take(arrived.what)
            elif isinstance(arrived.what, Link):
                self._link_is(arrived.what)
            else:
                is_warning = arrived.level in ("warning", "error")
                self.say(f"• {arrived.what}", ctl_draw.LEVEL_STYLE.get(arrived.level, ""), is_warning=is_warning)
        for sentence in self.board.told():
            self.say(sentence, "yellow")
        self._draw()

    def _link_is(self, link: Link) -> None:
        if link is Link.UP and self._link in (Link.GONE, Link.NONE_YET):
            self.say("the server is back" if self._link is Link.GONE else "a server runs now")
        if link is not Link.UP:
            self.board.restart()
            self._shown = None
        self._link = link
        if link is Link.REFUSED:
            self.exit(1)

    # Drawing

    @property
    def is_narrow(self) -> bool:
        return self._columns < TWO_PANES

    @property
    def is_card_on_screen(self) -> bool:
        """Whether the pane beside the list, or instead of it, is on the screen."""
        return not self.is_narrow or self._is_open or self._view in (View.LOG, View.HELP)

    @property
    def _selected_session(self) -> Session | None:
        return next((each for each in self._sessions if each.id == self._session), None)

    def _draw(self) -> None:
        """Draw everything that changed, and note when it is on the screen."""
        # A timer may fire when the app has taken its screens down already, to end.
        if not self._is_ready or not self.screen_stack:
            return
        self.drawings += 1
        board = self.board
        is_list = self._view in (View.INBOX, View.SESSIONS)
        if self._view is View.INBOX and board.selected is None and board.asked is None:
            self._is_open = False
        self.screen.set_class(self.is_narrow or not is_list, "narrow")
        is_batch = board.asked is not None and board.asked.is_batch
        self._list.display = is_list and not (self.is_narrow and (self._is_open or is_batch))
        self._card.display = self.is_card_on_screen or is_batch
        if self._view is View.SESSIONS:
            ids = [each.id for each in self._sessions]
            self._list.set_rows(len(ids), ids.index(self._session) if self._session in ids else None)
        else:
            self._list.set_rows(len(board.listed), board.place)
        self._draw_card()
        self._bars["tabs"].set_text(tabs_line(board, self._view, self._link))
        self._draw_bars()
        if self._entry is None or self._entry.has_focus:
            self.call_after_refresh(self._drawn, board.version)

    def _drawn(self, version: int) -> None:
        """Note that the screen shows this version of the board, and what of the card is on it."""
        if version != self.board.version:
            return
        if not (self._list.is_laid_out and self._card.is_laid_out):
            self.set_timer(BURST, partial(self._drawn, version))
            return
        self.board.drawn(version, time.monotonic())
        self._note_seen()

    def _note_seen(self) -> None:
        """Note which lines of the card are on the screen."""
        numbers = self._card.seen_lines()
        card = self.board.selected
        is_shown = isinstance(self._shown, tuple) and self._shown[0] == "card" and self._shown[2] is card
        if card is None or self._text is None or not is_shown:
            return
        before = self.board.not_seen(card)
        for number in numbers:
            self.board.saw(card, range(number, number + 1), self._text.size)
        if self.board.not_seen(card) != before:
            self._draw_bars()

    def on_text_pane_scrolled(self) -> None:
        self.call_after_refresh(self._drawn, self.board.version)

    def _draw_card(self) -> None:
        """Show the selected card, or what is asked about several, in the pane beside the list."""
        board = self.board
        card = board.selected
        if self._view is View.HELP:
            self._show(("help",), partial(help_lines, board.undo_time))
        elif self._view is View.LOG:
            self._show(("log", tuple(entry.id for entry in self._entries)), lambda: log_lines(self._entries))
        elif self._view is View.SESSIONS:
            session = self._selected_session
            self._show(
                ("session", session, len(self._sessions), board.waiting, tuple(self._grants)),
                partial(session_page, session, len(self._sessions), board.cards, self._grants),
            )
        elif board.asked is not None and board.asked.is_batch:
            self._show(("batch", board.asked), lambda: batch_lines(board))
        elif card is None:
            self._show(("none", board.waiting, self._link), lambda: nothing_lines(board.waiting, self._link))
        else:
            key = ("card", card.id, card, self._file)
            if self._shown != key:
                # The same card in another state: the reader keeps the place.
                self._show_card(card, stays=isinstance(self._shown, tuple) and self._shown[:2] == key[:2])

    def _show_card(self, card: Card, *, stays: bool) -> None:
        """Show a card, or one of its files whole. With `stays` the pane is not scrolled, unless the file changes."""
        before = self._shown[3] if stays and isinstance(self._shown, tuple) else ""
        self._text = CardText.of(card, ctl_draw.now())
        top: int | None = 0
        if self._file:
            found = whole_file(card, self._text, self._file)
            if isinstance(found, CardText):
                self._text, top = found, max(0, found.first_change() - 4)
                self.say(f"{self._file} with the change in place; esc goes back to the card")
            else:
                self._file = ""
                self.say(found, "yellow")
        self._card.set_lines(self._text, top=None if stays and before == self._file else top)
        self._shown = ("card", card.id, card, self._file)
        if card.diff_omitted:
            self.in_background(partial(self._fetch, card.id))

    def _draw_ages(self) -> None:
        """Draw the list again, and the card unless it is a long one."""
        self._list.refresh()
        if self._text is not None and isinstance(self._shown, tuple) and not self._file and self._text.size < LONG_CARD:
            self._shown = (*self._shown[:2], None, self._file)
            self._draw()

    def _show(self, key: object, make: Callable[[], list[Text]]) -> None:
        if self._shown != key:
            self._shown, self._text, self._file = key, None, ""
            self._card.set_lines(make())

    def _row(self, at: int, width: int) -> Text:
        """Return a row of the list."""
        if self._view is not View.SESSIONS:
            return card_row(self.board, self.board.listed[at], width, ctl_draw.now())
        session = self._sessions[at]
        waiting = waiting_by_session(self.board.cards)[session.id]
        grants = sum(each.session_id == session.id for each in self._grants)
        return session_row(session, waiting, width, grants=grants, is_selected=session.id == self._session)

    def _draw_bars(self) -> None:
        asked = self.board.asked
        if asked is not None and asked.stage is Stage.CONFIRM:
            self._bars["said"].set_text(Text(one_line(asked.sentence), "bold yellow"))
            self._bars["keys"].set_text(Text("y yes · any other key no"))
        elif self._entry is not None and self._entry.for_answer and asked is None:
            # The field stays: what the person goes on typing must not be taken for keys.
            self._bars["said"].set_text(Text(f"{self._said.text.plain}; this text is not sent", "bold yellow"))
            self._bars["keys"].set_text(Text("esc or enter closes"))
        elif self._entry is not None:
            question = asked.sentence if asked is not None else "list only cards with these words:"
            self._bars["said"].set_text(Text(one_line(question), "bold yellow"))
            self._bars["keys"].set_text(Text("enter done · esc cancels"))
        else:
            self._bars["said"].set_text(status_line(self.board, self._clock()) or self._said.text)
            is_open = self.is_card_on_screen
            rows = rows_that_act(self.board, self._view, self._selected_session, is_open=is_open)
            line = keys_line(rows, self.board, self._view, is_open=is_open, width=self._columns)
            self._bars["keys"].set_text(line)

    def say(self, sentence: str, style: str = "", *, is_warning: bool | None = None) -> None:
        """Show a sentence in the line above the keys. Without `is_warning`, one with a style is a warning."""
        self._said.say(sentence, style, is_warning=bool(style) if is_warning is None else is_warning)
        if self._is_ready:
            self._draw_bars()

    # Keys

    def on_key(self, event: events.Key) -> None:
        if self.press(event):
            event.prevent_default()

    def press(self, event: events.Key) -> bool:
        """Carry out a key that no entry field took. Returns False if it is for the entry field's own bindings."""
        self._said.typed()
        if self._entry is not None:
            if event.key not in ("escape", "ctrl+c", "ctrl+d"):
                return False
            self._leave_entry()
        elif self.board.asked is not None and self.board.asked.stage is Stage.CONFIRM:
            self._answered(event)
        elif self._view is View.HELP and event.key in _CLOSES_HELP:
            self._go_to(self._before_help[0])
            self._is_open = self._before_help[1]
        elif (row := self._own_key(event.key)) is not None:
            getattr(self, f"action_{row.word}")()
        elif self.board.counts(event.time):
            self._decide(event.key)
        self._draw()
        return True

    def _own_key(self, key: str) -> Key | None:
        card = self.board.selected
        for row in INBOX_KEYS:
            if row.key == key and (self._view is View.INBOX or row.word not in _INBOX_ONLY):
                return row if not row.kinds or (card is not None and card.kind in row.kinds) else None
        return None

    def _leave_entry(self) -> None:
        if self._entry is not None and not self._entry.for_answer:
            self.board.filter("")
        self.say(self.board.cancel())
        self._close_entry()

    def _answered(self, event: events.Key) -> None:
        # A key from before the question was on the screen answers nothing.
        if not self.board.counts(event.time):
            return
        if event.key in ("pagedown", "pageup", "up", "down"):
            self._card.page(1 if event.key in ("pagedown", "down") else -1)
            return
        is_batch = self.board.asked is not None and self.board.asked.is_batch
        if event.key == "y" and is_batch and not self._card.is_all_seen:
            self._card.page(1)
            return
        self.say(self.board.agree(self._clock()) if event.key == "y" else self.board.cancel())
        self._decided()

    def _decide(self, key: str) -> None:
        """Carry out a key that decides, if what it is about is on the screen."""
        acts = self._acts(key)
        if not acts:
            if self._view is View.INBOX and len(key) == 1:
                self.say(no_use(key, self.board))
            return
        if not (self.board.marked and self._view is View.INBOX) and not self.is_card_on_screen:
            self.say("enter opens the card; a key decides only what is on the screen")
            return
        self.say(self.board.begin(acts, self._clock()))
        self._decided()

    def _acts(self, key: str) -> tuple[Act, ...]:
        if self._view is View.INBOX:
            return self.board.acts(key)
        session = self._selected_session if self._view is View.SESSIONS else None
        row = next((each for each in SESSION_KEYS if each.key == key), None)
        if session is None or row is None or self.board.decision_on(session.id) is not None:
            return ()
        return (Act(row.word, None, row.wants, session),)

    def _decided(self) -> None:
        """Ask for a text if one is wanted, and send decisions when their time to be undone is over."""
        asked = self.board.asked
        if asked is not None and asked.stage is Stage.TEXT:
            self._open_entry("", for_answer=True)
        if self.board.deciding and self._is_at_once:
            self.run_worker(self._check_key())
        elif self.board.deciding:
            self._tick()

    async def _check_key(self) -> None:
        """Give time to undo from now on if no key counts any more, so that no PIN is asked for."""
        with contextlib.suppress(NoServer, Refusal, IntercomError, OSError):
            known = await asyncio.to_thread(request, self._where, "keys", {})
            if self._is_at_once and not known["required"]:
                self._is_at_once = False
                self.board.delay(UNDO, self._clock())
        self._tick()

    def _tick(self) -> None:
        # A PIN is not asked for while the person types something else.
        is_typing = self._entry is not None and has_key(self._where)
        due = () if is_typing else self.board.due(self._clock())
        if due:
            self.run_worker(self._send(due))
        if self.board.deciding:
            self.set_timer(min(0.5, max(0.05, self.board.deciding[0].due - self._clock())), self._tick)
        self._draw()

    def action_down(self) -> None:
        self._move(1)

    def action_up(self) -> None:
        self._move(-1)

    def _move(self, by: int) -> None:
        """Select the next card or session, or scroll a page that has no list."""
        if self._view is View.INBOX:
            if self.board.move(by):
                self._file = ""
        elif self._view is View.SESSIONS:
            ids = [each.id for each in self._sessions]
            at = ids.index(self._session) + by if self._session in ids else 0
            if ids:
                self._select_session(ids[max(0, min(at, len(ids) - 1))])
        else:
            self._card.go_to(max(0, round(self._card.scroll_y) + by))

    def _select_session(self, id: str) -> None:
        if id != self._session:
            self._session = id
            self.board.changed()

    def action_open(self) -> None:
        if self._view is View.INBOX and self.board.selected is None:
            self._move(1)
        is_selected = self.board.selected if self._view is View.INBOX else self._selected_session
        self._is_open = is_selected is not None

    def _go_to(self, view: View) -> None:
        """Show another view."""
        if view is not self._view:
            self._view, self._is_open, self._file = view, False, ""
            self.board.changed()
            self._look()

    def action_next_tab(self) -> None:
        at = TABS.index(self._view) if self._view in TABS else -1
        self._go_to(TABS[(at + 1) % len(TABS)])

    def action_inbox(self) -> None:
        self._go_to(View.INBOX)

    def action_sessions(self) -> None:
        self._go_to(View.SESSIONS)

    def action_log(self) -> None:
        self._go_to(View.LOG)

    def action_help(self) -> None:
        if self._view is not View.HELP:
            self._before_help = (self._view, self._is_open)
            self._go_to(View.HELP)

    def action_file(self) -> None:
        """Show the file at the top of the pane whole, with the change in place, or the card again."""
        if self._file:
            self._file = ""
        elif self._text is not None and self.is_card_on_screen:
            self._file = self._text.path_at(self._card.top_line)
            if not self._file:
                self.say("this card has no diff of a file")

    def action_go_back(self) -> None:
        if self._file:
            self._file = ""
        elif self._is_open and self.is_narrow:
            self._is_open = False
        elif self.board.unmark():
            self.say("no card is marked now")
        elif self.board.filtered_by:
            self.board.filter("")

    def action_page_down(self) -> None:
        self._card.page(1)

    def action_page_up(self) -> None:
        self._card.page(-1)

    def action_to_top(self) -> None:
        self._card.go_to(0)

    def action_to_end(self) -> None:
        self._card.go_to(self._card.count)

    def action_mark(self) -> None:
        self.board.mark()

    def action_undo(self) -> None:
        self.say(self.board.undo(self._clock()))
        self._tick()

    def action_stop(self) -> None:
        self.action_suspend_process()

    async def _leave(self) -> None:
        if await self._send(self.board.due(float("inf"))):
            self.exit(0)

    def action_leave(self) -> None:
        """Send what was decided, and quit."""
        self.run_worker(self._leave())

    def action_interrupt(self) -> None:
        """Quit at once. What was decided and not sent stays open."""
        self.exit(INTERRUPTED)

    def on_list_pane_picked(self, event: ListPane.Picked) -> None:
        """Select and open what the person clicked on."""
        if self.board.asked is not None:
            return
        if self._view is View.SESSIONS and event.row < len(self._sessions):
            self._select_session(self._sessions[event.row].id)
        elif self._view is View.INBOX and event.row < len(self.board.listed):
            self._file = "" if self.board.select(self.board.listed[event.row].id) else self._file
        self._is_open = True
        self._draw()

    def on_bar_clicked(self, event: Bar.Clicked) -> None:
        """Go to the tab that the person clicked on."""
        if event.bar.id != "tabs" or self.board.asked is not None:
            return
        end = 0
        for number, view in enumerate(TABS, 1):
            end += len(f" {number} {view.value} ")
            if event.column < end:
                self._go_to(view)
                self._draw()
                return

    # What is looked up

    def _look(self) -> None:
        """Ask the server for what the sessions' page or the log shows, if one of them is on the screen."""
        if self._view in (View.SESSIONS, View.LOG):
            self.in_background(partial(self._look_at, self._view))

    def _look_at(self, view: View) -> None:
        if view is View.SESSIONS:
            sessions = read(list[Session], request(self._where, "list", {}), "sessions")
            grants = read(list[GrantEntry], request(self._where, "grants", {}), "grants")
            self.call_from_thread(self._looked, sessions, grants, self._entries)
        else:
            entries = read(list[LogEntry], request(self._where, "log", {"limit": LOG_ENTRIES}), "entries")
            self.call_from_thread(self._looked, self._sessions, self._grants, entries)

    def _looked(self, sessions: list[Session], grants: list[GrantEntry], log: list[LogEntry]) -> None:
        self._sessions, self._grants, self._entries = sessions, grants, log
        if self._session is not None and self._selected_session is None:
            self._session = None
            self.board.changed(by_server=True)
        self._draw()

    # The entry field

    async def on_event(self, event: events.Event) -> None:
        """Discard what was typed for an answer before its question was on the screen."""
        is_typed = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        asked = self.board.asked
        if is_typed and asked is not None and asked.stage is Stage.TEXT and not self.board.counts(event.time):
            return
        await super().on_event(event)

    def _open_entry(self, text: str, *, for_answer: bool) -> None:
        self._close_entry()
        self._entry = Entry(text, for_answer=for_answer, on_ready=self._draw)
        self.screen.mount(self._entry, after="#said")

    def _close_entry(self) -> None:
        if self._entry is not None:
            self._entry.remove()
            self._entry = None
            self.screen.set_focus(None)

    def entered(self, text: str, *, for_answer: bool) -> None:
        """Take a text that the person has finished."""
        self._close_entry()
        if for_answer:
            self.say(self.board.give_text(text, self._clock()))
            self._decided()
        self._draw()

    def typing(self, words: str) -> None:
        """Filter by the words typed so far."""
        self.board.filter(words)
        self._draw()

    def action_filter(self) -> None:
        self._open_entry(self.board.filtered_by, for_answer=False)

    # What is sent

    async def _send(self, due: tuple[Waiting, ...]) -> bool:
        """Send decisions, one after the other, and say what became of each. Returns whether all were carried out."""
        if not due:
            return True
        async with self._sending:
            whole = {each.act.card.id for each in due if each.act.card and not self.board.not_seen(each.act.card)}
            work = partial(sent_together, self._where, due, whole)
            leaves = has_key(self._where) or any(needs_terminal(waits.act) for waits in due)
            said = self.with_terminal(work) if leaves else await asyncio.to_thread(work)
        ends = zip(due, said, strict=True)
        self.board.sent(waits.act._replace(decision_id=end.decision_id) for waits, end in ends if end.is_done)
        failed = [end.sentence for end in said if not end.is_done]
        done = [end.sentence for end in said if end.is_done]
        if failed:
            self.say("; ".join(failed), "red")
        elif len(done) == 1:
            self.say(done[0])
        else:
            self.say(f"{count(len(done), 'decision')} sent")
        self._draw()
        return not failed

    def has_terminal(self) -> None:
        # A key counts once the inbox is drawn again.
        self.board.changed(by_server=True)
        self._draw()

    def _say_without_key(self) -> None:
        if not request(self._where, "keys", {})["required"]:
            self.call_from_thread(self.say, NO_KEY)

    def _fetch(self, id: str) -> None:
        whole = read(Card, request(self._where, "show", {"id": id}))
        self.call_from_thread(self._fetched, whole)

    def _fetched(self, whole: Card) -> None:
        self.board.take(whole)
        self._draw()


def run(where: Places, feed: Feed) -> int:
    """Show the inbox until the person quits. Returns the exit code. Raises Refusal or IntercomError if the server
    refuses the watch."""
    # Without an unlocked key each decision asks for the PIN, which gives time enough to think.
    is_asked = has_key(where) and key_agent.key_of(where) is None
    app = Inbox(where, feed, Board(0.0 if is_asked else UNDO))
    # On a busy machine it would be read late, when it seems to be typed for the first card.
    discard_typed()
    code = app.run_to_end()
    feed.stop()
    if feed.fault is not None:
        raise feed.fault
    return code
