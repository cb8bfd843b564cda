"""The server's own stdin and stdout, without a shim between: what becomes of calls that are cancelled."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import trio
import trio.testing

from intercom.agents import message_stream
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.message_stream import Lines
from intercom.model.decision import Decision
from tests.agents.in_process import ABOUT
from tests.support.virtual_server import VirtualServer

#: So many lists are more than a pipe holds.
MANY = 20


def line(id: int | None, method: str, **params: Any) -> bytes:
    about = {} if id is None else {"id": id}
    return (
        json.dumps({"jsonrpc": "2.0", **about, "method": method, "params": {"_meta": ABOUT, **params}}).encode() + b"\n"
    )


async def test_a_verdict_that_could_not_leave_before_its_call_was_cancelled_is_told_by_the_next(
    server: VirtualServer, root: Path
) -> None:
    connection = AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "agent", str(root), None
    )
    (stdin, to_server), (from_server, stdout) = os.pipe(), os.pipe()
    server.nursery.start_soon(message_stream.serve, server.app.shim_deps.server, connection, stdin, stdout)
    async with trio.lowlevel.FdStream(to_server) as says, trio.lowlevel.FdStream(from_server) as hears:
        await says.send_all(line(1, "tools/call", name="transmit", arguments={"prompt_text": "well?"}))
        card = await server.operator.card(away=False)
        for id in range(2, 2 + MANY):
            await says.send_all(line(id, "tools/list"))
        await trio.testing.wait_all_tasks_blocked()
        await server.decide(card.id, Decision.STOP)
        await says.send_all(line(None, "notifications/cancelled", requestId=1))
        await trio.testing.wait_all_tasks_blocked()
        lines = Lines(hears)
        for _ in range(MANY):
            await lines.next()
        await says.send_all(line(0, "tools/call", name="ping", arguments={}))
        # The cancelled call's answer may leave all the same, and is not heeded.
        told: dict[str, Any] = {"id": 1}
        while told["id"] == 1:
            told = json.loads(await lines.next() or b"")
        assert len(told["result"]["structuredContent"]["late_verdicts"]) == 1
    os.close(stdin)
    os.close(stdout)
