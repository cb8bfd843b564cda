"""The moment between a tap and its outcome: the same message, without its buttons."""

from __future__ import annotations

from typing import Any

from intercom.operators.slack.draw.blocks import Block, context, plain


def processing(content: dict[str, Any], line: str) -> dict[str, Any]:
    """`content` (a row's: `text`, `blocks` and whatever else) with `line` where its buttons were, or at its end if it
    had none. The given content is left as it is."""
    blocks: list[Block] = [block for block in content.get("blocks") or () if block.get("type") != "actions"]
    return {**content, "blocks": [*blocks, context(plain(line, 300))]}
