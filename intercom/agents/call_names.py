"""The requests with a call name, and the key of that name; part of the shim protocol (docs/reference/shim-wire.md).

Shim and server share this module. It imports nothing because the shim starts on the standard library alone.
"""

from __future__ import annotations

#: The key of a call's name in `_meta`.
CALL_KEY = "intercom/call"

#: Requests whose answer may carry a decision, or which must not have their effect twice.
NAMED = frozenset({"tools/call", "tasks/get", "tasks/result", "tasks/cancel"})
