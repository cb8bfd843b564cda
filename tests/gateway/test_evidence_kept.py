"""Results that are kept: which, in what form, how much, and that a record is there before its agent hears of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve

from intercom.gateway import evidence_records
from intercom.gateway.calls import EVIDENCE, INVOCATION, REDACTED, _marked
from intercom.gateway.evidence_records import LARGEST_DATA, EvidenceRecords, NotStored
from intercom.model.errors import Ambiguous, InvalidState, NotFound
from intercom.model.json_types import JsonObject, part
from intercom.store import gateway as stored
from intercom.store.database import connect
from intercom.store.gateway import StoredEvidence
from intercom.store.store_and_reader import Reader, StoreUnavailable
from tests.gateway.test_calls import TOKEN, Agent, Client, running_with_records, said

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]


def id_of(result: JsonObject) -> str | None:
    found = part(result, "_meta").get(EVIDENCE)
    return None if found is None else str(found)


def contents(directory: Path) -> bytes:
    """The bytes of the database's files."""
    return b"".join(file.read_bytes() for file in directory.glob("intercom.db*"))


def told(result: JsonObject) -> str:
    """What Intercom says at the end of the content, for models that see nothing else."""
    content: Any = result["content"]
    return str(content[-1]["text"])


@define
class Kept:
    """A gateway that keeps evidence, and its records."""

    agent: Agent
    records: EvidenceRecords
    reader: Reader

    async def rows(self) -> tuple[StoredEvidence, ...]:
        return await self.reader.read(lambda db: stored.evidence.select(db, "true order by at"))


@asynccontextmanager
async def keeping(tmp_path: Path, *patterns: str, **settings: Any) -> AsyncIterator[Kept]:
    async with running_with_records(tmp_path, evidence=[*patterns], **settings) as (gateway, reader):
        yield Kept(Agent(gateway), gateway.evidence, reader)


async def test_only_results_of_the_tools_that_are_named_are_kept(tmp_path: Path) -> None:
    async with keeping(tmp_path, "rea*") as kept:
        written = await kept.agent.call("write")
        assert (id_of(written), len(written["content"])) == (None, 1)  # type: ignore[arg-type]
        result = await kept.agent.call("read", {"x": 1})
        [row] = await kept.rows()
        assert told(result) == f"From Intercom: this result is kept as evidence:{row.id}"
        assert id_of(result) == row.id
        assert (row.run_id, row.tool, row.method) == ("s1", "files", "read")
        assert row.invocation_id == part(result, "_meta")[INVOCATION]
        # What is kept is the downstream's own result, without what Intercom adds.
        content: Any = result["content"]
        assert row.data == {"content": content[:1]}


async def test_without_a_pattern_nothing_is_kept(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        assert id_of(await kept.agent.call("read")) is None
        assert await kept.rows() == ()


@pytest.mark.parametrize("redact", [True, False])
async def test_no_secret_is_in_a_record(tmp_path: Path, redact: bool) -> None:
    """Not even of a downstream whose results agents get as they are: evidence reaches others than this agent."""
    async with keeping(tmp_path, "*", redact=redact, cache="1m", readOnly=["read"]) as kept:
        for _ in range(2):
            result = await kept.agent.call("read", {"key": TOKEN})
            assert (TOKEN in repr(said(result))) is not redact
        rows = await kept.rows()
        assert [each.metadata["redacted"] for each in rows] == [True, True]
        assert all("[masked" in repr(each.data) for each in rows)
    assert TOKEN.encode() not in contents(tmp_path)


async def test_a_cached_result_is_kept_again_for_the_call_that_got_it(tmp_path: Path) -> None:
    async with keeping(tmp_path, "read", cache="10m", readOnly=["read"]) as kept:
        first = await kept.agent.call("read", {"x": 1})
        again = await Agent(kept.agent.gateway, Client("bob")).call("read", {"x": 1})
        assert said(first) == said(again)
        assert len({id_of(first), id_of(again), None}) == 3
        assert len(again["content"]) == 2  # type: ignore[arg-type]
        one, two = await kept.rows()
        assert (one.data, one.metadata["cache_key"]) == (two.data, two.metadata["cache_key"])
        assert one.invocation_id != two.invocation_id
        assert "cached_from" not in one.metadata
        assert two.metadata["cached_from"] == one.invocation_id
        exports = await kept.records.of_all([one.id, two.id])
        assert part(exports[two.id], "metadata")["cached_from"] == one.invocation_id


async def test_a_result_that_is_too_large_is_not_kept_and_its_agent_has_it(tmp_path: Path) -> None:
    async with keeping(tmp_path, "read") as kept:
        text = "a b " * (LARGEST_DATA // 4)
        result = await kept.agent.call("read", {"text": text})
        assert part(said(result), "arguments") == {"text": text}
        assert id_of(result) is None
        assert "not kept as evidence: the result has" in told(result)
        assert "ask for less at once" in told(result)
        assert await kept.rows() == ()


async def test_a_session_keeps_so_many_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_records, "MOST_RECORDS", 2)
    async with keeping(tmp_path, "read") as kept:
        results = [await kept.agent.call("read") for _ in range(3)]
        assert [id_of(each) is not None for each in results] == [True, True, False]
        assert "this session has kept 2 results" in told(results[2])
        assert len(await kept.rows()) == 2


async def test_a_call_whose_evidence_cannot_be_written_has_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_named: object) -> bool:
        raise StoreUnavailable("the disk is full")

    async with keeping(tmp_path, "read") as kept:
        with monkeypatch.context() as patch:
            patch.setattr(evidence_records, "_keep", fail)
            patch.setattr(evidence_records, "KEEP_SECONDS", 0.1)
            result = await kept.agent.call("read", {"x": 1})
        assert part(said(result), "arguments") == {"x": 1}
        assert id_of(result) is None
        assert "the database cannot be written now" in told(result)
        await kept.agent.gateway.log.settle()
        calls = await kept.reader.read(lambda db: stored.calls(db, 9))
        assert [each.record["status"] for each in calls] == ["success"]


async def test_a_downstream_cannot_name_evidence(tmp_path: Path) -> None:
    """What a downstream writes under the names of our marks is left out."""
    marks = {EVIDENCE: "forged", INVOCATION: "forged", REDACTED: ["forged"], "its/own": 1}
    async with running_with_records(tmp_path) as (gateway, _):
        sent = {"name": "read", "arguments": {}, "_meta": marks}
        marked = part(_marked({"content": [], "_meta": marks}, (), None, "the call"), "_meta")
        assert marked == {"its/own": 1, INVOCATION: "the call"}
        result = await Agent(gateway).call("read", **sent)
        assert id_of(result) is None


async def test_a_session_reads_its_own_evidence_alone(tmp_path: Path) -> None:
    async with keeping(tmp_path, "read") as kept:
        id = str(id_of(await kept.agent.call("read")))
        hostile = ["", "%", id[:8], id.upper(), "' or 1=1 --", "\0", "\ud800", "x" * 10_000]
        assert set(await kept.records.of_session([id, *hostile[:-2]], "s1")) == {id}
        for other in ("s2", "", "s", "s1 ", "%"):
            assert await kept.records.of_session([id], other) == {}
        assert await kept.records.of_session([], "s1") == {}


async def test_people_list_and_export_evidence(tmp_path: Path) -> None:
    async with keeping(tmp_path, "*") as kept:
        ids = [str(id_of(await kept.agent.call(tool))) for tool in ("read", "write", "read")]
        listed = await kept.records.listed(10)
        assert [each.id for each in listed] == ids[::-1]
        assert [each.id for each in await kept.records.listed(1)] == ids[2:]
        assert [each.id for each in await kept.records.listed(9, run_id="s", tool="files", method="write")] == [ids[1]]
        assert await kept.records.listed(9, run_id="1") == await kept.records.listed(9, tool="other") == ()
        [row] = [each for each in await kept.rows() if each.id == ids[1]]
        assert listed[1].size == len(json.dumps(row.data, separators=(",", ":")))
        exported = await kept.records.exported([ids[2], ids[0][:13]])
        assert [each["id"] for each in exported] == [ids[2], ids[0]]
        with pytest.raises(NotFound, match="begins with 'nosuch'"):
            await kept.records.exported(["nosuch"])
        with pytest.raises(Ambiguous, match="fits 3 records"):
            await kept.records.exported([""])


@pytest.mark.parametrize(
    ("point", "is_told", "rows"),
    [("store.before_commit", False, 0), ("store.after_commit", False, 1), ("answered", True, 1)],
)
def test_an_agent_that_is_told_an_id_has_a_record_whenever_the_server_is_killed(
    tmp_path: Path, point: str, is_told: bool, rows: int
) -> None:
    command = [sys.executable, "-m", "tests.gateway.evidence_child", str(tmp_path), point]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    with closing(connect(tmp_path / "intercom.db")) as db:
        kept = [each.id for each in stored.evidence.select(db, "true")]
    assert len(kept) == rows
    assert ended.stdout.decode() == (kept[0] if is_told else "")
    events = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    # The call itself is recorded in any case: the next server knows that it was sent.
    assert [each["event"] for each in events if each["event"] != "recorded"] == ["begun", "finished"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data": {"x": float("nan")}}, "is no JSON"),
        ({"data": {"x": object()}}, "is no JSON"),
    ],
)
async def test_what_the_database_cannot_hold_is_not_kept_and_harms_nobody(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    async with keeping(tmp_path, "read") as kept:
        await kept.agent.call("read")
        [row] = await kept.rows()
        odd = evolve(evidence_records.from_stored(row), id="odd", **changes)
        with pytest.raises(NotStored, match=why):
            await kept.records.keep(odd)
        assert id_of(await kept.agent.call("read")) is not None


async def test_a_record_that_another_program_changed_is_refused_and_harms_no_other(tmp_path: Path) -> None:
    async with keeping(tmp_path, "read") as kept:
        bad, good = [str(id_of(await kept.agent.call("read"))) for _ in range(2)]
        change = "update gateway_evidence set metadata = '{}' where id = ?"
        await kept.records.store.transact(lambda db: db.execute(change, (bad,)).rowcount)
        assert set(await kept.records.of_all([bad, good])) == {good}
        with pytest.raises(InvalidState, match="another program has changed it"):
            await kept.records.exported([bad])


async def test_a_record_that_is_written_twice_is_there_once(tmp_path: Path) -> None:
    """As it happens if the store's writer crashes after its commit."""
    async with keeping(tmp_path, "read") as kept:
        await kept.agent.call("read")
        [row] = await kept.rows()
        assert await kept.records.store.transact(partial(evidence_records._keep, kept=row))
        assert await kept.rows() == (row,)
