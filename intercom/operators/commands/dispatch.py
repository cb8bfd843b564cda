"""The handlers of all commands by name, and the way of a request to its handler: authorized, read, carried out."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from intercom.model.errors import InvalidArguments
from intercom.operators.commands import checkpoints, policies, requests, server, sessions, steering
from intercom.operators.commands.handler import CommandHandler
from intercom.operators.commands.table import COMMANDS, WATCH

_TOPICS: tuple[ModuleType, ...] = (requests, sessions, steering, checkpoints, policies, server)

HANDLERS: dict[str, CommandHandler[Any, Any]] = {
    each.row.name: each for topic in _TOPICS for each in vars(topic).values() if isinstance(each, CommandHandler)
}
assert set(HANDLERS) == set(COMMANDS), "each row has a handler"


def handler_of(name: str) -> CommandHandler[Any, Any]:
    """Return the handler of this command. Raises InvalidArguments, which lists the commands, for any other word."""
    handler = HANDLERS.get(name)
    if handler is None:
        known = ", ".join(sorted([*HANDLERS, WATCH]))
        raise InvalidArguments(f"unknown command {name[:40]!r}; known: {known}")
    return handler
