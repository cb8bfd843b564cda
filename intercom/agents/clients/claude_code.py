"""Claude Code.

A `PreToolUse` hook that allows skips Claude Code's own question. A hook that fails with another exit code than 2, or is
late, passes the tool to the normal permission flow. So a hook always answers, and in time.
"""

from __future__ import annotations

from intercom.agents.clients import builtin_tools
from intercom.agents.clients.client import (
    A_DAY_SECONDS,
    PROBE_NAME,
    SERVER_NAME,
    TOKEN_VARIABLE,
    WORKSPACE_HEADER,
    Client,
    Entry,
    HookEvent,
    Hooks,
    Location,
    Permissions,
    Probe,
    ProbeRun,
    ProjectRecord,
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
from intercom.model.json_types import JsonObject

# `timeout` also lifts the limit for calls without progress; `alwaysLoad` keeps the tools out of tool search.
_SETTINGS: JsonObject = {"timeout": A_DAY_SECONDS * 1000, "alwaysLoad": True}


def _stdio(start: list[str]) -> JsonObject:
    return {"type": "stdio", "command": start[0], "args": start[1:], **_SETTINGS}


def _http(url: str, token: bool) -> JsonObject:
    headers = bearer(f"${{{TOKEN_VARIABLE}}}", token=token, **{WORKSPACE_HEADER: "${PWD}"})
    return {"type": "http", "url": url, **headers, **_SETTINGS}


PRE, PERMISSION = "PreToolUse", "PermissionRequest"


class ClaudeCodeHooks(Hooks):
    """Claude Code's hooks. `PermissionRequest` is understood but not installed: `PreToolUse` sees every use."""

    mcp_name = "claude-code"
    file = Location(".claude/settings.local.json")
    asks: tuple[str, ...] = (PRE,)
    stops = ("Stop", "SubagentStop")
    note = "Restart Claude Code after a change."
    run_by_others = True

    def entry(self, command: str, seconds: int, *, asks: bool) -> JsonObject:
        return {"hooks": [{"type": "command", "command": command, "timeout": seconds}]}

    def read(self, data: JsonObject, event: str | None) -> HookEvent:
        event = event_of(data, event, (PRE, PERMISSION, *self.stops), "hook_event_name") or PRE
        conversation, cwd = text(data, "session_id") or "", text(data, "cwd")
        if event in self.stops:
            return Stopping(event, conversation, cwd)
        tool = text(data, "tool_name")
        if event not in (PRE, PERMISSION):
            return unknown(event, tool)
        if tool is None:
            raise Unreadable("it has no tool_name")
        found = builtin_tools.operation(tool, table(data, "tool_input"), cwd)
        # Codex names the turn; Claude Code does not.
        return Question(event, found, conversation, text(data, "turn_id") or "", text(data, "tool_use_id"), cwd)

    def decide(self, event: str, allow: bool, why: str) -> JsonObject:
        behavior = "allow" if allow else "deny"
        answer: JsonObject = {"permissionDecision": behavior, "permissionDecisionReason": why}
        if event == PERMISSION:
            answer = {"decision": {"behavior": behavior, **({} if allow else {"message": why})}}
        return {"hookSpecificOutput": {"hookEventName": event, **answer}}


def _probe(home: str, model: str, entry: JsonObject) -> ProbeRun:
    environ = {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": f"{home}/claude",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    arguments = ["-p", "hold", "--mcp-config", f"{home}/mcp.json", "--strict-mcp-config"]
    arguments += ["--allowedTools", f"mcp__{PROBE_NAME}"]
    return ProbeRun(arguments, environ, "mcp.json", {"mcpServers": {PROBE_NAME: entry}})


CLIENT = Client(
    "claude-code",
    # It only times out silent calls, and progress reports prevent that.
    call_waits={"claude-code": None},
    entry=Entry(
        Location(".mcp.json"),
        "mcpServers",
        _stdio,
        _http,
        "Claude Code asks once whether you trust the project. If it asks about the new MCP server too, choose Use this"
        " MCP server: its cursor is on the answer that goes on without it.",
        timeout=Timeout("timeout", 0.001),
    ),
    hooks=ClaudeCodeHooks(),
    probe=Probe("claude", _probe),
    permissions=Permissions(
        Location(".claude/settings.local.json"),
        f"mcp__{SERVER_NAME}",
        "enabledMcpjsonServers",
        "disabledMcpjsonServers",
        # Otherwise its window moves a call to the background after 2 minutes, and tells its model there that the result
        # is no input of the person.
        {"CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0"},
        "Calls of all MCP servers of this project then wait in the window, and are not moved to the background.",
        also=(
            Location(".claude/settings.json"),
            Location("settings.json", ".claude", "CLAUDE_CONFIG_DIR"),
            # Those of an organisation; this path is the same on every machine with Linux, and on every Mac.
            Location("/etc/claude-code/managed-settings.json"),
            Location("/Library/Application Support/ClaudeCode/managed-settings.json"),
        ),
        record=ProjectRecord(
            Location(".claude.json", ".", "CLAUDE_CONFIG_DIR"),
            "projects",
            "disabledMcpServers",
            "enable it in /mcp of Claude Code, in this project",
        ),
    ),
)
