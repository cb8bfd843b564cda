"""The older names of tools, which policy files may use for the present tools, and the other way round."""

from __future__ import annotations

OLDER_NAMES = {
    "ask_approval": "check_clearance",
    "accept_diff": "check_diff",
    "check_auto_approve": "auto_check",
    "forward_prompt": "transmit",
    "remote_log": "broadcast",
    "recover_state": "reboot",
    "set_operational_mode": "switch_freq",
    "wait_for_instruction": "standby",
    "heartbeat": "ping",
}


def canonical(name: str) -> str:
    """Return the present name of a tool; any other name unchanged."""
    return OLDER_NAMES.get(name, name)
