"""Asking for a PIN at the controlling terminal, and nowhere else: what another program can feed is no person's word.

Never from an argument, the environment or a pipe: others of this user read the first two, and fill the third.
"""

from __future__ import annotations

import contextlib
import os
import termios
from collections.abc import Iterator

from intercom.model.errors import Unauthorized

TERMINAL = "/dev/tty"
_LONGEST = 4096


class NoTerminal(Unauthorized):
    """This process has no controlling terminal."""


def ask_pin(prompt: str) -> str:
    """One line typed at the terminal, not echoed. Raises NoTerminal, and KeyboardInterrupt where typing was ended."""
    with _terminal() as descriptor:
        before = termios.tcgetattr(descriptor)
        quiet = termios.tcgetattr(descriptor)
        quiet[3] = (quiet[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
        # Flushed: what was typed, or put there, before the question is no answer to it.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, quiet)
        try:
            _write(descriptor, prompt)
            typed = _line(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
            _write(descriptor, "\n")
    return typed


def say(text: str) -> None:
    """Write lines to the terminal, where the PIN is asked for. Raises NoTerminal."""
    with _terminal() as descriptor:
        _write(descriptor, text + "\n")


def has_terminal() -> bool:
    """Whether a PIN can be asked for."""
    try:
        with _terminal():
            return True
    except NoTerminal:
        return False


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    try:
        descriptor = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        raise NoTerminal(
            "the PIN is read from a terminal, and there is none here: run this in a terminal of your own"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _line(descriptor: int) -> str:
    read = bytearray()
    while not read.endswith(b"\n"):
        some = os.read(descriptor, _LONGEST)
        if not some:
            # End of input before a line.
            raise KeyboardInterrupt
        read += some
    return read[:-1].decode("utf-8", "surrogateescape")


def _write(descriptor: int, text: str) -> None:
    left = text.encode("utf-8", "backslashreplace")
    while left:
        left = left[os.write(descriptor, left) :]
