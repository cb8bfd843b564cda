"""Masking of secrets while drawing, with a count of each kind that was masked."""

from __future__ import annotations

import re
from collections import Counter
from typing import Protocol

from intercom.operators.slack.draw import blocks
from intercom.operators.slack.draw.blocks import Block
from intercom.operators.slack.draw.text import CUT, amount, code, escaped, short

#: Characters examined beyond the cut, so that a secret that crosses it is seen whole. No secret is longer.
_BEYOND = 64 * 1024


_MASK = re.compile(r"\[masked: ([A-Za-z0-9 -]{1,40})\]")


class Mask(Protocol):
    """Hides secrets; implemented by `intercom.masking.Masker`."""

    def mask(self, text: str, /) -> Masked: ...


class Masked(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def kinds(self) -> tuple[str, ...]: ...


class Masking:
    """The masking of one message."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self.kinds: Counter[str] = Counter()

    def __call__(self, text: str, limit: int | None = None) -> str:
        """Return `text` without its secrets. With a `limit`, only about as much as will be shown is examined and
        returned."""
        whole = limit is None or len(text) <= limit + _BEYOND
        found = self._mask.mask(text if limit is None else text[: limit + _BEYOND])
        self.kinds.update(found.kinds)
        return found.text if whole else found.text + CUT

    def count(self, text: str) -> None:
        """Count the secrets that are already masked in `text`."""
        self.kinds.update(_MASK.findall(text))

    @property
    def said(self) -> str:
        """How many secrets of which kinds were masked, as text; empty if none was."""
        if not self.kinds:
            return ""
        kinds = ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in sorted(self.kinds.items()))
        return f"🔒 {amount(self.kinds.total(), 'secret')} masked ({kinds})"

    def line(self, card_id: str | None = None, *, cut: bool = False) -> list[Block]:
        """Return the line that says what was masked, that text was cut (`cut`), and which command shows the original.
        No block if nothing was masked or cut."""
        whole = f"{code(f'agent-intercom-ctl show {short(card_id)}')} shows the original" if card_id else ""
        parts = [escaped(self.said[:600]), "✂️ shortened" if cut else "", whole if self.kinds or cut else ""]
        text = "; ".join(part for part in parts if part)
        return [blocks.context(blocks.mrkdwn(text))] if text else []
