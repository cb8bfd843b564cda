"""An operation: what a client is about to do by itself and asks leave for, through its permission hook."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class OperationKind(StrEnum):
    """What it does: changes files, runs a command, reaches the network, uses another MCP server's tool, only reads, or
    something that is not known."""

    WRITE = "write"
    COMMAND = "command"
    FETCH = "fetch"
    MCP = "mcp"
    READ = "read"
    OTHER = "other"


@frozen
class Replacement:
    """One piece of text for another; `every` replaces all of them."""

    old: str
    new: str
    every: bool = False


@frozen
class FileTouch:
    """What becomes of one file: its whole new `content`, pieces replaced one after the other, or that it goes. `diff`
    holds the changed lines where the client gives no more than those."""

    path: str
    content: str | None = None
    replacements: tuple[Replacement, ...] = ()
    delete: bool = False
    move_to: str | None = None
    diff: str | None = None


@frozen
class Operation:
    """`tool` is the client's own name of it; `title` says it in a line, `text` in full (the command itself, an
    address, arguments); `cwd` is where it happens. `identity` is what makes two operations the same, beside the files
    they start from: it leaves out what only explains. `path` is the file that a read is of, and `why` a line of the
    agent's own on what it is for: for people, who may believe it, and nobody else. `into` names the running command
    that `text` is typed into, "" where the client does not name it, and is None for all else. `unsandboxed` says that
    the agent asks its client to run the command outside of the sandbox it would run in: no policy lets that pass."""

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
