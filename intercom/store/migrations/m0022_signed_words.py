"""Signed words: beside what an agent is to be told, the command that a person signed for it."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table instruction add column signature text")
    # Words count once: whether they were told before is looked for each time they are read.
    kinds = ", ".join(f"'{kind}_{end}'" for kind in ("nudge", "steer", "task") for end in ("delivered", "taken_back"))
    db.execute(f"create index idx_audit_words on audit (kind) where kind in ({kinds}, 'standby_ended')")
