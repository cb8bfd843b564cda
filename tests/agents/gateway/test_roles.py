"""Who may call what: roles by client, session and token, and calls that a person lets pass or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.agents.gateway.conftest import CONFIG, ROLES, TOKEN, GatewayHome, gateway_home, ready
from tests.agents.gateway.raw_agent import NEW, OLD, WAYS, RawAgent, Refused, Way
from tests.support.async_tests import bounded
from tests.support.keys import make_key_file
from tests.support.server_process import Person

pytestmark = [pytest.mark.real_time]

STDIO = Way("stdio", OLD)
#: Two ways that differ in transport and version.
TWO = (STDIO, Way("http", NEW))


def said(result: dict[str, Any]) -> dict[str, Any]:
    """What Intercom itself answers a call."""
    found: dict[str, Any] = json.loads(result["content"][0]["text"])
    return found


class Later:
    """A call on its way."""

    def __init__(self, nursery: trio.Nursery, agent: RawAgent, tool: str, **arguments: Any) -> None:
        self._over = trio.Event()
        self._result: dict[str, Any] = {}
        nursery.start_soon(self._run, agent, tool, arguments)

    async def _run(self, agent: RawAgent, tool: str, arguments: dict[str, Any]) -> None:
        self._result = await agent.call(tool, **arguments)
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def __call__(self) -> dict[str, Any]:
        await self._over.wait()
        return self._result


async def one_card(person: Person, **wanted: Any) -> dict[str, Any]:
    card = await person.card(status="pending", **wanted)
    person.cards.clear()
    return card


@pytest.mark.parametrize("way", TWO, ids=str)
async def test_a_person_lets_exactly_this_call_pass(
    gateway: GatewayHome, way: Way, downstream: str, nursery: trio.Nursery
) -> None:
    arguments = {"what": f"{way} {downstream}", "n": 1.0, "list": [None, "é"]}
    line = json.dumps(arguments, sort_keys=True)
    root = gateway.home.workspace()
    async with gateway.home.person(root) as person, gateway.agent(way, name="asker-1", workspace=root) as asker:
        later = Later(nursery, asker, f"{downstream}__write", **arguments)
        card = await one_card(person)
        assert card["title"] == f"call write of the MCP server {downstream}"
        assert json.loads(card["description"]) == arguments
        assert line not in gateway.written(downstream)
        await person.do("approve", id=card["request_id"])
        assert (await later())["content"][0]["text"] == "written"
        assert gateway.written(downstream).count(line) == 1

        # The approval is used up: the same call once more is another one.
        again = Later(nursery, asker, f"{downstream}__write", **arguments)
        second = await one_card(person)
        assert second["request_id"] != card["request_id"]
        await person.do("reject", id=second["request_id"], reason="once is enough")
        refused = await again()
        assert refused["isError"] is True
        assert said(refused)["error_code"] == "operator_denied"
        assert "once is enough" in said(refused)["error_message"]
        assert gateway.written(downstream).count(line) == 1


@pytest.mark.parametrize("way", TWO, ids=str)
async def test_a_grant_lets_as_many_calls_of_this_tool_pass_as_it_has_uses(
    gateway: GatewayHome, way: Way, nursery: trio.Nursery
) -> None:
    root = gateway.home.workspace()
    async with gateway.home.person(root) as person, gateway.agent(way, name="asker-7", workspace=root) as asker:
        first = Later(nursery, asker, "old__write", grant=0, way=str(way))
        card = await one_card(person)
        made = await person.do("grant", id=card["request_id"], duration="5m", uses="1")
        assert made["covers"] == 'every use of "old__write", with any arguments, up to risk high'
        await person.do("approve", id=card["request_id"])
        assert (await first())["content"][0]["text"] == "written"

        assert (await asker.call("old__write", grant=1, way=str(way)))["content"][0]["text"] == "written"
        assert [each for each in person.cards if each["status"] == "pending"] == []
        for tool, number in (("new__write", 2), ("old__write", 3)):
            other = Later(nursery, asker, tool, grant=number, way=str(way))
            await person.do("reject", id=(await one_card(person))["request_id"])
            assert said(await other())["error_code"] == "operator_denied"
        (line,) = [
            each
            for each in (await person.do("grants", everything=True))["grants"]
            if each["request_id"] == card["request_id"]
        ]
        assert (line["used"], line["over"]) == (1, "its uses are spent")


async def test_another_argument_needs_another_answer(gateway: GatewayHome, nursery: trio.Nursery) -> None:
    root = gateway.home.workspace()
    async with gateway.home.person(root) as person, gateway.agent(STDIO, name="asker-2", workspace=root) as asker:
        first = Later(nursery, asker, "old__write", amount=1)
        card = await one_card(person)
        other = Later(nursery, asker, "old__write", amount=2)
        of_other = await one_card(person)
        assert of_other["request_id"] != card["request_id"]
        assert json.loads(of_other["description"]) == {"amount": 2}
        await person.do("approve", id=card["request_id"])
        assert (await first())["content"][0]["text"] == "written"
        assert not other.is_over
        await person.do("reject", id=of_other["request_id"])
        assert said(await other())["error_code"] == "operator_denied"
        assert '{"amount": 1}' in gateway.written("old")
        assert '{"amount": 2}' not in gateway.written("old")


async def test_a_call_of_the_same_agent_needs_no_answer_where_its_role_allows_it(gateway: GatewayHome) -> None:
    root = gateway.home.workspace()
    async with gateway.home.person(root) as person, gateway.agent(STDIO, name="asker-3", workspace=root) as asker:
        listed = {each["name"]: each for each in (await asker.request("tools/list"))["tools"]}
        assert "A person is asked before each call" in listed["old__write"]["description"]
        assert "A person" not in listed["old__echo"]["description"]
        assert json.loads((await asker.call("old__echo", x=1))["content"][0]["text"]) == {"x": 1}
        assert person.cards == []


async def test_an_approved_call_goes_on_after_a_question_without_another_card(
    gateway: GatewayHome, downstream: str, nursery: trio.Nursery
) -> None:
    root = gateway.home.workspace()
    async with (
        gateway.home.person(root) as person,
        gateway.agent(Way("stdio", NEW), name="asker-4", workspace=root) as asker,
    ):
        later = Later(nursery, asker, f"{downstream}__ask", what=["elicitation", "roots"])
        card = await one_card(person)
        await person.do("approve", id=card["request_id"])
        assert len((await later())["structuredContent"]["answers"]) == 2
        assert [each for each in person.cards if each["status"] == "pending"] == []

        # A state that the downstream never gave is no way around the person.
        params = {"name": "new__ask", "arguments": {"what": ["roots"]}, "requestState": "state-new-1"}
        forged = Later(nursery, asker, "new__ask", what=["roots"])
        nursery.start_soon(asker.request, "tools/call", params)
        await one_card(person)
        assert not forged.is_over
        nursery.cancel_scope.cancel()


async def test_a_session_has_a_role(gateway: GatewayHome, nursery: trio.Nursery) -> None:
    root = gateway.home.workspace()
    async with gateway.home.person(root) as person, gateway.agent(STDIO, name="asker-5", workspace=root) as asker:
        later = Later(nursery, asker, "old__write", for_the="session")
        card = await one_card(person)
        await person.do("reject", id=card["request_id"])
        await later()
        session = card["session_id"]
        roles = {**ROLES, "assignments": [{"role": "ci", "session": session[:8]}, *ROLES["assignments"]]}
        asker.said.clear()
        gateway.give_roles(roles)
        try:
            await asker.request("tools/list")
            await asker.heard("notifications/tools/list_changed")
            assert await asker.names() == ["new__echo"]
            assert said(await asker.call("old__echo"))["error_code"] == "permission_denied"
            assert "content" in await asker.call("new__echo", x=1)
        finally:
            asker.said.clear()
            gateway.give_roles()
            await asker.heard("notifications/tools/list_changed")


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_a_token_has_a_role_and_is_shown_nowhere(gateway: GatewayHome, way: Way) -> None:
    async with gateway.agent(way, name="nobody", token=TOKEN) as ci:
        # A client's name would give it nothing.
        assert await ci.names() == ["new__echo"]
        got = await ci.call("new__echo", word=f"it is {TOKEN}")
        assert got["isError"] is False if "isError" in got else True
        assert TOKEN not in json.dumps(got)
        assert said(await ci.call("old__echo"))["error_code"] == "permission_denied"
    async with gateway.agent(way, name="tester", token="wrong-" + TOKEN) as other:
        assert len(await other.names()) > 1
    for place in (gateway.home.root / "state", gateway.home.root / "run", gateway.home.root / "server.log"):
        files = [place] if place.is_file() else [each for each in place.rglob("*") if each.is_file()]
        assert not any(TOKEN.encode() in each.read_bytes() for each in files)


async def test_a_call_of_an_agent_without_a_workspace_is_recorded_and_says_what_to_do(gateway: GatewayHome) -> None:
    # No agent may own all files.
    async with gateway.agent(Way("http", NEW), workspace=Path("/"), key="nowhere") as lost:
        refused = said(await lost.call("old__write", what="nowhere"))
    assert refused["error_code"] == "workspace_refused"
    calls: list[dict[str, Any]] = []
    async with gateway.home.person() as person:
        while not calls:
            found = await person.do("gateway-tail")
            calls = [each for each in found["calls"] if each["status"] == "workspace_refused"]
    [call] = calls
    assert (call["downstream"], call["tool"], call["session_id"]) == ("old", "write", "")
    assert call["error"] == refused["error_message"]
    assert not any("nowhere" in each for each in gateway.written("old"))


async def test_a_token_that_is_none_is_refused_in_words(gateway: GatewayHome) -> None:
    async with gateway.agent(STDIO, token="short", greets=False) as agent:
        with pytest.raises(Refused) as refused:
            await agent.greet()
        assert "16 to 200 letters" in refused.value.error["message"]
        assert "short" not in refused.value.error["message"]


async def test_a_paused_agents_call_waits_and_comes_with_what_it_is_told(
    gateway: GatewayHome, nursery: trio.Nursery
) -> None:
    for way in TWO:
        root = gateway.home.workspace()
        async with gateway.home.person(root) as person, gateway.agent(way, name="asker-6", workspace=root) as asker:
            later = Later(nursery, asker, "old__write", to="find the session")
            card = await one_card(person)
            await person.do("reject", id=card["request_id"])
            await later()
            session = card["session_id"]
            await person.do("steer", id=session, text="mind the tests")
            # Neither a resource nor a prompt has a place for it.
            await asker.request("resources/read", {"uri": "demo://old/own"})
            await asker.request("prompts/get", {"name": "old__greet", "arguments": {"who": "Kim"}})
            told = await asker.call("new__echo", x=1)
            assert json.loads(told["content"][0]["text"]) == {"x": 1}
            # What the agent has been told of its call already is not said again.
            instructions = [{"kind": "steer", "text": "mind the tests"}]
            assert told["content"][-1]["text"] == f"From Intercom: {json.dumps({'instructions': instructions})}"
            assert len((await asker.call("new__echo", x=1))["content"]) == 2

            await person.do("pause", session=session)
            waits = Later(nursery, asker, "old__write", after="the pause")
            # What a paused agent calls is not sent, and not shown to a person either.
            await person.do("list")
            assert not waits.is_over
            await person.do("resume", session=session)
            card = await one_card(person)
            await person.do("reject", id=card["request_id"])
            assert said(await waits())["error_code"] == "operator_denied"


def test_an_undecided_call_is_taken_up_again() -> None:
    config = CONFIG + "\n[clients.asker]\ncall_wait_seconds = 1\n"

    async def run(served: GatewayHome) -> None:
        await ready(served)
        async with served.home.person() as person, served.agent(STDIO, name="asker") as asker:
            pending = await asker.call("old__write", what="later")
            assert said(pending)["status"] == "pending"
            assert "call old__write again with the same arguments" in said(pending)["message"]
            card = await person.card(status="pending")
            await person.do("approve", id=card["request_id"])
            assert (await asker.call("old__write", what="later"))["content"][0]["text"] == "written"
            assert served.written("old") == ['{"what": "later"}']

    with gateway_home(config=config) as served, served.home.serving():
        trio.run(bounded(run, 30), served)


def test_with_an_operator_key_an_unsigned_decision_lets_nothing_pass() -> None:
    async def run(served: GatewayHome) -> None:
        await ready(served)
        async with (
            served.home.person() as person,
            served.agent(STDIO, name="asker") as asker,
            trio.open_nursery() as nursery,
        ):
            later = Later(nursery, asker, "old__write", what="unsigned")
            card = await person.card(status="pending")
            reply = await person.say("approve", id=card["request_id"])
            assert reply["ok"] is False
            assert reply["error_code"] == "signature_required"
            assert not later.is_over
            assert served.written("old") == []
            nursery.cancel_scope.cancel()

    with gateway_home() as served:
        served.directory.parent.chmod(0o700)
        make_key_file(served.home.places, "correct horse", "kim", "2026-11-23T08:00:00.000000+00:00")
        with served.home.serving():
            trio.run(bounded(run, 30), served)


def test_a_rule_of_the_policy_lets_a_call_pass() -> None:
    async def run(served: GatewayHome) -> None:
        await ready(served)
        workspace = served.home.workspace()
        (workspace / ".intercom").mkdir()
        rules = {"enabled": True, "tools": ["old__write"], "risk_level_threshold": "high"}
        (workspace / ".intercom" / "settings.json").write_text(json.dumps(rules))
        async with (
            served.home.person() as person,
            served.agent(STDIO, name="asker", workspace=workspace) as asker,
            trio.open_nursery() as nursery,
        ):
            assert (await asker.call("old__write", what="by rule"))["content"][0]["text"] == "written"
            later = Later(nursery, asker, "new__write", what="by rule")
            card = await person.card(status="pending")
            assert card["title"] == "call write of the MCP server new"
            assert not later.is_over
            nursery.cancel_scope.cancel()

    config = CONFIG + "\n[policy]\ntrust_changes = true\n"
    with gateway_home(config=config) as served, served.home.serving():
        trio.run(bounded(run, 30), served)
