"""The state of `watch`: which cards are open, which card is selected, and what each key means. It does no I/O.

Only the person's own key changes the selection. A card that comes, changes or closes never gives a key another meaning.
If nothing is selected, no key decides anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from intercom.cli.ctl_text import one_line, short

#: For each kind of card: the key, its action, and whether it asks for a text ("must", "may" or empty).
KEYS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "approval": (("a", "approve", ""), ("r", "reject", "may")),
    "prompt": (("c", "continue", ""), ("f", "refine", "must"), ("s", "stop", "")),
    "standby": (("c", "continue", ""), ("f", "refine", "must"), ("s", "stop", "")),
    "stall": (("u", "nudge", "may"), ("s", "stop", ""), ("d", "dismiss", "")),
    "policy": (("a", "accept", ""), ("r", "reject", "may")),
    # A person must repair the files first; the agent's next check_diff closes the card.
    "apply": (),
    "restore": (("p", "proceed", ""), ("c", "cancel", "")),
}

ALWAYS = (("v", "view whole"), ("n", "next"), ("q", "quit"))

#: Actions that give an agent something or change files. They need confirmation if the card was not shown whole, or if
#: its kind or risk is listed below.
GRANTS = frozenset({"approve", "accept", "proceed"})
#: A policy decides many later changes, and a restore ends a session: both always need confirmation.
WEIGHTY_KINDS = frozenset({"policy", "restore"})
WEIGHTY_RISKS = frozenset({"high", "critical"})

#: The most characters of a title in a question.
TITLE = 60


class Act(NamedTuple):
    """The action that a key asks for: a word of `KEYS` or `ALWAYS`, its card, and whether a text is needed first."""

    word: str
    card: dict[str, Any] | None
    wants: str = ""


class Board:
    """The open cards (oldest first), the selected card, and how much of each card was on the screen."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, Any]] = {}
        self._selected: str | None = None
        #: By card id and content: how many lines of the diff were on the screen.
        self._seen: dict[tuple[str, str], int] = {}

    @property
    def selected(self) -> dict[str, Any] | None:
        """The card that the keys apply to; None until the person selects one, and again after it closes."""
        return self._open.get(self._selected or "")

    @property
    def waiting(self) -> int:
        return len(self._open)

    def take(self, card: dict[str, Any]) -> bool:
        """Add or update a card. Returns True if the selected card closed, or if its content changed."""
        id = card["request_id"]
        before = self._open.get(id)
        if card["status"] == "pending":
            self._open[id] = card
            return id == self._selected and before is not None and _content(before) != _content(card)
        self._open.pop(id, None)
        self._seen = {key: lines for key, lines in self._seen.items() if key[0] != id}
        if id != self._selected:
            return False
        self._selected = None
        return True

    def is_open(self, id: str) -> bool:
        return id in self._open

    def restart(self) -> None:
        """Forget all cards and the selection. A new server sends the open cards."""
        self._open.clear()
        self._selected = None

    def next(self) -> bool:
        """Select the next card, or the oldest after the last. Returns True if another card is selected now."""
        names = list(self._open)
        if not names or names == [self._selected]:
            return False
        at = names.index(self._selected) + 1 if self._selected in names else 0
        self._selected = names[at % len(names)]
        return True

    def saw(self, card: dict[str, Any], lines: int) -> None:
        """Record that the first `lines` lines of this card's diff were on the screen."""
        key = (card["request_id"], _content(card))
        self._seen[key] = max(lines, self._seen.get(key, 0))

    def not_seen(self, card: dict[str, Any]) -> str:
        """Say which part of a card's diff was not on the screen; empty if all of it was."""
        seen = self._seen.get((card["request_id"], _content(card)), 0)
        if card.get("diff_omitted"):
            return "" if seen else "diff not seen"
        total = line_count(card)
        return f"{total - seen} of {total} lines not seen" if seen < total else ""

    def key(self, key: str) -> Act | None:
        """Return the action of a key now, or None if the key has no meaning."""
        for known, word in ALWAYS:
            if key == known:
                return Act(word, self.selected)
        card = self.selected
        for known, word, wants in KEYS.get(card["kind"], ()) if card else ():
            if key == known:
                return Act(word, card, wants)
        return None

    def question(self, act: Act) -> str | None:
        """Return the confirmation question for an action, or None if the key alone is enough."""
        card = act.card
        if card is None or act.word not in GRANTS:
            return None
        doubts = [doubt for doubt in (self.not_seen(card), _not_shown(card)) if doubt]
        if card["kind"] not in WEIGHTY_KINDS and card.get("risk_level") not in WEIGHTY_RISKS and not doubts:
            return None
        return f"{act.word} {named(card, *doubts)}? type y "

    def prompt(self) -> str:
        """Return the prompt: the selected card on one line, its keys on the next."""
        card = self.selected
        if card is None:
            if not self._open:
                return "nothing waits; [q]uit "
            return f"{self.waiting} waiting, none selected; [n]ext [q]uit "
        words = [(key, word) for key, word, _ in KEYS.get(card["kind"], ())]
        words += [pair for pair in ALWAYS if pair[0] != "n" or self.waiting > 1]
        count = f"{self.waiting} waiting; " if self.waiting > 1 else ""
        keys = " ".join(_marked(key, word) for key, word in words)
        return f"{card['kind']} {named(card, *_files(card), self.not_seen(card))}\n{count}{keys} "


def named(card: dict[str, Any], *facts: str) -> str:
    """Name a card in a question: the start of its id, its title, its risk, and further facts."""
    title = one_line(str(card.get("title") or ""))
    shown = title if len(title) <= TITLE else f"{title[: TITLE - 3]}..."
    known = ", ".join(fact for fact in (card.get("risk_level") or "", *facts) if fact)
    return f"{short(card['request_id'])} '{shown}'" + (f" ({known})" if known else "")


def line_count(card: dict[str, Any]) -> int:
    """Count the lines of a card's diff."""
    diff = card.get("diff")
    return str(diff).removesuffix("\n").count("\n") + 1 if diff else 0


def request_of(act: Act, text: str | None) -> tuple[str, dict[str, Any]]:
    """Return the verb and fields of the request for an action. `text` is what the person wrote."""
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


def _files(card: dict[str, Any]) -> tuple[str, ...]:
    paths = [one_line(str(change["path"])) for change in card.get("files") or ()]
    if len(paths) > 2:
        return (paths[0], f"and {len(paths) - 1} more files")
    return tuple(paths)


def _not_shown(card: dict[str, Any]) -> str:
    """Say what a card's diff does not show; empty if it shows everything."""
    if card.get("diff") and card.get("diff_from_agent"):
        return "the diff is the agent's own text"
    count = len(card.get("remarks") or ())
    if not count:
        return ""
    return "1 remark on the diff" if count == 1 else f"{count} remarks on the diff"


def _content(card: dict[str, Any]) -> str:
    """Return what a card asks for, to tell changed content from a changed status. The diff is left out: it follows from
    the files' hashes, and a listing may omit it."""
    asked = ("kind", "title", "description", "detail", "risk_level", "files", "session_id", "proposal_hash")
    return repr([card.get(name) for name in asked])


def _marked(key: str, word: str) -> str:
    before, found, after = word.partition(key)
    return f"{before}[{found}]{after}" if found else f"[{key}] {word}"
