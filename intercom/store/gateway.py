"""What the gateway keeps in the database: its calls, as entries of the audit log, usage by day, pins and evidence.

The functions run in the caller's transaction. Those that read accept anything that another program stored in the log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from attrs import frozen

from intercom.model import clock
from intercom.model.json_types import Json, JsonObject
from intercom.store import audit, rows
from intercom.store.audit_chain import entry_data
from intercom.store.rows import Codec, Table
from intercom.store.schema_changes import GATEWAY_CALLS
from intercom.store.writer_messages import Database

#: The kind of a call's entry in the audit log. The index on these entries has it as a literal.
GATEWAY_CALL: Final = "gateway_call"


def _said(name: str) -> str:
    """Return SQL for the value under `name` in an entry's data; null if the data is not JSON."""
    return f"case when json_valid(data) then json_extract(data, '$.{name}') end"


# --- calls -----------------------------------------------------------------------------------------------------------


@frozen
class CallEntry:
    """An ended call, as the audit log takes it: `data` is its whole record, with its `id` in it.

    `day` is the day on whose usage of `downstream` it counts, with `cost` in millionths; None if it does not count,
    because it was never sent.
    """

    id: str
    session_id: str | None
    who: str
    summary: str
    data: Mapping[str, Json]
    downstream: str
    day: date | None
    cost: int


def record_calls(db: Database, at: datetime, calls: Sequence[CallEntry], after: int) -> int:
    """Add an entry for each call, and count their usage. Returns the id of the newest entry of a call.

    A call that has an entry with an id above `after` is skipped. So repeating this with the same `after` is safe, also
    if it is not known whether the first time was committed.
    """
    known = call_ids(db, after)
    used: dict[tuple[str, str], tuple[int, int]] = {}
    for call in calls:
        if call.id in known:
            continue
        after = audit.record(db, at, GATEWAY_CALL, call.session_id, call.who, call.summary, call.data)
        if call.day is not None:
            key = call.downstream, call.day.isoformat()
            number, cost = used.get(key, (0, 0))
            used[key] = number + 1, cost + call.cost
    for (downstream, day), (number, cost) in used.items():
        rows.insert(
            db,
            "gateway_usage",
            {"downstream": downstream, "day": day, "calls": number, "cost": cost},
            conflict="(downstream, day) do update set calls = calls + excluded.calls, cost = cost + excluded.cost",
        )
    return max(after, newest_call(db)) if known else after


def call_ids(db: Database, after: int) -> frozenset[str]:
    """Return the ids of the calls whose entries have an id above `after`."""
    found = rows.column(db, f"select {_said('id')} from audit where {GATEWAY_CALLS} and id > ?", (after,))
    return frozenset(each for each in found if isinstance(each, str))


def newest_call(db: Database) -> int:
    """Return the id of the newest entry of a call, 0 if there is none."""
    return rows.count(db, f"select coalesce(max(id), 0) from audit where {GATEWAY_CALLS}")


@frozen
class RecordedCall:
    """The record of a call, and the id of its entry in the audit log. The record is empty if it is unreadable."""

    entry: int
    record: JsonObject


def calls(
    db: Database, limit: int, *, after_entry: int | None = None, session_id: str | None = None, downstream: str = ""
) -> tuple[RecordedCall, ...]:
    """Return the newest `limit` calls, or the first `limit` whose entries have an id above `after_entry`; oldest first
    either way. They are those of one session and of one downstream, if these are given."""
    # One session has few entries of other kinds. The plus sign makes SQLite use the index on sessions.
    where = GATEWAY_CALLS if session_id is None else f"session_id = :session and +{GATEWAY_CALLS}"
    if downstream:
        where += f" and {_said('tool')} = :downstream"
    if after_entry is not None:
        where += " and id > :after"
    order = "desc" if after_entry is None else "asc"
    values = {"session": session_id, "downstream": downstream, "after": after_entry, "limit": limit}
    found = rows.every(db, f"select id, data from audit where {where} order by id {order} limit :limit", values)
    recorded = tuple(RecordedCall(row["id"], entry_data(row["data"])) for row in found)
    return recorded[::-1] if after_entry is None else recorded


# --- usage -----------------------------------------------------------------------------------------------------------


@frozen
class DayUsage:
    """What was used of a downstream on a day in UTC: calls, and their cost in millionths."""

    downstream: str
    day: date
    calls: int
    cost: int


_DATE = Codec(date.isoformat, date.fromisoformat)
_USAGE = Table("gateway_usage", DayUsage, key="downstream", codecs={"day": _DATE})


def usage_of(db: Database, downstream: str, day: date) -> DayUsage | None:
    """Return what was used of a downstream on this day, or on the next one if anything was: the clock may have been set
    back over midnight. None if nothing was. Later days do not count: the clock was wrong then."""
    days = (downstream, day.isoformat(), (day + timedelta(days=1)).isoformat())
    return _USAGE.first(db, "downstream = ? and day between ? and ? order by day desc", days)


# --- pins ------------------------------------------------------------------------------------------------------------


@frozen
class AllowedTool:
    """A tool of a downstream as it was allowed: `definition` is the canonical JSON of `pins.Pin`, `sha256` its hash.
    `decision_id` is None if no person was asked."""

    downstream: str
    tool: str
    definition: str
    sha256: str
    allowed_at: datetime
    allowed_by: str
    decision_id: str | None = None


_PINS = Table("gateway_pin", AllowedTool, key="downstream", conflict="(downstream, tool) do nothing")


def pins_of(db: Database, downstream: str) -> tuple[AllowedTool, ...]:
    """Return the allowed tools of a downstream, by name."""
    return _PINS.select(db, "downstream = ? order by tool", (downstream,))


def save_pins(db: Database, downstream: str, allowed: Iterable[AllowedTool], removed: Collection[str] = ()) -> None:
    """Save allowed tools in place of earlier ones with their names, and delete the pins of the tools `removed`. The
    caller records the decision in the audit log, in the same transaction."""
    changed = tuple(allowed)
    for name in (*removed, *(each.tool for each in changed)):
        db.execute("delete from gateway_pin where downstream = ? and tool = ?", (downstream, name))
    for each in changed:
        if each.downstream != downstream:
            raise ValueError(f"a pin of {each.downstream} is not one of {downstream}")
        _PINS.insert(db, each)


def is_pinned(db: Database, downstream: str) -> bool:
    """Whether the tools of a downstream were ever pinned, also if it had none then."""
    sql = "select count(*) from gateway_downstream where name = ? and pinned_at is not null"
    return rows.count(db, sql, (downstream,)) > 0


def note_pinned(db: Database, downstream: str, at: datetime) -> None:
    """Note that the tools of a downstream are pinned from now on."""
    rows.insert(
        db,
        "gateway_downstream",
        {"name": downstream, "pinned_at": clock.to_text(at)},
        conflict="(name) do update set pinned_at = excluded.pinned_at",
    )


def rejected(db: Database, downstream: str) -> str | None:
    """Return the hash of the offer that a person rejected last, or None."""
    found = rows.value(db, "select rejected_sha256 from gateway_downstream where name = ?", (downstream,))
    return None if found is None else str(found)


def note_rejected(db: Database, downstream: str, sha256: str) -> None:
    """Note that a person has rejected this offer."""
    rows.insert(
        db,
        "gateway_downstream",
        {"name": downstream, "rejected_sha256": sha256},
        conflict="(name) do update set rejected_sha256 = excluded.rejected_sha256",
    )


def disabled_by(db: Database, downstream: str) -> str | None:
    """Return who has disabled a downstream, or None."""
    found = rows.value(db, "select disabled_by from gateway_downstream where name = ?", (downstream,))
    return None if found is None else str(found)


def set_disabled(db: Database, downstream: str, by: str | None, at: datetime) -> None:
    """Note who has disabled a downstream; None enables it."""
    rows.insert(
        db,
        "gateway_downstream",
        {"name": downstream, "disabled_by": by, "disabled_at": None if by is None else clock.to_text(at)},
        conflict="(name) do update set disabled_by = excluded.disabled_by, disabled_at = excluded.disabled_at",
    )


#: The kinds of the entries about what people let a downstream do.
_TOOLS: Final = ("tools_pinned", "tools_accept")
_ENABLED: Final = ("downstream_enabled", "downstream_disabled")


@frozen
class LoggedDecision:
    """An entry of the audit log about a downstream: its `kind`, who made it, and its data, which may be anything."""

    kind: str
    who: str
    data: Mapping[str, Json]


def decisions(db: Database, downstream: str) -> tuple[LoggedDecision, ...]:
    """Return the entries of the audit log about the tools and the state of a downstream, oldest first."""
    kinds = (*_TOOLS, *_ENABLED)
    found = rows.every(
        db,
        f"select kind, who, data from audit where session_id is null and kind in ({rows.placeholders(kinds)})"
        f" and {_said('downstream')} = ? order by id",
        (*kinds, downstream),
    )
    return tuple(LoggedDecision(row["kind"], str(row["who"]), entry_data(row["data"])) for row in found)


def record_enabled(
    db: Database, downstream: str, enabled: bool, by: str, at: datetime, signature: Mapping[str, Json] | None = None
) -> bool:
    """Enable or disable a downstream for a person, with an entry in the audit log that has the signature. Returns False
    and records nothing if it is so already."""
    before = disabled_by(db, downstream)
    if (before is None) is enabled:
        return False
    set_disabled(db, downstream, None if enabled else by, at)
    done = "enabled" if enabled else "disabled"
    data = {"downstream": downstream, "signature": signature, **({"disabled_by": before} if before else {})}
    audit.record(db, at, f"downstream_{done}", None, by, f"{done} the downstream {downstream}", data)
    return True


def forget_pins(db: Database, downstream: str) -> int:
    """Delete the pins of a downstream that no longer exists. Returns how many there were."""
    return rows.affected(db, "delete from gateway_pin where downstream = ?", (downstream,))


# --- evidence --------------------------------------------------------------------------------------------------------


@frozen
class StoredEvidence:
    """The result of a call that is kept. `data` and `metadata` are JSON values, redacted."""

    id: str
    run_id: str
    invocation_id: str
    tool: str
    method: str
    at: datetime
    data: Json
    metadata: Mapping[str, Any]


#: Stores any JSON value as its text.
_JSON = Codec(rows.json_text, json.loads)


@frozen
class ListedEvidence:
    """A record without its data, which has `size` bytes as JSON."""

    id: str
    run_id: str
    invocation_id: str
    tool: str
    method: str
    at: datetime
    redacted: bool
    size: int


class EvidenceTable(Table[StoredEvidence]):
    """The evidence that is kept. `insert` returns False and changes nothing if its id is kept already."""

    def among(self, db: Database, ids: Sequence[str]) -> tuple[StoredEvidence, ...]:
        """Return the records with these ids. Any text may be asked for."""
        return self.select(db, f"id in ({rows.placeholders(ids)})", ids)

    def count_of_run(self, db: Database, run_id: str) -> int:
        """Return how many records a run has."""
        return rows.count(db, "select count(*) from gateway_evidence where run_id = ?", (run_id,))

    def newest(
        self, db: Database, limit: int, run_id: str = "", tool: str = "", method: str = ""
    ) -> tuple[ListedEvidence, ...]:
        """Return the newest `limit` records, newest first: of the runs whose id begins with `run_id`, of a downstream
        `tool` and of its tool `method`, if these are given."""
        conditions = {
            "run_id >= :run_id and run_id < :run_id || char(1114111)": run_id,
            "tool = :tool": tool,
            "method = :method": method,
        }
        where = " and ".join(each for each, value in conditions.items() if value) or "true"
        redacted = "case when json_valid(metadata) then json_extract(metadata, '$.redacted') end"
        found = rows.every(
            db,
            f"select id, run_id, invocation_id, tool, method, at, {redacted} as redacted, length(data) as size"
            f" from gateway_evidence where {where} order by at desc, id limit :limit",
            {"run_id": run_id, "tool": tool, "method": method, "limit": limit},
        )
        return tuple(
            ListedEvidence(**{**row, "at": clock.from_text(row["at"]), "redacted": bool(row["redacted"])})
            for row in found
        )


evidence = EvidenceTable("gateway_evidence", StoredEvidence, codecs={"data": _JSON})
