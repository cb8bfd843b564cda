"""Estimation of the risk of a client's operation from its form. The agent has no influence on it."""

from __future__ import annotations

import os
import re
from pathlib import Path

from intercom.model.approval import RiskLevel
from intercom.model.operation import Operation, OperationKind
from intercom.workspace.foreseen import Foreseen, place
from intercom.workspace.protected import is_protected, mentions_protected

#: Programs that often destroy data, gain privileges, or act outside the workspace. Many others can too.
_DANGEROUS = frozenset(
    [
        "sudo",
        "doas",
        "su",
        "rm",
        "rmdir",
        "shred",
        "dd",
        "mkfs",
        "fdisk",
        "chmod",
        "chown",
        "kill",
        "pkill",
        "killall",
        "shutdown",
        "reboot",
        "systemctl",
        "service",
        "crontab",
        "at",
        "nc",
        "ssh",
        "scp",
        "eval",
    ]
)


#: Separators between the commands of a line.
_PARTS = re.compile(r"[;&|\n()`{}]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def of(root: Path, operation: Operation, foreseen: Foreseen) -> RiskLevel:
    """Return low or high. High are paths outside of the workspace, protected paths, and a command line with a
    program known to be dangerous."""
    if foreseen.outside or not place(root, operation.cwd):
        return RiskLevel.HIGH
    if any(is_protected(path) for path in foreseen.inside):
        return RiskLevel.HIGH
    is_command = operation.kind is OperationKind.COMMAND
    return RiskLevel.HIGH if is_command and _is_dangerous(operation.text or "") else RiskLevel.LOW


def _is_dangerous(line: str) -> bool:
    if any(mentions_protected(word) for word in line.split()):
        return True
    for part in _PARTS.split(line):
        words = [word for word in part.split() if not _ASSIGNMENT.match(word)]
        if words and os.path.basename(words[0]) in _DANGEROUS:
            return True
    return False
