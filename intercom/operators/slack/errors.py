"""Errors of the communication with Slack. Their texts contain no token, no ticket and no message text."""

from __future__ import annotations

from typing import Any


class SlackError(Exception):
    """Slack did not do what was requested."""


class SlackRefused(SlackError):
    """Slack refused the request. `error` is Slack's code (`channel_not_found`), `data` the whole answer."""

    def __init__(self, method: str, error: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(f"slack refused {method}: {error}")
        self.method = method
        self.error = error
        self.data = data or {}


class RateLimited(SlackError):
    """Slack did nothing because of too many requests; repeat in `retry_after` seconds."""

    def __init__(self, method: str, retry_after: float) -> None:
        super().__init__(f"slack limits {method}: ask again in {retry_after:g} s")
        self.method = method
        self.retry_after = retry_after


class Unreachable(SlackError):
    """No answer says whether the request was carried out. `maybe_done` is False if it certainly was not. `unanswered`
    means that no whole answer came, in time or before the connection broke, so it may still be carried out."""

    def __init__(self, why: str, *, maybe_done: bool, unanswered: bool = False) -> None:
        super().__init__(why)
        self.maybe_done = maybe_done
        self.unanswered = unanswered and maybe_done


class SocketLost(SlackError):
    """A Socket Mode socket can no longer be used."""
