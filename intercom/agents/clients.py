"""The poll interval of each client: how long it lets a call wait, in seconds.

The values come from running the clients or from their documentation; docs/reference/clients.md says which. A client
that times a call out tells its model that the tool failed. A call that returns "pending" in time does not fail.
"""

from __future__ import annotations

from intercom.model.config import Config

#: No limit: the client only times out silent calls, and progress reports prevent that.
NO_LIMIT = None

#: Keys are prefixes of the client's name in lower case; the longest match counts.
_SLICES: dict[str, float | None] = {
    "claude-code": NO_LIMIT,
    "codex": 270.0,
    "cursor": 50.0,
    "visual studio code": 270.0,
    "vscode": 270.0,
    "github-copilot": 50.0,
    "copilot": 270.0,
    "agent-intercom": NO_LIMIT,
}
#: The TypeScript SDK times out after 60 s by default. Unknown clients are assumed to use it.
_UNKNOWN = 50.0


def slice_seconds(client_name: str | None, config: Config) -> float | None:
    """Return the poll interval of this client in seconds; None means no limit. `[clients]` overrides the defaults."""
    name = (client_name or "").lower()
    for wanted, settings in sorted(config.clients.items(), key=lambda entry: len(entry[0]), reverse=True):
        if name.startswith(wanted.lower()) and settings.slice_seconds is not None:
            return settings.slice_seconds or NO_LIMIT
    known = [prefix for prefix in _SLICES if name.startswith(prefix)]
    return _SLICES[max(known, key=len)] if known else _UNKNOWN
