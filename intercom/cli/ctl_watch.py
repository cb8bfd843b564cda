"""`watch` and `tree --watch`: the live views. On a terminal keys answer; elsewhere cards and notices are printed."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

from intercom.cli import ctl_draw
from intercom.local.places import Places
from intercom.operators.ctl.client import NoServer, Refusal, Watch, request

#: Seconds for which a refused watch tries again: a server that is just starting may not know our token yet, or have too
#: many connections.
REFUSED = 30.0

_PAUSE = 0.2
#: Seconds between two attempts after waiting for `_LONG` seconds.
_LONG_PAUSE = 1.0
_LONG = 30.0

NONE_YET = "no server runs yet; waiting for one"
GONE = "the server went away; waiting for it"


def watch(where: Places, *, as_json: bool = False) -> int:
    """Watch until the person quits or interrupts. If no server runs, wait for one. Raises Refusal."""
    if as_json:
        return _follow(where, lambda event: print(json.dumps(event), flush=True))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _follow(where, _Printer().show)
    from intercom.cli import ticket
    from intercom.cli.ctl_keys import Keys

    # Contact the key holder now: it signs only for processes that contact it soon after their start.
    ticket.key_of(where)

    return Keys(where).run()


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


def _follow(where: Places, show: Callable[[dict[str, Any]], None]) -> int:
    with contextlib.closing(_events(where)) as events:
        for event in events:
            show(event)
            if event["event"] == "dropped":
                return 1
    return 0


def _events(where: Places) -> Generator[dict[str, Any]]:
    """Yield events without end, across restarts of the server."""
    line = first(where)
    if line is None:
        _say(NONE_YET)
    while True:
        with line or again(where, time.sleep) as found:
            yield from _read(found)
        line = None
        _say(GONE)


def _read(line: Watch) -> Generator[dict[str, Any]]:
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


class Repeats:
    """Detects a card that equals the last one with its id. A card is sent again, for example, when its agent has
    received a rejection; the person then has nothing new to see."""

    #: The most cards that are remembered.
    SIZE = 1000

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def is_repeat(self, card: dict[str, Any]) -> bool:
        id, says = card["request_id"], json.dumps(card, sort_keys=True)
        before = self._last.pop(id, None)
        self._last[id] = says
        if len(self._last) > self.SIZE:
            del self._last[next(iter(self._last))]
        return before == says


class _Printer:
    """Prints events if the output is not a terminal."""

    def __init__(self) -> None:
        self._repeats = Repeats()

    def show(self, event: dict[str, Any]) -> None:
        on = ctl_draw.console()
        if event["event"] != "card":
            ctl_draw.draw_notice(on, event["data"])
        elif not self._repeats.is_repeat(event["data"]):
            ctl_draw.show("show", event["data"], on)
            on.print()
        sys.stdout.flush()
