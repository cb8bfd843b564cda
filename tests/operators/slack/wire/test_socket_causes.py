from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.slack.socket_mode import Disconnected, Patience, is_for_people, sentence, wait_after
from intercom.operators.slack.web_api import RateLimited, SlackRefused, SocketLost, Unreachable

PATIENCE = Patience(backoff_first=0.5, backoff_max=30, slow=60)

PASSING = st.sampled_from(
    [SocketLost("gone"), Unreachable("no network", maybe_done=False), Disconnected("refresh_requested")]
)
CHANCE = st.floats(0, 1)


@pytest.mark.parametrize(
    ("failures", "least", "most"),
    [(1, 0, 0), (2, 0.25, 0.5), (3, 0.5, 1), (4, 1, 2), (8, 15, 30), (9, 15, 30), (10**6, 15, 30)],
)
def test_waits_double_up_to_the_most_and_are_scattered(failures: int, least: float, most: float) -> None:
    assert wait_after(SocketLost("gone"), failures, PATIENCE, 0.0) == least
    assert wait_after(SocketLost("gone"), failures, PATIENCE, 1.0) == most


@given(PASSING, st.integers(1, 10**9), CHANCE)
def test_no_wait_is_longer_than_the_most(cause: Exception, failures: int, chance: float) -> None:
    assert 0 <= wait_after(cause, failures, PATIENCE, chance) <= PATIENCE.backoff_max


@given(st.integers(1, 10**9), CHANCE)
def test_what_a_person_must_mend_is_tried_slowly_from_the_first(failures: int, chance: float) -> None:
    for cause in (SlackRefused("apps.connections.open", "invalid_auth"), Disconnected("link_disabled")):
        assert is_for_people(cause)
        assert 60 <= wait_after(cause, failures, PATIENCE, chance) <= 75


@given(st.integers(1, 10), CHANCE, st.floats(0, 3600))
def test_a_limit_is_never_undercut(failures: int, chance: float, seconds: float) -> None:
    assert wait_after(RateLimited("apps.connections.open", seconds), failures, PATIENCE, chance) >= seconds


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (SlackRefused("m", "not_authed"), "there is no app-level token"),
        (SlackRefused("m", "token_revoked"), "(token_revoked)"),
        (SlackRefused("m", "not_allowed_token_type"), "xapp-"),
        (SlackRefused("m", "missing_scope"), "connections:write"),
        (SlackRefused("m", "org_login_required"), "slack refuses to open a socket (org_login_required)"),
        (Disconnected("link_disabled"), "switch it on"),
        (Disconnected("too_many_websockets"), "stop other programs"),
        (Disconnected("refresh_requested"), "slack takes the socket away (refresh_requested)"),
        (SocketLost("nothing was heard"), "nothing was heard"),
    ],
)
def test_each_cause_has_a_sentence(cause: Exception, words: str) -> None:
    assert words in sentence(cause)
