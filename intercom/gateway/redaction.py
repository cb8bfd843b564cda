"""Redaction of downstreams' results: the existing detector of secrets, on all texts of a JSON value. Pure.

A text is searched as a line `name: text` with the name of its field, because names such as `password` show what is a
secret. Most results have none. So the whole is searched first, and single texts only if that finds something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from intercom.masking import Masker
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import Json, JsonObject

#: Blocks of content whose `data` are bytes. Resources have theirs in `blob`.
_BLOCKS: Final = frozenset({"image", "audio"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]*={0,2}\s*")
#: How deep a result may be nested.
_DEPTH: Final = 200


def lines_of(value: Json) -> list[str]:
    """Return all texts of a result, each with the name of its field. Raises InvalidArguments if it is nested too
    deeply."""
    found: list[str] = []
    _add_lines(found, value, "", _DEPTH)
    return found


def _add_lines(found: list[str], value: Json, name: str, depth: int) -> None:
    if isinstance(value, str):
        found.append(f"{name}: {value}" if name else value)
    elif isinstance(value, (dict, Mapping)):
        _require_depth(depth)
        bytes_in = _bytes_in(value)
        for key, each in value.items():
            if key == bytes_in:
                found.append(key)
            elif isinstance(each, str):
                found.append(f"{key}: {each}" if key else each)
            else:
                found.append(key)
                _add_lines(found, each, key, depth - 1)
    elif isinstance(value, list | tuple):
        _require_depth(depth)
        for each in value:
            _add_lines(found, each, name, depth - 1)


def _require_depth(depth: int) -> None:
    if depth == 0:
        raise InvalidArguments("the downstream's result is nested too deeply to search it for secrets")


def redact(masker: Masker, result: JsonObject, text: str) -> tuple[JsonObject, tuple[str, ...]]:
    """Return a result without its secrets, and the kinds of these, each once. `text` are the lines of `lines_of`."""
    kinds = dict.fromkeys(masker.mask(text).kinds)
    if not kinds:
        return result, ()
    return cast("JsonObject", _masked(masker, result, "", kinds)), tuple(kinds)


def _masked(masker: Masker, value: Json, name: str, kinds: dict[str, None]) -> Json:
    if isinstance(value, str):
        return _text(masker, value, name, kinds)
    if isinstance(value, Mapping):
        bytes_in = _bytes_in(value)
        return {
            _text(masker, key, "", kinds): each if key == bytes_in else _masked(masker, each, key, kinds)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(masker, each, name, kinds) for each in value]
    return value


def _bytes_in(value: Mapping[str, Json]) -> str | None:
    """Return the field of a block that holds bytes in base64: no rule finds a secret in them, and a mask would damage
    them. Only there, and only if it is base64: results of APIs have fields of these names, too."""
    name = "data" if value.get("type") in _BLOCKS else "blob" if "uri" in value else None
    found = value.get(name) if name is not None else None
    return name if isinstance(found, str) and _BASE64.fullmatch(found) else None


def _text(masker: Masker, text: str, name: str, kinds: dict[str, None]) -> str:
    label = f"{name}: " if name else ""
    found = masker.mask(label + text)
    kinds.update(dict.fromkeys(found.kinds))
    if found.text.startswith(label):
        return found.text[len(label) :]
    # The name itself was taken for a secret.
    return masker.mask(text).text
