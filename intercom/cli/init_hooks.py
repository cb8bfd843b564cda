"""The permission hooks that `init` writes: for which events, in which file, in which form.

An entry runs `agent-intercom hook CLIENT` through the client's shell. If that fails, even because the command cannot be
started, a fallback denies with exit code 2, which every client understands.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from intercom.cli.init_merge import Unmergeable, json_object, json_text

#: How long a client lets a hook run, and how long the hook waits for a person. The rest is time to deny.
HOOK_SECONDS, WAIT_SECONDS = 3600, 3570
#: How long a client lets the hook of a stop event run.
STOP_SECONDS = 30

_NOTHING = object()
_OURS = re.compile(r"(agent-intercom|intercom\.cli\.main)\S*\s(.*\s)?hook\s")
_FALLBACK = "|| { echo 'agent-intercom: the hook failed, so this is denied' >&2; exit 2; }"


@frozen
class Hooks:
    """A client's hooks file. `events` maps each event that asks to True, and each stop event to False. `handler` makes
    an entry from a command and its seconds; `nested` says that entries are in groups. `leading` is what a new file has
    besides hooks. `scope` says where the hooks apply."""

    name: str
    title: str
    file: Callable[[Path], Path]
    events: Mapping[str, bool]
    handler: Callable[[str, int], dict[str, Any]]
    nested: bool
    scope: str
    note: str
    leading: Mapping[str, Any] = {}

    def entries(self, command: list[str]) -> dict[str, dict[str, Any]]:
        """Return Intercom's entry for each event."""
        found = {}
        for event, asks in self.events.items():
            line = shlex.join([*command, "hook", self.name, "--event", event])
            if asks:
                line = f"{line} --wait {WAIT_SECONDS} {_FALLBACK}"
            handler = self.handler(line, HOOK_SECONDS if asks else STOP_SECONDS)
            found[event] = {"hooks": [handler]} if self.nested else handler
        return found


def _claude(command: str, seconds: int) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": seconds}


def _copilot(command: str, seconds: int) -> dict[str, Any]:
    return {"type": "command", "bash": command, "timeoutSec": seconds}


def _cursor(command: str, seconds: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"command": command, "timeout": seconds}
    return entry if seconds == STOP_SECONDS else {**entry, "failClosed": True}


def _home_file(variable: str, directory: str, name: str) -> Callable[[Path], Path]:
    return lambda _workspace: Path(os.environ.get(variable) or Path.home() / directory) / name


HOOKS: dict[str, Hooks] = {
    each.name: each
    for each in (
        Hooks(
            "claude-code",
            "Claude Code's hooks",
            lambda workspace: workspace / ".claude" / "settings.local.json",
            {"PreToolUse": True, "Stop": False},
            _claude,
            True,
            "in this project only",
            "Restart Claude Code after a change.",
        ),
        Hooks(
            "codex",
            "Codex's hooks",
            _home_file("CODEX_HOME", ".codex", "hooks.json"),
            {"PreToolUse": True, "PermissionRequest": True, "Stop": False},
            _claude,
            True,
            "in all your projects",
            "Codex runs them only once you have trusted them: /hooks in Codex.",
        ),
        Hooks(
            "cursor",
            "Cursor's hooks",
            lambda _workspace: Path.home() / ".cursor" / "hooks.json",
            {"preToolUse": True, "beforeShellExecution": True, "beforeMCPExecution": True, "stop": False},
            _cursor,
            False,
            "in all your projects",
            "",
            {"version": 1},
        ),
        Hooks(
            "copilot-cli",
            "Copilot CLI's hooks",
            _home_file("COPILOT_HOME", ".copilot", "hooks/agent-intercom.json"),
            {"preToolUse": True, "permissionRequest": True, "agentStop": False},
            _copilot,
            False,
            "in all your projects",
            "Restart Copilot CLI after a change.",
            {"version": 1},
        ),
    )
}


def merge(hooks: Hooks, text: str, command: list[str]) -> str:
    """Return the file's new text: our entries replace older ones of ours, and everything else stays. Returns `text`
    itself if nothing changes. Raises Unmergeable if it is not plain JSON, or has another value in that place."""
    wanted = hooks.entries(command)
    if text.strip() in ("", "{}"):
        fresh = {**hooks.leading, "hooks": {event: [entry] for event, entry in wanted.items()}}
        return json.dumps(fresh, indent=2, ensure_ascii=False) + "\n"
    document = json_object(text)
    table = _table(document)
    before = json.dumps(document)
    for name, value in hooks.leading.items():
        document.setdefault(name, value)
    for event in {**table, **wanted}:
        kept = [each for each in map(_without_ours, table.get(event, [])) if each is not _NOTHING]
        entries = [*kept, *([wanted[event]] if event in wanted else [])]
        if entries or event in table:
            table[event] = entries
    return text if json.dumps(document) == before else json_text(document, like=text)


def without(hooks: Hooks, text: str) -> str:
    """Return the file's text without our entries, and without what becomes empty. Raises Unmergeable."""
    document = json_object(text)
    before = json.dumps(document)
    table = _table(document)
    for event, entries in list(table.items()):
        table[event] = [each for each in map(_without_ours, entries) if each is not _NOTHING]
        if not table[event] and entries:
            del table[event]
    if json.dumps(document) == before or "hooks" not in json.loads(before):
        return text
    if not table:
        del document["hooks"]
    return json_text(document, like=text)


def is_empty(hooks: Hooks, text: str) -> bool:
    """Tell whether a file holds no hook, and nothing else that a new file of ours would not have."""
    try:
        return json_object(text) in ({}, dict(hooks.leading))
    except Unmergeable:
        return False


def _table(document: dict[str, Any]) -> dict[str, list[Any]]:
    table = document.setdefault("hooks", {})
    if not isinstance(table, dict) or not all(isinstance(entries, list) for entries in table.values()):
        raise Unmergeable("has something other than lists of hooks at hooks")
    return table


def installed(hooks: Hooks, text: str) -> tuple[str, ...]:
    """Return the events for which a file has our entry; none if it cannot be read."""
    try:
        table = json_object(text).get("hooks", {})
    except Unmergeable:
        return ()
    if not isinstance(table, dict):
        return ()
    return tuple(
        event
        for event in hooks.events
        if isinstance(table.get(event), list) and any(_without_ours(each) != each for each in table[event])
    )


def _without_ours(entry: Any) -> Any:
    """Return an entry without our command, or _NOTHING if nothing is left of it."""
    if not isinstance(entry, dict):
        return entry
    if isinstance(entry.get("hooks"), list):
        kept = [each for each in entry["hooks"] if not _is_ours(each)]
        return {**entry, "hooks": kept} if kept or not entry["hooks"] else _NOTHING
    return _NOTHING if _is_ours(entry) else entry


def _is_ours(handler: Any) -> bool:
    commands = [handler.get(name) for name in ("command", "bash")] if isinstance(handler, dict) else []
    return any(isinstance(command, str) and _OURS.search(command) for command in commands)
