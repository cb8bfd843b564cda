"""`watch` on a terminal: announces cards as they come, and answers the selected card with keys.

Every question names its card. Keys typed before a question was on the screen are discarded.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len

from intercom.cli import ctl_draw
from intercom.cli.ctl_board import Act, Board, line_count, named, request_of
from intercom.cli.ctl_sign import NO_KEY, send
from intercom.cli.ctl_text import clean, one_line
from intercom.cli.ctl_watch import GONE, NONE_YET, Repeats, again, first
from intercom.local.places import Places
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal, Watch, request

#: What a read of a key returns at the end of input.
_END = ("", "\x04")

#: The fields of a closed card that are not shown again.
_ENDED: dict[str, Any] = {"diff": None, "diff_omitted": False, "description": None, "detail": None, "files": ()}


class Keys:
    """The interactive watch: cards scroll by, and the bottom lines name the selected card and its keys."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._board = Board()
        self._console = ctl_draw.console()
        self._repeats = Repeats()
        self._prompted = _Prompted()

    def run(self) -> int:
        """Run until the person quits (0) or the server ends the watch (1). Raises Refusal and IpcError like `again`."""
        line = first(self._where)
        try:
            with _keys_at_once():
                if line is None:
                    line = self._awaited(NONE_YET, "a server is here")
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
        _discard_typed()
        self._say(then)
        return line

    def _show(self, events: list[dict[str, Any]]) -> bool:
        """Show the events. Returns True if the server ended the watch."""
        self._prompted.wipe()
        is_other_question = False
        for event in events:
            data = event["data"]
            if event["event"] != "card":
                ctl_draw.draw_notice(self._console, data)
                if event["event"] == "dropped":
                    return True
                continue
            is_new = not self._board.is_open(data["request_id"])
            changed = self._board.take(data)
            is_other_question |= changed
            if data["status"] != "pending":
                if not self._repeats.is_repeat(data):
                    ctl_draw.draw_card(self._console, {**data, **_ENDED}, ctl_draw.now(), ctl_draw.PENDING_LINES)
            elif changed:
                self._console.print(clean("the selected card has changed:"))
                self._selected()
            elif is_new:
                self._console.print(one_line(f"+ {data['kind']} {named(data)}"), soft_wrap=True)
        if is_other_question:
            _discard_typed()
        self._prompt()
        return False

    def _selected(self) -> None:
        card = self._board.selected
        if card is not None:
            self._console.print()
            ctl_draw.draw_card(self._console, card, ctl_draw.now(), ctl_draw.PENDING_LINES, hints=False)
            self._board.saw(card, min(line_count(card), ctl_draw.PENDING_LINES))

    def _pressed(self) -> bool:
        """Carry out the pressed key. Returns False to quit."""
        key = _key()
        if key in _END:
            return False
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
        _discard_typed()
        self._prompt()
        return True

    def _view(self, act: Act) -> None:
        assert act.card is not None, "there is nothing to view where none is selected"
        with self._told():
            whole = request(self._where, "show", {"id": act.card["request_id"]})
            ctl_draw.draw_card(self._console, whole, ctl_draw.now(), hints=False)
            self._board.take(whole)
            self._board.saw(whole, max(1, line_count(whole)))

    def _answer(self, act: Act) -> None:
        assert act.card is not None, "only a selected card has keys"
        name = named(act.card)
        text: str | None = None
        if act.wants:
            may = " (may be empty)" if act.wants == "may" else ""
            text = _ask_words(clean(f"{act.word} {name}, with what words{may}? "))
            if text is None or (act.wants == "must" and not text):
                self._say(f"{act.word} left undone: {name}")
                return
        question = self._board.question(act)
        if question is not None and not _agreed(clean(question)):
            self._say(f"{act.word} left undone: {name}")
            return
        verb, fields = request_of(act, text)
        with self._told():
            done = send(self._where, verb, fields, card=act.card)
            note = f": {done['note']}" if done.get("note") else ""
            self._say(f"{done['status']} {name}{note}")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except NoServer:
            self._say("no server answers just now; try the key again")
        except (Refusal, IntercomError, OSError) as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        self._prompted.wipe()
        self._console.print(clean(text), soft_wrap=True)

    def _prompt(self) -> None:
        self._prompted.show(clean(self._board.prompt()))


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


def _discard_typed() -> None:
    """Discard typed input: it was meant for an earlier question."""
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _agreed(question: str) -> bool:
    """Ask the question, and return whether the person answers y."""
    _discard_typed()
    print(question, end="", flush=True)
    is_yes = _key() == "y"
    print("y" if is_yes else "")
    return is_yes


def _ask_words(question: str) -> str | None:
    """Read a line from the person with normal terminal settings. Returns None if they cancel (^C, ^D)."""
    descriptor = sys.stdin.fileno()
    raw = termios.tcgetattr(descriptor)
    usual = termios.tcgetattr(descriptor)
    usual[3] |= termios.ICANON | termios.ECHO
    # Flush: input typed before the question does not answer it.
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, usual)
    try:
        return input(question).strip()
    except (EOFError, KeyboardInterrupt):
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
