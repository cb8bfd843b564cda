"""A downstream is killed in mid-call: the next 1,000 calls are each answered once, and records equal what was sent."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import define, field

from actors import Backoff
from intercom.gateway.assignments import AgentIdentity
from intercom.gateway.breaker import BreakerSettings
from intercom.gateway.budgets import Budget
from intercom.gateway.call_journal import Invocation
from intercom.gateway.calls import Approval, GatewayCaller
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.downstream_file import to_json
from intercom.gateway.messages import CallFailed, GatewayRefused, InvocationStatus
from intercom.gateway.service import Gateway
from intercom.model.json_types import JsonObject
from intercom.model.request import Operation
from tests.gateway.gateways import gateway_in
from tests.gateway.programs import program, until_dead
from tests.gateway.recording import calls_counted, recorded

pytestmark = pytest.mark.real_time

CALLS = 1000
AGENTS = 16
#: A downstream that notes each call in a file before it does anything else. `hold` is never answered.
CODE = """
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("write", "read")]
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for message in calls():
    if message["method"] == "tools/list": put(id=message["id"], result={"tools": TOOLS})
    if message["method"] != "tools/call": continue
    arguments = message["params"]["arguments"]
    os.write(notes, f"{arguments['number']}\\n".encode())
    if arguments.get("hold"):
        token = message["params"]["_meta"]["progressToken"]
        put(method="notifications/progress", params={"progressToken": token, "progress": 1})
    else: put(id=message["id"], result={"content": [], "got": arguments["number"]})
"""


async def _nobody(_operation: Operation) -> Approval:
    raise AssertionError("nobody is to be asked")


@define(eq=False)
class Port:
    """An agent, which is told when its call has arrived."""

    id: str
    arrived: trio.Event = field(factory=trio.Event)
    capabilities: JsonObject = field(factory=dict)

    def notify(self, method: str, params: JsonObject) -> None:
        assert (method, params["progressToken"]) == ("notifications/progress", "mine")
        self.arrived.set()

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        raise AssertionError("no agent is asked anything")


@define(eq=False)
class Rig:
    """A gateway with one downstream, and how each call was answered, by its number."""

    gateway: Gateway
    answers: dict[int, str] = field(factory=dict)
    _last: int = 0

    async def call(self, port: Port, tool: str, **more: bool) -> None:
        """Make the next call, and note its answer. A refusal says when to come back."""
        self._last += 1
        number = self._last
        identity = AgentIdentity(port.id)
        caller = GatewayCaller(identity, port, "session", _nobody, call=f"call {number}", progress_token="mine")
        params: JsonObject = {"name": f"files__{tool}", "arguments": {"number": number, **more}}
        try:
            result = await self.gateway.call_tool(caller, f"files__{tool}", params)
            answer = "result" if result["got"] == number else "another call's result"
        except GatewayRefused as refused:
            comes_back = refused.status is InvocationStatus.CIRCUIT_OPEN and (refused.retry_after or 0) > 0
            answer = "refused" if comes_back else "refused for good"
        except CallFailed as failed:
            answer = "lost" if failed.was_sent else "not sent"
        assert number not in self.answers, "it was answered twice"
        self.answers[number] = answer

    async def pid(self) -> int:
        pid = (await self.gateway.describe_one("files")).pid
        assert pid is not None
        return pid

    async def calls(self, number: int, first: int = 0) -> None:
        """Let the agents make so many calls, as fast as they are answered."""
        left = iter(range(first, first + number))

        async def work(agent: int) -> None:
            port = Port(f"agent {agent}")
            for each in left:
                await self.call(port, "read" if each % 2 else "write")

        async with trio.open_nursery() as nursery:
            for agent in range(AGENTS):
                nursery.start_soon(work, agent)


@asynccontextmanager
async def rig_in(tmp_path: Path) -> AsyncIterator[Rig]:
    settings, state = tmp_path / "gateway", tmp_path / "state"
    settings.mkdir()
    state.mkdir(0o700)
    roles = {"roles": [{"role": "all", "capabilities": ["*.*"]}], "defaultRole": "all"}
    (settings / "roles.json").write_text(json.dumps(roles))
    found = DownstreamConfig(
        "files",
        Transport.STDIO,
        ("files.*",),
        "1.0.0",
        command=sys.executable,
        args=(*program(CODE).args, str(tmp_path / "notes")),
        read_only=("read",),
        budget=Budget(timeout_seconds=30.0, concurrency_limit=2 * AGENTS),
        breaker=BreakerSettings(backoff=Backoff(initial=0.1, max=1.0, jitter=0.2, reset_after=60.0)),
    )
    (settings / "files.json").write_text(json.dumps(to_json(found)))
    async with gateway_in(state, settings) as (gateway, *_):
        listed = trio.Event()
        gateway.listen("test", listed.set)
        if gateway.snapshot.catalog.find("files__read") is None:
            await listed.wait()
        yield Rig(gateway)


def notes_in(tmp_path: Path) -> Counter[int]:
    """How often the downstream has received each call."""
    return Counter(map(int, (tmp_path / "notes").read_text().split()))


def journal_of(state: Path) -> Mapping[str, list[str]]:
    """The events of each call in the journal, by its name."""
    found: dict[str, list[str]] = {}
    for line in (state / "calls.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["event"] != "recorded":
            found.setdefault(entry["call"], []).append(entry["event"])
    return found


def check_records(tmp_path: Path, answers: Mapping[int, str]) -> None:
    """What the downstream received, the journal, the audit log and the usage say the same."""
    state = tmp_path / "state"
    calls: dict[int, Invocation] = {int((each.call or "").split()[1]): each for each in recorded(state)}
    assert len(recorded(state)) == len(calls) == len(answers)
    received = notes_in(tmp_path)
    statuses = {
        "result": InvocationStatus.SUCCESS,
        "refused": InvocationStatus.CIRCUIT_OPEN,
        "lost": InvocationStatus.ERROR,
    }
    for number, answer in answers.items():
        call = calls[number]
        assert call.status is statuses[answer]
        assert call.sent is (answer != "refused")
        if answer == "refused":
            assert received[number] == 0
        if answer == "result":
            assert received[number] >= 1
        # Only what changes nothing may be repeated, once.
        assert received[number] <= (2 if call.method == "read" else 1)
    journal = journal_of(state)
    assert {int(name.split()[1]) for name in journal} == set(answers)
    assert all(events == ["begun", "finished"] for events in journal.values())
    sent = sum(answer != "refused" for answer in answers.values())
    assert calls_counted(state) == (sent, 0)


async def test_1000_calls_after_a_kill_in_mid_call(tmp_path: Path) -> None:
    async with rig_in(tmp_path) as rig:
        pid = await rig.pid()
        async with trio.open_nursery() as nursery:
            port = Port("killer")
            nursery.start_soon(partial(rig.call, port, "write", hold=True))
            await port.arrived.wait()
            os.kill(pid, signal.SIGKILL)
        assert rig.answers == {1: "lost"}
        await rig.calls(CALLS)
        # One loss opens no circuit: they all waited for the next process.
        assert Counter(rig.answers.values()) == {"lost": 1, "result": CALLS}
        assert await rig.pid() != pid
        state = await rig.gateway.describe_one("files")
        assert (state.running, state.calls, state.usage.calls) == (0, CALLS + 1, CALLS + 1)
        assert state.remaining.concurrent == 2 * AGENTS
        await until_dead(pid)
    check_records(tmp_path, rig.answers)


async def test_1000_calls_with_a_kill_in_mid_call_again_and_again(tmp_path: Path) -> None:
    kills = 5
    async with rig_in(tmp_path) as rig:
        for kill in range(kills):
            pid = await rig.pid()
            async with trio.open_nursery() as nursery:
                port = Port("killer")
                nursery.start_soon(partial(rig.call, port, "write", hold=True))
                nursery.start_soon(rig.calls, CALLS // kills, kill)
                await port.arrived.wait()
                os.kill(pid, signal.SIGKILL)
        answers = Counter(rig.answers.values())
        assert sum(answers.values()) == CALLS + kills
        # What ran when it was killed is lost if it may have changed something; the others have results, or come back.
        assert set(answers) <= {"result", "lost", "refused"}
        assert kills <= answers["lost"] <= kills * (AGENTS + 1)
        assert answers["result"] >= CALLS - kills * AGENTS
        state = await rig.gateway.describe_one("files")
        assert state.running == 0
        assert state.remaining.concurrent == 2 * AGENTS
    check_records(tmp_path, rig.answers)
