"""The meaning of an HTTP answer: done, refused, not done, or unknown. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2

from intercom.operators.slack.errors import RateLimited, SlackRefused, Unreachable

#: Seconds until a limited call may be repeated if Slack does not say.
_RETRY_AFTER = 1.0
_LONGEST_RETRY_AFTER = 3600.0

#: Slack's errors for a fault of its own: part of the request may have been done.
_BROKEN = frozenset({"fatal_error", "internal_error", "service_unavailable"})
_LIMITED = frozenset({"ratelimited", "rate_limited"})


def read(body: bytes) -> dict[str, Any] | None:
    """Parse the body as an object; None if it is no JSON object."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def judge(what: str, response: httpx2.Response, data: dict[str, Any] | None) -> None:
    """Raise an error if Slack did not carry out the call, or if that is unknown. Raises RateLimited, Unreachable or
    SlackRefused."""
    error = None if data is None or data.get("ok") is not False else str(data.get("error") or "unknown_error")
    if response.status_code == 429 or error in _LIMITED:
        raise RateLimited(what, _retry_after(response.headers.get("Retry-After")))
    if response.status_code >= 500 or response.status_code == 408 or error in _BROKEN:
        words = error or f"HTTP {response.status_code}"
        raise Unreachable(f"slack could not finish {what}: {words}", maybe_done=True)
    if error is not None:
        raise SlackRefused(what, error, data)
    if 300 <= response.status_code < 500:
        raise Unreachable(f"something else than slack answered {what} (HTTP {response.status_code})", maybe_done=False)


def _retry_after(given: str | None) -> float:
    text = (given or "").strip()
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        return _RETRY_AFTER
    return min(float(text), _LONGEST_RETRY_AFTER)
