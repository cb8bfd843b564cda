"""What Slack allows, as numbers, from its reference unless a comment says otherwise. `blocks` has Block Kit's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import trio

# A message
TEXT_OF_POST = 40_000  # longer is cut, and the answer warns of it
TEXT_OF_UPDATE = 4_000  # longer is refused (`msg_too_long`): only posting cuts
# Slack refuses a message whose blocks hold too much together (`msg_blocks_too_long`) and does not publish the number.
# Measured by users of its SDKs: 13,297 characters in one block pass and one more does not; 9,597 in 50 blocks pass;
# 11,341 in 45 blocks do not. So every block weighs something of its own: 60 fits all three.
BLOCKS_TOGETHER = 13_357
WEIGHT_OF_BLOCK = 60

VIEW_BYTES = 250_000

# Metadata of a message. Slack refuses what is too large (`metadata_too_large`) and publishes no number: a careful one.
METADATA_BYTES = 8_000

# Paging
PAGE = 100
PAGE_OF_REPLIES = 1_000
PAGE_MOST = 999

# Time, in seconds
ACK_WITHIN = 3.0
TRIGGER_LIVES = 3.0
RESPONSE_URL_LIVES = 1_800.0
RESPONSE_URL_USES = 5
TICKET_LIVES = 30.0
WARNED_BEFORE = 10.0  # a socket is warned so long before it is taken away

# Socket Mode
CONNECTIONS = 10

# Requests a second and burst, by method: Slack's tiers are so many a minute. Posting is by channel, the rest by app.
TIER_2, TIER_3, TIER_4 = (20 / 60, 20), (50 / 60, 50), (100 / 60, 100)
RATES: dict[str, tuple[float, int]] = {
    "chat.postMessage": (1.0, 4),
    "chat.update": TIER_3,
    "chat.postEphemeral": TIER_4,
    "conversations.history": TIER_3,
    "conversations.replies": TIER_3,
    "conversations.info": TIER_3,
    "users.info": TIER_4,
    "views.open": TIER_4,
    "files.getUploadURLExternal": TIER_4,
    "files.completeUploadExternal": TIER_4,
    "files.info": TIER_4,
    "apps.connections.open": TIER_2,
}
BY_CHANNEL = frozenset({"chat.postMessage"})


class Rates:
    """Off when `rates` is empty. `rates` gives requests a second and burst by method."""

    def __init__(self, rates: Mapping[str, tuple[float, int]]) -> None:
        self.rates = dict(rates)
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}  # tokens, when they were counted

    def wait(self, method: str, args: Mapping[str, Any]) -> int:
        """Whole seconds until this call is welcome; 0 when it is now, and it is counted then."""
        if method not in self.rates:
            return 0
        rate, burst = self.rates[method]
        key = (method, str(args.get("channel", "")) if method in BY_CHANNEL else "")
        now = trio.current_time()
        tokens, at = self._buckets.get(key, (float(burst), now))
        tokens = min(float(burst), tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            return max(1, math.ceil((1 - tokens) / rate))
        self._buckets[key] = (tokens - 1, now)
        return 0
