"""The audit log becomes a chain: every entry has the hash of the one before, and its own over all its columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.store.audit_chain import COLUMNS, DECIDED, GENESIS, STARTED, entry_hash


def apply(db: Database) -> None:
    db.execute("alter table audit add column previous text")
    db.execute("alter table audit add column hash text")
    names = [name for name in COLUMNS if name != "previous"]
    previous, first, last, count = GENESIS, None, 0, 0
    for row in db.execute(f"select {', '.join(names)} from audit order by id").fetchall():
        entry = dict(zip(names, row, strict=True)) | {"previous": previous}
        hashed = entry_hash(entry)
        db.execute("update audit set previous = ?, hash = ? where id = ?", (previous, hashed, entry["id"]))
        previous, first, last, count = hashed, entry["id"] if first is None else first, entry["id"], count + 1
    if first is None:
        db.execute("delete from sqlite_sequence where name = 'audit'")
        return
    data = {"first": first, "through": last, "entries": count, "decided_before": _decided_without_entry(db)}
    started = {
        "id": last + 1,
        "at": clock.to_text(datetime.now(UTC)),
        "kind": STARTED,
        "session_id": None,
        "who": "intercom",
        "summary": f"{count} entries from before the chain were taken into it as they were",
        "data": json.dumps(data, sort_keys=True),
        "previous": previous,
    }
    db.execute(
        f"insert into audit ({', '.join(COLUMNS)}, hash) values ({', '.join('?' * len(COLUMNS))}, ?)",
        (*(started[name] for name in COLUMNS), entry_hash(started)),
    )


def _decided_without_entry(db: Database) -> list[str]:
    """Requests whose decision's entry went by age, or never was: the chain can vouch for no decision about them."""
    kinds = ", ".join(f"'{kind}'" for kind in DECIDED)
    found = db.execute(
        "select id from approval_request where status in ('approved', 'rejected', 'consumed')"
        f" and id not in (select json_extract(data, '$.request_id') from audit where kind in ({kinds})"
        " and json_extract(data, '$.request_id') is not null) order by id"
    )
    return [str(row[0]) for row in found.fetchall()]
