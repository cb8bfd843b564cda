"""The actions of people in Slack, as values. Each has an id that makes a repetition safe."""

from __future__ import annotations

from attrs import frozen

from intercom.model.card import CardKind
from intercom.model.verdict import Decision


@frozen
class Button:
    """The meaning of a button: the kind of card, the decision, and the form that asks for text first, if any."""

    kind: CardKind
    decision: Decision
    form: str | None = None


#: Every button of a card, by its `action_id`.
BUTTONS: dict[str, Button] = {
    "approve_accept": Button(CardKind.APPROVAL, Decision.APPROVE),
    "approve_reject": Button(CardKind.APPROVAL, Decision.REJECT, "reject"),
    "prompt_continue": Button(CardKind.PROMPT, Decision.CONTINUE),
    "prompt_refine": Button(CardKind.PROMPT, Decision.REFINE, "refine"),
    "prompt_stop": Button(CardKind.PROMPT, Decision.STOP),
    "stall_nudge": Button(CardKind.STALL, Decision.NUDGE),
    "stall_nudge_instruct": Button(CardKind.STALL, Decision.NUDGE, "nudge"),
    "stall_stop": Button(CardKind.STALL, Decision.STOP),
    "stall_dismiss": Button(CardKind.STALL, Decision.DISMISS),
    "wait_resume": Button(CardKind.STANDBY, Decision.RESUME),
    "wait_resume_instruct": Button(CardKind.STANDBY, Decision.RESUME, "resume"),
    "wait_stop": Button(CardKind.STANDBY, Decision.STOP),
    "policy_accept": Button(CardKind.POLICY, Decision.ACCEPT),
    "policy_reject": Button(CardKind.POLICY, Decision.REJECT),
    "apply_dismiss": Button(CardKind.APPLY, Decision.DISMISS),
    "restore_proceed": Button(CardKind.RESTORE, Decision.PROCEED),
    "restore_cancel": Button(CardKind.RESTORE, Decision.CANCEL),
}

#: The forms, each with the button whose decision its text belongs to.
FORMS: dict[str, Button] = {button.form: button for button in BUTTONS.values() if button.form is not None}


@frozen
class Person:
    """A Slack user. `name` is empty if the payload does not contain it."""

    id: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else self.id


@frozen
class Tap:
    """A click on a button. `thread` is the ts of the thread's root; outside a thread it is the message's own ts."""

    act_id: str
    person: Person
    team: str
    action: str
    card_id: str
    channel: str
    message: str
    thread: str
    trigger: str

    @property
    def button(self) -> Button:
        return BUTTONS[self.action]

    @property
    def within(self) -> str | None:
        """The thread that contains the message with the button; None if it is outside a thread."""
        return None if self.thread == self.message else self.thread


@frozen
class Submitted:
    """A submitted form. `block` is the block of its text, for an error message there. `channel` and `thread` are empty
    if the form did not carry them."""

    act_id: str
    person: Person
    team: str
    form: str
    card_id: str
    channel: str
    thread: str
    block: str
    text: str

    @property
    def button(self) -> Button:
        return FORMS[self.form]


@frozen
class Command:
    """A slash command. `text` is the text after it, as Slack escaped it."""

    act_id: str
    person: Person
    team: str
    command: str
    text: str
    channel: str
    trigger: str
    response_url: str


@frozen
class Said:
    """A reply of a person in a thread. `text` is as Slack escaped it, without a leading mention of the app."""

    act_id: str
    person: Person
    team: str
    channel: str
    ts: str
    thread: str
    text: str


@frozen
class Ignored:
    """A payload that is irrelevant or unreadable. `why` is for the log and contains nothing of the payload."""

    why: str


Act = Tap | Submitted | Command | Said | Ignored
