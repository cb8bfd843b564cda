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

#: Seconds a watch waits for a server that went away to come back.
RETURN = 30.0

_PAUSE = 0.2


def watch(where: Places, *, as_json: bool = False) -> int:
    """Watch until quit or interrupted. Raises NoServer when there is none, or none came back; Refusal when refused."""
    if as_json:
        return _follow(where, lambda event: print(json.dumps(event), flush=True))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _follow(where, _print_event)
    from intercom.cli.ctl_keys import Keys

    return Keys(where).run()


def watch_tree(where: Places, *, as_json: bool = False, every: float = 1.0) -> int:
    """Draw the tree again every `every` seconds until interrupted; as JSON, one line each time.

    A server that goes away is waited for as `watch` does. Raises NoServer or Refusal.
    """
    data = request(where, "tree", {})
    seen = time.monotonic()
    while True:
        if as_json:
            print(json.dumps(data), flush=True)
        else:
            if sys.stdout.isatty():
                # Home, and clear what is below: less flicker than clearing first.
                print("\x1b[H\x1b[J", end="")
            ctl_draw.show("tree", data)
            sys.stdout.flush()
        time.sleep(every)
        while True:
            try:
                data, seen = request(where, "tree", {}), time.monotonic()
                break
            except NoServer:
                if time.monotonic() - seen >= RETURN:
                    raise
            time.sleep(_PAUSE)


def _follow(where: Places, show: Callable[[dict[str, Any]], None]) -> int:
    with contextlib.closing(_events(where)) as events:
        for event in events:
            show(event)
            if event["event"] == "dropped":
                return 1
    return 0


def _events(where: Places) -> Generator[dict[str, Any]]:
    """Events for ever, over restarts of the server."""
    with Watch(where) as first:
        yield from _read(first)
    while True:
        with again(where) as line:
            yield from _read(line)


def _read(line: Watch) -> Generator[dict[str, Any]]:
    with contextlib.suppress(EOFError):
        while True:
            yield from line.read()


def again(where: Places) -> Watch:
    """A new watch in place of one that ended, within RETURN seconds; raises as `Watch` when there is none by then."""
    deadline = time.monotonic() + RETURN
    while True:
        time.sleep(_PAUSE)
        try:
            return Watch(where)
        except (NoServer, Refusal):
            # A server that is just starting may also not know our token yet, or have too many callers.
            if time.monotonic() >= deadline:
                raise


def _print_event(event: dict[str, Any]) -> None:
    on = ctl_draw.console()
    if event["event"] == "card":
        ctl_draw.show("show", event["data"], on)
        on.print()
    else:
        ctl_draw.draw_notice(on, event["data"])
    sys.stdout.flush()
