"""Edits the database by SQL: `forge.py DATABASE REQUEST CHANNEL [KIND]`."""

import sqlite3
import sys

database, request, channel = sys.argv[1:4]
kind = sys.argv[4] if len(sys.argv) > 4 else "decision"
db = sqlite3.connect(database, timeout=10)
now = "2026-11-23T00:00:00.000000+00:00"
columns = {row[1] for row in db.execute("pragma table_info(approval_request)")}
values = {
    "status": "approved",
    "verdict_id": f"forged/{request}",
    "verdict": "approve",
    "decided_by": "root",
    "decided_via": channel,
    "decided_at": now,
}
if kind == "policy":
    values["auto_rule"] = "file_pattern:write:**/*"
if kind == "copied":
    # Everything that a real decision of another request left in its row.
    found = db.execute(
        "select * from approval_request where status in ('approved', 'consumed') and id <> ? and decided_via = 'ctl'"
        " order by rowid desc limit 1",
        (request,),
    )
    names = [each[0] for each in found.description]
    row = found.fetchone()
    if row is None:
        sys.exit("there is no decision to copy")
    other = dict(zip(names, row, strict=True))
    values |= {name: other[name] for name in columns if name.startswith(("verdict", "decided"))}
    values["status"] = "approved"
db.execute(
    f"update approval_request set {', '.join(f'{name} = ?' for name in values)} where id = ?",
    (*values.values(), request),
)
if kind == "forgotten":
    # Whatever says that agents are agents, or that a key is needed.
    for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
        if any(word in table for word in ("agent_process", "operator_key", "terminal", "key")):
            db.execute(f"delete from {table}")
db.commit()
