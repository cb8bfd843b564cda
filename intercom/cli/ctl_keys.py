"""`watch` on a terminal: a person reads cards as they come, and a key answers the one before them."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Any

from intercom.cli import ctl_draw
from intercom.cli.ctl_board import Act, Board, request_of
from intercom.cli.ctl_text import clean, done_line
from intercom.cli.ctl_watch import GONE, NONE_YET, again, first
from intercom.local.places import Places
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal, Watch, request

#: Seconds in which no key answers a card that took, unasked, the place of the one the person was looking at.
LOOK = 2.0

#: What reading a key gives where typing has ended.
_END = ("", "\x04")

#: What is not shown once more of a card that has ended.
_ENDED: dict[str, Any] = {"diff": None, "diff_omitted": False, "description": None, "detail": None, "files": ()}


class Keys:
    """A person at a terminal: cards scroll by, the line at the bottom says which keys answer the current one."""

    def __init__(self, where: Places) -> None:
        self._where = where
        self._board = Board()
        self._console = ctl_draw.console()
        self._answered: set[str] = set()
        self._look_until = 0.0

    def run(self) -> int:
        """Until the person quits (0) or the server ends the watch (1). Raises Refusal and IpcError as `again`."""
        line = first(self._where)
        try:
            with _keys_at_once():
                if line is None:
                    line = self._awaited(NONE_YET, "a server is here")
                self._prompt()
                while True:
                    # A key first: a person waits for it, and a flood of cards must not keep them from quitting.
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
        print("[q]uit", end="", flush=True)
        line = again(self._where, _pause)
        self._board.restart()
        self._say(then)
        return line

    def _show(self, events: list[dict[str, Any]]) -> bool:
        """Show what came; True when the server ended the watch."""
        self._wipe()
        for event in events:
            data = event["data"]
            if event["event"] != "card":
                ctl_draw.draw_notice(self._console, data)
                if event["event"] == "dropped":
                    return True
                continue
            known = self._board.current
            moved = self._board.take(data)
            if data["status"] != "pending":
                ctl_draw.draw_card(self._console, {**data, **_ENDED}, ctl_draw.now(), ctl_draw.PENDING_LINES)
            elif not moved and known is not None and known["request_id"] != data["request_id"]:
                self._console.print(clean(f"+ {data['kind']}: {data['title']}".replace("\n", " ")), soft_wrap=True)
            if moved:
                if known is not None and known["request_id"] not in self._answered:
                    self._look_until = time.monotonic() + LOOK
                self._current()
        self._prompt()
        return False

    def _current(self) -> None:
        card = self._board.current
        if card is not None:
            self._console.print()
            ctl_draw.draw_card(self._console, card, ctl_draw.now(), ctl_draw.PENDING_LINES, hints=False)

    def _pressed(self) -> bool:
        """Do what the key asks for; False to quit."""
        key = _key()
        if key in _END:
            return False
        act = self._board.key(key)
        if act is None:
            return True
        self._wipe()
        if act.word == "quit":
            return False
        if act.word == "next":
            if self._board.next():
                self._current()
        elif act.word == "view whole":
            self._view(act)
        elif time.monotonic() < self._look_until:
            self._say("another card has just come before you; look, then press again")
        else:
            self._answer(act)
        self._prompt()
        return True

    def _view(self, act: Act) -> None:
        if act.card is None:
            return
        with self._told():
            whole = request(self._where, "show", {"id": act.card["request_id"]})
            ctl_draw.draw_card(self._console, whole, ctl_draw.now(), hints=False)

    def _answer(self, act: Act) -> None:
        text: str | None = None
        if act.wants:
            text = _ask_words(f"{act.word}, with what words{' (may be empty)' if act.wants == 'may' else ''}? ")
            if text is None or (act.wants == "must" and not text):
                self._say(f"{act.word} left undone")
                return
        verb, fields = request_of(act, text)
        with self._told():
            done = request(self._where, verb, fields)
            self._answered.add(fields["id"])
            self._say(done_line(done))

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except NoServer:
            self._say("no server answers just now; try the key again")
        except (Refusal, IntercomError, OSError) as error:
            self._say(str(error))

    def _say(self, text: str) -> None:
        self._wipe()
        self._console.print(clean(text), soft_wrap=True)

    def _prompt(self) -> None:
        self._wipe()
        print(self._board.prompt(), end="", flush=True)

    def _wipe(self) -> None:
        print("\r\x1b[K", end="", flush=True)


class _Quit(Exception):
    """The person wants no more."""


def _pause(seconds: float) -> None:
    """Wait for so long, or less where a key was pressed; raises _Quit if that is what it says."""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if ready and _key() in (*_END, "q"):
        raise _Quit


def _key() -> str:
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace").lower()


def _ask_words(question: str) -> str | None:
    """A line typed by the person, with the terminal as it usually is; None when they think better of it (^C, ^D)."""
    descriptor = sys.stdin.fileno()
    raw = termios.tcgetattr(descriptor)
    usual = termios.tcgetattr(descriptor)
    usual[3] |= termios.ICANON | termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSADRAIN, usual)
    try:
        return input(question).strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, raw)


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
