from __future__ import annotations

import pytest

from intercom.operators.slack.web_api import SLACK, api_base, may_follow, over_http


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("", SLACK),
        ("http://127.0.0.1:8080/api", "http://127.0.0.1:8080/api/"),
        ("http://[::1]:8080/api/", "http://[::1]:8080/api/"),
        ("http://localhost:8080/api/", "http://localhost:8080/api/"),
        ("https://slack-gov.com/api/", "https://slack-gov.com/api/"),
    ],
)
def test_the_environment_may_name_another_place(given: str, base: str) -> None:
    assert api_base({"INTERCOM_SLACK_API": given}) == base
    assert api_base({}) == SLACK


@pytest.mark.parametrize(
    "given",
    [
        "http://slack.com/api/",
        "http://10.0.0.7/api/",
        "http://127.0.0.1.example.com/api/",
        "http://localhost.example.com/api/",
        "https://user:pass@slack.com/api/",
        "https://slack.com/api/?x=1",
        "ftp://127.0.0.1/",
        "slack.com",
        "http://[x/",
    ],
)
def test_tokens_are_sent_nowhere_they_could_be_overheard(given: str) -> None:
    with pytest.raises(ValueError):
        api_base({"INTERCOM_SLACK_API": given})


@pytest.mark.parametrize(
    ("url", "from_slack", "from_stand_in"),
    [
        ("wss://wss-primary.slack.com/link/?ticket=1", True, True),
        ("https://files.slack.com/upload/v1/abc", True, True),
        ("ws://127.0.0.1:80/link/", False, True),
        ("http://127.0.0.1:80/x", False, True),
        ("ws://slack.com/link/", False, False),
        ("http://slack.com/x", False, False),
        ("wss://user@slack.com/link/", False, False),
        ("file:///etc/passwd", False, False),
        ("", False, False),
    ],
)
def test_an_address_from_slack_is_used_if_it_is_encrypted(url: str, from_slack: bool, from_stand_in: bool) -> None:
    assert may_follow(url, SLACK) is from_slack
    assert may_follow(url, "http://127.0.0.1:8080/api/") is from_stand_in


def test_a_socket_is_asked_for_over_http() -> None:
    assert over_http("wss://a.slack.com:443/link/?ticket=1&a=b") == "https://a.slack.com:443/link/?ticket=1&a=b"
    assert over_http("ws://127.0.0.1:8/") == "http://127.0.0.1:8/"
