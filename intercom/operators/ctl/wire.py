"""What crosses ctl's socket: one JSON object a line, a request up and a reply down.

Pure: bytes in, values out. A malformed line raises an `IntercomError` that says why; no bytes raise anything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from attrs import field, fields, frozen

from intercom.model import signing
from intercom.model.card import Card, Notice
from intercom.model.decision import Signature, SignedCommand
from intercom.model.errors import IntercomError, InvalidArguments, IpcError
from intercom.model.json_types import Json, JsonObject
from intercom.operators.commands.json_forms import card_entry, notice_entry, plain
from intercom.operators.commands.table import FIELDS, Kind

#: The longest request line in bytes, without its newline.
MAX_REQUEST = 1024 * 1024

#: A diff longer than this many characters is omitted from a watch line; `show` has it.
WATCHED_DIFF = 128 * 1024

_ID_CHARS = 200
_NAME_CHARS = 4096
_VERDICT_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_SIGNED = frozenset(each.name for each in fields(Signature))


@frozen(repr=False)
class CtlRequest:
    """One request. `fields` are those of the table's `FIELDS` that were sent. `verdict_id` identifies the act, so a
    repetition after a lost answer acts once. `signature` is the operator's signature of this act."""

    command: str
    fields: Mapping[str, Any] = field(factory=dict)
    verdict_id: str | None = None
    signature: Signature | None = None
    auth_token: str | None = None

    @property
    def id(self) -> str | None:
        return self.fields.get("id")

    @property
    def session(self) -> str | None:
        return self.fields.get("session")

    @property
    def effect(self) -> dict[str, str]:
        """The fields that say what the request does; its signature covers them."""
        return {name: part for name in signing.EFFECT_FIELDS if (part := self.fields.get(name)) is not None}

    @property
    def subject(self) -> str:
        """The hash of the command's effect, which its signature covers."""
        return signing.command_subject(self.command, self.effect)

    @property
    def signed(self) -> SignedCommand | None:
        """The signed request, stored together with its text; None without a signature."""
        return None if self.signature is None else SignedCommand(self.signature, self.effect)

    def __repr__(self) -> str:
        """Omit the token, which must not reach a log."""
        return f"CtlRequest({self.command!r}, id={self.id!r})"


def read_request(line: bytes) -> CtlRequest:
    """Parse one request line. Raises IpcError if it is no JSON object, InvalidArguments for a wrong field. Unknown
    fields are ignored, so a newer ctl can talk to an older server. null stands for absent."""
    if len(line) > MAX_REQUEST:
        raise IpcError(f"the request line is longer than {MAX_REQUEST} bytes")
    try:
        raw = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise IpcError("the request is not UTF-8; send one JSON object a line") from None
    except (ValueError, RecursionError):
        raise IpcError("the request is not JSON; send one JSON object a line") from None
    if not isinstance(raw, dict):
        raise IpcError("the request is not a JSON object; send one JSON object a line")
    command = raw.get("command")
    if not isinstance(command, str) or not command:
        raise InvalidArguments("the request names no command; set command to a verb")
    verdict_id = _text("verdict_id", raw.get("verdict_id"))
    if verdict_id is not None and not _VERDICT_ID.fullmatch(verdict_id):
        raise InvalidArguments("verdict_id must be 8 to 64 letters, digits, - or _")
    return CtlRequest(
        command,
        {name: _checked(name, kind, raw[name]) for name, kind in FIELDS.items() if raw.get(name) is not None},
        verdict_id,
        _signature(raw.get("signature")),
        _text("auth_token", raw.get("auth_token")),
    )


def success(data: Json) -> bytes:
    """Return the reply line for a request that was carried out."""
    return _line({"ok": True, "data": data})


def failure(error: IntercomError) -> bytes:
    """Return the reply line for a refused request: the sentence, its code, and details for programs."""
    reply: JsonObject = {"ok": False, "error": error.message, "error_code": error.error_code}
    if error.details:
        reply["details"] = plain(error.details)
    return _line(reply)


def event(name: str, data: Json) -> bytes:
    """Return one line of a watch."""
    return _line({"event": name, "data": data})


def line_of(shown: Card | Notice) -> bytes:
    """Return the watch line of a card or notice."""
    if isinstance(shown, Notice):
        return event("notice", notice_entry(shown))
    return event("card", card_entry(shown if len(shown.diff or "") <= WATCHED_DIFF else shown.without_diff()))


def _line(value: JsonObject) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("ascii") + b"\n"


def _checked(name: str, kind: Kind, value: object) -> str | int | bool:
    """Return a field that was sent. Raises InvalidArguments if it is not of its kind."""
    match kind:
        case Kind.FLAG:
            if isinstance(value, bool):
                return value
            raise InvalidArguments(f"{name} must be {kind.value}")
        case Kind.NUMBER | Kind.OFFSET:
            low, high = (1, 10_000) if kind is Kind.NUMBER else (0, 2**63 - 1)
            if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
                return value
            raise InvalidArguments(f"{name} must be {kind.value}")
    text = _text(name, value) or ""
    if kind is Kind.ID and not 0 < len(text) <= _ID_CHARS:
        raise InvalidArguments(f"{name} must have {kind.value}")
    if kind is Kind.NAME and (len(text) > _NAME_CHARS or "\0" in text):
        raise InvalidArguments(f"{name} must have {kind.value}")
    return text


def _text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArguments(f"{name} must be a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArguments(f"{name} is not valid Unicode") from None
    return value


def _signature(value: object) -> Signature | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not set(value) >= _SIGNED:
        raise InvalidArguments("signature must be an object with the fields of a signed decision")
    # What else a newer ctl sends is not of what this server verifies.
    known = {name: value[name] for name in _SIGNED}
    for name, part in known.items():
        if _text(f"signature.{name}", part) is None and name not in ("risk", "text"):
            raise InvalidArguments(f"signature.{name} is missing")
    return Signature(**known)
