"""Envelopes: what Slack delivers, read into the action of a person, or into nothing of ours.

Pure and total: no payload raises an error. Each action has a permanent id. A redelivery has the same id, and the
decision uses it too.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

from attrs import frozen

from intercom.model.card_hunks import numbers_in, spans
from intercom.model.errors import InvalidArguments
from intercom.operators.slack.buttons import BY_ACTION, BY_FORM, COMMAND_BUTTONS, STOP_SESSION, Button, CommandButton


@frozen
class Person:
    """A Slack user. `name` is empty if the payload does not contain it."""

    id: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.id})" if self.name else self.id


@frozen
class Act(ABC):
    """An action of a person. `channel` is empty if a form did not carry it. `about` is what the log may tell of it."""

    NOUN: ClassVar[str]

    act_id: str
    person: Person
    team: str
    channel: str

    @property
    @abstractmethod
    def about(self) -> dict[str, str]: ...


@frozen
class ButtonAction(Act):
    """A click on a button. `thread` is the ts of the thread's root; outside a thread it is the message's own ts."""

    NOUN = "a click"

    action_id: str
    card_id: str
    message: str
    thread: str
    trigger: str

    @property
    def button(self) -> Button:
        return BY_ACTION[self.action_id]

    @property
    def within(self) -> str | None:
        """The thread that contains the message with the button; None if it is outside a thread."""
        return None if self.thread == self.message else self.thread

    @property
    def about(self) -> dict[str, str]:
        return {"action": self.action_id, "card": self.card_id}


@frozen
class SessionStop(Act):
    """A click on the button of a session's first message."""

    NOUN = "a click"

    session_id: str

    @property
    def within(self) -> None:
        """The message is the first of its thread, so it is in none."""
        return None

    @property
    def about(self) -> dict[str, str]:
        return {"action": STOP_SESSION.action_id, "session": self.session_id}


@frozen
class CommandsShown(Act):
    """A click on a button that shows what commands about a card would do. `within` is as of a `ButtonAction`."""

    NOUN = "a click"

    action_id: str
    card_id: str
    within: str | None
    response_url: str

    @property
    def button(self) -> CommandButton:
        return COMMAND_BUTTONS[self.action_id]

    @property
    def about(self) -> dict[str, str]:
        return {"action": self.action_id, "card": self.card_id}


@frozen
class FormSubmission(Act):
    """A submitted form. `block` is the block of its text, for an error message there."""

    NOUN = "a form"

    form: str
    card_id: str
    block: str
    text: str

    @property
    def button(self) -> Button:
        return BY_FORM[self.form]

    @property
    def about(self) -> dict[str, str]:
        return {"action": self.form, "card": self.card_id}


class Step(StrEnum):
    """The forms for a proposal with changes. `APPROVE` follows `HUNKS`, and `APPROVE_EDIT` follows `EDIT`."""

    HUNKS = "hunks"
    APPROVE = "approve_hunks"
    EDIT = "edit"
    APPROVE_EDIT = "approve_edit"
    CHANGES = "changes"


_STEPS = frozenset(Step)


@frozen
class AmendmentSubmission(Act):
    """A submitted form for a proposal with changes.

    `hunks` are those that were chosen, in this form or the one before. `texts` are the new contents of files, with
    their paths. `shown` is the hash of the card that the form showed, and `proposed` that of the proposal.
    `is_as_shown` says that the texts are those of that card, so nothing was typed after it was drawn.
    """

    NOUN = "a form"

    step: Step
    card_id: str
    shown: str
    proposed: str
    hunks: tuple[int, ...]
    texts: tuple[tuple[str, str], ...]
    is_as_shown: bool
    comments: str
    note: str

    @property
    def about(self) -> dict[str, str]:
        return {"action": self.step.value, "card": self.card_id}


@frozen
class Command(Act):
    """A slash command. `text` is the text after it, as Slack escaped it."""

    NOUN = "a command"

    command: str
    text: str
    response_url: str

    @property
    def about(self) -> dict[str, str]:
        return {"action": self.command}


@frozen
class ThreadReply(Act):
    """A reply of a person in a thread. `text` is as Slack escaped it, without a leading mention of the app."""

    NOUN = "a reply"

    ts: str
    thread: str
    text: str

    @property
    def about(self) -> dict[str, str]:
        return {"action": "reply", "thread": self.thread}


@frozen
class Ignored:
    """A payload that is irrelevant or unreadable. `why` is for the log and contains nothing of the payload."""

    why: str


#: How many characters of a person's text are used; Slack's own limits are lower.
TEXT_LIMIT = 40_000

#: The prefix of a form's `callback_id`; the rest is the form's name.
FORM = "intercom_"

#: The blocks of the inputs of a form for a proposal with changes. Groups of check boxes have `HUNKS` and a number, and
#: files have `text_block`.
HUNKS, TEXT, COMMENTS, NOTE = "hunks", "text", "comments", "note"

_NAME_LIMIT = 80
_USER = re.compile(r"[UW][A-Z0-9]{2,31}")
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,31}")
_TEAM = re.compile(r"[TE][A-Z0-9]{2,31}")
_TS = re.compile(r"[0-9]{1,16}\.[0-9]{1,9}")
_CARD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TOKEN = re.compile(r"[!-~]{1,512}")
_TEXT_BLOCK = re.compile(rf"{TEXT}([0-9]):(.+)", re.DOTALL)


class _Unreadable(Exception):
    """A part that an action needs is missing or malformed."""


def read(kind: str, payload: object) -> Act | Ignored:
    """Return the action of an envelope of type `kind` ("interactive", "slash_commands", "events_api")."""
    try:
        match kind, _at(payload, "type"):
            case "interactive", "block_actions":
                return _button_action(payload)
            case "interactive", "view_submission":
                return _submitted(payload)
            case "slash_commands", _:
                return _command(payload)
            case "events_api", _:
                return _reply(payload)
    except _Unreadable as fault:
        return Ignored(str(fault))
    return Ignored("an envelope or interaction of another type")


def form_metadata(
    card_id: str,
    channel: str,
    thread: str,
    *,
    shown: str = "",
    hunks: Sequence[int] = (),
    proposed: str = "",
    texts: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the `private_metadata` of a form, which its submission brings back. `shown` is the hash of the card that
    the form shows. `hunks` and `texts` are what it shows of it, and `proposed` is the hash of the proposal."""
    said = {"card": card_id, "channel": channel, "thread": thread}
    more = {"shown": shown, "hunks": spans(sorted(hunks)), "proposed": proposed, "texts": _digest(texts)}
    return json.dumps(said | {name: value for name, value in more.items() if value}, separators=(",", ":"))


def text_block(path: str, text: str) -> str:
    """Return the block of the field for a file of the proposal. A field has no empty lines at its end, so the block
    says how many line ends the file has there: 9 at most."""
    return f"{TEXT}{min(9, len(text) - len(text.rstrip(chr(10))))}:{path}"


def _digest(texts: Sequence[tuple[str, str]]) -> str:
    """Return what differs for other texts; empty if there are none."""
    said = json.dumps(sorted(texts)).encode()
    return hashlib.sha256(said).hexdigest()[:32] if texts else ""


def person_name(answer: object) -> str:
    """Return the name in an answer to `users.info`, the same as in a button action; empty if there is none."""
    return _name(_at(answer, "user", "name"))


def _button_action(payload: object) -> Act | Ignored:
    actions = _at(payload, "actions")
    if not isinstance(actions, list) or not actions:
        raise _Unreadable("a click without an action")
    action = actions[0]
    name = _at(action, "action_id")
    if not isinstance(name, str) or name not in (*BY_ACTION, STOP_SESSION.action_id, *COMMAND_BUTTONS):
        return Ignored("a click on something that is not our button")
    person = _person(payload)
    if name == STOP_SESSION.action_id:
        return SessionStop(
            act_id=f"slack/{person.id}/{_fits(_TS, _at(action, 'action_ts'), 'action ts')}",
            person=person,
            team=_team(_first(payload, ("team", "id"), ("user", "team_id"))),
            channel=_fits(_CHANNEL, _first(payload, ("container", "channel_id"), ("channel", "id")), "channel"),
            session_id=_fits(_CARD, _at(action, "value"), "session id"),
        )
    message = _fits(_TS, _first(payload, ("container", "message_ts"), ("message", "ts")), "message ts")
    thread = _first(payload, ("container", "thread_ts"), ("message", "thread_ts"))
    clicked = ButtonAction(
        act_id=f"slack/{person.id}/{_fits(_TS, _at(action, 'action_ts'), 'action ts')}",
        person=person,
        team=_team(_first(payload, ("team", "id"), ("user", "team_id"))),
        channel=_fits(_CHANNEL, _first(payload, ("container", "channel_id"), ("channel", "id")), "channel"),
        action_id=name,
        card_id=_fits(_CARD, _at(action, "value"), "card id"),
        message=message,
        thread=message if thread is None else _fits(_TS, thread, "thread ts"),
        trigger=_optional(_TOKEN, _at(payload, "trigger_id")),
    )
    if name not in COMMAND_BUTTONS:
        return clicked
    return CommandsShown(
        clicked.act_id,
        clicked.person,
        clicked.team,
        clicked.channel,
        clicked.action_id,
        clicked.card_id,
        clicked.within,
        _optional(_TOKEN, _at(payload, "response_url")),
    )


def _submitted(payload: object) -> Act | Ignored:
    callback = _at(payload, "view", "callback_id")
    form = callback.removeprefix(FORM) if isinstance(callback, str) and callback.startswith(FORM) else ""
    if form not in BY_FORM and form not in _STEPS:
        return Ignored("a form that is not ours")
    try:
        metadata: object = json.loads(str(_at(payload, "view", "private_metadata"))[:3000])
    except (ValueError, RecursionError):
        raise _Unreadable("a form that does not say what it is about") from None
    if form in _STEPS:
        return _amendment(payload, Step(form), metadata)
    block, text = _typed(_at(payload, "view", "state", "values"))
    # The id includes the text. A refused person may send the same form with other text, which is another action. The
    # same text, sent again because no answer came, is the same action.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return FormSubmission(
        act_id=f"slack/{_fits(_TOKEN, _at(payload, 'view', 'id'), 'view id')}/{digest}",
        person=_person(payload),
        team=_team(_first(payload, ("team", "id"), ("user", "team_id"))),
        channel=_optional(_CHANNEL, _at(metadata, "channel")),
        form=form,
        card_id=_fits(_CARD, _at(metadata, "card"), "card id"),
        block=block,
        text=text,
    )


def _amendment(payload: object, step: Step, metadata: object) -> Act:
    typed = dict(_inputs(_at(payload, "view", "state", "values")))
    if step is Step.HUNKS:
        chosen = ",".join(value for block, value in typed.items() if block.startswith(HUNKS))
    else:
        chosen = _text(_at(metadata, "hunks"))
    try:
        hunks = numbers_in(chosen) if chosen else ()
    except InvalidArguments:
        raise _Unreadable("a form with numbers of hunks of an impossible form") from None
    # The steps have the same view, so what they say is a part of the id.
    texts = tuple(sorted(_edited(typed)))
    said = json.dumps([step.value, metadata, sorted(typed.items())])
    digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return AmendmentSubmission(
        act_id=f"slack/{_fits(_TOKEN, _at(payload, 'view', 'id'), 'view id')}/{digest}",
        person=_person(payload),
        team=_team(_first(payload, ("team", "id"), ("user", "team_id"))),
        channel=_optional(_CHANNEL, _at(metadata, "channel")),
        step=step,
        card_id=_fits(_CARD, _at(metadata, "card"), "card id"),
        shown=_optional(_TOKEN, _at(metadata, "shown")),
        proposed=_optional(_TOKEN, _at(metadata, "proposed")),
        hunks=hunks,
        texts=texts,
        is_as_shown=_digest(texts) == _at(metadata, "texts"),
        comments=typed.get(COMMENTS, ""),
        note=typed.get(NOTE, ""),
    )


def _inputs(values: object) -> Iterator[tuple[str, str]]:
    """Yield the blocks of a form's `state.values` with what was typed, or the chosen values with commas between."""
    for block, inputs in values.items() if isinstance(values, Mapping) else ():
        for input in inputs.values() if isinstance(block, str) and isinstance(inputs, Mapping) else ():
            options = _at(input, "selected_options")
            if isinstance(options, list):
                yield block[:255], ",".join(_text(_at(option, "value"))[:10] for option in options[:100])
            else:
                yield block[:255], _text(_at(input, "value"))


def _edited(typed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the path and the new content of each file whose field is in a form."""
    for block, text in typed.items():
        if (found := _TEXT_BLOCK.fullmatch(block)) is not None:
            body = text.rstrip("\n")
            yield found[2], body + "\n" * int(found[1]) if body else ""


def _typed(values: object) -> tuple[str, str]:
    """Return the block and value of the first text input in a form's `state.values`; empty if nothing was typed."""
    if isinstance(values, Mapping):
        for block, inputs in values.items():
            for input in inputs.values() if isinstance(block, str) and isinstance(inputs, Mapping) else ():
                if _at(input, "type") == "plain_text_input":
                    return block[:255], _text(_at(input, "value"))
    return "", ""


def _command(payload: object) -> Act:
    return Command(
        act_id=f"slack/{_fits(_TOKEN, _at(payload, 'trigger_id'), 'trigger id')}",
        person=Person(_fits(_USER, _at(payload, "user_id"), "user"), _name(_at(payload, "user_name"))),
        team=_team(_at(payload, "team_id")),
        channel=_fits(_CHANNEL, _at(payload, "channel_id"), "channel"),
        command=_fits(_TOKEN, _at(payload, "command"), "command"),
        text=_text(_at(payload, "text")),
        response_url=_optional(_TOKEN, _at(payload, "response_url")),
    )


def _reply(payload: object) -> Act | Ignored:
    event = _at(payload, "event")
    if _at(event, "type") != "message" or _at(event, "subtype") not in (None, "thread_broadcast"):
        return Ignored("an event that is not somebody's new message")
    if any(_at(event, mark) is not None for mark in ("bot_id", "bot_profile", "edited")):
        return Ignored("a message of an app, or an edited one")
    thread, ts = _at(event, "thread_ts"), _fits(_TS, _at(event, "ts"), "ts")
    if thread is None or thread == ts:
        return Ignored("a message that is no reply")
    person = Person(_fits(_USER, _at(event, "user"), "user"))
    authorizations = _at(payload, "authorizations")
    known = authorizations[:10] if isinstance(authorizations, list) else []
    ours = [_at(each, "user_id") for each in known if _at(each, "is_bot") is True]
    if person.id in ours:
        return Ignored("a message of our own")
    text = _text(_at(event, "text"))
    for bot in ours:
        # Only a mention of the app is removed: `@bob approve` asks Bob, and is no approval.
        if text.lstrip().startswith(f"<@{bot}>"):
            text = text.lstrip().removeprefix(f"<@{bot}>").lstrip(" ,:")
    channel = _fits(_CHANNEL, _at(event, "channel"), "channel")
    return ThreadReply(
        act_id=f"slack/{channel}/{ts}",
        person=person,
        team=_team(_first(event, ("team",), ("user_team",)) or _at(payload, "team_id")),
        channel=channel,
        ts=ts,
        thread=_fits(_TS, thread, "thread ts"),
        text=text,
    )


def _person(payload: object) -> Person:
    user = _at(payload, "user")
    return Person(_fits(_USER, _at(user, "id"), "user"), _name(_at(user, "name")) or _name(_at(user, "username")))


def _name(value: object) -> str:
    """Return a name as one short line. It is displayed and audited, but never compared."""
    text = value[: 4 * _NAME_LIMIT] if isinstance(value, str) else ""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:_NAME_LIMIT].strip()


def _text(value: object) -> str:
    text = value[:TEXT_LIMIT] if isinstance(value, str) else ""
    # JSON can contain half a surrogate pair, which no database and no socket accepts.
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")


def _team(value: object) -> str:
    return _optional(_TEAM, value)


def _first(value: object, *paths: tuple[str, ...]) -> object:
    """Return the value at the first path that has one."""
    return next((found for path in paths if (found := _at(value, *path)) is not None), None)


def _at(value: object, *path: str) -> object:
    """Return the value at a path of keys; None if there is no such path."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _optional(pattern: re.Pattern[str], value: object) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""


def _fits(pattern: re.Pattern[str], value: object, what: str) -> str:
    if found := _optional(pattern, value):
        return found
    raise _Unreadable(f"no {what}, or one of an impossible form")
