"""Somebody who starts agents, and ends some of them before they are done."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

from attrs import define, field

from intercom.local.places import Places
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal
from tests.chaos.terminal import Terminal

#: Seconds without kills in which any act is answered. A server that has just started decides nothing for five, and the
#: next kill may come before they are over, many times.
CALM = 60.0


@define
class Starter:
    """Keeps `at_once` agents running, in `workspace`, and clears `clears` in ten.

    `started` maps the names of those who were started to their sessions, `cleared` holds the names of those who were
    ended; `refusals` what was refused and should not have been.
    """

    places: Places
    workspace: Path
    seed: str
    at_once: int = 2
    clears: int = 5
    pause: float = 0.1
    started: dict[str, str | None] = field(factory=dict)
    cleared: set[str] = field(factory=set)
    refusals: list[str] = field(factory=list)
    _over: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _terminal: Terminal = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._terminal = Terminal(self.places)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="starter")
        self._thread.start()

    def stop(self) -> None:
        """Start nobody any more."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * CALM)
        # Opened again if somebody asks what is running.
        self._terminal.close()

    def running(self, *, everything: bool = False) -> int | None:
        """How many of them run, also of those who were cleared with `everything`; None when nobody says."""
        # Without the cleared ones the answer does not grow with the run.
        listed = self._ask("list", {"everything": everything})
        return None if listed is None else sum(_is_going(session) for session in listed["sessions"])

    def _work(self) -> None:
        dice = random.Random(f"{self.seed}/starter")
        while not self._over.wait(self.pause * dice.uniform(0.5, 1.5)):
            running = self.running()
            if running is not None and running < self.at_once:
                self._start(f"c{len(self.started)}", dice)

    def _start(self, name: str, dice: random.Random) -> None:
        self.started[name] = None
        act = {"text": name, "workspace": str(self.workspace), "verdict_id": f"{dice.getrandbits(128):032x}"}
        told = self._ask("start", act)
        if told is None:
            return
        self.started[name] = told["session_id"]
        if dice.random() < self.clears / 10 and not self._over.wait(dice.uniform(0.0, 2.0)):
            self.cleared.add(name)
            self._ask("clear", {"session": told["session_id"], "verdict_id": f"{dice.getrandbits(128):032x}"})

    def _ask(self, verb: str, fields: dict[str, Any]) -> Any:
        """What the server says; None where it could not be had. An act that may not have come about is repeated: while
        servers are killed for as long as that takes, and then for `CALM` seconds."""
        until: float | None = None
        while until is None or time.monotonic() < until:
            try:
                return self._terminal.request(verb, fields, patience=10)
            except Refusal as refusal:
                if refusal.code not in ("unavailable", "busy"):
                    if refusal.code != "too_many_sessions":
                        self.refusals.append(f"{verb} {fields}: {refusal.code}: {refusal}")
                    return None
            except (NoServer, OSError, IntercomError):
                pass
            if verb == "list":
                return None
            if until is None and self._over.is_set():
                until = time.monotonic() + CALM
            time.sleep(0.2)
        self.refusals.append(f"{verb} {fields} was not answered")
        return None


def _is_going(session: dict[str, Any]) -> bool:
    process = session["process"]
    return process is not None and process["state"] != "over"
