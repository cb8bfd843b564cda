"""The requests to a hook, and its answer."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Kinds of operations; these are the values of `intercom.model.operation.OperationKind`.
WRITE, COMMAND, FETCH, MCP, READ, OTHER = "write", "command", "fetch", "mcp", "read", "other"
#: Intercom's own tools, and what happens only inside the client: no person is asked about either.
OWN, INNER = "own", "inner"
KINDS = (WRITE, COMMAND, FETCH, MCP, READ, OTHER)


class Operation(NamedTuple):
    """One use of a tool. The fields are those of `intercom.model.operation.Operation`; `touches` holds its files as
    JSON."""

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
    """The request for a permission. `conversation` and `turn` are the client's names for them, or "". `use` is its id
    of this use of the tool, if any."""

    client: str
    event: str
    operation: Operation
    conversation: str
    turn: str
    use: str | None
    cwd: str | None
    roots: tuple[str, ...] = ()


class Stopping(NamedTuple):
    """The request at the end of an agent's turn, which asks for work to do first."""

    client: str
    event: str
    conversation: str
    cwd: str | None
    roots: tuple[str, ...] = ()


class Other(NamedTuple):
    """An event without a question."""

    event: str


Asked = Question | Stopping | Other


class Unreadable(Exception):
    """The payload is not what the client documents for its hooks; the message says what is missing."""


class Said(NamedTuple):
    """The output of the hook and its exit code."""

    stdout: str
    stderr: str = ""
    code: int = 0
