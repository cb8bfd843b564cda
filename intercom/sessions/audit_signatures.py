"""The signatures of recorded acts, and the operator keys that they are verified with, as the log has them.

They are read from the database and from the server's state directory, with or without a server.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from attrs import evolve, frozen

from intercom.local import operator_keys
from intercom.local.operator_keys import PublicKey
from intercom.local.places import Places
from intercom.model import signing
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.grant import seconds_of, uses_of
from intercom.model.json_types import Json, JsonObject
from intercom.model.session import id_of_act
from intercom.sessions.request_kinds import AUTOMATIC, ON_ALERT
from intercom.store import audit_chain
from intercom.store.audit_chain import Verification


def verify_log(database: Path, places: Places) -> Verification:
    """Verify the whole audit log: its chain, the heads that are kept outside, and the signatures. Blocks: the time
    grows with the log. Raises AnchorError, and sqlite3.Error if the file is not our database."""
    found = audit_chain.examine(database, Path(places.audit_anchor_file))
    check_signatures(found, database, places)
    return found


def check_signatures(found: Verification, database: Path, where: Places) -> None:
    """Add a fault to `found` for each approval without a genuine signature while an operator key counted, for each
    other act that has to be signed and is not, and for each recorded signature that is not genuine.

    Whether a key counted follows from the order of the entries, which are chained. The program that writes one
    chooses its time."""
    with closing(audit_chain.connect(database)) as db:
        keys = _keys(db, found)
        if not keys:
            return
        checks = _Checks(keys, where, {})
        entries = _entries(db, found, checks)
        checked = _check_approvals(db, found, checks, entries)
        _check_entries(db, found, checks, entries, checked)
        _check_instructions(db, found, checks, entries)


def _check_approvals(db: sqlite3.Connection, found: Verification, checks: _Checks, entries: list[_Entry]) -> set[int]:
    """Check the approvals that are in force. Returns their entries in the log."""
    rows = db.execute(
        "select id, verdict, verdict_id, decided_via, decided_text, signature from approval_request"
        " where status in ('approved', 'consumed')"
    )
    approved = {row[0]: row[1:] for row in rows}
    # The row has the signature of the last decision. Earlier ones, which were taken back, are not compared with it.
    back = [entry for entry in entries if entry.kind == audit_chain.TAKEN_BACK]
    ended = {_text(entry.data.get("request_id")): entry.id for entry in back}
    taken_back = {(_text(entry.data.get("request_id")), _text(entry.data.get("verdict_id"))) for entry in back}
    checked: set[int] = set()
    for entry in entries:
        id = _text(entry.data.get("request_id"))
        if entry.kind != "decided" or id not in approved or entry.id <= ended.get(id, 0):
            continue
        checked.add(entry.id)
        if checks.is_required(entry.id):
            judge = partial(_fault_of_approval, checks, entry.id, id, approved[id], taken_back)
            _add_fault(found, entry.id, judge)
    return checked


def _fault_of_approval(
    checks: _Checks, entry: int, id: str, row: tuple[Json, ...], taken_back: set[tuple[str, str]]
) -> str | None:
    decision, decision_id, channel, text, stored = row
    signature = _data(stored)
    if (id, decision_id) in taken_back:
        return f"request {id} was approved by a decision that was taken back"
    if not signature:
        return f"request {id} was approved on {channel} without a signature, though there was a key"
    said = [signature.get(name) for name in ("request_id", "decision", "decision_id", "text")]
    if said != [id, decision, decision_id, text]:
        return f"the signature of request {id} is for another decision"
    return checks.fault(signature, str(channel), entry, f"request {id}", "approved")


def _add_fault(found: Verification, entry: int, judge: Callable[[], str | None]) -> None:
    """Add the fault that is found in what an entry is about, if any. Another program may have put anything
    anywhere: what cannot be judged is a fault of this entry, and does not end the verification."""
    try:
        fault = judge()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        fault = "it cannot be verified: what it is about is not what the server writes"
    if fault is not None:
        found.add(entry, fault)


#: The commands that are signed, by the kind of their entry.
_COMMANDS = {"grant_made": "grant", audit_chain.TAKEN_BACK: "take-back", "downstream_enabled": "gateway-enable"}
#: What the signature of a decision or a command says. That of `decided` says what the entry does.
_SAYS = {
    "policy_accept": ("accept",),
    "policy_reject": ("reject",),
    "tools_accept": ("approve", "accept"),
    "tools_reject": ("reject",),
    **{kind: (command,) for kind, command in _COMMANDS.items()},
}
#: What people do that has to be signed.
_MUST_BE_SIGNED = ("decided", *_SAYS)
#: What people tell agents. The signature is in the message's row.
_MESSAGES = ("steer", "task", "nudge")
_LONGEST_ID = 128
#: Where an entry names what it is about.
_SUBJECTS = ("grant_id", "request_id", "restore_id", "downstream")


def _check_entries(
    db: sqlite3.Connection, found: Verification, checks: _Checks, entries: list[_Entry], checked: set[int]
) -> None:
    """Check the signatures that the log's own entries have: rejections, answers, policies, grants, what was taken
    back, what was enabled. Each is for the act of its entry, and for no other entry. `checked` are entries whose
    signature was verified before."""
    used: dict[bytes, int] = {}
    for entry in entries:
        if checks.is_required(entry.id):
            _add_fault(found, entry.id, partial(_fault_of_entry, db, checks, entry, entry.id in checked, used))


def _fault_of_entry(
    db: sqlite3.Connection, checks: _Checks, entry: _Entry, is_checked: bool, used: dict[bytes, int]
) -> str | None:
    signature, channel = entry.data.get("signature"), entry.channel
    if not isinstance(signature, dict):
        is_missing = entry.kind in _MUST_BE_SIGNED and not is_checked
        return f"{entry.what} on {channel} is without a signature, though there was a key" if is_missing else None
    # The same signature can be written in other ways; what was signed cannot.
    signed = signing.statement({name: signature.get(name) for name in signing.STATED})
    if (first := used.setdefault(signed, entry.id)) != entry.id:
        return f"the signature of {entry.what} is that of entry {first}, and counts once"
    if is_checked:
        return None
    if not _is_for_entry(db, entry, signature):
        return f"the signature of {entry.what} is for another act"
    return checks.fault(signature, channel, entry.id, entry.what, "recorded")


def _entries(db: sqlite3.Connection, found: Verification, checks: _Checks) -> list[_Entry]:
    """Return the entries about what people sign, in order, and add a fault for each that cannot be read. SQLite reads
    less as JSON than Python: all of this module goes by one reading, so that no entry counts here and is not seen
    there."""
    kinds = ", ".join(f"'{kind}'" for kind in (*_MUST_BE_SIGNED, *_MESSAGES))
    entries: list[_Entry] = []
    for id, kind, summary, session, text in db.execute(
        "select id, kind, summary, session_id, data from audit"
        f" where kind in ({kinds}) or instr(data, 'signature') order by id"
    ):
        if (data := _read(text)) is not None:
            entries.append(_Entry(id, str(kind), str(summary), session, data))
        elif checks.is_required(id):
            found.add(id, f"what this {kind} says cannot be read, though there was a key")
    return entries


@frozen
class _Entry:
    """An entry of the log about something that people sign."""

    id: int
    kind: str
    summary: str
    session_id: str | None
    data: JsonObject

    @property
    def about(self) -> Json:
        return next((self.data[name] for name in _SUBJECTS if self.data.get(name)), None)

    @property
    def what(self) -> str:
        return f"{self.kind} of {self.about}"

    @property
    def channel(self) -> str | None:
        """Where it was done; None if the entry does not say, and no signature of a channel does."""
        channel, signature = self.data.get("channel"), self.data.get("signature")
        if channel is None and isinstance(signature, dict) and signature.get("method") == signing.CHANNEL:
            channel = str(signature.get("key_id")).partition(":")[0]
        return None if channel is None else str(channel)


def _is_for_entry(db: sqlite3.Connection, entry: _Entry, signature: JsonObject) -> bool:
    """Whether a signature says what its entry says: about what, which act, and with which content, as far as the entry
    has that. Whether it is genuine is another question."""
    says = (entry.summary,) if entry.kind == "decided" else _SAYS.get(entry.kind, (entry.kind.removeprefix("room_"),))
    about = "" if entry.kind in _COMMANDS else entry.about
    if signature.get("decision") not in says or signature.get("request_id") != about:
        return False
    subject, data = signature.get("subject"), entry.data
    match entry.kind:
        case "policy_accept" | "policy_reject":
            card = {"kind": "policy", "workspace_root": data.get("workspace_root"), "detail": data.get("sha256")}
            return subject == signing.card_subject(card)
        case "downstream_enabled":
            return subject == signing.command_subject("gateway-enable", {"id": entry.about})
        case audit_chain.TAKEN_BACK:
            # What was signed is a unique beginning of the id, and the decision that was meant if it was named. A forged
            # entry may have a long id.
            whole = str(entry.about)[:_LONGEST_ID]
            starts = [whole[:length] for length in range(len(whole), 0, -1)]
            meant: tuple[JsonObject, ...] = ({}, {"decision_id": data.get("verdict_id")})
            return any(
                subject == signing.command_subject("take-back", {"id": start, **more})
                for more in meant
                for start in starts
            )
        case "grant_made":
            return _is_for_grant(db, entry, signature)
    return True


def _is_for_grant(db: sqlite3.Connection, entry: _Entry, signature: JsonObject) -> bool:
    """Whether a signature is for the grant of this entry. A grant's id follows from that of the signed act. What was
    signed of it is in its row, and a grant without a row lets nothing pass."""
    data, act = entry.data, str(signature.get("decision_id"))
    id = act if signature.get("method") == signing.CHANNEL else id_of_act(f"{entry.channel}/{act}")
    if (data.get("grant_id"), data.get("from")) != (id, signature.get("at")):
        return False
    row = db.execute('select signature from "grant" where id = ?', (id,)).fetchone()
    if row is None:
        return True
    fields = _data(row[0]).get("fields")
    if not isinstance(fields, dict) or signature.get("subject") != signing.command_subject("grant", fields):
        return False
    text = {name: None if (part := fields.get(name)) is None else str(part) for name in ("duration", "uses")}
    try:
        lasts = seconds_of(text["duration"]), uses_of(text["uses"])
    except InvalidArguments:
        return False
    said = (fields.get("id"), fields.get("session"), fields.get("scope"), *lasts)
    return said == (data.get("request_id"), entry.session_id, data.get("scope"), data.get("seconds"), data.get("uses"))


def _check_instructions(db: sqlite3.Connection, found: Verification, checks: _Checks, entries: list[_Entry]) -> None:
    """Check what people told agents: the stored text is the one that was signed, and was signed for this message."""
    rows = db.execute("select id, kind, text, given_via, signature from instruction where given_via != ?", (AUTOMATIC,))
    messages = {row[0]: row[1:] for row in rows}
    for entry in entries:
        id = _text(entry.data.get("instruction_id"))
        if entry.kind not in _MESSAGES or id not in messages or not checks.is_required(entry.id):
            continue
        _add_fault(found, entry.id, partial(_fault_of_message, checks, entry.id, id, messages[id]))


def _fault_of_message(checks: _Checks, entry: int, id: str, row: tuple[Json, ...]) -> str | None:
    kind, text, via, stored = row
    signed, what = _data(stored), f"{kind} {id}"
    channel = str(via).removeprefix(ON_ALERT)
    signature, fields = signed.get("signature"), signed.get("fields")
    if not isinstance(signature, dict) or not isinstance(fields, dict):
        return f"{what} came on {channel} without a signature, though there was a key"
    subject = signing.command_subject(str(kind), fields)
    if [signature.get("decision"), signature.get("subject"), fields.get("text")] != [kind, subject, text]:
        return f"the signature of {what} is for another text"
    act = str(signature.get("decision_id"))
    if id != (act if signature.get("method") == signing.CHANNEL else id_of_act(f"{channel}/{act}")):
        return f"the signature of {what} is for another message"
    return checks.fault(signature, channel, entry, what, "recorded")


@frozen
class _Checks:
    """What signatures are verified with: the enrolled keys, and the server's keys of channels as far as they were
    read."""

    keys: dict[str, _Enrolled]
    places: Places
    channels: dict[str, tuple[str, str] | None]

    def is_required(self, entry: int) -> bool:
        """Whether a key counted when this entry was added, so that decisions had to be signed."""
        return any(key.since <= entry and not key.is_revoked_before(entry) for key in self.keys.values())

    def fault(self, signature: JsonObject, channel: str | None, entry: int, what: str, done: str) -> str | None:
        """Return why this signature of `what`, which was `done` in this entry on this channel, does not count; None if
        it does. A record that names no channel has None."""
        said = {name: signature.get(name) for name in signing.STATED}
        method, key_id = str(said["method"]), str(said["key_id"])
        if channel is not None and not signing.is_of_channel(method, channel):
            return f"the signature of {what} is not of {channel}, where it was {done}"
        if method == signing.CHANNEL and channel is not None:
            # This signature only marks the channel's decisions: a process that can read this key can sign too.
            if channel not in self.channels:
                self.channels[channel] = _channel_key(self.places, channel)
            mine = self.channels[channel]
            if mine is None or key_id != mine[0]:
                return f"{what} is signed with another key than that of {channel}"
            public = mine[1]
        elif (key := self.keys.get(key_id)) is None:
            return f"{what} is signed with key {key_id}, which was never enrolled"
        elif not key.is_signed:
            return f"{what} is signed with key {key_id}, which no key that counted has enrolled"
        elif key.is_revoked_before(entry):
            return f"{what} is signed with key {key_id}, which was revoked before"
        else:
            public = key.public
        value = str(signature.get("value"))
        if not operator_keys.verifies_decision(public, method, value, signing.statement(said)):
            return f"the signature of {what} is not genuine"
        return None


def _channel_key(where: Places, channel: str) -> tuple[str, str] | None:
    """Return the id and the public half of the server's key for a channel, or None if it cannot be read."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        secret = operator_keys.read_secret(operator_keys.channel_file(where, channel))
    except (OSError, IntercomError):
        return None
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    key = PublicKey(base64.b64encode(public).decode("ascii"))
    return f"{channel}:{key.id}", key.public


@frozen
class _Enrolled:
    """An operator key. It counted from the entry `since`, up to the entry `until`, None if it was not revoked.
    `is_signed` says whether its enrolment is signed by an operator key whose own enrolment is, or by itself if no key
    counted then."""

    public: str
    name: str
    by: str
    since: int
    until: int | None = None
    is_signed: bool = False

    def is_revoked_before(self, entry: int) -> bool:
        return self.until is not None and self.until <= entry


def _keys(db: sqlite3.Connection, found: Verification) -> dict[str, _Enrolled]:
    """Return the enrolled keys from the log and the key table. A row of the table is easily deleted, but the log is
    chained. A revocation counts only if a key signed it whose own enrolment is genuine."""
    table = {
        str(row[0]): tuple("" if part is None else str(part) for part in row[1:])
        for row in db.execute(
            "select id, public, name, added_at, added_by, added_signature, revoked_at, revoked_by, revoked_signature"
            " from operator_key order by rowid"
        )
    }
    keys: dict[str, _Enrolled] = {}
    revoked: set[str] = set()
    for act in _key_acts(db, table):
        id, entry = act.id, act.entry
        known = keys.get(id)
        if act.is_revocation:
            if known is None:
                continue
            signer = keys.get(act.by)
            if signer is not None and signer.is_signed and _is_genuine("revoke", signer.public, known, act):
                keys[id] = evolve(known, until=known.until or act.position)
                revoked.add(id)
            else:
                found.add(entry, f"operator key {id} is marked as revoked without a signature")
            continue
        if entry is not None and id not in table:
            found.add(entry, f"operator key {id} was enrolled, and it was removed from the database")
        if entry is not None and id in table and table[id][0] != act.public:
            found.add(entry, f"operator key {id} was exchanged in the database for another")
        key = known or _Enrolled(act.public, act.name, act.by, act.position)
        counting = {
            each
            for each, other in keys.items()
            if other.is_signed and each not in revoked and not _is_passkey(other.public)
        }
        public = act.public if not counting and act.by == id else keys[act.by].public if act.by in counting else None
        is_signed = public is not None and _is_genuine("add", public, key, act) and _id_of(act.public) == id
        # The time of a row that nobody signed is anybody's: decisions had to be signed from the first entry on.
        since = key.since if known or entry is not None or is_signed else 0
        keys[id] = evolve(key, since=since, is_signed=key.is_signed or is_signed)
    # A passkey goes with the key that has enrolled it.
    for id, key in keys.items():
        ended = keys[key.by].until if _is_passkey(key.public) and key.by in keys else None
        if ended is not None:
            keys[id] = evolve(key, until=min(ended, key.until or ended))
    return keys


def _id_of(public: str) -> str | None:
    try:
        return PublicKey.of(public, "key").id
    except IntercomError:
        return None


def _is_passkey(public: str) -> bool:
    return PublicKey(public).is_passkey


@frozen
class _KeyAct:
    """An enrolment or a revocation. `entry` is its entry in the log, None if it is only a row of the table. Then
    `position` is the first entry that is not older."""

    entry: int | None
    position: int
    id: str
    at: str
    by: str
    signature: str
    public: str = ""
    name: str = ""
    is_revocation: bool = False


def _key_acts(db: sqlite3.Connection, table: Mapping[str, tuple[str, ...]]) -> list[_KeyAct]:
    """Return everything that was done to operator keys, in the order of the log; what only the table has comes last."""
    acts: list[_KeyAct] = []
    for entry, who, kind, data in db.execute(
        "select id, who, kind, data from audit where kind in ('operator_key_added', 'operator_key_revoked') order by id"
    ):
        said = {name: _text(part) for name, part in _data(data).items()}
        id = said.get("key_id", "")
        name = table[id][1] if id in table else "" if who == id else str(who)
        signed = id, said.get("at", ""), said.get("by", ""), said.get("signature", "")
        is_revocation = kind == "operator_key_revoked"
        acts.append(_KeyAct(entry, entry, *signed, said.get("public", ""), name, is_revocation))
    added = {act.id for act in acts if not act.is_revocation}
    ended = {act.id for act in acts if act.is_revocation}
    for id, (public, name, at, by, signature, revoked_at, revoked_by, revocation) in table.items():
        if id not in added:
            acts.append(_KeyAct(None, _entry_since(db, at), id, at, by, signature, public, name))
        if revoked_at and id not in ended:
            position = _entry_since(db, revoked_at)
            acts.append(_KeyAct(None, position, id, revoked_at, revoked_by, revocation, is_revocation=True))
    return acts


def _entry_since(db: sqlite3.Connection, at: str) -> int:
    """Return the first entry that is not older than `at`; the next one, if all are."""
    end = "(select coalesce(max(id), 0) + 1 from audit)"
    # The row's text may be no UTF-8.
    stored = at.encode("utf-8", "surrogateescape")
    sql = f"select coalesce(min(id), {end}) from audit where at >= cast(? as text)"
    return int(db.execute(sql, (stored,)).fetchone()[0])


def _is_genuine(action: str, signer: str, key: _Enrolled, act: _KeyAct) -> bool:
    said = signing.key_statement(action, public=key.public, name=key.name, at=act.at, by=act.by)
    return operator_keys.verifies(signer, act.signature, said)


def _read(text: object) -> JsonObject | None:
    """Return the data of an entry or the signature of a row; None if it is not one JSON object that says each thing
    once. Another program may have stored anything there."""
    if not isinstance(text, str | bytes | None):
        return None
    try:
        data = json.loads(text or "{}", object_pairs_hook=_once)
    except (ValueError, TypeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _data(text: object) -> JsonObject:
    return _read(text) or {}


def _once(pairs: list[tuple[str, Json]]) -> JsonObject:
    """Return the object. Raises ValueError if it has a name twice: which of both counts depends on the reader."""
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
