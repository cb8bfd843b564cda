"""Builders of Block Kit blocks. Each result is valid for any text: cut to its limit and never empty.

Text of agents and people goes into `plain`, which Slack shows literally. `mrkdwn` is for Intercom's own text and for
spans of `text.code`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from intercom.operators.slack.draw import limits
from intercom.operators.slack.draw.text import cut, fitted, size

Block = dict[str, Any]

PRIMARY, DANGER = "primary", "danger"


def plain(text: str, limit: int = limits.SECTION) -> Block:
    """Return a text object for foreign text."""
    return {"type": "plain_text", "text": fitted(text, limit), "emoji": False}


def mrkdwn(text: str) -> Block:
    """Return a text object for Intercom's own text; the caller keeps it within its limit."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def header(text: str) -> Block:
    return {"type": "header", "text": plain(" ".join(text[: 4 * limits.HEADER].split()), limits.HEADER)}


def section(text: Block) -> Block:
    return {"type": "section", "text": text}


def fields(texts: Sequence[Block]) -> Block:
    """Return a section in two columns."""
    return {"type": "section", "fields": list(texts[: limits.FIELDS])}


def context(*texts: Block) -> Block:
    """Return a line in small type."""
    return {"type": "context", "elements": list(texts[: limits.CONTEXT_ELEMENTS])}


def divider() -> Block:
    return {"type": "divider"}


def button(label: str, action_id: str, value: str, style: str | None = None) -> Block:
    element: Block = {
        "type": "button",
        "text": {"type": "plain_text", "text": cut(label, limits.BUTTON_TEXT), "emoji": True},
        "action_id": action_id,
        "value": value[: limits.BUTTON_VALUE],
    }
    return element if style is None else {**element, "style": style}


def confirmed(element: Block, title: str, text: str, word: str) -> Block:
    """Add a confirmation dialog to the button. The texts are Intercom's own."""

    def said(words: str) -> Block:
        return {"type": "plain_text", "text": words}

    return {
        **element,
        "confirm": {
            "title": said(title),
            "text": said(text),
            "confirm": said(word),
            "deny": said("Cancel"),
            "style": DANGER,
        },
    }


def actions(buttons: Iterable[Block]) -> Block:
    return {"type": "actions", "elements": list(buttons)[: limits.ACTIONS]}


def joined(lines: Iterable[str], limit: int) -> tuple[str, int]:
    """Join as many lines as fit in `limit` units; return the text and the number of lines omitted."""
    kept: list[str] = []
    room = limit
    rest = 0
    for line in lines:
        room -= size(line) + 1
        if rest or room < -1:
            rest += 1
        else:
            kept.append(line)
    return "\n".join(kept), rest
