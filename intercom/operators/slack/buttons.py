"""The buttons of cards and the words of replies, as one table: cards, interactions and forms are made from its rows.

A new button for a known decision is a new row, and so is one that shows what commands would do (`COMMAND_BUTTONS`). A
new decision also needs:

- its name and past participle in `model.decision`, and its end in `ENDS` of `model.card`
- what the agent is told, in `sessions.request_kinds`, or what the session does, where that kind of card is decided
- its command in `HOW_TO_ANSWER` of `operators.commands.command_table` (and in `ANSWERS`, if `answer` gives it)
- its key in `KEYS` of `cli.inbox.board` and in that of the page, `web/src/model/keys.ts`

A button that does something else than decide needs an `Act` of `envelope_parser`, which `interaction_handler` carries
out.

The words of a reply decide only if they are beyond doubt. An approval is one of a few whole sentences with nothing
around them. "don't approve", "approve?" and "approve if the tests pass" decide nothing. A person who is not understood
gets the list of possible replies. Of a standby, which asks for an instruction, any other text is that instruction.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from attrs import frozen

from intercom.model.card import CardKind, CardState
from intercom.model.decision import PAST, Decision


class Style(StrEnum):
    """Slack's styles of a button; without one it is plain."""

    PRIMARY = "primary"
    DANGER = "danger"


@frozen
class Form:
    """The form that asks for the text of a decision; `name` is unique.

    `title`, `submit`, `label` and `placeholder` are its texts. `question` completes "Reply here with …", which the
    thread is asked if the form cannot be opened. `required` complains of a missing text; None if there may be none. A
    `prefilled` field begins with the card's text. `hint` is shown below the field. An `optional` one is marked so by
    Slack.
    """

    name: str
    title: str
    submit: str
    label: str
    placeholder: str
    question: str
    required: str | None = None
    prefilled: bool = False
    hint: str = ""
    optional: bool = False


class Dialog(StrEnum):
    """The forms for a proposal with changes: which hunks to approve, another text to approve, and which changes to
    request."""

    HUNKS = "hunks"
    EDIT = "edit"
    CHANGES = "changes"


@frozen
class Confirmation:
    """A dialog that Slack shows before it accepts a click; `label` is that of the button which confirms."""

    title: str
    text: str
    label: str


@frozen
class Button:
    """A button: its `action_id`, the cards and states that show it, its look, and the decision it gives.

    With a `form` the decision gets a text. A `dialog` asks for more than a text; its button is only on cards of which a
    part can be approved. In a reply, each sentence in `says` gives the same decision. Each word in
    `opens` does so too, and takes the rest of the reply as the text; `hint` describes that text.
    """

    action_id: str
    kind: CardKind
    decision: Decision
    icon: str
    label: str
    style: Style | None = None
    form: Form | None = None
    dialog: Dialog | None = None
    confirm: Confirmation | None = None
    says: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    hint: str = ""
    states: frozenset[CardState] = frozenset({CardState.PENDING})


@frozen
class SessionButton:
    """A button of a session's first message; its value is the session's id."""

    action_id: str
    icon: str
    label: str
    style: Style | None
    confirm: Confirmation


@frozen
class CommandButton:
    """A button of a pending card that decides nothing: it shows the person what `commands` answer.

    These are Slack's commands as they are typed, with `{card}` and `{session}` for the ids of the card and its session.
    They must change nothing.
    """

    action_id: str
    kind: CardKind
    icon: str
    label: str
    commands: tuple[str, ...]
    style: Style | None = None
    confirm: Confirmation | None = None


_REJECT = Form(
    "reject",
    "Reject",
    "Reject",
    "Reason",
    "What should the agent know or do differently?",
    "why it is rejected (or `-` for no reason)",
    optional=True,
)
_REFINE = Form(
    "refine",
    "Refine",
    "Send",
    "Instructions",
    "What should the agent do from here on?",
    "what the agent should do instead",
    required="say what the agent should do instead",
    prefilled=True,
    hint="This is the agent's question. Replace it with what the agent is to do.",
)
_NUDGE = Form("nudge", "Nudge", "Send", "Message", "What should the agent be told?", "what the agent should be told")
_RESUME = Form(
    "resume", "Resume", "Send", "Instructions", "What should the agent do next?", "what the agent should do next"
)

_BACK = Confirmation(
    "Go back?",
    "The session ends, and a new one continues from the checkpoint. The current state is stored as a checkpoint too.",
    "Proceed",
)

# No "yes" and no thumbs for a question in the agent's own words: they may answer something else.
_YES = (
    *("approve", "approved", "accept", "accepted", "yes", "yep", "y", "ok", "okay", "lgtm", "ship it"),
    *("👍", "✅", "+1", ":+1:", ":thumbsup:", ":white_check_mark:"),
)
_NO = (
    *("reject", "rejected", "deny", "denied", "decline", "declined", "no", "nope", "n"),
    *("👎", "❌", "-1", ":-1:", ":thumbsdown:", ":x:"),
)
_GO_ON = ("continue", "go on", "go ahead", "carry on", "proceed")
_STOP = ("stop", "halt", "abort")

_PRIMARY, _DANGER = Style.PRIMARY, Style.DANGER
_APPROVAL, _PROMPT, _STANDBY, _STALL = CardKind.APPROVAL, CardKind.PROMPT, CardKind.STANDBY, CardKind.STALL
_POLICY, _RESTORE = CardKind.POLICY, CardKind.RESTORE
_DENY = ("reject", "deny", "decline")

#: Every button; those of one kind of card are shown in this order.
BUTTONS: Final = (
    Button("approve_accept", _APPROVAL, Decision.APPROVE, "✅", "Approve", _PRIMARY, says=_YES),
    Button(
        "approve_reject", _APPROVAL, Decision.REJECT, "❌", "Reject", _DANGER, _REJECT,
        says=_NO, opens=_DENY, hint="why",
    ),
    Button("approve_hunks", _APPROVAL, Decision.APPROVE, "✂️", "Approve a part", dialog=Dialog.HUNKS),
    Button("approve_edit", _APPROVAL, Decision.APPROVE, "📝", "Edit and approve", dialog=Dialog.EDIT),
    Button("approve_changes", _APPROVAL, Decision.REJECT, "💬", "Request changes", dialog=Dialog.CHANGES),
    Button("prompt_continue", _PROMPT, Decision.CONTINUE, "▶️", "Continue", _PRIMARY, says=_GO_ON),
    Button(
        "prompt_refine", _PROMPT, Decision.REFINE, "✏️", "Refine", None, _REFINE,
        opens=("refine",), hint="what to do instead",
    ),
    Button("prompt_stop", _PROMPT, Decision.STOP, "🛑", "Stop", _DANGER, says=_STOP),
    Button("wait_resume", _STANDBY, Decision.RESUME, "▶️", "Resume", _PRIMARY, says=("resume", *_GO_ON)),
    Button(
        "wait_resume_instruct", _STANDBY, Decision.RESUME, "✏️", "Resume with instructions", None, _RESUME,
        opens=("resume",), hint="what to do next",
    ),
    Button("wait_stop", _STANDBY, Decision.STOP, "🛑", "Stop", _DANGER, says=_STOP),
    Button("stall_nudge", _STALL, Decision.NUDGE, "👉", "Nudge", _PRIMARY, says=("nudge",)),
    Button(
        "stall_nudge_instruct", _STALL, Decision.NUDGE, "✏️", "Nudge with instructions", None, _NUDGE,
        opens=("nudge",), hint="what to say",
    ),
    Button("stall_stop", _STALL, Decision.STOP, "🛑", "Stop", _DANGER, says=_STOP),
    Button("stall_dismiss", _STALL, Decision.DISMISS, "", "Dismiss", says=("dismiss", "ignore")),
    Button("policy_accept", _POLICY, Decision.ACCEPT, "✅", "Accept", _PRIMARY, says=("accept", "approve")),
    Button("policy_reject", _POLICY, Decision.REJECT, "❌", "Reject", _DANGER, says=_DENY, opens=("reject",)),
    Button("apply_dismiss", CardKind.APPLY, Decision.DISMISS, "", "Dismiss", says=("dismiss",)),
    Button("restore_proceed", _RESTORE, Decision.PROCEED, "♻️", "Proceed", _DANGER, confirm=_BACK, says=("proceed",)),
    Button("restore_cancel", _RESTORE, Decision.CANCEL, "✖️", "Cancel", says=("cancel",)),
    Button("room_resume", CardKind.ROOM, Decision.RESUME, "▶️", "Resume", _PRIMARY, says=("resume", *_GO_ON)),
    Button("room_dismiss", CardKind.ROOM, Decision.DISMISS, "", "Dismiss", says=("dismiss", "ignore")),
    Button("tools_accept", CardKind.TOOLS, Decision.APPROVE, "✅", "Approve", _PRIMARY, says=("approve", "accept")),
    Button("tools_reject", CardKind.TOOLS, Decision.REJECT, "❌", "Reject", _DANGER, says=_DENY, opens=("reject",)),
)  # fmt: skip

#: Ends a session that a person started.
STOP_SESSION: Final = SessionButton(
    "session_stop",
    "🛑",
    "Stop",
    Style.DANGER,
    Confirmation("Stop the agent?", "Its session ends: its pending requests are interrupted.", "Stop"),
)

#: Shows what a grant, and what a rule of the policy, would let pass.
PERMIT: Final = CommandButton("approve_permit", _APPROVAL, "🔁", "Permit more…", ("grant {card}", "allow {card}"))
#: All that decide nothing, by `action_id`.
COMMAND_BUTTONS: Final[Mapping[str, CommandButton]] = {each.action_id: each for each in (PERMIT,)}

#: The buttons by `action_id`, by the name of their form, and by kind of card.
BY_ACTION: Final[Mapping[str, Button]] = {button.action_id: button for button in BUTTONS}
BY_FORM: Final[Mapping[str, Button]] = {button.form.name: button for button in BUTTONS if button.form is not None}
BY_KIND: Final[Mapping[CardKind, tuple[Button, ...]]] = {
    kind: tuple(button for button in BUTTONS if button.kind is kind) for kind in CardKind
}

#: How a decided card is headed. The first button of a decision gives its icon.
OUTCOMES: Final[Mapping[str, str]] = {
    button.decision.value: f"{button.icon or '☑️'} {PAST[button.decision].capitalize()}" for button in reversed(BUTTONS)
}


def form_of(kind: CardKind, decision: Decision) -> Form | None:
    """Return the form for the text of a decision about this kind of card; None if it takes no text."""
    found = (button.form for button in BY_KIND[kind] if button.decision is decision)
    return next((form for form in found if form is not None), None)


# --- the words of a reply --------------------------------------------------------------------------------------------

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
    mark, rest = opening[2].strip(), opening[3].strip()
    if not rest or (not mark and _undecided(rest)):
        return None
    opened = (each for each in BY_KIND[kind] if opening[1].casefold() in each.opens)
    return next((Understood(each.decision, rest) for each in opened), None)


def is_instruction(text: str) -> bool:
    """Return whether this reply about a standby is what the agent should do next. Text that decides a card of any kind,
    or has a decision about a standby among its first words ("don't resume yet"), is not: it may be meant as that."""
    said = _plain(text)
    decisions = {each.split()[0] for button in BY_KIND[CardKind.STANDBY] for each in (*button.says, *button.opens)}
    first = {word.strip(_ENDING + ":?") for word in said.split()[:3]}
    if first & decisions or is_nothing(text) or is_never_mind(text):
        return False
    return any(letter.isalnum() for letter in said) and not any(understand(text, kind) for kind in CardKind)


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


def _undecided(text: str) -> bool:
    """Return whether text that follows without a mark makes the first word a question, or one of several choices."""
    first = text.split(None, 1)[0].casefold().rstrip(",") if text.split() else ""
    return text.rstrip().endswith("?") or first in {"or", "and", "if", "unless", "when", "maybe"}
