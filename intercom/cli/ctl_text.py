"""Text that agents wrote, made fit for a terminal: nothing in it may move the cursor, colour, hide or reorder."""

from __future__ import annotations

from typing import Any

from intercom.model.visible import visible


def clean(text: str) -> str:
    """`text` with every character a terminal might act on, or a reader not see, written as its code.

    Line feeds and tabs stay. Escape becomes `\\x1b`, a right-to-left override `<U+202E>`.
    """
    # Terminals do not agree on what joiners join.
    return visible(text, joiners=False)


def one_line(text: str) -> str:
    """`clean`, with line feeds and tabs as spaces."""
    return clean(text).replace("\n", " ").replace("\t", " ")


#: How much of an id is shown: enough to be unique in practice, short enough to type.
SHORT = 8


def short(name: str) -> str:
    """The start of an id: enough for ctl to know it by. What is no plain id is shown whole, and so is the word that
    some begin with (`policy-`)."""
    word, dash, rest = name.partition("-")
    kept = len(word + dash) if dash and word.isalpha() and len(word) < SHORT and len(rest) > SHORT else 0
    return one_line(name[: kept + SHORT] if len(name) > 2 * SHORT else name)


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
