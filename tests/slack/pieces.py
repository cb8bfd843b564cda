"""The pieces Block Kit is made of: text objects, strings of a length, arrays of a size. Complaints in Slack's words."""

from __future__ import annotations

from typing import Any

Complaints = list[str]


def allowed(value: dict[str, Any], known: set[str], at: str, found: Complaints) -> None:
    """Complain of every property Slack does not know."""
    found += [f"invalid additional property: {name} [json-pointer:{at}]" for name in value if name not in known]


def array(value: Any, at: str, least: int, most: int, found: Complaints) -> bool:
    """Complain unless this is an array of so many items; true when its items can be looked at."""
    if value is None:
        found.append(f"missing required field: {at.rsplit('/', 1)[1]} [json-pointer:{at.rsplit('/', 1)[0]}]")
        return False
    if not isinstance(value, list):
        found.append(f"must be an array [json-pointer:{at}]")
        return False
    if len(value) < least:
        found.append(f"no fewer than {least} items allowed [json-pointer:{at}]")
    if len(value) > most:
        found.append(f"no more than {most} items allowed [json-pointer:{at}]")
    return True


def string(value: Any, at: str, most: int, found: Complaints, *, empty: bool = False) -> None:
    """Complain unless this is a string of at most so many characters (and, unless `empty`, of one at least)."""
    if not isinstance(value, str):
        found.append(f"must be a string [json-pointer:{at}]")
    elif len(value) > most:
        found.append(f"must be less than {most + 1} characters [json-pointer:{at}]")
    elif not value and not empty:
        found.append(f"must be more than 0 characters [json-pointer:{at}]")
    elif any("\ud800" <= character <= "\udfff" for character in value):
        found.append(f"must be valid utf-8 [json-pointer:{at}]")


def wanted_string(
    holder: dict[str, Any],
    name: str,
    at: str,
    most: int,
    found: Complaints,
    *,
    optional: bool = False,
    empty: bool = False,
) -> None:
    """Complain unless this property is such a string; absent is a fault too, unless `optional`."""
    if name in holder:
        string(holder[name], f"{at}/{name}", most, found, empty=empty)
    elif not optional:
        found.append(f"missing required field: {name} [json-pointer:{at}]")


def text_object(value: Any, at: str, most: int, found: Complaints, *, plain: bool = False) -> None:
    """Complain unless this is a text object of at most so many characters (a `plain_text` one, if `plain`)."""
    if value is None:
        found.append(f"missing required field: {at.rsplit('/', 1)[1]} [json-pointer:{at.rsplit('/', 1)[0]}]")
        return
    if not isinstance(value, dict):
        found.append(f"must be an object [json-pointer:{at}]")
        return
    kind = value.get("type")
    if kind not in ({"plain_text"} if plain else {"plain_text", "mrkdwn"}):
        found.append(f"unsupported type: {kind} [json-pointer:{at}/type]")
        return
    known = {"type", "text", "emoji"} if kind == "plain_text" else {"type", "text", "verbatim"}
    mine: Complaints = []
    allowed(value, known, at, mine)
    wanted_string(value, "text", at, most, mine)
    if mine:
        found.append(f"failed to match all allowed schemas [json-pointer:{at}]")
        found += mine
