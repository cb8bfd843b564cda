"""`agent-intercom-ctl audit`: verifies and exports the audit log from the database, with or without a server."""

from __future__ import annotations

import base64
import json
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from intercom.cli.ctl_text import count, one_line
from intercom.local import config_file, operator_keys
from intercom.local.operator_keys import PublicKey
from intercom.local.places import Places
from intercom.model import signing
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject
from intercom.store import audit_chain
from intercom.store.audit_chain import Anchor, Entry, Verification, entries, head, verify

if TYPE_CHECKING:
    from argparse import Namespace

DONE, FAULTY = 0, 1


def audit(where: Places, options: Namespace) -> int:
    """Run `audit verify` or `audit export`. Returns the exit code."""
    database = _database(where, options.config)
    file = Path(where.audit_anchor_file)
    try:
        if options.act == "export":
            return _export(database)
        if options.file is not None:
            return _shown(verify_export(Path(options.file), audit_chain.read_anchors(file, database)), options.json)
        found = audit_chain.examine(database, file)
        _check_signatures(found, database, where)
        return _shown(found, options.json)
    except audit_chain.AnchorError as error:
        raise IntercomError(str(error), code="audit") from None
    except sqlite3.Error as error:
        raise IntercomError(
            f"the audit log in {database} cannot be read ({error}): start the server once, which brings it up to date",
            code="database",
        ) from None


def _database(where: Places, config: str | None) -> Path:
    database = config_file.database_path(config_file.load(None if config is None else Path(config)), where)
    if not database.is_file():
        raise IntercomError(f"there is no database at {database}: no server has run here yet", code="not_found")
    return database


def _export(database: Path) -> int:
    """Print every entry as a JSON line, and the head as the last line."""
    with closing(audit_chain.connect(database)) as db:
        db.execute("begin")
        for entry in entries(db):
            print(json.dumps(entry._asdict(), sort_keys=True))
        newest = head(db)
        known = {} if newest is None else {"sequence": newest.sequence, "hash": newest.hash, "at": newest.at}
        print(json.dumps({"head": known, "database": str(database)}, sort_keys=True))
    return DONE


def verify_export(file: Path, anchors: list[Anchor]) -> Verification:
    """Verify a file written by `audit export`: its hash chain, its head, and the anchors. Raises IntercomError if the
    file cannot be read or has another format."""
    db = sqlite3.connect(":memory:")
    with closing(db):
        db.executescript(
            "create table audit (id integer primary key autoincrement, at, kind, session_id, who, summary, data,"
            " previous, hash); create table approval_request (id, status, verdict, verdict_id, decided_by,"
            " decided_via, proposal_hash); create table apply_journal (request_id, state)"
        )
        newest: JsonObject | None = None
        seen: list[int] = []
        try:
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if "head" in entry:
                    newest = entry["head"]
                    continue
                seen.append(int(entry["id"]))
                db.execute(
                    f"insert into audit values ({', '.join('?' * len(Entry._fields))})",
                    [entry[name] for name in Entry._fields],
                )
        except OSError as error:
            raise IntercomError(f"{file} cannot be read ({(error.strerror or '').lower()})", code="not_found") from None
        except (ValueError, KeyError, TypeError, sqlite3.Error):
            raise IntercomError(f"{file} is not what audit export writes", code="invalid_arguments") from None
        found = verify(db, anchors)
        if seen != sorted(seen):
            found.add(None, "its lines are not in their order")
        if newest is None:
            found.add(None, "it ends without a head: lines were cut off")
        elif newest and (found.head is None or found.head.hash != newest.get("hash")):
            found.add(None, f"its head is entry {newest.get('sequence')}, and it ends with another: lines were cut off")
        return found


def _check_signatures(found: Verification, database: Path, where: Places) -> None:
    """Add a fault to `found` for each approval without a genuine signature while an operator key counted."""
    with closing(audit_chain.connect(database)) as db:
        keys = _keys(db, found)
        if not keys:
            return
        about = "case when json_valid(data) then json_extract(data, '$.request_id') end"
        # What was decided before a decision was taken back is of no signature that is stored now.
        back = f"select max(id) as id, {about} as about from audit where kind = '{audit_chain.TAKEN_BACK}' group by 2"
        rows = db.execute(
            "select approval_request.id, verdict, verdict_id, decided_via, decided_text, signature, entry.id, entry.at"
            f" from approval_request join (select id, at, {about} as about from audit where kind = 'decided') as entry"
            f" on entry.about = approval_request.id left join ({back}) as back on back.about = approval_request.id"
            " where status in ('approved', 'consumed') and entry.id > coalesce(back.id, 0) and entry.at >= ?"
            " order by entry.id",
            (min(key.added for key in keys.values()),),
        ).fetchall()
    channels: dict[str, tuple[str, str] | None] = {}
    for id, decision, decision_id, channel, text, stored, entry, when in rows:
        at = str(when)
        if not any(key.added <= at and (key.revoked is None or at < key.revoked) for key in keys.values()):
            continue
        signature = _data(stored)
        if not signature:
            found.add(entry, f"request {id} was approved on {channel} without a signature, though there was a key")
            continue
        said = {name: signature.get(name) for name in signing.STATED}
        if (said["request_id"], said["decision"], said["decision_id"], said["text"]) != (
            id,
            decision,
            decision_id,
            text,
        ):
            found.add(entry, f"the signature of request {id} is for another decision")
            continue
        if not signing.is_of_channel(str(said["method"]), str(channel)):
            found.add(entry, f"the signature of request {id} is not of {channel}, where it was approved")
            continue
        if said["method"] == signing.CHANNEL:
            # This signature only marks the channel's decisions: a process that can read this key can sign too.
            if channel not in channels:
                channels[channel] = _channel_key(where, channel)
            mine = channels[channel]
            if mine is None or said["key_id"] != mine[0]:
                found.add(entry, f"request {id} is signed with another key than that of {channel}")
                continue
            public = mine[1]
        elif (key := keys.get(str(said["key_id"]))) is None:
            found.add(entry, f"request {id} is signed with key {said['key_id']}, which was never enrolled")
            continue
        elif not key.is_signed:
            found.add(
                entry, f"request {id} is signed with key {said['key_id']}, which no key that counted has enrolled"
            )
            continue
        elif key.revoked is not None and key.revoked <= at:
            found.add(entry, f"request {id} is signed with key {said['key_id']}, which was revoked before")
            continue
        else:
            public = key.public
        value, method = str(signature.get("value")), str(said["method"])
        if not operator_keys.verifies_decision(public, method, value, signing.statement(said)):
            found.add(entry, f"the signature of request {id} is not genuine")


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
    """An operator key, the time from which it counted, and the time of its revocation. `is_signed` says whether its
    enrolment is signed by an operator key whose own enrolment is, or by itself if no key counted then."""

    public: str
    name: str
    added: str
    by: str
    revoked: str | None = None
    is_signed: bool = False


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
                keys[id] = evolve(known, revoked=known.revoked or act.when)
                revoked.add(id)
            else:
                found.add(entry, f"operator key {id} is marked as revoked without a signature")
            continue
        if entry is not None and id not in table:
            found.add(entry, f"operator key {id} was enrolled, and it was removed from the database")
        if entry is not None and id in table and table[id][0] != act.public:
            found.add(entry, f"operator key {id} was exchanged in the database for another")
        key = known or _Enrolled(act.public, act.name, act.when, act.by)
        counting = {
            each
            for each, other in keys.items()
            if other.is_signed and each not in revoked and not _is_passkey(other.public)
        }
        public = act.public if not counting and act.by == id else keys[act.by].public if act.by in counting else None
        is_signed = public is not None and _is_genuine("add", public, key, act) and _id_of(act.public) == id
        keys[id] = evolve(key, is_signed=key.is_signed or is_signed)
    # A passkey goes with the key that has enrolled it.
    for id, key in keys.items():
        ended = keys[key.by].revoked if _is_passkey(key.public) and key.by in keys else None
        if ended is not None:
            keys[id] = evolve(key, revoked=min(ended, key.revoked or ended))
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
    """An enrolment or a revocation. `entry` is its entry in the log, None if it is only a row of the table. `when` is
    the time of that entry."""

    entry: int | None
    when: str
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
    for entry, at, who, kind, data in db.execute(
        "select id, at, who, kind, data from audit where kind in ('operator_key_added', 'operator_key_revoked')"
        " order by id"
    ):
        said = {name: str(part) for name, part in _data(data).items()}
        id = said.get("key_id", "")
        name = table[id][1] if id in table else "" if who == id else str(who)
        signed = id, said.get("at", ""), said.get("by", ""), said.get("signature", "")
        is_revocation = kind == "operator_key_revoked"
        acts.append(_KeyAct(entry, str(at), *signed, said.get("public", ""), name, is_revocation))
    added = {act.id for act in acts if not act.is_revocation}
    ended = {act.id for act in acts if act.is_revocation}
    for id, (public, name, at, by, signature, revoked_at, revoked_by, revocation) in table.items():
        if id not in added:
            acts.append(_KeyAct(None, at, id, at, by, signature, public, name))
        if revoked_at and id not in ended:
            acts.append(_KeyAct(None, revoked_at, id, revoked_at, revoked_by, revocation, is_revocation=True))
    return acts


def _is_genuine(action: str, signer: str, key: _Enrolled, act: _KeyAct) -> bool:
    said = signing.key_statement(action, public=key.public, name=key.name, at=act.at, by=act.by)
    return operator_keys.verifies(signer, act.signature, said)


def _data(text: str | None) -> JsonObject:
    try:
        data = json.loads(text or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _shown(found: Verification, as_json: bool) -> int:
    if as_json:
        print(json.dumps(_as_data(found)))
        return FAULTY if found.faults else DONE
    for fault in found.faults:
        about = "" if fault.entry is None else f"entry {fault.entry}: "
        # The text quotes what others wrote; control characters in it must not hide the fault.
        print(one_line(f"{about}{fault.text}"), file=sys.stderr)
    if found.more:
        print(f"and {found.more} more", file=sys.stderr)
    if found.faults:
        print(
            "the audit log does not hold: keep the database and audit.anchor as they are, and look into it",
            file=sys.stderr,
        )
        return FAULTY
    if found.head is None:
        print("the audit log is empty")
        return DONE
    old = f", {found.unchained} of them from before the chain" if found.unchained else ""
    print(f"{count(found.entries, 'entry', 'entries')}{old}: each follows the one before")
    decisions, anchors = count(found.decisions, "decision"), count(found.anchors, "anchor")
    print(f"{decisions}, each with its entry; {anchors}, each in its place")
    for entry, at in found.begun_again:
        print(
            one_line(
                f"the file of anchors was begun again with entry {entry}, {at}: only posted heads reach further back"
            )
        )
    print(f"head: entry {found.head.sequence}, {found.head.hash}, {found.head.at}")
    return DONE


def _as_data(found: Verification) -> JsonObject:
    newest = found.head
    return {
        "ok": not found.faults,
        "entries": found.entries,
        "before_the_chain": found.unchained,
        "decisions": found.decisions,
        "anchors": found.anchors,
        "anchors_begun_again": [{"entry": entry, "at": at} for entry, at in found.begun_again],
        "head": None if newest is None else {"sequence": newest.sequence, "hash": newest.hash, "at": newest.at},
        "faults": [{"entry": fault.entry, "text": fault.text} for fault in found.faults],
        "more_faults": found.more,
    }
