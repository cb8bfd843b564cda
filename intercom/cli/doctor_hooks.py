"""Doctor's check of permission hooks: whether the clients that know Intercom must also ask it."""

from __future__ import annotations

from pathlib import Path

from intercom.cli import init_files
from intercom.cli.finding import Finding, State
from intercom.cli.init_clients import CLIENTS, names_us
from intercom.cli.init_hooks import HOOKS, installed


def examine(project: Path) -> Finding:
    """Check which clients that know Intercom have its permission hooks. This cannot see whether a client has its hooks
    turned on, or trusts them."""
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
