"""What crosses ctl's socket: one JSON object a line, a request up and a reply down.

Pure: bytes in, values out. A malformed line raises an `IntercomError` that says why; no bytes raise anything else.
"""

from __future__ import annotations

import json

from attrs import frozen

from intercom.model.card import Card, Notice
from intercom.model.errors import IntercomError, InvalidArguments, IpcError
from intercom.model.json_types import Json, JsonObject
from intercom.operators.commands.json_forms import plain, watch_entry
from intercom.operators.commands.request import CommandRequest, read_fields, text_field
from intercom.operators.commands.table import MAX_REQUEST


@frozen(repr=False)
class CtlRequest(CommandRequest):
    """A request with the token that its sender showed. Its representation omits it: it must not reach a log."""

    auth_token: str | None = None

    __repr__ = CommandRequest.__repr__


def read_request(line: bytes) -> CtlRequest:
    """Parse one request line. Raises IpcError if it is no JSON object, InvalidArguments for a wrong field."""
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
    read = read_fields(command, raw)
    token = text_field("auth_token", raw.get("auth_token"))
    return CtlRequest(read.command, read.fields, read.verdict_id, read.signature, token)


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
    return event(*watch_entry(shown))


def _line(value: JsonObject) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("ascii") + b"\n"
