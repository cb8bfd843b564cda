"""Builds the environment of an agent that people start. All functions are pure."""

from __future__ import annotations

from collections.abc import Mapping

from intercom.workspace import running

#: Marks the processes of a session: for the agent's shim, and for ending them.
SESSION_ID = "INTERCOM_SESSION_ID"


def build(
    environ: Mapping[str, str],
    passed_on: tuple[str, ...],
    session_id: str,
    workspace_root: str,
    http: Mapping[str, str],
) -> dict[str, str]:
    """Return the agent's environment. From the server's `environ` it gets what programs need, without credentials, and
    the names in `passed_on`. `http` are the variables for reaching the server over HTTP."""
    return {
        **running.environment(environ),
        **{name: environ[name] for name in passed_on if name in environ},
        "INTERCOM_WORKSPACE_ROOT": workspace_root,
        SESSION_ID: session_id,
        **http,
    }
