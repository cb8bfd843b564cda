"""Which requests carry a name of their own, and where: what shim and server agree on (docs/reference/shim-wire.md).

The shim starts on the standard library alone, so this stands apart from both.
"""

from __future__ import annotations

#: The key in `_meta` under which a call's name stands.
CALL_KEY = "intercom/call"

#: Requests whose answer may carry a verdict, or whose effect must not happen twice.
NAMED = frozenset({"tools/call", "tasks/get", "tasks/result", "tasks/cancel"})
