"""ctl and the gateway without a server: the files and the records answer, and say so."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from intercom.cli import ctl, ctl_gateway_files
from intercom.local.places import Places
from intercom.store import gateway as stored
from intercom.store.database import open_database
from intercom.store.gateway import AllowedTool, CallEntry
from tests.support.database import new_database

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


@pytest.fixture
def left(where: Places) -> Places:
    """What a server leaves: a downstream, roles, an allowed tool, and a recorded call."""
    directory = Path(where.gateway_directory)
    directory.mkdir(parents=True, mode=0o700)
    config = {"name": "time", "transport": "stdio", "command": "no-such-program", "capabilities": ["time.*"]}
    (directory / "time.json").write_text(json.dumps({**config, "schemaVersion": "1.0.0"}))
    (directory / "time.json").chmod(0o600)
    roles = {"defaultRole": "dev", "roles": [{"role": "dev", "capabilities": [], "ask": ["time.*"]}]}
    (directory / "roles.json").write_text(json.dumps(roles))
    (directory / "roles.json").chmod(0o600)
    database = Path(where.database)
    new_database(database)
    record = {"id": "c-1", "at": "2026-11-25T12:00:00+00:00", "agent_id": "a-1", "agent_role": "dev", "tool": "time"}
    db = open_database(database).db
    with db.conn:
        stored.save_pins(db, "time", [AllowedTool("time", "now", "{}", "ab" * 32, NOW, "kim")])
        data = {**record, "method": "now", "status": "success", "seconds": 0.5}
        stored.record_calls(db, NOW, [CallEntry("c-1", None, "a-1", "time.now", data, "time", None, 0)], 0)
    db.close()
    return where


def run(*words: str) -> int:
    return ctl.main(["gateway", *words])


def test_what_only_shows_something_needs_no_server(left: Places, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (("list",), "no server runs, and the program no-such-program is in no directory of PATH"),
        (("tail", "-n", "3"), "a-1 (dev)  time.now  success  500 ms"),
        (("explain", "dev"), "ask     time  now   ask time.*"),
        (("explain", "dev", "time__now"), "A person is asked: the rule ask time.*"),
        (("explain", "dev", "time.now"), "A person is asked: the rule ask time.*"),
        (("explain", "dev", "time", "now"), "A person is asked: the rule ask time.*"),
        (("lint",), "no faults"),
    ):
        assert run(*words) == 0, words
        said = capsys.readouterr()
        assert says in said.out
        assert said.err.startswith("no server runs: th")
    assert run("tail", "--json") == 0
    assert json.loads(capsys.readouterr().out)["calls"][0]["tool"] == "now"


def test_what_a_server_must_do_is_refused_as_before(left: Places, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "time") == 3
    assert "no server answers at" in capsys.readouterr().err
    assert run("tail", "-f") == 3
    said = capsys.readouterr()
    assert "time.now" in said.out
    assert "no server answers at" in said.err


def test_a_fault_in_the_roles_is_said_first(left: Places, capsys: pytest.CaptureFixture[str]) -> None:
    (Path(left.gateway_directory) / "roles.json").write_text("{")
    assert run("list") == 0
    said = capsys.readouterr().out
    assert said.startswith("fault   ")
    assert "until then no agent may call anything" in said.splitlines()[0]
    assert run("lint") == 1


def test_without_a_database_there_are_no_calls(where: Places) -> None:
    found = ctl_gateway_files.answer(where, None, "gateway-tail", {})
    assert found is not None
    assert found[0] == {"calls": [], "end": 0}
