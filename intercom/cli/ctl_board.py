"""The board of `watch`: which cards are open, which one is before the person, and what a key means there. No I/O."""

from __future__ import annotations

from typing import Any, NamedTuple

#: For each kind of card: key, what it does, and whether it asks for words ("must", "may" or no).
KEYS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "approval": (("a", "approve", ""), ("r", "reject", "may")),
    "prompt": (("c", "continue", ""), ("f", "refine", "must"), ("s", "stop", "")),
    "standby": (("c", "continue", ""), ("f", "refine", "must"), ("s", "stop", "")),
    "stall": (("u", "nudge", "may"), ("s", "stop", ""), ("d", "dismiss", "")),
    "policy": (("a", "accept", ""), ("r", "reject", "may")),
    # Files must be put right first; the agent's next check_diff settles it.
    "apply": (),
    "restore": (("p", "proceed", ""), ("c", "cancel", "")),
}

ALWAYS = (("v", "view whole"), ("n", "next"), ("q", "quit"))


class Act(NamedTuple):
    """What a key asks for: a word of `KEYS` or `ALWAYS`, about which card, and whether words are wanted first."""

    word: str
    card: dict[str, Any] | None
    wants: str = ""


class Board:
    """The open cards, oldest first, and the one before the person."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Any]] = {}
        self._current: str | None = None

    @property
    def current(self) -> dict[str, Any] | None:
        """The card the keys are about; None while nothing waits."""
        return self._open.get(self._current or "")

    @property
    def waiting(self) -> int:
        return len(self._open)

    def take(self, card: dict[str, Any]) -> bool:
        """Take in a card as it is now; True when another card is before the person than a moment ago."""
        before = self._current
        if card["status"] == "pending":
            self._open[card["request_id"]] = card
        else:
            self._open.pop(card["request_id"], None)
        if self._current not in self._open:
            self._current = next(iter(self._open), None)
        return self._current != before

    def restart(self) -> None:
        """Forget everything: the server sends what is open anew."""
        self._open.clear()
        self._current = None

    def next(self) -> bool:
        """Go on to the card after the current one, round and round; True if there is another."""
        names = list(self._open)
        if len(names) < 2 or self._current is None:
            return False
        self._current = names[(names.index(self._current) + 1) % len(names)]
        return True

    def key(self, key: str) -> Act | None:
        """What a key means now; None for one that means nothing here."""
        for known, word in ALWAYS:
            if key == known:
                return Act(word, self.current)
        card = self.current
        for known, word, wants in KEYS.get(card["kind"], ()) if card else ():
            if key == known:
                return Act(word, card, wants)
        return None

    def prompt(self) -> str:
        """The line that says which keys there are."""
        card = self.current
        if card is None:
            return "nothing waits; [q]uit "
        words = [(key, word) for key, word, _ in KEYS.get(card["kind"], ())]
        words += [pair for pair in ALWAYS if pair[0] != "n" or self.waiting > 1]
        count = f"{self.waiting} waiting; " if self.waiting > 1 else ""
        return count + " ".join(_marked(key, word) for key, word in words) + " "


def request_of(act: Act, text: str | None) -> tuple[str, dict[str, Any]]:
    """The verb and fields that carry an act out; `text` is what the person wrote with it."""
    card = act.card or {}
    fields: dict[str, Any] = {"id": card.get("request_id")}
    match act.word:
        case "approve":
            verb = "approve"
        case "reject":
            verb, fields["reason"] = "reject", text
        case "nudge":
            verb, fields["text"] = "nudge", text
        case "accept":
            verb = "policy-accept"
        case _:
            verb, fields["decision"], fields["text"] = "answer", act.word, text
    return verb, {name: value for name, value in fields.items() if value}


def _marked(key: str, word: str) -> str:
    before, found, after = word.partition(key)
    return f"{before}[{found}]{after}" if found else f"[{key}] {word}"
