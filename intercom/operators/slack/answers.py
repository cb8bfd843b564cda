"""What an HTTP answer says: done, refused, not done, or unknown. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2

from intercom.operators.slack.errors import RateLimited, SlackRefused, Unreachable

#: Seconds until a call may be repeated when Slack limits it without saying.
_RETRY_AFTER = 1.0
_LONGEST_RETRY_AFTER = 3600.0

#: Slack's words for "something broke here": part of what was asked may have happened.
_BROKEN = frozenset({"fatal_error", "internal_error", "service_unavailable"})
_LIMITED = frozenset({"ratelimited", "rate_limited"})


def read(body: bytes) -> dict[str, Any] | None:
    """The answer as an object; None if it is no JSON object."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def judge(what: str, response: httpx2.Response, data: dict[str, Any] | None) -> None:
    """Raise if Slack says that it did not do it, or that it does not know."""
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
