"""What a whole-file proposal changes, as a diff for people: the new content alone does not show what goes."""

from __future__ import annotations

import difflib
from pathlib import Path

from intercom.workspace.hashing import digest
from intercom.workspace.patching import Plan
from intercom.workspace.proposal import Proposal
from intercom.workspace.reading import read

#: Beyond this many lines on either side a comparison may take seconds; then the new content itself has to do.
LINES_AT_MOST = 5000


def preview(root: Path, proposal: Proposal, plan: Plan) -> str | None:
    """A unified diff from the file as it is to the content proposed; None where the proposal is a patch itself, the
    file is new, or a comparison would say nothing (no text, too long, changed since the plan was made)."""
    if proposal.is_patch:
        return None
    file = plan.files[0]
    base = read(root, file.change.path)
    if base is None or file.after is None or digest(base.data) != file.before:
        return None
    try:
        before, after = _lines(base.data), _lines(file.after)
    except UnicodeDecodeError:
        return None
    if max(len(before), len(after)) > LINES_AT_MOST:
        return None
    lines: list[str] = []
    for line in difflib.unified_diff(before, after, f"a/{file.change.path}", f"b/{file.change.path}"):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines) or None


def _lines(data: bytes) -> list[str]:
    """Lines with their ends; only a line feed ends one, as in patches."""
    *whole, last = data.decode().split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])
