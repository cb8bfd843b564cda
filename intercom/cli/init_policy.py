"""`agent-intercom init --policy`: writes a careful policy if the workspace has none, and has it accepted."""

from __future__ import annotations

from pathlib import Path

from intercom.cli import ctl_policy, init_files
from intercom.cli.init_files import Change
from intercom.local.places import places
from intercom.operators.ctl.client import NoServer, Refusal
from intercom.workspace.policy_file import POLICY_FILE

#: It grants reading, and two commands that only show something: this is safe for any project.
STARTER = """\
{
  "$schema": "urn:agent-intercom:workspace-settings:1",
  "enabled": true,
  "commands": ["git status", "git diff --stat"],
  "tools": [],
  "file_patterns": {
    "write": [],
    "read": ["**"]
  },
  "risk_level_threshold": "low",
  "log_auto_approved": true,
  "summary_interval_seconds": 300
}
"""


def plan(workspace: Path) -> str:
    """Say in one line what would be done."""
    file = workspace / POLICY_FILE
    if file.exists() or file.is_symlink():
        return f"policy   {file} is there: it would be shown, and accepted if you say so"
    return f"policy   {file} would be written, shown, and accepted if you say so"


def write(workspace: Path) -> str | None:
    """Write the policy file if there is none. Returns a line that says so, or None. Raises OSError."""
    file = workspace / POLICY_FILE
    if file.exists() or file.is_symlink():
        return None
    init_files.commit([Change(file, None, STARTER, mode=0o644)])
    return f"wrote    {file}"


def accept(workspace: Path, ipc_name: str) -> tuple[bool, str | None]:
    """Ask the server to accept the policy, like `agent-intercom-ctl policy accept`; it refuses an agent's own
    processes. Returns whether that was done or can wait, and a message if there is one."""
    by_hand = f"agent-intercom-ctl policy accept {workspace}"
    try:
        done = ctl_policy.run(places(ipc_name), "accept", {"workspace": str(workspace)}, yes=False, as_json=False) == 0
    except NoServer:
        return True, f"the policy is not accepted yet, as no server runs: {by_hand}"
    except Refusal as refusal:
        if refusal.code == "not_found":
            return True, f"policy   {refusal}"
        return False, f"the policy was not accepted: {refusal}"
    return True, None if done else f"the policy was not accepted; when you want to: {by_hand}"
