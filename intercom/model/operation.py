"""An operation that a client is about to perform, and for which its permission hook asks for approval."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class OperationKind(StrEnum):
    """The effect of an operation: it changes files, runs a command, uses the network, uses another MCP server's tool,
    only reads, or is unknown."""

    WRITE = "write"
    COMMAND = "command"
    FETCH = "fetch"
    MCP = "mcp"
    READ = "read"
    OTHER = "other"


@frozen
class Replacement:
    """A replacement of one piece of text by another, once or (`every`) everywhere."""

    old: str
    new: str
    every: bool = False


@frozen
class FileTouch:
    """The change to one file: its whole new `content`, a sequence of replacements, or its deletion. `diff` holds the
    changed lines if the client gives only those."""

    path: str
    content: str | None = None
    replacements: tuple[Replacement, ...] = ()
    delete: bool = False
    move_to: str | None = None
    diff: str | None = None


@frozen
class Operation:
    """One operation. `tool` is the client's name for it.

    `title` describes it in a line, `text` in full (a command, an address, arguments). `cwd` is its directory.
    `identity` and the initial files decide whether two operations are the same; it leaves out explanations. `path` is
    the file of a read. `why` is the agent's own explanation, for people only. `into` is the running command that gets
    `text` as input: "" if the client does not name it, None for other operations. `unsandboxed` asks to run the command
    outside the client's sandbox, which no policy approves.
    """

    kind: OperationKind
    tool: str
    title: str
    identity: str
    text: str | None = None
    cwd: str | None = None
    touches: tuple[FileTouch, ...] = ()
    path: str | None = None
    why: str | None = None
    into: str | None = None
    unsandboxed: bool = False
