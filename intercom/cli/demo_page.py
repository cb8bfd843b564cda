"""The demo's output: numbered steps, short lines, and cards as ctl draws them."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from intercom.cli import ctl_draw
from intercom.cli.ctl_text import clean

_WIDTH = 80
_INDENT = 3


class NobodyThere(Exception):
    """Raised if standard input has ended and is not a terminal, so that no person can answer."""


class Page:
    """A page on standard output, at most 80 columns wide."""

    def __init__(self) -> None:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        self._console = Console(markup=False, emoji=False, highlight=False)
        self._console.width = min(self._console.width, _WIDTH)
        self._steps = 0

    def head(self, text: str) -> None:
        self._console.print(Text(text, "bold"))

    def step(self, title: str) -> None:
        """Begin the next numbered step."""
        self._steps += 1
        self.gap()
        self._console.print(Text(f"{self._steps}  ", "cyan").append(clean(title), "bold"))

    def say(self, text: str, style: str = "") -> None:
        self._put(Text(clean(text), style))

    def fact(self, name: str, text: str) -> None:
        """Print a name and its value on one unwrapped line, so that it can be copied."""
        line = Text(" " * _INDENT).append(f"{name:<10}", "cyan").append(clean(text))
        self._console.print(line, soft_wrap=True)

    def command(self, command: str, what: str) -> None:
        """Print a command to type, and what it does."""
        self._console.print(Text(" " * _INDENT).append(clean(what), "dim"), soft_wrap=True)
        self._console.print(Text(" " * _INDENT * 2).append(clean(command), "bold"), soft_wrap=True)

    def card(self, entry: Any, *, whole: bool = False) -> None:
        """Print a request's card as `agent-intercom-ctl pending` does, or as `show` does if `whole`."""
        self.gap()
        for line in ctl_draw.card_lines(entry, ctl_draw.now(), None if whole else ctl_draw.PENDING_LINES):
            self._put(line)
        self.gap()

    def gap(self) -> None:
        self._console.print()

    def ask(self, question: str) -> str:
        """Read a line. Raises KeyboardInterrupt if the person ends the input, NobodyThere without a terminal."""
        self._console.print(Text(" " * _INDENT).append(question, "bold yellow"), end=" ", soft_wrap=True)
        sys.stdout.flush()
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            self.gap()
            if sys.stdin is not None and sys.stdin.isatty():
                raise KeyboardInterrupt
            raise NobodyThere
        if not sys.stdin.isatty():
            # A terminal echoes what is typed; a pipe does not.
            self._console.print(clean(line.strip()))
        return line.strip()

    def _put(self, text: Text) -> None:
        # Wrapped here, because rich would pad each line with blanks, which are then copied too.
        for line in text.wrap(self._console, self._console.width - _INDENT, no_wrap=False):
            line.rstrip()
            self._console.print(Text(" " * _INDENT).append_text(line), soft_wrap=True)
