"""Each actor that the chaos runs crash, by itself and in virtual time: a call that waits is answered all the same."""

from __future__ import annotations

import pytest
import trio

from actors.testing import inject
from intercom.model.decision import Decision
from tests.chaos.plans import ACTORS, SERVICE_ACTORS
from tests.support.faults import names_of
from tests.support.virtual_server import AgentClient, VirtualServer

#: Those between a server and the world, of which a server in virtual time has none.
AT_THE_EDGE = {
    *("CtlListener", "ShimListener", "ShimConnection", "HttpListener", "WebListener", "OpenWeb", "PushSender"),
    *("Sender", "OutboxWriter", "CommandRunner", "EphemeralSender", "SlackConnection", "slack"),
    "AgentProcessActor",
}


@pytest.mark.parametrize("fallen", sorted({*ACTORS, *SERVICE_ACTORS} - AT_THE_EDGE))
async def test_a_call_that_waits_is_answered_whichever_actor_falls(
    server: VirtualServer, agent: AgentClient, fallen: str
) -> None:
    id = (await agent.propose()).request_id
    waiting = await server.wait(agent, id)
    first = next(ref for ref in server.app.system.living() if fallen in names_of(ref))
    async with server.restarting():
        inject(server.app.system, first, RuntimeError("a fault was asked for"), "now")
        await server.decide(id, Decision.APPROVE)
        assert (await waiting()).answer.status == "approved"
        assert (await agent.propose("b.txt")).answered is None
        # Nothing tells of a restart.
        while not any(fallen in names_of(ref) for ref in server.app.system.living() if ref is not first):  # noqa: ASYNC110
            await trio.sleep(0.1)
