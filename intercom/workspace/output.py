"""The output of a command: kept up to a limit and converted to plain text."""

from __future__ import annotations

import re

#: Terminal escape sequences (ECMA-48): CSI, strings (OSC, DCS, SOS, PM, APC), and those of two characters.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x1b\x07\x9c]*(?:\x1b\\|\x07|\x9c)?|[ -/]+[0-~]|[0-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Output:
    """The bytes of both streams, in order of arrival. At most `limit` bytes are kept, half from the beginning and
    half from the end, since either may be the important one. `total` counts all bytes."""

    def __init__(self, limit: int) -> None:
        self.total = 0
        self._first = (limit + 1) // 2
        self._last = max(limit - self._first, 1)
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: bytes | bytearray) -> None:
        self.total += len(piece)
        room = self._first - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        # Cut rarely: a cut after every piece would move the whole buffer each time.
        if len(self._tail) > 2 * self._last:
            del self._tail[: -self._last]

    @property
    def is_cut(self) -> bool:
        return self.total > self._first + self._last

    def text(self, *, whole_lines: bool = False) -> str:
        """Return what was kept as plain text. A line says how much was cut out, if anything. With `whole_lines`, an
        unfinished last line is omitted, because masking cannot recognise half a secret."""
        if not self.is_cut:
            return _whole(plain(self._head + self._tail), whole_lines)
        head, tail = bytes(self._head), bytes(self._tail[-self._last :])
        # Cut between lines if possible: masking cannot recognise half a secret, nor decoding half a character.
        head = head[: head.rfind(b"\n") + 1] or head
        tail = tail[tail.find(b"\n") + 1 :] or tail
        left_out = self.total - len(head) - len(tail)
        note = f"… {left_out:,} bytes left out …"
        return _whole(f"{plain(head).rstrip()}\n{note}\n{plain(tail)}", whole_lines)


def plain(data: bytes | bytearray) -> str:
    """Decode bytes as UTF-8 text and remove terminal control sequences. Of an overwritten line (progress bars) the
    last version is kept. Invalid UTF-8 becomes replacement characters."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace").replace("\r\n", "\n"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(_CONTROLS.sub("", line) for line in lines)


def _whole(text: str, whole_lines: bool) -> str:
    return text[: text.rfind("\n") + 1] if whole_lines else text
