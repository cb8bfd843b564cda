"""`agent-intercom-ctl audit`: verifies and exports the audit log from the database, with or without a server."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from intercom.cli.ctl_text import count, one_line
from intercom.local import config_file
from intercom.local.places import Places
from intercom.model.errors import IntercomError
from intercom.model.json_types import JsonObject
from intercom.operators.commands.json_forms import verification_entry
from intercom.sessions.audit_signatures import verify_log
from intercom.store import audit_chain
from intercom.store.audit_chain import Anchor, Entry, Verification, entries, head, verify

if TYPE_CHECKING:
    from argparse import Namespace

DONE, FAULTY = 0, 1


def audit(where: Places, options: Namespace) -> int:
    """Run `audit verify` or `audit export`. Returns the exit code."""
    database = _database(where, options.config)
    try:
        if options.act == "export":
            return _export(database)
        if options.file is not None:
            anchors = audit_chain.read_anchors(Path(where.audit_anchor_file), database)
            return _shown(verify_export(Path(options.file), anchors), options.json)
        return _shown(verify_log(database, where), options.json)
    except audit_chain.AnchorError as error:
        raise IntercomError(str(error), code="db") from None
    except sqlite3.Error as error:
        raise IntercomError(
            f"the audit log in {database} cannot be read ({error}): start the server once, which brings it up to date",
            code="db",
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


def _shown(found: Verification, as_json: bool) -> int:
    if as_json:
        print(json.dumps(verification_entry(found)))
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
