"""The dependencies of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen
from mcp.server import Server

from actors import Name
from intercom.agents.http.standing import Standing
from intercom.agents.http.visits import Guests
from intercom.agents.processes import AgentProcesses
from intercom.model.measure import Measured
from intercom.model.page import Page


@frozen
class Surroundings:
    """The dependencies of the HTTP service.

    `guests` makes agent connections. `standing` is the status to update. `pages` are the pages besides MCP. `operators`
    gets notices. `processes` records agents' processes. `token` returns the required token or raises IpcError; it is
    None if none is required. `keep_token` restores the token's file. `measured` gets errors.
    """

    server: Server[Any]
    guests: Guests
    standing: Standing
    pages: Sequence[Page]
    operators: Name
    now: Callable[[], datetime]
    processes: AgentProcesses
    token: Callable[[], str] | None
    keep_token: Callable[[str], str | None] | None
    address_file: str
    measured: Measured
