"""A file's part of a patch, as a value: which file, what becomes of it, and its hunks."""

from __future__ import annotations

from attrs import frozen

from intercom.model.approval import ChangeKind


@frozen
class HunkLine:
    """One line of a hunk. `mark` is " ", "-" or "+"; `text` keeps its line end, and has none where the patch says
    that there is none."""

    mark: str
    text: str


@frozen
class Hunk:
    """`header` is the line as the person read it; `start` is the stated line of the old file, counted from 1 (from 0
    where the hunk only adds: after that line)."""

    header: str
    start: int
    lines: tuple[HunkLine, ...]

    @property
    def source(self) -> tuple[HunkLine, ...]:
        return tuple(line for line in self.lines if line.mark != "+")


@frozen
class FilePatch:
    """`kind` is what the headers say; a write to a file that is absent becomes a creation when it is planned.

    `executable` is what git's mode lines ask for, None where they say nothing.
    """

    path: str
    kind: ChangeKind
    hunks: tuple[Hunk, ...] = ()
    old_path: str | None = None
    executable: bool | None = None
