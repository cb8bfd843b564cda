"""Doctor's check of one client: how long it lets a call wait, by its settings and by a timed probe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intercom.agents import clients
from intercom.cli import init_files, probe
from intercom.cli.finding import Finding, State
from intercom.cli.init_clients import CLIENTS, SERVER_NAME, Client
from intercom.cli.init_merge import present
from intercom.model.config import Config

#: For each client: the key of its limit for a call, that key's unit in seconds, and the default limit in seconds.
LIMITS: dict[str, tuple[str, float, float | None]] = {
    "codex": ("tool_timeout_sec", 1.0, 300.0),
    "claude-code": ("timeout", 0.001, None),
    "copilot-cli": ("timeout", 0.001, None),
}


def examine(name: str, config: Config, project: Path, seconds: float | None) -> list[Finding]:
    """Check what a client's file says. With `seconds`, also run it to see how long it lets a call wait, at most so
    long."""
    client = CLIENTS[name]
    entry = present(client.format, init_files.glance(client.file(project)), client.table, SERVER_NAME)
    findings = [_settings(client, config, entry, project)]
    if seconds is not None:
        findings.append(_probe(client, config, entry, seconds))
    return findings


def judged(patience: float | None, limit: float | None) -> tuple[State, str, str]:
    """Judge a client's limit (None: unknown) against our longest wait (None: unlimited), in seconds: state, text,
    advice."""
    waits = "as long as it takes" if patience is None else f"at most {patience:g} s"
    if limit is None:
        return State.OK, f"Intercom lets a call wait {waits}", ""
    cut = f"the client ends a call after {limit:g} s, and Intercom lets one wait {waits}"
    if patience is not None and patience < limit:
        return State.OK, cut, ""
    return State.WARN, cut, f"set slice_seconds below {limit:g} for this client, under [clients] in the configuration"


def _settings(client: Client, config: Config, entry: Mapping[str, Any], project: Path) -> Finding:
    if not entry:
        advice = f"agent-intercom init --write --client {client.name}"
        return Finding(client.name, State.WARN, f"does not know Intercom ({client.file(project)})", advice)
    state, text, advice = judged(clients.slice_seconds(client.name, config), _limit(client.name, entry))
    return Finding(client.name, state, f"{text} ({client.file(project)})", advice)


def _limit(name: str, entry: Mapping[str, Any]) -> float | None:
    known = LIMITS.get(name)
    if known is None:
        return None
    key, unit, otherwise = known
    value = entry.get(key)
    return value * unit if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _probe(client: Client, config: Config, entry: Mapping[str, Any], seconds: float) -> Finding:
    try:
        found = probe.run(client.name, entry, seconds)
    except (probe.ProbeFailed, OSError) as fault:
        advice = "docs/reference/clients.md says what is known of it"
        return Finding("probe", State.WARN, f"not probed: {fault}", advice)
    reports = "with" if found.progress else "without"
    if found.how == "held":
        text = f"a call of {found.seconds:.0f} s {reports} reports of progress was not ended by the client"
        return Finding("probe", State.OK, text)
    state, _, advice = judged(clients.slice_seconds(client.name, config), round(found.seconds, 1))
    said = "ended it by cancelling" if found.how == "cancelled" else "closed the connection"
    return Finding("probe", state, f"after {found.seconds:.1f} s {reports} reports the client {said}", advice)
