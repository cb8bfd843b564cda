"""The schema's history: numbered steps, forward only, each applied once and recorded in `schema_version`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import DatabaseError
from intercom.store import rows
from intercom.store.migrations import (
    m0001_reference,
    m0002_verdicts,
    m0003_records,
    m0004_slack,
    m0005_children,
    m0006_tasks,
    m0007_permissions,
    m0008_steering,
    m0009_checkpoints,
    m0010_written,
    m0011_asked,
    m0012_origin,
    m0013_proposals,
    m0014_remarks,
    m0015_policies,
    m0016_replaced,
    m0017_agent_processes,
    m0018_signatures,
    m0019_masked,
    m0020_form,
    m0021_audit_chain,
    m0022_signed_words,
)


@frozen
class Migration:
    """`number` counts from 1 without gaps; `apply` runs inside a transaction."""

    number: int
    name: str
    apply: Callable[[Database], None]


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "reference", m0001_reference.apply),
    Migration(2, "verdicts", m0002_verdicts.apply),
    Migration(3, "records", m0003_records.apply),
    Migration(4, "slack", m0004_slack.apply),
    Migration(5, "children", m0005_children.apply),
    Migration(6, "tasks", m0006_tasks.apply),
    Migration(7, "permissions", m0007_permissions.apply),
    Migration(8, "steering", m0008_steering.apply),
    Migration(9, "checkpoints", m0009_checkpoints.apply),
    Migration(10, "written", m0010_written.apply),
    Migration(11, "asked", m0011_asked.apply),
    Migration(12, "origin", m0012_origin.apply),
    Migration(13, "proposals", m0013_proposals.apply),
    Migration(14, "remarks", m0014_remarks.apply),
    Migration(15, "policies", m0015_policies.apply),
    Migration(16, "replaced", m0016_replaced.apply),
    Migration(17, "agent_processes", m0017_agent_processes.apply),
    Migration(18, "signatures", m0018_signatures.apply),
    Migration(19, "masked", m0019_masked.apply),
    Migration(20, "form", m0020_form.apply),
    Migration(21, "audit_chain", m0021_audit_chain.apply),
    Migration(22, "signed_words", m0022_signed_words.apply),
)

LATEST = MIGRATIONS[-1].number


def version(db: Database) -> int:
    """The number of the newest step applied; 0 for an empty database.

    Raises DatabaseError when the file holds tables but no record of ours: it belongs to another program.
    """
    tables = set(rows.column(db, "select name from sqlite_master where type = 'table'"))
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise DatabaseError(
            "the database belongs to another program (it has no schema_version table);"
            " set [database] path to another file"
        )
    return rows.count(db, "select coalesce(max(version), 0) from schema_version")


def migrate(db: Database, at: datetime, steps: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the schema up to the last of `steps`, each step in a transaction of its own.

    Returns the number the database was at. Raises DatabaseError (code version_mismatch) for a database newer than this
    program, before anything is touched; on any failure the step at hand leaves nothing behind.
    """
    before = version(db)
    latest = steps[-1].number
    if before > latest:
        raise DatabaseError(
            f"the database was written by a newer version (schema {before}, this program knows {latest}); "
            "upgrade agent-intercom or set [database] path to another file",
            code="version_mismatch",
            found=before,
            known=latest,
        )
    for step in steps:
        if step.number <= before:
            continue
        with db.atomic():
            db.execute(
                "create table if not exists schema_version"
                " (version integer primary key, name text not null, applied_at text not null)"
            )
            step.apply(db)
            rows.insert(
                db,
                "schema_version",
                {"version": step.number, "name": step.name, "applied_at": clock.to_text(at)},
                conflict="do nothing",
            )
    return before
