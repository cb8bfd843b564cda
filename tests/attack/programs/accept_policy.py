"""Says in the database that the policy of a workspace was accepted: `accept_policy.py DATABASE ROOT`."""

import hashlib
import os
import sqlite3
import sys

database, root = sys.argv[1], os.path.realpath(sys.argv[2])
with open(os.path.join(root, ".intercom/settings.json"), "rb") as file:
    text = file.read()
known = {
    "workspace_root": root,
    "root": root,
    "content_hash": hashlib.sha256(text).hexdigest(),
    "hash": hashlib.sha256(text).hexdigest(),
    "sha": hashlib.sha256(text).hexdigest(),
    "sha256": hashlib.sha256(text).hexdigest(),
    "accepted": 1,
    "verdict": "accept",
    "content": text.decode(),
    "text": text.decode(),
    "status": "accepted",
    "state": "accepted",
    "accepted_by": "root",
    "decided_by": "root",
    "decided_via": "ctl",
    "via": "ctl",
}
db = sqlite3.connect(database, timeout=10)
for (table,) in db.execute("select name from sqlite_master where type = 'table' and name like '%polic%'").fetchall():
    row = {}
    for _, name, kind, required, default, _ in db.execute(f"pragma table_info({table})"):
        if name in known:
            row[name] = known[name]
        elif name.endswith("_at") or name == "at":
            row[name] = "2026-11-23T00:00:00.000000+00:00"
        elif required and default is None and "int" not in kind.lower():
            row[name] = "forged"
    db.execute(
        f"insert or replace into {table} ({', '.join(row)}) values ({', '.join('?' * len(row))})", tuple(row.values())
    )
db.commit()
