"""Changes of resources and lists: agents hear of those that they watch, in both protocol versions."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from tests.agents.gateway.conftest import GatewayHome
from tests.agents.gateway.raw_agent import OLD, RawAgent, Refused, Way

pytestmark = pytest.mark.real_time


async def said(agent: RawAgent, tool: str, **arguments: Any) -> list[str]:
    """The texts of a call's result."""
    return [block["text"] for block in (await agent.call(tool, **arguments))["content"]]


async def test_clients_hear_of_changed_resources_that_they_watch(
    agent: RawAgent, downstream: str, nursery: trio.Nursery
) -> None:
    mine = f"{agent.version}-{agent.is_over_http}"
    uri, other = f"demo://{downstream}/item/{mine}", f"demo://{downstream}/item/other-{mine}"
    if agent.is_new:
        listened = {"notifications": {"resourceSubscriptions": [uri, "nobody://has/this"]}}
        nursery.start_soon(agent.request, "subscriptions/listen", listened, "watching")
        honoured = await agent.heard("notifications/subscriptions/acknowledged")
        assert honoured["notifications"]["resourceSubscriptions"] == [uri]
    else:
        assert await agent.request("resources/subscribe", {"uri": uri}) == {}
    await agent.call(f"{downstream}__wait_for", event=f"watched {uri}")
    assert await said(agent, f"{downstream}__touch", uri=other) == ["nobody was told"]
    assert await said(agent, f"{downstream}__touch", uri=uri) == ["told"]
    assert (await agent.heard("notifications/resources/updated"))["uri"] == uri
    if agent.is_new:
        await agent.cancel("watching")
    else:
        assert await agent.request("resources/unsubscribe", {"uri": uri}) == {}
    await agent.call(f"{downstream}__wait_for", event=f"unwatched {uri}")
    nursery.cancel_scope.cancel()


async def test_a_downstream_that_was_started_again_is_asked_again_for_what_is_watched(gateway: GatewayHome) -> None:
    uri = "demo://old/item/after-a-death"
    async with gateway.agent(Way("stdio", OLD)) as agent:
        await agent.request("resources/subscribe", {"uri": uri})
        await agent.call("old__die")
        await agent.call("old__wait_for", event=f"watched {uri}")
        assert await said(agent, "old__touch", uri=uri) == ["told"]
        assert (await agent.heard("notifications/resources/updated"))["uri"] == uri
    async with gateway.agent(Way("stdio", OLD)) as other:
        # The agent that watched it is gone.
        await other.call("old__wait_for", event=f"unwatched {uri}")


async def test_a_change_of_a_newer_downstreams_lists_is_heard(gateway: GatewayHome) -> None:
    uri = "demo://new/grown"
    async with gateway.agent(Way("stdio", OLD)) as agent:
        await agent.request("resources/list")
        await agent.call("new__grow", uri=uri)
        await agent.heard("notifications/resources/list_changed")
        assert uri in [each["uri"] for each in (await agent.request("resources/list"))["resources"]]


async def test_what_nobody_has_cannot_be_watched(gateway: GatewayHome) -> None:
    async with gateway.agent(Way("stdio", OLD)) as agent:
        for uri in ("nobody://has/this", None):
            with pytest.raises(Refused, match="-32602"):
                await agent.request("resources/subscribe", {"uri": uri})
    async with gateway.agent(Way("stdio", OLD), name="nobody") as stranger:
        # There is one, but not for this role.
        with pytest.raises(Refused, match="-32602"):
            await stranger.request("resources/subscribe", {"uri": "demo://old/own"})
