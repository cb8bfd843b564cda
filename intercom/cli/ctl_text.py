"""The text that ctl prints without drawing: made safe for a terminal, and one line for what was done.

It uses the standard library alone. What draws (`ctl_draw`) imports rich, which takes longer than a whole command.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from intercom.model.json_types import JsonObject
from intercom.model.visible_text import count as count
from intercom.model.visible_text import visible

if TYPE_CHECKING:
    from typing import TextIO

#: How many characters of an id are shown: unique in practice, and short enough to type.
SHORT = 8


def clean(text: str) -> str:
    """Return `text` with every character that a terminal may act on, or a reader may not see, written as its code.

    Line feeds and tabs stay. Escape becomes `\\x1b`, a right-to-left override `<U+202E>`.
    """
    # Terminals render joiners differently.
    return visible(text, joiners=False)


def one_line(text: str) -> str:
    """Return `clean(text)` with line feeds and tabs as spaces."""
    return clean(text).replace("\n", " ").replace("\t", " ")


def at_words(text: str, indent: str = "", more: str | None = None, stream: TextIO | None = None) -> str:
    """Return a sentence as one line, or on a terminal as lines that end between words. The first one begins with
    `indent`, the others with `more`, by default two more spaces. `stream` is where it is printed: None for stdout."""
    if not (stream or sys.stdout).isatty():
        return indent + one_line(text)
    return textwrap.fill(
        one_line(text),
        shutil.get_terminal_size().columns,
        initial_indent=indent,
        subsequent_indent=f"{indent}  " if more is None else more,
        break_long_words=False,
        break_on_hyphens=False,
    )


def short(name: str) -> str:
    """Return the start of an id, enough for ctl to find it, after any prefix such as `policy-`. Short names stay."""
    word, dash, rest = name.partition("-")
    kept = len(word + dash) if dash and word.isalpha() and len(word) < SHORT and len(rest) > SHORT else 0
    return one_line(name[: kept + SHORT] if len(name) > 2 * SHORT else name)


def agreed(question: str) -> bool:
    """Ask the person on standard input. Returns whether they say yes; the end of the input is a no, and so is Escape on
    a terminal. Another answer than yes and no is a no; on a terminal it is asked about once more before."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    ask = _line_or_escape if is_terminal else input
    try:
        answer = ask(f"{question} [y/N] ").strip().casefold()
        if is_terminal and answer not in ("y", "yes", "n", "no", ""):
            # What was typed behind that answer was not meant for this question.
            discard_typed()
            answer = ask("type y or n [y/N] ").strip().casefold()
        return answer in ("y", "yes")
    except EOFError:
        print()
        return False


def discard_typed() -> None:
    """Discard what was typed and not read yet: it was meant for something that was shown before."""
    import termios

    with contextlib.suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)


def _line_or_escape(question: str) -> str:
    """Read a line from the terminal. Escape ends it at once: then the answer is empty. Raises EOFError."""
    import termios

    terminal = sys.stdin.fileno()
    before, during = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    # The terminal gives a line to its reader at this character, too.
    during[6][termios.VEOL] = b"\x1b"
    print(question, end="", flush=True)
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, during)
        typed = os.read(terminal, 1024)
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
    if not typed:
        raise EOFError
    if typed.endswith(b"\x1b"):
        # What a key such as an arrow sends behind its Escape.
        discard_typed()
        # Over the ^[ that the terminal has echoed.
        print("\b\b  \b\b" if before[3] & termios.ECHO and before[3] & termios.ECHOCTL else "")
        return ""
    return typed.decode("utf-8", "replace")


def done_line(data: JsonObject) -> str:
    """Return what is printed for an answer that is not drawn: a sentence about what was done, as `at_words` breaks it,
    or its fields, one a line."""
    if "current_mode" in data:
        return f"mode: {data['previous_mode']} -> {data['current_mode']}"
    if "status" not in data:
        return "\n".join(one_line(f"{name}: {value}") for name, value in data.items())
    ended = data.get("sessions")
    if isinstance(ended, list):
        named = f": {', '.join(short(str(each)) for each in ended)}" if ended else ""
        return one_line(f"{data['status']} {count(len(ended), 'session')}{named}")
    if "grant_id" in data:
        return at_words(f"{data['status']} {short(str(data['grant_id']))}: {data['covers']}")
    if "push_id" in data:
        return one_line(f"{data['status']} {short(str(data['push_id']))}: {data['label']} of {data['by']}")
    line = f"{data['status']} {data.get('request_id') or data.get('session_id')}"
    return at_words(f"{line}: {data['note']}" if data.get("note") else line)
