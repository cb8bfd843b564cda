"""The parser of replies in a thread: it returns a decision only if it is beyond doubt. Pure.

It never guesses. An approval is one of a few whole sentences with nothing around them. "don't approve", "approve?" and
"approve if the tests pass" decide nothing. A person who is not understood gets the list of possible replies.
"""

from __future__ import annotations

import re
import unicodedata

from attrs import frozen

from intercom.model.card import CardKind
from intercom.model.verdict import Decision

#: How many characters the text of a decision may have: the limit of a form's input.
LONGEST = 3000

_YES = ("approve", "approved", "accept", "accepted", "yes", "yep", "y", "ok", "okay", "lgtm", "ship it")
_NO = ("reject", "rejected", "deny", "denied", "decline", "declined", "no", "nope", "n")
_GO_ON = ("continue", "go on", "go ahead", "carry on", "proceed")
_THUMB_UP = ("👍", "✅", "+1", ":+1:", ":thumbsup:", ":white_check_mark:")
_THUMB_DOWN = ("👎", "❌", "-1", ":-1:", ":thumbsdown:", ":x:")
_STOP = ("stop", "halt", "abort")

#: The whole sentences that decide a card of each kind.
SENTENCES: dict[CardKind, dict[Decision, tuple[str, ...]]] = {
    CardKind.APPROVAL: {Decision.APPROVE: _YES + _THUMB_UP, Decision.REJECT: _NO + _THUMB_DOWN},
    # No "yes" and no thumbs for a question in the agent's own words: they may answer something else.
    CardKind.PROMPT: {Decision.CONTINUE: _GO_ON, Decision.STOP: _STOP},
    CardKind.STANDBY: {Decision.RESUME: ("resume", *_GO_ON), Decision.STOP: _STOP},
    CardKind.STALL: {Decision.NUDGE: ("nudge",), Decision.STOP: _STOP, Decision.DISMISS: ("dismiss", "ignore")},
    CardKind.POLICY: {Decision.ACCEPT: ("accept", "approve"), Decision.REJECT: ("reject", "deny", "decline")},
    CardKind.APPLY: {Decision.DISMISS: ("dismiss",)},
    CardKind.STEER: {},
    CardKind.TASK: {},
    CardKind.RESTORE: {Decision.PROCEED: ("proceed",), Decision.CANCEL: ("cancel",)},
}

#: First words that take the rest of the reply as their text.
OPENINGS: dict[CardKind, dict[str, Decision]] = {
    CardKind.APPROVAL: {"reject": Decision.REJECT, "deny": Decision.REJECT, "decline": Decision.REJECT},
    CardKind.PROMPT: {"refine": Decision.REFINE},
    CardKind.STANDBY: {"resume": Decision.RESUME},
    CardKind.STALL: {"nudge": Decision.NUDGE},
    CardKind.POLICY: {"reject": Decision.REJECT},
    CardKind.APPLY: {},
    CardKind.STEER: {},
    CardKind.TASK: {},
    CardKind.RESTORE: {},
}

_POSSIBLE: dict[CardKind, tuple[str, ...]] = {
    CardKind.APPROVAL: ("approve", "reject", "reject: why"),
    CardKind.PROMPT: ("continue", "refine: what to do instead", "stop"),
    CardKind.STANDBY: ("resume", "resume: what to do next", "stop"),
    CardKind.STALL: ("nudge", "nudge: what to say", "stop", "dismiss"),
    CardKind.POLICY: ("accept", "reject"),
    CardKind.APPLY: ("dismiss",),
    CardKind.STEER: (),
    CardKind.TASK: (),
    CardKind.RESTORE: ("proceed", "cancel"),
}

#: The past participle of each decision, for sentences.
PAST: dict[Decision, str] = {
    Decision.APPROVE: "approved",
    Decision.REJECT: "rejected",
    Decision.CONTINUE: "continued",
    Decision.REFINE: "refined",
    Decision.STOP: "stopped",
    Decision.RESUME: "resumed",
    Decision.NUDGE: "nudged",
    Decision.DISMISS: "dismissed",
    Decision.ACCEPT: "accepted",
    Decision.PROCEED: "proceeded with",
    Decision.CANCEL: "cancelled",
}

_POLITE = re.compile(r",?\s+(please|pls)$")
_ENDING = " \t\r\n.!,;"
_SKIN = re.compile(r":skin-tone-[2-6]:|[\U0001f3fb-\U0001f3ff\ufe0f]")
_LINK = re.compile(r"<((?:https?|mailto|tel|ftp)[^<>|\s]*)(?:\|([^<>]*))?>")
_REFERENCE = re.compile(r"<([@#!][^<>|]*)\|([^<>]+)>")
_OPENING = re.compile(r"([^\W\d_]+)(\s*[:,]\s*|\s*[-\u2013\u2014]\s+|\s+)(.+)", re.DOTALL)
_ID = re.compile(r"#?`?([A-Za-z0-9][A-Za-z0-9._-]{3,127})`?\s*[:,]?(?:\s+(.*)|)", re.DOTALL)
_NOTHING = frozenset({"", "-", "none", "nothing", "no reason", "no", "skip", "n/a"})
_NEVER_MIND = frozenset({"cancel", "never mind", "nevermind", "forget it"})


@frozen
class Understood:
    """The decision of a reply, with its text."""

    decision: Decision
    text: str | None = None


def understand(text: str, kind: CardKind) -> Understood | None:
    """Return the decision of this reply about a card of this kind; None if it is in doubt.

    `text` is what the person wrote, unescaped. The text of a decision (a reason or an instruction) is returned as
    written; it may be longer than `LONGEST`.
    """
    said = _plain(text)
    sentence = _POLITE.sub("", said.rstrip(_ENDING)).rstrip(_ENDING)
    for decision, sentences in SENTENCES[kind].items():
        if sentence in sentences:
            return Understood(decision)
    opening = _OPENING.fullmatch(text.strip())
    decision_of_opening = OPENINGS[kind].get(opening[1].casefold()) if opening is not None else None
    if opening is None or decision_of_opening is None:
        return None
    mark, words = opening[2].strip(), opening[3].strip()
    if not mark and _undecided(words):
        return None
    return Understood(decision_of_opening, words) if words else None


def possible(kind: CardKind) -> str:
    """Return the possible replies to a card of this kind, as a phrase in Slack's markup."""
    *first, last = (f"`{each}`" for each in _POSSIBLE[kind])
    return f"{', '.join(first)} or {last}" if first else last


def addressed(text: str) -> tuple[str, str]:
    """Split a reply into its first word, if that may be an id prefix, and the rest; otherwise two empty strings."""
    found = _ID.fullmatch(text.strip())
    return ("", "") if found is None else (found[1].rstrip("._-").casefold(), (found[2] or "").strip())


def is_nothing(text: str) -> bool:
    """Return whether a person who was asked for text says that there is none."""
    return _plain(text).rstrip(".!") in _NOTHING


def is_never_mind(text: str) -> bool:
    """Return whether a person who was asked for text cancels the whole action."""
    return _plain(text).rstrip(".!") in _NEVER_MIND


def unescape(text: str) -> str:
    """Convert Slack's text to what a person typed: links and references as displayed, `&lt;` as `<`."""
    text = _LINK.sub(_link, text)
    text = _REFERENCE.sub(lambda found: f"{found[1][0].replace('!', '@')}{found[2].lstrip('@#')}", text)
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def escape(text: str) -> str:
    """Escape text, so that Slack shows it literally and it mentions nobody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _link(found: re.Match[str]) -> str:
    target, label = found[1], found[2]
    # Slack makes links of bare host names and addresses; the label is the typed text.
    if label and target.removeprefix("mailto:").removeprefix("http://").removeprefix("tel:").rstrip("/") == label:
        return label
    return f"{label} ({target})" if label and label != target else target


def _bare(text: str) -> str:
    """Remove emphasis or code marks around the whole text. A struck-through word stays, because it was revoked."""
    return text.strip().strip("*_`").strip()


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", _SKIN.sub("", _bare(text))).casefold()
    return " ".join(folded.replace("\u2019", "'").split())


def _undecided(words: str) -> bool:
    """Return whether text that follows without a mark makes the first word a question, or one of several choices."""
    first = words.split(None, 1)[0].casefold().rstrip(",") if words.split() else ""
    return words.rstrip().endswith("?") or first in {"or", "and", "if", "unless", "when", "maybe"}
