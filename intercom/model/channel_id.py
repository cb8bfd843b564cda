"""The format of chat channel ids. Standard library only: a shim checks ids before it imports anything else."""

from __future__ import annotations

import re

CHANNEL_ID = r"[CGD][A-Z0-9]{2,}"
LOOKS_LIKE = "a channel id like C0123456789 (the channel's details in Slack show it)"


def is_channel_id(text: str) -> bool:
    """Whether this can be the id of a public channel, a private one, or a direct message."""
    return re.fullmatch(CHANNEL_ID, text) is not None
