"""The origin of a decision, as far as the operating system reported it at that time."""

from __future__ import annotations

import json
from typing import Any

import attrs
from attrs import frozen

#: Longer names are cut, because a path of an executable has no useful limit.
_LONGEST = 1000


@frozen
class Origin:
    """The origin of a decision. Fields other than `channel` are None if they are unknown or do not apply.

    `channel` is the channel's name, as in a verdict. `pid`, `started` (clock ticks since boot) and `boot` (the kernel's
    boot id) identify the process. `terminal` is its controlling terminal. `leader` is the pid of its POSIX session's
    leader, which started at `leader_started`. `executable` is its file. `parent` is the pid of its parent process, and
    `parent_executable` that one's file.
    """

    channel: str
    pid: int | None = None
    started: int | None = None
    boot: str | None = None
    terminal: str | None = None
    leader: int | None = None
    leader_started: int | None = None
    executable: str | None = None
    parent: int | None = None
    parent_executable: str | None = None

    def to_data(self) -> dict[str, Any]:
        """Return the known fields as JSON data."""
        known = ((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in known if value is not None}

    def to_text(self) -> str:
        """Return the known fields as compact JSON in ASCII."""
        return json.dumps(self.to_data(), separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Origin:
        """Read what `to_text` wrote. Fields of a newer version are ignored. Raises ValueError for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("channel"), str):
            raise ValueError("this is no origin of a decision")
        return Origin(**{name: data[name] for name in _NAMES if name in data})

    def describe(self) -> str:
        """Describe it in one phrase: "python3.12 (process 12), in /dev/pts/3, started by bash (process 11)"."""
        return describe(self.to_data())


_NAMES = tuple(each.name for each in attrs.fields(Origin))


def describe(origin: dict[str, Any]) -> str:
    """Describe an origin's data in one phrase. Empty if only the channel is known."""
    if origin.get("pid") is None:
        return ""
    words = [_process(origin["pid"], origin.get("executable"))]
    words.append(f"in {origin['terminal']}" if origin.get("terminal") else "without a terminal")
    if origin.get("parent"):
        words.append(f"started by {_process(origin['parent'], origin.get('parent_executable'))}")
    return ", ".join(words)


def _process(pid: int, executable: str | None) -> str:
    name = (executable or "").rpartition("/")[2][:_LONGEST]
    return f"{name} (process {pid})" if name else f"process {pid}"
