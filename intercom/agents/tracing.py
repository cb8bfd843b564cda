"""Traces: the SDK's server makes an OpenTelemetry span of each message; here it learns whose it is.

Only the API of OpenTelemetry is used. Where no program has set up its SDK there are no spans, and this costs one look.
"""

from __future__ import annotations

from opentelemetry.trace import get_current_span

from intercom.masking import Masker

SESSION_ID = "intercom.session_id"
REQUEST_ID = "intercom.request_id"
#: An id of ours is shorter; what an agent gives for one may be anything.
_LONGEST = 100


def _masked(text: str) -> str:
    """What an agent calls an id may be anything, and spans are sent to other machines."""
    return Masker().mask(text[: 100 * _LONGEST]).text


def note(session_id: str | None = None, request_id: str | None = None) -> None:
    """Put these on the span that is current, if one is recorded; None leaves what is there."""
    span = get_current_span()
    if not span.is_recording():
        return
    if session_id is not None:
        span.set_attribute(SESSION_ID, _masked(session_id))
    if request_id is not None:
        span.set_attribute(REQUEST_ID, _masked(request_id)[:_LONGEST])
