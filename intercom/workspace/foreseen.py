"""What an operation that a client does itself would change: shown to a person, and judged by the policy.

Unlike a proposal it is not applied from here. So what can not be worked out (a piece that does not fit, a file too
large to be read) is shown as far as it is known, and refused by nobody but the person.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from attrs import frozen

from intercom.model.approval import NEW_FILE, ChangeKind, FileChange
from intercom.model.errors import IntercomError
from intercom.model.operation import FileTouch, Operation
from intercom.workspace import paths
from intercom.workspace.hashing import digest
from intercom.workspace.reading import FileBytes, read

#: The most that is compared of a file, in lines and bytes: beyond it a comparison may take seconds.
_LINES, _BYTES = 5000, 2 * 2**20
#: The hash of a file that is there and could not be read.
_UNREAD = "unread"


@frozen
class Foreseen:
    """`changes` are the files inside the workspace, `outside` what lies elsewhere (as it was named), and `diff` shows
    both."""

    changes: tuple[FileChange, ...] = ()
    outside: tuple[str, ...] = ()
    diff: str = ""

    @property
    def inside(self) -> tuple[str, ...]:
        """The canonical paths that change, both ends of a move."""
        return tuple(path for change in self.changes for path in (change.old_path, change.path) if path is not None)


def foresee(root: Path, operation: Operation) -> Foreseen:
    """Work out what `operation` would do to the files of the workspace `root`. Reads those, and no others; changes
    nothing, and never raises for what an agent can name."""
    changes: list[FileChange] = []
    outside: list[str] = []
    diffs: list[str] = []
    for touch in operation.touches:
        path = within(root, operation.cwd, touch.path)
        target = None if touch.move_to is None else within(root, operation.cwd, touch.move_to)
        base = None if path is None else _read(root, path)
        shown = path or touch.path
        before, after, diff = _change(shown, base, touch)
        diffs.append(diff)
        if path is None:
            outside.append(touch.path)
        if touch.move_to is not None and target is None:
            outside.append(touch.move_to)
        if path is not None:
            moved = target if target is not None else path
            changes.append(_file(moved, path if moved != path else None, before, after, touch, diff))
    return Foreseen(tuple(changes), tuple(outside), "".join(diffs))


def place(root: Path, cwd: str | None) -> bool:
    """Whether the directory an operation happens in lies in the workspace; it does where none is named, and not where
    that can not be known."""
    if cwd is None:
        return True
    try:
        top, real = os.path.realpath(root), os.path.realpath(os.path.join(root, cwd))
        return os.path.commonpath([top, real]) == top
    except (OSError, ValueError):
        return False


def within(root: Path, cwd: str | None, named: str) -> str | None:
    """The canonical path of a file in the workspace; None for one that lies elsewhere, or has no good name."""
    try:
        top = os.path.realpath(root)
        real = os.path.realpath(os.path.join(root, cwd or "", os.path.expanduser(named)))
        if os.path.commonpath([top, real]) != top:
            return None
        return paths.relative(root, os.path.relpath(real, top))
    except (IntercomError, OSError, ValueError):
        return None


def _read(root: Path, path: str) -> FileBytes | str | None:
    try:
        return read(root, path)
    except IntercomError:
        return _UNREAD


def _change(name: str, base: FileBytes | str | None, touch: FileTouch) -> tuple[str, str | None, str]:
    """The file's hash before and after (None where it is not known, or nothing is left), and the diff."""
    before = base if isinstance(base, str) else NEW_FILE if base is None else digest(base.data)
    old = base.data if isinstance(base, FileBytes) else b""
    if touch.delete:
        return before, None, _diff(name, old, b"", gone=True)
    if touch.diff is not None:
        return before, None, f"--- a/{name}\n+++ b/{name}\n@@ lines as the client gives them @@\n{touch.diff}"
    if touch.content is not None:
        after = touch.content.encode("utf-8", "surrogatepass")
        return before, digest(after), _diff(name, old, after, new_file=base is None)
    replaced = _replaced(old, touch) if isinstance(base, FileBytes) else None
    if replaced is None:
        return before, None, _pieces(name, touch)
    return before, digest(replaced), _diff(name, old, replaced)


def _replaced(old: bytes, touch: FileTouch) -> bytes | None:
    """The content with every piece replaced; None where one is not there to be replaced."""
    text = old
    for piece in touch.replacements:
        was, now = (each.encode("utf-8", "surrogatepass") for each in (piece.old, piece.new))
        if not was or was not in text:
            return None
        text = text.replace(was, now) if piece.every else text.replace(was, now, 1)
    return text


def _pieces(name: str, touch: FileTouch) -> str:
    lines = [f"--- a/{name}", f"+++ b/{name}"]
    for piece in touch.replacements:
        lines.append("@@ every place @@" if piece.every else "@@ one place @@")
        lines += [f"-{line}" for line in piece.old.splitlines()]
        lines += [f"+{line}" for line in piece.new.splitlines()]
    return "\n".join(lines) + "\n"


def _diff(name: str, old: bytes, new: bytes, *, new_file: bool = False, gone: bool = False) -> str:
    head = f"--- {'/dev/null' if new_file else f'a/{name}'}\n+++ {'/dev/null' if gone else f'b/{name}'}\n"
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return f"{head}@@ {len(old)} bytes become {len(new)}; they are no text, or too many to compare @@\n"
    lines: list[str] = []
    for line in list(difflib.unified_diff(before, after))[2:]:
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return head + "".join(lines)


def _lines(data: bytes) -> list[str] | None:
    if len(data) > _BYTES:
        return None
    try:
        *whole, last = data.decode().split("\n")
    except UnicodeDecodeError:
        return None
    lines = [f"{line}\n" for line in whole] + ([last] if last else [])
    return lines if len(lines) <= _LINES else None


def _file(path: str, old_path: str | None, before: str, after: str | None, touch: FileTouch, diff: str) -> FileChange:
    if touch.delete:
        kind = ChangeKind.DELETE
    elif old_path is not None:
        kind = ChangeKind.RENAME
    else:
        kind = ChangeKind.CREATE if before == NEW_FILE else ChangeKind.WRITE
    body = diff.splitlines()[2:]
    added, removed = (sum(line.startswith(mark) for line in body) for mark in "+-")
    return FileChange(path, kind, before, after, old_path, None, added, removed)
