"""The table of the nine tools."""

from __future__ import annotations

from intercom.agents.tools import inputs, reporting, waiting
from intercom.agents.tools.tool import Hints, Tool
from intercom.sessions import answers

TOOLS: tuple[Tool, ...] = (
    Tool(
        "check_clearance",
        "ask_approval",
        "Ask for clearance",
        waiting.CHECK_CLEARANCE,
        inputs.CheckClearance,
        answers.ClearanceAnswer,
        Hints(idempotent=True, open_world=True),
        waiting.check_clearance,
        waiting.CLEARANCE,
    ),
    Tool(
        "check_diff",
        "accept_diff",
        "Apply an approved change",
        reporting.CHECK_DIFF,
        inputs.CheckDiff,
        answers.ApplyAnswer,
        Hints(destructive=True, idempotent=True),
        reporting.check_diff,
    ),
    Tool(
        "auto_check",
        "check_auto_approve",
        "Ask the policy",
        reporting.AUTO_CHECK,
        inputs.AutoCheck,
        answers.CheckAnswer,
        Hints(read_only=True, idempotent=True),
        reporting.auto_check,
    ),
    Tool(
        "transmit",
        "forward_prompt",
        "Ask the operator",
        waiting.TRANSMIT,
        inputs.Transmit,
        answers.PromptAnswer,
        Hints(open_world=True),
        waiting.transmit,
        waiting.PROMPT,
    ),
    Tool(
        "broadcast",
        "remote_log",
        "Tell the operator",
        reporting.BROADCAST,
        inputs.Broadcast,
        answers.BroadcastAnswer,
        Hints(open_world=True),
        reporting.broadcast,
    ),
    Tool(
        "reboot",
        "recover_state",
        "Take up where you left off",
        reporting.REBOOT,
        inputs.Reboot,
        answers.RebootAnswer,
        Hints(idempotent=True),
        reporting.reboot,
    ),
    Tool(
        "switch_freq",
        "set_operational_mode",
        "Change who is notified",
        reporting.SWITCH_FREQ,
        inputs.SwitchFreq,
        answers.ModeAnswer,
        Hints(idempotent=True),
        reporting.switch_freq,
    ),
    Tool(
        "standby",
        "wait_for_instruction",
        "Wait for work",
        waiting.STANDBY,
        inputs.Standby,
        answers.StandbyAnswer,
        Hints(open_world=True),
        waiting.standby,
        waiting.WAIT,
    ),
    Tool(
        "ping",
        "heartbeat",
        "Say that you are alive",
        reporting.PING,
        inputs.Ping,
        answers.PingAnswer,
        Hints(idempotent=True),
        reporting.ping,
    ),
)

BY_NAME: dict[str, Tool] = {tool.name: tool for tool in TOOLS}
