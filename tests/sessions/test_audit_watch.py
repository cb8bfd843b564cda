"""The head of the audit log outside of the database: kept as it moves on, compared on every start, posted daily."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field

from actors import Actor, ChildSpec, System, ask
from intercom.model.card import Notice
from intercom.sessions.housekeeping import AuditWatch
from intercom.store import audit, audit_chain
from intercom.store.audit_chain import Head
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer_messages import Transact
from tests.operators.slack.server import TaskWriter

pytestmark = pytest.mark.real_time

START = datetime(2026, 11, 23, 8, tzinfo=UTC)


class Ear(Actor):
    def __init__(self, told: list[Notice]) -> None:
        super().__init__()
        self._told = told

    async def on_receive(self, message: Any) -> None:
        self._told.append(message)


@define
class Server:
    """A store, and what watches its log."""

    path: Path
    system: System
    now: datetime
    told: list[Notice] = field(factory=list)
    complaints: list[str] = field(factory=list)

    @property
    def file(self) -> Path:
        return self.path.with_name("audit.anchor")

    async def note(self, text: str) -> int:
        work = partial(
            audit.record, at=self.now, kind="noted", session_id=None, who="ann", summary=text, data={"text": text}
        )
        return await ask(self.system.named("store"), Transact(work), timeout=5)

    def anchors(self) -> list[int]:
        return [anchor.sequence for anchor in audit_chain.read_anchors(self.file, self.path)]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until this holds."""
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.01)

    async def looks(self) -> None:
        """Wait until the watch has looked at the log after this."""
        before = len(self.anchors())
        await self.note("look")
        await self.until(lambda: len(self.anchors()) > before)


@asynccontextmanager
async def serving(path: Path, now: datetime = START) -> AsyncIterator[Server]:
    reader = Reader(path)
    told: list[Notice] = []

    def watch() -> AuditWatch:
        named = system.named
        return AuditWatch(
            reader,
            Store(named("store")),
            named("card_router"),
            server.file,
            lambda: server.now,
            server.complaints.append,
            0.02,
        )

    system = System(
        [
            ChildSpec("store", lambda: TaskWriter(path)),
            ChildSpec("card_router", lambda: Ear(told)),
            ChildSpec("audit-watch", watch),
        ]
    )
    server = Server(path, system, now, told)
    async with system:
        await trio.sleep(0.1)
        yield server
    reader.close()


async def test_the_head_is_kept_as_it_moves_on_and_when_the_server_stops(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.note("one")
        await server.looks()
        assert server.anchors() == sorted(set(server.anchors()))
        last = await server.note("two")
    assert server.anchors()[-1] == last
    assert server.file.stat().st_mode & 0o777 == 0o600
    assert audit_chain.examine(path, server.file).faults == []
    assert server.told == []


@pytest.mark.parametrize("change", ["moved", "emptied", "replaced"])
async def test_a_file_of_heads_that_goes_while_the_server_runs_is_told_of(tmp_path: Path, change: str) -> None:
    async with serving(tmp_path / "a.db") as server:
        await server.looks()
        match change:
            case "moved":
                server.file.rename(tmp_path / "aside")
            case "emptied":
                server.file.write_text("")
            case "replaced":
                other = tmp_path / "other"
                other.write_text(server.file.read_text().replace('"hash": "', '"hash": "0'))
                other.chmod(0o600)
                # At once: no look may come between.
                other.replace(server.file)
        # Nothing happens that would give the log another head.
        await server.until(lambda: server.told)
        [told] = server.told
        assert told.level == "error"
        assert "while the server runs" in told.text
        assert str(server.file) in told.text
        assert server.complaints == [told.text]
        await server.until(server.anchors)
        await server.looks()
        assert len(server.told) == 1
        found = audit_chain.examine(server.path, server.file)
        if change == "replaced":
            assert "had another hash" in found.faults[0].text or "one hash" in found.faults[0].text
        else:
            assert found.faults == []
            assert len(found.begun_again) == 1


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[tuple[AuditWatch, list[str]]]:
    """A watch that looks when the test says so."""
    told: list[str] = []
    async with System(
        [ChildSpec("store", lambda: TaskWriter(path)), ChildSpec("card_router", lambda: Ear([]))]
    ) as system:
        reader, named, file = Reader(path), system.named, path.with_name("audit.anchor")
        yield AuditWatch(reader, Store(named("store")), named("card_router"), file, lambda: START, told.append), told
        reader.close()


@pytest.mark.parametrize("looked", [True, False])
async def test_a_server_that_stops_begins_no_file_of_heads_again(tmp_path: Path, looked: bool) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.note("one")
    async with watching(path) as (watch, told):
        if looked:
            await watch._compare_once()
            await watch._look()
            assert told == []
        server.file.rename(tmp_path / "aside")
        await watch.on_stop()
        assert len(told) == 1
    [fault] = audit_chain.examine(path, server.file).faults
    assert "is gone" in fault.text
    async with serving(path) as again:
        await again.until(lambda: again.told)
        assert "audit.anchor is gone" in again.told[0].text
        await again.looks()
    found = audit_chain.examine(path, server.file)
    assert (found.faults, len(found.begun_again)) == ([], 1)


async def test_a_file_of_heads_that_others_began_again_is_told_of_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.looks()
        await server.note("two")
    line = server.file.read_text().splitlines()[-1]
    server.file.write_text(f"{line}\n")
    assert "was begun again" in audit_chain.examine(path, server.file).faults[0].text
    async with serving(path) as again:
        await again.until(lambda: again.told)
        assert "and no entry says so" in again.told[0].text
        await again.looks()
    found = audit_chain.examine(path, server.file)
    assert (found.faults, len(found.begun_again)) == ([], 1)


async def test_a_file_of_heads_that_another_server_adds_to_is_not_told_of(tmp_path: Path) -> None:
    async with serving(tmp_path / "a.db") as server:
        await server.looks()
        audit_chain.append_anchor(server.file, Head(1, "00", "now"), tmp_path / "other.db")
        await server.looks()
        await server.looks()
        assert server.told == []


async def test_a_log_that_was_cut_is_told_of_by_a_watch_that_ends_before_its_first_look(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.note("one")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("delete from audit where id = (select max(id) from audit)")
    told: list[str] = []
    async with System(
        [ChildSpec("store", lambda: TaskWriter(path)), ChildSpec("card_router", lambda: Ear([]))]
    ) as system:
        reader = Reader(path)
        named = system.named
        ended = AuditWatch(reader, Store(named("store")), named("card_router"), server.file, lambda: START, told.append)
        await ended.on_stop()
        reader.close()
    assert "was changed while no server watched it" in told[0]


async def test_a_log_that_fits_is_told_of_once_a_day_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.looks()
        await server.looks()
        assert server.told == []
        server.now += timedelta(days=1)
        await server.until(lambda: server.told)
        await server.looks()
        [notice] = server.told
        assert notice.text.startswith("head of the audit log: entry ")
        assert notice.session_id is None
    async with serving(path, server.now + timedelta(hours=1)) as again:
        await again.looks()
        assert again.told == []
        again.now += timedelta(days=1)
        await again.until(lambda: again.told)
        await again.looks()
        assert len(again.told) == 1
    assert audit_chain.examine(path, server.file).faults == []


async def test_what_was_changed_while_no_server_ran_is_told_and_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        for text in ("one", "two", "three"):
            await server.note(text)
    for statements in (
        ["delete from audit where id > 2"],
        ["update audit set hash = previous where id = (select max(id) from audit)"],
        ["delete from audit"],
    ):
        other = tmp_path / "other" / "a.db"
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(path.read_bytes())
        lines = server.file.read_text().replace(str(path), str(other))
        other.with_name("audit.anchor").write_text(lines)
        other.with_name("audit.anchor").chmod(0o600)
        with closing(sqlite3.connect(other)) as db, db:
            for statement in statements:
                db.execute(statement)
        async with serving(other) as again:
            await again.until(lambda: again.told)
            [notice] = again.told
            assert notice.level == "error"
            assert "the audit log was changed while no server watched it" in notice.text
            assert "audit verify" in notice.text
            assert again.complaints == [notice.text]
        assert other.with_name("audit.anchor").read_text().startswith(lines)
        assert audit_chain.examine(other, other.with_name("audit.anchor")).faults
        for left in other.parent.iterdir():
            left.unlink()


async def test_a_file_that_went_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.note("one")
    server.file.unlink()
    async with serving(path) as again:
        await again.until(lambda: again.told)
        assert "audit.anchor is gone" in again.told[0].text


async def test_a_crash_before_the_head_was_kept_is_no_alarm(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.looks()
        kept = server.file.read_bytes()
        await server.note("two")
    # Killed before it stopped, and in the middle of a line.
    server.file.write_bytes(kept + b'{"sequence": 3')
    async with serving(path) as again:
        await again.looks()
        assert again.told == []
        assert again.complaints == []
    assert audit_chain.examine(path, server.file).faults == []


async def test_a_file_that_cannot_be_read_is_compared_once_it_can(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.note("one")
    server.file.chmod(0o644)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update audit set hash = previous where id = (select max(id) from audit)")
    async with watching(path) as (watch, told):
        for _ in range(2):
            await watch._compare_once()
            await watch._look()
        assert len(told) == 1
        assert "is not a file of yours alone" in told[0]
        server.file.chmod(0o600)
        await watch._compare_once()
        assert "the audit log was changed while no server watched it" in told[1]


async def test_a_file_that_is_emptied_while_a_head_is_added_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    async with serving(path) as server:
        await server.note("one")
    with closing(sqlite3.connect(path)) as db:
        newest = db.execute("select count(*) from audit").fetchone()[0]
    server.file.write_text("")
    async with watching(path) as (watch, told):
        await watch._compare_once()
        told.clear()

        def emptied(descriptor: int) -> None:
            os.ftruncate(descriptor, 0)

        with monkeypatch.context() as patch:
            patch.setattr(audit_chain.os, "fsync", emptied)
            await watch._look()
        assert server.anchors() == []
        await watch._look()
        assert "while the server runs" in told[0]
        assert server.anchors()[0] > newest
