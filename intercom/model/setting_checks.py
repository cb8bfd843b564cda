"""Checks of settings: a number in a range, a text of a form. attrs runs them when a configuration is made.

Each raises ValueError with the end of a sentence that begins with the setting's name.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from intercom.model.limits import is_base_url

Check = Callable[[Any, Any, Any], None]

#: Ten years. A much later deadline does not fit a date.
LONGEST_SECONDS = 315_360_000
LONGEST_DAYS = 3650


def between(low: float, high: float, *, above: bool = False) -> Check:
    """Return a check that a number (or None) is from `low` to `high`. With `above`, `low` itself is refused."""

    def check(_owner: object, _setting: object, value: float | None) -> None:
        if value is None:
            return
        too_low = value <= low if above else value < low
        if too_low or value > high or not math.isfinite(value):
            raise ValueError(f"must be {'more than' if above else 'at least'} {low} and at most {high}, not {value}")

    return check


def matching(pattern: str, means: str) -> Check:
    """Return a check that a text, each of several, or each key of a table matches `pattern`. `means` describes it."""
    compiled = re.compile(pattern)

    def check(_owner: object, _setting: object, value: str | Iterable[str] | None) -> None:
        for text in [value] if isinstance(value, str) else value or ():
            if not compiled.fullmatch(text):
                raise ValueError(f"must be {means}, not {text!r}")

    return check


def not_empty(_owner: object, _setting: object, value: str | Mapping[str, str] | None) -> None:
    """Check that a text, or each text of a table, is not blank."""
    for name, text in value.items() if isinstance(value, Mapping) else [("", value)]:
        if text is not None and not text.strip():
            raise ValueError(f"must not be empty{f' for {name}' if name else ''}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener at this address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address(_owner: object, _setting: object, value: str) -> None:
    """Check that a text is an address to listen on. Host names are refused: one may stand for several addresses."""
    try:
        if value != "localhost":
            ipaddress.ip_address(value)
    except ValueError:
        raise ValueError(
            f"must be an IP address of this machine (0.0.0.0 for all) or localhost, not {value!r}"
        ) from None


def base_url(form: str, means: str) -> Check:
    """Return a check that a text (or None) is the public address of a server, of this form. `means` describes it."""

    def check(_owner: object, _setting: object, value: str | None) -> None:
        if value is not None and not is_base_url(value, form):
            raise ValueError(f"must be {means}, not {value!r}")

    return check


#: Times that many settings have, in seconds and in days.
SECONDS = between(0, LONGEST_SECONDS, above=True)
SECONDS_OR_NONE = between(0, LONGEST_SECONDS)
DAYS = between(1, LONGEST_DAYS)
