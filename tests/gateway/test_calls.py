"""One call on its way: what a downstream gets of it, what an agent gets back, and what is remembered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import define, field

from intercom.gateway import call_log_reader
from intercom.gateway.assignments import AgentIdentity
from intercom.gateway.budgets import MICROS
from intercom.gateway.call_cards import Target, operation_of, shown_arguments
from intercom.gateway.calls import INVOCATION, Answer, Approval, GatewayCaller, error_text
from intercom.gateway.downstream_file import to_json
from intercom.gateway.messages import GatewayRefused, InvocationStatus, RpcError, SignInChanged, downstream_name
from intercom.gateway.operations import GatewayPeople
from intercom.gateway.service import Gateway
from intercom.masking import Masker
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import JsonObject, part
from intercom.model.request import Operation, RiskLevel
from intercom.store import gateway as records
from intercom.store.store_and_reader import Reader
from tests.gateway.gateways import gateway_in
from tests.gateway.programs import program

pytestmark = pytest.mark.real_time

#: Put together, so that no tool takes it for a real one.
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
#: A downstream that answers with the parameters it got, and does what its argument `do` says first.
ECHO = """
token = sys.argv[1]
n = 0
for message in messages():
    if greet(message): continue
    if message["method"] == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("read", "write")]
        put(id=message["id"], result={"tools": tools})
    elif message["method"] == "tools/call":
        n += 1
        params = message["params"]
        do = params.get("arguments", {}).get("do")
        if do == "fail":
            put(id=message["id"], error={"code": -1, "message": "bad " + token, "data": {"token": token}})
            continue
        if do == "announce":
            put(method="notifications/prompts/list_changed")
        if do == "overlap":
            put(method="notifications/message", params={"level": "info", "data": "began"})
            other = json.loads(sys.stdin.buffer.readline())
            put(id=other["id"], result={"content": [{"type": "text", "text": json.dumps({"n": n})}]})
        if do == "log":
            put(method="notifications/message", params={"level": "info", "data": "using " + token})
        if do in ("roots/list", "sampling/createMessage"):
            put(id="q%d" % n, method=do, params={"note": token})
            while True:
                answer = json.loads(sys.stdin.buffer.readline())
                if answer.get("id") == "q%d" % n: break
            params = {"answer": answer.get("result"), "error": answer.get("error"), "n": n}
        put(id=message["id"], result={"content": [{"type": "text", "text": json.dumps({"n": n, **params})}]})
"""


@define
class Client:
    """An agent's client that answers every question with its own name."""

    id: str = "alice"
    capabilities: JsonObject = field(factory=lambda: {"sampling": {}, "roots": {}})
    told: list[tuple[str, JsonObject]] = field(factory=list)
    heard: trio.Event = field(factory=trio.Event)

    def notify(self, method: str, params: JsonObject) -> None:
        self.told.append((method, params))
        self.heard.set()

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        self.told.append((method, params))
        return {"by": self.id}


@define
class Agent:
    gateway: Gateway
    client: Client = field(factory=Client)
    asked: list[Operation] = field(factory=list)
    modern: bool = False
    approval: Approval = field(default=Approval(Answer.ALLOWED, "r1"))
    #: Happens while a person is asked.
    meanwhile: Callable[[], object] = lambda: None

    async def _ask(self, operation: Operation) -> Approval:
        self.asked.append(operation)
        self.meanwhile()
        return self.approval

    async def call(self, tool: str, arguments: JsonObject | None = None, **more: Any) -> JsonObject:
        caller = GatewayCaller(AgentIdentity(self.client.id), self.client, "s1", self._ask, modern=self.modern)
        with trio.fail_after(120):
            return await self.gateway.call_tool(caller, f"files__{tool}", {"arguments": arguments or {}, **more})


def said(result: JsonObject) -> JsonObject:
    """What the downstream got."""
    content: Any = result["content"]
    found: JsonObject = json.loads(content[0]["text"])
    return found


@asynccontextmanager
async def running(tmp_path: Path, role: JsonObject | None = None, **settings: Any) -> AsyncIterator[Gateway]:
    async with running_with_records(tmp_path, role, **settings) as (gateway, _):
        yield gateway


@asynccontextmanager
async def running_with_records(
    tmp_path: Path, role: JsonObject | None = None, **settings: Any
) -> AsyncIterator[tuple[Gateway, Reader]]:
    directory = tmp_path / "gateway"
    directory.mkdir()
    made = to_json(program(ECHO))
    made = {**made, "name": "files", "capabilities": ["files.*"], "args": [*made["args"], TOKEN], **settings}
    (directory / "files.json").write_text(json.dumps(made))
    roles = {"roles": [{"role": "dev", "capabilities": ["files.*"], **(role or {})}], "defaultRole": "dev"}
    (directory / "roles.json").write_text(json.dumps(roles))
    async with gateway_in(tmp_path, directory) as (gateway, _store, reader, news):
        with trio.fail_after(120):
            while not gateway.listed(AgentIdentity("anybody")):
                await news.changed.wait()
        yield gateway, reader


async def test_only_what_the_method_has_is_sent(tmp_path: Path) -> None:
    """Go's decoder folds the case of keys, and takes the last: `Name` would be another tool than the card showed."""
    async with running(tmp_path) as gateway:
        more = {"Name": "write", "Arguments": {"x": 2}, "name\x00": "write", "ARGUMENTS": {}, "name": "read"}
        got = said(await Agent(gateway).call("read", {"x": 1}, **more))
        assert {key: got[key] for key in got if key != "n"} == {"name": "read", "arguments": {"x": 1}}


@pytest.mark.parametrize("more", [{"requestState": "s"}, {"inputResponses": {"a": {"amount": 9}}}])
async def test_a_first_call_carries_no_answers(tmp_path: Path, more: JsonObject) -> None:
    async with running(tmp_path, {"capabilities": [], "ask": ["files.*"]}) as gateway:
        agent = Agent(gateway, modern=True)
        with pytest.raises(GatewayRefused, match="waits for your answers") as refused:
            await agent.call("write", {"amount": 1}, **more)
        assert refused.value.status is InvocationStatus.PERMISSION_DENIED
        assert agent.asked == []


async def test_a_call_with_answers_that_a_killed_server_had_sent_is_not_one_that_was_not(tmp_path: Path) -> None:
    directory = tmp_path / "gateway"
    directory.mkdir()
    roles = {"roles": [{"role": "dev", "capabilities": ["files.*"]}], "defaultRole": "dev"}
    (directory / "roles.json").write_text(json.dumps(roles))
    async with gateway_in(tmp_path, directory) as (gateway, _store, _reader, _news):
        with trio.fail_after(120):
            await gateway.log.ready()
        names = {"run_id": "s1", "agent_id": "alice", "agent_role": "dev", "tool": "files", "method": "write"}
        # It has no end, as after a kill.
        gateway.log.begin(gateway.log.new(**names, arguments={}, call="call 2"))
    async with gateway_in(tmp_path, directory) as (gateway, _store, _reader, _news):
        agent = Agent(gateway)
        caller = GatewayCaller(AgentIdentity("alice"), agent.client, "s1", agent._ask, call="call 2")
        params: JsonObject = {"name": "write", "requestState": "s", "inputResponses": {}}
        with (
            trio.fail_after(120),
            pytest.raises(GatewayRefused, match="it was sent, it may have had its effect") as refused,
        ):
            await gateway.calls.carry_out(caller, Target("files", "write", "files__write"), "tools/call", params, {})
        assert refused.value.status is InvocationStatus.INTERRUPTED


async def test_an_error_is_passed_on_without_its_secrets(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        with pytest.raises(RpcError) as refused:
            await Agent(gateway).call("read", {"do": "fail"})
        assert (refused.value.code, refused.value.message) == (-1, "bad [masked: GitHub token]")
        assert TOKEN not in repr(refused.value.data)


async def test_an_agent_is_told_and_asked_without_secrets(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        agent = Agent(gateway)
        await agent.call("read", {"do": "log"})
        await agent.call("read", {"do": "sampling/createMessage"})
        assert [method for method, _ in agent.client.told] == ["notifications/message", "sampling/createMessage"]
        assert TOKEN not in repr(agent.client.told)


@pytest.mark.parametrize("roots", [False, True])
async def test_only_a_configured_downstream_may_ask_for_directories(tmp_path: Path, roots: bool) -> None:
    """An agent that answers could widen the directories that a person configured."""
    async with running(tmp_path, roots=roots) as gateway:
        got = said(await Agent(gateway).call("read", {"do": "roots/list"}))
        assert got["answer"] == ({"by": "alice"} if roots else None)


async def test_a_cached_answer_has_a_record_of_its_own_and_says_so(tmp_path: Path) -> None:
    async with running_with_records(tmp_path, readOnly=["read"], cache="10m") as (gateway, reader):
        first = await Agent(gateway).call("read", {"x": 1})
        again = await Agent(gateway, Client("bob")).call("read", {"x": 1})
        assert said(first)["n"] == said(again)["n"] == 1
        assert part(first, "_meta")[INVOCATION] != part(again, "_meta")[INVOCATION]
        await gateway.log.settle()
        kept = await reader.read(lambda db: records.calls(db, 10))
        assert [each.record["cached"] for each in kept] == [False, True]
        # A write makes what is known of the downstream old.
        await Agent(gateway).call("write")
        assert said(await Agent(gateway).call("read", {"x": 1}))["n"] == 3


async def test_an_answer_from_before_the_end_of_a_write_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path, readOnly=["read"], cache="10m") as gateway, trio.open_nursery() as nursery:
        writer, reader = Agent(gateway), Agent(gateway, Client("bob"))
        ended = trio.Event()

        async def write() -> None:
            await writer.call("write", {"do": "overlap"})
            ended.set()

        nursery.start_soon(write)
        with trio.fail_after(120):
            await writer.client.heard.wait()
        assert said(await reader.call("read"))["n"] == 1
        with trio.fail_after(120):
            await ended.wait()
        assert said(await reader.call("read"))["n"] == 2


async def test_a_persons_call_makes_what_is_known_old(tmp_path: Path) -> None:
    async with running_with_records(tmp_path, readOnly=["read"], cache="10m") as (gateway, reader):
        assert said(await Agent(gateway).call("read"))["n"] == 1
        people = GatewayPeople(gateway, gateway.stored.store, reader)
        with trio.fail_after(120):
            await people.call("files", "read", None, "kim")
            assert said(await Agent(gateway).call("read"))["n"] == 1
            await people.call("files", "write", None, "kim")
        assert said(await Agent(gateway).call("read"))["n"] == 4


async def test_an_announced_change_makes_what_is_known_old(tmp_path: Path) -> None:
    async with running(tmp_path, readOnly=["read"], cache="10m") as gateway:
        agent = Agent(gateway)
        await agent.call("read", {"do": "announce"})
        # Its actor answers after it has taken the announcement.
        await gateway.describe_one("files")
        assert said(await agent.call("read", {"do": "announce"}))["n"] == 2


async def test_another_configuration_or_connection_makes_what_is_known_old(tmp_path: Path) -> None:
    async with running(tmp_path, readOnly=["read"], cache="10m", redact=False) as gateway:
        agent, file = Agent(gateway), tmp_path / "gateway/files.json"
        assert TOKEN in json.dumps(said(await agent.call("read", {"x": TOKEN})))
        file.write_text(json.dumps({**json.loads(file.read_text()), "redact": True}))
        again = said(await agent.call("read", {"x": TOKEN}))
        assert again["n"] == 2
        assert TOKEN not in json.dumps(again)
        gateway.system.named(downstream_name("files")).tell(SignInChanged())
        await gateway.describe_one("files")
        assert said(await agent.call("read", {"x": TOKEN}))["n"] == 1


async def test_an_answer_that_an_agent_had_a_part_in_is_not_kept(tmp_path: Path) -> None:
    async with running(tmp_path, readOnly=["read"], cache="10m") as gateway:
        alice, bob = Agent(gateway), Agent(gateway, Client("bob"))
        assert said(await alice.call("read", {"do": "sampling/createMessage"}))["answer"] == {"by": "alice"}
        assert said(await bob.call("read", {"do": "sampling/createMessage"}))["answer"] == {"by": "bob"}
        assert said(await alice.call("read", {"x": 1}, _meta={"tenant": "a"}))["n"] == 3
        assert said(await bob.call("read", {"x": 1}, _meta={"tenant": "b"}))["n"] == 4


async def test_a_call_that_was_sent_costs_also_without_a_result(tmp_path: Path) -> None:
    budget = {"costPerCall": 2, "dailyCost": 100, "dailyQuota": 2}
    async with running_with_records(tmp_path, budget=budget) as (gateway, reader):
        with pytest.raises(RpcError):
            await Agent(gateway).call("read", {"do": "fail"})
        with trio.fail_after(120), pytest.raises(InvalidArguments):
            await GatewayPeople(gateway, gateway.stored.store, reader).call("files", "read", '{"do": "fail"}', "kim")
        with pytest.raises(GatewayRefused, match="2 calls a day"):
            await Agent(gateway).call("read")
        await gateway.log.settle()
        kept = (await reader.read(call_log_reader.tail)).calls
        assert [(each.status, each.cost) for each in kept] == [("error", 2), ("error", 2), ("rate_limited", 0)]
        used = await reader.read(lambda db: records.usage_of(db, "files", gateway.now().date()))
        assert used is not None
        assert used.cost == (await gateway.describe_one("files")).usage.cost == 4 * MICROS
        # After a kill the record that has begun is what counts.
        lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
        assert {each["cost"] for each in lines if each["event"] == "begun"} == {2 * MICROS}


async def test_a_call_that_may_change_something_is_of_high_risk(tmp_path: Path) -> None:
    async with running(tmp_path, {"capabilities": [], "ask": ["files.*"]}, readOnly=["read"]) as gateway:
        agent = Agent(gateway)
        await agent.call("write")
        await agent.call("read")
        assert [each.least_risk for each in agent.asked] == [RiskLevel.HIGH, None]


def test_the_identity_of_an_operation_is_the_tool_and_its_exact_arguments() -> None:
    one = Target("files", "write", "files__write")
    assert operation_of(one, {"a": 1, "b": 2}).identity == operation_of(one, {"b": 2, "a": 1}).identity
    assert operation_of(one, {"a": 1}).identity != operation_of(one, {"a": 1.5}).identity
    assert operation_of(one, {}).identity != operation_of(Target("files", "read", "files__write"), {}).identity


@pytest.mark.parametrize(
    ("approval", "said"),
    [
        (Approval(Answer.DENIED, "r2", "too wide"), "a person has rejected this call of files__write, and nothing"),
        (Approval(Answer.TIMED_OUT, "r2"), "nobody has decided about this call of files__write in time"),
        (Approval(Answer.DENIED, None, "no"), "this call of files__write is not permitted, and nothing was sent: no"),
    ],
)
async def test_a_call_that_was_not_approved_is_recorded_with_its_request(
    tmp_path: Path, approval: Approval, said: str
) -> None:
    async with running_with_records(tmp_path, {"capabilities": [], "ask": ["files.*"]}) as (gateway, reader):
        with pytest.raises(GatewayRefused, match=said):
            await Agent(gateway, approval=approval).call("write")
        await gateway.log.settle()
        [call] = (await reader.read(call_log_reader.tail)).calls
        assert (call.status, call.request_id) == ("operator_denied", approval.request_id)


async def test_nobody_is_asked_about_a_call_that_a_limit_refuses(tmp_path: Path) -> None:
    budget = {"dailyQuota": 1}
    async with running(tmp_path, {"capabilities": [], "ask": ["files.*"]}, budget=budget) as gateway:
        agent = Agent(gateway)
        await agent.call("read")
        with pytest.raises(GatewayRefused, match="1 call a day"):
            await agent.call("read")
        assert len(agent.asked) == 1
        assert (await gateway.describe_one("files")).usage.calls == 1


async def test_what_has_changed_while_a_person_was_asked_counts(tmp_path: Path) -> None:
    asks = {"role": "dev", "capabilities": [], "ask": ["files.*"]}
    async with running_with_records(tmp_path, asks, redact=False) as (gateway, reader):
        files, roles = tmp_path / "gateway/files.json", tmp_path / "gateway/roles.json"
        settings = json.loads(files.read_text())

        def redact() -> None:
            files.write_text(json.dumps({**settings, "redact": True}))

        def deny() -> None:
            roles.write_text(json.dumps({"roles": [{**asks, "deny": ["files.write"]}], "defaultRole": "dev"}))

        def remove() -> None:
            files.unlink()

        assert TOKEN not in json.dumps(await Agent(gateway, meanwhile=redact).call("read", {"x": TOKEN}))
        with pytest.raises(GatewayRefused, match="your role dev may not call files__write"):
            await Agent(gateway, meanwhile=deny).call("write")
        with pytest.raises(GatewayRefused, match="files__read was approved, but agents cannot call it any more"):
            await Agent(gateway, meanwhile=remove).call("read")
        await gateway.log.settle()
        kept = (await reader.read(call_log_reader.tail)).calls
        ends = [("success", "r1"), ("permission_denied", "r1"), ("permission_denied", "r1")]
        assert [(each.status, each.request_id) for each in kept] == ends


async def test_a_rule_that_was_saved_before_a_call_decides_about_it(tmp_path: Path) -> None:
    directory = tmp_path / "gateway"
    directory.mkdir()
    file = directory / "roles.json"
    async with gateway_in(tmp_path, directory) as (gateway, store, reader, _news):
        people = GatewayPeople(gateway, store, reader)
        for effect in ("allow", "deny", "ask", "deny"):
            rules = {"capabilities": ["files.*"], "ask": [], "deny": []}
            rules |= {} if effect == "allow" else {effect: ["files.write"]}
            file.write_text(json.dumps({"roles": [{"role": "dev", **rules}], "defaultRole": "dev"}))
            with trio.fail_after(120):
                found = await people.explain("dev", "files", "write")
            assert [each.effect for each in found.decisions] == [effect]


@pytest.mark.parametrize("change", [{"prefix": False}, {"expose": "search"}, {"capabilities": ["files.read"]}])
async def test_agents_are_told_when_their_lists_change_by_a_file(tmp_path: Path, change: JsonObject) -> None:
    async with running(tmp_path) as gateway:
        told, file = trio.Event(), tmp_path / "gateway/files.json"
        gateway.listen("an agent", told.set)
        before = gateway.listed(AgentIdentity("an agent"))
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
        with trio.fail_after(120):
            await gateway.reload()
            await told.wait()
        assert gateway.listed(AgentIdentity("an agent")) != before


async def test_a_file_that_does_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "gateway"
    directory.mkdir()
    (directory / "roles.json").write_text('{"roles": []}')
    async with gateway_in(tmp_path, directory) as (gateway, _store, _reader, _news):
        with trio.fail_after(120):
            first = await gateway.current()
            for _ in range(3):
                assert await gateway.current() is first


def test_a_card_shows_texts_of_several_lines_line_by_line() -> None:
    arguments = {
        "path": "a.txt",
        "content": 'one\n  "path": "b.txt"\x1b[2J\u202e\n',
        "more": [{"text": "x\ny"}, 1, []],
        "token": "abc\ndef",
    }
    assert shown_arguments(arguments).split("\n") == [
        "{",
        '  "path": "a.txt",',
        '  "content": a text of 3 lines',
        "    | one",
        '    |   "path": "b.txt"\\x1b[2J<U+202E>',
        "    | ",
        "  ,",
        '  "more": [',
        "    {",
        '      "text": a text of 2 lines',
        "        | x",
        "        | y",
        "    },",
        "    1,",
        "    []",
        "  ],",
        '  "token": "abc\\ndef"',
        "}",
    ]
    assert [shown_arguments(each) for each in ({}, [], "x", None)] == ["{}", "[]", '"x"', "null"]


@pytest.mark.parametrize("end", ["password=", '"password": ', "client_secret ="])
def test_an_argument_cannot_have_the_next_one_masked(end: str) -> None:
    """A name of a secret at the end of a text is no name of what the next argument says."""
    for arguments in ({"a": [f"x\n{end}", "to9@attacker.com"]}, {"a": [f"x\n{end}", {"to9@attacker.com": 1}]}):
        assert "to9@attacker.com" in Masker().mask(shown_arguments(arguments)).text


def test_a_card_says_what_is_called_and_why_its_risk_is_high() -> None:
    made = operation_of(Target("everything", "echo", "everything__echo"), {})
    assert made.title == "call echo of the MCP server everything"
    assert made.risk_reason is not None
    assert made.risk_reason.startswith("high risk, because only everything knows what this call changes")
    assert operation_of(Target("a", "b", "a__b"), {}, is_read_only=True).risk_reason is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"type": "text", "text": "no such\nissue"}], "the tool reports an error: no such\nissue"),
        ([{"type": "image"}, 7], "the tool reports an error"),
        ("nonsense", "the tool reports an error"),
    ],
)
def test_a_record_has_the_text_of_a_tools_error(content: Any, said: str) -> None:
    assert error_text({"content": content, "isError": True}) == said
