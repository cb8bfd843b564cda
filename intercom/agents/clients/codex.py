"""Codex. Its hooks have Claude Code's format, with differences.

Codex's `PreToolUse` hook can block but not allow: "allow" is an error there, after which the tool runs. So an allowed
operation is answered with nothing. Codex's own approval, if needed, comes as a `PermissionRequest`.
"""

from __future__ import annotations

from intercom.agents.clients.claude_code import PERMISSION, PRE, ClaudeCodeHooks
from intercom.agents.clients.client import (
    A_DAY_SECONDS,
    PROBE_NAME,
    TOKEN_VARIABLE,
    WORKSPACE_HEADER,
    Client,
    Entry,
    Instructions,
    Location,
    Probe,
    ProbeRun,
    Timeout,
    call_wait_note,
)
from intercom.model.json_types import JsonObject

# Without `required`, a slow server is missing in the first turn. Without approval, `codex exec` refuses every tool that
# is not read-only.
_SETTINGS: JsonObject = {
    "required": True,
    "startup_timeout_sec": 20,
    "tool_timeout_sec": A_DAY_SECONDS,
    "default_tools_approval_mode": "approve",
}
# Codex passes on listed variables only. Without these, a shim might find another server than ctl, and would not say
# which agent it is for.
_VARIABLES = [
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"),
    *("INTERCOM_SESSION_ID", "INTERCOM_AGENT", "INTERCOM_ROLE_TOKEN"),
]


def _stdio(start: list[str]) -> JsonObject:
    return {"command": start[0], "args": start[1:], **_SETTINGS, "env_vars": _VARIABLES}


def _http(url: str, token: bool) -> JsonObject:
    named = {"bearer_token_env_var": TOKEN_VARIABLE} if token else {}
    return {"url": url, **named, **_SETTINGS, "env_http_headers": {WORKSPACE_HEADER: "PWD"}}


class CodexHooks(ClaudeCodeHooks):
    """Codex's hooks."""

    mcp_name = "codex-mcp-client"
    file = Location("hooks.json", ".codex", "CODEX_HOME")
    asks = (PRE, PERMISSION)
    note = "Codex runs them only once you have trusted them: /hooks in Codex."
    run_by_others = False
    names_thread = True

    def decide(self, event: str, allow: bool, why: str) -> JsonObject:
        return self.pass_on(event) if allow and event == PRE else super().decide(event, allow, why)


def _probe(home: str, model: str, entry: JsonObject) -> ProbeRun:
    provider = {"name": PROBE_NAME, "base_url": f"{model}/v1", "wire_api": "responses", "env_key": "PROBE_KEY"}
    content: JsonObject = {
        "model": PROBE_NAME,
        "model_provider": PROBE_NAME,
        "model_providers": {PROBE_NAME: {**provider, "request_max_retries": 0, "stream_max_retries": 0}},
        "mcp_servers": {PROBE_NAME: entry},
    }
    environ = {"CODEX_HOME": home, "PROBE_KEY": "none"}
    return ProbeRun(["exec", "--skip-git-repo-check", "hold"], environ, "config.toml", content)


CLIENT = Client(
    "codex",
    call_waits={"codex": 270.0},
    entry=Entry(
        Location("config.toml", ".codex", "CODEX_HOME"),
        "mcp_servers",
        _stdio,
        _http,
        call_wait_note("codex"),
        timeout=Timeout("tool_timeout_sec", 1.0, 300.0),
        open_lists=("env_vars",),
    ),
    hooks=CodexHooks(),
    probe=Probe("codex", _probe),
    instructions=Instructions(Location("AGENTS.md", ".codex", "CODEX_HOME")),
)
