"""opencode. It has no permission hooks that `init` could install: its plugins are programs of their own. Its own tools
write and run without asking unless its `permission` setting says otherwise.

Progress resets its time limit, so a call may wait for as long as the person takes.
"""

from __future__ import annotations

from intercom.agents.clients.client import (
    TOKEN_VARIABLE,
    WORKSPACE_HEADER,
    Client,
    Entry,
    Instructions,
    Location,
    OwnTools,
    Timeout,
    bearer,
)
from intercom.model.json_types import Json, JsonObject


def _stdio(start: list[str]) -> JsonObject:
    return {"type": "local", "command": [*start], "enabled": True}


def _http(url: str, token: bool) -> JsonObject:
    headers = bearer(f"{{env:{TOKEN_VARIABLE}}}", token=token, **{WORKSPACE_HEADER: "{env:PWD}"})
    # Without `oauth: false` it would look for a sign-in where the token is missing.
    return {"type": "remote", "url": url, **headers, "oauth": False, "enabled": True}


def _are_restricted(document: JsonObject) -> bool:
    rules = document.get("permission")
    if not isinstance(rules, dict):
        return _is_restricted(rules)
    return all(_is_restricted(rules.get(tool, rules.get("*"))) for tool in ("edit", "bash"))


def _is_restricted(rule: Json) -> bool:
    """Whether a rule lets nothing pass that it does not name."""
    return (rule.get("*") if isinstance(rule, dict) else rule) in ("ask", "deny")


CLIENT = Client(
    "opencode",
    "opencode",
    call_waits={"opencode": None},
    entry=Entry(
        Location("opencode/opencode.json", ".config", "XDG_CONFIG_HOME"),
        "mcp",
        _stdio,
        _http,
        "Restart opencode after a change.",
        timeout=Timeout("timeout", 0.001),
    ),
    own_tools=OwnTools({"permission": {"edit": "deny", "bash": "ask"}}, _are_restricted),
    instructions=Instructions(
        Location("opencode/AGENTS.md", ".config", "XDG_CONFIG_HOME"), instead=Location("CLAUDE.md", ".claude")
    ),
)
