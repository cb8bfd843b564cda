"""What people can do in Slack, as values: each act with an id that names it for good."""

from __future__ import annotations

from attrs import frozen

from intercom.model.card import CardKind
from intercom.model.verdict import Decision


@frozen
class Button:
    """What a button means: on which kind of card, which decision, and the form that asks for words first, if one
    does."""

    kind: CardKind
    decision: Decision
    form: str | None = None


#: Every button a card can have, by its `action_id`.
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

#: The forms, with the button whose decision their words go with.
FORMS: dict[str, Button] = {button.form: button for button in BUTTONS.values() if button.form is not None}


@frozen
class Person:
    """Somebody in Slack. `name` is empty where the payload does not tell it."""

    id: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else self.id


@frozen
class Tap:
    """A button was tapped. `thread` is the ts of the thread's root, that of the message itself where it is no reply."""

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
        """The thread that the message with the button stands in; None where it stands in the channel itself."""
        return None if self.thread == self.message else self.thread


@frozen
class Submitted:
    """A form was sent. `block` is where its text stood, for a complaint about it; channel and thread are empty where
    the form did not say where it came from."""

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
    """A slash command was typed; `text` is what followed it, as Slack escaped it."""

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
    """A person replied in a thread; `text` as Slack escaped it, without a leading mention of the app itself."""

    act_id: str
    person: Person
    team: str
    channel: str
    ts: str
    thread: str
    text: str


@frozen
class Ignored:
    """Nothing that concerns us, or nothing that can be read; `why` is for the log and holds nothing of the payload."""

    why: str


Act = Tap | Submitted | Command | Said | Ignored
