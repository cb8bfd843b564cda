"""The patch format of `apply_patch` (Codex, Copilot, Cursor), as far as display needs it: files and their lines.

It must be read as the client does. So only a line feed ends a line. A patch that clients might read differently is not
parsed, and a person sees all of it.
"""

from __future__ import annotations

from typing import Any

_BEGIN, _END, _LAST = "*** Begin Patch", "*** End Patch", "*** End of File"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
#: A patch may be wrapped in a shell heredoc.
_HEREDOC = ("<<EOF", "<<'EOF'", '<<"EOF"')


def touches(patch: str) -> tuple[dict[str, Any], ...]:
    """Return the files that a patch touches; empty if a line does not match the grammar, or there is no file."""
    lines = [line.removesuffix("\r") for line in patch.strip().split("\n")]
    if lines[0] in _HEREDOC and lines[-1] == "EOF":
        lines = lines[1:-1]
    if len(lines) < 2 or (lines[0].strip(), lines[-1].strip()) != (_BEGIN, _END):
        return ()
    found: list[_Touch] = []
    for line in lines[1:-1]:
        if _is_header(line):
            begun = _begun(line)
            if begun is None:
                return ()
            found.append(begun)
        elif not found or not found[-1].takes(line):
            return ()
    return tuple(touch.as_json() for touch in found)


class _Touch:
    """One file of the patch while its lines are read."""

    def __init__(self, mark: str, path: str) -> None:
        self._mark, self._path, self._target = mark, path, ""
        self._lines: list[str] = []

    def takes(self, line: str) -> bool:
        """Add a line. Returns False if it does not belong here."""
        if self._mark == _DELETE:
            return False
        if self._mark == _ADD:
            # Every line of a new file begins with a plus.
            self._lines.append(line[1:])
            return line.startswith("+")
        if line.startswith(_MOVE):
            begins = not self._lines and not self._target
            self._target = line.removeprefix(_MOVE)
            return begins and _is_plain(self._target)
        if line == _LAST:
            return True
        self._lines.append(line)
        if line.startswith(" "):
            return not line.strip().startswith((_MOVE.rstrip(), _BEGIN, _END))
        return line == "" or line.startswith(("+", "-", "@@"))

    def as_json(self) -> dict[str, Any]:
        text = "".join(f"{line}\n" for line in self._lines)
        match self._mark:
            case "*** Delete File: ":
                return {"path": self._path, "delete": True}
            case "*** Add File: ":
                return {"path": self._path, "delete": False, "content": text}
        moved = {"move_to": self._target} if self._target else {}
        return {"path": self._path, "delete": False, **moved, "diff": text}


def _is_header(line: str) -> bool:
    """Whether some client could read this as a header: not all require it at the beginning of the line."""
    return line.strip().startswith((_ADD.rstrip(), _UPDATE.rstrip(), _DELETE.rstrip()))


def _begun(line: str) -> _Touch | None:
    """Return the file that begins with this header; None if that is not certain."""
    for mark in (_ADD, _UPDATE, _DELETE):
        path = line.removeprefix(mark)
        if path != line and _is_plain(path):
            return _Touch(mark, path)
    return None


def _is_plain(path: str) -> bool:
    """Whether every client reads this name alike: clients differ in what white space and line ends are."""
    return path != "" and path == path.strip() and path.isprintable()
