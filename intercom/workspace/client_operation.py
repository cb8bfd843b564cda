"""What an operation of a client's own tool would change, and how much harm it could do.

The client's permission hook asks about it. Unlike a proposal, it is not applied by the server. So parts that cannot be
worked out (a replacement that does not fit, a file too large to read) are shown as far as known. Only the person may
refuse them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from attrs import frozen

from intercom.model.errors import IntercomError
from intercom.model.request import (
    NEW_FILE,
    ChangeKind,
    FileChange,
    FileTouch,
    Operation,
    OperationKind,
    Remark,
    RiskLevel,
)
from intercom.workspace.files import FileBytes, digest, located, read, relative
from intercom.workspace.policy import is_protected, mentions_protected
from intercom.workspace.preview import FileVersions, Preview, joined, quote, show

#: The hash of a file that exists but could not be read.
_UNREAD = "unread"


@frozen
class OperationPreview:
    """The changes that an operation would make.

    `changes` are the files inside the workspace; `outside` are other paths, as named. `diff` shows both: made by us if
    the bytes are known, else the agent's text behind bars. `remarks` say which, and what a diff cannot show. `masked`
    are lines of the diff with their secrets removed.
    """

    changes: tuple[FileChange, ...] = ()
    outside: tuple[str, ...] = ()
    diff: str = ""
    remarks: tuple[Remark, ...] = ()
    masked: tuple[tuple[int, str], ...] = ()

    @property
    def inside(self) -> tuple[str, ...]:
        """The canonical paths that change, both ends of a move."""
        return tuple(path for change in self.changes for path in change.paths)


def preview_operation(root: Path, operation: Operation) -> OperationPreview:
    """Work out what `operation` would do to the files of the workspace `root`, and read no others. Changes nothing.
    Never raises, whatever paths an agent names."""
    changes: list[FileChange] = []
    outside: list[str] = []
    shown: list[Preview] = []
    for touch in operation.touches:
        path = within(root, operation.cwd, touch.path)
        target = None if touch.move_to is None else within(root, operation.cwd, touch.move_to)
        if path is None:
            outside.append(touch.path)
        if touch.move_to is not None and target is None:
            outside.append(touch.move_to)
        if path is None:
            change = FileChange(touch.path, ChangeKind.DELETE if touch.delete else ChangeKind.WRITE, _UNREAD, None)
            shown.append(quote(change, _agent_text(touch), "it lies outside of the workspace and was not read"))
            continue
        moved = target if target is not None else path
        shown.append(_inside(touch, moved, path if moved != path else None, _read(root, path)))
        changes += shown[-1].changes
    whole = joined(shown)
    return OperationPreview(tuple(changes), tuple(outside), whole.diff, whole.remarks, whole.masked)


def is_inside(root: Path, cwd: str | None) -> bool:
    """Whether an operation's working directory is inside the workspace. It is if none is named; it is not if that
    cannot be determined."""
    try:
        return cwd is None or located(root, cwd) is not None
    except (IntercomError, ValueError):
        return False


def within(root: Path, cwd: str | None, named: str) -> str | None:
    """Return the canonical path of a file in the workspace; None if it is elsewhere or the name is invalid."""
    try:
        found = located(root, cwd or "", os.path.expanduser(named))
        return None if found is None else relative(root, found)
    except (IntercomError, ValueError):
        return None


def _read(root: Path, path: str) -> FileBytes | str | None:
    try:
        return read(root, path)
    except IntercomError:
        return _UNREAD


def _inside(touch: FileTouch, path: str, old_path: str | None, base: FileBytes | str | None) -> Preview:
    """Preview the change of a workspace file. `base` is "unread" if it could not be read."""
    before = base if isinstance(base, str) else NEW_FILE if base is None else digest(base.data)
    if touch.delete:
        kind = ChangeKind.DELETE
    elif old_path is not None:
        kind = ChangeKind.RENAME
    else:
        kind = ChangeKind.CREATE if before == NEW_FILE else ChangeKind.WRITE
    after, why = _after(touch, base)
    change = FileChange(path, kind, before, None if after is None else digest(after), old_path)
    if why is not None:
        return quote(change, _agent_text(touch), why)
    return show([FileVersions(change, base.data if isinstance(base, FileBytes) else None, after)])


def _after(touch: FileTouch, base: FileBytes | str | None) -> tuple[bytes | None, str | None]:
    """Return the new bytes of a file, and why no diff can be made of it. The bytes are None if the file is deleted
    or they are unknown; the reason is None if a diff can be made."""
    unread = "it could not be read" if isinstance(base, str) else None
    if touch.delete:
        return None, unread
    if touch.diff is not None:
        return None, "the client gives only these lines"
    if touch.content is not None:
        return touch.content.encode("utf-8", "surrogatepass"), unread
    replaced = _replaced(base.data, touch) if isinstance(base, FileBytes) else None
    if replaced is None:
        return None, unread or "it does not contain the text to replace"
    return replaced, None


def _replaced(old: bytes, touch: FileTouch) -> bytes | None:
    """Return the content with every replacement made; None if a text to replace is missing."""
    text = old
    for piece in touch.replacements:
        was, now = (each.encode("utf-8", "surrogatepass") for each in (piece.old, piece.new))
        if not was or was not in text:
            return None
        text = text.replace(was, now) if piece.every else text.replace(was, now, 1)
    return text


def _agent_text(touch: FileTouch) -> str:
    """Return the client's description of the change, line by line."""
    if touch.diff is not None:
        return touch.diff
    if touch.content is not None:
        return "".join(f"+{line}\n" for line in touch.content.removesuffix("\n").split("\n"))
    lines: list[str] = []
    for piece in touch.replacements:
        lines.append("@@ every place @@" if piece.every else "@@ one place @@")
        lines += [f"-{line}" for line in piece.old.split("\n")]
        lines += [f"+{line}" for line in piece.new.split("\n")]
    return "".join(f"{line}\n" for line in lines)


#: Programs that often destroy data, gain privileges, or act outside the workspace. Many others can too.
_DANGEROUS = frozenset(
    {
        "sudo", "doas", "su", "rm", "rmdir", "shred", "dd", "mkfs", "fdisk", "chmod", "chown", "kill", "pkill",
        "killall", "shutdown", "reboot", "systemctl", "service", "crontab", "at", "nc", "ssh", "scp", "eval",
    }
)  # fmt: skip

#: Separators between the commands of a line.
_PARTS = re.compile(r"[;&|\n()`{}]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def risk_of(root: Path, operation: Operation, preview: OperationPreview) -> RiskLevel:
    """Return low or high. High are paths outside of the workspace, protected paths, and a command line with a
    program known to be dangerous."""
    if preview.outside or not is_inside(root, operation.cwd):
        return RiskLevel.HIGH
    if any(is_protected(path) for path in preview.inside):
        return RiskLevel.HIGH
    if operation.least_risk is not None:
        return operation.least_risk
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
