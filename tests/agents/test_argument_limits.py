"""How long agents' texts may be: over the limit they are refused with a sentence, never cut."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import fields

from intercom.agents import argument_schemas
from intercom.agents.hook_server import PERMISSION_PROMPT, PermissionPrompt
from intercom.model import limits
from intercom.model.errors import InvalidArguments
from intercom.rooms.tools.directory import CreateSession
from intercom.rooms.tools.feed import PostMessage
from intercom.rooms.tools.room_tool_table import OVER_HTTP
from intercom.sessions.tools.auto_check import AutoCheck
from intercom.sessions.tools.broadcast import Broadcast
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.tools.ping import Ping
from intercom.sessions.tools.reboot import Reboot
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.tool_table import TOOLS
from intercom.sessions.tools.transmit import Transmit

PROPOSAL = {"title": "t", "diff": "x\n", "file_path": "f"}
CASES: list[tuple[type[Any], dict[str, Any], str, int]] = [
    (CheckClearance, PROPOSAL, "title", limits.TITLE),
    (CheckClearance, PROPOSAL, "description", limits.TEXT),
    (CheckClearance, PROPOSAL, "file_path", limits.PATH),
    (CheckClearance, {}, "request_id", limits.NAME),
    (CheckDiff, {}, "request_id", limits.NAME),
    (AutoCheck, {}, "tool_name", limits.COMMAND),
    (Transmit, {}, "prompt_text", limits.TEXT),
    (Transmit, {}, "request_id", limits.NAME),
    (Broadcast, {}, "message", limits.TEXT),
    (Broadcast, {"message": "m"}, "thread_ts", limits.NAME),
    (Reboot, {}, "session_id", limits.NAME),
    (Standby, {}, "message", limits.TEXT),
    (Standby, {}, "request_id", limits.NAME),
    (Ping, {}, "status_message", limits.STATUS),
    (PermissionPrompt, {"input": {}}, "tool_name", limits.NAME),
    (PermissionPrompt, {"input": {}, "tool_name": "t"}, "tool_use_id", limits.NAME),
]


@pytest.mark.parametrize(("kind", "others", "name", "most"), CASES)
def test_a_text_has_a_limit_and_one_over_it_is_refused(
    kind: type[Any], others: dict[str, Any], name: str, most: int
) -> None:
    read = argument_schemas.read(kind, {**others, name: "x" * most})
    assert getattr(read, name) == "x" * most
    with pytest.raises(InvalidArguments, match=rf"{name}: must have at most {most} characters, and has {most + 1}"):
        argument_schemas.read(kind, {**others, name: "x" * (most + 1)})


def test_every_text_of_every_tool_has_a_limit_but_a_change_and_what_is_the_clients_own() -> None:
    covered = {(kind, name) for kind, _, name, _ in CASES}
    for tool in (*TOOLS, PERMISSION_PROMPT):
        for each in fields(tool.takes):
            if each.type in ("str", "str | None") and (tool.takes, each.name) not in covered:
                assert each.name in ("diff", "content") or each.metadata.get("internal"), (tool.name, each.name)


@pytest.mark.parametrize("tool", [*TOOLS, PERMISSION_PROMPT], ids=lambda tool: tool.name)
def test_the_model_is_told_what_every_argument_and_every_field_of_an_answer_is(tool: Any) -> None:
    def check(schema: dict[str, Any], path: str) -> None:
        for name, each in schema.get("properties", {}).items():
            assert each.get("description"), f"{path}.{name} has no description"
            check(each, f"{path}.{name}")
            check(each.get("items", {}), f"{path}.{name}[]")

    check(argument_schemas.of(tool.takes), tool.name)
    check(argument_schemas.of_answer(tool.result), tool.name)


#: Qwen Code cuts a description here, and shows its model no instructions of servers.
CUT = 160


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_what_matters_is_told_before_a_client_cuts_the_description(tool: Any) -> None:
    first = tool.description.partition("\n")[0]
    assert len(first) <= CUT
    assert first.endswith(".")


# A tool -> what a model must know of it that reads no more than its beginning
MATTERS = {
    "check_clearance": ("before you write", "check_diff", "Do not write"),
    "check_diff": ("check_clearance", '"approved"', '"applied"'),
    "auto_check": ('"auto_approved"', "check_clearance"),
    "transmit": ('"continue"', '"refine"', '"stop"', '"pending"'),
    "broadcast": ("without waiting", "transmit"),
    "reboot": ("first",),
    "switch_freq": ("operator asks",),
    "standby": ('"resumed"', '"pending"'),
    "ping": ('"instructions"', '"paused"'),
}


def test_the_beginning_of_each_description_says_how_to_use_the_tool() -> None:
    assert MATTERS.keys() == {tool.name for tool in TOOLS}
    for tool in TOOLS:
        assert all(part in tool.description[:CUT] for part in MATTERS[tool.name]), tool.name


@pytest.mark.parametrize("name", ["call", "by", "channel", "from_agent", "adopted"])
def test_what_the_server_sets_is_no_argument(name: str) -> None:
    for tool in TOOLS:
        assert name not in argument_schemas.of(tool.takes)["properties"]
        with pytest.raises(InvalidArguments, match=f"{name}: no such argument"):
            argument_schemas.read(tool.takes, {name: "x"})


def test_what_lies_deeper_is_measured_too() -> None:
    item = {"label": "l", "status": "done"}
    cases: list[tuple[type[Any], dict[str, Any], str]] = [
        (Ping, {"progress_snapshot": [item, {**item, "label": "x" * 501}]}, r"progress_snapshot\.1\.label"),
        (Ping, {"progress_snapshot": [item] * 201}, "at most 200 entries"),
        (AutoCheck, {"tool_name": "t", "context": {"file_path": "x" * 5000}}, r"context\.file_path"),
        (AutoCheck, {"tool_name": "t", "context": {"args": ["a", "x" * 100_001]}}, r"context\.args"),
        (AutoCheck, {"tool_name": "t", "context": {"args": "x" * 100_001}}, r"context\.args"),
    ]
    for kind, given, told in cases:
        with pytest.raises(InvalidArguments, match=told):
            argument_schemas.read(kind, given)


# --- hostile values: what is looked at does not depend on their size ------------------------------------------------


class NotToBeRead(dict[str, Any]):
    """An object that only tells its size and its first keys."""

    def __init__(self, *args: Any, most: int) -> None:
        super().__init__(*args)
        self._most = most

    def items(self) -> Any:
        raise AssertionError("all keys are read")

    def __iter__(self) -> Any:
        for number, name in enumerate(super().__iter__()):
            assert number < self._most, "all keys are read"
            yield name


class NotToBeShown(list[Any]):
    """A list that is neither read nor written."""

    def __iter__(self) -> Any:
        raise AssertionError("it is read")

    def __repr__(self) -> str:
        raise AssertionError("it is written")


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names for which a similar one was looked up."""
    names: list[str] = []

    def look_up(name: str, known: Any, n: int) -> list[str]:
        names.append(name)
        return []

    monkeypatch.setattr(argument_schemas, "get_close_matches", look_up)
    return names


def refusal(kind: type[Any], given: Any) -> str:
    with pytest.raises(InvalidArguments) as refused:
        argument_schemas.read(kind, given)
    return refused.value.message


@pytest.mark.parametrize("tool", [*TOOLS, *OVER_HTTP], ids=lambda tool: tool.name)
def test_of_many_unknown_keys_only_the_first_are_read_and_named(tool: Any, looked_up: list[str]) -> None:
    given = NotToBeRead({f"k{number}": None for number in range(10_000)}, most=100)
    said = refusal(tool.takes, given)
    assert "k0: no such argument" in said
    assert said.endswith("and more faults")
    assert said.count("; ") == argument_schemas.MOST_FAULTS
    assert len(looked_up) <= argument_schemas.MOST_LOOKED_UP


def test_many_unknown_keys_deeper_are_not_all_read_either(looked_up: list[str]) -> None:
    content = {f"k{number}": 1 for number in range(10_000)}
    said = refusal(PostMessage, {"session_id": "s", "team_id": "t", "content": content})
    assert said.startswith("content.k0: no such argument")
    assert len(said) < 1000
    assert len(looked_up) == argument_schemas.MOST_LOOKED_UP


def test_nothing_similar_to_a_long_name_is_looked_up(looked_up: list[str]) -> None:
    assert refusal(Ping, {"x" * 101: 1}) == "x" * 60 + ": no such argument"
    assert not looked_up


@pytest.mark.parametrize("levels", [17, 900, 100_000])
def test_no_nesting_is_too_deep_to_be_refused(levels: int) -> None:
    objects: Any = 1
    lists: Any = 1
    for _ in range(levels):
        objects, lists = {"a": objects}, [lists]
    assert "a: no such argument" in refusal(CreateSession, objects)
    for value in (objects, lists):
        assert "title: must be a string" in refusal(CreateSession, {"title": value})
        assert "content.text: must be a string" in refusal(PostMessage, {"content": {"text": value}})
        assert "context.args.0: must be a string" in refusal(
            AutoCheck, {"tool_name": "t", "context": {"args": [value]}}
        )
    # What another program defines is passed on as it is, and may be nested.
    assert (
        argument_schemas.read(PermissionPrompt, {"tool_name": "t", "input": objects, "more": lists}).input["a"]
        is objects["a"]
    )


def test_a_value_of_a_wrong_type_is_neither_read_nor_written() -> None:
    assert "title: must be a string" in refusal(CreateSession, {"title": NotToBeShown([1] * 10_000)})


def test_a_list_that_is_too_long_is_refused_before_its_entries_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    check, schema = argument_schemas._prepared(Ping)
    checked: list[int] = []

    def count(given: Any) -> bool:
        checked.append(len(given["progress_snapshot"]))
        return check(given)

    monkeypatch.setattr(argument_schemas, "_prepared", lambda _kind: (count, schema))
    items = [{"label": "l", "status": "done"}] * 10_000
    assert refusal(Ping, {"progress_snapshot": items}) == "progress_snapshot: must have at most 200 entries; name fewer"
    assert checked == [201]


def test_at_most_five_faults_are_reported() -> None:
    said = refusal(Ping, {"progress_snapshot": [{"label": 5}] * 100})
    assert said.count("; ") == argument_schemas.MOST_FAULTS
    assert said.endswith("; and more faults")
    many = [{"label": "x" * 501, "status": "done"}] * 100
    assert refusal(Ping, {"progress_snapshot": many}).endswith("; and more faults")


def test_a_null_is_absent_and_further_keys_of_an_open_class_are_ignored() -> None:
    assert argument_schemas.read(Ping, {"status_message": None, "unknown": None}).status_message is None
    more = {f"k{number}": number for number in range(1000)}
    assert argument_schemas.read(PermissionPrompt, {**more, "tool_name": "t", "input": {"a": None}}).input == {
        "a": None
    }


def test_ordinary_tools_take_any_character() -> None:
    assert argument_schemas.read(Ping, {"status_message": "\ud800\0"}).status_message == "\ud800\0"


def test_a_change_may_be_long() -> None:
    assert argument_schemas.read(CheckClearance, {**PROPOSAL, "diff": "x" * 1_000_000}).diff is not None
