"""Adds the session and request ids to the OpenTelemetry spans that the SDK's server makes of messages.

It uses only the API of OpenTelemetry. If no program has set up the OpenTelemetry SDK, there are no spans, and this
costs one check.
"""

from __future__ import annotations

from opentelemetry.trace import get_current_span

from intercom.masking import Masker

SESSION_ID = "intercom.session_id"
REQUEST_ID = "intercom.request_id"
#: Our ids are shorter, but an agent may send any text as an id.
_LONGEST = 100


def _masked(text: str) -> str:
    """Mask secrets in an id: an agent may send any text, and spans are sent to other machines."""
    return Masker().mask(text[: 100 * _LONGEST]).text


def note(session_id: str | None = None, request_id: str | None = None) -> None:
    """Set these attributes on the current span, if it is recorded; None leaves an attribute unchanged."""
    span = get_current_span()
    if not span.is_recording():
        return
    if session_id is not None:
        span.set_attribute(SESSION_ID, _masked(session_id))
    if request_id is not None:
        span.set_attribute(REQUEST_ID, _masked(request_id)[:_LONGEST])
