"""The table of the nine tools."""

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
