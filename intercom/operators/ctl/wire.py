"""The protocol of the local socket: one JSON object a line, both ways.

Pure: bytes in, values out. A malformed line raises an `IntercomError` that says why; no bytes raise anything else.
"""

from __future__ import annotations

import json
import re
from typing import Any

from attrs import fields, frozen

from intercom.model import signing
from intercom.model.errors import IntercomError, InvalidArguments, IpcError
from intercom.model.verdict import Signature, SignedCommand

#: The longest request line in bytes, without its newline.
MAX_REQUEST = 1024 * 1024

_ID_CHARS = 200
_NAME_CHARS = 4096
_VERDICT_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_TEXT_FIELDS = ("id", "reason", "instruction", "mode", "session", "decision", "text", "verdict_id", "auth_token")
_NAMES = ("workspace", "label", "stream", "files", "sha256", "public", "name")
_SIGNED = frozenset(each.name for each in fields(Signature))


@frozen(repr=False)
class CtlRequest:
    """One request. The first six fields are those of the older protocol; the rest are optional additions.

    `verdict_id` identifies the act, so a repetition after a lost answer acts once. `limit` bounds the log entries, or
    the lines of an output. `everything` includes ended sessions in `list`. `workspace` is the directory of a new agent
    or a task. `label` names an agent or a checkpoint. `stream` and `start` (a byte offset) select the output of a
    started agent. `files` says what a restore does with files. `sha256` is the hash of the policy that the operator
    saw. `signature` is the operator's signature of this act; `public` and `name` belong to an operator key.
    """

    command: str
    id: str | None = None
    reason: str | None = None
    instruction: str | None = None
    mode: str | None = None
    auth_token: str | None = None
    session: str | None = None
    decision: str | None = None
    text: str | None = None
    verdict_id: str | None = None
    limit: int | None = None
    everything: bool = False
    workspace: str | None = None
    label: str | None = None
    stream: str | None = None
    start: int | None = None
    files: str | None = None
    sha256: str | None = None
    public: str | None = None
    name: str | None = None
    signature: Signature | None = None

    @property
    def whose(self) -> str | None:
        """The session that is named, in `session` or `id`. Raises InvalidArguments if the two differ: acting on the
        wrong session would be worse than a refusal."""
        if None not in (self.session, self.id) and self.session != self.id:
            raise InvalidArguments(f"two sessions are named, {self.session} and {self.id}: name one")
        return self.session or self.id

    @property
    def meant(self) -> dict[str, str]:
        """The fields that say what the request does; its signature covers them."""
        return {name: part for name in signing.MEANT if (part := getattr(self, name)) is not None}

    @property
    def signed(self) -> SignedCommand | None:
        """The signed request, stored together with its text; None without a signature."""
        return None if self.signature is None else SignedCommand(self.signature, self.meant)

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
    fields = {name: _text(name, raw.get(name)) for name in _TEXT_FIELDS}
    for name in ("id", "session"):
        value = fields[name]
        if value is not None and not 0 < len(value) <= _ID_CHARS:
            raise InvalidArguments(f"{name} must have 1 to {_ID_CHARS} characters")
    fields |= {name: _name(name, raw.get(name)) for name in _NAMES}
    verdict_id = fields["verdict_id"]
    if verdict_id is not None and not _VERDICT_ID.fullmatch(verdict_id):
        raise InvalidArguments("verdict_id must be 8 to 64 letters, digits, - or _")
    return CtlRequest(
        command=command,
        limit=_limit(raw.get("limit")),
        everything=_flag(raw.get("everything")),
        start=_start(raw.get("start")),
        signature=_signature(raw.get("signature")),
        **fields,
    )


def success(data: Any) -> bytes:
    """Return the reply line for a request that was carried out."""
    return _line({"ok": True, "data": data})


def failure(error: IntercomError) -> bytes:
    """Return the reply line for a refused request: the sentence, its code, and details for programs."""
    reply: dict[str, Any] = {"ok": False, "error": error.message, "error_code": error.error_code}
    if error.details:
        reply["details"] = error.details
    return _line(reply)


def event(name: str, data: Any) -> bytes:
    """Return one line of a watch."""
    return _line({"event": name, "data": data})


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("ascii") + b"\n"


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
    if not isinstance(value, dict) or set(value) != _SIGNED:
        raise InvalidArguments("signature must be an object with the fields of a signed decision")
    for name, part in value.items():
        if _text(f"signature.{name}", part) is None and name not in ("risk", "text"):
            raise InvalidArguments(f"signature.{name} is missing")
    return Signature(**value)


def _name(name: str, value: object) -> str | None:
    text = _text(name, value)
    if text is not None and (len(text) > _NAME_CHARS or "\0" in text):
        raise InvalidArguments(f"{name} must have at most {_NAME_CHARS} characters, and no NUL")
    return text


def _start(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise InvalidArguments("start must be a whole number, and not below 0")
    return value


def _limit(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000:
        raise InvalidArguments("limit must be a whole number from 1 to 10000")
    return value


def _flag(value: object) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise InvalidArguments("everything must be true or false")
    return value
