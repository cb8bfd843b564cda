"""Agents find downstreams' tools by `search_tools`, and call them by `call_tool` as if they called them directly."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from attrs import evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from actors import Actor, ChildSpec, System
from intercom.agents.gateway import search_tools
from intercom.agents.gateway.search_tools import CALL_TOOL, MOST_FOUND, SCHEMAS, SEARCH_TOOLS, SearchMode
from intercom.gateway.assignments import AgentIdentity, Assignments
from intercom.gateway.assignments import parse as parse_assignments
from intercom.gateway.calls import Answer, Approval, ApprovalPending, Calls, GatewayCaller
from intercom.gateway.catalog import Catalog, catalog_of
from intercom.gateway.downstream_config import DownstreamConfig, Expose, Transport
from intercom.gateway.evidence_records import Cache, EvidenceRecords
from intercom.gateway.messages import (
    Admit,
    CallEnded,
    GatewayRefused,
    InvocationStatus,
    Offer,
    RequireAdmission,
    Run,
    downstream_name,
)
from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.roles import parse as parse_roles
from intercom.gateway.search import ToolIndex
from intercom.model.errors import IntercomError, InvalidArguments, NotFound
from intercom.model.json_types import Json, JsonObject
from intercom.model.request import Operation
from intercom.store.store_and_reader import Reader, Store
from tests.gateway.recorded_tools import recorded
from tests.gateway.recording import log_in
from tests.gateway.recording import recorded as audited

ROLES: JsonObject = {
    "roles": [
        {"role": "dev", "capabilities": ["*.*"], "ask": ["git.git_commit"], "deny": ["*.delete_*", "nobody.*"]},
        {"role": "reader", "capabilities": ["filesystem.read_*", "memory.nothing"]},
        {"role": "nothing", "capabilities": []},
    ],
    "assignments": [
        {"role": "reader", "session": "11111111"},
        {"role": "nothing", "session": "22222222"},
        {"role": "reader", "client": "narrow"},
    ],
    "defaultRole": "dev",
}
DEV = AgentIdentity("agent-1")
READER = AgentIdentity("agent-2", session="11111111-0000")
NOBODY = AgentIdentity("agent-3", session="22222222-0000")
NARROWED = AgentIdentity("agent-4", client="narrow")


def config(name: str, expose: Expose = Expose.SEARCH, **more: Any) -> DownstreamConfig:
    return DownstreamConfig(name, Transport.STDIO, ("*.*",), "1.0.0", expose=expose, command="true", **more)


def snapshot_of(
    offers: Mapping[str, list[Any] | None], *, shown: tuple[str, ...] = (), **configs: DownstreamConfig
) -> OfferSnapshot:
    """Return the state of a gateway with these tools by downstream; None for one that was never connected. All are
    exposed by search, but those `shown`."""
    roles, faults = parse_roles(ROLES)
    assignments, more = parse_assignments(ROLES)
    assert roles is not None, faults
    assert assignments is not None, more
    known = {
        name: Offer() if tools is None else Offer(tuple(tools), version="2025-11-25", instructions=_said(name))
        for name, tools in offers.items()
    }
    return OfferSnapshot(
        configs={
            name: configs.get(name) or config(name, Expose.ALL if name in shown else Expose.SEARCH) for name in offers
        },
        roles=roles,
        assignments=assignments,
        offers=known,
        catalog=catalog_of({name: offer.tools for name, offer in known.items()}),
    )


def _said(name: str) -> str:
    return str(recorded()[name]["instructions"]) if name in recorded() else ""


def real(**more: Any) -> OfferSnapshot:
    return snapshot_of({name: tools_of(name) for name in recorded()}, **more)


class Port:
    id = "agent-1"
    capabilities: ClassVar[JsonObject] = {}

    def notify(self, method: str, params: JsonObject) -> None: ...

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        raise AssertionError


@frozen
class Agent:
    """An agent of a gateway in this state. `sent` are the calls that reached the gateway."""

    snapshot: OfferSnapshot
    identity: AgentIdentity = DEV
    sent: list[tuple[str, JsonObject]] = field(factory=list)
    mode: SearchMode = field(init=False)

    @mode.default
    def _(self) -> SearchMode:
        return SearchMode(lambda: self.snapshot, self._called)

    async def _called(self, _caller: GatewayCaller, name: str, params: JsonObject) -> JsonObject:
        self.sent.append((name, params))
        return {"content": [], "structuredContent": {"x": 1}, "vendor": 2}

    @property
    def caller(self) -> GatewayCaller:
        async def nobody(_operation: Operation) -> Approval:
            raise AssertionError

        return GatewayCaller(self.identity, Port(), "run", nobody)

    async def call(self, name: str, arguments: Json = None, **params: Json) -> JsonObject:
        return await self.mode.call(self.caller, name, {"name": name, "arguments": arguments, **params})

    async def search(self, query: str = "", **more: Json) -> Any:
        result = await self.call(SEARCH_TOOLS, {"query": query, **more})
        assert result["isError"] is False
        return content_of(result)


def content_of(result: Any) -> Any:
    [text] = result["content"]
    return json.loads(text["text"])


def tools_of(downstream: str) -> Any:
    return recorded()[downstream]["tools"]


def names(found: Any) -> list[str]:
    return [each["name"] for each in found["tools"]]


# --- the two tools in the list ---------------------------------------------------------------------------------------


def test_both_tools_are_complete_and_their_fields_described() -> None:
    listed: Any = Agent(real()).mode.listed(DEV)
    assert [each["name"] for each in listed] == [SEARCH_TOOLS, CALL_TOOL] == sorted(search_tools.NAMES, reverse=True)
    for each in listed:
        schema = each["inputSchema"]
        Draft202012Validator.check_schema(schema)
        assert all(described["description"] for described in schema["properties"].values())
        assert each["title"]
        assert each["description"]
    assert listed[1]["inputSchema"]["required"] == ["name"]


def test_the_description_names_the_downstreams_as_the_configuration_describes_them() -> None:
    git = config("git", description="Work on\n repositories. " + "x" * 200)
    mode = Agent(real(shown=("memory",), git=git)).mode
    said = str(mode.listed(DEV)[0]["description"])
    assert "git (Work on repositories. xx" in said
    # What a downstream says of itself would be in every agent's list without anybody's approval.
    assert "Everything Server" not in said
    assert "memory" not in said
    assert len(said) < 1_000
    many = snapshot_of({f"d{number}": [] for number in range(200)})
    assert "and 170 more" in str(search_tools.definitions(many, DEV)[0]["description"])


def test_the_list_follows_from_the_configuration_alone() -> None:
    assert search_tools.definitions(real(), DEV) == search_tools.definitions(
        snapshot_of(dict.fromkeys(recorded())), DEV
    )
    assert [each["name"] for each in search_tools.definitions(real(), READER)] == [SEARCH_TOOLS, CALL_TOOL]
    assert search_tools.definitions(real(), NARROWED) == search_tools.definitions(real(), READER)
    assert search_tools.definitions(real(), NOBODY) == ()
    assert search_tools.definitions(real(shown=tuple(recorded())), DEV) == ()
    assert search_tools.definitions(snapshot_of({}), DEV) == ()
    no_roles = evolve(real(), assignments=Assignments())
    assert search_tools.definitions(no_roles, DEV) == ()


# --- search_tools ----------------------------------------------------------------------------------------------------


async def test_a_search_returns_what_is_needed_to_call() -> None:
    found = await Agent(real()).search("git log", limit=1)
    [tool] = (each for each in tools_of("git") if each["name"] == "git_log")
    assert found == {
        "tools": [
            {
                "name": "git__git_log",
                "downstream": "git",
                "description": tool["description"],
                "inputSchema": tool["inputSchema"],
            }
        ]
    }


async def test_a_search_finds_only_what_the_role_may_call_and_the_list_has_not() -> None:
    query = "read delete file graph entities"
    assert "memory__delete_entities" not in names(await Agent(real()).search(query, limit=20))
    assert set(names(await Agent(real(), READER).search(query, limit=20))) == {
        "filesystem__read_file",
        "filesystem__read_text_file",
        "filesystem__read_media_file",
        "filesystem__read_multiple_files",
    }
    assert names(await Agent(real(), NOBODY).search(query, limit=20)) == []
    shown = await Agent(real(shown=("filesystem",))).search(query, limit=20)
    assert {name.partition("__")[0] for name in names(shown)} >= {"memory"}
    assert "filesystem" not in {name.partition("__")[0] for name in names(shown)}


async def test_a_search_can_be_limited() -> None:
    agent = Agent(real())
    assert len(names(await agent.search("page"))) == 5
    assert len(names(await agent.search("page", limit=2))) == 2
    assert len(names(await agent.search("browser", limit=MOST_FOUND))) == MOST_FOUND
    assert set(names(await agent.search("branch file", downstream="filesystem", limit=20))) <= {
        str(name) for name in names(await agent.search(downstream="filesystem"))
    }
    for limit in (0, -1, MOST_FOUND + 1, "5", 1.5):
        with pytest.raises(InvalidArguments, match="limit: must be"):
            await agent.search("page", limit=limit)


async def test_tools_that_ask_a_person_say_so() -> None:
    [tool] = (await Agent(real()).search("git_commit"))["tools"]
    assert tool["description"] == "Records changes to the repository (A person is asked before each call.)"


async def test_descriptions_are_one_visible_line() -> None:
    tool: JsonObject = {"name": "a", "description": "One\n\ntwo \u202e three\x1b[2J " + "x" * 9_000}
    silent: JsonObject = {"name": "b", "title": "Bee", "description": ["no text"], "inputSchema": 7}
    agent = Agent(snapshot_of({"d": [tool, silent]}))
    [found] = (await agent.search("a"))["tools"]
    assert found["description"].startswith("One two <U+202E> three\\x1b[2J xxx")
    assert len(found["description"]) <= search_tools.DESCRIPTION
    [found] = (await agent.search("d__b"))["tools"]
    assert (found["description"], found["inputSchema"]) == ("", {"type": "object"})


async def test_what_finds_nothing_says_what_to_do() -> None:
    found = await Agent(real()).search("zzqqxx")
    assert found["tools"] == []
    assert "use other words" in found["message"]


async def test_long_schemas_are_left_out_but_for_the_first() -> None:
    def tool(name: str, size: int) -> JsonObject:
        return {"name": name, "inputSchema": {"type": "object", "description": "x" * size}}

    agent = Agent(snapshot_of({"d": [tool("page_one", SCHEMAS * 2), tool("page_two", SCHEMAS), tool("page_three", 9)]}))
    found = await agent.search("page")
    assert {each["name"]: "inputSchema" in each for each in found["tools"]} == {
        "d__page_one": True,
        "d__page_three": False,
        "d__page_two": False,
    }
    assert "left out" in found["message"]
    assert "inputSchema" in (await agent.search("d__page_two"))["tools"][0]


async def test_half_a_surrogate_pair_can_be_sent() -> None:
    tool: JsonObject = {"name": "a", "inputSchema": {"type": "object", "description": "\ud800"}}
    result = await Agent(snapshot_of({"d": [tool]})).call(SEARCH_TOOLS, {"query": "a"})
    json.dumps(result, ensure_ascii=False).encode()
    assert content_of(result)["tools"][0]["inputSchema"]["description"] == "\ud800"


# --- listing ---------------------------------------------------------------------------------------------------------


async def test_an_empty_query_lists_the_downstreams() -> None:
    snapshot = snapshot_of(
        {
            "everything": tools_of("everything"),
            "git": tools_of("git"),
            "memory": tools_of("memory"),
            "new": None,
            "nobody": [{"name": "a"}],
            "shown": [{"name": "a"}],
        },
        shown=("shown",),
        git=config("git", description="Work on repositories."),
    )
    found = await Agent(snapshot).search("  ")
    assert found["downstreams"] == [
        {"downstream": "everything", "description": "Everything Server – Server Instructions", "tools": 13},
        {"downstream": "git", "description": "Work on repositories.", "tools": 12},
        # Without what the role may not call.
        {"downstream": "memory", "description": "", "tools": 6},
        {"downstream": "new", "description": "", "tools": None},
    ]
    assert await Agent(snapshot).call(SEARCH_TOOLS) == await Agent(snapshot).call(SEARCH_TOOLS, {"query": None})
    assert (await Agent(snapshot, READER).search())["downstreams"] == []
    assert (await Agent(snapshot, NOBODY).search())["downstreams"] == []


async def test_a_downstream_lists_its_tools_without_schemas() -> None:
    agent = Agent(real(nobody=config("nobody")))
    found = await agent.search(downstream="time")
    assert found["tools"] == [
        {"name": "time__convert_time", "downstream": "time", "description": "Convert time between timezones"},
        {
            "name": "time__get_current_time",
            "downstream": "time",
            "description": "Get current time in a specific timezone",
        },
    ]
    assert "inputSchema" in found["message"]
    many: list[Any] = [{"name": f"t{number}"} for number in range(search_tools.MOST_NAMED + 3)]
    found = await Agent(snapshot_of({"many": many})).search(downstream="many")
    assert len(found["tools"]) == search_tools.MOST_NAMED
    assert "3 more tools are left out" in found["message"]
    found = await Agent(snapshot_of({"many": many[:-2]})).search(downstream="many")
    assert "1 more tool is left out" in found["message"]


async def test_a_downstream_without_tools_says_why() -> None:
    snapshot = snapshot_of({"new": None, "off": None, "empty": []}, off=evolve(config("off"), enabled=False))
    agent = Agent(snapshot)
    assert "has not been connected yet" in (await agent.search(downstream="new"))["message"]
    assert "gateway enable off" in (await agent.search(downstream="off"))["message"]
    assert "no tool that you may call" in (await agent.search(downstream="empty"))["message"]
    with pytest.raises(IntercomError, match="has not been connected yet") as refused:
        await agent.call(CALL_TOOL, {"name": "new__a"})
    assert refused.value.error_code == "unknown_tool"


async def test_an_unknown_downstream_is_refused() -> None:
    agent = Agent(real(shown=("memory",)))
    with pytest.raises(NotFound, match=r"no downstream is called 'filesytem' \(did you mean filesystem\?\)"):
        await agent.search("x", downstream="filesytem")
    # Neither one that is not searched, nor one that the role may not use, is named.
    with pytest.raises(NotFound, match=r"there are: everything, fetch, filesystem, git, playwright, time$"):
        await agent.search("x", downstream="memory")
    with pytest.raises(NotFound, match=r"there are: filesystem$"):
        await evolve(agent, identity=READER).search(downstream="git")


# --- call_tool -------------------------------------------------------------------------------------------------------


async def test_a_call_is_that_of_the_tool_itself() -> None:
    agent = Agent(real())
    arguments: JsonObject = {"repo_path": "/r", "max_count": 3}
    meta: JsonObject = {"progressToken": 1}
    result = await agent.call(CALL_TOOL, {"name": "git__git_log", "arguments": arguments}, _meta=meta, requestState="s")
    assert result == {"content": [], "structuredContent": {"x": 1}, "vendor": 2}
    assert agent.sent == [
        (
            "git__git_log",
            {"name": "git__git_log", "arguments": arguments, "_meta": meta, "requestState": "s"},
        )
    ]


def test_a_request_is_about_the_tool_that_it_names() -> None:
    mode = Agent(real()).mode
    assert mode.tool_of(CALL_TOOL, {"arguments": {"name": "git__git_log"}}) == "git__git_log"
    assert mode.tool_of(SEARCH_TOOLS, {"arguments": {"name": "git__git_log"}}) == SEARCH_TOOLS
    malformed: list[Json] = [None, [], {}, {"name": 7}]
    for arguments in malformed:
        assert mode.tool_of(CALL_TOOL, {"arguments": arguments}) == CALL_TOOL


async def test_arguments_may_be_left_out_or_be_the_text_of_an_object() -> None:
    agent = Agent(real())
    await agent.call(CALL_TOOL, {"name": "everything__get-env"})
    await agent.call(CALL_TOOL, {"name": "everything__get-env", "arguments": None})
    await agent.call(CALL_TOOL, {"name": "everything__echo", "arguments": '{"message": "a"}'})
    assert [params["arguments"] for _, params in agent.sent] == [{}, {}, {"message": "a"}]
    for text in ("", "[1]", "{", '{"a": NaN}', "[" * 100_000, "7" * 10_000):
        with pytest.raises(InvalidArguments, match="arguments: must be an object"):
            await agent.call(CALL_TOOL, {"name": "everything__echo", "arguments": text})
    with pytest.raises(InvalidArguments, match="name: missing"):
        await agent.call(CALL_TOOL)
    with pytest.raises(InvalidArguments, match=r"message: no such argument \(there are: name, arguments\)"):
        await agent.call(CALL_TOOL, {"name": "everything__echo", "message": "a"})


async def test_arguments_that_do_not_fit_are_refused_with_the_schema() -> None:
    agent = Agent(real())
    result = await agent.call(CALL_TOOL, {"name": "git__git_log", "arguments": {"repo": "/secret", "max_count": "3"}})
    assert result["isError"] is True
    refused = content_of(result)
    assert refused["error_code"] == "invalid_arguments"
    assert refused["error_message"].startswith("the arguments do not fit git__git_log, and nothing was sent: ")
    assert "repo_path: missing, and it is needed" in refused["error_message"]
    assert "max_count: must be a whole number, and is a string" in refused["error_message"]
    assert "secret" not in refused["error_message"]
    entry = agent.snapshot.catalog.find("git__git_log")
    assert entry is not None
    assert refused["inputSchema"] == entry.definition["inputSchema"]
    assert agent.sent == []


async def test_a_tool_that_the_role_may_not_call_is_refused_by_the_call_without_its_schema() -> None:
    agent = Agent(real())
    await agent.call(CALL_TOOL, {"name": "memory__delete_entities", "arguments": {"wrong": 1}})
    assert [name for name, _ in agent.sent] == ["memory__delete_entities"]


async def test_a_tool_of_the_agents_list_can_be_called_too() -> None:
    agent = Agent(real(shown=("everything",)))
    await agent.call(CALL_TOOL, {"name": "everything__echo", "arguments": {"message": "a"}})
    assert [name for name, _ in agent.sent] == ["everything__echo"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("git__git_lgo", "similar names are git__git_log"),
        ("git_log", "similar names are git__git_log"),
        ("zzqqxx", "no name is similar"),
        ("call_tool", "use a name that search_tools returns"),
        ("x" * 200, "no name is similar"),
    ],
)
async def test_an_unknown_name_leads_to_the_nearest(name: str, said: str) -> None:
    agent = Agent(real())
    with pytest.raises(IntercomError, match=said) as refused:
        await agent.call(CALL_TOOL, {"name": name})
    assert refused.value.error_code == "unknown_tool"
    assert len(refused.value.message) < 500
    assert agent.sent == []


async def test_names_that_the_role_may_not_call_are_not_suggested() -> None:
    with pytest.raises(IntercomError) as refused:
        await Agent(real(), READER).call(CALL_TOOL, {"name": "git__git_lgo"})
    assert "git__git_log" not in refused.value.message


ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["query", "limit", "downstream", "name", "arguments"]), inner)
    ),
)


@given(st.sampled_from([SEARCH_TOOLS, CALL_TOOL]), ARGUMENTS)
def test_any_arguments_are_answered_or_refused(name: str, arguments: Json) -> None:
    async def main() -> None:
        try:
            result = await Agent(snapshot_of({"d": [{"name": "name"}]})).call(name, arguments)
        except IntercomError:
            return
        json.dumps(result, ensure_ascii=False).encode()

    trio.run(main)


# --- the index -------------------------------------------------------------------------------------------------------


async def test_the_index_is_made_once_for_a_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make(catalog: Catalog) -> ToolIndex:
        made.append(catalog)
        return ToolIndex(catalog)

    monkeypatch.setattr(search_tools, "ToolIndex", make)
    agent = Agent(real())
    found: list[list[str]] = []

    async def search() -> None:
        found.append(names(await agent.search("git log")))

    async with trio.open_nursery() as nursery:
        for _ in range(9):
            nursery.start_soon(search)
    assert len(made) == 1
    assert found == [found[0]] * 9
    # The same tools in a new snapshot.
    mode = agent.mode
    object.__setattr__(agent, "snapshot", real())
    await agent.search("git log")
    assert len(made) == 1
    object.__setattr__(agent, "snapshot", snapshot_of({"git": [{"name": "changed"}]}))
    assert names(await agent.search("changed")) == ["git__changed"]
    assert names(await agent.search("log")) == []
    assert agent.mode is mode
    assert len(made) == 2


async def test_a_cancelled_search_leaves_the_index_usable() -> None:
    agent = Agent(real())
    with trio.CancelScope() as scope:
        scope.cancel()
        await agent.search("git log")
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.search, "git log")
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert names(await agent.search("git log"))[0] == "git__git_log"


# --- with the gateway's own calls ------------------------------------------------------------------------------------


class Echo:
    """A connection over which every call is answered with the name of its tool."""

    is_lost = False

    async def request(self, method: str, params: JsonObject, **_more: Any) -> JsonObject:
        await trio.lowlevel.checkpoint()
        return {"content": [{"type": "text", "text": str(params["name"])}]}


class Downstream(Actor):
    """A downstream that admits every call."""

    def on_receive(self, message: object) -> Any:
        if isinstance(message, Admit):
            return Run(message, None, math.inf, real().configs["git"], connection=Echo())
        assert isinstance(message, CallEnded | RequireAdmission)
        return None


@pytest.mark.real_time
async def test_records_and_cards_name_the_real_tool(tmp_path: Path) -> None:
    snapshot = real()
    recording, log = log_in(tmp_path)
    evidence = EvidenceRecords(Store(recording.named("store")), Reader(tmp_path / "intercom.db"))
    downstream = System([ChildSpec(downstream_name("git"), Downstream)])
    cards: list[Operation] = []
    answers = [Approval(Answer.ALLOWED, "r1"), Approval(Answer.DENIED, "r2", "not now"), Approval(Answer.PENDING, "r3")]

    async def person(operation: Operation) -> Approval:
        cards.append(operation)
        return answers.pop(0)

    async def current() -> OfferSnapshot:
        return snapshot

    calls = Calls(current, downstream.named, log, Cache(), evidence)
    mode = SearchMode(lambda: snapshot, calls.tool)
    caller = GatewayCaller(DEV, Port(), "run", person)

    async def call(name: str, **arguments: Json) -> JsonObject:
        given: JsonObject = {"name": name, "arguments": arguments}
        return await mode.call(caller, CALL_TOOL, {"name": CALL_TOOL, "arguments": given})

    async with recording, downstream:
        assert (await call("git__git_log", repo_path="/r"))["content"] == [{"type": "text", "text": "git_log"}]
        await call("git__git_commit", repo_path="/r", message="m")
        with pytest.raises(GatewayRefused, match="rejected this call of git__git_commit"):
            await call("git__git_commit", repo_path="/r", message="m")
        with pytest.raises(ApprovalPending):
            await call("git__git_commit", repo_path="/r", message="m")
        with pytest.raises(GatewayRefused, match="may not call memory__delete_entities"):
            await call("memory__delete_entities", wrong=1)
        # Neither is sent, nor recorded.
        assert (await call("git__git_log"))["isError"] is True
        await mode.call(caller, SEARCH_TOOLS, {"name": SEARCH_TOOLS, "arguments": {"query": "log"}})
        await log.settle()
    log.close()
    assert [(card.tool, json.loads(str(card.text))) for card in cards] == [
        ("git__git_commit", {"repo_path": "/r", "message": "m"})
    ] * 3
    assert sorted((each.tool, each.method, str(each.status)) for each in audited(tmp_path)) == [
        ("git", "git_commit", InvocationStatus.OPERATOR_DENIED),
        ("git", "git_commit", InvocationStatus.SUCCESS),
        ("git", "git_log", InvocationStatus.SUCCESS),
        ("memory", "delete_entities", InvocationStatus.PERMISSION_DENIED),
    ]
