"""Grants, and what the audit log says of them: uses, revocations, and agents that took their session over.

A row holds what a person granted, and nothing that changes by use: a row that is reset or restored must not give uses
back. So each use is an entry of the audit log, and the entries are counted.
"""

from __future__ import annotations

from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.decision import SignedCommand, signed_command_from_text
from intercom.model.errors import InvalidArguments
from intercom.model.grant import Grant, GrantKind, GrantScope
from intercom.model.json_types import Json
from intercom.store import audit, rows
from intercom.store.audit_chain import entry_data
from intercom.store.rows import Codec, Table
from intercom.store.schema_changes import GRANT_ENTRIES

#: The kinds of the audit entries about grants.
MADE, USED, REVOKED = "grant_made", "grant_used", "grant_revoked"


def _scope(text: str) -> GrantScope:
    """Return the scope; one that covers nothing if the text is not what the server writes."""
    try:
        return GrantScope.from_text(text)
    except InvalidArguments:
        return GrantScope(GrantKind.TOOL)


class Grants(Table[Grant]):
    """The grants that people made."""

    def of_session(self, db: Database, session_id: str) -> tuple[Grant, ...]:
        """Return the grants of a session that are not revoked, oldest first. Some may be over."""
        return self.select(db, "session_id = ? and revoked_at is null order by created_at, rowid", (session_id,))

    def listed(self, db: Database, session_id: str | None, limit: int) -> tuple[Grant, ...]:
        """Return the newest `limit` grants, oldest first; of one session, or of all."""
        where = "(:session is null or session_id = :session) order by created_at desc, rowid desc limit :limit"
        return self.select(db, where, {"session": session_id, "limit": limit})[::-1]

    def revoke(self, db: Database, id: str, by: str, at: datetime) -> bool:
        """Revoke a grant. Returns False if it was revoked before."""
        return self.update(db, "id = :id and revoked_at is null", {"id": id}, revoked_at=at, revoked_by=by) > 0


grants = Grants(
    "grant",
    Grant,
    names={"by": "granted_by", "channel": "granted_via", "at": "created_at", "signed": "signature"},
    codecs={
        "scope": Codec(GrantScope.to_text, _scope),
        "signed": Codec(rows.json_codec(SignedCommand).write, signed_command_from_text),
        # Another program may have changed a row: it then counts for nothing, and hides no other.
        "at": Codec(clock.to_text, audit.instant),
        "revoked_at": Codec(clock.to_text, audit.instant),
    },
)


@frozen
class GrantUse:
    """One use of a grant. `use` names what it let pass: a request, or a hook's call. `key` and `turn` are those of the
    operation that a hook asked about, and `slot` is the hook."""

    use: str
    key: str = ""
    turn: str = ""
    slot: str = ""


@frozen
class GrantHistory:
    """What the audit log says of a grant. `made` is the id of the entry that made it, None if there is none. `latest`
    is the latest time of any entry since: the clock must not run behind it. `is_adopted` says that another agent took
    the session over, `is_changed` that the row is not what was made."""

    made: int | None = None
    uses: tuple[tuple[GrantUse, datetime], ...] = ()
    is_revoked: bool = False
    is_adopted: bool = False
    is_changed: bool = False
    latest: datetime | None = None

    @property
    def names(self) -> frozenset[str]:
        """The names of all uses."""
        return frozenset(use.use for use, _ in self.uses)


def history(db: Database, grant: Grant) -> GrantHistory:
    """Return what the audit log says of a grant."""
    found = rows.every(
        db,
        f"select id, kind, at, data from audit where {GRANT_ENTRIES} and session_id = ? order by id",
        (grant.session_id,),
    )
    made: int | None = None
    uses: list[tuple[GrantUse, datetime]] = []
    is_revoked = is_changed = False
    for row in found:
        data = entry_data(row["data"])
        if data.get("grant_id") != grant.id:
            continue
        if row["kind"] == MADE and made is None:
            made, expected = row["id"], entry_of(grant)
            is_changed = expected != {name: data.get(name) for name in expected}
        elif row["kind"] == USED:
            named = (str(data.get(name, "")) for name in ("use", "key", "turn", "slot"))
            uses.append((GrantUse(*named), audit.instant(row["at"])))
        elif row["kind"] == REVOKED:
            is_revoked = True
    if made is None:
        return GrantHistory(None, tuple(uses), is_revoked)
    adopted = "select 1 from audit where session_id = ? and kind = 'session_adopted' and id > ? limit 1"
    is_adopted = rows.one(db, adopted, (grant.session_id, made)) is not None
    latest = rows.value(db, "select max(at) from audit where id >= ?", (made,))
    return GrantHistory(
        made, tuple(uses), is_revoked, is_adopted, is_changed, None if latest is None else audit.instant(latest)
    )


def record_use(db: Database, grant: Grant, use: GrantUse, title: str, at: datetime) -> None:
    """Record a use, in the transaction of what it lets pass."""
    data = {"grant_id": grant.id, "use": use.use, "key": use.key, "turn": use.turn, "slot": use.slot}
    audit.record(db, at, USED, grant.session_id, "grant", title, data)


def all_made(db: Database, session_id: str | None = None) -> tuple[Grant, ...]:
    """Return the grants that were made in a session, or in all, oldest first, whether or not they are over. They are as
    the log says that they were made: a row may have been changed, or removed for a while. Only the row has their title
    and their signature."""
    mine = "session_id is not null" if session_id is None else "session_id = :session"
    # With `order by id` SQLite would read the whole log, and not the index of these entries.
    found = rows.every(
        db,
        f"select session_id, who, data from audit where {GRANT_ENTRIES} and kind = :made and {mine} order by +id",
        {"made": MADE, "session": session_id},
    )
    return tuple(grant for row in found if (grant := _of_entry(row)) is not None)


def _of_entry(row: rows.Row) -> Grant | None:
    """Return the grant of an entry; None if no grant can have the id that it names."""
    data = entry_data(row["data"])
    id, seconds, uses = (data.get(name) for name in ("grant_id", "seconds", "uses"))
    if not isinstance(id, str) or not id.isascii():
        return None
    return Grant(
        id=id,
        session_id=row["session_id"],
        scope=_scope(str(data.get("scope"))),
        seconds=seconds if isinstance(seconds, int) else 0,
        uses=uses if isinstance(uses, int) else 0,
        at=audit.instant(str(data.get("from"))),
        by=str(row["who"]),
        channel=str(data.get("channel")),
        request_id=str(data.get("request_id")),
        title="",
    )


def record_end(db: Database, grant: Grant, by: str, channel: str, origin: Json, at: datetime) -> bool:
    """Revoke a grant, and record who did so. `grant` is as the log has it; no row is needed, because one that was
    removed could be put back. `origin` is the data of where the act came from. Returns False, and records nothing, if
    the log has that already. A row alone does not say so: it could be reset later."""
    is_new = not history(db, grant).is_revoked
    grants.revoke(db, grant.id, by, at)
    if is_new:
        data = {"grant_id": grant.id, "channel": channel, "origin": origin}
        audit.record(db, at, REVOKED, grant.session_id, by, grant.scope.sentence(), data)
    return is_new


def entry_of(grant: Grant) -> dict[str, object]:
    """Return what the audit entry of a new grant holds."""
    return {
        "grant_id": grant.id,
        "request_id": grant.request_id,
        "scope": grant.scope.to_text(),
        "seconds": grant.seconds,
        "uses": grant.uses,
        "channel": grant.channel,
        "from": clock.to_text(grant.at),
        "until": clock.to_text(grant.until),
    }
