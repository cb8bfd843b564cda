"""The MCP servers that a client already has: entries of its configuration, read as they are, as downstreams. Pure.

Each client writes the same things with other keys and refers to variables in its own way:

| client      | file                            | table         | variables                                   |
|-------------|---------------------------------|---------------|---------------------------------------------|
| Claude Code | `.mcp.json`, `~/.claude.json`   | `mcpServers`  | `${NAME}`, `${NAME:-text}`                  |
| Cursor      | `.cursor/mcp.json`              | `mcpServers`  | `${env:NAME}`, `${workspaceFolder}`, ...    |
| VS Code     | `.vscode/mcp.json`              | `servers`     | the same, and `${input:ID}` from `inputs`   |
| Codex       | `config.toml`                   | `mcp_servers` | none; keys name variables                   |
| opencode    | `opencode.json`, `.jsonc`       | `mcp`         | `{env:NAME}`; `{file:PATH}` is a file's text|
| Gemini CLI  | `.gemini/settings.json`         | `mcpServers`  | `$NAME`, `${NAME}`, `${NAME:-text}`         |
| Qwen Code   | `.qwen/settings.json`           | `mcpServers`  | the same                                    |

Sources: code.claude.com/docs/en/mcp, cursor.com/docs/mcp, docs/copilot/reference/mcp-configuration.md of VS Code's
documentation, codex-rs/config/src/mcp_types.rs of Codex, opencode.ai/v1/docs/mcp-servers, docs/tools/mcp-server.md of
Gemini CLI, and the programs themselves: `url` alone is HTTP to Gemini CLI 0.61, and SSE to Qwen Code 0.24.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from attrs import evolve, field, frozen

from intercom.gateway import json_settings as read
from intercom.gateway import variables
from intercom.gateway.downstream_config import NAME_LENGTH, SCHEMA_VERSION, DownstreamConfig, Transport
from intercom.gateway.downstream_file import UNUSED_BY_HTTP, UNUSED_BY_STDIO, structure
from intercom.gateway.json_settings import Fault, Place, SettingsError, Unfit, plain


class Dialect(StrEnum):
    """How a client writes its MCP servers. The values are the clients' names on the command line."""

    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"
    OPENCODE = "opencode"
    GEMINI_CLI = "gemini-cli"
    QWEN_CODE = "qwen-code"


#: The table that holds a client's servers.
TABLES: Final[Mapping[Dialect, str]] = {
    Dialect.CLAUDE_CODE: "mcpServers",
    Dialect.CURSOR: "mcpServers",
    Dialect.VSCODE: "servers",
    Dialect.CODEX: "mcp_servers",
    Dialect.OPENCODE: "mcp",
    Dialect.GEMINI_CLI: "mcpServers",
    Dialect.QWEN_CODE: "mcpServers",
}
_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": Transport.STDIO,
    "local": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamable_http": Transport.HTTP,
    "streamableHttp": Transport.HTTP,
    "sse": Transport.SSE,
    "remote": Transport.HTTP,
}


@frozen
class Note:
    """What a person should know about an entry that is taken over: the key, and a sentence."""

    key: str
    text: str


@frozen
class ClientEntry:
    """One server of a client. `config` is None if there are faults.

    `secrets` are the names in the keychain for what VS Code asks its user, with the question. They must be stored
    before the downstream can be started. Each begins with the downstream's name, so no entry can ask for a secret that
    was stored for another downstream, or for something else.
    """

    name: str
    config: DownstreamConfig | None
    faults: tuple[Fault, ...] = ()
    notes: tuple[Note, ...] = ()
    secrets: Mapping[str, str] = field(factory=dict)


def read_entries(dialect: Dialect, content: str, file: str, workspace: Path | None = None) -> tuple[ClientEntry, ...]:
    """Read all servers in the text of a client's file. Raises SettingsError if it cannot be parsed.

    `workspace` is the directory of the project that the file belongs to; None for the user's own file. From Claude
    Code's own file, the servers of this project are read, too.
    """
    try:
        raw: object = tomllib.loads(content) if dialect is Dialect.CODEX else read.parse_json(content)
    except (ValueError, RecursionError) as error:
        at = re.search(r"line (\d+)", str(error))
        line = int(at[1]) if at else None
        raise SettingsError([Fault(file, "", "is not TOML", "correct that place", line)]) from None
    except read.BadJson as error:
        raise SettingsError(
            [Fault(file, "", f"is not JSON ({error.what})", "correct that place", error.line)]
        ) from None
    lines = {} if dialect is Dialect.CODEX else {key: line for key, line, _ in read.key_lines(content)}
    whole = raw if isinstance(raw, Mapping) else {}
    inputs = whole.get("inputs")
    found: list[ClientEntry] = []
    for place, servers in _servers(dialect, whole, file, workspace):
        for name, entry in servers.items():
            read_one = read_entry(dialect, name, entry, place.below(name), inputs=inputs, workspace=workspace)
            found.append(evolve(read_one, faults=tuple(read.located(read_one.faults, lines))))
    return tuple(_without_equal_names(found, file))


def _servers(
    dialect: Dialect, whole: Mapping[str, object], file: str, workspace: Path | None
) -> Iterator[tuple[Place, Mapping[str, object]]]:
    table = TABLES[dialect]
    homes = [(Place(file), whole)]
    projects = whole.get("projects")
    if dialect is Dialect.CLAUDE_CODE and isinstance(projects, Mapping) and workspace is not None:
        homes.append((Place(file, "projects"), projects.get(str(workspace), {})))
    for place, home in homes:
        servers = home.get(table) if isinstance(home, Mapping) else None
        if isinstance(servers, Mapping):
            yield place.below(table), servers


def _without_equal_names(entries: Sequence[ClientEntry], file: str) -> Iterator[ClientEntry]:
    """Refuse an entry whose name, as a downstream's, an earlier one has."""
    names: set[str] = set()
    for entry in entries:
        name = entry.config.name if entry.config else None
        if name is not None and name.lower() in names:
            what = f"would be called {name}, as another server of this file"
            fault = Fault(file, plain(entry.name) or "a server", what, "rename one of the two in the client")
            yield evolve(entry, config=None, faults=(*entry.faults, fault))
            continue
        names.add((name or "").lower())
        yield entry


def read_entry(
    dialect: Dialect,
    name: str,
    entry: object,
    place: Place,
    *,
    inputs: object = None,
    workspace: Path | None = None,
    downstream: str | None = None,
) -> ClientEntry:
    """Read one server, whose place in the file is `place`. `inputs` are VS Code's questions, as in its file.

    `downstream` is the name that the downstream gets; None for the most similar valid one.
    """
    place = Place(place.file, place.key, [], _THEIR_NAMES[dialect])
    if not isinstance(entry, Mapping):
        place.fault(f"is {read.kind_of(entry)}", "write a table with command, or url")
        return ClientEntry(name, None, tuple(place.faults))
    translation = _Translation(dialect, place, inputs, workspace, downstream or _name(name))
    raw = translation.translate(name, entry)
    config = structure(raw, place)
    faults = tuple(place.faults)
    return ClientEntry(name, None if faults else config, faults, tuple(translation.notes), dict(translation.secrets))


#: Qwen Code is made from Gemini CLI.
_GEMINI: Final = (Dialect.GEMINI_CLI, Dialect.QWEN_CODE)
_GEMINI_NAMES: Final = {
    "baseURL": "url",
    "transport": "type",
    "capabilities": "includeTools",
    "disabledTools": "excludeTools",
}
#: What the clients call our keys, for faults.
_THEIR_NAMES: Final[Mapping[Dialect, Mapping[str, str]]] = {
    Dialect.CLAUDE_CODE: {"baseURL": "url", "transport": "type"},
    Dialect.CURSOR: {"baseURL": "url", "transport": "type", "oauth": "auth"},
    Dialect.VSCODE: {"baseURL": "url", "transport": "type"},
    Dialect.CODEX: {
        "baseURL": "url",
        "headers": "http_headers",
        "timeout": "tool_timeout_sec",
        "startupTimeout": "startup_timeout_sec",
        "capabilities": "enabled_tools",
        "disabledTools": "disabled_tools",
        "envVars": "env_vars",
    },
    Dialect.OPENCODE: {"baseURL": "url", "transport": "type", "env": "environment", "args": "command"},
    Dialect.GEMINI_CLI: _GEMINI_NAMES,
    Dialect.QWEN_CODE: _GEMINI_NAMES,
}
#: Keys that all clients have, and ours.
_SAME: Final = {key: key for key in ("command", "args", "env", "cwd", "headers")} | {"url": "baseURL"}
_KEYS: Final[Mapping[Dialect, Mapping[str, str]]] = {
    Dialect.CLAUDE_CODE: _SAME,
    Dialect.CURSOR: {**_SAME, "envFile": "envFile"},
    Dialect.VSCODE: {**_SAME, "envFile": "envFile"},
    Dialect.CODEX: {
        **{key: ours for key, ours in _SAME.items() if key != "headers"},
        "http_headers": "headers",
        "enabled": "enabled",
        "disabled_tools": "disabledTools",
        "startup_timeout_sec": "startupTimeout",
        "tool_timeout_sec": "timeout",
    },
    Dialect.OPENCODE: {
        **{key: ours for key, ours in _SAME.items() if key not in ("command", "args", "env")},
        "environment": "env",
        "enabled": "enabled",
    },
    Dialect.GEMINI_CLI: {**_SAME, "excludeTools": "disabledTools"},
    Dialect.QWEN_CODE: {**_SAME, "excludeTools": "disabledTools"},
}
#: Keys without a meaning for the gateway. Nothing is lost.
_WITHOUT_MEANING: Final = {
    "alwaysLoad",
    "description",
    "dev",
    "gallery",
    "name",
    "required",
    "supports_parallel_tool_calls",
    "version",
}
#: Keys that are not taken over, and what a person should know about that.
_NOT_TAKEN: Final = {
    "headersHelper": "the program that makes headers is not taken over: write the headers in the file, with variables",
    "sandbox": "VS Code's sandbox is not taken over: the gateway starts the program without one",
    "sandboxEnabled": "VS Code's sandbox is not taken over: the gateway starts the program without one",
    "default_tools_approval_mode": "Codex's approval is not taken over: a role says what a person is asked about",
    "tools": "Codex's approval of single tools is not taken over: a role says what a person is asked about",
    "autoApprove": "a list of approved tools is not taken over: a role says what a person is asked about",
    "alwaysAllow": "a list of approved tools is not taken over: a role says what a person is asked about",
    "trust": "trust is not taken over: a role says what a person is asked about",
    "experimental_environment": "the program is started on this machine",
}
_OAUTH_KEYS: Final = {"clientId", "clientSecret", "scopes", "callbackPort", "authServerMetadataUrl", "resource"}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLAUDE_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_GEMINI_REFERENCE: Final = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\})"
)
_OPENCODE_REFERENCE: Final = re.compile(r"\{(?P<kind>env|file):(?P<name>[^}]*)\}")
_VSCODE_REFERENCE: Final = re.compile(r"\$\{([^}]*)\}")
_NO_WORKSPACE: Final = "a file of the user has no project: write the path instead"


@frozen
class _Translation:
    """Translates one entry to the keys of a downstream's file."""

    dialect: Dialect
    place: Place
    inputs: object
    workspace: Path | None
    downstream: str
    notes: list[Note] = field(factory=list, init=False)
    secrets: dict[str, str] = field(factory=dict, init=False)

    def translate(self, name: str, entry: Mapping[str, object]) -> dict[str, object]:
        ours = self.downstream
        if ours != name:
            self._note("", f"it is called {ours} here: names have letters, digits and hyphens")
        raw: dict[str, object] = {"name": ours, "schemaVersion": SCHEMA_VERSION, "capabilities": [f"{ours}.*"]}
        known = _KEYS[self.dialect]
        written = {key: value for key, value in entry.items() if value is not None}
        raw |= {
            known[key]: self._convert(value, self.place.below(key)) for key, value in written.items() if key in known
        }
        for key, value in written.items():
            if key not in known and key not in _WITHOUT_MEANING and not self._special(key, value, raw):
                self._note(plain(key) or "...", _NOT_TAKEN.get(key, "this key is not known, and not taken over"))
        raw["transport"] = self._transport(entry, raw)
        if raw["transport"] is Transport.STDIO:
            self._process(raw)
        unused = UNUSED_BY_STDIO if raw["transport"] is Transport.STDIO else UNUSED_BY_HTTP
        for key in sorted(unused & raw.keys()):
            if raw.pop(key):
                theirs = self.place.names.get(key, key)
                self._note(theirs, f"{theirs} is of no use for {raw['transport']}, and not taken over")
        return raw

    def _note(self, key: str, text: str) -> None:
        if all(note.text != text for note in self.notes):
            self.notes.append(Note(key, text))

    # --- Keys

    def _special(self, key: str, value: object, raw: dict[str, object]) -> bool:
        """Translate a key whose value has another form in our file. Return whether it is such a key."""
        match self.dialect, key:
            case _, "type":
                pass  # see _transport
            case (Dialect.CLAUDE_CODE | Dialect.OPENCODE | Dialect.GEMINI_CLI | Dialect.QWEN_CODE, "timeout"):
                raw["timeout"] = _milliseconds(value)
            case (Dialect.GEMINI_CLI | Dialect.QWEN_CODE, "httpUrl"):
                raw["baseURL"] = self._convert(value, self.place.below(key))
            case (Dialect.GEMINI_CLI | Dialect.QWEN_CODE, "includeTools") if isinstance(value, list):
                raw["capabilities"] = [f"{raw['name']}.{tool}" for tool in value]
            case Dialect.OPENCODE, "command":
                words = self._convert(value, self.place.below(key))
                raw |= {"command": words[0], "args": words[1:]} if isinstance(words, list) and words else {key: words}
            case Dialect.OPENCODE, "oauth" if value is False:
                pass  # without a sign-in, as ours is without the key
            case Dialect.CODEX, "startup_timeout_ms":
                raw.setdefault("startupTimeout", _milliseconds(value))
            case (Dialect.CURSOR, "auth") | (
                Dialect.CLAUDE_CODE | Dialect.VSCODE | Dialect.OPENCODE | Dialect.GEMINI_CLI | Dialect.QWEN_CODE,
                "oauth",
            ):
                raw["oauth"] = self._oauth(key, value)
            case _, "disabled" if isinstance(value, bool):
                raw["enabled"] = not value
            case Dialect.CODEX, "bearer_token":
                self.place.below(key).fault("is a token in a file", "write bearer_token_env_var; choose a new token")
            case Dialect.CODEX, "bearer_token_env_var":
                self._headers(raw, {"Authorization": value}, "Bearer ", self.place.below(key))
            case Dialect.CODEX, "env_http_headers":
                self._headers(raw, value, "", self.place.below(key))
            case Dialect.CODEX, "env_vars":
                raw["envVars"] = self._variable_names(value)
            case Dialect.CODEX, "enabled_tools" if isinstance(value, list):
                raw["capabilities"] = [f"{raw['name']}.{tool}" for tool in value]
            case Dialect.CODEX, "scopes" | "oauth" | "oauth_resource":
                self._codex_oauth(key, value, raw)
            case _:
                return False
        return True

    def _transport(self, entry: Mapping[str, object], raw: Mapping[str, object]) -> object:
        given = entry.get("type")
        if self.dialect in _GEMINI and isinstance(entry.get("httpUrl"), str):
            return Transport.HTTP
        if self.dialect is Dialect.QWEN_CODE and "baseURL" in raw:
            return Transport.SSE
        if given is None:
            return Transport.HTTP if "baseURL" in raw and "command" not in raw else Transport.STDIO
        return _TRANSPORTS.get(given, given) if isinstance(given, str) else given

    def _process(self, raw: dict[str, object]) -> None:
        """Start the program as the client does: in the project, and with what the client reads from one text."""
        command = raw.get("command") if self.dialect is not Dialect.OPENCODE else None
        if isinstance(command, str) and re.search(r"\S\s", command) and not re.search(r"[/\\$'\"]", command):
            arguments = raw.get("args", [])
            if isinstance(arguments, list):
                raw["command"], *first = command.split()
                raw["args"] = [*first, *arguments]
                self._note("command", "its arguments are in args now")
        for key in ("cwd", "envFile"):
            path = raw.get(key)
            if isinstance(path, str) and path and not path.startswith(("/", "~", "${")) and self.workspace is not None:
                raw[key] = variables.escape(str(self.workspace)) + "/" + path.removeprefix("./")
        if "cwd" not in raw and self.workspace is not None:
            raw["cwd"] = variables.escape(str(self.workspace))

    def _headers(self, raw: dict[str, object], names: object, prefix: str, place: Place) -> None:
        """Add headers whose values are in variables. Headers that are written stay, in whichever order the keys are."""
        # Another form could name a secret in the keychain.
        if not isinstance(names, Mapping) or not all(
            isinstance(each, str) and _VARIABLE.fullmatch(each) for each in names.values()
        ):
            place.fault("is not usable", "write the names of variables, as texts")
            return
        headers = {header: f"{prefix}${{{variable}}}" for header, variable in names.items()}
        written = raw.get("headers")
        raw["headers"] = {**headers, **written} if isinstance(written, Mapping) else headers

    def _variable_names(self, value: object) -> object:
        """Codex names a variable by a text, or by a table that says on which machine it is."""
        if not isinstance(value, list):
            return value
        if any(isinstance(each, Mapping) and each.get("source") == "remote" for each in value):
            self._note("env_vars", "variables of a remote machine are taken from the environment of the server")
        return [each.get("name") if isinstance(each, Mapping) else each for each in value]

    def _oauth(self, key: str, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        found: dict[str, object] = {}
        for name, each in value.items():
            ours = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scope": "scopes"}.get(name, name)
            if ours not in _OAUTH_KEYS:
                self._note(f"{key}.{plain(name) or '...'}", "this key is not known, and not taken over")
            elif ours == "scopes" and isinstance(each, str):  # Claude Code and opencode have them in one text
                found[ours] = each.split()
            else:
                found[ours] = self._convert(each, self.place.below(key).below(name))
        return found

    def _codex_oauth(self, key: str, value: object, raw: dict[str, object]) -> None:
        if key == "oauth":
            found = {("clientId" if each == "client_id" else each): of for each, of in _items(value)}
        else:
            found = {"scopes" if key == "scopes" else "resource": value}
        earlier = raw.get("oauth")
        raw["oauth"] = {**(earlier if isinstance(earlier, Mapping) else {}), **found}

    # --- Values

    def _convert(self, value: object, place: Place) -> object:
        """Convert the references to variables in a text, or in each text of a list or table."""
        if isinstance(value, str):
            try:
                return _REFERENCES[self.dialect](self, value)
            except Unfit as unfit:
                place.fault(unfit.what, unfit.remedy)
                return ""
        if isinstance(value, list):
            return [self._convert(each, place.below(index)) for index, each in enumerate(value)]
        if isinstance(value, Mapping):
            texts = place.key.rpartition(".")[2] == "env"
            return {
                key: self._convert(str(each) if texts and _is_number(each) else each, place.below(key))
                for key, each in value.items()
                if each is not None  # VS Code: a variable that the program is not to have
            }
        return value

    def _claude(self, text: str) -> str:
        """Claude Code leaves all other forms as they are."""
        return _replace(_CLAUDE_REFERENCE, text, self._claude_variable)

    def _claude_variable(self, found: re.Match[str]) -> str:
        if found[1] in ("PWD", "CLAUDE_PROJECT_DIR") and self.workspace is not None:
            return variables.escape(str(self.workspace))
        return found[0]

    def _vscode(self, text: str) -> str:
        return _replace(_VSCODE_REFERENCE, text, self._vscode_variable)

    def _vscode_variable(self, found: re.Match[str]) -> str:
        inside = found[1]
        kind, _, name = inside.partition(":")
        if re.fullmatch(r"(?:env:)?[A-Za-z_][A-Za-z0-9_]*", inside) and (kind == "env" or inside.isupper()):
            return f"${{{name or inside}}}"
        if kind == "input" and name:
            return self._input(name)
        if inside == "userHome":
            return "${HOME}"
        if inside in ("pathSeparator", "/"):
            return "/"
        if inside in ("workspaceFolder", "workspaceFolderBasename", "cwd"):
            if self.workspace is None:
                raise Unfit(f"refers to {inside}", _NO_WORKSPACE)
            return variables.escape(str(self.workspace) if inside != "workspaceFolderBasename" else self.workspace.name)
        raise Unfit("has a variable that only the editor knows", "write the value instead")

    def _input(self, name: str) -> str:
        # The author of the file chooses the name of the input, but not whose secret it is.
        secret = f"{self.downstream}/{re.sub(r'[^A-Za-z0-9_.@/-]', '-', name)}"
        asked = next((each for each in _list(self.inputs) if each.get("id") == name), {})
        description = asked.get("description")
        self.secrets[secret] = description if isinstance(description, str) else name
        self._note("inputs", "VS Code's stored answers cannot be read: each must be stored once in the keychain")
        return f"${{keychain:{secret}}}"

    def _gemini(self, text: str) -> str:
        return _replace(_GEMINI_REFERENCE, text, self._gemini_variable)

    def _gemini_variable(self, found: re.Match[str]) -> str:
        name = found["plain"] or found["name"]
        if name == "PWD" and self.workspace is not None:
            return variables.escape(str(self.workspace))
        return f"${{{name}{found['default'] or ''}}}"

    def _opencode(self, text: str) -> str:
        return _replace(_OPENCODE_REFERENCE, text, self._opencode_variable)

    def _opencode_variable(self, found: re.Match[str]) -> str:
        name = found["name"].strip()
        if found["kind"] == "file" or not _VARIABLE.fullmatch(name):
            raise Unfit("refers to a file, or to no variable", "write the value, or {env:NAME}")
        if name == "PWD" and self.workspace is not None:
            return variables.escape(str(self.workspace))
        # A variable that is not set is an empty text there.
        return f"${{{name}:-}}"

    def _codex(self, text: str) -> str:
        """Codex has no references in values."""
        return variables.escape(text)


_REFERENCES: Final[Mapping[Dialect, Callable[[_Translation, str], str]]] = {
    Dialect.CLAUDE_CODE: _Translation._claude,
    Dialect.CURSOR: _Translation._vscode,
    Dialect.VSCODE: _Translation._vscode,
    Dialect.CODEX: _Translation._codex,
    Dialect.OPENCODE: _Translation._opencode,
    Dialect.GEMINI_CLI: _Translation._gemini,
    Dialect.QWEN_CODE: _Translation._gemini,
}


def _replace(pattern: re.Pattern[str], text: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Replace references, and escape all between them."""
    found, at = "", 0
    for match in pattern.finditer(text):
        new = replace(match)
        found += variables.escape(text[at : match.start()], before_reference=new.startswith("${")) + new
        at = match.end()
    return found + variables.escape(text[at:])


def _name(name: str) -> str:
    """Return the name of the downstream for a client's name of a server."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:NAME_LENGTH].rstrip("-") or "server"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _milliseconds(value: object) -> object:
    """Return the seconds; what cannot be a time stays as it is, and becomes a fault."""
    return value / 1000 if isinstance(value, int | float) and _is_number(value) and abs(value) < 1e15 else value


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, Mapping) else [("oauth", value)]


def _list(value: object) -> list[Mapping[str, object]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
