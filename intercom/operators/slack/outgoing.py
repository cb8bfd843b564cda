"""The last look at what goes to Slack: everything that `WebApi` and `Socket` send passes here, and is masked.

What is drawn is masked before, together with all that it was cut from; this is for what somebody forgets.
"""

from __future__ import annotations

from typing import Any

import trio

from intercom.masking import Masker

#: What only Slack and we read: ids and addresses that must arrive as they are. No agent writes any of it.
LITERAL = frozenset(
    """action_id block_id callback_id channel channel_id client_id cursor envelope_id event_type external_id file hash
    id latest length limit oldest private_metadata response_action snippet_type thread_ts timestamp trigger_id ts type
    user users value version view_id
    """.split()  # noqa: SIM905
)

#: So many characters are masked on the loop; more of them in a thread.
_ON_LOOP = 16_384


async def masked(value: Any) -> Any:
    """A JSON value, or text, with every secret in it masked, whoever it came from."""
    if len(str(value)) > _ON_LOOP:
        return await trio.to_thread.run_sync(Masker().mask_all, value, LITERAL)
    return Masker().mask_all(value, LITERAL)
