"""A log of calls with its recorder and a real store, in a directory, and what the database says afterwards."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import evolve

from actors import ChildSpec, System
from intercom.gateway.call_journal import FULL, Invocation, Journal, arguments_key
from intercom.gateway.call_log import RECORDER, InvocationLog
from intercom.gateway.messages import InvocationStatus
from intercom.model.json_types import Json
from intercom.store import audit_chain, gateway
from intercom.store.database import connect
from intercom.store.store_and_reader import Store
from intercom.store.writer import Writer
from tests.support.database import new_database


def log_in(directory: Path, *, full: int = FULL, **options: Any) -> tuple[System, InvocationLog]:
    """Return a system with a store and a recorder, not yet started, and its log of calls."""
    database = directory / "intercom.db"
    new_database(database)
    system = System(
        [
            ChildSpec("store", lambda: Writer(database)),
            ChildSpec(RECORDER, lambda: log.children()[0].start()),
        ]
    )
    journal = Journal(directory / "state" / "gateway-calls.jsonl", full=full)
    log = InvocationLog(journal, arguments_key(directory / "state" / "key"), Store(system.named("store")), **options)
    return system, log


def new(log: InvocationLog, call: str | None = None, arguments: Json = None, **changes: Any) -> Invocation:
    """Return a call of one agent."""
    made = log.new(
        run_id="s1",
        agent_id="claude 1",
        agent_role="reader",
        tool="files",
        method="read",
        arguments=arguments,
        call=call,
    )
    return evolve(made, **changes)


def done(invocation: Invocation, status: InvocationStatus = InvocationStatus.SUCCESS, **changes: Any) -> Invocation:
    """Return a call as it has ended."""
    return evolve(invocation, status=status, seconds=0.001, cost=3, **changes)


def recorded(directory: Path) -> tuple[Invocation, ...]:
    """Return the calls in the audit log of a directory, after its chain was verified."""
    database = directory / "intercom.db"
    found = audit_chain.examine(database, directory / "no anchors")
    assert found.faults == []
    with closing(connect(database)) as db:
        return tuple(Invocation.of(each.record) for each in gateway.calls(db, 1_000_000))


def calls_counted(directory: Path) -> tuple[int, int]:
    """Return how many calls the usage of all days has, and their cost."""
    with closing(connect(directory / "intercom.db")) as db:
        calls, cost = db.execute("select total(calls), total(cost) from gateway_usage").fetchone()
    return int(calls), int(cost)
