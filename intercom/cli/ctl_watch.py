"""`watch` and `tree --watch`: what is live. On a terminal a key answers; elsewhere cards and notices are printed."""

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

#: Seconds a watch that is refused tries again: a server that is just starting may not know our token yet, or have too
#: many callers.
REFUSED = 30.0

_PAUSE = 0.2
#: Seconds between two looks for a server once one has been waited for so long.
_LONG_PAUSE = 1.0
_LONG = 30.0

NONE_YET = "no server runs yet; waiting for one"
GONE = "the server went away; waiting for it"


def watch(where: Places, *, as_json: bool = False) -> int:
    """Watch until quit or interrupted; where no server runs, one is waited for. Raises Refusal when refused."""
    if as_json:
        return _follow(where, lambda event: print(json.dumps(event), flush=True))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _follow(where, _Printer().show)
    from intercom.cli import ticket
    from intercom.cli.ctl_keys import Keys

    # Said now: a terminal's key signs for what asked as soon as it was started.
    ticket.key_of(where)

    return Keys(where).run()


def watch_tree(where: Places, *, as_json: bool = False, every: float = 1.0) -> int:
    """Draw the tree again every `every` seconds until interrupted; as JSON, one line each time.

    A server is waited for as `watch` does. Raises Refusal.
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
                # Home, and clear what is below: less flicker than clearing first.
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
    """Events for ever, over restarts of the server."""
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
    """A watch, or None where no server is; raises Refusal."""
    try:
        return Watch(where)
    except NoServer:
        return None


def again(where: Places, pause: Callable[[float], None]) -> Watch:
    """A watch as soon as there is a server, however long that takes.

    `pause` is called before each try, with how many seconds it is to take; what it raises ends the wait. Raises Refusal
    when it was refused for REFUSED seconds, and IpcError for a socket that is not this user's.
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
    """Tells a card that says the same as the last with its id: an agent may have been told a rejection, for instance,
    which a card of its own announces, with nothing new to see."""

    #: So many cards are remembered.
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
    """Prints what comes, for a reader that is no terminal."""

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
