"""The parsed form of one file's part of a patch: the file, the kind of change and the hunks."""

from __future__ import annotations

from attrs import frozen

from intercom.model.approval import ChangeKind


@frozen
class HunkLine:
    """One line of a hunk. `mark` is " ", "-" or "+". `text` includes the line end, if the file has one there."""

    mark: str
    text: str


@frozen
class Hunk:
    """One hunk. `header` is the line as a person reads it. `start` is the stated line of the old file, counted from
    1; if the hunk only adds lines, they follow line `start`, which may be 0."""

    header: str
    start: int
    lines: tuple[HunkLine, ...]

    @property
    def source(self) -> tuple[HunkLine, ...]:
        return tuple(line for line in self.lines if line.mark != "+")


@frozen
class FilePatch:
    """The changes of one file. `kind` is what the headers say; planning turns a write to a missing file into a
    creation. `executable` is what git's mode lines request, None if they are absent."""

    path: str
    kind: ChangeKind
    hunks: tuple[Hunk, ...] = ()
    old_path: str | None = None
    executable: bool | None = None
