"""What a hook has to answer, and what it answers."""

from __future__ import annotations

from typing import Any, NamedTuple

#: What an operation does; the first six are the values of `intercom.model.operation.OperationKind`.
WRITE, COMMAND, FETCH, MCP, READ, OTHER = "write", "command", "fetch", "mcp", "read", "other"
#: A tool of Intercom's own, and what happens inside the client alone: nobody is ever asked about either.
OWN, INNER = "own", "inner"
KINDS = (WRITE, COMMAND, FETCH, MCP, READ, OTHER)


class Operation(NamedTuple):
    """One use of a tool. Fields as in `intercom.model.operation.Operation`; `touches` are its files, as JSON holds
    them."""

    kind: str
    tool: str
    title: str = ""
    text: str | None = None
    touches: tuple[dict[str, Any], ...] = ()
    identity: str = ""
    cwd: str | None = None
    path: str | None = None
    why: str | None = None
    into: str | None = None
    unsandboxed: bool = False


class Question(NamedTuple):
    """May this be done? `conversation` and `turn` are the client's names of them, "" where it has none; `use` that of
    this very use of the tool, if it has one."""

    client: str
    event: str
    operation: Operation
    conversation: str
    turn: str
    use: str | None
    cwd: str | None
    roots: tuple[str, ...] = ()


class Stopping(NamedTuple):
    """The agent is about to end its turn: is there something for it to do first?"""

    client: str
    event: str
    conversation: str
    cwd: str | None
    roots: tuple[str, ...] = ()


class Other(NamedTuple):
    """An event that nothing is asked about."""

    event: str


Asked = Question | Stopping | Other


class Unreadable(Exception):
    """The client's words are not what its hooks are documented to get; the message says what is missing."""


class Said(NamedTuple):
    """What the hook prints, and how it exits."""

    stdout: str
    stderr: str = ""
    code: int = 0
