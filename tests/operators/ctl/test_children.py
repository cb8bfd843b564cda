"""`start`, `clear`, `logs` over a real socket, and as a person types them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.ctl import fields_of, hoist, parser
from tests.cli.test_ctl import run
from tests.operators.desk import StandInDesk, card
from tests.operators.house import open_house
from tests.support.trio_case import trio_test

ME = pwd.getpwuid(os.geteuid()).pw_name


@trio_test(real_time=True)
async def test_start_names_the_act_so_that_a_repetition_starts_one_agent(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        reply = await (await house.dial()).ask(
            "start", text="tidy up", workspace="/ws", label=" mine ", verdict_id="12345678"
        )
        assert reply["data"] == {"session_id": "s-new", "status": "started", "workspace_root": "/home/me/project"}
        more = {"by": ME, "channel": "ctl", "workspace": "/ws", "label": "mine", "act": "ctl/12345678"}
        assert house.desk.acts == [("start", "tidy up", more)]


@trio_test(real_time=True)
async def test_clear_ends_the_session_that_is_named(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        peer = await house.dial()
        assert (await peer.ask("clear", id="s-1"))["data"] == {"session_id": "s-1", "status": "cleared"}
        assert (await peer.ask("clear"))["error_code"] == "invalid_arguments"
        assert house.desk.acts == [("end", "s-1", ME, "ctl", "cleared with agent-intercom-ctl clear")]


@trio_test(real_time=True)
async def test_logs_are_read_from_the_end_or_from_a_byte_on(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        peer = await house.dial()
        said = (await peer.ask("logs", id="s-1", limit=5))["data"]
        assert (said["text"], said["end"], said["exit"]) == ("one\ntwo\n", 8, "exit code 0")
        assert (await peer.ask("logs", id="s-1", stream="stderr", start=4))["data"]["text"] == "two\n"
        for wrong in ({"stream": "stdin"}, {"start": -1}, {"start": True}, {"start": 2**64}, {"id": None}):
            assert (await peer.ask("logs", **{"id": "s-1", **wrong}))["error_code"] == "invalid_arguments"
        assert house.desk.acts == [("output", "s-1", "stdout", 5, None), ("output", "s-1", "stderr", 200, 4)]


@pytest.mark.parametrize(
    ("words", "verb", "fields"),
    [
        ("start tidy up", "start", {"text": "tidy up"}),
        ("start --label mine -- --help", "start", {"text": "--help", "label": "mine"}),
        ("start --workspace /ws 'x", "start", {"text": "'x", "workspace": "/ws"}),
        ("clear 1a2b", "clear", {"id": "1a2b"}),
        ("logs 1a2b -f --stderr --lines 7", "logs", {"id": "1a2b", "stream": "stderr", "limit": 7}),
    ],
)
def test_a_line_becomes_a_request(words: str, verb: str, fields: dict[str, Any]) -> None:
    assert fields_of(parser().parse_args(hoist(words.split()))) == (verb, fields)


@trio_test(real_time=True)
async def test_logs_prints_what_was_written_and_nothing_that_acts_on_the_terminal(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        house.desk.children.text = "\x1b[2Jgone\nand on\n"
        done = await run(house.environ, "logs", "s-1")
        assert done.stdout == b"\\x1b[2Jgone\nand on\n"
        followed = await run(house.environ, "logs", "-f", "s-1")
        assert (followed.stdout, followed.stderr) == (done.stdout, b"[ended: exit code 0]\n")
        assert (await run(house.environ, "logs", "nothing")).returncode == 1
