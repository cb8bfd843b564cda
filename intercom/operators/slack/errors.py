"""What can go wrong between here and Slack. No text of these holds a token, a ticket or what a message said."""

from __future__ import annotations

from typing import Any


class SlackError(Exception):
    """Slack did not do what it was asked."""


class SlackRefused(SlackError):
    """Slack answered no. `error` is Slack's word for why (`channel_not_found`), `data` the whole answer."""

    def __init__(self, method: str, error: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(f"slack refused {method}: {error}")
        self.method = method
        self.error = error
        self.data = data or {}


class RateLimited(SlackError):
    """Slack did nothing, as it is asked too often; ask again in `retry_after` seconds."""

    def __init__(self, method: str, retry_after: float) -> None:
        super().__init__(f"slack limits {method}: ask again in {retry_after:g} s")
        self.method = method
        self.retry_after = retry_after


class Unreachable(SlackError):
    """No answer that says whether it was done. `maybe_done` is False if surely nothing happened; `unanswered`: no
    whole answer came, in time or before the connection broke, so that it may yet be done."""

    def __init__(self, why: str, *, maybe_done: bool, unanswered: bool = False) -> None:
        super().__init__(why)
        self.maybe_done = maybe_done
        self.unanswered = unanswered and maybe_done


class SocketLost(SlackError):
    """A Socket Mode socket is of no more use."""
