"""The inbox as it is shown until Textual is imported: the cards arrive long before that is done.

No card is selected in it and no key counts, which its last line says. Textual draws over it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from types import FrameType

from rich.text import Text

from intercom.cli import ctl_draw
from intercom.cli.inbox.board import Board
from intercom.cli.inbox.card_rows import Rows
from intercom.cli.inbox.feed import Arrived, Feed, Link
from intercom.cli.inbox.pages import TWO_PANES, View, card_row, nothing_lines, tabs_line
from intercom.model.card import Card

#: How a terminal is set, as `termios` has it.
Settings = list[int | list[bytes | int]]

#: The last line, in which the keys are shown later.
STARTING = "starting: no key counts yet"
#: What takes the whole terminal, and gives it back.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
#: Seconds without an arrival after which what has arrived is drawn: the server sends cards one by one.
_SETTLED = 0.01
#: The most seconds that a drawing waits for that.
_LONGEST = 0.05
#: Seconds between two looks whether a terminal that takes nothing, after ^S, is wanted still.
_LOOK = 0.02
#: Seconds that giving the terminal back may take.
_PATIENCE = 0.5
#: The rows that are not for the panes: the tabs, the sentence and the keys.
_BARS = 3
#: The widest list, as in `panes.LAYOUT`.
_WIDEST_LIST = 70
#: The signals that end the program, besides ^C.
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def frame(board: Board, columns: int, lines: int, at: datetime) -> list[Text]:
    """Return the rows of a screen of this size, none wider than it. Ages are relative to `at`."""
    is_narrow = columns < TWO_PANES
    width = columns if is_narrow else min(_WIDEST_LIST, columns * 2 // 5)
    height = max(0, lines - _BARS)
    # The last column of each pane is that of its scrollbar.
    left = [card_row(board, card, width - 1, at) for card in board.listed[:height]]
    right: list[Text] = []
    if not is_narrow:
        texts = nothing_lines(board.waiting, Link.UP)
        wrapped = Rows(texts, columns - width - 2)
        right = [wrapped.row(each, texts[wrapped.line_at(each)]) for each in range(min(height, len(wrapped)))]
    rows = [tabs_line(board, View.INBOX, Link.UP)]
    for one, other in zip_longest(left[:height], right, fillvalue=Text()):
        row = one.copy()
        row.truncate(width - 1, pad=True)
        rows.append(row if is_narrow else row.append(" ").append("│", "bright_black").append_text(other))
    empty = Text(" " * width).append("" if is_narrow else "│", "bright_black")
    rows += [empty] * (1 + height - len(rows))
    rows += [Text(), Text(f" {STARTING}", "dim")]
    for row in rows:
        row.truncate(columns, overflow="ellipsis")
    return rows[:lines]


@contextlib.contextmanager
def first_frame(feed: Feed) -> Iterator[FirstFrame]:
    """Show what arrives on the whole terminal while the block runs, until the block calls `end`. What was shown stays
    there for the inbox to draw over. If the block raises, or a signal ends or stops the program, the terminal is as it
    was before. Shows nothing where the inbox could not be shown either, and in the background."""
    shown = FirstFrame(feed, _terminal())
    try:
        shown.start()
        yield shown
    except BaseException:
        shown.end()
        shown.give_back()
        raise
    finally:
        shown.close()


def _terminal() -> tuple[int, Settings] | None:
    """Open the terminal that Textual will draw on, so that writing never waits. Returns the descriptor, and how the
    terminal is set; None if there is none, or if another program has it."""
    with contextlib.suppress(OSError, ValueError, AttributeError, termios.error):
        theirs = sys.__stderr__.fileno()  # type: ignore[union-attr]
        if os.isatty(theirs) and os.tcgetpgrp(theirs) == os.getpgrp():
            settings = termios.tcgetattr(theirs)
            return os.open(os.ttyname(theirs), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), settings
    return None


class FirstFrame:
    """Draws the cards of a feed on a terminal, in a thread of its own; on None nothing."""

    def __init__(self, feed: Feed, terminal: tuple[int, Settings] | None) -> None:
        self._feed = feed
        self._descriptor, self._settings = terminal or (-1, [])
        self._encoding = sys.stdout.encoding or "utf-8"
        self._came = threading.Event()
        self._is_over = terminal is None
        self._is_shown = False
        self._thread = threading.Thread(target=self._run, name="inbox-first-frame", daemon=True)
        #: What signals did before.
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def start(self) -> None:
        if self._is_over:
            return
        for number in (signal.SIGINT, *_ENDING, signal.SIGTSTP):
            # What somebody has made the program ignore stays so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._on_signal)
        self._feed.notify(self._came.set)
        self._thread.start()

    def end(self) -> None:
        """Draw nothing any more. ^C is as it was before; other signals are taken until the inbox takes them."""
        self._is_over = True
        self._came.set()
        if self._thread.is_alive():
            self._thread.join()
        self._restore(signal.SIGINT)

    def close(self) -> None:
        self.end()
        for number in tuple(self._handlers):
            self._restore(number)
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def _restore(self, number: int) -> None:
        if number in self._handlers:
            signal.signal(number, self._handlers.pop(number))

    def give_back(self) -> None:
        """Let the terminal be as it was before, if anything was shown. The inbox may have done so: once more changes
        nothing. It neither waits for the drawing thread nor takes a lock: signals call it."""
        self._is_over = True
        if self._is_shown:
            # The terminal may be gone.
            with contextlib.suppress(OSError):
                self._write(LEAVE, time.monotonic() + _PATIENCE)
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._settings)

    def _on_signal(self, number: int, _: object) -> None:
        """Give the terminal back, and let the signal do what it does to a program that does not take it. No exception
        is raised: amid an import it may get lost."""
        self.give_back()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # It was stopped and goes on, or nobody could have made it go on, and so it was not stopped.
        signal.signal(number, self._on_signal)

    def _run(self) -> None:
        # Whatever is wrong with a card, the inbox will say or show it.
        with contextlib.suppress(Exception):
            while not self._is_over:
                self._came.wait()
                self._settle()
                self._draw(self._feed.arrived())

    def _settle(self) -> None:
        """Wait until nothing more comes."""
        latest = time.monotonic() + _LONGEST
        while self._came.is_set() and not self._is_over and time.monotonic() < latest:
            self._came.clear()
            self._came.wait(_SETTLED)
        self._came.clear()

    def _draw(self, arrived: Sequence[Arrived]) -> None:
        board = Board()
        is_up = False
        for each in arrived:
            if isinstance(each.what, Link):
                is_up = each.what is Link.UP
                board = Board()
            elif isinstance(each.what, Card):
                board.take(each.what)
        if self._is_over or not is_up or not board.cards:
            return
        size = shutil.get_terminal_size()
        rows = _as_written(frame(board, size.columns, size.lines, ctl_draw.now()))
        places = (f"\x1b[{number};1H\x1b[2K{row}" for number, row in enumerate(rows, 1))
        enter, self._is_shown = "" if self._is_shown else ENTER, True
        # At the top, what is typed too early shifts no rows.
        self._write(f"{enter}{''.join(places)}\x1b[H")

    def _write(self, text: str, until: float | None = None) -> None:
        """Write to the terminal, as long as the frame is wanted, or until a time by the monotonic clock."""
        data = text.encode(self._encoding, "backslashreplace")
        while data and (time.monotonic() < until if until else not self._is_over):
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select((), (self._descriptor,), (), _LOOK)


def _as_written(rows: Sequence[Text]) -> list[str]:
    """Return rows with their colours, as far as this terminal has any."""
    on = ctl_draw.console()
    with on.capture() as drawn:
        for row in rows:
            on.print(row, no_wrap=True, overflow="crop", crop=False)
    return drawn.get().split("\n")[: len(rows)]
