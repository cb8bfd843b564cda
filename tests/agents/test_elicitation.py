"""Dialogs of the agent's own client, over real stdio and real HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import mcp_types as types
import pytest
import trio

from intercom.operators.client_dialogs import BY, FASTEST_SECONDS
from intercom.sessions.request_kinds import CLIENT_ANSWERED, PERSON_ANSWERED
from tests.agents.gateway.raw_agent import NEW, OLD, Way, raw_agent
from tests.support.server_process import TRUSTING, Home, Person, begin

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.home(f"http_port = 0\n{TRUSTING}\n[elicitation]\nenabled = true\n"),
]


async def test_the_official_client_shows_a_question_and_closes_it_when_a_person_was_first(served: Home) -> None:
    root = served.workspace()
    shown: list[types.ElicitRequestFormParams] = []
    is_open, is_closed = trio.Event(), trio.Event()

    async def show(_ctx: Any, form: types.ElicitRequestFormParams) -> types.ElicitResult:
        shown.append(form)
        if len(shown) == 1:
            # A person needs longer.
            await trio.sleep(FASTEST_SECONDS)
            return types.ElicitResult(action="accept", content={"decision": "refine", "text": "use tabs"})
        is_open.set()
        try:
            await trio.sleep_forever()
        finally:
            is_closed.set()

    async with (
        served.agent(root, mode="legacy", elicitation_callback=show) as agent,
        served.person(root) as person,
        trio.open_nursery() as nursery,
    ):
        first = begin(nursery, agent, "transmit", prompt_text="Tabs or spaces?", prompt_type="clarification")
        told = {"decision": "refine", "instruction": "use tabs", "message": CLIENT_ANSWERED["refine"]}
        assert await first() == told
        decided = (await person.card(lambda card: card["decided"] is not None))["decided"]
        assert (decided["by"], decided["channel"]) == (BY, "elicitation")
        second = begin(nursery, agent, "transmit", prompt_text="Go on?")
        await is_open.wait()
        card = await person.card(lambda card: card["description"] == "Go on?")
        await person.do("answer", id=card["request_id"], decision="stop")
        assert await second() == {"decision": "stop", "message": PERSON_ANSWERED["stop"]}
        await is_closed.wait()
    assert "> Tabs or spaces?" in shown[0].message.splitlines()
    assert shown[0].requested_schema["required"] == ["decision"]


async def test_a_question_is_shown_over_http_and_in_no_call_of_the_newest_version(served: Home) -> None:
    for way in (Way("http", OLD), Way("http", NEW)):
        root = served.workspace()
        async with raw_agent(served, way, root) as agent, served.person(root) as person:
            agent.answers["elicitation/create"] = {"action": "accept", "content": {"decision": "continue"}}
            agent.deliver = partial(_as_a_person, agent.deliver)
            async with trio.open_nursery() as nursery:
                if agent.is_new:
                    # Nobody gets a dialog there: a person answers elsewhere.
                    nursery.start_soon(_answer, person)
                got = await agent.call("transmit", prompt_text="Go on?")
            answered = PERSON_ANSWERED if agent.is_new else CLIENT_ANSWERED
            assert got["structuredContent"]["message"] == answered["continue"]
            assert len(agent.of("elicitation/create")) == (0 if agent.is_new else 1)


async def _as_a_person(deliver: Callable[[dict[str, Any]], Awaitable[None]], message: dict[str, Any]) -> None:
    """Deliver a message; an answer to the server only after the time that a person needs."""
    if "method" not in message:
        await trio.sleep(FASTEST_SECONDS)
    await deliver(message)


async def _answer(person: Person) -> None:
    card = await person.card(kind="prompt", status="pending")
    await person.do("answer", id=card["request_id"], decision="continue")
