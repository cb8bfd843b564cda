"""What every handler of an operator command has: who sends it, its row of the table, and how its arguments are read.

A handler takes the operator service, the caller and the arguments of its row. It returns what the service returned, or
raises an `IntercomError`. `entry` makes the JSON form of the result, which ctl prints with `--json`.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Concatenate, Generic, ParamSpec, TypeVar

from attrs import field, frozen

from intercom.model.decision import Decision, Signature, SignedCommand, Verdict
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import Json, JsonObject
from intercom.model.process import Origin
from intercom.operators.commands.command import Argument, OperatorCommand
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.router_messages import Channel
from intercom.sessions.operator_service import OperatorService

P = ParamSpec("P")
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
        id = self.verdict_id or uuid.uuid4().hex
        return Verdict(id, decision, self.name, self.channel.value, self.at, text, self.origin, self.signature)


@frozen
class CommandHandler(Generic[P, R]):
    """A command with its work. `needed` names the arguments without a default."""

    row: OperatorCommand
    entry: Callable[[R], Json]
    work: Callable[Concatenate[OperatorService, Caller, P], Awaitable[R]]
    needed: frozenset[str]

    async def __call__(self, service: OperatorService, caller: Caller, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.work(service, caller, *args, **kwargs)

    def read(self, fields: Mapping[str, Json]) -> JsonObject:
        """Return the arguments in these fields of a request. Fields of other commands are ignored. Raises
        InvalidArguments if one is missing, or is none of its choices."""
        values: JsonObject = {}
        for each in self.row.arguments:
            value = _value(each, fields) if each.field else None
            if value is not None:
                values[each.field] = value
            elif each.field in self.needed and each.choices:
                raise _none_of(each)
            elif each.field in self.needed:
                raise InvalidArguments(f"{self.row.name} needs {each.missing or each.field}")
        return values


def _value(argument: Argument, fields: Mapping[str, Json]) -> Json:
    value = fields.get(argument.field)
    if argument.wire != argument.field and (older := fields.get(argument.wire)) is not None:
        if value not in (None, older):
            # Acting on the wrong session would be worse than a refusal.
            raise InvalidArguments(f"two sessions are named, {value} and {older}: name one")
        value = older
    if argument.choices and value not in (None, *argument.choices):
        raise _none_of(argument)
    return value


def _none_of(argument: Argument) -> InvalidArguments:
    return InvalidArguments(f"{argument.field} takes one of {', '.join(argument.choices)}")


def handles(
    name: str, entry: Callable[[R], Json]
) -> Callable[[Callable[Concatenate[OperatorService, Caller, P], Awaitable[R]]], CommandHandler[P, R]]:
    """Tie a function to the row of this name. Raises TypeError if it takes other arguments than the row has."""
    row = COMMANDS[name]
    known = {each.field for each in row.arguments if each.field}

    def tie(work: Callable[Concatenate[OperatorService, Caller, P], Awaitable[R]]) -> CommandHandler[P, R]:
        _service, _caller, *taken = inspect.signature(work).parameters.values()
        if known != {each.name for each in taken}:
            raise TypeError(f"what {work.__name__} takes are not the arguments of {name}: {', '.join(sorted(known))}")
        needed = frozenset(each.name for each in taken if each.default is each.empty)
        return CommandHandler(row, entry, work, needed)

    return tie


def stripped(text: str | None) -> str | None:
    """Return a text without the space around it; None if nothing is left."""
    return (text or "").strip() or None
