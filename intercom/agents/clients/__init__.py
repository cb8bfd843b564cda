"""The MCP clients that Intercom knows. One client is one module of this package, with its record as `CLIENT`.

To add a client, write its module. Then add

- its names over MCP, with its title for people, to `CLIENT_TITLES` in `model/client_titles.py`
- its name to `NAMES`, to `HOOKED` if it has permission hooks, and to `WITHOUT_TASKS` if it waits better without tasks
- the place and the form of its entries to `client_files` and `client_entries` in `gateway/`, if its servers can be
  moved behind the gateway
- its built-in tools to `builtin_tools`, if they have names that are not there yet
- the directory of its configuration to `PROTECTED_NAMES` in `workspace/policy.py`
- its permanent instructions to the table in `docs/how-to/instruct-agents.md`, if it has any
- its page in `docs/how-to/clients/`, a link to that in `docs/how-to/connect-an-agent.md`, its row in
  `docs/reference/clients.md`, and its name in `README.md`. `python -m tests.docs` then writes the parts that are made
  from the record.

Everything else (init, doctor, the hooks) reads the record.

Standard library only. A module is imported when its client is looked up: the command line needs the names alone, and a
hook needs its own client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from intercom.model.json_types import JsonObject

if TYPE_CHECKING:
    from intercom.agents.clients.client import Client, Hooks
    from intercom.model.config import Config

#: The clients by name; the module has the same name with underscores.
NAMES = ("claude-code", "codex", "cursor", "vscode", "copilot-cli", "opencode", "gemini-cli", "qwen-code")
#: Those with permission hooks.
HOOKED = ("claude-code", "codex", "cursor", "copilot-cli")
#: The beginnings of the names over MCP of clients that are offered no tasks. Claude Code moves each task to the
#: background at once, and tells its model there that no consent came with its result.
WITHOUT_TASKS = ("claude-code",)
#: The extension with which protocol version 2026-07-28 has tasks.
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"


class _Clients(Mapping[str, "Client"]):
    """The clients by name."""

    def __getitem__(self, name: str) -> Client:
        if name not in NAMES:
            raise KeyError(name)
        client: Client = import_module(f"{__name__}.{name.replace('-', '_')}").CLIENT
        return client

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


CLIENTS: Mapping[str, Client] = _Clients()

#: The poll interval of unknown clients in seconds: the TypeScript SDK ends a call after 60 s by default.
_UNKNOWN_SECONDS = 50.0
#: Our own program waits without limit (`agent-intercom demo`).
_OURS = "agent-intercom"


def call_wait_seconds(client_name: str | None, config: Config) -> float | None:
    """Return the poll interval of a client in seconds: how long a call waits before it is answered "pending". None
    means no limit.

    `client_name` is the client's name over MCP. The longest known beginning of it counts. `[clients]` in the
    configuration overrides the defaults. A client that times a call out tells its model that the tool failed; a call
    that is answered in time does not fail.
    """
    name = (client_name or "").lower()
    for known in (_configured_call_waits(config), default_call_waits()):
        found = [prefix for prefix in known if name.startswith(prefix)]
        if found:
            return known[max(found, key=len)]
    return _UNKNOWN_SECONDS


def longest_call_wait(client: Client, config: Config) -> float | None:
    """Return the longest poll interval that the configuration, or else the default, gives a known client under any of
    its names over MCP; in seconds, None without limit."""
    keys = [key.lower() for key in config.clients]
    named = [key for key in keys if key == client.name or key.startswith(client.own_names)]
    waits = [call_wait_seconds(name, config) for name in named or client.own_names[:1]]
    limits = [seconds for seconds in waits if seconds is not None]
    return max(limits) if len(limits) == len(waits) else None


def _configured_call_waits(config: Config) -> dict[str, float | None]:
    """Return the poll intervals in `[clients]`, by the beginning of the name over MCP. A name of `CLIENTS` stands for
    those that the client gives itself, unless they have an interval of their own."""
    own = {key.lower(): each.call_wait_seconds for key, each in config.clients.items()}
    given = {key: seconds or None for key, seconds in own.items() if seconds is not None}
    meant = {name: given[key] for key in given if key in NAMES for name in CLIENTS[key].own_names}
    return meant | given


def offers_tasks(client_name: object) -> bool:
    """Whether the client with this name over MCP is offered tasks; without them its calls wait."""
    return not (isinstance(client_name, str) and client_name.lower().startswith(WITHOUT_TASKS))


def without_tasks(answer: JsonObject) -> JsonObject:
    """Return an answer to a handshake, or to `tools/list`, that offers no tasks; any other answer unchanged."""
    found, capabilities, tools = dict(answer), answer.get("capabilities"), answer.get("tools")
    if isinstance(capabilities, dict):
        left = {key: value for key, value in capabilities.items() if key != "tasks"}
        extensions = left.get("extensions")
        if isinstance(extensions, dict):
            left["extensions"] = {key: value for key, value in extensions.items() if key != TASKS_EXTENSION}
        found["capabilities"] = left
    if isinstance(tools, list):
        found["tools"] = [
            {key: value for key, value in tool.items() if key != "execution"} if isinstance(tool, dict) else tool
            for tool in tools
        ]
    return found


@cache
def default_call_waits() -> dict[str, float | None]:
    """Return the poll interval of each known client, by the beginning of its name over MCP."""
    known: dict[str, float | None] = {_OURS: None}
    for client in CLIENTS.values():
        known |= client.call_waits
    return known


def hooks_of(name: str) -> Hooks:
    """Return the permission hooks of a client. Raises KeyError if it has none."""
    hooks = CLIENTS[name].hooks
    if hooks is None:
        raise KeyError(name)
    return hooks


def sender_of(data: JsonObject, named: Client) -> Client:
    """Return the client that sent this payload to the hook of `named`: some clients run the hooks of another, with
    their own payloads."""
    if named.hooks is not None and named.hooks.run_by_others:
        for name in HOOKED:
            if hooks_of(name).sent(data):
                return CLIENTS[name]
    return named
