"""Clients that start a process for each call, over real shims: each step from another, and never another agent's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.server_process import ERAS, TRUSTING, Home, begin, call, user_home

pytestmark = [pytest.mark.real_time, pytest.mark.home(TRUSTING)]

CHANGE = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}


async def once(home: Home, root: Path, tool: str, *options: str, mode: str = "auto", **arguments: Any) -> Any:
    """The answer to one call of a process that then ends, as clients without a session make it."""
    async with home.agent(root, *options, mode=mode, name="mcp") as agent:
        return await call(agent, tool, **arguments)


@pytest.mark.parametrize("mode", ERAS)
async def test_each_step_may_come_from_another_process(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.person(root) as person:
        async with served.agent(root, mode=mode, name="mcp") as agent, trio.open_nursery() as nursery:
            asked = begin(nursery, agent, "check_clearance", **CHANGE)
            id = (await person.card(kind="approval", away=False))["request_id"]
            await person.do("approve", id=id)
            assert (await asked())["status"] == "approved"
        assert (await once(served, root, "check_clearance", mode=mode, request_id=id))["status"] == "approved"
        assert (await once(served, root, "check_diff", mode=mode, request_id=id))["status"] == "applied"
    assert (root / "a.txt").read_text() == "a\n"


async def test_a_process_that_was_ended_while_it_waited_is_continued_by_the_next(served: Home) -> None:
    root = served.workspace()
    cut = trio.CancelScope()

    async def give_up() -> None:
        with cut:
            await once(served, root, "check_clearance", **CHANGE)

    async with served.person(root) as person, trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        id = (await person.card(kind="approval", away=False))["request_id"]
        cut.cancel()
        await person.card(request_id=id, away=True)
        person.cards.clear()
        async with served.agent(root, name="mcp") as agent, trio.open_nursery() as asking:
            again = begin(asking, agent, "check_clearance", **CHANGE)
            assert (await person.card(kind="approval", away=False))["request_id"] == id
            await person.do("approve", id=id)
            assert (await again())["request_id"] == id
        assert {one["request_id"] for one in person.cards} == {id}


@pytest.mark.parametrize("how", ["option", "variable"])
async def test_processes_with_one_key_are_one_agent_also_at_once_and_after_a_kill(how: str) -> None:
    with user_home(TRUSTING) as home:
        root = home.workspace()
        options = ("--agent", "ci") if how == "option" else ()
        if how == "variable":
            home.environ["INTERCOM_AGENT"] = "ci"
        session = (await once(home, root, "ping", *options))["session_id"]
        async with home.agent(root, *options) as one, home.agent(root, *options) as two, trio.open_nursery() as nursery:
            asked = begin(nursery, one, "check_clearance", **CHANGE)
            async with home.person(root) as person:
                id = (await person.card(kind="approval", away=False))["request_id"]
            home.kill()
            assert (await call(two, "ping"))["session_id"] == session
            joined = begin(nursery, two, "check_clearance", **CHANGE)
            async with home.person(root) as person:
                await person.card(kind="approval", away=False)
                await person.do("approve", id=id)
                assert (await joined())["request_id"] == (await asked())["request_id"] == id
                assert {each["request_id"] for each in person.cards} == {id}
        # Another key is another agent, and gets no request by its id.
        refused = await once(home, root, "check_diff", "--agent", "other", request_id=id)
        assert refused["error_code"] == "request_not_found"
        assert "--agent KEY or INTERCOM_AGENT" in refused["error_message"]
        assert (await once(home, root, "check_diff", *options, request_id=id))["status"] == "applied"


async def test_a_key_names_the_agent_of_a_server_in_process_too() -> None:
    with user_home(TRUSTING) as home:
        root, options = home.workspace(), ("--in-process", "--agent", "ci")
        first = await once(home, root, "ping", *options)
        assert (await once(home, root, "ping", *options))["session_id"] == first["session_id"]


async def test_a_key_that_is_none_is_refused_with_the_reason(served: Home) -> None:
    said = served.command("--agent", "two words")
    assert said.returncode == 2
    assert "--agent: must be a key" in said.stderr
    async with served.agent(served.workspace(), INTERCOM_AGENT="two words") as agent:
        refused = await call(agent, "ping")
    assert refused["error_code"] == "invalid_arguments"
    assert "INTERCOM_AGENT) is not a key" in refused["error_message"]
