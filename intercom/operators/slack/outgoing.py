"""The last masking of everything that `WebApi` and `Socket` send to Slack.

Drawing masks whole texts before it cuts them; this catches what that missed.
"""

from __future__ import annotations

from typing import Any

import trio

from intercom.masking import Masker

#: Fields with ids and addresses, which must arrive unchanged. No agent writes them.
LITERAL = frozenset(
    """action_id block_id callback_id channel channel_id client_id cursor envelope_id event_type external_id file hash
    id latest length limit oldest private_metadata response_action snippet_type thread_ts timestamp trigger_id ts type
    user users value version view_id
    """.split()  # noqa: SIM905
)

#: Texts up to this many characters are masked on the event loop; longer ones in a thread.
_ON_LOOP = 16_384


async def masked(value: Any) -> Any:
    """Return a JSON value or text with every secret in it masked."""
    if len(str(value)) > _ON_LOOP:
        return await trio.to_thread.run_sync(Masker().mask_all, value, LITERAL)
    return Masker().mask_all(value, LITERAL)
