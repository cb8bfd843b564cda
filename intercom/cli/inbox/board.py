"""The rules of the inbox and of `watch --plain`: which cards are open, which one is selected, and what a key may do.

Only the person's own key changes the selection. A card that comes, changes or closes never gives a key another meaning.
If nothing is selected, no key decides anything. A key counts only if what it is about was on the screen before it was
typed. A decision waits a short time in which it can be undone, and is dropped if its card changes meanwhile. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from attrs import evolve, frozen

from intercom.cli.ctl_text import count, one_line, short
from intercom.model.card import Card, CardState
from intercom.model.card_hunks import hunks_of
from intercom.model.errors import InvalidArguments
from intercom.model.request import FileChange
from intercom.model.session import Session
from intercom.operators.commands.command_table import COMMANDS


class Key(NamedTuple):
    """A key and its action. `word` is a decision, a command of the operator table, or an action of the program itself.

    `wants` says whether a text is asked for first: "must", "may" or empty. `label` is what people read; empty for
    `word`. `kinds` are the kinds of card that the key is for; empty for all.
    """

    key: str
    word: str
    wants: str = ""
    label: str = ""
    kinds: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return self.label or self.word


_APPROVE, _REJECT = Key("a", "approve"), Key("r", "reject", "may")
_GO_ON = (Key("c", "continue"), Key("f", "refine", "must"), Key("s", "stop"))

#: The keys that answer each kind of card. Another action on a card is one more row here: a command that takes the
#: card's id, or a decision about it, needs nothing else; see `request_of`.
KEYS: dict[str, tuple[Key, ...]] = {
    "approval": (_APPROVE, _REJECT),
    "prompt": _GO_ON,
    "standby": _GO_ON,
    "stall": (Key("g", "nudge", "may"), Key("s", "stop"), Key("d", "dismiss")),
    "policy": (Key("a", "accept"), _REJECT),
    "apply": (Key("d", "dismiss"),),
    "restore": (Key("p", "proceed"), Key("c", "cancel")),
    "room": (Key("c", "continue"), Key("d", "dismiss")),
    "tools": (_APPROVE, _REJECT),
}

#: The key of the inbox that approves with a note to the agent. It is for one card at a time.
NOTING: tuple[Key, ...] = (Key("n", "approve", "must", label="note"),)
#: The keys of the inbox for a proposal that can be approved in part. The screen is the terminal's meanwhile: ctl shows
#: there what will happen, and asks, so there is nothing to undo. They are for one card at a time.
AMENDING: tuple[Key, ...] = (
    Key("h", "hunks", "must", label="hunks"),
    Key("e", "edit"),
    Key("c", "changes"),
)
#: The key that permits more requests like an approval's in advance. ctl shows and asks there, too.
GRANTING: tuple[Key, ...] = (Key("p", "grant", label="always allow"),)
_TERMINAL_WORDS = frozenset(row.word for row in (*AMENDING, *GRANTING))

#: The keys that act on a session. Each is a command that takes a session.
SESSION_KEYS: tuple[Key, ...] = (
    Key("p", "pause"),
    Key("o", "unpause", label="resume"),
    Key("t", "steer", "must"),
    Key("e", "clear", label="end"),
)

#: The keys of the inbox that are about no kind of card, by the names that Textual gives to keys. `word` is a method of
#: the app, `action_` before it. A row without a label is another key for the row above it.
INBOX_KEYS: tuple[Key, ...] = (
    Key("down", "down", label="select the next card"),
    Key("j", "down"),
    Key("up", "up", label="select the card before"),
    Key("k", "up"),
    Key("enter", "open", label="open the card, if the list fills the screen"),
    Key("right", "open"),
    Key("escape", "go_back", label="cancel; back to the list; take marks and the filter away"),
    Key("left", "go_back"),
    Key("pagedown", "page_down", label="scroll the card down"),
    Key("pageup", "page_up", label="scroll the card up"),
    Key("home", "to_top", label="scroll to the card's top"),
    Key("end", "to_end", label="scroll to the card's end"),
    Key("space", "mark", label="mark the card, to decide about several together"),
    Key("f", "file", label="show the whole file around the change", kinds=("approval",)),
    Key("u", "undo", label="take back what was decided last, until an agent has it"),
    Key("slash", "filter", label="list only cards that contain some words"),
    Key("tab", "next_tab", label="go to the next tab"),
    Key("1", "inbox", label="go to the inbox"),
    Key("2", "sessions", label="go to the sessions"),
    Key("3", "log", label="go to the log"),
    Key("question_mark", "help", label="show the keys"),
    Key("ctrl+z", "stop", label="stop this program, until fg continues it"),
    Key("q", "leave", label="send what was decided, and quit"),
    Key("ctrl+d", "leave"),
    Key("ctrl+c", "interrupt", label="quit at once; what was decided and not sent stays open"),
)

#: The keys of `watch --plain` that are about no kind of card.
ALWAYS = (Key("v", "view whole"), Key("n", "next"), Key("q", "quit"))

#: Actions that give an agent something, change files, end something, or give a change up. They need confirmation if the
#: card was not shown whole, or if its kind or risk is listed below.
WEIGHTY_ACTIONS = frozenset({"approve", "accept", "proceed", "dismiss", "clear"})
#: These always need confirmation. A policy decides many later changes, and a restore ends a session. An apply that is
#: dismissed leaves its files half changed.
WEIGHTY_KINDS = frozenset({"policy", "restore", "apply"})
WEIGHTY_RISKS = frozenset({"high", "critical"})

#: The commands that always make the same decision, by that decision. The first one of a decision answers any card.
_DECIDED_WITH = {row.decision: row.name for row in reversed(COMMANDS.values()) if row.decision}

#: The command that takes a sent decision back, and the kinds of card about which it can. What is decided
#: about other kinds takes effect at once.
_TAKE_BACK = "take-back"
_TAKEN_BACK = frozenset({"approval", "prompt", "standby"})

#: The most characters of a title in a question.
TITLE = 60

#: Seconds in which a decision can be undone before it is sent.
UNDO = 3.0
#: Seconds after a change by the server in which a key does not count: nobody reads faster.
REACTION = 0.3


class Act(NamedTuple):
    """The action that a key asks for, its card or session, and whether a text is needed first. `decision_id` is that of
    the decision as the server recorded it, once it was sent; empty if it did not say so."""

    word: str
    card: Card | None
    wants: str = ""
    session: Session | None = None
    decision_id: str = ""

    @property
    def name(self) -> str:
        """What it is about, for a question or a report."""
        if self.card is not None:
            return named(self.card)
        return "" if self.session is None else f"session {short(self.session.id)} of {self.session.workspace_root}"


class Stage(Enum):
    """What a person is asked for before an action is carried out."""

    TEXT = "text"
    CONFIRM = "confirm"


@frozen
class Asked:
    """A question to the person: about which actions, for a text or a confirmation, and the text so far."""

    acts: tuple[Act, ...]
    stage: Stage
    sentence: str
    text: str | None = None
    #: Whether it is about marked cards, which need not be on the screen: all of them are named first.
    is_batch: bool = False


@frozen
class Waiting:
    """A decision that was made and is not sent yet. `due` is when it is sent, in seconds of the caller's clock."""

    act: Act
    text: str | None
    due: float


class Board:
    """The open cards (oldest first), the selected and marked ones, how much of each was on the screen, the question
    before the person, and the decisions that are not sent yet. Times are seconds of one clock of the caller."""

    def __init__(self, undo: float = UNDO) -> None:
        #: Seconds in which a decision can be undone.
        self.undo_time = undo
        self._open: dict[str, Card] = {}
        self._selected: str | None = None
        #: Where in the list the selected card was, so that the next key goes on from there.
        self._place = 0
        self._words: tuple[str, ...] = ()
        self._listed: list[Card] | None = []
        self._marked: dict[str, None] = {}
        #: By card id and content: the lines that were on the screen, as bits, and how many lines there are.
        self._seen: dict[tuple[object, ...], tuple[int, int]] = {}
        self._deciding: dict[str, Waiting] = {}
        #: What was sent last, if a person can take it back.
        self._sent: tuple[Act, ...] = ()
        self._taking_back: tuple[Waiting, ...] = ()
        self.asked: Asked | None = None
        #: What happened without the person's doing, in sentences for them.
        self._told: list[str] = []
        self._version = 0
        self._by_server = False
        self._shown_at: float | None = None

    @property
    def selected(self) -> Card | None:
        """The card that the keys apply to; None until the person selects one, and again after it closes."""
        return self._open.get(self._selected or "")

    @property
    def waiting(self) -> int:
        return len(self._open)

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(self._open.values())

    @property
    def listed(self) -> list[Card]:
        """The open cards that the filter lets through, oldest first."""
        if self._listed is None:
            self._listed = [card for card in self._open.values() if self._fits(card)]
        return self._listed

    @property
    def place(self) -> int | None:
        """The selected card's number in the list; None if it is not in it."""
        card = self.selected
        if card is None:
            return None
        if not (self._place < len(self.listed) and self.listed[self._place].id == card.id):
            self._place = next((at for at, each in enumerate(self.listed) if each.id == card.id), self._place)
        return self._place

    # What the server sends

    def take(self, card: Card) -> bool:
        """Add or update a card. Returns True if the selected card closed, or if its content changed."""
        before = self._open.get(card.id)
        self._listed = None
        if card.state is CardState.PENDING:
            if before is not None and before.diff is not None and card.diff is None and card.diff_omitted:
                card = (
                    evolve(card, diff=before.diff, diff_omitted=False) if _content(before) == _content(card) else card
                )
            last = next(reversed(self._open.values()), card)
            is_late = before is None and card.created_at < last.created_at
            self._open[card.id] = card
            if is_late:
                # Its decision was taken back: it has its old place again.
                self._open = dict(sorted(self._open.items(), key=lambda entry: entry[1].created_at))
            if before is None or _content(before) == _content(card):
                return False
            self._drop(card.id, "the card has changed")
            if card.id == self._selected:
                self.changed(by_server=True)
            return card.id == self._selected
        place = self.place
        self._open.pop(card.id, None)
        self._seen = {key: lines for key, lines in self._seen.items() if key[0] != card.id}
        self._drop(card.id, "the card has closed")
        self._listed = None
        if card.id != self._selected:
            return False
        self._place = place or 0
        self._selected = None
        self.changed(by_server=True)
        return True

    def is_open(self, id: str) -> bool:
        return id in self._open

    def restart(self) -> None:
        """Forget all cards, marks, questions and unsent decisions. A new server sends the open cards."""
        for id in (*self._deciding, *self._open):
            self._drop(id, "the server went away")
        self._open.clear()
        self._sent = self._taking_back = ()
        self._listed = None
        self._selected, self.asked = None, None
        self.changed(by_server=True)

    def _drop(self, id: str, why: str) -> None:
        """Forget what the person wanted to do with a card or session, and say so."""
        waits = self._deciding.pop(id, None)
        if waits is not None:
            self._told.append(f"not sent: {label(waits.act.word)} {waits.act.name}, because {why}")
        self._marked.pop(id, None)
        if self.asked is not None and any(_id_of(act) == id for act in self.asked.acts):
            self._told.append(f"{label(self.asked.acts[0].word)} left undone, because {why}")
            self.asked = None
            self.changed(by_server=True)

    def told(self) -> list[str]:
        """Return what happened without the person's doing since the last call."""
        told, self._told = self._told, []
        return told

    # Selection, filter and marks

    def next(self) -> bool:
        """Select the next card, or the oldest after the last. Returns True if another card is selected now."""
        names = list(self._open)
        if not names or names == [self._selected]:
            return False
        at = names.index(self._selected) + 1 if self._selected in names else 0
        return self.select(names[at % len(names)])

    def move(self, by: int) -> bool:
        """Select the card that many places further down the list, at most to its ends. Returns True if another card is
        selected now."""
        if not self.listed:
            return False
        place = self.place
        if place is None:
            # The card that followed the closed one has its place now.
            place = self._place + (by - 1 if by > 0 else by)
        else:
            place += by
        return self.select(self.listed[max(0, min(place, len(self.listed) - 1))].id)

    def select(self, id: str | None) -> bool:
        """Select a card of the list, or none. Returns True if that changed something."""
        if id == self._selected or (id is not None and id not in self._open):
            return False
        self._selected = id
        self.changed()
        return True

    def filter(self, words: str) -> None:
        """List only cards that contain each of these words. A selected card that is not among them is deselected."""
        self._words = tuple(words.casefold().split())
        self._listed = None
        card = self.selected
        if card is not None and not self._fits(card):
            self.select(None)
        if card is None or self._selected is None:
            self._place = 0

    @property
    def filtered_by(self) -> str:
        return " ".join(self._words)

    def _fits(self, card: Card) -> bool:
        if not self._words:
            return True
        parts = (card.id, card.kind, card.risk or "", card.title, card.session_id, card.workspace_root, card.body or "")
        text = " ".join((*parts, *(change.path for change in card.files))).casefold()
        return all(word in text for word in self._words)

    def mark(self) -> bool:
        """Mark the selected card for a decision about several, or take the mark away."""
        card = self.selected
        if card is None:
            return False
        if self._marked.pop(card.id, 0) == 0:
            self._marked[card.id] = None
        self.changed()
        return True

    def unmark(self) -> bool:
        """Take all marks away. Returns whether there were any."""
        had = bool(self._marked)
        self._marked.clear()
        return had

    @property
    def marked(self) -> tuple[Card, ...]:
        return tuple(self._open[id] for id in self._marked)

    def is_marked(self, card: Card) -> bool:
        return card.id in self._marked

    # What was on the screen

    def saw(self, card: Card, lines: range, of: int | None = None) -> None:
        """Record that these of a card's lines were on the screen. `of` is how many it has; default: those of its
        diff."""
        if not lines:
            return
        key = _content(card)
        total = line_count(card) if of is None else of
        seen, before = self._seen.get(key, (0, total))
        if before != total:
            # Lines came or went, such as the one that says that the agent is away: the numbers mean other lines.
            seen = 0
        self._seen[key] = seen | (((1 << len(lines)) - 1) << lines.start), total

    def not_seen(self, card: Card) -> str:
        """Say which part of a card was not on the screen; empty if all of it was."""
        seen, total = self._seen.get(_content(card), (0, line_count(card)))
        if card.diff_omitted:
            return "" if seen else "diff not seen"
        # A listing may have left the diff out when the lines were counted.
        left = max(total, line_count(card)) - seen.bit_count()
        return f"{left} of {max(total, line_count(card))} lines not seen" if left > 0 else ""

    @property
    def version(self) -> int:
        """The number of what the screen has to show before a key counts."""
        return self._version

    def drawn(self, version: int, at: float) -> None:
        """Record that the screen shows this version since `at`."""
        if version == self._version and self._shown_at is None:
            self._shown_at = at + (REACTION if self._by_server else 0.0)

    def counts(self, typed_at: float) -> bool:
        """Tell whether a key that was typed at this time was typed for what is on the screen."""
        return self._shown_at is not None and typed_at > self._shown_at

    def changed(self, *, by_server: bool = False) -> None:
        """Record that the screen has to show something else before a key counts again."""
        self._version += 1
        self._by_server = by_server
        self._shown_at = None

    # What a key does

    def key(self, key: str) -> Act | None:
        """Return the action of a key of `watch --plain` now, or None if the key has no meaning."""
        for row in ALWAYS:
            if key == row.key:
                return Act(row.word, self.selected)
        card = self.selected
        return None if card is None else _act(key, card)

    def acts(self, key: str) -> tuple[Act, ...]:
        """Return what a key decides: about the marked cards, or else about the selected one. Empty if it decides
        nothing. A card that takes another action for this key than the first one is left out."""
        cards = self.marked or ((self.selected,) if self.selected is not None else ())
        rows = keys_of(cards[0]) if len(cards) == 1 and not self._marked else None
        found = [act for card in cards if card.id not in self._deciding and (act := _act(key, card, rows)) is not None]
        return tuple(act for act in found if act.word == found[0].word)

    def begin(self, acts: Sequence[Act], now: float) -> str:
        """Begin what a key asks for: ask for a text or a confirmation, or decide. Returns a sentence for the person."""
        if not acts:
            return ""
        wants = next((act.wants for act in acts if act.wants), "")
        is_batch = any(act.card is not None and self.is_marked(act.card) for act in acts)
        if not wants:
            return self._confirm(Asked(tuple(acts), Stage.CONFIRM, "", is_batch=is_batch), now)
        may = " (may be empty)" if wants == "may" else ""
        about = acts[0].name if len(acts) == 1 else count(len(acts), "card")
        sentence = f"{label(acts[0].word)} {about}, with what text{may}?"
        if acts[0].word == "hunks":
            sentence = f"approve only which hunks of {about}, by number, as in 1,3-5?"
        self._ask(Asked(tuple(acts), Stage.TEXT, sentence, is_batch=is_batch))
        return ""

    def give_text(self, text: str, now: float) -> str:
        """Answer the question for a text. Returns a sentence for the person."""
        asked = self.asked
        if asked is None or asked.stage is not Stage.TEXT:
            return ""
        text = text.strip()
        if not text and any(act.wants == "must" for act in asked.acts):
            return self.cancel()
        return self._confirm(evolve(asked, text=text), now)

    def agree(self, now: float) -> str:
        """Answer the question for a confirmation with yes. Returns a sentence for the person."""
        asked = self.asked
        if asked is None or asked.stage is not Stage.CONFIRM:
            return ""
        self._ask(None)
        return self._decide(asked, now)

    def cancel(self) -> str:
        """Do not do what was asked about. Returns a sentence for the person."""
        asked = self.asked
        if asked is None:
            return ""
        self._ask(None)
        about = asked.acts[0].name if len(asked.acts) == 1 else count(len(asked.acts), "card")
        return f"{label(asked.acts[0].word)} left undone: {about}"

    def _confirm(self, asked: Asked, now: float) -> str:
        if asked.is_batch:
            verb = label(asked.acts[0].word)
            these = f"these {len(asked.acts)} cards" if len(asked.acts) > 1 else "this card"
            self._ask(evolve(asked, stage=Stage.CONFIRM, sentence=f"{verb} {these}? type y"))
            return ""
        question = self.question(asked.acts[0])
        if question is None:
            self._ask(None)
            return self._decide(asked, now)
        self._ask(evolve(asked, stage=Stage.CONFIRM, sentence=question.rstrip()))
        return ""

    def _ask(self, asked: Asked | None) -> None:
        if asked is not None or self.asked is not None:
            self.asked = asked
            self.changed()

    def _decide(self, asked: Asked, now: float) -> str:
        for act in asked.acts:
            due = now if act.word in _TERMINAL_WORDS else now + self.undo_time
            self._deciding[_id_of(act)] = Waiting(act, asked.text, due)
            self._marked.pop(_id_of(act), None)
        return ""

    def question(self, act: Act) -> str | None:
        """Return the confirmation question for an action, or None if the key alone is enough."""
        if act.word not in WEIGHTY_ACTIONS:
            return None
        card = act.card
        if card is None:
            return f"{label(act.word)} {act.name}? type y " if act.session is not None else None
        doubts = self.doubts(card)
        if card.kind not in WEIGHTY_KINDS and card.risk not in WEIGHTY_RISKS and not doubts:
            return None
        return f"{act.word} {named(card, *doubts)}? type y "

    def doubts(self, card: Card) -> tuple[str, ...]:
        """Say what of a card the person has not seen, or cannot see."""
        return tuple(doubt for doubt in (self.not_seen(card), _not_shown(card)) if doubt)

    # Decisions that are not sent yet

    @property
    def deciding(self) -> tuple[Waiting, ...]:
        return tuple(self._deciding.values())

    def decision_on(self, id: str) -> Waiting | None:
        return self._deciding.get(id)

    def due(self, now: float) -> tuple[Waiting, ...]:
        """Remove and return what is to be sent now: the decisions, oldest first, and what takes sent ones back."""
        due = tuple(waits for waits in self._deciding.values() if waits.due <= now)
        for waits in due:
            del self._deciding[_id_of(waits.act)]
        taking_back, self._taking_back = self._taking_back, ()
        return (*due, *taking_back)

    def delay(self, undo: float, now: float) -> None:
        """Give that many seconds to undo a decision from now on, also those that are not sent yet."""
        self.undo_time = undo
        for id, waits in self._deciding.items():
            if not needs_terminal(waits.act):
                self._deciding[id] = evolve(waits, due=max(waits.due, now + undo))

    def sent(self, acts: Iterable[Act]) -> None:
        """Record which actions were sent together and carried out."""
        self._sent = tuple(
            act
            for act in acts
            if act.card is not None and act.card.kind in _TAKEN_BACK and act.word not in (_TAKE_BACK, "grant")
        )

    def undo(self, now: float) -> str:
        """Take back the decisions that were made last. Those that were sent are taken back by a command, which is due
        now; the server refuses it if the agent may know them. Returns a sentence for the person."""
        if not self._deciding and self._sent:
            sent, self._sent = self._sent, ()
            self._taking_back += tuple(Waiting(act._replace(word=_TAKE_BACK, wants=""), None, now) for act in sent)
            about = sent[0].name if len(sent) == 1 else count(len(sent), "card")
            return f"taking back: {label(sent[0].word)} {about}"
        if not self._deciding:
            return "nothing to undo: what was decided last cannot be taken back"
        last = max(waits.due for waits in self._deciding.values())
        undone = [waits for waits in self._deciding.values() if waits.due == last]
        for waits in undone:
            del self._deciding[_id_of(waits.act)]
        about = undone[0].act.name if len(undone) == 1 else count(len(undone), "card")
        return f"undone: {label(undone[0].act.word)} {about}"

    def prompt(self) -> str:
        """Return the prompt of `watch --plain`: the selected card on one line, its keys on the next."""
        card = self.selected
        if card is None:
            if not self._open:
                return "nothing waits; [q]uit "
            return f"{self.waiting} waiting, none selected; [n]ext [q]uit "
        rows = (*KEYS.get(card.kind, ()), *(row for row in ALWAYS if row.key != "n" or self.waiting > 1))
        waiting = f"{self.waiting} waiting; " if self.waiting > 1 else ""
        keys = " ".join(_bracketed(row) for row in rows)
        return f"{card.kind} {named(card, *_files(card), self.not_seen(card))}\n{waiting}{keys} "


def named(card: Card, *facts: str) -> str:
    """Name a card in a question: the start of its id, its title, its risk, and further facts."""
    title = one_line(card.title)
    shown = title if len(title) <= TITLE else f"{title[: TITLE - 3]}..."
    known = ", ".join(fact for fact in (card.risk or "", *facts) if fact)
    return f"{short(card.id)} '{shown}'" + (f" ({known})" if known else "")


def line_count(card: Card) -> int:
    """Count the lines of a card's diff."""
    return card.diff.removesuffix("\n").count("\n") + 1 if card.diff else 0


def label(word: str) -> str:
    """Return what people read for an action."""
    rows: Iterable[Key] = (*SESSION_KEYS, *AMENDING, *GRANTING, *(row for kind in KEYS.values() for row in kind))
    return next((row.shown for row in rows if row.word == word), word)


def request_of(act: Act, text: str | None) -> tuple[str, dict[str, str]]:
    """Return the command and the fields of the request for an action. `text` is what the person wrote.

    A word that is a decision of one command is sent as that command, another word that is a command as itself, and any
    other as `answer`. The fields are those of the command's row.
    """
    verb = _DECIDED_WITH.get(act.word) or (act.word if act.word in COMMANDS else "answer")
    arguments = COMMANDS[verb].arguments
    fields: dict[str, str | None] = {}
    if act.session is not None:
        fields[next(each.wire for each in arguments if each.field == "session")] = act.session.id
    else:
        fields["id"] = None if act.card is None else act.card.id
    fields["reason" if any(each.field == "reason" for each in arguments) else "text"] = text
    if verb == "answer":
        fields["decision"] = act.word
    if verb == _TAKE_BACK:
        # If it was taken back and decided again meanwhile, the later decision stays.
        fields["decision_id"] = act.decision_id
    return verb, {name: value for name, value in fields.items() if value}


def keys_of(card: Card) -> tuple[Key, ...]:
    """Return the keys of the inbox that decide about this card alone."""
    if card.kind != "approval":
        return KEYS.get(card.kind, ())
    amending = [row for row in AMENDING if row.word != "hunks" or _may_choose(card)] if card.amendable else ()
    return (*KEYS[card.kind], *NOTING, *amending, *GRANTING)


def _may_choose(card: Card) -> bool:
    """Tell whether a card has several hunks to choose among, or has its diff still to come."""
    return card.diff is None or _has_several_hunks(card.diff, card.files)


@lru_cache(maxsize=16)
def _has_several_hunks(diff: str, files: tuple[FileChange, ...]) -> bool:
    try:
        return len(hunks_of(diff, files)) > 1
    except InvalidArguments:
        return False


def needs_terminal(act: Act) -> bool:
    """Tell whether an action is carried out on the plain terminal, where ctl shows what will happen, and asks."""
    return act.word in _TERMINAL_WORDS


def _act(key: str, card: Card, rows: Sequence[Key] | None = None) -> Act | None:
    found = next((row for row in (KEYS.get(card.kind, ()) if rows is None else rows) if row.key == key), None)
    return None if found is None else Act(found.word, card, found.wants)


def _id_of(act: Act) -> str:
    if act.card is not None:
        return act.card.id
    assert act.session is not None, "an action that is decided is about a card or a session"
    return act.session.id


def _files(card: Card) -> tuple[str, ...]:
    paths = [one_line(change.path) for change in card.files]
    if len(paths) > 2:
        return (paths[0], f"and {len(paths) - 1} more files")
    return tuple(paths)


def _not_shown(card: Card) -> str:
    """Say what a card's diff does not show; empty if it shows everything."""
    if card.diff and card.diff_from_agent:
        return "the diff is the agent's own text"
    return f"{count(len(card.remarks), 'remark')} on the diff" if card.remarks else ""


def _content(card: Card) -> tuple[object, ...]:
    """Return a card's id and what it asks for, to tell changed content from a changed status. The diff is left out: it
    follows from the files' hashes, and a listing may omit it."""
    asked = (card.kind, card.title, card.body, card.detail, card.risk, card.files)
    return (card.id, *asked, card.session_id, card.proposal_hash)


def _bracketed(row: Key) -> str:
    before, found, after = row.shown.partition(row.key)
    return f"{before}[{found}]{after}" if found else f"[{row.key}] {row.shown}"
