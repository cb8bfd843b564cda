"""The words of a reply: what it decides, if that is beyond doubt. Pure.

It never guesses. An approval is one of a few whole sentences with nothing around them. "don't approve", "approve?" and
"approve if the tests pass" decide nothing. A person who is not understood gets the list of possible replies.
"""

from __future__ import annotations

import re
import unicodedata

from attrs import frozen

from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.operators.slack.buttons import BY_KIND

#: How many characters the text of a decision may have: the limit of a form's input.
LONGEST = 3000

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
    for button in BY_KIND[kind]:
        if sentence in button.says:
            return Understood(button.decision)
    opening = _OPENING.fullmatch(text.strip())
    if opening is None:
        return None
    mark, words = opening[2].strip(), opening[3].strip()
    if not words or (not mark and _undecided(words)):
        return None
    opened = (each for each in BY_KIND[kind] if opening[1].casefold() in each.opens)
    return next((Understood(each.decision, words) for each in opened), None)


def possible(kind: CardKind) -> str:
    """Return the possible replies to a card of this kind, as a phrase in Slack's markup."""
    replies = [
        reply
        for each in BY_KIND[kind]
        for reply in (*each.says[:1], *(f"{word}: {each.hint}" for word in each.opens[:1] if each.hint))
    ]
    *first, last = (f"`{each}`" for each in replies)
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
