"""Lines: messages that need no answer, such as broadcasts, warnings and the shutdown notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from intercom.model.card import Notice
from intercom.operators.slack.draw.blocks import Block, context, plain, section
from intercom.operators.slack.draw.drawn import Drawn, drawn_to_fit
from intercom.operators.slack.draw.masks import Mask, Masking
from intercom.operators.slack.draw.text import amount, fitted, size

LEVELS: Final = {"info": "ℹ️", "success": "✅", "warning": "⚠️", "error": "❌"}

#: Characters of one line, characters of a message with several, and its blocks (the rest is left for callers).
_LINE = 2_800
_ALL = 6_000
_BLOCKS = 40


def notices(notices: Sequence[Notice], masker: Mask) -> Drawn:
    """Draw notices as one message, each with the icon of its level, in order. It shows at most 40 notices and 6,000
    characters, and says how many more there are."""
    return drawn_to_fit(lambda scale: _notices(notices, masker, scale))


def shutdown(pending: int) -> Drawn:
    """Return the shutdown notice. It says that pending requests stay open."""
    words = "🌙 Intercom stops."
    if pending:
        stay = "stays" if pending == 1 else "stay"
        words += f" {amount(pending, 'request')} {stay} open and can be answered once it is back."
    return Drawn(fitted(words, 300), (context(plain(words)),))


def _notices(given: Sequence[Notice], masker: Mask, scale: float) -> Drawn:
    masking = Masking(masker)
    blocks: list[Block] = []
    first = ""
    room = int(_ALL * scale)
    for notice in given[:_BLOCKS]:
        if room < 100 and blocks:
            break
        words = f"{LEVELS.get(notice.level, LEVELS['info'])} {masking(notice.text, _LINE)}"
        block = section(plain(words, min(_LINE, max(room, 100))))
        room -= size(block["text"]["text"])
        first = first or words
        blocks.append(block)
    rest = len(given) - len(blocks)
    text = fitted(first, 300, flat=True)
    if len(given) > 1:
        text = f"{text} (and {len(given) - 1} more)"
    if rest > 0:
        blocks.append(context(plain(f"and {amount(rest, 'more line')}")))
    blocks += masking.line()
    return Drawn(text, tuple(blocks) or (section(plain("")),))
