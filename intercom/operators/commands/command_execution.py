"""One request for an operator command, as ctl and the page send it, and how it is carried out.

Reading is pure: values in, values out. A malformed field raises an `IntercomError` that says why.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import trio
from attrs import field, fields, frozen

from actors import Busy, Down, NotRunning, Refused
from intercom.model import signing
from intercom.model.decision import Decision, Signature, SignedCommand
from intercom.model.errors import IntercomError, InvalidArguments, IpcError
from intercom.model.process import Origin
from intercom.operators.commands.caller_and_handler import Caller
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.commands.command_table import COMMANDS, DEFAULT_REASON, FIELDS, Kind, decisions_of
from intercom.operators.router_messages import Channel
from intercom.sessions.operator_service import OperatorService
from intercom.store.store_and_reader import StoreUnavailable

log = logging.getLogger(__name__)

#: How long the server looks for the answer to a request, in seconds.
WORK_SECONDS = 60.0

#: The reason of a rejection that gives none, by channel.
_DEFAULT_REASONS = {Channel.CTL: DEFAULT_REASON, Channel.WEB: "rejected in the browser"}

_ID_CHARS = 200
_NAME_CHARS = 4096
_VERDICT_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_SIGNED = frozenset(each.name for each in fields(Signature))


@frozen(repr=False)
class CommandRequest:
    """One request. `fields` are those of the table's `FIELDS` that were sent. `verdict_id` identifies the act, so a
    repetition after a lost answer acts once. `signature` is the operator's signature of this act."""

    command: str
    fields: Mapping[str, Any] = field(factory=dict)
    verdict_id: str | None = None
    signature: Signature | None = None

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
        """Omit the fields: what people write must not reach a log."""
        return f"CommandRequest({self.command!r}, id={self.id!r})"


def read_fields(command: str, raw: Mapping[str, object]) -> CommandRequest:
    """Return the request for this command from its JSON fields. Raises InvalidArguments for a wrong field. Unknown
    fields are ignored, so a newer client can talk to an older server. null stands for absent."""
    verdict_id = text_field("verdict_id", raw.get("verdict_id"))
    if verdict_id is not None and not _VERDICT_ID.fullmatch(verdict_id):
        raise InvalidArguments("verdict_id must be 8 to 64 letters, digits, - or _")
    return CommandRequest(
        command,
        {name: _checked(name, kind, raw[name]) for name, kind in FIELDS.items() if raw.get(name) is not None},
        verdict_id,
        _signature(raw.get("signature")),
    )


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
    text = text_field(name, value) or ""
    if kind is Kind.ID and not 0 < len(text) <= _ID_CHARS:
        raise InvalidArguments(f"{name} must have {kind.value}")
    if kind is Kind.NAME and (len(text) > _NAME_CHARS or "\0" in text):
        raise InvalidArguments(f"{name} must have {kind.value}")
    return text


def text_field(name: str, value: object) -> str | None:
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
        if text_field(f"signature.{name}", part) is None and name not in ("risk", "text"):
            raise InvalidArguments(f"signature.{name} is missing")
    return Signature(**known)


# --- carrying out ----------------------------------------------------------------------------------------------------


@contextmanager
def refusals(command: str) -> Iterator[None]:
    """Raise an IntercomError, with a sentence for the person, for whatever the work on a command raises."""
    try:
        yield
    except IntercomError:
        raise
    except Refused as refusal:
        raise IntercomError(str(refusal), code="invalid_state") from None
    except Busy:
        raise IpcError("too much is queued in the server; try again shortly", code="busy") from None
    except trio.TooSlowError:
        row = COMMANDS.get(command)
        # Work that changes something was not cancelled: an agent may go on to stop, for example.
        is_act = row is not None and row.acts and not row.only_shows
        then = ", and may still be done: check before you try again" if is_act else "; try again"
        raise IpcError(f"this takes longer than the time limit{then}", code="unavailable") from None
    except StoreUnavailable as fault:
        raise IpcError(str(fault), code="unavailable") from None
    except (Down, NotRunning):
        message = "the part of the server that does this is restarting; try again"
        raise IpcError(message, code="unavailable") from None
    except Exception:
        # A fault of the server must not close the other connections, nor show internals to the peer.
        log.exception("the command %s failed", command)
        message = "the server failed at this; its log says why, try again"
        raise IpcError(message, code="unavailable") from None


async def carry_out(
    service: OperatorService, request: CommandRequest, user: str, origin: Origin | None, channel: Channel = Channel.CTL
) -> Any:
    """Carry out one request that came over this channel, and return the data of its reply.

    Raises InvalidArguments for an unknown command, and NotFound for an unknown session, even if the command is about
    none. If there is an operator key, what changes something must be signed: raises SignatureRefused.
    """
    handler = handler_of(request.command)
    row, verdict_id = handler.row, request.verdict_id
    if row.access is Access.SIGNED:
        service.admit_command(row.name, verdict_id, request.subject, request.signature, channel.value)
    if request.session is not None and not row.takes_session:
        await service.session_id(request.session)
    caller = Caller(
        user,
        channel,
        origin,
        act=None if verdict_id is None else f"{channel.value}/{verdict_id}",
        verdict_id=verdict_id,
        signature=request.signature,
        signed=request.signed,
        default_reason=_DEFAULT_REASONS[channel],
    )

    async def work() -> Any:
        return handler.entry(await handler(service, caller, **handler.read(request.fields)))

    is_signed = row.access is Access.SIGNED and service.signatures.required
    return await (service.once(caller.act, work) if is_signed or row.keeps_answer else work())


def is_proven(service: OperatorService, request: CommandRequest) -> bool:
    """Return whether the request carries a signature with a PIN typed for exactly this act: then any process may send
    it."""
    row, signatures = handler_of(request.command).row, service.signatures
    if row.access in (Access.ANYONE, Access.OPERATOR):
        return False
    if row.access is Access.SIGNED_CARD:
        decisions = [Decision(each) for each in decisions_of(row, request.fields.get("decision"))]
        return signatures.proves_decision(request.id, decisions, request.verdict_id, request.signature)
    return signatures.proves_command(row.name, request.verdict_id, request.subject, request.signature)
