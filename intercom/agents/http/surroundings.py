"""What the server gives to serving over HTTP, as values and names."""

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
    """What serving needs of the server: the MCP server, what doors need, the standing to keep, the pages besides, whom
    to tell of trouble, the clock, where an agent's processes are noted, what gives the token to ask for (it raises
    IpcError; None where nothing is asked), what puts its file back when that is gone, and what is told of errors."""

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
