"""`watch` and `tree --watch`: what is live. On a terminal a key answers; elsewhere cards and notices are printed.

Every question names its card. Keys typed before a question was on the screen are discarded.

Only the person's own key changes the selection. A card that comes, changes or closes never gives a key another meaning.
If nothing is selected, no key decides anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Generator, Iterator
from functools import partial

from attrs import evolve
from rich.cells import cell_len
from rich.console import Console

from intercom.cli import ctl_draw
from intercom.cli.ctl_sign import NO_KEY, send
from intercom.cli.ctl_text import clean, discard_typed, one_line
from intercom.cli.inbox.board import ALWAYS, KEYS, Act, Board, line_count, named, request_of
from intercom.local.places import Places
from intercom.model.card import Card, CardState
from intercom.model.errors import IntercomError
from intercom.operators.commands.json_forms import card_entry, read
from intercom.operators.ctl.client import MAY_BE_DONE, Event, NoServer, Refusal, Watch, request

#: What a read of a key returns at the end of input.
_END = ("", "\x04")


class Keys:
    """The interactive watch: cards scroll by, and the bottom lines name the selected card and its keys."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._board = Board()
        self._console = ctl_draw.console()
        self._news = News()
        self._prompted = _Prompted()

    def run(self) -> int:
        """Run until the person quits (0) or the server ends the watch (1). Raises Refusal and IpcError like `again`."""
        line = first(self._where)
        try:
            with _keys_at_once():
                if line is None:
                    line = self._awaited(NONE_YET, "a server runs now")
                with self._told():
                    if not request(self._where, "keys", {})["required"]:
                        self._say(NO_KEY)
                self._prompt()
                while True:
                    # Read a key first: it was typed for what is on the screen now, and many cards must not prevent
                    # quitting.
                    ready, _, _ = select.select([sys.stdin, line], [], [], 0 if line.ready else None)
                    if sys.stdin in ready:
                        if not self._pressed():
                            return 0
                    else:
                        try:
                            events = line.read()
                        except EOFError:
                            line.__exit__()
                            line = self._awaited(GONE, "the server is back")
                            self._prompt()
                            continue
                        if self._show(events):
                            return 1
        except _Quit:
            return 0
        finally:
            if line is not None:
                line.__exit__()

    def _awaited(self, why: str, then: str) -> Watch:
        """Wait without a time limit for the next server's watch. Raises _Quit if the person quits."""
        self._say(why)
        self._prompted.show("[q]uit")
        line = again(self._where, _pause)
        self._board.restart()
        discard_typed()
        self._say(then)
        return line

    def _show(self, events: list[Event]) -> bool:
        """Show the events. Returns True if the server ended the watch."""
        self._prompted.wipe()
        is_other_question = False
        for event in events:
            if event.name != "card":
                ctl_draw.print_notice(self._console, event.data)
                if event.name == "dropped":
                    return True
                continue
            card = read(Card, event.data)
            is_new = not self._board.is_open(card.id)
            changed = self._board.take(card)
            is_other_question |= changed
            if card.state is not CardState.PENDING:
                # What it asked was shown while it was open.
                rest = evolve(card, diff=None, diff_omitted=False, body=None, detail=None, files=())
                draw = partial(ctl_draw.print_card, self._console, rest, ctl_draw.now(), ctl_draw.PENDING_LINES)
                self._news.show(self._console, card, draw)
            elif changed:
                self._console.print(clean("the selected card has changed:"))
                self._selected()
            elif is_new:
                self._console.print(one_line(f"+ {card.kind} {named(card)}"), soft_wrap=True)
        if is_other_question:
            discard_typed()
        self._prompt()
        return False

    def _selected(self) -> None:
        card = self._board.selected
        if card is not None:
            self._console.print()
            ctl_draw.print_card(self._console, card, ctl_draw.now(), ctl_draw.PENDING_LINES, hints=False)
            self._board.saw(card, range(min(line_count(card), ctl_draw.PENDING_LINES)))

    def _pressed(self) -> bool:
        """Carry out the pressed key. Returns False to quit."""
        key = _key()
        if key in _END:
            return False
        if key == "?":
            self._say("\n".join(_help()))
            self._prompt()
            return True
        act = self._board.key(key)
        if act is None or (act.card is None and act.word == "view whole"):
            return True
        if act.word == "quit":
            return False
        if act.word == "next" and not self._board.next():
            return True
        self._prompted.wipe()
        if act.word == "next":
            self._selected()
        elif act.word == "view whole":
            self._view(act)
        else:
            self._answer(act)
        discard_typed()
        self._prompt()
        return True

    def _view(self, act: Act) -> None:
        assert act.card is not None, "there is nothing to view where none is selected"
        with self._told():
            whole = read(Card, request(self._where, "show", {"id": act.card.id}))
            ctl_draw.print_card(self._console, whole, ctl_draw.now(), hints=False)
            self._board.take(whole)
            self._board.saw(whole, range(max(1, line_count(whole))), max(1, line_count(whole)))

    def _answer(self, act: Act) -> None:
        assert act.card is not None, "only a selected card has keys"
        name = named(act.card)
        text: str | None = None
        if act.wants:
            may = " (may be empty)" if act.wants == "may" else ""
            text = _ask_text(clean(f"{act.word} {name}, with what text{may}? "))
            if text is None or (act.wants == "must" and not text):
                self._say(f"{act.word} left undone: {name}")
                return
        question = self._board.question(act)
        if question is not None and not _agreed(clean(question)):
            self._say(f"{act.word} left undone: {name}")
            return
        verb, fields = request_of(act, text)
        with self._told():
            done = send(self._where, verb, fields, card=card_entry(act.card))
            note = f": {done['note']}" if done.get("note") else ""
            self._say(f"{done['status']} {name}{note}")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except NoServer as none:
            self._say(f"no server answers just now; {MAY_BE_DONE if none.may_be_done else 'try the key again'}")
        except (Refusal, IntercomError, OSError) as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        self._prompted.wipe()
        self._console.print(clean(text), soft_wrap=True)

    def _prompt(self) -> None:
        self._prompted.show(clean(self._board.prompt()))


def _help() -> Iterator[str]:
    """Yield the lines that say what each key does."""
    for kind, rows in KEYS.items():
        yield f"{kind}: {', '.join(f'{row.key} {row.shown}' for row in rows)}"
    yield f"always: {', '.join(f'{row.key} {row.shown}' for row in ALWAYS)}, ? help; any key but y leaves a question"


class _Prompted:
    """The prompt at the bottom of the screen, which is erased before anything else is printed."""

    def __init__(self) -> None:
        self._text = ""
        self._width = 0

    def show(self, text: str) -> None:
        self.wipe()
        print(text, end="", flush=True)
        self._text, self._width = text, _width()

    def wipe(self) -> None:
        # A resized terminal may have wrapped the lines again: only the last one is certainly the prompt's.
        rows = sum(max(1, -(-cell_len(line.rstrip()) // self._width)) for line in self._text.split("\n") if self._width)
        up = f"\x1b[{rows - 1}A" if rows > 1 and self._width == _width() else ""
        print(f"\r{up}\x1b[J", end="", flush=True)
        self._text, self._width = "", 0


def _width() -> int:
    return max(1, shutil.get_terminal_size().columns)


class _Quit(Exception):
    """Raised if the person quits."""


def _pause(seconds: float) -> None:
    """Wait for `seconds`, or until a key is pressed. Raises _Quit if the key means quit."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if ready and _key() in (*_END, "q"):
        raise _Quit


def _key() -> str:
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace").lower()


def _agreed(question: str) -> bool:
    """Ask the question, and return whether the person answers y."""
    discard_typed()
    print(question, end="", flush=True)
    is_yes = _key() == "y"
    print("y" if is_yes else "")
    return is_yes


def _ask_text(question: str) -> str | None:
    """Read a line from the person with normal terminal settings. Returns None if they cancel (Esc, ^C, ^D)."""
    from intercom.cli.key_agent import ESC, read_line

    descriptor = sys.stdin.fileno()
    raw = termios.tcgetattr(descriptor)
    usual = termios.tcgetattr(descriptor)
    usual[3] |= termios.ICANON | termios.ECHO
    # Esc ends the line, too: else it would become a character of the text.
    usual[6][termios.VEOL] = ESC
    # Flush: input typed before the question does not answer it.
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, usual)
    try:
        print(question, end="", flush=True)
        return read_line(descriptor).decode("utf-8", "replace").strip()
    except KeyboardInterrupt:
        print()
        return None
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, raw)


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Read keys one by one without echo. The terminal's settings are always restored."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        print()


#: Seconds for which a refused watch tries again: a server that is just starting may not know our token yet, or have too
#: many connections.
REFUSED = 30.0

_PAUSE = 0.2
#: Seconds between two attempts after waiting for `_LONG` seconds.
_LONG_PAUSE = 1.0
_LONG = 30.0

NONE_YET = "no server runs yet; waiting for one"
GONE = "the server went away; waiting for it"


def watch(where: Places, *, plain: bool = False, as_json: bool = False) -> int:
    """Watch until the person quits or interrupts: in the inbox on a terminal, with `plain` line by line. If no server
    runs, wait for one. Raises Refusal."""
    if as_json:
        return _follow(where, lambda event: print(json.dumps({"event": event.name, "data": event.data}), flush=True))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _follow(where, _Printer().show)
    from intercom.cli import key_agent
    from intercom.cli.inbox.feed import Feed

    # Contact the key holder now: it signs only for processes that contact it soon after their start.
    key_agent.key_of(where)
    if plain or os.environ.get("TERM", "dumb") == "dumb":
        return Keys(where).run()
    feed = Feed(where)
    feed.start()
    from intercom.cli.inbox.first_frame import first_frame

    with first_frame(feed) as frame:
        from intercom.cli.inbox.app import run

        frame.end()
        return run(where, feed)


def watch_tree(where: Places, *, as_json: bool = False, every: float = 1.0) -> int:
    """Draw the tree every `every` seconds until interrupted; as JSON, one line each time.

    Waits for a server like `watch`. Raises Refusal.
    """
    missing = NONE_YET
    told = False
    while True:
        try:
            data = request(where, "tree", {})
        except NoServer:
            if not told:
                _say(missing)
            told = True
            time.sleep(_PAUSE)
            continue
        missing, told = GONE, False
        if as_json:
            print(json.dumps(data), flush=True)
        else:
            if sys.stdout.isatty():
                # Move home and clear what is below: this flickers less than clearing first.
                print("\x1b[H\x1b[J", end="")
            ctl_draw.show("tree", data)
            sys.stdout.flush()
        time.sleep(every)


def _follow(where: Places, show: Callable[[Event], None]) -> int:
    with contextlib.closing(_events(where)) as events:
        for event in events:
            show(event)
            if event.name == "dropped":
                return 1
    return 0


def _events(where: Places) -> Generator[Event]:
    """Yield events without end, across restarts of the server."""
    line = first(where)
    if line is None:
        _say(NONE_YET)
    while True:
        with line or again(where, time.sleep) as found:
            yield from _read(found)
        line = None
        _say(GONE)


def _read(line: Watch) -> Generator[Event]:
    with contextlib.suppress(EOFError):
        while True:
            yield from line.read()


def first(where: Places) -> Watch | None:
    """Return a watch, or None if no server runs. Raises Refusal."""
    try:
        return Watch(where)
    except NoServer:
        return None


def again(where: Places, pause: Callable[[float], None]) -> Watch:
    """Return a watch as soon as a server runs, without a time limit.

    `pause` is called with a number of seconds before each attempt; an exception from it ends the wait. Raises Refusal
    after REFUSED seconds of refusals, and IpcError if the socket is not this user's.
    """
    began = time.monotonic()
    refused_until = began + REFUSED
    while True:
        pause(_PAUSE if time.monotonic() - began < _LONG else _LONG_PAUSE)
        try:
            return Watch(where)
        except NoServer:
            refused_until = time.monotonic() + REFUSED
        except Refusal:
            if time.monotonic() >= refused_until:
                raise


def _say(text: str) -> None:
    print(f"agent-intercom-ctl: {text}", file=sys.stderr, flush=True)


class News:
    """Prints of each card what is new: all of it, or of a card that has ended before, its later status on one line. A
    card is sent again, for example, when its agent has received the decision."""

    #: The most cards that are remembered.
    SIZE = 1000

    def __init__(self) -> None:
        self._last: dict[str, Card] = {}

    def show(self, on: Console, card: Card, draw: Callable[[], object]) -> None:
        """Print what is new about a card; `draw` draws all of it."""
        before = self._last.pop(card.id, None)
        self._last[card.id] = card
        if len(self._last) > self.SIZE:
            del self._last[next(iter(self._last))]
        if before is None or CardState.PENDING in (before.state, card.state):
            if before != card:
                draw()
        elif (before.state, before.note) != (card.state, card.note):
            note = f", {card.note}" if card.note else ""
            on.print(one_line(f"{card.kind} {named(card)}: {card.state}{note}"), soft_wrap=True)


class _Printer:
    """Prints events if the output is not a terminal."""

    def __init__(self) -> None:
        self._news = News()

    def show(self, event: Event) -> None:
        on = ctl_draw.console()
        if event.name == "card":
            card = read(Card, event.data)
            self._news.show(on, card, partial(self._draw, on, card))
        else:
            ctl_draw.print_notice(on, event.data)
        sys.stdout.flush()

    def _draw(self, on: Console, card: Card) -> None:
        ctl_draw.print_card(on, card, ctl_draw.now())
        on.print()
