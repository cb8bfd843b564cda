"""Role tokens: what an agent shows to have a role in the gateway that its name alone would not give it.

Over HTTP it is the header `Intercom-Role-Token`, over stdio the variable INTERCOM_ROLE_TOKEN in the environment of the
shim. The server compares its SHA-256 only, and masks the token wherever it might be shown.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from intercom.masking import KNOWN

HEADER: Final = b"intercom-role-token"
#: The fault of a token that is none. It does not repeat it.
FAULT: Final = (
    "the role token is not usable: it has 16 to 200 letters, digits and other visible ASCII characters without spaces;"
    " make one with `openssl rand -hex 32`"
)
#: The most tokens that are masked: each one makes masking slower, and a client may show any number.
MOST_MASKED: Final = 100

_TOKEN: Final = re.compile(r"[!-~]{16,200}")
_masked: set[str] = set()


def is_usable(token: str) -> bool:
    """Whether this can be a role token."""
    return _TOKEN.fullmatch(token) is not None


@lru_cache(maxsize=1024)
def hashed(token: str) -> str:
    """Return the SHA-256 of a role token in hexadecimal digits, as `roles.json` has it. The token is masked from now
    on. Raises ValueError for what is none."""
    if not is_usable(token):
        raise ValueError(FAULT)
    digest = hashlib.sha256(token.encode()).hexdigest()
    if len(_masked) < MOST_MASKED:
        # Its hash is kept here: the cache is the only place beside the masks that has the token itself.
        _masked.add(digest)
        KNOWN.add(token, "Intercom role token")
    return digest
