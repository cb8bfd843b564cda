"""What passes through the gateway, over each transport, in each protocol version, to a downstream of each."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from intercom.agents.prompts import Prompt
from tests.agents.gateway.conftest import GatewayHome
from tests.agents.gateway.raw_agent import NEW, OLD, WAYS, RawAgent, Refused, Way, refused_with

pytestmark = [pytest.mark.real_time]


#: The prompts of the server, which come first.
OWN_PROMPTS = tuple(Prompt)


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if "text" in block]


async def test_tools_are_listed_under_names_of_their_own(agent: RawAgent) -> None:
    listed = {each["name"]: each for each in (await agent.request("tools/list"))["tools"]}
    assert {"old__echo", "new__echo", "old__write", "reboot"} <= listed.keys()
    assert listed["old__echo"]["description"] == "echo of old"
    assert listed["new__echo"]["inputSchema"]["x-vendor"] == {"kept": True}


async def test_a_role_limits_the_list_and_the_calls(gateway: GatewayHome) -> None:
    for way in WAYS:
        async with gateway.agent(way, name="reader-7") as reader:
            seen = await reader.names()
            assert "old__echo" in seen, way
            assert "old__write" not in seen, way
            assert {name.partition("__")[0] for name in seen} == {"old"}
            refused = await reader.call("old__write", what="x")
            assert refused["isError"] is True
            said = json.loads(refused["content"][0]["text"])
            assert said["error_code"] == "permission_denied"
            assert "may not call old__write" in said["error_message"]
            addresses = [each["uri"] for each in (await reader.request("resources/list"))["resources"]]
            assert "demo://old/own" in addresses
            assert "demo://new/own" not in addresses
            prompts = (await reader.request("prompts/list"))["prompts"]
            assert [each["name"] for each in prompts] == [*OWN_PROMPTS, "old__greet"]
            # Of the downstreams that it sees, only one has addresses of this kind.
            got = await reader.request("resources/read", {"uri": "demo://new/own"})
            assert got["contents"][0]["text"] == "old has demo://new/own"
            with pytest.raises(Refused):
                await reader.request("resources/read", {"uri": "gateway+new:demo://shared"})
        async with gateway.agent(way, name="nobody") as nobody:
            assert await nobody.names() == []


async def test_what_nobody_knows_arrives_untouched(agent: RawAgent, downstream: str) -> None:
    arguments = {"deep": [1, 1.0, None, {"é": "\u2028"}], "empty": {}}
    got = await agent.call(f"{downstream}__echo", meta={"vendor/trace": ["x"]}, **arguments)
    first, second = got["content"]
    assert json.loads(first["text"]) == arguments
    assert first["xBlock"] == {"a": [1, 1.0, None]}
    assert first["_meta"] == {"b": 2}
    assert second == {"type": "x-unknown", "vendor": True}
    assert got["xVendor"] == {"deep": [1, 2.5, None, "é\u2028"]}
    assert got["_meta"]["vendor/trace"] == ["t", 1]
    sent = got["structuredContent"]["params"]
    assert sent["arguments"] == arguments
    assert sent["_meta"]["vendor/trace"] == ["x"]
    # What is between the agent and Intercom, or Intercom and the downstream, stays there.
    assert not any(key.startswith("intercom/") for key in sent["_meta"])
    assert (got.get("resultType") == "complete") is (agent.is_new or downstream == "new")


async def test_a_large_result_passes(agent: RawAgent) -> None:
    # From a downstream of the other version, so it is translated on the way.
    (said,) = texts(await agent.call(f"{'old' if agent.is_new else 'new'}__big", size=2_500_000))
    assert len(said) == 2_500_000


async def test_failures_stay_what_they_are(agent: RawAgent, downstream: str) -> None:
    failed = await agent.call(f"{downstream}__fail")
    assert (failed["isError"], failed["xWhy"], texts(failed)) == (True, "because", ["it went wrong"])
    with pytest.raises(Refused) as refused:
        await agent.call(f"{downstream}__refuse")
    assert refused.value.error == {"code": -32055, "message": "not like this", "data": {"try": ["that", 1.0]}}


async def test_a_name_that_no_tool_has_is_refused_in_words(agent: RawAgent) -> None:
    said = await agent.call("old__nothing")
    assert said["isError"] is True
    assert "no tool is called 'old__nothing'" in texts(said)[0]


async def test_progress_comes_in_order_under_the_agents_own_token(agent: RawAgent, downstream: str) -> None:
    values = [1, 2, 2.5, 7]
    got = await agent.call(f"{downstream}__progress", meta={"progressToken": "mine/1"}, values=values)
    assert texts(got) == ["done"]
    # The answer of the next call comes after all that the downstream has sent before.
    await agent.call(f"{downstream}__echo")
    told = agent.of("notifications/progress")
    assert [each["progress"] for each in told] == values
    assert {each["progressToken"] for each in told} == {"mine/1"}
    assert [each["message"] for each in told] == [f"at {each}" for each in values]
    assert texts(await agent.call(f"{downstream}__progress", values=values)) == ["no token"]


async def test_a_cancellation_reaches_the_call_and_no_other(
    agent: RawAgent, downstream: str, nursery: trio.Nursery
) -> None:
    tag = f"{agent.version} {agent.is_over_http}"
    first, other = f"first {tag}", f"other {tag}"
    released: list[dict[str, Any]] = []

    async def hang(tag: str, id: str) -> None:
        # Over HTTP, the SDK answers a cancelled request of an older version.
        with refused_with(-32800, unless=id == "to keep"):
            released.append(await agent.call(f"{downstream}__hang", id=id, tag=tag))

    nursery.start_soon(hang, first, "to cancel")
    nursery.start_soon(hang, other, "to keep")
    for each in (first, other):
        await agent.call(f"{downstream}__wait_for", event=f"began {each}")
    await agent.cancel("to cancel")
    await agent.call(f"{downstream}__wait_for", event=f"cancelled {first}")
    await agent.call(f"{downstream}__release", tag=other)
    assert texts(await agent.call(f"{downstream}__seen", event=f"cancelled {other}")) == ["no"]
    await trio.testing.wait_all_tasks_blocked()
    while not released:
        await trio.lowlevel.checkpoint()
    assert [texts(each) for each in released] == [[f"released {other}"]]
    nursery.cancel_scope.cancel()


async def test_logs_come_from_the_wanted_severity_on(agent: RawAgent, downstream: str) -> None:
    if agent.is_new:
        meta = {"io.modelcontextprotocol/logLevel": "error"}
    else:
        meta = {}
        await agent.request("logging/setLevel", {"level": "error"})
    await agent.call(f"{downstream}__log", meta=meta)
    levels = [each["level"] for each in agent.of("notifications/message")]
    assert levels == ["error", "critical", "alert", "emergency"]
    if agent.is_new:
        agent.said.clear()
        await agent.call(f"{downstream}__log")
        assert agent.of("notifications/message") == []


async def test_resources_are_listed_and_read_by_their_addresses(agent: RawAgent, downstream: str) -> None:
    listed = (await agent.request("resources/list"))["resources"]
    addresses = [each["uri"] for each in listed]
    # Both have an address, so neither has it as it is.
    both = [f"gateway+{name}:demo://shared" for name in ("old", "new")]
    assert {*both, "demo://old/own", "demo://new/own"} <= set(addresses)
    assert "demo://shared" not in addresses
    assert [each["name"] for each in listed if each["uri"] == both[0]] == ["shared by old"]
    assert [each["xVendor"] for each in listed if each["uri"] in both] == [1, 1]
    got = await agent.request("resources/read", {"uri": f"demo://{downstream}/own"})
    assert got["contents"][0]["text"] == f"{downstream} has demo://{downstream}/own"
    assert (got["contents"][0]["xVendor"], got["xVendor"]) == (1, [1])
    got = await agent.request("resources/read", {"uri": f"gateway+{downstream}:demo://shared"})
    assert got["contents"][0]["text"] == f"{downstream} has demo://shared"
    templates = (await agent.request("resources/templates/list"))["resourceTemplates"]
    assert f"demo://{downstream}/item/{{id}}" in [each["uriTemplate"] for each in templates]
    got = await agent.request("resources/read", {"uri": f"demo://{downstream}/item/7"})
    assert got["contents"][0]["uri"] == f"demo://{downstream}/item/7"
    with pytest.raises(Refused) as missing:
        await agent.request("resources/read", {"uri": f"demo://{downstream}/item/missing"})
    assert missing.value.error["code"] == -32002
    assert missing.value.error["data"] == {"uri": f"demo://{downstream}/item/missing"}


async def test_prompts_have_names_of_their_own(agent: RawAgent, downstream: str) -> None:
    listed = (await agent.request("prompts/list"))["prompts"]
    assert [each["name"] for each in listed] == [*OWN_PROMPTS, "new__greet", "old__greet"]
    own = await agent.request("prompts/get", {"name": "back"})
    assert "switch_freq" in own["messages"][0]["content"]["text"]
    got = await agent.request("prompts/get", {"name": f"{downstream}__greet", "arguments": {"who": "Kim"}})
    content = got["messages"][0]["content"]
    assert content == {"type": "text", "text": f"Greet Kim from {downstream}, greet", "xVendor": 1}
    with pytest.raises(Refused) as unknown:
        await agent.request("prompts/get", {"name": "old__nothing"})
    assert "no prompt is called 'old__nothing'" in unknown.value.error["message"]


async def test_arguments_of_prompts_and_templates_are_completed(agent: RawAgent, downstream: str) -> None:
    ask = {"ref": {"type": "ref/prompt", "name": f"{downstream}__greet"}, "argument": {"name": "who", "value": "K"}}
    (value,) = (await agent.request("completion/complete", ask))["completion"]["values"]
    assert value == f'K-{downstream}-{{"name": "greet", "type": "ref/prompt"}}'
    ask["ref"] = {"type": "ref/resource", "uri": f"demo://{downstream}/item/{{id}}"}
    (value,) = (await agent.request("completion/complete", ask))["completion"]["values"]
    assert value.startswith(f"K-{downstream}-")
    assert "item" in value
    ask["ref"] = {"type": "ref/prompt", "name": "nobody__has"}
    assert (await agent.request("completion/complete", ask))["completion"]["values"] == []


async def test_completions_for_other_arguments_are_others(gateway: GatewayHome) -> None:
    gateway.configure("old", "old", cache="10m")
    try:
        async with gateway.agent(Way("stdio", OLD)) as agent:
            for owner in ("kim", "lee"):
                ask = {"ref": {"type": "ref/prompt", "name": "old__greet"}, "argument": {"name": "who", "value": "K"}}
                context = {"arguments": {"owner": owner}}
                found = await agent.request("completion/complete", {**ask, "context": context})
                assert found["completion"]["values"][0].endswith(f"-{owner}")
    finally:
        gateway.configure("old", "old")


async def test_a_downstream_asks_the_agent(agent: RawAgent, downstream: str) -> None:
    got = await agent.call(
        f"{downstream}__ask", what=["elicitation", "sampling", "roots"], meta={"progressToken": "asks"}
    )
    elicited, sampled, roots = got["structuredContent"]["answers"]
    assert elicited == agent.answers["elicitation/create"]
    assert sampled == agent.answers["sampling/createMessage"]
    assert roots == agent.answers["roots/list"]
    (asked,) = agent.of("elicitation/create")
    assert asked["requestedSchema"]["properties"] == {"colour": {"type": "string"}}
    assert len(agent.of("sampling/createMessage")) == len(agent.of("roots/list")) == 1
    assert [each["progress"] for each in agent.of("notifications/progress")] == [1, 2, 3]


async def test_an_agent_that_cannot_be_asked_is_not(gateway: GatewayHome, downstream: str) -> None:
    for way in WAYS:
        async with gateway.agent(way, capabilities={"roots": {}}) as agent:
            if downstream == "old":
                got = await agent.call("old__ask", what=["sampling"])
                (answer,) = got["structuredContent"]["answers"]
                assert "sampling" in answer["refused"]["message"]
                assert agent.of("sampling/createMessage") == []
            elif not agent.is_new:
                assert (await agent.refusal("new__ask", what=["sampling"]))["code"] == -32021
                assert agent.of("sampling/createMessage") == []


async def test_pings_are_answered(gateway: GatewayHome) -> None:
    for way in WAYS:
        if way.version == OLD:
            async with gateway.agent(way) as agent:
                assert await agent.request("ping") == {}


async def test_input_required_passes_untouched_to_an_agent_of_the_same_version(gateway: GatewayHome) -> None:
    for over in ("stdio", "http"):
        async with gateway.agent(Way(over, NEW)) as agent:
            params = {"name": "new__ask", "arguments": {"what": ["elicitation"]}}
            got = await agent.request("tools/call", params)
            assert got["resultType"] == "input_required"
            assert got["requestState"].startswith("state-new-")
            ((key, wanted),) = got["inputRequests"].items()
            assert key.startswith("q")
            assert wanted["params"]["requestedSchema"]["properties"] == {"colour": {"type": "string"}}
            assert "content" not in got


async def test_a_held_call_ends_with_the_answers_and_not_twice(gateway: GatewayHome) -> None:
    for over in ("stdio", "http"):
        async with gateway.agent(Way(over, NEW)) as agent:
            params = {"name": "old__ask", "arguments": {"what": ["elicitation"]}}
            got = await agent.request("tools/call", params)
            assert got["resultType"] == "input_required"
            ((key, _),) = got["inputRequests"].items()
            again = {**params, "requestState": got["requestState"], "inputResponses": {key: {"action": "decline"}}}
            ended = await agent.request("tools/call", again)
            assert ended["structuredContent"]["answers"] == [{"action": "decline"}]
            # The state is used up. A call that an agent believes to continue must not begin anew.
            over_it = await agent.request("tools/call", again)
            assert over_it["isError"] is True
            assert "without requestState" in texts(over_it)[0]


async def test_a_held_call_is_the_agents_own(gateway: GatewayHome) -> None:
    way = Way("stdio", NEW)
    async with gateway.agent(way) as agent, gateway.agent(way) as thief:
        params = {"name": "old__ask", "arguments": {"what": ["elicitation"]}}
        got = await agent.request("tools/call", params)
        ((key, _),) = got["inputRequests"].items()
        again = {**params, "requestState": got["requestState"], "inputResponses": {key: {"action": "decline"}}}
        assert (await thief.request("tools/call", again))["isError"] is True
        assert (await agent.request("tools/call", again))["structuredContent"]["answers"] == [{"action": "decline"}]


async def test_an_anonymous_agent_over_http_is_asked_too(gateway: GatewayHome, downstream: str) -> None:
    async with gateway.agent(Way("http", NEW), key="") as agent:
        got = await agent.call(f"{downstream}__ask", what=["elicitation", "roots"])
        assert len(got["structuredContent"]["answers"]) == 2


async def test_clients_hear_of_changed_lists(agent: RawAgent, nursery: trio.Nursery) -> None:
    await agent.request("resources/list")
    uri = f"demo://old/new-{agent.version}-{agent.is_over_http}"
    if agent.is_new:
        listened = {"notifications": {"toolsListChanged": True, "resourcesListChanged": True}}
        nursery.start_soon(agent.request, "subscriptions/listen", listened, "listening")
        await agent.heard("notifications/subscriptions/acknowledged")
    await agent.call("old__grow", uri=uri)
    told = await agent.heard("notifications/resources/list_changed")
    if agent.is_new:
        assert told["_meta"]["io.modelcontextprotocol/subscriptionId"] == "listening"
    assert uri in [each["uri"] for each in (await agent.request("resources/list"))["resources"]]
    nursery.cancel_scope.cancel()


async def test_tools_stay_listed_while_a_downstream_is_down(agent: RawAgent, downstream: str) -> None:
    before = await agent.names()
    lost = await agent.call(f"{downstream}__die")
    assert lost["isError"] is True
    assert "whether the call had its effect is not known" in texts(lost)[0]
    assert await agent.names() == before
    # It is started again, and the next call may wait for that.
    assert texts(await agent.call(f"{downstream}__echo"))


async def test_secrets_in_results_are_masked_and_marked(agent: RawAgent, downstream: str) -> None:
    got = await agent.call(f"{downstream}__leak")
    assert "ghp_a1B2" not in json.dumps(got)
    assert got["_meta"]["intercom/redacted"]
