"""A timed probe: runs a client with a scripted model and a tool that does not answer, to see when it gives up.

The client is the user's own. Its model is a stand-in on loopback, so that it needs no account. Its directories are made
for the probe. Of the user's settings, only the time-out for a call applies.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from attrs import frozen

from intercom.cli import probe_model
from intercom.cli.probe_server import NAME

#: Seconds that a client has to start and to end, besides the call.
_AROUND_SECONDS = 60.0


@frozen
class Outcome:
    """The result of a probe. `how` is held, cancelled or closed; `seconds` is how long the call was open. `progress`
    says whether the client asked for progress reports."""

    how: str
    seconds: float
    progress: bool


class ProbeFailed(Exception):
    """Raised if the client could not be probed; the message says why."""


@frozen
class Recipe:
    """How to run a client. `prepare` gets a directory, the model's address, the tool server's command and the user's
    entry. It writes the configuration into the directory, and returns the client's arguments and environment."""

    program: str
    prepare: Callable[[Path, str, list[str], Mapping[str, Any]], tuple[list[str], dict[str, str]]]


def run(client: str, entry: Mapping[str, Any], seconds: float) -> Outcome:
    """Probe a client for at most `seconds`, with the time-out in `entry`, the user's own for Intercom.

    Raises ProbeFailed if the client cannot be run by a script, is not installed, or did not call the tool.
    """
    recipe = RECIPES.get(client)
    if recipe is None:
        raise ProbeFailed(f"{client} can not be run by a script: {', '.join(RECIPES)} can")
    program = shutil.which(recipe.program)
    if program is None:
        raise ProbeFailed(f"{recipe.program} is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="intercom-probe-") as made, probe_model.serving() as model:
        home = Path(made)
        note = home / "note.json"
        server = [sys.executable, "-P", "-m", "intercom.cli.probe_server", str(note), str(seconds)]
        arguments, environ = recipe.prepare(home, model, server, entry)
        work = home / "work"
        work.mkdir()
        _run([program, *arguments], os.environ | environ, work, seconds + _AROUND_SECONDS)
        if not note.exists():
            raise ProbeFailed(f"{recipe.program} did not call the tool of the probe: is this version known to work?")
        return Outcome(**json.loads(note.read_text()))


def _run(command: list[str], environ: Mapping[str, str], work: Path, seconds: float) -> None:
    process = subprocess.Popen(
        command,
        env=dict(environ),
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Kill its whole process group, with everything that it started.
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        process.wait()


def _codex(home: Path, model: str, server: list[str], entry: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    limit = {key: entry[key] for key in ("tool_timeout_sec",) if key in entry}
    provider = {"name": NAME, "base_url": f"{model}/v1", "wire_api": "responses", "env_key": "PROBE_KEY"}
    settings = {
        "model": NAME,
        "model_provider": NAME,
        "model_providers": {NAME: {**provider, "request_max_retries": 0, "stream_max_retries": 0}},
        "mcp_servers": {
            NAME: {
                "command": server[0],
                "args": server[1:],
                "required": True,
                "startup_timeout_sec": 20,
                "default_tools_approval_mode": "approve",
                **limit,
            }
        },
    }
    (home / "config.toml").write_text(tomlkit.dumps(settings))
    return ["exec", "--skip-git-repo-check", "hold"], {"CODEX_HOME": str(home), "PROBE_KEY": "none"}


def _claude_code(
    home: Path, model: str, server: list[str], entry: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    limit = {key: entry[key] for key in ("timeout",) if key in entry}
    file = home / "mcp.json"
    shown = {"type": "stdio", "command": server[0], "args": server[1:], "alwaysLoad": True, **limit}
    file.write_text(json.dumps({"mcpServers": {NAME: shown}}))
    environ = {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": str(home / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    words = ["-p", "hold", "--mcp-config", str(file), "--strict-mcp-config", "--allowedTools", f"mcp__{NAME}"]
    return words, environ


def _copilot(home: Path, model: str, server: list[str], entry: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    limit = {key: entry[key] for key in ("timeout",) if key in entry}
    shown = {"type": "local", "command": server[0], "args": server[1:], "tools": ["*"], **limit}
    (home / "mcp-config.json").write_text(json.dumps({"mcpServers": {NAME: shown}}))
    environ = {
        "COPILOT_HOME": str(home),
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_BASE_URL": model,
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": NAME,
    }
    return ["-p", "hold", "--allow-tool", NAME], environ


RECIPES: dict[str, Recipe] = {
    "codex": Recipe("codex", _codex),
    "claude-code": Recipe("claude", _claude_code),
    "copilot-cli": Recipe("copilot", _copilot),
}
