"""Connection errors: sentences for people, and the pause before the next try."""

from __future__ import annotations

from attrs import frozen

from intercom.operators.slack.errors import RateLimited, SlackRefused

#: Slack's code if the app may open no more sockets.
TOO_MANY = "too_many_websockets"
LINK_DISABLED = "link_disabled"

_NEW_TOKEN = "make a new one (app settings, basic information, app-level tokens) and run agent-intercom slack login"

_SWITCHED_OFF = "socket mode is switched off for the app: switch it on (app settings, socket mode)"

_SENTENCES = {
    "not_authed": "there is no app-level token: run agent-intercom slack login",
    "not_allowed_token_type": f"the app-level token is of another kind, it begins with xapp-: {_NEW_TOKEN}",
    "missing_scope": f"the app-level token lacks the scope connections:write: {_NEW_TOKEN}",
    **dict.fromkeys((LINK_DISABLED, "socket_mode_disabled"), _SWITCHED_OFF),
    TOO_MANY: "slack allows an app ten sockets and all are taken: stop other programs that connect as this app",
    **{
        word: f"slack does not take the app-level token ({word}): {_NEW_TOKEN}"
        for word in ("invalid_auth", "token_revoked", "token_expired", "account_inactive")
    },
}


@frozen
class Patience:
    """The waiting times of the connection, in seconds.

    After a failure the first retry is immediate. The next pause is `backoff_first`, doubled with each failure in a row,
    up to `backoff_max`. Each pause is shortened at random, to no less than half. A socket that lasted `stable` ends the
    row. An error that a person must fix is retried every `slow`. A replaced socket is read for `overlap` more. At a
    stop, handlers get `stop` to end.
    """

    backoff_first: float = 0.5
    backoff_max: float = 30.0
    stable: float = 30.0
    slow: float = 60.0
    overlap: float = 10.0
    stop: float = 2.0


class Disconnected(Exception):
    """Slack closes a socket; `reason` is its code."""

    def __init__(self, reason: str) -> None:
        super().__init__(_SENTENCES.get(reason, f"slack takes the socket away ({reason})"))
        self.reason = reason


def is_for_people(trouble: Exception) -> bool:
    """Return whether only a person can fix the error."""
    if isinstance(trouble, Disconnected):
        return trouble.reason == LINK_DISABLED
    return isinstance(trouble, SlackRefused)


def sentence(trouble: Exception) -> str:
    """Return the problem and its remedy, for people."""
    if isinstance(trouble, SlackRefused):
        return _SENTENCES.get(trouble.error, f"slack refuses to open a socket ({trouble.error})")
    return str(trouble)


def wait_after(trouble: Exception, failures: int, patience: Patience, random: float) -> float:
    """Return the seconds until the next try after `failures` in a row, this one included. `random` is from 0 to 1."""
    if is_for_people(trouble):
        return patience.slow * (1 + random / 4)
    if isinstance(trouble, Disconnected) and trouble.reason == TOO_MANY:
        failures += 1
    # After 64 doublings any limit is reached, and a float would overflow.
    whole = 0.0 if failures <= 1 else patience.backoff_first * 2.0 ** min(failures - 2, 64)
    wait = min(whole, patience.backoff_max) * (0.5 + random / 2)
    return max(wait, trouble.retry_after) if isinstance(trouble, RateLimited) else wait
