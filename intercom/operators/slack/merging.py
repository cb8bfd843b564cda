"""Merging of several lines into one message. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from intercom.model.outbox import Content
from intercom.operators.slack.draw import limits
from intercom.operators.slack.schedule import CHARS


def merged(contents: Sequence[Content]) -> Content:
    """Return one content that shows all of `contents` in order; a single content is returned unchanged. Adjacent plain
    sections become one. What exceeds Slack's limit of blocks appears in the text only."""
    if len(contents) == 1:
        return contents[0]
    blocks: list[dict[str, Any]] = []
    for content in contents:
        for block in content.get("blocks") or [_section(str(content.get("text", "")))]:
            if blocks and _plain(block) and _plain(blocks[-1]) and _length(blocks[-1]) + _length(block) < CHARS:
                blocks[-1] = _section(f"{blocks[-1]['text']['text']}\n{block['text']['text']}")
            else:
                blocks.append(block)
    text = "\n".join(str(content.get("text", "")) for content in contents)
    if len(text) > limits.TEXT:
        text = text[: limits.TEXT].rpartition("\n")[0] or text[: limits.TEXT]
    return {"text": text, "blocks": blocks[: limits.BLOCKS]}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _plain(block: dict[str, Any]) -> bool:
    """Return whether a block is a section with text only, which can be joined with the next."""
    text = block.get("text")
    return isinstance(text, dict) and block == _section(text.get("text", ""))


def _length(block: dict[str, Any]) -> int:
    return len(block["text"]["text"])
