"""opencode. It has no permission hooks that `init` could install: its plugins are programs of their own. Its own tools
write and run without asking unless its `permission` setting says otherwise.

Progress resets its time limit, so a call may wait for as long as the person takes.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

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

_RESTRICTING = ("ask", "deny")


def _stdio(start: list[str]) -> JsonObject:
    return {"type": "local", "command": [*start], "enabled": True}


def _http(url: str, token: bool) -> JsonObject:
    headers = bearer(f"{{env:{TOKEN_VARIABLE}}}", token=token, **{WORKSPACE_HEADER: "{env:PWD}"})
    # Without `oauth: false` it would look for a sign-in where the token is missing.
    return {"type": "remote", "url": url, **headers, "oauth": False, "enabled": True}


def _are_restricted(document: JsonObject) -> bool:
    """Whether neither tool does anything unnamed without asking. The last rule that matches a tool counts."""
    rules = document.get("permission")
    if not isinstance(rules, dict):
        return _is_restricted(rules)
    return all(
        _is_restricted(next((rules[name] for name in reversed(rules) if fnmatchcase(tool, name)), None))
        for tool in ("edit", "bash")
    )


def _is_restricted(rule: Json) -> bool:
    """Whether a rule lets nothing pass that is not named after its rule for everything."""
    if not isinstance(rule, dict):
        return rule in _RESTRICTING
    return rule.get("*") in _RESTRICTING


CLIENT = Client(
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
