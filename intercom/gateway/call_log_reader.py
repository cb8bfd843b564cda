"""The recorded calls of the gateway, as people see them: read from the database, with or without a server.

A record may be anything that another program stored in the log: nothing of it is relied upon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from attrs import define, field

from intercom.gateway.budgets import MICROS
from intercom.model.clock import from_text
from intercom.model.gateway_view import CallLine, CallTail
from intercom.store import gateway as stored
from intercom.store import requests, sessions
from intercom.store.gateway import RecordedCall
from intercom.store.writer_messages import Database

#: How many of the latest calls `sessions_and_agents` looks at for agents.
LOOKED_AT: Final = 500


def tail(db: Database, name: str | None = None, start: int | None = None, limit: int = 50) -> CallTail:
    """Return the first `limit` calls after the entry `start`; without it, the newest ones. They are those of the
    downstream `name`, if it is given."""
    found = stored.calls(db, limit, after_entry=start, downstream=name or "")
    about = _About(db)
    lines = tuple(_line(each, about) for each in found)
    return CallTail(lines, found[-1].entry if found else start or stored.newest_call(db))


def sessions_and_agents(db: Database) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the ids of all sessions, and the session of each agent in the latest calls."""
    records = [each.record for each in stored.calls(db, LOOKED_AT)]
    named = {_text(each, "agent_id"): _text(each, "run_id") for each in records}
    return sessions.ids(db), {agent: session for agent, session in named.items() if session}


@define
class _About:
    """What else the database says of calls: who decided, and which client a session has. Each is looked up once."""

    db: Database
    _deciders: dict[str, str | None] = field(factory=dict, init=False)
    _clients: dict[str, str] = field(factory=dict, init=False)

    def decider(self, request_id: str) -> str | None:
        if request_id not in self._deciders:
            request = requests.find(self.db, request_id)
            decided = None if request is None else request.decided
            self._deciders[request_id] = None if decided is None else f"{decided.by} ({decided.channel})"
        return self._deciders[request_id]

    def client(self, session_id: str) -> str:
        if session_id not in self._clients:
            self._clients[session_id] = sessions.client_name(self.db, session_id) or ""
        return self._clients[session_id]


def _line(call: RecordedCall, about: _About) -> CallLine:
    record = call.record
    text: Callable[[str], str] = partial(_text, record)
    seconds, cost, request_id, session_id = (
        record.get("seconds"),
        record.get("cost"),
        text("request_id"),
        text("run_id"),
    )
    try:
        at = from_text(text("at"))
    except ValueError:
        at = datetime.fromtimestamp(0).astimezone()
    return CallLine(
        entry=call.entry,
        id=text("id"),
        at=at,
        agent=text("agent_id"),
        role=text("agent_role"),
        downstream=text("tool"),
        tool=text("method"),
        status=text("status") or "unreadable",
        seconds=_number(seconds),
        is_cached=record.get("cached") is True,
        is_redacted=record.get("redaction_applied") is True,
        cost=(_number(cost) or 0.0) / MICROS,
        error=text("error_message") or None,
        session_id=session_id,
        client=about.client(session_id) if session_id else "",
        request_id=request_id or None,
        decided_by=about.decider(request_id) if request_id else None,
    )


def _text(record: Mapping[str, object], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
