"""The check of a shim's hello, which may contain anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intercom.model.channel_id import is_channel_id

#: The longest allowed text of each field, in characters.
_TEXTS = {
    "version": 100,
    "shim": 200,
    "token": 200,
    "cwd": 65536,
    "workspace": 65536,
    "config": 65536,
    "config_digest": 200,
    "session": 200,
    "role": 20,
}
#: The longest text of a list.
_LONGEST = 2**20
_LARGEST_PID = 2**31 - 1


def is_sound(hello: Mapping[str, Any]) -> bool:
    """Whether every field of a hello is absent, null, or valid: texts, process ids, a channel id, lists of texts.
    Unknown fields are ignored because a newer shim may send more."""
    texts = all(_is_text(hello.get(name), longest) for name, longest in _TEXTS.items())
    pids = all(_is_pid(hello.get(name)) for name in ("pid", "client_pid"))
    lists = all(_are_texts(hello.get(name)) for name in ("delivered", "agents"))
    return texts and pids and lists and _is_channel(hello.get("channel"))


def _is_text(value: object, longest: int) -> bool:
    if value is None:
        return True
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_channel(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= 100 and is_channel_id(value))


def _are_texts(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(isinstance(each, str) and _is_text(each, _LONGEST) for each in value)


def _is_pid(value: object) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value <= _LARGEST_PID)
