"""The patch format of `apply_patch` (Codex, Copilot, Cursor), as far as showing it needs: files, and their lines."""

from __future__ import annotations

from typing import Any

_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "


def touches(patch: str) -> tuple[dict[str, Any], ...]:
    """The files a patch touches; empty when it names none that can be read."""
    found: list[dict[str, Any]] = []
    lines: list[str] = []
    for line in patch.splitlines():
        begins = next((mark for mark in (_ADD, _UPDATE, _DELETE) if line.startswith(mark)), None)
        if begins is not None:
            _close(found, lines)
            lines = []
            path = line[len(begins) :].strip()
            found.append({"path": path, "delete": begins == _DELETE, "new": begins == _ADD})
        elif line.startswith(_MOVE) and found:
            found[-1]["move_to"] = line[len(_MOVE) :].strip()
        elif found and not line.startswith("*** "):
            lines.append(line)
    _close(found, lines)
    return tuple(each for each in found if each["path"])


def _close(found: list[dict[str, Any]], lines: list[str]) -> None:
    """The last file ends: what stands between its mark and the next is its."""
    if not found:
        return
    touch = found[-1]
    if touch.pop("new"):
        # Every line of a new file stands behind a plus.
        touch["content"] = "".join(f"{line.removeprefix('+')}\n" for line in lines)
    elif not touch["delete"]:
        touch["diff"] = "".join(f"{line}\n" for line in lines)
