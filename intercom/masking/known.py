"""Secrets that this process itself uses. They are masked by value, whatever they look like.

The tokens of our own sockets are hexadecimal, as digests are, so no rule can distinguish them.
"""

from __future__ import annotations

import re

from attrs import define, field

#: Shorter values occur in texts by chance.
_SHORTEST = 12


@define
class KnownSecrets:
    """Secrets by value. The process adds each one that it reads or creates, and keeps it until it ends."""

    _kinds: dict[str, str] = field(factory=dict, repr=False)
    _pattern: re.Pattern[str] | None = field(default=None, init=False, repr=False)

    def add(self, secret: str, kind: str) -> None:
        """Mask `secret` from now on. `kind` replaces it in texts for people."""
        if len(secret) >= _SHORTEST and self._kinds.get(secret) != kind:
            # Each attribute is set in one assignment, because other threads may be masking.
            self._kinds = {**self._kinds, secret: kind}
            longest_first = sorted(self._kinds, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def mask(self, text: str, kinds: list[str]) -> str:
        """Return `text` without these secrets. The kind of each secret found is added to `kinds`."""
        if self._pattern is None:
            return text
        known = self._kinds

        def replaced(match: re.Match[str]) -> str:
            kind = known[match.group()]
            kinds.append(kind)
            return f"[masked: {kind}]"

        return self._pattern.sub(replaced, text)


#: The secrets of this process.
KNOWN = KnownSecrets()
