"""The results of drawing: a message or a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from intercom.operators.slack.draw import limits
from intercom.operators.slack.draw.blocks import Block
from intercom.operators.slack.draw.text import size


@frozen
class Drawn:
    """A message. `text` is for notifications and for clients without blocks; it is escaped, as the blocks are."""

    text: str
    blocks: tuple[Block, ...]

    def content(self) -> dict[str, Any]:
        """Return the message as an outbox row stores it."""
        return {"text": self.text, "blocks": list(self.blocks)}


@frozen
class FileDrawn:
    """A file to upload. `text` is masked and cut; `snippet_type` is Slack's name of its language."""

    filename: str
    title: str
    snippet_type: str
    text: str

    def content(self) -> dict[str, Any]:
        """Return the file as an outbox row stores it."""
        return {
            "filename": self.filename,
            "title": self.title,
            "snippet_type": self.snippet_type,
            "text": self.text,
        }


def weight(blocks: Sequence[Block]) -> int:
    """Return how much of Slack's limit for a whole message the blocks take."""
    return size(json.dumps(blocks, ensure_ascii=False))


def drawn_to_fit(draw: Callable[[float], Drawn]) -> Drawn:
    """Return the message at the largest scale that fits. `draw` gets the scale: the share of their usual room that
    texts may take."""
    for scale in (1.0, 0.5, 0.2):
        made = draw(scale)
        if weight(made.blocks) <= limits.ALL_BLOCKS:
            break
    return made
