"""What the clients have in their files becomes the configuration of downstreams, as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intercom.gateway.client_entries import ClientEntry, Dialect, read_entries, read_entry
from intercom.gateway.downstream_config import DownstreamConfig, Transport, expand, references
from intercom.gateway.downstream_file import parse, to_json
from intercom.gateway.json_settings import Place, SettingsError
from intercom.model.json_types import JsonObject

CLAUDE, CURSOR, VSCODE, CODEX = Dialect.CLAUDE_CODE, Dialect.CURSOR, Dialect.VSCODE, Dialect.CODEX
OPENCODE, GEMINI, QWEN = Dialect.OPENCODE, Dialect.GEMINI_CLI, Dialect.QWEN_CODE
PROJECT = Path("/home/me/web")
SECRET = "ghp_S3cr3tT0k3n9"


def read(dialect: Dialect, entry: object, workspace: Path | None = None) -> ClientEntry:
    return read_entry(dialect, "files", entry, Place("mcp.json", "mcpServers.files"), workspace=workspace)


def usable(found: ClientEntry) -> DownstreamConfig:
    assert found.faults == ()
    assert found.config is not None
    assert parse(json.dumps(to_json(found.config)), "x.json") == found.config
    return found.config


@pytest.mark.parametrize(
    ("dialect", "entry", "ours"),
    [
        (CLAUDE, {"command": "npx", "args": ["-y", "x"]}, {"command": "npx", "args": ["-y", "x"]}),
        (CLAUDE, {"command": "x", "timeout": 600_000, "alwaysLoad": True}, {"command": "x", "timeout": "600s"}),
        (
            CLAUDE,
            {"type": "stdio", "command": "x", "env": {"A": "${A}", "B": "${B:-1}", "C": "$C ${C%x}"}},
            {"command": "x", "env": {"A": "${A}", "B": "${B:-1}", "C": "$C $${C%x}"}},
        ),
        (
            CLAUDE,
            {"type": "streamable-http", "url": "https://h/${P}", "headers": {"A": "Bearer $${T}"}},
            {"transport": "http", "baseURL": "https://h/${P}", "headers": {"A": "Bearer $$${T}"}},
        ),
        (
            CLAUDE,
            {"type": "sse", "url": "https://h/sse", "oauth": {"clientId": "me", "callbackPort": 80, "scopes": "a b"}},
            {
                "transport": "sse",
                "baseURL": "https://h/sse",
                "oauth": {"clientId": "me", "scopes": ["a", "b"], "callbackPort": 80},
            },
        ),
        (CURSOR, {"command": "npx -y x", "args": ["z"]}, {"command": "npx", "args": ["-y", "x", "z"]}),
        (
            CURSOR,
            {"command": "x", "args": ["${env:A}", "${userHome}${/}b", "$HOME"], "disabled": True},
            {"command": "x", "args": ["${A}", "${HOME}/b", "$HOME"], "enabled": False},
        ),
        (
            CURSOR,
            {"url": "https://h/mcp", "auth": {"CLIENT_ID": "${env:I}", "CLIENT_SECRET": "${env:S}", "scopes": ["a"]}},
            {
                "transport": "http",
                "baseURL": "https://h/mcp",
                "oauth": {"clientId": "${I}", "clientSecret": "${S}", "scopes": ["a"]},
            },
        ),
        (
            VSCODE,
            {"type": "stdio", "command": "x", "env": {"N": 5, "Z": None}, "envFile": "/e/.env", "dev": {"watch": "*"}},
            {"command": "x", "env": {"N": "5"}, "envFile": "/e/.env"},
        ),
        (VSCODE, {"type": "http", "url": "https://h", "env": {}}, {"transport": "http", "baseURL": "https://h"}),
        (
            CODEX,
            {"command": "x", "args": ["${A}"], "env_vars": ["A", {"name": "B", "source": "local"}], "cwd": "/w"},
            {"command": "x", "args": ["$${A}"], "envVars": ["A", "B"], "cwd": "/w"},
        ),
        (
            CODEX,
            {
                "url": "https://h",
                "bearer_token_env_var": "T",
                "env_http_headers": {"X": "V"},
                "http_headers": {"Y": "1", "X": "2"},
                "scopes": ["a"],
                "oauth": {"client_id": "me"},
                "oauth_resource": "https://r",
            },
            {
                "transport": "http",
                "baseURL": "https://h",
                "headers": {"Authorization": "Bearer ${T}", "X": "2", "Y": "1"},
                "oauth": {"clientId": "me", "scopes": ["a"], "resource": "https://r"},
            },
        ),
        (
            CODEX,
            {
                "command": "x",
                "enabled": False,
                "required": True,
                "startup_timeout_ms": 20_000,
                "tool_timeout_sec": 90.0,
                "enabled_tools": ["list_commits"],
                "disabled_tools": ["push"],
            },
            {
                "command": "x",
                "enabled": False,
                "startupTimeout": "20s",
                "timeout": "90s",
                "capabilities": ["files.list_commits"],
                "disabledTools": ["push"],
            },
        ),
        (
            OPENCODE,
            {
                "type": "local",
                "command": ["mytool", "{env:A}", "${B}"],
                "environment": {"T": "{env:T}"},
                "enabled": False,
                "timeout": 90_000,
            },
            {
                "command": "mytool",
                "args": ["${A:-}", "$${B}"],
                "env": {"T": "${T:-}"},
                "enabled": False,
                "timeout": "90s",
            },
        ),
        (
            OPENCODE,
            {"type": "remote", "url": "https://h", "headers": {"A": "Bearer {env:T}"}, "oauth": False},
            {"transport": "http", "baseURL": "https://h", "headers": {"A": "Bearer ${T:-}"}},
        ),
        (
            OPENCODE,
            {"type": "remote", "url": "https://h", "oauth": {"clientId": "me", "scope": "a b"}},
            {"transport": "http", "baseURL": "https://h", "oauth": {"clientId": "me", "scopes": ["a", "b"]}},
        ),
        (
            GEMINI,
            {
                "command": "x",
                "args": ["$A", "${B}", "${C:-1}", "5$", "${d.e}"],
                "timeout": 90_000,
                "includeTools": ["read"],
                "excludeTools": ["write"],
            },
            {
                "command": "x",
                "args": ["${A}", "${B}", "${C:-1}", "5$", "$${d.e}"],
                "timeout": "90s",
                "capabilities": ["files.read"],
                "disabledTools": ["write"],
            },
        ),
        (GEMINI, {"url": "https://h"}, {"transport": "http", "baseURL": "https://h"}),
        (GEMINI, {"url": "https://h", "type": "sse"}, {"transport": "sse", "baseURL": "https://h"}),
        *(
            (
                dialect,
                {"url": "https://old", "httpUrl": "https://h", "headers": {"K": "$T"}},
                {"transport": "http", "baseURL": "https://h", "headers": {"K": "${T}"}},
            )
            for dialect in (GEMINI, QWEN)
        ),
        (QWEN, {"url": "https://h"}, {"transport": "sse", "baseURL": "https://h"}),
    ],
)
def test_an_entry_is_read_as_its_client_reads_it(dialect: Dialect, entry: JsonObject, ours: JsonObject) -> None:
    found = read(dialect, entry)
    common = {"name": "files", "transport": "stdio", "capabilities": ["files.*"], "schemaVersion": "1.0.0"}
    assert to_json(usable(found)) == common | ours
    assert [note.key for note in found.notes] == (["command"] if entry.get("command") == "npx -y x" else [])


@pytest.mark.parametrize(
    ("dialect", "entry", "keys"),
    [
        (CLAUDE, {"type": "http", "url": "https://h", "headersHelper": "/bin/x"}, ["headersHelper"]),
        (CLAUDE, {"command": "x", "url": "https://h"}, ["url"]),
        (VSCODE, {"command": "x", "sandboxEnabled": True, "sandbox": {"network": {}}}, ["sandboxEnabled"]),
        (VSCODE, {"url": "https://h", "env": {"A": "b"}}, ["env"]),
        (CODEX, {"command": "x", "default_tools_approval_mode": "prompt"}, ["default_tools_approval_mode"]),
        (CODEX, {"command": "x", "env_vars": [{"name": "B", "source": "remote"}]}, ["env_vars"]),
        (CURSOR, {"command": "x", "unheardOf": 1, SECRET: 2}, ["unheardOf"]),
        (GEMINI, {"command": "x", "trust": True, "authProviderType": "google"}, ["trust", "authProviderType"]),
        (QWEN, {"httpUrl": "https://h", "oauth": {"enabled": True, "clientId": "me"}}, ["oauth.enabled"]),
    ],
)
def test_what_is_not_taken_over_is_noted(dialect: Dialect, entry: JsonObject, keys: list[str]) -> None:
    found = read(dialect, entry)
    usable(found)
    assert [note.key for note in found.notes] == keys


@pytest.mark.parametrize(
    ("dialect", "entry", "sentence"),
    [
        (CLAUDE, {"type": "ws", "url": "https://h"}, '.type is "ws": write "stdio" or "http" or "sse"'),
        (CLAUDE, {}, '.command is missing: write "command": "npx", and its arguments in args'),
        (CLAUDE, {"command": "x", "timeout": 10**400}, ".timeout is out of range: write a number of at most 315360000"),
        (CLAUDE, "npx", " is a text: write a table with command, or url"),
        (
            VSCODE,
            {"command": "x", "args": ["${workspaceFolder}"]},
            ".args[0] refers to workspaceFolder: a file of the user has no project: write the path instead",
        ),
        (
            VSCODE,
            {"command": "x", "args": ["${config:a.b}"]},
            ".args[0] has a variable that only the editor knows: write the value instead",
        ),
        (VSCODE, {"url": "unix:///s"}, ".url is not an address of HTTP: write it like https://mcp.example.com/mcp"),
        (
            CODEX,
            {"url": "https://h", "bearer_token": SECRET},
            ".bearer_token is a token in a file: write bearer_token_env_var; choose a new token",
        ),
        (
            CODEX,
            {"url": "https://h", "bearer_token_env_var": 5},
            ".bearer_token_env_var is not usable: write the names of variables, as texts",
        ),
        (
            CODEX,
            {"command": "x", "tool_timeout_sec": "soon"},
            '.tool_timeout_sec is "soon": write a time like "30s", "500ms" or "1m30s", or a number of seconds',
        ),
    ],
)
def test_a_fault_is_named_as_the_client_names_it(dialect: Dialect, entry: object, sentence: str) -> None:
    found = read(dialect, entry)
    assert found.config is None
    assert [fault.sentence for fault in found.faults] == [f"mcpServers.files{sentence}"]


def test_a_server_of_a_project_runs_in_it() -> None:
    entry: JsonObject = {"command": "./run", "args": ["${workspaceFolder}/a"], "envFile": "${workspaceFolder}/.env"}
    config = usable(read(CURSOR, entry, PROJECT))
    assert (config.cwd, config.args, config.env_file) == (str(PROJECT), (f"{PROJECT}/a",), f"{PROJECT}/.env")
    assert usable(read(CODEX, {"command": "x", "cwd": "sub"}, PROJECT)).cwd == f"{PROJECT}/sub"
    assert usable(read(CLAUDE, {"command": "x", "args": ["${PWD}"]}, PROJECT)).args == (str(PROJECT),)


def test_no_client_reaches_the_keychain_by_its_own_words() -> None:
    claude = usable(read(CLAUDE, {"command": "x", "args": ["${keychain:K}"]}))
    assert expand(claude, lambda _: SECRET).args == ("${keychain:K}",)
    codex = usable(read(CODEX, {"command": "x", "args": ["${keychain:K}"]}))
    assert expand(codex, lambda _: SECRET).args == ("${keychain:K}",)
    for dialect, entry in [
        (CODEX, {"url": "https://h", "bearer_token_env_var": "keychain:K"}),
        (CODEX, {"url": "https://h", "env_http_headers": {"A": "keychain:K"}}),
        (VSCODE, {"url": "https://h", "headers": {"A": "${keychain:K}"}}),
    ]:
        assert read(dialect, entry).config is None


def test_a_directory_with_a_dollar_is_not_a_variable() -> None:
    strange = Path("/home/me/${A}")
    config = usable(read(VSCODE, {"command": "x", "args": ["${workspaceFolder}"]}, strange))
    assert expand(config, lambda _: "no").args == (str(strange),)


def test_what_vscode_asks_for_becomes_a_secret_in_the_keychain() -> None:
    content = """{
      // VS Code
      "inputs": [{"type": "promptString", "id": "git hub key", "description": "GitHub's token", "password": true}],
      "servers": {"git_hub": {"type": "http", "url": "https://h", "headers": {"A": "Bearer ${input:git hub key}"}},},
    }"""
    [found] = read_entries(VSCODE, content, "mcp.json")
    config = usable(found)
    assert (config.name, found.name) == ("git-hub", "git_hub")
    assert config.headers == {"A": "Bearer ${keychain:git-hub/git-hub-key}"}
    assert found.secrets == {"git-hub/git-hub-key": "GitHub's token"}
    assert [note.key for note in found.notes] == ["", "inputs"]


@pytest.mark.parametrize("name", ["github", "slack-app-token", "../github", "/github", "x/github", "docs/github"])
@pytest.mark.parametrize("server", ["docs", "x", "../x", "github/x", "//", "ü"])
def test_no_entry_can_name_a_secret_of_another_downstream(server: str, name: str) -> None:
    entry = {"url": "https://h", "headers": {"A": f"${{input:{name}}}"}}
    found = read_entry(VSCODE, server, entry, Place("mcp.json", "servers"))
    [reference] = references(usable(found))
    assert [reference.name] == list(found.secrets)
    assert reference.name.partition("/")[0] == usable(found).name
    other = read_entry(VSCODE, server, entry, Place("mcp.json", "servers"), downstream="other")
    assert [each.name.partition("/")[0] for each in references(usable(other))] == ["other"]


def test_codex_has_its_servers_in_toml() -> None:
    content = '[mcp_servers.docs]\nurl = "https://h"\n\n[mcp_servers."my files"]\ncommand = "x"\nenv = { A = "1" }\n'
    docs, files = read_entries(CODEX, content, "config.toml")
    assert (usable(docs).transport, usable(files).name) == (Transport.HTTP, "my-files")


def test_claude_codes_own_file_has_the_servers_of_each_project() -> None:
    of_project = {"mcpServers": {"b": {"command": "y"}}}
    content = json.dumps({"mcpServers": {"a": {"command": "x"}}, "projects": {str(PROJECT): of_project, "/other": 1}})
    assert [each.name for each in read_entries(CLAUDE, content, "f")] == ["a"]
    assert [each.name for each in read_entries(CLAUDE, content, "f", PROJECT)] == ["a", "b"]


def test_two_servers_never_become_one() -> None:
    content = json.dumps({"mcpServers": {"a_b": {"command": "x"}, "a.b": {"command": "y"}, "A b": {"command": "z"}}})
    first, *others = read_entries(CLAUDE, content, "f")
    assert usable(first).name == "a-b"
    assert [each.config for each in others] == [None, None]
    assert str(others[0].faults[0]) == (
        "f, a.b would be called a-b, as another server of this file: rename one of the two in the client"
    )


@pytest.mark.parametrize(
    ("dialect", "content", "sentence"),
    [
        (CURSOR, "{\n,", "f, line 2: is not JSON (expecting property name enclosed in double quotes): "),
        (CODEX, f"a = 1\nb = {SECRET}", "f, line 2: is not TOML: "),
    ],
)
def test_a_file_that_cannot_be_parsed_is_refused(dialect: Dialect, content: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_entries(dialect, content, "f")
    assert str(caught.value) == f"{sentence}correct that place"


@pytest.mark.parametrize("content", ["[]", "5", '{"servers": 5}', '{"mcpServers": []}', "{}"])
@pytest.mark.parametrize("dialect", [CLAUDE, CURSOR, VSCODE])
def test_a_file_without_servers_has_none(dialect: Dialect, content: str) -> None:
    assert read_entries(dialect, content, "f") == ()


VALUES = [
    "x",
    5,
    None,
    True,
    [],
    {},
    ["x"],
    {"a": "b"},
    {"a": 5},
    SECRET,
    [SECRET],
    {SECRET: SECRET},
    1.5,
    [None],
    [[]],
]
KEYS = [
    *("type", "command", "args", "env", "cwd", "envFile", "url", "headers", "timeout", "oauth", "auth", "disabled"),
    *("env_vars", "http_headers", "env_http_headers", "bearer_token_env_var", "bearer_token", "startup_timeout_ms"),
    *("tool_timeout_sec", "enabled", "enabled_tools", "disabled_tools", "scopes", "oauth_resource", "tools", "name"),
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("dialect", list(Dialect))
def test_no_value_of_any_kind_crashes_it_or_is_repeated(dialect: Dialect, key: str) -> None:
    for value in VALUES:
        for entry in ({key: value}, {"command": "x", key: value}, {"url": "https://h", key: value}):
            found = read(dialect, entry, PROJECT)
            assert (found.config is None) == bool(found.faults)
            assert SECRET not in str(found.faults) + str(found.notes)
            if key not in ("enabled_tools", "disabled_tools", "scopes"):  # no value of these is a secret
                assert SECRET not in repr(found)
