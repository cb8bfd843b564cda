"""The patch format of `apply_patch` (Codex, Copilot, Cursor), as far as showing it needs: files, and their lines.

What is read here must be what the client does. So lines end where the client has them end (at a line feed, and nowhere
else), and a patch with anything in it that clients might read another way is not read at all: a person sees it whole.
"""

from __future__ import annotations

from typing import Any

_BEGIN, _END, _LAST = "*** Begin Patch", "*** End Patch", "*** End of File"
_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
#: A patch may come in the shell's quotes.
_HEREDOC = ("<<EOF", "<<'EOF'", '<<"EOF"')


def touches(patch: str) -> tuple[dict[str, Any], ...]:
    """The files a patch touches; empty when it holds a line that its grammar does not know, or names no file."""
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
    """One file of the patch, while its lines are read."""

    def __init__(self, mark: str, path: str) -> None:
        self._mark, self._path, self._target = mark, path, ""
        self._lines: list[str] = []

    def takes(self, line: str) -> bool:
        """Take one more line; False where none like this belongs."""
        if self._mark == _DELETE:
            return False
        if self._mark == _ADD:
            # Every line of a new file stands behind a plus.
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
    """Whether some client could take this for a header: not all ask that it begins the line."""
    return line.strip().startswith((_ADD.rstrip(), _UPDATE.rstrip(), _DELETE.rstrip()))


def _begun(line: str) -> _Touch | None:
    """The file that begins with this header; None where it is not certain which."""
    for mark in (_ADD, _UPDATE, _DELETE):
        path = line.removeprefix(mark)
        if path != line and _is_plain(path):
            return _Touch(mark, path)
    return None


def _is_plain(path: str) -> bool:
    """Whether every client reads this name alike: what is white space, and what ends a line, differs."""
    return path != "" and path == path.strip() and path.isprintable()
