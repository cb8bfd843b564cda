"""Operators who answer at random and remember what they were told of each verdict."""

from __future__ import annotations

import random
import threading
from typing import Any

from attrs import frozen

from intercom.local.places import Places
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal
from tests.chaos.terminal import Terminal


@frozen
class Given:
    """A verdict that was given: `outcome` is "recorded", "refused" (with the `code`), or "unknown" when no server
    answered in time."""

    request_id: str
    verdict_id: str
    decision: str
    text: str | None
    outcome: str
    code: str | None = None


class Operators:
    """Several operators, each at a terminal of its own, who may answer the same request at the same moment.

    They descend from nothing that is an agent's, so their verdicts count. `later` is how often one leaves a card for
    another look, or for somebody else.
    """

    def __init__(self, places: Places, seed: str, *, later: float = 0.4, count: int = 2) -> None:
        self._later = later
        self.given: list[Given] = []
        #: What became of each attempt to take a decision back.
        self.taken_back: list[str] = []
        self.nudges: dict[str, str] = {}
        self.nudged: dict[str, str] = {}
        self.stuck: list[str] = []
        self.refusals: list[str] = []
        self.pending: int | None = None
        self._places = places
        self._paused: str | None = None
        self._guard = threading.Lock()
        #: Held while a request may be opened again.
        self._opening = threading.Lock()
        #: The terminal of the operator whose thread this is.
        self._own = threading.local()
        self._over = threading.Event()
        self._final = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed}/{n}"), n), name=f"operator {n}")
            for n in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """From here on answer whatever waits, also what was meant to run out of time."""
        with self._opening:
            self._final.set()
            self.pending = None

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _work(self, dice: random.Random, number: int) -> None:
        with Terminal(self._places) as self._own.terminal:
            while not self._over.is_set():
                self._look_around(dice, number)

    def _look_around(self, dice: random.Random, number: int) -> None:
        cards = self._ask("pending", {})
        if cards is None:
            return
        if number == 0:
            self.pending = len(cards)
        for card in cards:
            if self._over.is_set():
                return
            self._look_at(card, dice)
        if number == 0 and cards and dice.random() < 0.2:
            self._nudge(dice.choice(cards)["session_id"], dice)
        if number == 0:
            self._pause_one(cards, dice)
        self._over.wait(dice.uniform(0.01, 0.15))

    def _look_at(self, card: dict[str, Any], dice: random.Random) -> None:
        if card["kind"] not in ("approval", "prompt", "standby"):
            self.stuck.append(f"{card['kind']} {card['title']}: {card['detail'] or card['note']}")
            return
        if "brief" in f"{card['title']} {card['description']}" and not self._final.is_set():
            # Left to run out of time, unless somebody is very quick.
            if dice.random() < 0.97:
                return
        elif dice.random() < self._later and not self._final.is_set():
            return
        mark = f"{dice.getrandbits(40):010x}"
        if card["kind"] == "approval":
            verb, fields = ("approve", {}) if dice.random() < 0.7 else ("reject", {"reason": f"no: {mark}"})
            decision, text = verb, fields.get("reason")
        else:
            verb = "answer"
            decision = dice.choice(["continue", "refine", "stop"])
            text = f"rather: {mark}" if decision == "refine" else None
            fields = {"decision": decision, **({"text": text} if text else {})}
        verdict_id = f"{dice.getrandbits(128):032x}"
        self._give(verb, {"id": card["request_id"], "verdict_id": verdict_id, **fields}, decision, text)
        if dice.random() < 0.1:
            # The finger slips: the same verdict once more must be the same act.
            self._give(verb, {"id": card["request_id"], "verdict_id": verdict_id, **fields}, decision, text)
        if dice.random() < 0.3:
            self._take_back({"id": card["request_id"], "verdict_id": f"{dice.getrandbits(128):032x}"})

    def _give(self, verb: str, fields: dict[str, Any], decision: str, text: str | None) -> None:
        outcome, code = "recorded", None
        try:
            self._own.terminal.request(verb, fields, patience=30)
        except Refusal as refusal:
            outcome, code = "refused", refusal.code
            if code not in ("already_decided", "unavailable", "busy"):
                self.refusals.append(f"{verb} {fields['id']}: {code}: {refusal}")
            if code in ("unavailable", "busy"):
                outcome = "unknown"
        except (NoServer, OSError, IntercomError):
            outcome = "unknown"
        with self._guard:
            self.given.append(Given(fields["id"], fields["verdict_id"], decision, text, outcome, code))

    def _take_back(self, act: dict[str, Any]) -> None:
        """Take a decision back. As a rule the agent has it by then, and this is refused."""
        with self._opening:
            # Not at the end: what is open then has nobody to answer it.
            if not self._final.is_set():
                self.taken_back.append(self._act("take-back", act))

    def _pause_one(self, cards: list[dict[str, Any]], dice: random.Random) -> None:
        """Let one session stand still until the next look, unless another does."""
        if self._paused is not None:
            # Refused is it only where there is nothing paused any more: the session may be over.
            if self._act("unpause", {"session": self._paused}) != "unknown":
                self._paused = None
        elif cards and not self._final.is_set() and dice.random() < 0.1:
            self._paused = dice.choice(cards)["session_id"]
            self._act("pause", {"session": self._paused})

    def _act(self, verb: str, fields: dict[str, Any]) -> str:
        try:
            self._own.terminal.request(verb, fields, patience=30)
        except Refusal as refusal:
            if refusal.code == "unauthorized":
                self.refusals.append(f"{verb} {fields}: {refusal}")
            return "unknown" if refusal.code in ("unavailable", "busy") else "refused"
        except (NoServer, OSError, IntercomError):
            return "unknown"
        return "recorded"

    def _nudge(self, session_id: str, dice: random.Random) -> None:
        words = f"nudge {dice.getrandbits(40):010x}"
        self.nudged[words] = session_id
        try:
            self._own.terminal.request("nudge", {"id": session_id, "text": words})
            self.nudges[words] = "recorded"
        except (Refusal, NoServer, OSError, IntercomError) as failed:
            if isinstance(failed, Refusal) and failed.code == "unauthorized":
                self.refusals.append(f"nudge {session_id}: {failed}")
            self.nudges[words] = "unknown"

    def _ask(self, verb: str, fields: dict[str, Any]) -> Any:
        try:
            return self._own.terminal.request(verb, fields, patience=0.5)
        except (Refusal, NoServer, OSError, IntercomError):
            self._over.wait(0.05)
            return None
