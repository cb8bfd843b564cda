"""The table of the nine tools.

To add a tool, write its module and add it here. Then `python -m tests.agents.test_snapshot` writes
`handshake_and_lists.json`: what the shim answers by itself, and where hooks find the names of the tools.
"""

from __future__ import annotations

from intercom.sessions.tools import (
    auto_check,
    broadcast,
    check_clearance,
    check_diff,
    ping,
    reboot,
    standby,
    switch_freq,
    transmit,
)
from intercom.sessions.tools.tool import Tool

TOOLS: tuple[Tool, ...] = (
    check_clearance.TOOL,
    check_diff.TOOL,
    auto_check.TOOL,
    transmit.TOOL,
    broadcast.TOOL,
    reboot.TOOL,
    switch_freq.TOOL,
    standby.TOOL,
    ping.TOOL,
)

BY_NAME: dict[str, Tool] = {tool.name: tool for tool in TOOLS}
