"""The inbox as it is shown until Textual is imported: the cards arrive long before that is done.

No card is selected in it and no key counts, which its last line says. Textual draws over it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import zip_longest

from rich.text import Text

from intercom.cli import ctl_draw
from intercom.cli.inbox.board import Board
from intercom.cli.inbox.card_rows import Rows
from intercom.cli.inbox.feed import Feed, Link
from intercom.cli.inbox.pages import TWO_PANES, View, card_row, nothing_lines, tabs_line
from intercom.model.card import Card

#: The last line, in which the keys are shown later.
STARTING = "starting: no key counts yet"
#: Seconds between two drawings of what arrives.
_BURST = 0.05
#: The rows that are not for the panes: the tabs, the sentence and the keys.
_BARS = 3
#: The widest list, as in `panes.LAYOUT`.
_WIDEST_LIST = 70

#: What takes the whole terminal, and gives it back.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


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


class FirstFrame:
    """Shows the first cards on the whole terminal, until `end` is called."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        # A program in the background may not write over what another one shows.
        self._is_over = _is_in_background()
        self._is_shown = False
        self._drew_at = 0.0

    @contextlib.contextmanager
    def shown(self) -> Iterator[FirstFrame]:
        """Show what arrives while the block runs. What was shown stays for the inbox to draw over, unless the block
        raises: then the terminal is as it was before."""
        with _signals():
            try:
                # What has arrived already is drawn here and now, and may be interrupted as well.
                self._feed.notify(self._draw)
                yield self
            except BaseException:
                self.end()
                if self._is_shown:
                    # Once more if the inbox has done so, which changes nothing.
                    _write(LEAVE)
                raise

    def end(self) -> None:
        """Draw nothing any more."""
        with self._lock:
            self._is_over = True

    def _draw(self) -> None:
        """Draw what has arrived. Called in the feed's thread as a rule."""
        with self._lock:
            if self._is_over or time.monotonic() < self._drew_at + _BURST:
                return
            arrived = [each.what for each in self._feed.arrived()]
            cards = [each for each in arrived if isinstance(each, Card)]
            links = [each for each in arrived if isinstance(each, Link)]
            if not cards or links[-1:] != [Link.UP]:
                return
            board = Board()
            for card in cards:
                board.take(card)
            size = shutil.get_terminal_size()
            rows = _as_written(frame(board, size.columns, size.lines, ctl_draw.now()))
            places = (f"\x1b[{number};1H{row}\x1b[K" for number, row in enumerate(rows, 1))
            enter, self._is_shown = "" if self._is_shown else ENTER, True
            _write(enter + "".join(places))
            self._drew_at = time.monotonic()


def _is_in_background() -> bool:
    try:
        return os.tcgetpgrp(sys.stdout.fileno()) != os.getpgrp()
    except OSError:
        # It is not this program's controlling terminal.
        return False


def _as_written(rows: Sequence[Text]) -> list[str]:
    """Return rows with their colours, as far as this terminal has any."""
    on = ctl_draw.console()
    with on.capture() as drawn:
        for row in rows:
            on.print(row, no_wrap=True, overflow="crop", crop=False)
    return drawn.get().split("\n")[: len(rows)]


def _write(text: str) -> None:
    data = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """End the block on SIGTERM, so that the terminal is given back, and do not stop amid it. Textual sets its own
    handlers once it has the terminal."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, end)}
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
