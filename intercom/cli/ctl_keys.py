"""`watch` on a terminal: cards are announced as they come, and keys answer the one that the person selected.

What the keys do is asked under the card's own name. Keys typed before a question was on the screen are discarded.
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

#: What reading a key gives where typing has ended.
_END = ("", "\x04")

#: What is not shown once more of a card that has ended.
_ENDED: dict[str, Any] = {"diff": None, "diff_omitted": False, "description": None, "detail": None, "files": ()}


class Keys:
    """A person at a terminal: cards scroll by, the lines at the bottom name the selected one and its keys."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._board = Board()
        self._console = ctl_draw.console()
        self._repeats = Repeats()
        self._prompted = _Prompted()

    def run(self) -> int:
        """Until the person quits (0) or the server ends the watch (1). Raises Refusal and IpcError as `again`."""
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
                    # A key first: it was typed for what is on the screen now. A flood of cards must not keep a person
                    # from quitting either.
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
        """The next server's watch, however long that takes; raises _Quit when the person does not want to wait."""
        self._say(why)
        self._prompted.show("[q]uit")
        line = again(self._where, _pause)
        self._board.restart()
        _discard_typed()
        self._say(then)
        return line

    def _show(self, events: list[dict[str, Any]]) -> bool:
        """Show what came; True when the server ended the watch."""
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
        """Do what the key asks for; False to quit."""
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
    """The question at the bottom of the screen, which is taken away before anything else is printed."""

    def __init__(self) -> None:
        self._text = ""
        self._width = 0

    def show(self, text: str) -> None:
        self.wipe()
        print(text, end="", flush=True)
        self._text, self._width = text, _width()

    def wipe(self) -> None:
        # A terminal that was resized may have laid the lines out again: then only the last is sure to be ours.
        rows = sum(max(1, -(-cell_len(line.rstrip()) // self._width)) for line in self._text.split("\n") if self._width)
        up = f"\x1b[{rows - 1}A" if rows > 1 and self._width == _width() else ""
        print(f"\r{up}\x1b[J", end="", flush=True)
        self._text, self._width = "", 0


def _width() -> int:
    return max(1, shutil.get_terminal_size().columns)


class _Quit(Exception):
    """The person wants no more."""


def _pause(seconds: float) -> None:
    """Wait for so long, or less where a key was pressed; raises _Quit if that is what it says."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if ready and _key() in (*_END, "q"):
        raise _Quit


def _key() -> str:
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace").lower()


def _discard_typed() -> None:
    """Forget what was typed so far: it was meant for another question than the next."""
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _agreed(question: str) -> bool:
    """Whether the person answers this question with y."""
    _discard_typed()
    print(question, end="", flush=True)
    is_yes = _key() == "y"
    print("y" if is_yes else "")
    return is_yes


def _ask_words(question: str) -> str | None:
    """A line typed by the person, with the terminal as it usually is; None when they think better of it (^C, ^D)."""
    descriptor = sys.stdin.fileno()
    raw = termios.tcgetattr(descriptor)
    usual = termios.tcgetattr(descriptor)
    usual[3] |= termios.ICANON | termios.ECHO
    # What was typed before the question is no answer to it.
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
    """Have keys come one by one and unseen; the terminal is put back whatever happens."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        print()
