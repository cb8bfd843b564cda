"""The secrets that this process itself holds: they are masked word for word, whatever they look like.

The tokens of our own sockets are hexadecimal, as digests are: no rule tells one from the other.
"""

from __future__ import annotations

import re

from attrs import define, field

#: What is shorter stands in texts by chance.
_SHORTEST = 12


@define
class KnownSecrets:
    """Secrets by value. The process adds its own when it reads or makes them; they are kept for its life."""

    _kinds: dict[str, str] = field(factory=dict, repr=False)
    _pattern: re.Pattern[str] | None = field(default=None, init=False, repr=False)

    def add(self, secret: str, kind: str) -> None:
        """Have `secret` masked from now on; `kind` is what people read in its place."""
        if len(secret) >= _SHORTEST and self._kinds.get(secret) != kind:
            # One assignment each: threads may be masking.
            self._kinds = {**self._kinds, secret: kind}
            longest_first = sorted(self._kinds, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def mask(self, text: str, kinds: list[str]) -> str:
        """`text` without these secrets; the kind of each that stood in it is added to `kinds`."""
        if self._pattern is None:
            return text
        known = self._kinds

        def replaced(match: re.Match[str]) -> str:
            kind = known[match.group()]
            kinds.append(kind)
            return f"[masked: {kind}]"

        return self._pattern.sub(replaced, text)


#: Those of this process.
KNOWN = KnownSecrets()
