"""The table of the tools that agents call.

To add a tool, write its module, add it here, and give it an icon in `agents.icons`. Then `python -m
tests.agents.test_snapshot` writes `handshake_and_lists.json`: what the shim answers by itself, and where hooks find the
names of the tools. If a program that embeds a session should call it, it also gets a method in `embedding`; if a person
answers it, a kind in `sessions.request_kinds`. `waits_while_paused` of its arguments says whether a paused session
answers it.
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
