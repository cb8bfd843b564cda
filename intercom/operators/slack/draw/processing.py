"""The message of a card between a button action and its result: without buttons."""

from __future__ import annotations

from typing import Any

from intercom.operators.slack.draw.blocks import Block, context, plain


def processing(content: dict[str, Any], line: str) -> dict[str, Any]:
    """Return `content` (`text`, `blocks` and other keys) with `line` in place of its buttons, or at its end without
    any. The argument is not changed."""
    blocks: list[Block] = [block for block in content.get("blocks") or () if block.get("type") != "actions"]
    return {**content, "blocks": [*blocks, context(plain(line, 300))]}
