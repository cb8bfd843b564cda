"""Text that agents wrote, made fit for a terminal: nothing in it may move the cursor, colour, hide or reorder."""

from __future__ import annotations

import unicodedata
from typing import Any

_KEPT = frozenset("\n\t")
#: Control, format, surrogate, private and unassigned characters, and the two odd line ends.
_SHOWN_AS_CODE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str) -> str:
    """`text` with every character a terminal might act on, or a reader not see, written as its code.

    Line feeds and tabs stay. Escape becomes `\\x1b`, a right-to-left override `<U+202E>`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def one_line(text: str) -> str:
    """`clean`, with line feeds and tabs as spaces."""
    return clean(text.replace("\n", " ").replace("\t", " "))


def done_line(data: Any) -> str:
    """What is said when a verdict or change was carried out, for the reply's data."""
    if "current_mode" in data:
        return f"mode: {data['previous_mode']} -> {data['current_mode']}"
    if "checkpoint_id" in data:
        return _taken_line(data)
    line = f"{data['status']} {data.get('request_id') or data.get('session_id')}"
    return one_line(f"{line}: {data['note']}" if data.get("note") else line)


def _taken_line(data: Any) -> str:
    name = f"{data['checkpoint_id']} ({data['label']})" if data["label"] else data["checkpoint_id"]
    line = f"checkpoint {name}: {data['files']} files, {data['bytes']} bytes, {data['kept']} can be put back"
    for each in data["left_out"]:
        some = f": {', '.join(each['examples'])}" if each["examples"] else ""
        line += f"; left out: {each['count']} {each['why']}{some}"
    return one_line(line)


def _visible(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _SHOWN_AS_CODE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"<U+{code:04X}>"
