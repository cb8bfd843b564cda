"""Copilot CLI. Its hooks are sent in its own spelling and in VS Code's.

A `preToolUse` command hook that fails denies, and one that times out lets the tool pass. `permissionRequest` comes
before Copilot's own rules. Copilot CLI also runs the hooks of Claude Code's settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from intercom.agents.clients import builtin_tools
from intercom.agents.clients.client import (
    A_DAY_SECONDS,
    PROBE_NAME,
    TOKEN_VARIABLE,
    WORKSPACE_HEADER,
    Client,
    Entry,
    HookEvent,
    Hooks,
    Location,
    Probe,
    ProbeRun,
    Question,
    Stopping,
    Timeout,
    Unreadable,
    bearer,
    event_of,
    table,
    text,
    unknown,
)
from intercom.model.json_types import Json, JsonObject

_SETTINGS: JsonObject = {"tools": ["*"], "timeout": A_DAY_SECONDS * 1000}


def _stdio(start: list[str]) -> JsonObject:
    return {"type": "local", "command": start[0], "args": start[1:], **_SETTINGS}


def _http(url: str, token: bool) -> JsonObject:
    headers = bearer(f"${{{TOKEN_VARIABLE}}}", token=token, **{WORKSPACE_HEADER: "${PWD}"})
    return {"type": "http", "url": url, **headers, **_SETTINGS}


_PRE = ("preToolUse", "PreToolUse")
_PERMISSION = ("permissionRequest", "PermissionRequest")


class CopilotHooks(Hooks):
    """Copilot CLI's hooks."""

    mcp_name = "github-copilot"
    file = Location("hooks/agent-intercom.json", ".copilot", "COPILOT_HOME")
    asks = ("preToolUse", "permissionRequest")
    stops = ("agentStop", "subagentStop", "Stop", "SubagentStop")
    head: Mapping[str, Json] = {"version": 1}
    note = "Restart Copilot CLI after a change."

    def entry(self, command: str, seconds: int, *, asks: bool) -> JsonObject:
        return {"type": "command", "bash": command, "timeoutSec": seconds}

    def sent(self, data: JsonObject) -> bool:
        return "toolName" in data or ("timestamp" in data and "permission_mode" not in data)

    def read(self, data: JsonObject, event: str | None) -> HookEvent:
        # Payloads in its own spelling do not name the event: the hook's command line does.
        known = (*_PRE, *_PERMISSION, *self.stops)
        event = event_of(data, event, known, "hook_event_name", "hookEventName") or _PRE[0]
        conversation, cwd = text(data, "sessionId", "session_id") or "", text(data, "cwd")
        if event in self.stops:
            return Stopping(event, conversation, cwd)
        tool = text(data, "toolName", "tool_name")
        if event not in (*_PRE, *_PERMISSION):
            return unknown(event, tool)
        if tool is None:
            raise Unreadable("it has no toolName")
        given = table(data, "toolArgs", "toolInput", "tool_input", "tool_args")
        return Question(event, builtin_tools.operation(tool, given, cwd), conversation, "", None, cwd)

    def decide(self, event: str, allow: bool, why: str) -> JsonObject:
        behavior = "allow" if allow else "deny"
        if event in _PERMISSION:
            return {"behavior": behavior, **({} if allow else {"message": why})}
        return {"permissionDecision": behavior, "permissionDecisionReason": why}


def _probe(home: str, model: str, entry: JsonObject) -> ProbeRun:
    environ = {
        "COPILOT_HOME": home,
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_BASE_URL": model,
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": PROBE_NAME,
    }
    arguments = ["-p", "hold", "--allow-tool", PROBE_NAME]
    return ProbeRun(arguments, environ, "mcp-config.json", {"mcpServers": {PROBE_NAME: entry}})


CLIENT = Client(
    "copilot-cli",
    # GitHub Copilot elsewhere ends a call sooner than its command line.
    call_waits={"copilot": 270.0, "github-copilot": 50.0},
    entry=Entry(
        Location("mcp-config.json", ".copilot", "COPILOT_HOME"),
        "mcpServers",
        _stdio,
        _http,
        "Restart Copilot CLI after a change.",
        timeout=Timeout("timeout", 0.001),
    ),
    hooks=CopilotHooks(),
    probe=Probe("copilot", _probe),
)
