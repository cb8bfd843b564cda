"""What the gateway has stored about downstreams: pinned tools, what was used today, and who disabled them.

Any process of this user can write the database. So the rows about tools and states only count together with the entries
of the audit log that explain them; where both differ, the stricter counts, and people are told. Each decision counts
once: the copy of an entry explains nothing. Entries that are gone from the log cannot be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256 as _sha256
from typing import Final, TypeAlias

from attrs import evolve, field, frozen

from intercom.gateway.budgets import Usage
from intercom.gateway.downstream_tasks import Recalled, ToolsPinned
from intercom.gateway.pins import Changes, Pin, changes_hash, tools_hash
from intercom.model import signing
from intercom.model.decision import Decided, Decision, signature_data
from intercom.model.json_types import Json
from intercom.model.visible_text import count
from intercom.store import audit, gateway
from intercom.store.gateway import AllowedTool, LoggedDecision
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer_messages import Database

#: Who pins the tools of a downstream that was just configured: nobody was asked.
FIRST_USE: Final = "first use"
#: Who has disabled a downstream if nobody can be named.
_NOBODY: Final = "intercom"
#: How the id of a card of changed tools begins.
CARD_PREFIX: Final = "tools-"
_ACCEPTS: Final = (Decision.APPROVE.value, Decision.ACCEPT.value)


def card_id(downstream: str, offered: str) -> str:
    """Return the id of the card of a downstream that offers the tools with this hash. A signature covers the id, so it
    names them, too."""
    named = f"{downstream}\0{offered}".encode("utf-8", "surrogatepass")
    return f"{CARD_PREFIX}{_sha256(named).hexdigest()[:40]}"


#: Checks the signature in the data of an audit entry.
_Genuine: TypeAlias = Callable[[Mapping[str, Json]], bool]


def _genuine(_data: Mapping[str, Json]) -> bool:
    return True


@frozen
class StoredState:
    """The part of the store that belongs to the gateway.

    `genuine` checks the signature in the data of an audit entry: under `signature`, with `channel` for the decision
    about a card. It returns True if signatures are not required. It only says who has signed: what was signed is
    compared here. Any thread may call it.
    """

    store: Store
    reader: Reader
    now: Callable[[], datetime]
    genuine: _Genuine = field(default=_genuine, repr=False)
    _told: set[str] = field(factory=set, init=False, repr=False)

    async def recall(self, downstream: str) -> Recalled:
        """Return what is remembered of a downstream, and counts. If it must not run, its row says so afterwards."""
        at = self.now()
        found, row = await self.reader.read(partial(_recall, downstream=downstream, at=at, genuine=self.genuine))
        if found.disabled_by is not None and row is None:
            # People see the row, and it is what they enable.
            await self.store.transact(partial(gateway.set_disabled, downstream=downstream, by=found.disabled_by, at=at))
        faults = tuple(each for each in found.faults if each not in self._told)
        self._told.update(faults)
        return evolve(found, faults=faults)

    async def pinned(self, first: ToolsPinned) -> None:
        """Save the tools of a downstream that was never pinned before."""
        await self.store.transact(partial(_pin_first, first=first, at=self.now()))

    async def allow(self, downstream: str, changes: Changes, decided: Decided, card_id: str) -> None:
        """Save the tools that a person has allowed, in place of all earlier ones, with an entry in the audit log."""
        await self.store.transact(
            partial(_allow, downstream=downstream, changes=changes, decided=decided, card_id=card_id)
        )

    async def reject(self, downstream: str, sha256: str, decided: Decided, card_id: str) -> None:
        """Note that a person has rejected this offer, with an entry in the audit log."""
        await self.store.transact(
            partial(_reject, downstream=downstream, sha256=sha256, decided=decided, card_id=card_id)
        )

    async def is_rejected(self, downstream: str, sha256: str) -> bool:
        """Whether a person has rejected this offer."""
        return await self.reader.read(lambda db: gateway.rejected(db, downstream) == sha256)


def _recall(db: Database, downstream: str, at: datetime, genuine: _Genuine) -> tuple[Recalled, str | None]:
    """Return what counts, and who has disabled the downstream as its row says."""
    used = gateway.usage_of(db, downstream, at.date())
    usage = Usage(at.date()) if used is None else Usage(used.day, used.calls, used.cost)
    row = gateway.disabled_by(db, downstream)
    pins = None
    if gateway.is_pinned(db, downstream):
        pins = tuple(Pin(each.tool, each.definition) for each in gateway.pins_of(db, downstream))
    logged = gateway.decisions(db, downstream)
    pins, fault_of_pins = _allowed_pins(downstream, pins, logged, genuine)
    disabled_by, fault_of_state = _state(downstream, row, logged, genuine)
    faults = tuple(each for each in (fault_of_pins, fault_of_state) if each is not None)
    return Recalled(pins, usage, disabled_by, faults), row


def _allowed_pins(
    downstream: str,
    pins: tuple[Pin, ...] | None,
    logged: Sequence[LoggedDecision],
    genuine: _Genuine,
) -> tuple[tuple[Pin, ...] | None, str | None]:
    """Return the pins that count, None before the first use; and what is wrong with the others."""
    about = [each for each in logged if each.kind in ("tools_pinned", "tools_accept")]
    if not about:
        return pins, None
    accepted = [each for each in about if each.kind == "tools_accept"]
    newest = accepted[-1] if accepted else about[0]
    is_copy = newest in accepted and _is_copy(newest, accepted[:-1])
    said = newest.data.get("tools")
    tools = said if isinstance(said, dict) else {}
    counting = tuple(each for each in pins or () if tools.get(each.name) == each.sha256)
    fault = None
    if pins is None or len(counting) < len(tools) or len(counting) < len(pins):
        fault = "what is stored differs from the audit log"
    if newest in accepted and (is_copy or not _is_acceptance(downstream, counting, newest.data, genuine)):
        # If only some of the tools are left, the signature for all of them cannot be compared: nothing counts then.
        counting, fault = (), "no genuine decision of a person explains it"
    if fault is None:
        return counting, None
    return counting, (
        f"not all tools of {downstream} that are stored as allowed count: {fault}; the others are withheld until"
        " somebody accepts them (agent-intercom-ctl pending)"
    )


def _is_acceptance(
    downstream: str,
    pins: tuple[Pin, ...],
    data: Mapping[str, Json],
    genuine: _Genuine,
) -> bool:
    """Whether an entry is the acceptance of just these tools, with a signature that counts."""
    offered = tools_hash(pins)
    id, signature = card_id(downstream, offered), data.get("signature")
    if isinstance(signature, Mapping) and (
        signature.get("request_id") != id or signature.get("decision") not in _ACCEPTS
    ):
        return False
    return data.get("sha256") == offered and data.get("request_id") == id and genuine(data)


def _state(
    downstream: str,
    row: str | None,
    logged: Sequence[LoggedDecision],
    genuine: _Genuine,
) -> tuple[str | None, str | None]:
    """Return who has disabled a downstream, None if nobody has; and what is wrong with its row."""
    about = [each for each in logged if each.kind in ("downstream_enabled", "downstream_disabled")]
    by: str | None = None
    unsigned = False
    for at, each in enumerate(about):
        if each.kind == "downstream_disabled":
            by, unsigned = each.who or _NOBODY, False
        elif by is not None:
            unsigned = _is_copy(each, about[:at]) or not _is_enabling(downstream, each.data, genuine)
            by = by if unsigned else None
    if row is None and by is not None:
        why = "no genuine decision of a person enabled it" if unsigned else "the audit log says that it is disabled"
        return by, (
            f"the downstream {downstream} is stored as enabled, but {why}: it stays disabled until somebody runs"
            f" agent-intercom-ctl gateway enable {downstream}"
        )
    if row is not None and about and by is None:
        return row, (
            f"the downstream {downstream} is stored as disabled, but the audit log says that it is enabled: it stays"
            f" disabled until somebody runs agent-intercom-ctl gateway enable {downstream}"
        )
    return row, None


def _is_enabling(downstream: str, data: Mapping[str, Json], genuine: _Genuine) -> bool:
    signature = data.get("signature")
    if isinstance(signature, Mapping):
        command = "gateway-enable"
        said = (signature.get("request_id"), signature.get("decision"), signature.get("subject"))
        if said != ("", command, signing.command_subject(command, {"id": downstream})):
            return False
    return genuine(data)


def _is_copy(one: LoggedDecision, earlier: Iterable[LoggedDecision]) -> bool:
    """Whether an entry has the signature of an earlier one: a signature counts once."""
    id = _act_of(one)
    return id is not None and any(_act_of(each) == id for each in earlier)


def _act_of(one: LoggedDecision) -> object:
    signature = one.data.get("signature")
    return signature.get("decision_id") if isinstance(signature, Mapping) else None


def _pin_first(db: Database, first: ToolsPinned, at: datetime) -> None:
    known = gateway.decisions(db, first.name)
    if gateway.is_pinned(db, first.name) or any(each.kind.startswith("tools_") for each in known):
        return
    gateway.save_pins(db, first.name, _allowed(first.name, first.pins, at, FIRST_USE, None))
    gateway.note_pinned(db, first.name, at)
    names = [each.name for each in first.pins]
    data = {"downstream": first.name, "tools": {each.name: each.sha256 for each in first.pins}}
    audit.record(
        db, at, "tools_pinned", None, "intercom", f"{count(len(names), 'tool')} of {first.name}, on first use", data
    )


def _allow(db: Database, downstream: str, changes: Changes, decided: Decided, card_id: str) -> None:
    pins = (*changes.unchanged, *(each.after for each in changes.changed), *changes.added)
    allowed = _allowed(downstream, pins, decided.at, decided.by, card_id)
    kept = {each.tool for each in allowed}
    removed = [each.tool for each in gateway.pins_of(db, downstream) if each.tool not in kept]
    gateway.save_pins(db, downstream, allowed, removed)
    gateway.note_pinned(db, downstream, decided.at)
    tools = {each.name: each.sha256 for each in pins}
    _record(db, "tools_accept", downstream, decided, card_id, {"sha256": changes_hash(changes), "tools": tools})


def _reject(db: Database, downstream: str, sha256: str, decided: Decided, card_id: str) -> None:
    gateway.note_rejected(db, downstream, sha256)
    _record(db, "tools_reject", downstream, decided, card_id, {"sha256": sha256})


def _record(
    db: Database, kind: str, downstream: str, decided: Decided, card_id: str, more: Mapping[str, object]
) -> None:
    data = {
        "request_id": card_id,
        "downstream": downstream,
        "channel": decided.channel,
        "origin": None if decided.origin is None else decided.origin.to_data(),
        "signature": signature_data(decided.signature),
        **more,
    }
    audit.record(db, decided.at, kind, None, decided.by, f"the tools of {downstream}", data)


def _allowed(
    downstream: str, pins: Iterable[Pin], at: datetime, by: str, decision_id: str | None
) -> tuple[AllowedTool, ...]:
    return tuple(AllowedTool(downstream, each.name, each.definition, each.sha256, at, by, decision_id) for each in pins)
