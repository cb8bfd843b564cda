"""The figures of the HTTP port for agents."""

from __future__ import annotations

from collections.abc import Mapping


def figures(
    *, up: bool, connections: int = 0, sessions: int = 0, agents: int = 0, requests: int = 0
) -> Mapping[tuple[str, str], float]:
    """Return each figure by the name and help text of its metric."""
    return {
        ("http_up", "Whether the port for HTTP is open."): float(up),
        ("http_connections", "Connections over HTTP that are open."): connections,
        ("http_sessions", "Sessions over HTTP, of the era of the protocol that has them."): sessions,
        ("http_agents", "Agents over HTTP that are known by their key, of the era without sessions."): agents,
        ("http_requests", "Requests over HTTP that are being served, calls that wait among them."): requests,
    }
