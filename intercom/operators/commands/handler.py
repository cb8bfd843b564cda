"""A handler of an operator command: what it gets, and how it is tied to its row.

A handler takes the operator service, the caller and its arguments. It returns what the service returned, or raises an
`IntercomError`. `entry` makes the JSON form of the result, which ctl prints with `--json`.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import attrs
from attrs import AttrsInstance, field, frozen

from intercom.model.decision import Decision, Signature, SignedCommand, Verdict
from intercom.model.errors import InvalidArguments
from intercom.model.process import Origin
from intercom.operators.commands.table import COMMANDS, Argument, OperatorCommand
from intercom.operators.messages import Channel
from intercom.sessions.operator_service import OperatorService

A = TypeVar("A", bound=AttrsInstance)
R = TypeVar("R")


@frozen
class Caller:
    """Who sends a command, and through which channel.

    `act` is the id that makes a repeated act safe, and `verdict_id` that of a decision; without them the call counts
    once more each time. `signature` and `signed` come from a person's own key. `default_reason` is the reason of a
    rejection that gives none. `owner` is the chat user who owns the sessions that this call starts, and `chat_channel`
    the channel of their threads.
    """

    name: str
    channel: Channel
    origin: Origin | None = None
    act: str | None = None
    verdict_id: str | None = None
    signature: Signature | None = None
    signed: SignedCommand | None = None
    default_reason: str | None = None
    owner: str = ""
    chat_channel: str | None = None
    at: datetime = field(factory=lambda: datetime.now(UTC))

    def verdict(self, decision: Decision, text: str | None) -> Verdict:
        """Return the caller's decision about a card."""
        return Verdict(
            self.verdict_id or uuid.uuid4().hex,
            decision,
            self.name,
            self.channel.value,
            self.at,
            text,
            self.origin,
            self.signature,
        )


@frozen
class Nothing:
    """No arguments."""


@frozen
class ById:
    """A card, an instruction or a checkpoint, by its id or a unique prefix."""

    id: str


@frozen
class OfSession:
    """A session by its id or a unique prefix; without one, all sessions or the only possible one."""

    session: str | None = None


def stripped(text: str | None) -> str | None:
    """Return a text without the space around it; None if nothing is left."""
    return (text or "").strip() or None


Work = Callable[[OperatorService, Caller, A], Awaitable[R]]


@frozen
class CommandHandler(Generic[A, R]):
    """A command with its work. `takes` is the class of its arguments."""

    row: OperatorCommand
    takes: type[A]
    entry: Callable[[R], Any]
    work: Work[A, R]

    async def __call__(self, service: OperatorService, caller: Caller, asked: A) -> R:
        return await self.work(service, caller, asked)

    def read(self, fields: Mapping[str, Any]) -> A:
        """Return the arguments in these fields of a request. Fields of other commands are ignored. Raises
        InvalidArguments if one is missing, or is none of its choices."""
        values = {each.field: value for each in self.row.arguments if (value := _value(each, fields)) is not None}
        for needed in attrs.fields(self.takes):
            if needed.default is attrs.NOTHING and needed.name not in values:
                [argument, *_] = [each for each in self.row.arguments if each.field == needed.name]
                raise _none_of(argument) if argument.choices else _missing(self.row, argument)
        return self.takes(**values)


def _value(argument: Argument, fields: Mapping[str, Any]) -> Any:
    if not argument.field:
        return None
    value = fields.get(argument.field)
    if argument.wire != argument.field and (older := fields.get(argument.wire)) is not None:
        if value not in (None, older):
            # Acting on the wrong session would be worse than a refusal.
            raise InvalidArguments(f"two sessions are named, {value} and {older}: name one")
        value = older
    if argument.choices and value not in (None, *argument.choices):
        raise _none_of(argument)
    return value


def _missing(row: OperatorCommand, argument: Argument) -> InvalidArguments:
    return InvalidArguments(f"{row.name} needs {argument.missing or argument.field}")


def _none_of(argument: Argument) -> InvalidArguments:
    return InvalidArguments(f"{argument.field} takes one of {', '.join(argument.choices)}")


def handles(name: str, takes: type[A], entry: Callable[[R], Any]) -> Callable[[Work[A, R]], CommandHandler[A, R]]:
    """Tie a function to the row of this name. Raises TypeError if the class has other fields than the row."""
    row = COMMANDS[name]
    known = {each.field for each in row.arguments if each.field}
    if known != {each.name for each in attrs.fields(takes)}:
        raise TypeError(f"the fields of {takes.__name__} are not the arguments of {name}: {', '.join(sorted(known))}")
    return lambda work: CommandHandler(row, takes, entry, work)
