"""How long each client lets a call wait before it is better told to ask again, in seconds.

Found by running the clients or reading their documentation (docs/reference/clients.md says which). A client that cuts a
call itself tells its model that the tool failed; a call that returns "pending" in time does not fail.
"""

from __future__ import annotations

from intercom.model.config import Config

#: Without limit: only silence ends a call there, and progress breaks it.
NO_LIMIT = None

#: By how a client's name (lower case) begins; the longest match counts.
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
#: The TypeScript SDK cuts a call after 60 s unless told otherwise; who we do not know is taken for one of its users.
_UNKNOWN = 50.0


def slice_seconds(client_name: str | None, config: Config) -> float | None:
    """How long one call of this client may wait; None is without limit. `[clients]` overrides what is known."""
    name = (client_name or "").lower()
    for wanted, settings in sorted(config.clients.items(), key=lambda entry: len(entry[0]), reverse=True):
        if name.startswith(wanted.lower()) and settings.slice_seconds is not None:
            return settings.slice_seconds or NO_LIMIT
    known = [prefix for prefix in _SLICES if name.startswith(prefix)]
    return _SLICES[max(known, key=len)] if known else _UNKNOWN
