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
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import zip_longest

from rich.text import Text

from intercom.cli import ctl_draw
from intercom.cli.inbox.board import Board
from intercom.cli.inbox.card_rows import Rows
from intercom.cli.inbox.feed import Arrived, Feed, Link
from intercom.cli.inbox.pages import TWO_PANES, View, card_row, nothing_lines, tabs_line
from intercom.model.card import Card

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
#: The signals that end the program, besides ^C, while the inbox is not there to take them.
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
    there for the inbox to draw over, but if the block raises, the terminal is as it was before. Shows nothing where the
    inbox could not be shown either, and in the background."""
    shown = FirstFrame(feed, _terminal())
    before = {number: signal.signal(number, _end) for number in _ENDING}
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, lambda *_: shown.stop())
    before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    try:
        shown.start()
        yield shown
    except BaseException:
        # A second ^C must not come between.
        for number in (*_ENDING, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        shown.give_back()
        raise
    finally:
        shown.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _terminal() -> int | None:
    """Open the terminal that Textual will draw on, so that writing never waits. Returns None if there is none, or if
    another program has it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        theirs = sys.__stderr__.fileno()  # type: ignore[union-attr]
        if os.isatty(theirs) and os.tcgetpgrp(theirs) == os.getpgrp():
            return os.open(os.ttyname(theirs), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    return None


class FirstFrame:
    """Draws the cards of a feed in a thread of its own, on a descriptor that does not wait; on None nothing."""

    def __init__(self, feed: Feed, terminal: int | None) -> None:
        self._feed = feed
        self._terminal = terminal
        self._came = threading.Event()
        self._is_over = terminal is None
        self._is_shown = False
        self._thread = threading.Thread(target=self._run, name="inbox-first-frame", daemon=True)
        self._attributes = None if terminal is None else termios.tcgetattr(terminal)

    def start(self) -> None:
        if not self._is_over:
            self._feed.notify(self._came.set)
            self._thread.start()

    def end(self) -> None:
        """Draw nothing any more."""
        self._is_over = True
        self._came.set()
        if self._thread.ident is not None:
            self._thread.join()

    def give_back(self) -> None:
        """Draw nothing any more, and let the terminal be as it was before."""
        self.end()
        if self._terminal is None or not self._is_shown:
            return
        # The terminal may be gone.
        with contextlib.suppress(OSError, termios.error):
            # The inbox may have done both: once more changes nothing.
            self._write(LEAVE, time.monotonic() + _PATIENCE)
            termios.tcsetattr(self._terminal, termios.TCSANOW, self._attributes or [])

    def stop(self) -> None:
        """Stop the program, as ^Z does, until it is continued."""
        self.give_back()
        self._is_shown = False
        os.kill(os.getpid(), signal.SIGSTOP)

    def close(self) -> None:
        self.end()
        if self._terminal is not None:
            os.close(self._terminal)

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
        assert self._terminal is not None, "without a terminal nothing is drawn"
        data = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
        while data and (time.monotonic() < until if until else not self._is_over):
            try:
                data = data[os.write(self._terminal, data) :]
            except BlockingIOError:
                select.select((), (self._terminal,), (), _LOOK)


def _as_written(rows: Sequence[Text]) -> list[str]:
    """Return rows with their colours, as far as this terminal has any."""
    on = ctl_draw.console()
    with on.capture() as drawn:
        for row in rows:
            on.print(row, no_wrap=True, overflow="crop", crop=False)
    return drawn.get().split("\n")[: len(rows)]
