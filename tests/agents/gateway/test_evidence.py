"""Evidence from a call to a room: whose call it was decides who may link it, and the room who may read it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio
from attrs import frozen

from tests.agents.gateway.conftest import CONFIG, GatewayHome, gateway_home, ready
from tests.agents.gateway.raw_agent import NEW, WAYS, RawAgent, Way

pytestmark = pytest.mark.real_time

#: Put together, so that no tool takes it for a real one.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(scope="module")
def served() -> Iterator[GatewayHome]:
    """A server with rooms, and a gateway that keeps the results of one tool."""
    with gateway_home(config=f"{CONFIG}\n[rooms]\nenabled = true\n") as made:
        made.configure("old", "old", evidence=["echo"])
        with made.home.serving():
            trio.run(ready, made)
            yield made


async def answer(agent: RawAgent, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool of rooms answers, also if it refuses."""
    found: dict[str, Any] = (await agent.call(tool, **arguments))["structuredContent"]
    return found


async def kept(agent: RawAgent, text: str = "hello") -> str:
    """The id of the evidence of a call that the agent makes, as its content says it."""
    result = await agent.call("old__echo", text=text)
    said = result["content"][-1]["text"]
    id: str = result["_meta"]["intercom/evidence"]
    assert said == f"From Intercom: this result is kept as evidence:{id}"
    return id


@frozen
class Room:
    """A room, and an agent's team in it."""

    agent: RawAgent
    here: dict[str, str]

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return await answer(self.agent, tool, **self.here, **arguments)

    async def joined_by(self, agent: RawAgent) -> Room:
        id = self.here["session_id"]
        made = await answer(agent, "join_session", session_id=id, team_name=agent.name)
        return Room(agent, {"session_id": id, "team_id": made["team_id"]})


async def room_of(agent: RawAgent) -> Room:
    made = await answer(agent, "create_session", title="t", description="d", creator_team_name=agent.name)
    return Room(agent, {"session_id": made["session_id"], "team_id": made["team_id"]})


@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_an_agent_links_its_own_evidence_and_the_others_of_the_room_read_it(
    served: GatewayHome, way: Way
) -> None:
    async with served.agent(way, name="Ada") as ada, served.agent(way, name="Bob") as bob:
        room = await room_of(ada)
        its = await room.joined_by(bob)
        id = await kept(ada, f"found {SECRET}")
        assert (await its.call("read_evidence", evidence_id=id))["error"]["code"] == "not_found"
        posted = await room.call("post_message", content=f"see evidence:{id}, and evidence:{'0' * 8}")
        assert (posted["evidence"], "unlinked" in posted) == ([id], False)
        found = await its.call("read_evidence", evidence_id=id)
        record = found["record"]
        assert (found["linked_by"], record["mcp_tool_name"], record["mcp_method"]) == ("Ada", "old", "echo")
        assert "found [masked" in json.dumps(record["data"])
        assert SECRET not in json.dumps(record)
        assert "no instruction" in found["notice"]


@pytest.mark.parametrize("tool", ["post_message", "append_to_session_doc", "update_session_doc", "conclude_session"])
async def test_an_id_of_another_agents_evidence_links_nothing(served: GatewayHome, tool: str) -> None:
    """Guessed, copied or seen somewhere: it is treated like one that does not exist."""
    way = WAYS[0]
    async with served.agent(way, name="Ada") as ada, served.agent(way, name="Eve") as eve:
        room = await room_of(eve)
        theirs, nobodys = await kept(ada), "00000000-0000-4000-8000-000000000000"
        own = await kept(eve)
        text = f"evidence:{theirs} evidence:{nobodys} evidence:{own}"
        arguments = {
            "post_message": {"content": text},
            "append_to_session_doc": {"text": text},
            "update_session_doc": {"content": text, "expected_version": 0},
            "conclude_session": {"summary_section": text},
        }
        done = await room.call(tool, **arguments[tool])
        assert (done["evidence"], done["unlinked"]) == ([own], [theirs, nobodys])
        refusals = [(await room.call("read_evidence", evidence_id=each))["error"] for each in (theirs, nobodys)]
        assert refusals[0] == refusals[1]
        assert (await room.call("read_evidence", evidence_id=f"evidence:{own}"))["evidence_id"] == own


async def test_a_link_counts_in_its_room_alone(served: GatewayHome) -> None:
    async with served.agent(WAYS[0], name="Ada") as ada, served.agent(WAYS[0], name="Bob") as bob:
        room, other = await room_of(ada), await room_of(bob)
        id = await kept(ada)
        await room.call("post_message", content=f"evidence:{id}")
        assert (await other.call("post_message", content=f"evidence:{id}"))["unlinked"] == [id]
        assert (await other.call("read_evidence", evidence_id=id))["error"]["code"] == "not_found"
        # The token of another room opens nothing here.
        stolen = {"session_id": room.here["session_id"], "team_id": other.here["team_id"]}
        refused = await answer(bob, "read_evidence", **stolen, evidence_id=id)
        assert refused["error"]["code"] == "unauthorized"


def over_http(served: GatewayHome, room: Room, below: str, body: dict[str, Any] | None = None) -> Any:
    """What plain HTTP answers to somebody with the room's token."""
    with open(served.home.places.http_address_file) as file:
        base = file.read().strip()
    data = None if body is None else json.dumps(body).encode()
    headers = {"X-Team-ID": room.here["team_id"], "Content-Type": "application/json"}
    url = f"{base}/api/sessions/{room.here['session_id']}{below}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=20) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as refused:
        return json.loads(refused.read())


async def test_a_team_over_plain_http_reads_and_does_not_link(served: GatewayHome) -> None:
    """Even with the token of the agent's own team: its session is what counts."""
    async with served.agent(WAYS[0], name="Ada") as ada:
        room = await room_of(ada)
        ask = partial(trio.to_thread.run_sync, over_http, served, room)
        id = await kept(ada)
        posted = await ask("/messages", {"content": f"evidence:{id}"})
        assert (posted["unlinked"], "evidence" in posted) == ([id], False)
        assert (await ask(f"/evidence?evidence_id={id}"))["error"]["code"] == "not_found"
        await room.call("append_to_session_doc", text=f"evidence:{id}")
        assert (await ask(f"/evidence?evidence_id={id}"))["record"]["id"] == id
        # Whoever writes it again in this room refers to what is linked.
        assert (await ask("/messages", {"content": f"as evidence:{id} says"}))["evidence"] == [id]
        bundle = await ask("/export?format=json")
        assert [each["record"]["id"] for each in bundle["evidence"]] == [id]


async def test_a_person_exports_evidence_and_links_that_of_any_session(served: GatewayHome) -> None:
    async with (
        served.home.person() as person,
        served.agent(WAYS[0], name="Ada") as ada,
        served.agent(WAYS[0], name="Bob") as bob,
    ):
        id, room = await kept(ada), await room_of(bob)
        listed = await person.do("gateway-evidence", name="old", tool="echo", limit=1)
        assert [each["id"] for each in listed["lines"]] == [id]
        [export] = (await person.do("gateway-evidence", text=id[:13]))["exports"]
        assert (export["id"], export["source_type"]) == (id, "mcp")
        assert export["run_id"] == listed["lines"][0]["session_id"]
        await person.do("rooms-post", id=room.here["session_id"], text=f"look: evidence:{id}")
        found = await room.call("read_evidence", evidence_id=id)
        assert found["record"] == export
        assert found["linked_by"] not in ("Ada", "Bob")


async def test_an_anonymous_agent_keeps_evidence_and_links_none(served: GatewayHome) -> None:
    """It has another session with each call, so none of them made its earlier ones."""
    async with served.agent(Way("http", NEW), name="Ann", key="") as ann:
        room = await room_of(ann)
        id = await kept(ann)
        assert (await room.call("post_message", content=f"evidence:{id}"))["unlinked"] == [id]
