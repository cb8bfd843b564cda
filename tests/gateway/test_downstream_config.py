"""A downstream's file is read whole or refused with all its faults, and no message has a secret."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from actors import Backoff
from intercom.gateway import variables
from intercom.gateway.breaker import BreakerSettings
from intercom.gateway.budgets import Budget
from intercom.gateway.config_directory import read_directory, read_file
from intercom.gateway.downstream_config import (
    DownstreamConfig,
    Expose,
    MissingVariables,
    OAuth,
    Sharing,
    Transport,
    expand,
    references,
)
from intercom.gateway.downstream_file import check, parse, to_json
from intercom.gateway.json_settings import SettingsError, key_lines, parse_json, without_comments
from intercom.gateway.variables import Malformed, Reference, Source, escape
from intercom.model.json_types import JsonObject

FILE = "/etc/gateway/github.json"
#: Has four digits: no message may repeat it.
SECRET = "ghp_S3cr3tT0k3n9"
STDIO: JsonObject = {
    "name": "github",
    "command": "/usr/local/bin/mcp-github",
    "args": ["--verbose"],
    "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
    "transport": "stdio",
    "capabilities": ["git.read", "git.commits.list", "git.pr.list"],
    "timeout": "30s",
    "schemaVersion": "1.0.0",
}
HTTP: JsonObject = {
    "name": "remote",
    "transport": "http",
    "baseURL": "https://mcp.example.com/mcp",
    "capabilities": ["remote.*"],
    "schemaVersion": "1.0.0",
}


def written(**keys: object) -> str:
    """The spec's example with these keys instead of its own; None leaves a key out."""
    table = {**STDIO, **keys}
    return json.dumps({key: value for key, value in table.items() if value is not None}, indent=1)


def faults(content: str) -> list[str]:
    config, found = check(content, FILE)
    assert (config is None) == bool(found)
    return [each.sentence for each in found]


def test_the_specs_example_is_read() -> None:
    config = parse(written(), FILE)
    assert config == DownstreamConfig(
        "github",
        Transport.STDIO,
        ("git.read", "git.commits.list", "git.pr.list"),
        "1.0.0",
        command="/usr/local/bin/mcp-github",
        args=("--verbose",),
        env={"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
    )
    assert config.budget.timeout_seconds == 30
    assert (config.sharing, config.expose, config.enabled, config.retry) == (Sharing.ALL, Expose.ALL, True, 1)


def test_all_keys_are_read_in_both_forms() -> None:
    content = """{
      // Comments and trailing commas are as in VS Code's files.
      "$schema": "https://example.com/schema.json",
      "name": "remote", "schema_version": "1.2.0", "transport": "sse", "base_url": "https://h/${PATH_OF_IT}",
      "headers": {"Authorization": "Bearer ${TOKEN}"}, /* none */
      "oauth": {"clientId": "me", "client_secret": "${keychain:secret}", "scopes": ["a"], "callbackPort": 8765},
      "capabilities": ["remote.list_commits", "remote.get_*"], "disabled_tools": ["get_secret"],
      "readOnly": ["get_*"], "classes": {"write": ["create_*"]},
      "sharing": "agent", "expose": "search", "enabled": false, "retry": 0,
      "timeout": "1m30s", "startup_timeout": 5,
      "budget": {
        "rate_limit": {"requestsPerSecond": 10, "burst_size": 20}, "concurrencyLimit": 5, "daily_quota": 5000,
        "costPerCall": {"*": 0.001, "search": 0.5}, "dailyCost": 20,
      },
      "breaker": {"degradedAfter": 2, "open_after": 4, "backoff": "500ms", "backoffMax": "2m", "countToolErrors": true},
    }"""
    config = parse(content, FILE)
    assert config.oauth == OAuth("me", "${keychain:secret}", ("a",), 8765)
    assert config.budget == Budget(10, 20, 5, 90, 5000, {"*": 1000, "search": 500_000}, 20_000_000)
    backoff = Backoff(initial=0.5, max=120, jitter=0.2, reset_after=60)
    assert config.breaker == BreakerSettings(2, 4, 30, True, backoff)
    assert (config.sharing, config.expose, config.enabled, config.retry) == (Sharing.AGENT, Expose.SEARCH, False, 0)
    assert config.startup_seconds == 5
    assert config.all_classes == {"read": ("get_*",), "write": ("create_*",)}
    offered = [tool for tool in ("list_commits", "get_me", "get_secret", "create_issue") if config.offers(tool)]
    assert offered == ["list_commits", "get_me"]
    assert (config.is_read_only("get_me"), config.is_read_only("list_commits")) == (True, False)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("30s", 30), ("500ms", 0.5), ("1m30s", 90), ("2h", 7200), ("1.5s", 1.5), (30, 30), (0.25, 0.25)],
)
def test_a_time_is_a_text_with_units_or_a_number_of_seconds(time: object, seconds: float) -> None:
    assert parse(written(timeout=time), FILE).budget.timeout_seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"name": None}, 'name is missing: write "name": "github"'),
        ({"name": "git hub"}, 'line 2: name is "git hub": write letters, digits and hyphens, at most 40, as in github'),
        ({"name": "git_hub"}, 'line 2: name is "git_hub": write letters, digits and hyphens, at most 40, as in github'),
        ({"name": ""}, "line 2: name is empty: write letters, digits and hyphens, at most 40, as in github"),
        ({"command": None}, 'command is missing: write "command": "npx", and its arguments in args'),
        ({"command": " "}, "line 3: command is empty: write a text, or leave the key out"),
        (
            {"command": "npx -y server"},
            "line 3: command has spaces: write the program alone, and each argument as a text in args",
        ),
        ({"args": "--verbose"}, 'line 4: args is a text: write a list of texts, as in ["one", "two"]'),
        ({"args": ["a", 5]}, "line 4: args[1] is a number: write a text in quotes"),
        ({"env": {"A": None}}, "line 8: env.A is null: leave the key out, or write a value"),
        (
            {"env": {"A-B": ""}},
            "line 8: env.A-B has a name that is not allowed: write the name of a variable, as in GITHUB_TOKEN",
        ),
        (
            {"args": ["${HOME"]},
            "line 4: args[0] has a ${ that begins no variable: write ${NAME}, ${NAME:-text} or ${keychain:NAME}; "
            "$${ means ${ itself",
        ),
        ({"transport": None}, 'transport is missing: write "transport": "stdio", "http" or "sse"'),
        ({"transport": "htttp"}, 'line 10: transport is "htttp": write "stdio" or "http" or "sse"'),
        ({"baseURL": "https://h/mcp"}, "baseURL is of no use for stdio: leave it out, or write another transport"),
        ({"capabilities": None}, 'capabilities is missing: write "capabilities": ["NAME.*"]'),
        (
            {"capabilities": []},
            'line 11: capabilities is empty: name what the downstream may offer; ["NAME.*"] is all',
        ),
        (
            {"capabilities": ["read"]},
            'line 11: capabilities[0] is "read": write NAME.TOOL, as in github.list_commits, or NAME.* for all',
        ),
        (
            {"timeout": "30 seconds"},
            'timeout is "30 seconds": write a time like "30s", "500ms" or "1m30s", or a number of seconds',
        ),
        ({"timeout": 0}, "timeout is out of range: it must be more than 0 and at most 315360000, not 0.0"),
        ({"timeout": 10**400}, "timeout is out of range: write a number of at most 315360000"),
        ({"timeout": 5, "budget": {"timeout": 6}}, "timeout differs from the time-out in the budget: write it once"),
        ({"schemaVersion": None}, 'schemaVersion is missing: write "schemaVersion": "1.0.0"'),
        (
            {"schemaVersion": "2.0.0"},
            'schemaVersion is "2.0.0": write "1.0.0", or update Intercom if the file needs a later one',
        ),
        ({"enabled": "yes"}, 'enabled is "yes": write true or false, without quotes'),
        ({"sharing": "one"}, 'sharing is "one": write "all" or "agent"'),
        ({"expose": 1}, 'expose is a number: write "all" or "search"'),
        ({"retry": 9}, "retry is out of range: it must be at least 0 and at most 3, not 9"),
        ({"retry": True}, "retry is true: write a whole number"),
        ({"cwd": "src"}, "cwd is a relative path: write a path that begins with / or ~"),
        ({"baseUrl": "https://h"}, "baseUrl is not a key that is known here: did you mean baseURL?"),
        ({"comand": "x"}, "comand is not a key that is known here: did you mean command?"),
        ({"url": "https://h"}, "url is not a key that is known here: write baseURL"),
        ({"dailyQuota": 5}, "dailyQuota is not a key that is known here: write it in the table budget"),
        (
            {"mcpServers": {}},
            "mcpServers is not a key that is known here: this is a client's file: 'agent-intercom gateway import' "
            "makes a file for each of its servers",
        ),
        ({"budget": 5}, 'budget is a number: write a table, as in {"rateLimit": ...}'),
        (
            {"budget": {"rateLimit": {}}},
            'budget.rateLimit.requestsPerSecond is missing: write "requestsPerSecond": 10',
        ),
        (
            {"budget": {"rateLimit": {"requestsPerSecond": 0}}},
            "budget.rateLimit.requestsPerSecond is out of range: it must be more than 0 and at most 1000000.0, not 0.0",
        ),
        (
            {"budget": {"concurrencyLimit": 0}},
            "budget.concurrencyLimit is out of range: it must be at least 1 and at most 100000, not 0",
        ),
        (
            {"budget": {"costPerCall": 3, "dailyCost": 1}},
            "budget.dailyCost does not fit the others: it must be at least the cost of one call, 3",
        ),
        (
            {"breaker": {"openAfter": 2}},
            "breaker.openAfter does not fit the others: it must be at least degraded_after, which is 3",
        ),
    ],
)
def test_a_fault_names_the_key_and_what_to_write(keys: Mapping[str, object], sentence: str) -> None:
    [found] = faults(written(**keys))
    assert found == sentence or (found.startswith("line ") and found.partition(": ")[2] == sentence)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"baseURL": None}, 'baseURL is missing: write "baseURL": "https://..."'),
        (
            {"baseURL": "mcp.example.com"},
            "baseURL is not an address of HTTP: write it like https://mcp.example.com/mcp",
        ),
        ({"baseURL": "unix:///run/x"}, "baseURL is not an address of HTTP: write it like https://mcp.example.com/mcp"),
        ({"baseURL": "https://[::1"}, "baseURL is not an address of HTTP: write it like https://mcp.example.com/mcp"),
        (
            {"baseURL": "https://h:99999/"},
            "baseURL is not an address of HTTP: write it like https://mcp.example.com/mcp",
        ),
        (
            {"baseURL": "https://me:pass@h/mcp"},
            'baseURL has a user or a password in it: write "headers": {"Authorization": "Bearer ${NAME}"}',
        ),
        ({"headers": {"Host": "x"}}, "headers.Host is set by the gateway itself: leave it out"),
        (
            {"headers": {"A": "x\r\nB: y"}},
            "headers.A has a line break or another control character: write it as one line",
        ),
        ({"args": ["x"]}, "args is of no use for http: leave it out, or write another transport"),
    ],
)
def test_a_fault_of_a_remote_downstream(keys: Mapping[str, object], sentence: str) -> None:
    table = {key: value for key, value in {**HTTP, **keys}.items() if value is not None}
    [fault] = check(json.dumps(table), FILE)[1]
    assert f"{fault.key} {fault.what}: {fault.remedy}" == sentence


def test_all_faults_are_reported_at_once_with_the_file_and_their_lines() -> None:
    content = '{\n "name": "a b",\n "transport": "stdio",\n "enabled": 1,\n "enabled": 2\n}'
    with pytest.raises(SettingsError) as caught:
        parse(content, FILE)
    assert str(caught.value).splitlines() == [
        "/etc/gateway/github.json has 6 faults:",
        '  capabilities is missing: write "capabilities": ["NAME.*"]',
        '  schemaVersion is missing: write "schemaVersion": "1.0.0"',
        '  command is missing: write "command": "npx", and its arguments in args',
        '  line 2: name is "a b": write letters, digits and hyphens, at most 40, as in github',
        "  line 4: enabled is a number: write true or false, without quotes",
        "  line 5: enabled is written twice: keep one of the two",
    ]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{\n "name" "x"}', "line 2: is not JSON (expecting ':' delimiter): correct that place"),
        ("[]", 'is a list: write a table, {"name": "github", ...}'),
        ('{"timeout": NaN}', "is not JSON (it has a number that is out of range): correct that place"),
        ("[" * 100_000, "is not JSON (it is nested too deeply): correct that place"),
        ("", "line 1: is not JSON (expecting value): correct that place"),
    ],
)
def test_what_is_not_json_is_refused(content: str, sentence: str) -> None:
    assert faults(content) == [sentence]


# --- Secrets


def everywhere(value: object, secret: str) -> list[object]:
    """The value with the secret instead of each of its parts, and as a key of each of its tables."""
    found: list[object] = [secret, [secret], {"a": secret}, {secret: 1}]
    if isinstance(value, dict):
        found += [{**value, key: each} for key, inner in value.items() for each in everywhere(inner, secret)]
        found.append({**value, secret: secret})
    if isinstance(value, list):
        found += [
            [*value[:i], each, *value[i + 1 :]] for i, inner in enumerate(value) for each in everywhere(inner, secret)
        ]
    return found


WHOLE: JsonObject = {
    **STDIO,
    "cwd": "/",
    "envFile": "/x",
    "envVars": ["A"],
    "disabledTools": ["a"],
    "classes": {"read": ["a"]},
    "budget": {"rateLimit": {"requestsPerSecond": 1}, "costPerCall": {"*": 1}},
    "breaker": {"openAfter": 9},
    "enabled": True,
    "sharing": "all",
}
REMOTE: JsonObject = {
    **HTTP,
    "headers": {"A": "b"},
    "oauth": {"clientSecret": "x", "scopes": ["a"], "resource": "https://h"},
}


@pytest.mark.parametrize("table", everywhere(WHOLE, SECRET) + everywhere(REMOTE, SECRET))
def test_no_fault_repeats_a_secret(table: object) -> None:
    for content in (json.dumps(table), json.dumps(table)[:-1], json.dumps(table, indent=1)):
        for sentence in faults(content):
            assert SECRET not in sentence


@pytest.mark.parametrize(
    "keys",
    [
        {"args": ["--token", SECRET]},
        {"env": {"TOKEN": SECRET}},
        {"command": f"/bin/sh -c TOKEN={SECRET}"},
        {"command": f"/usr/bin/env TOKEN={SECRET}"},
        {"command": SECRET},
        {"cwd": f"/srv/{SECRET}", "envFile": f"~/{SECRET}"},
        {**HTTP, "command": None, "args": None, "env": None, "headers": {"Authorization": f"Bearer {SECRET}"}},
        {**HTTP, "command": None, "args": None, "env": None, "baseURL": f"https://h.example/{SECRET}/mcp?key={SECRET}"},
        {**HTTP, "command": None, "args": None, "env": None, "oauth": {"clientSecret": SECRET}},
    ],
)
def test_no_repr_has_a_secret(keys: Mapping[str, object]) -> None:
    config = parse(written(**keys), FILE)
    assert SECRET not in repr(config)
    assert SECRET in json.dumps(to_json(config))


def test_a_value_of_a_variable_is_in_no_repr_and_no_error() -> None:
    config = parse(json.dumps({**HTTP, "baseURL": "${URL}", "headers": {"A": "${A}"}}), FILE)
    expanded = expand(config, lambda reference: f"https://h/{SECRET}")
    assert expanded.base_url == f"https://h/{SECRET}"
    assert SECRET not in repr(expanded)
    with pytest.raises(SettingsError) as caught:
        expand(config, lambda reference: f"{SECRET}\r\nHost: x")
    assert [each.key for each in caught.value.faults] == ["baseURL", "headers.A"]
    assert SECRET not in str(caught.value)


# --- Variables


@pytest.mark.parametrize(
    ("value", "expanded"),
    [
        ("plain $5 {x} $VAR", "plain $5 {x} $VAR"),
        ("${A}", "1"),
        ("${env:A}-${A}", "1-1"),
        ("${B:-2}", "2"),
        ("${A:-2}", "1"),
        ("${B:-}", ""),
        ("${B:-a:-b}", "a:-b"),
        ("${EMPTY:-2}", ""),
        ("${keychain:my/token}", "s3"),
        ("$${A}", "${A}"),
        ("$$${A}", "$1"),
        ("$$$${A}", "$${A}"),
        ("$$5", "$$5"),
    ],
)
def test_references_are_replaced(value: str, expanded: str) -> None:
    values = {"A": "1", "EMPTY": "", "keychain:my/token": "s3"}
    missing: list[Reference] = []
    assert variables.expand(value, lambda reference: values.get(str(reference)), missing) == expanded
    assert missing == []


@pytest.mark.parametrize("value", ["${", "${}", "${A", "${A B}", "${A-b}", "${A:-${B}}", "${input:x}", "${keychain:}"])
def test_a_form_that_is_not_known_is_refused(value: str) -> None:
    with pytest.raises(Malformed):
        variables.references(value)


@given(st.text(alphabet="${}ab:-"), st.booleans())
def test_an_escaped_text_means_itself(text: str, before_reference: bool) -> None:
    written = escape(text, before_reference=before_reference) + ("${A}" if before_reference else "")
    assert variables.expand(written, lambda _: "1", []) == text + ("1" if before_reference else "")


def test_all_missing_variables_are_named_with_the_keys_that_need_them() -> None:
    config = parse(written(args=["${A}", "${B:-x}", "${keychain:K}"], env={"X": "${A}", "Y": "${C}"}), FILE)
    with pytest.raises(MissingVariables) as caught:
        expand(config, lambda reference: "1" if reference.name == "C" else None)
    assert str(caught.value) == (
        "downstream github needs A (for args[0], env.X), keychain:K (for args[2]), which there is not: store "
        "them with agent-intercom gateway secret set github/NAME and write ${keychain:github/NAME} for them, or stop "
        "the server and run agent-intercom serve where they are set (one that an agent starts does not get them); run "
        "agent-intercom gateway secret set K"
    )
    assert references(config) == {
        Reference(Source.ENVIRONMENT, "A"): ("args[0]", "env.X"),
        Reference(Source.KEYCHAIN, "K"): ("args[2]",),
        Reference(Source.ENVIRONMENT, "C"): ("env.Y",),
    }


def test_expanding_changes_only_values() -> None:
    config = parse(written(args=["${A}", "$${x}"], cwd="${A}", env={"X": "${A}"}), FILE)
    expanded = expand(config, lambda _: "/v")
    assert expanded == evolve(config, args=("/v", "${x}"), cwd="/v", env={"X": "/v"})


# --- Writing


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,9}", fullmatch=True)
TOOLS = st.lists(st.from_regex(r"[a-z_*]{1,8}", fullmatch=True), max_size=3).map(tuple)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12).map(escape)
VARIABLES = st.dictionaries(st.from_regex(r"[A-Z_]{1,6}", fullmatch=True), TEXTS, max_size=3)
BUDGETS = st.builds(
    Budget,
    st.none() | st.sampled_from([0.5, 1.0, 10.0]),
    st.just(3),
    st.none() | st.integers(1, 9),
    st.sampled_from([0.5, 30.0, 90.0, 86_400.0]),
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(["*", "search", "a_b"]), st.integers(0, 10**9), max_size=3),
    st.just(0),
).map(lambda budget: budget if budget.requests_per_second else evolve(budget, burst_size=1))
SETTINGS = st.builds(
    lambda low, more, errors: BreakerSettings(low, low + more, 12.5, errors),
    st.integers(1, 5),
    st.integers(0, 5),
    st.booleans(),
)
COMMON = {
    "name": NAMES,
    "capabilities": st.lists(NAMES.map(lambda name: f"{name}.*"), min_size=1, max_size=3).map(tuple),
    "schema_version": st.just("1.0.0"),
    "description": TEXTS,
    "disabled_tools": TOOLS,
    "read_only": TOOLS,
    "classes": st.dictionaries(st.sampled_from(["read", "write"]), TOOLS, max_size=2),
    "sharing": st.sampled_from(Sharing),
    "expose": st.sampled_from(Expose),
    "enabled": st.booleans(),
    "startup_seconds": st.sampled_from([0.5, 60.0]),
    "budget": BUDGETS,
    "breaker": SETTINGS,
    "retry": st.integers(0, 3),
}
CONFIGS = st.one_of(
    st.builds(
        DownstreamConfig,
        transport=st.just(Transport.STDIO),
        command=st.just("npx"),
        args=st.lists(TEXTS, max_size=3).map(tuple),
        env=VARIABLES,
        cwd=st.none() | st.just("~/x"),
        **COMMON,  # type: ignore[arg-type]
    ),
    st.builds(
        DownstreamConfig,
        transport=st.sampled_from([Transport.HTTP, Transport.SSE]),
        base_url=st.just("https://h.example/${P}"),
        headers=st.just({}) | st.just({"A": "b ${C}"}),
        oauth=st.none() | st.just(OAuth("id", scopes=("a",))),
        **COMMON,  # type: ignore[arg-type]
    ),
)


@given(CONFIGS)
def test_what_is_written_is_read_again(config: DownstreamConfig) -> None:
    assert parse(json.dumps(to_json(config)), FILE) == config


# --- JSON with comments


def test_comments_and_strings_are_told_apart() -> None:
    content = '{"a": "// no", /* x\n y */ "b": ["/*", "*/",], // z\n "c": ",]",}'
    assert parse_json(content) == {"a": "// no", "b": ["/*", "*/"], "c": ",]"}
    assert list(key_lines(content)) == [("a", 1, False), ("b", 2, False), ("c", 3, False)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\/*,]}{[:\n', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 1]))
def test_json_without_comments_stays_as_it_is(value: object, indent: int | None) -> None:
    content = json.dumps(value, indent=indent)
    assert without_comments(content) == content
    found = list(key_lines(content))
    assert not any(twice for _, _, twice in found)
    lines = content.split("\n")
    for key, line, _ in found:
        assert f'"{key.rpartition(".")[2].rpartition("]")[2].lstrip(".") or key}"' in lines[line - 1]


# --- Files


def put(directory: Path, name: str, content: str, mode: int = 0o600) -> Path:
    file = directory / name
    file.write_text(content)
    file.chmod(mode)
    return file


def test_a_file_with_faults_does_not_stop_the_others(tmp_path: Path) -> None:
    put(tmp_path, "a.json", written())
    put(tmp_path, "b.json", written(name="other"))
    put(tmp_path, "c.json", written(name="third", enabled=5))
    put(tmp_path, "d.json", written(name="GitHub"))
    put(tmp_path, "notes.txt", "no JSON")
    found = read_directory(tmp_path)
    assert sorted(found.configs) == ["github", "other"]
    assert [(Path(each.file).name, each.key, each.what) for each in found.faults] == [
        ("c.json", "enabled", "is a number"),
        ("d.json", "name", "is the name in a.json, too"),
    ]
    assert read_directory(tmp_path / "missing").configs == {}


def test_a_file_that_others_can_write_or_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "latin.json").write_bytes(b'{\n"name": "\xe9"}')
    (tmp_path / "large.json").write_bytes(b" " * 1_048_577)
    for name in ("latin", "large"):
        (tmp_path / f"{name}.json").chmod(0o600)
    put(tmp_path, "open.json", written(), 0o606)
    sentences = {
        name: read_file(tmp_path / f"{name}.json")[1][0].sentence for name in ("pipe", "latin", "large", "open")
    }
    assert sentences == {
        "pipe": "is not a regular file: replace it by a file",
        "latin": "line 2: is not UTF-8 text: save it as UTF-8",
        "large": "is larger than 1048576 bytes: one file has one downstream",
        "open": f"can be written by every user: if all in it is right, run: chmod go-w {tmp_path / 'open.json'}",
    }
    [fault] = read_file(tmp_path / "none.json")[1]
    assert fault.what == "cannot be read (No such file or directory)"
