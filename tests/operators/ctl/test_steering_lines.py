"""`pause`, `steer`, `task` and their like, as a person types them and reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.ctl import fields_of, hoist, parser
from tests.cli.test_ctl import run
from tests.operators.desk import StandInDesk, card
from tests.operators.house import open_house
from tests.support.trio_case import trio_test


@pytest.mark.parametrize(
    ("words", "verb", "fields"),
    [
        ("pause", "pause", {}),
        ("pause 1a2b", "pause", {"id": "1a2b"}),
        ("unpause --session 1a2b", "unpause", {"session": "1a2b"}),
        ("steer 1a2b mind the gap", "steer", {"id": "1a2b", "text": "mind the gap"}),
        ("steer 1a2b -- --help", "steer", {"id": "1a2b", "text": "--help"}),
        ("steering 1a2b --limit 7", "steering", {"id": "1a2b", "limit": 7}),
        ("task do it", "task", {"text": "do it", "workspace": os.getcwd()}),
        ("task --workspace /ws do it", "task", {"text": "do it", "workspace": "/ws"}),
        ("task --session 1a2b do it", "task", {"text": "do it", "session": "1a2b"}),
        ("tasks --all", "tasks", {"everything": True}),
        ("take-back 1a2b", "take-back", {"id": "1a2b"}),
    ],
)
def test_a_line_becomes_a_request(words: str, verb: str, fields: dict[str, Any]) -> None:
    assert fields_of(parser().parse_args(hoist(words.split()))) == (verb, fields)


@trio_test(real_time=True)
async def test_what_is_said_of_it_can_be_read(tmp_path: Path) -> None:
    async with open_house(tmp_path, StandInDesk(card("a"))) as house:
        assert (await run(house.environ, "pause")).stdout == b"paused s-1\n"
        assert (await run(house.environ, "unpause", "s-1")).stdout == b"active s-1\n"
        said = await run(house.environ, "steer", "s-1", "mind", "\x1b[2J")
        assert said.stdout == b"queued w-1: rides on the agent's next result\n"
        listed = (await run(house.environ, "steering")).stdout.decode()
        assert "mind \\x1b[2J" in listed
        assert "queued" in listed
        assert b"no words or tasks" in (await run(house.environ, "tasks")).stdout
