"""The address of Slack's API, and the check of addresses that Slack sends."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

SLACK = "https://slack.com/api/"

#: The environment variable with another address of the Web API: a local fake, or GovSlack.
VARIABLE = "INTERCOM_SLACK_API"

_SOCKETS = {"ws": "http", "wss": "https"}


def api_base(environ: Mapping[str, str]) -> str:
    """Return the base address of the Web API, with a trailing slash. Raises ValueError if the environment names an
    address that must not receive tokens."""
    given = environ.get(VARIABLE, "").strip()
    return checked_base(given) if given else SLACK


def checked_base(url: str) -> str:
    """Return the address as a base for methods. Raises ValueError unless it is https, or http on the loopback."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.username is not None or parts.query or parts.fragment:
        raise ValueError("the address of Slack's API is no plain URL; give one like https://slack.com/api/")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError(f"tokens are sent to {host} over https only; plain http is for 127.0.0.1")
    return url.rstrip("/") + "/"


def is_plain(url: str) -> bool:
    """Return whether traffic to this address is unencrypted."""
    return urlsplit(url).scheme in ("http", "ws")


def may_follow(url: str, base: str) -> bool:
    """Return whether an address from Slack may be used: encrypted, or on the loopback if the API is there too."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if host is None or parts.username is not None:
        return False
    if parts.scheme in ("https", "wss"):
        return True
    return parts.scheme in ("http", "ws") and is_plain(base) and is_loopback(host)


def over_http(url: str) -> str:
    """Return the http(s) address that a ws(s) address is upgraded from; proxies are chosen by it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(scheme=_SOCKETS.get(parts.scheme, parts.scheme)))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its literal address or the name localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
