"""Who an agent is and where it works, over real stdio."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio

from tests.support.server_process import ERAS, TRUSTING, Home, Person, begin, call, content, user_home

pytestmark = pytest.mark.real_time

both_eras = pytest.mark.parametrize("mode", ERAS)


def project(served: Home, marker: str = ".git") -> Path:
    root = served.workspace()
    (root / marker).mkdir()
    (root / "deep/down").mkdir(parents=True)
    return root


async def workspace_of(served: Home, agent: Any, **options: Any) -> str:
    said = content(await agent.call_tool("ping", {}, **options))
    async with served.person() as person:
        listed = (await person.do("list"))["sessions"]
    (root,) = [entry["workspace_root"] for entry in listed if entry["session_id"] == said["session_id"]]
    return str(root)


@both_eras
async def test_the_workspace_is_the_one_named_on_the_command_line(served: Home, mode: str) -> None:
    root, elsewhere = served.workspace(), project(served)
    async with served.agent(root, mode=mode, cwd=elsewhere) as agent:
        assert await workspace_of(served, agent) == str(root)


@both_eras
async def test_else_it_is_the_project_the_shim_stands_in(served: Home, mode: str) -> None:
    root = project(served)
    async with served.agent(None, mode=mode, cwd=root / "deep/down") as agent:
        assert await workspace_of(served, agent) == str(root)


async def test_a_client_that_has_roots_says_where_it_works(served: Home) -> None:
    root, elsewhere = served.workspace(), project(served)

    async def roots(_context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///nowhere/at/all"), types.Root(uri=root.as_uri())])

    async with served.agent(None, mode="legacy", cwd=elsewhere, list_roots_callback=roots) as agent:
        assert await workspace_of(served, agent) == str(root)


async def test_a_client_whose_roots_fail_still_gets_a_workspace(served: Home) -> None:
    root = project(served)

    async def roots(_context: object) -> types.ErrorData:
        return types.ErrorData(code=-32603, message="no idea")

    async with served.agent(None, mode="legacy", cwd=root, list_roots_callback=roots) as agent:
        assert await workspace_of(served, agent) == str(root)


@both_eras
@pytest.mark.parametrize("place", ["/", "home", "nowhere"])
async def test_what_is_no_workspace_is_refused_and_said_so(served: Home, mode: str, place: str) -> None:
    named = {"/": Path("/"), "home": served.root, "nowhere": served.root / "nowhere"}[place]
    async with served.agent(named, mode=mode) as agent:
        said = await call(agent, "ping")
        assert said["error_code"] == "workspace_refused"


@both_eras
async def test_an_agent_that_stands_nowhere_is_told_what_to_do(served: Home, mode: str) -> None:
    async with served.agent(None, mode=mode, cwd=served.workspace()) as agent:
        said = await call(agent, "check_clearance", title="t", diff="x", file_path="a")
        assert said["error_code"] == "workspace_refused"
        assert "--workspace" in said["error_message"]


@both_eras
async def test_conversations_that_one_client_names_are_sessions_of_their_own(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode, name="codex-mcp-client") as agent:
        first = content(await agent.call_tool("ping", {}, meta={"threadId": "t-1"}))["session_id"]
        second = content(await agent.call_tool("ping", {}, meta={"threadId": "t-2"}))["session_id"]
        unnamed = content(await agent.call_tool("ping", {}))["session_id"]
        assert len({first, second, unnamed}) == 3
        assert content(await agent.call_tool("ping", {}, meta={"threadId": "t-1"}))["session_id"] == first
    # The name is the conversation's, whichever shim it comes through.
    async with served.agent(root, mode=mode, name="codex-mcp-client") as agent:
        assert content(await agent.call_tool("ping", {}, meta={"threadId": "t-1"}))["session_id"] == first


@both_eras
async def test_a_session_can_not_be_reached_by_another_agent(served: Home, mode: str) -> None:
    root = served.workspace()
    async with (
        served.agent(root, mode=mode) as one,
        served.agent(root, mode=mode) as other,
        served.person(root) as person,
    ):
        async with trio.open_nursery() as nursery:
            asked = begin(nursery, one, "check_clearance", title="t", diff="x\n", file_path="x.txt")
            id = (await person.card(away=False))["request_id"]
            assert (await call(other, "check_clearance", request_id=id))["error_code"] == "request_not_found"
            assert (await call(other, "check_diff", request_id=id))["error_code"] == "request_not_found"
            await person.do("approve", id=id)
            await asked()
        assert (await call(other, "check_diff", request_id=id))["error_code"] == "request_not_found"
        assert (await call(one, "check_diff", request_id=id))["status"] == "applied"


async def until_interrupted(person: Person) -> None:
    """Nothing is shown when an agent counts as gone, so ask again until the list says so."""
    while (await person.do("list"))["sessions"][0]["status"] != "interrupted":  # noqa: ASYNC110
        await trio.sleep(0.1)


@both_eras
async def test_reboot_takes_up_what_an_agent_that_is_gone_left(mode: str) -> None:
    with user_home(TRUSTING) as home, home.serving():
        root, elsewhere = home.workspace(), home.workspace()
        async with home.person(root) as person:
            async with home.agent(root, mode=mode) as agent, trio.open_nursery() as nursery:
                asked = begin(nursery, agent, "check_clearance", title="Left", diff="x\n", file_path="x.txt")
                card = await person.card(away=False)
                asked.scope.cancel()
            # Its shim is gone, and the server has waited long enough for it to come back.
            await person.card(away=True)
            await until_interrupted(person)
            async with home.agent(elsewhere, mode=mode) as stranger:
                assert await call(stranger, "reboot") == {"status": "clean"}
            async with home.agent(root, mode=mode, name="another-client") as stranger:
                assert await call(stranger, "reboot") == {"status": "clean"}
            async with home.agent(root, mode=mode) as agent, trio.open_nursery() as nursery:
                found = await call(agent, "reboot")
                assert (found["status"], found["session_id"]) == ("recovered", card["session_id"])
                (left,) = found["pending_requests"]
                assert (left["request_id"], left["type"], left["title"]) == (card["request_id"], "approval", "Left")
                again = begin(nursery, agent, "check_clearance", request_id=left["request_id"])
                await person.do("approve", id=left["request_id"])
                assert (await again())["status"] == "approved"
                assert (await call(agent, "check_diff", request_id=left["request_id"]))["status"] == "applied"
        assert (root / "x.txt").read_text() == "x\n"


@both_eras
async def test_a_session_with_a_live_agent_can_not_be_taken_over(served: Home, mode: str) -> None:
    root = served.workspace()
    async with served.agent(root, mode=mode) as one, served.agent(root, mode=mode) as other:
        mine = (await call(one, "ping"))["session_id"]
        assert (await call(other, "reboot", session_id=mine))["error_code"] == "invalid_state"
        assert await call(other, "reboot") == {"status": "clean"}
        assert (await call(one, "ping"))["session_id"] == mine


@both_eras
async def test_a_named_conversation_that_rests_while_the_server_restarts_keeps_its_session(mode: str) -> None:
    with user_home(TRUSTING) as home:
        root = home.workspace()
        codex = partial(home.agent, root, mode=mode, name="codex-mcp-client")
        async with codex() as resting, codex() as other:
            ping = partial(resting.call_tool, "ping", {"progress_snapshot": [{"label": "a", "status": "done"}]})
            mine = content(await ping(meta={"threadId": "t-1"}))["session_id"]
            await call(other, "ping")
            home.kill()
            # Nobody takes over what has a live agent, be it one that has said nothing since.
            assert await call(other, "reboot") == {"status": "clean"}
            assert content(await ping(meta={"threadId": "t-1"}))["session_id"] == mine
