"""doctor --client: what a client's file says of its patience, and what a probe of the client itself finds."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from intercom.agents.clients import CLIENTS
from intercom.cli import client_timeout_probe, doctor_checks, main
from intercom.cli.client_timeout_probe import Probe
from intercom.cli.doctor_checks import State, judged
from intercom.model.config import Config

#: A client that is written the way Codex is configured: it asks its model, calls what it says, and waits so long.
CLIENT = """
    import json, os, subprocess, sys, time, tomllib, urllib.request
    settings = tomllib.load(open(os.environ["CODEX_HOME"] + "/config.toml", "rb"))
    entry = settings["mcp_servers"]["probe"]
    server = subprocess.Popen([entry["command"], *entry["args"]], stdin=-1, stdout=-1, text=True, bufsize=1)
    def say(**message):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    def model(**request):
        url = settings["model_providers"]["probe"]["base_url"] + "/responses"
        with urllib.request.urlopen(url, json.dumps(request).encode()) as answer:
            lines = answer.read().decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: ")][1]["item"]
    say(id=1, method="initialize", params={"protocolVersion": "2025-06-18"})
    assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "probe"
    say(method="notifications/initialized")
    step = model(tools=[{"name": "mcp__probe"}], input=[])
    assert (step["namespace"], step["name"]) == ("mcp__probe", "hold")
    say(id=2, method="tools/call", params={"name": "hold", "arguments": {}, "_meta": {"progressToken": 0}})
    assert json.loads(server.stdout.readline())["method"] == "notifications/progress"
    limit = entry.get("tool_timeout_sec")
    if limit is None:
        assert json.loads(server.stdout.readline())["id"] == 2
    else:
        time.sleep(limit)
        say(method="notifications/cancelled", params={"requestId": 2})
    assert model(tools=[{"name": "mcp__probe"}], input=[{"type": "function_call_output"}])["type"] == "message"
    server.stdin.close()
    server.wait()
"""


@pytest.fixture
def known(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write what Codex's file says of us."""
    program = own_home / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{dedent(CLIENT)}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    def write(line: str) -> None:
        file = own_home / ".codex" / "config.toml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'[mcp_servers.agent-intercom]\ncommand = "agent-intercom"\n{line}\n')

    return write


def doctor(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main.main(["doctor", "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {finding["subject"]: finding for finding in found["findings"]}


@pytest.mark.parametrize(
    ("patience", "limit", "state"),
    [
        (270.0, 300.0, State.OK),
        (300.0, 300.0, State.WARN),
        (None, 300.0, State.WARN),
        (None, None, State.OK),
        (50.0, None, State.OK),
    ],
)
def test_a_limit_has_to_leave_room(patience: float | None, limit: float | None, state: State) -> None:
    found, _, advice = judged(patience, limit)
    assert (found, bool(advice)) == (state, state is State.WARN)


def test_the_settings_of_a_client_are_read(known: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    known("tool_timeout_sec = 100")
    found = doctor("--client", "codex", capsys=capsys)["codex"]
    assert found["state"] == "warn"
    assert "100 s" in found["text"]
    known("")
    assert doctor("--client", "codex", capsys=capsys)["codex"]["state"] == "ok"


def test_a_client_that_does_not_know_us_is_told_of(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = doctor("--client", "cursor", "--workspace", str(own_home), capsys=capsys)["cursor"]
    assert (found["state"], found["advice"]) == ("warn", "agent-intercom init --write --client cursor")


def test_a_probe_sees_when_the_client_ends_a_call(
    known: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    known("tool_timeout_sec = 0.3")
    found = doctor("--client", "codex", "--probe", "20", capsys=capsys)["probe"]
    assert found["state"] == "warn"
    told = re.match(r"after (\d+\.\d) s with reports the client ended it by cancelling", found["text"])
    assert told is not None, found["text"]
    assert float(told[1]) >= 0.3


def test_a_probe_sees_a_client_that_has_the_patience(known: Callable[[str], None]) -> None:
    known("")
    found = client_timeout_probe.run(CLIENTS["codex"], {}, 0.3)
    assert (found.how, found.progress) == ("held", True)
    assert found.seconds >= 0.3


def test_what_can_not_be_probed_is_said(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(own_home))
    for name, why in (("cursor", "there is no probe for cursor"), ("codex", "codex is not on the PATH")):
        (_, found) = doctor_checks.examine_client(name, Config(), own_home, 5.0)
        assert (found.state, why in found.text) == (State.WARN, True)
    program = own_home / "claude"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(client_timeout_probe.ProbeFailed, match="did not call the tool"):
        client_timeout_probe.run(CLIENTS["claude-code"], {}, 5.0)


@pytest.mark.parametrize("words", [["--client", "none"], ["--probe", "5"]])
def test_options_that_do_not_fit_are_refused(words: list[str]) -> None:
    assert main.main(["doctor", *words]) == 2


def test_the_probes_server_answers_what_clients_ask_besides(tmp_path: Path) -> None:
    server = Probe(str(tmp_path / "note"), 60.0)
    assert server.heard({"id": 1, "method": "ping"})[0]["result"] == {}
    assert server.heard({"id": 2, "method": "resources/list"})[0]["error"]["code"] == -32601
    assert [tool["name"] for tool in server.heard({"id": 3, "method": "tools/list"})[0]["result"]["tools"]] == ["hold"]
    assert server.heard({"id": 4, "method": "tools/call", "params": {}}) == []
    assert server.heard({"method": "notifications/cancelled", "params": {"requestId": 9}}) == []
    server.closed()
    assert json.loads((tmp_path / "note").read_text())["how"] == "closed"


@pytest.mark.parametrize("name", ["mcp__probe__hold", "probe-hold"])
def test_the_model_has_its_agent_call_once(name: str) -> None:
    tools = [{"name": "Bash"}, {"name": name}]
    step = client_timeout_probe.messages({"tools": tools, "messages": [{"role": "user", "content": "hold"}]})
    assert step[1]["content_block"]["name"] == name
    done = [{"role": "user", "content": [{"type": "tool_result", "content": "held"}]}]
    assert client_timeout_probe.messages({"tools": tools, "messages": done})[1]["content_block"]["type"] == "text"
