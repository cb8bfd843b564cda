"""Asks for a PIN at the controlling terminal only: input from another program is not a person's decision.

The PIN never comes from an argument, the environment or a pipe. Other processes of this user can read the first two,
and write to the third.
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
    """Raised if this process has no controlling terminal."""


def ask_pin(prompt: str) -> str:
    """Read one line from the terminal without echo. Raises NoTerminal, and KeyboardInterrupt if the input ends."""
    with _terminal() as descriptor:
        before = termios.tcgetattr(descriptor)
        quiet = termios.tcgetattr(descriptor)
        quiet[3] = (quiet[3] | termios.ICANON | termios.ISIG) & ~termios.ECHO
        # Flush: input from before the question does not answer it.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, quiet)
        try:
            _write(descriptor, prompt)
            typed = _line(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
            _write(descriptor, "\n")
    return typed


def say(text: str) -> None:
    """Write lines to the terminal where the PIN is asked for. Raises NoTerminal."""
    with _terminal() as descriptor:
        _write(descriptor, text + "\n")


def has_terminal() -> bool:
    """Tell whether a PIN can be asked for."""
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
            # The input ended before a whole line.
            raise KeyboardInterrupt
        read += some
    return read[:-1].decode("utf-8", "surrogateescape")


def _write(descriptor: int, text: str) -> None:
    left = text.encode("utf-8", "backslashreplace")
    while left:
        left = left[os.write(descriptor, left) :]
