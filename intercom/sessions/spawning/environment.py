"""The environment of an agent that people start. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from intercom.workspace import running

#: What marks the processes of a session, to the agent's shim and to who ends them.
SESSION_ID = "INTERCOM_SESSION_ID"


def build(
    environ: Mapping[str, str],
    passed_on: tuple[str, ...],
    session_id: str,
    workspace_root: str,
    http: Mapping[str, str],
) -> dict[str, str]:
    """What the agent gets of the server's environment `environ` (what programs need, no credential, and the names in
    `passed_on`), and what is its own; `http` holds that of it which tells how to reach the server over HTTP."""
    return {
        **running.environment(environ),
        **{name: environ[name] for name in passed_on if name in environ},
        "INTERCOM_WORKSPACE_ROOT": workspace_root,
        SESSION_ID: session_id,
        **http,
    }
