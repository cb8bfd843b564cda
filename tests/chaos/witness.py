"""A witness of the files: counts, from the system's own notices, how often each file got new content."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections import Counter
from pathlib import Path

_CREATED, _MOVED_TO, _MODIFIED, _OVERFLOWED, _DIRECTORY = 0x100, 0x80, 0x2, 0x4000, 0x40000000
_EVENT = struct.Struct("iIII")


class Witness:
    """Watches directories from now on. A file that is made or renamed into place under its name counts once, and so
    does each write to it; what is staged under other names does not count.

    Works where the system has inotify; elsewhere `present` is False and nothing is seen.
    """

    def __init__(self) -> None:
        self.present = sys.platform == "linux"
        self.missed = False
        self.written: Counter[Path] = Counter()
        self._directories: dict[int, Path] = {}
        if self.present:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, directory: Path) -> None:
        """Watch the files right in `directory`, which must be there."""
        if self.present:
            mask = _CREATED | _MOVED_TO | _MODIFIED
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), mask)
            if watch < 0:
                raise OSError(ctypes.get_errno(), "cannot watch", str(directory))
            self._directories[watch] = directory

    def watches(self, directory: Path) -> bool:
        """Whether it watches the files right in this directory."""
        return directory in self._directories.values()

    def look(self) -> None:
        """Take in what has happened since the last look."""
        while self.present:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return
            while data:
                watch, mask, _, length = _EVENT.unpack_from(data)
                name = data[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                data = data[_EVENT.size + length :]
                if mask & _OVERFLOWED:
                    self.missed = True
                elif name and not mask & _DIRECTORY and not name.startswith(b".intercom-"):
                    self.written[self._directories[watch] / os.fsdecode(name)] += 1

    def close(self) -> None:
        """Stop watching."""
        if self.present:
            os.close(self._descriptor)
            self.present = False
