"""Origin: where a decision came from, as far as the operating system told when it was made."""

from __future__ import annotations

import json
from typing import Any

import attrs
from attrs import frozen

#: Longer texts are cut: an executable's path may be as long as its owner likes.
_LONGEST = 1000


@frozen
class Origin:
    """`channel` is the channel's name, as in a verdict. The rest is None where it is not known, or does not apply.

    `pid`, `started` (clock ticks since the system started) and `boot` (the kernel's boot id) name the process for good.
    `terminal` is its controlling terminal, `leader` the pid of its POSIX session's leader and `leader_started` when
    that started. `executable` is the file that runs, `parent` the pid of the process above it, `parent_executable` its
    file.
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
        """The fields that are known, as JSON can hold them."""
        known = ((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in known if value is not None}

    def to_text(self) -> str:
        """The same as compact JSON in ASCII."""
        return json.dumps(self.to_data(), separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> Origin:
        """What `to_text` wrote. Fields of a newer version are ignored; raises ValueError for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("channel"), str):
            raise ValueError("this is no origin of a decision")
        return Origin(**{name: data[name] for name in _NAMES if name in data})

    def describe(self) -> str:
        """One phrase for people: "python3.12 (process 12), in /dev/pts/3, started by bash (process 11)"."""
        return describe(self.to_data())


_NAMES = tuple(each.name for each in attrs.fields(Origin))


def describe(origin: dict[str, Any]) -> str:
    """The same of an origin's data; empty where nothing but the channel is known."""
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
