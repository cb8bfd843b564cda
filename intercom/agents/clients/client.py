"""What Intercom knows of an MCP client: the record that each module of this package fills in, what a client asks its
permission hook, and how its fields are read from a payload, which may be anything.

Standard library only, and little of it: a client waits for the start of its hook, which reads these records.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from intercom.model.client_titles import CLIENT_TITLES
from intercom.model.json_types import Json, JsonObject

if TYPE_CHECKING:
    from pathlib import Path


#: The name of Intercom's entry in every client's file.
SERVER_NAME = "agent-intercom"
#: The environment variable from which clients take the token for HTTP.
TOKEN_VARIABLE = "INTERCOM_HTTP_TOKEN"
#: The header that names an agent's directory over HTTP, where the server cannot see it. Clients that name their roots
#: only in the older protocol version, or not at all, send it from the shell's PWD.
WORKSPACE_HEADER = "X-Intercom-Workspace"
#: The time limit for a tool's call that the entries for clients set, in seconds, so that a call can wait for a person.
#: An approval stays valid as long by default.
A_DAY_SECONDS = 86_400
#: How long a client lets the hook of an event run, in seconds, for one that asks and for one at the end of a turn.
HOOK_SECONDS, STOP_HOOK_SECONDS = 3600, 30
#: How long before the client's limit a hook answers, in seconds: a hook that is killed has refused nothing.
HOOK_MARGIN_SECONDS = 30
#: The name of the tool server and of the model in a timed probe.
PROBE_NAME = "probe"

#: Kinds of operations; these are the values of `intercom.model.request.OperationKind`.
WRITE, COMMAND, FETCH, MCP, READ, OTHER = "write", "command", "fetch", "mcp", "read", "other"
#: Intercom's own tools, and what happens only inside the client: no person is asked about either.
OWN, INNER = "own", "inner"
KINDS = (WRITE, COMMAND, FETCH, MCP, READ, OTHER)


class Operation(NamedTuple):
    """One use of a tool. The fields are those of `intercom.model.request.Operation`; `touches` holds its files as
    JSON."""

    kind: str
    tool: str
    title: str = ""
    text: str | None = None
    touches: tuple[JsonObject, ...] = ()
    identity: str = ""
    cwd: str | None = None
    path: str | None = None
    why: str | None = None
    into: str | None = None
    unsandboxed: bool = False


class Question(NamedTuple):
    """The request for a permission. `conversation` and `turn` are the client's names for them, or "". `use` is its id
    of this use of the tool, if any."""

    event: str
    operation: Operation
    conversation: str
    turn: str
    use: str | None
    cwd: str | None
    roots: tuple[str, ...] = ()


class Stopping(NamedTuple):
    """The request at the end of an agent's turn, which asks for work to do first."""

    event: str
    conversation: str
    cwd: str | None
    roots: tuple[str, ...] = ()


class Other(NamedTuple):
    """An event without a question."""

    event: str


HookEvent = Question | Stopping | Other


class Unreadable(Exception):
    """The payload is not what the client documents for its hooks; the message says what is missing."""


class Contradiction(Exception):
    """Fields that are names for one thing have different values, so it is unknown which one counts."""


class Location(NamedTuple):
    """Where a client's file is: `path` in the project, or in the directory `home` of the user's home directory. The
    environment variable `variable` replaces that directory."""

    path: str
    home: str = ""
    variable: str = ""

    @property
    def is_in_project(self) -> bool:
        return not self.home

    @property
    def is_toml(self) -> bool:
        """Whether the file is TOML; otherwise it is JSON."""
        return self.path.endswith(".toml")

    def file(self, project: Path) -> Path:
        """Return the file for this project."""
        if self.is_in_project:
            return project / self.path
        directory = os.environ.get(self.variable) or os.path.expanduser(f"~/{self.home}")
        return project / os.path.abspath(directory) / self.path


class Timeout(NamedTuple):
    """The key of an entry that limits a call: its name, its unit in seconds, and the limit in seconds without it (None
    if that is unknown)."""

    key: str
    unit: float
    default: float | None = None


class Entry(NamedTuple):
    """How a client's file names an MCP server.

    The entry is in `table` of `file`; a file in the project is shared by its repository. `stdio` makes the entry from
    the command that starts the shim. `http` makes it from the address, and whether a token is required. The token
    itself is never in it: the entry names the variable that has it, or `inputs` prompt for it. `note` is for the
    person, and so is `token_note` if there is a token. `open_lists` are keys of lists in which the person's own items
    stay.
    """

    file: Location
    table: str
    stdio: Callable[[list[str]], JsonObject]
    http: Callable[[str, bool], JsonObject]
    note: str
    token_note: str = f"Start it where {TOKEN_VARIABLE} is set; it reads the token from there."
    inputs: tuple[JsonObject, ...] = ()
    timeout: Timeout | None = None
    open_lists: tuple[str, ...] = ()


def call_wait_note(name: str) -> str:
    """Return what a person may set if their client's file lets a call last longer than the default of Intercom."""
    return (
        f'Optional: [clients."{name}"] call_wait_seconds in Intercom\'s configuration sets how long one call waits for'
        " you before it returns and the agent calls again."
    )


def bearer(value: str, *, token: bool, **others: str) -> JsonObject:
    """Return an entry's headers: `others`, and the token as the client names it, if one is required."""
    headers = {**others, **({"Authorization": f"Bearer {value}"} if token else {})}
    return {"headers": headers} if headers else {}


class Hooks(ABC):
    """A client's permission hooks: what `init` installs, and how a hook reads the client's payload and answers it.

    `mcp_name` is the client's name over MCP. `file` is the hooks file, and `head` is what a new one has besides the
    hooks. `asks` are the installed events that ask about an operation. `stops` are those at the end of an agent's turn,
    and the first of them is installed. `note` is for the person. `run_by_others` says that other clients
    run these hooks too. `names_thread` says that a conversation has the same name over MCP.
    """

    mcp_name: str
    file: Location
    asks: tuple[str, ...]
    stops: tuple[str, ...]
    head: Mapping[str, Json] = {}
    note: str = ""
    run_by_others = False
    names_thread = False

    @property
    def events(self) -> tuple[str, ...]:
        """The events that are installed."""
        return (*self.asks, self.stops[0])

    @abstractmethod
    def entry(self, command: str, seconds: int, *, asks: bool) -> JsonObject:
        """Return the entry of an event, which runs a command line for at most so long."""

    def sent(self, data: JsonObject) -> bool:
        """Whether this client sent a payload to the hook of another client."""
        return False

    @abstractmethod
    def read(self, data: JsonObject, event: str | None) -> HookEvent:
        """Return the request in a payload. `event` is the one that the hook was set up for. Raises Unreadable for a
        payload that this client does not send."""

    @abstractmethod
    def decide(self, event: str, allow: bool, why: str) -> JsonObject:
        """Return the answer that allows or denies an operation. Allowing skips the client's own question."""

    def pass_on(self, event: str) -> JsonObject:
        """Return the answer that decides nothing: the client continues as without this hook."""
        return {}

    def continue_with(self, event: str, text: str) -> JsonObject:
        """Return the answer that keeps the agent from stopping, and gives it this text."""
        return {"decision": "block", "reason": text}


class ProbeRun(NamedTuple):
    """A run of a client by a script: its arguments and environment, and the `content` of its configuration `file` (JSON
    or TOML)."""

    arguments: list[str]
    environ: dict[str, str]
    file: str
    content: JsonObject


class Probe(NamedTuple):
    """How `doctor --probe` runs a client. `program` is its command. `run` gets a new directory, the address of the
    model, and the entry of the probe's tool server."""

    program: str
    run: Callable[[str, str, JsonObject], ProbeRun]


class ProjectRecord(NamedTuple):
    """Where a client records what a person switched off in one project: in `file`, at the project's path in `table`,
    the list `switched_off` of servers. `remedy` is how the person switches one on."""

    file: Location
    table: str
    switched_off: str
    remedy: str


class Permissions(NamedTuple):
    """How a client's settings for a project permit a server of the project's file, and its tools.

    `rule` permits all tools of our server, at `allow` in the table `permissions`, which also has `deny` and `ask`.
    `accepted_servers` and `refused_servers` are the lists of servers that the person has answered for. `environ` are
    variables, in the table `env`, with which calls can wait for a person; a value of the person's own stays. `note` is
    for the person. `also` are other settings of the client that count here, and have the same keys.
    """

    file: Location
    rule: str
    accepted_servers: str
    refused_servers: str
    environ: Mapping[str, str] = {}
    note: str = ""
    also: tuple[Location, ...] = ()
    record: ProjectRecord | None = None


class OwnTools(NamedTuple):
    """What restricts the own tools of a client that has no hooks of ours and whose tools write and run without asking.

    `deny` is what the person puts into the file of `Entry`. `are_restricted` tells whether a document of that file, or
    of another with its form, restricts them: by this or by the person's own rules.
    """

    deny: JsonObject
    are_restricted: Callable[[JsonObject], bool]


class Instructions(NamedTuple):
    """The Markdown file whose text a client gives its model in every project. The client reads `instead`, another one,
    only as long as there is no `file`."""

    file: Location
    instead: Location | None = None


class Client(NamedTuple):
    """One client, with its `name` on the command line. Its title for people is in `intercom.model.client_titles`.

    `call_waits` maps the beginnings of the client's name over MCP, in lower case, to its poll interval in seconds. None
    means no limit; docs/reference/clients.md says how they are known. The first one is that of the newest version.
    """

    name: str
    call_waits: Mapping[str, float | None]
    entry: Entry
    hooks: Hooks | None = None
    probe: Probe | None = None
    instructions: Instructions | None = None
    permissions: Permissions | None = None
    own_tools: OwnTools | None = None

    @property
    def title(self) -> str:
        """Its title for people."""
        return CLIENT_TITLES[self.own_names[0]]

    @property
    def own_names(self) -> tuple[str, ...]:
        """The beginnings of its own name over MCP, without those of relatives that have another time limit."""
        waits = tuple(self.call_waits.values())
        return tuple(name for name, seconds in self.call_waits.items() if seconds == waits[0])

    def is_named(self, mcp_name: str | None) -> bool:
        """Whether this is the client with this name over MCP."""
        return (mcp_name or "").lower().startswith(tuple(self.call_waits))


def unknown(event: str, tool: str | None) -> Other:
    """Return an unknown event, about which nothing is asked. Raises Unreadable if it is about a tool, so none passes
    unasked."""
    if tool is not None:
        raise Unreadable(f"its event {event[:80]!r} is not one that can be answered")
    return Other(event)


def parse(raw: bytes) -> JsonObject:
    """Parse the JSON object that a client wrote to its hook. Raises Unreadable for anything else."""
    try:
        # Cursor begins with a byte order mark.
        data = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(data, dict):
        raise Unreadable("it is not a JSON object")
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def text(data: object, *names: str) -> str | None:
    """Return the first of these fields that is a non-empty text; None if none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str) and value:
                return value
    return None


def one(given: JsonObject, *names: str) -> str | None:
    """Return the text of these fields, which are names for one thing; None if there is none. Raises Contradiction if
    two differ: the client may not use the one that people see."""
    values = [given[name] for name in names if given.get(name) is not None]
    if any(value != values[0] for value in values[1:]):
        raise Contradiction
    return values[0] if values and isinstance(values[0], str) else None


def one_text(given: JsonObject, *names: str) -> str | None:
    """Like `one`, and None for an empty text."""
    return one(given, *names) or None


def table(data: object, *names: str) -> JsonObject:
    """Return the first of these fields that is an object, or a text with one as JSON; empty if none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str):
                value = _parsed(value)
            if isinstance(value, dict):
                return value
    return {}


def rows(data: object, name: str) -> list[JsonObject]:
    """Return the objects in a field that is a list."""
    value = data.get(name) if isinstance(data, Mapping) else None
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts(data: object, name: str) -> list[str]:
    """Return the texts in a field that is a list."""
    value = data.get(name) if isinstance(data, Mapping) else None
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def event_of(data: object, named: str | None, known: Collection[str], *names: str) -> str | None:
    """Return the event that the client names in one of these fields. Returns `named`, which the hook was set up for, if
    the client names none. A client's name that is not `known` gives way to a known `named`, in case the client renames
    the event."""
    said = text(data, *names)
    return named if said is None or (said not in known and named in known) else said


def canonical(value: object) -> str:
    """Return the same text for equal JSON values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _parsed(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
