"""Whether the clients that know Intercom are also held to it, by their permission hooks."""

from __future__ import annotations

from pathlib import Path

from intercom.cli import init_files
from intercom.cli.finding import Finding, State
from intercom.cli.init_clients import CLIENTS, names_us
from intercom.cli.init_hooks import HOOKS, installed


def examine(project: Path) -> Finding:
    """Of the clients that know Intercom, which are also held to it. What a client does with its file is its affair:
    whether its hooks are on, or trusted, can not be seen from here."""
    held, partly, free = [], [], []
    for name, hooks in HOOKS.items():
        found = installed(hooks, init_files.glance(hooks.file(project)))
        if set(found) >= {event for event, asks in hooks.events.items() if asks}:
            held.append(CLIENTS[name].title)
        elif found:
            partly.append(f"{CLIENTS[name].title} has only {', '.join(found)}")
        elif names_us(CLIENTS[name].file(project)):
            free.append(CLIENTS[name].title)
    advice = "agent-intercom init --write --hooks --client NAME, in the project"
    if partly:
        return Finding("hooks", State.WARN, f"hooks are missing: {'; '.join(partly)}", advice)
    if free:
        text = f"{', '.join(free)} may write and run without asking: no permission hook is set up"
        return Finding("hooks", State.WARN, text, advice)
    return Finding("hooks", State.OK, f"{', '.join(held)} must ask" if held else "none are set up, nor are clients")
