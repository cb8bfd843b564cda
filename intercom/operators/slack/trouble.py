"""What is wrong with the connection, in words for people, and how long to wait before the next try."""

from __future__ import annotations

from attrs import frozen

from intercom.operators.slack.errors import RateLimited, SlackRefused

#: The last word on a socket whose app may have no more of them.
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
    """How the connection waits, in seconds.

    After a failure it tries again at once, then waits `backoff_first`, twice as long after each failure in a row, at
    most `backoff_max`; of that a random part between a half and the whole. A socket that lasted `stable` ends the row.
    What a person must mend is tried every `slow`. A socket that was replaced is read on for `overlap`. At a stop,
    handlers get `stop` to end.
    """

    backoff_first: float = 0.5
    backoff_max: float = 30.0
    stable: float = 30.0
    slow: float = 60.0
    overlap: float = 10.0
    stop: float = 2.0


class Disconnected(Exception):
    """Slack takes a socket away; `reason` is its word for why."""

    def __init__(self, reason: str) -> None:
        super().__init__(_SENTENCES.get(reason, f"slack takes the socket away ({reason})"))
        self.reason = reason


def is_for_people(trouble: Exception) -> bool:
    """Whether nothing but a person can mend it."""
    if isinstance(trouble, Disconnected):
        return trouble.reason == LINK_DISABLED
    return isinstance(trouble, SlackRefused)


def sentence(trouble: Exception) -> str:
    """What is wrong and what to do, for people."""
    if isinstance(trouble, SlackRefused):
        return _SENTENCES.get(trouble.error, f"slack refuses to open a socket ({trouble.error})")
    return str(trouble)


def wait_after(trouble: Exception, failures: int, patience: Patience, random: float) -> float:
    """Seconds until the next try after `failures` in a row, this one included. `random` is from 0 to 1."""
    if is_for_people(trouble):
        return patience.slow * (1 + random / 4)
    if isinstance(trouble, Disconnected) and trouble.reason == TOO_MANY:
        failures += 1
    # Past 64 doublings any cap is reached, and a float would overflow.
    whole = 0.0 if failures <= 1 else patience.backoff_first * 2.0 ** min(failures - 2, 64)
    wait = min(whole, patience.backoff_max) * (0.5 + random / 2)
    return max(wait, trouble.retry_after) if isinstance(trouble, RateLimited) else wait
