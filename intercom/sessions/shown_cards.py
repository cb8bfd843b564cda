"""Cards that people were shown: the next answer is probably about one of them."""

from __future__ import annotations

import sys

from attrs import define, field

from intercom.model.card import Card, CardKind

#: How many cards are remembered, the last shown ones.
_REMEMBERED = 2_000


@define
class ShownCards:
    """The kind and the session of each card, by its id. They never change."""

    _shown: dict[str, tuple[CardKind, str]] = field(factory=dict, init=False)

    def remember(self, card: Card) -> None:
        """Remember this card."""
        # Each card holds a string of its own for its session's id.
        self._shown[card.id] = card.kind, sys.intern(card.session_id)
        if len(self._shown) > _REMEMBERED:
            del self._shown[next(iter(self._shown))]

    def find(self, id: str) -> tuple[CardKind, str] | None:
        """Return the kind and the session of the card with this id, if it is remembered."""
        return self._shown.get(id)
