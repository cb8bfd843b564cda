"""What the inbox gets from the server and sends to it: a thread that watches, across restarts, and the decisions.

It starts before Textual is imported, so the cards arrive while the screen is being prepared. It does not import
Textual.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from attrs import frozen

from intercom.cli import key_agent
from intercom.cli.ctl_sign import Card as CardEntry
from intercom.cli.ctl_sign import Sender, summary
from intercom.cli.ctl_text import clean, count, one_line
from intercom.cli.inbox.board import Waiting, label, needs_terminal, request_of
from intercom.local.places import Places
from intercom.model.card import Card
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject
from intercom.operators.commands.json_forms import card_entry, read
from intercom.operators.ctl.client import MAY_BE_DONE, NoServer, Refusal, Watch, request


class Link(Enum):
    """The state of the connection to the server, as people read it."""

    CONNECTING = "connecting"
    UP = "connected"
    NONE_YET = "no server runs yet; waiting for one"
    GONE = "the server went away; waiting for it"
    REFUSED = "the server refuses this watch"


@frozen
class Arrived:
    """What arrived since the last look, in order: cards, lines of notices, and changes of the connection."""

    what: Card | str | Link
    level: str = ""


class Feed:
    """Watches the server in a thread of its own. `take` returns what arrived; `on_arrival` is called, in that thread,
    whenever something arrives. `fault` says why it ended, if it did."""

    def __init__(self, where: Places) -> None:
        self.where = where
        self.fault: Refusal | IntercomError | None = None
        self._lock = threading.Lock()
        self._arrived: list[Arrived] = []
        self._on_arrival: Callable[[], object] | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        # A daemon: it may be waiting for bytes when the program ends.
        threading.Thread(target=self._run, name="inbox-feed", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def notify(self, on_arrival: Callable[[], object]) -> None:
        """Call this, and nothing else, whenever something has arrived; at once if something has already."""
        with self._lock:
            self._on_arrival = on_arrival
            is_late = bool(self._arrived)
        if is_late:
            on_arrival()

    def arrived(self) -> list[Arrived]:
        """Return what has arrived since the last `take`, and leave it there."""
        with self._lock:
            return list(self._arrived)

    def take(self) -> list[Arrived]:
        """Return what has arrived since the last call."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return arrived

    def _put(self, arrived: list[Arrived]) -> None:
        if not arrived:
            return
        with self._lock:
            self._arrived += arrived
            on_arrival = self._on_arrival
        if on_arrival is not None:
            on_arrival()

    def _run(self) -> None:
        from intercom.cli.ctl_watch import again, first

        try:
            line = first(self.where)
            if line is None:
                self._put([Arrived(Link.NONE_YET)])
            while not self._stopped.is_set():
                with line or again(self.where, self._pause) as found:
                    self._put([Arrived(Link.UP)])
                    self._read(found)
                line = None
                self._put([Arrived(Link.GONE)])
        except _Stopped:
            pass
        except (Refusal, IntercomError) as fault:
            self.fault = fault
            self._put([Arrived(Link.REFUSED)])

    def _read(self, line: Watch) -> None:
        """Read events until the connection ends, or the server ends the watch because it was read too slowly."""
        with contextlib.suppress(EOFError):
            while True:
                events = line.read()
                self._put(
                    [
                        Arrived(read(Card, event.data))
                        if event.name == "card"
                        else Arrived(str(event.data.get("text", "")), str(event.data.get("level", "")))
                        for event in events
                    ]
                )
                if any(event.name == "dropped" for event in events):
                    return

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _Stopped


class SendResult(NamedTuple):
    """What became of a decision: whether it was carried out, a sentence about it, and the id under which the server
    recorded it; empty if it did not say so."""

    is_done: bool
    sentence: str
    decision_id: str = ""


def sent_together(where: Places, due: Sequence[Waiting], whole: Collection[str]) -> list[SendResult]:
    """Send decisions, one after the other, and return what became of each. `whole` are the ids of the cards that were
    on the screen to their end.

    If the PIN is asked for, it is typed once for all of them, after all that it signs was said, and whatever was not on
    the screen to its end was shown whole. A critical decision asks for it again.
    """
    cards = {waits.act.card.id: waits.act.card for waits in due if waits.act.card is not None}
    sender = Sender(where, "send " + count(len(due), "decision") if len(due) > 1 else "")
    shown: dict[str, CardEntry] = {id: card_entry(card) for id, card in cards.items() if id in whole}
    try:
        if len(due) > 1 and sender.asks_pin():
            shown |= _shown_whole(where, [card for id, card in cards.items() if id not in whole])
            key_agent.say(_announcement(due, shown))
    except KeyboardInterrupt:
        return [_undone(waits) for waits in due]
    except (NoServer, Refusal, IntercomError, OSError):
        # What is wrong is said of each decision.
        pass
    return [sent(where, waits, sender, shown) for waits in due]


def _shown_whole(where: Places, cards: Sequence[Card]) -> dict[str, CardEntry]:
    """Show cards whole at the terminal, and return them as they were shown, by their ids."""
    from intercom.cli.ctl_draw import console, now, print_card

    shown = {}
    for card in cards:
        entry = request(where, "show", {"id": card.id}) if card.diff_omitted else card_entry(card)
        print_card(console(), read(Card, entry), now(), hints=False)
        shown[card.id] = entry
    return shown


def _announcement(due: Sequence[Waiting], shown: Mapping[str, CardEntry]) -> str:
    """Say what one PIN is about to sign."""
    lines = [f"you sign these {len(due)} decisions:"]
    for waits in due:
        card = waits.act.card
        word = label(waits.act.word)
        lines.append(one_line(f"{word} {waits.act.name}") if card is None else summary(word, shown[card.id]))
    return "\n".join(lines)


def sent(where: Places, waits: Waiting, sender: Sender, shown: Mapping[str, CardEntry]) -> SendResult:
    """Send one decision, and return what became of it. `shown` are the cards that the person has seen whole; if
    decisions are signed, another one is fetched and shown whole before the PIN is typed."""
    act = waits.act
    try:
        if needs_terminal(act):
            return _at_terminal(where, waits)
        verb, fields = request_of(act, waits.text)
        entry = None if act.card is None else shown.get(act.card.id)
        done = sender.send(verb, dict(fields), card=entry)
    except NoServer as none:
        about = f"{label(act.word)} {act.name}"
        if none.may_be_done:
            return SendResult(False, f"{about}: no server answers; {MAY_BE_DONE}")
        return SendResult(False, f"not sent: {about}, because no server answers; try the key again")
    except (Refusal, IntercomError, OSError) as fault:
        return SendResult(False, f"{label(act.word)} {act.name}: {fault}")
    except KeyboardInterrupt:
        return _undone(waits)
    note = f": {done['note']}" if done.get("note") else ""
    return SendResult(True, f"{done.get('status', 'done')} {act.name}{note}", _decision_id(done))


def _decision_id(done: JsonObject) -> str:
    return str(done.get("decision_id") or "")


def _undone(waits: Waiting) -> SendResult:
    return SendResult(False, f"{label(waits.act.word)} left undone: {waits.act.name}")


def _at_terminal(where: Places, waits: Waiting) -> SendResult:
    """Do at the terminal, which is not the inbox's now, what the command of an action does."""
    from intercom.cli.ctl_amend import decide_one
    from intercom.cli.ctl_grant import grant

    act = waits.act
    assert act.card is not None, "these are about a card"
    decision_id = ""
    try:
        if act.word == "grant":
            is_done = grant(where, {"id": act.card.id}, yes=False, as_json=False) == 0
        else:
            command = "changes" if act.word == "changes" else "approve"
            hunks = waits.text if act.word == "hunks" else None
            options = Namespace(
                id=[act.card.id], all=False, json=False, edit=act.word == "edit", hunks=hunks, comment=None, file=None
            )
            answer = decide_one(where, command, {"id": act.card.id}, options)
            is_done, decision_id = answer is not None, _decision_id(answer or {})
    except (NoServer, Refusal, IntercomError, OSError) as fault:
        # The inbox would cover at once where the person's text was kept.
        print(clean(str(fault) or "no server answers"), file=sys.stderr)
        _wait_for_enter()
        raise
    _wait_for_enter()
    about = f"{label(act.word)} {act.name}"
    return SendResult(is_done, f"{about}: {'done' if is_done else 'nothing was decided'}", decision_id)


def _wait_for_enter() -> None:
    with contextlib.suppress(EOFError):
        input("press enter to go back to the inbox ")


class _Stopped(Exception):
    """Raised in the thread if the inbox ends."""
