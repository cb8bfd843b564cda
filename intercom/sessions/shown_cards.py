"""Whose the cards are that people were shown: whoever looks at one answers it next."""

from __future__ import annotations

import sys

from attrs import define, field

from intercom.model.card import Card, CardKind

#: How many cards are remembered, the last shown ones.
_REMEMBERED = 2_000


@define
class ShownCards:
    """By their ids the kind and the session of each, which never change."""

    _shown: dict[str, tuple[CardKind, str]] = field(factory=dict, init=False)

    def remember(self, card: Card) -> None:
        """This card is shown."""
        # Each card comes with a text of its own for its session.
        self._shown[card.id] = card.kind, sys.intern(card.session_id)
        if len(self._shown) > _REMEMBERED:
            del self._shown[next(iter(self._shown))]

    def find(self, id: str) -> tuple[CardKind, str] | None:
        """The kind and the session of the card with this id, if it is remembered."""
        return self._shown.get(id)
