"""What drawing makes: a message, or a file."""

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
    """A message. `text` is what a notification says, and all that is shown where blocks are not; escaped, as the blocks
    are."""

    text: str
    blocks: tuple[Block, ...]

    def content(self) -> dict[str, Any]:
        """The message as an outbox row holds it."""
        return {"text": self.text, "blocks": list(self.blocks)}


@frozen
class FileDrawn:
    """A file to upload. `text` is masked and bounded; `snippet_type` is Slack's word for how to colour it."""

    filename: str
    title: str
    snippet_type: str
    text: str

    def content(self) -> dict[str, Any]:
        """The file as an outbox row holds it."""
        return {
            "filename": self.filename,
            "title": self.title,
            "snippet_type": self.snippet_type,
            "text": self.text,
        }


def weight(blocks: Sequence[Block]) -> int:
    """How much of Slack's limit for a whole message the blocks take."""
    return size(json.dumps(blocks, ensure_ascii=False))


def drawn_to_fit(draw: Callable[[float], Drawn]) -> Drawn:
    """The message at the largest scale at which it fits. `draw` is given what share of their usual room texts may take;
    it is rare that all of them need theirs."""
    for scale in (1.0, 0.5, 0.2):
        made = draw(scale)
        if weight(made.blocks) <= limits.ALL_BLOCKS:
            break
    return made
