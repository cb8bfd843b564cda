"""The nine tools: what holds for each holds over every transport and in every protocol version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from tests.contract.transports import CONFIG, TRANSPORTS, Transport, desk
from tests.support.server_process import TRUSTING, Home, call, user_home

pytestmark = pytest.mark.real_time
over_each = pytest.mark.parametrize("transport", TRANSPORTS, ids=str)


@pytest.fixture(scope="module")
def server() -> Iterator[Home]:
    with user_home(CONFIG) as made, made.serving():
        yield made


@over_each
async def test_a_change_goes_from_the_question_to_the_disk(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        published = await at.schemas()
        asked = at.ask("check_clearance", title="Add hello", diff="hello\n", file_path="hello.txt")
        card = await at.person.card(kind="approval", away=False)
        assert card["title"] == "Add hello"
        await at.person.do("approve", id=card["request_id"])
        approved = await asked()
        assert approved == {"status": "approved", "request_id": card["request_id"]}
        jsonschema.validate(approved, published["check_clearance"])

        if transport.over == "stdio":
            # Over HTTP only the next call shows that the answer arrived.
            await at.person.card(request_id=card["request_id"], status="delivered")
        applied = await at.call("check_diff", request_id=card["request_id"])
        assert applied == {"status": "applied", "files_written": [{"path": "hello.txt", "bytes": 6}]}
        jsonschema.validate(applied, published["check_diff"])
        assert (at.root / "hello.txt").read_bytes() == b"hello\n"
        await at.person.card(request_id=card["request_id"], status="applied")


@over_each
async def test_a_rejection_carries_its_reason(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        asked = at.ask("check_clearance", title="Bad", diff="x\n", file_path="a.txt", risk_level="high")
        card = await at.person.card(kind="approval")
        assert card["risk_level"] == "high"
        await at.person.do("reject", id=card["request_id"], reason="wrong file")
        rejected = await asked()
        jsonschema.validate(rejected, (await at.schemas())["check_clearance"])
        assert rejected == {"status": "rejected", "request_id": card["request_id"], "reason": "wrong file"}
        refused = await at.call("check_diff", request_id=card["request_id"])
        assert refused["error_code"] == "not_approved"
        assert not (at.root / "a.txt").exists()


@pytest.mark.parametrize(
    ("decision", "text", "answer"),
    [
        ("continue", None, {"decision": "continue"}),
        ("refine", "use tabs", {"decision": "refine", "instruction": "use tabs"}),
        ("stop", None, {"decision": "stop"}),
    ],
)
@over_each
async def test_a_question_is_answered(
    server: Home, transport: Transport, decision: str, text: str | None, answer: dict[str, Any]
) -> None:
    async with desk(server, transport) as at:
        asked = at.ask("transmit", prompt_text="Go on?", elapsed_seconds=5, actions_taken=2)
        card = await at.person.card(kind="prompt")
        assert (card["description"], card["detail"]) == ("Go on?", "running for 5 s, 2 actions taken")
        await at.person.do("answer", id=card["request_id"], decision=decision, text=text)
        said = await asked()
        assert said == answer
        jsonschema.validate(said, (await at.schemas())["transmit"])


@over_each
async def test_an_idle_agent_is_given_work(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        waits = at.ask("standby", message="done with it")
        card = await at.person.card(kind="standby")
        assert card["description"] == "done with it"
        await at.person.do("resume", session=card["session_id"], instruction="now the tests")
        said = await waits()
        assert said == {"status": "resumed", "instruction": "now the tests"}
        jsonschema.validate(said, (await at.schemas())["standby"])


@over_each
async def test_a_standby_ends_when_its_time_is_over(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        assert await at.call("standby", timeout_seconds=1) == {"status": "timeout"}


@over_each
async def test_what_needs_no_answer_is_answered_at_once(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        published = await at.schemas()
        fresh = await at.call("reboot")
        assert fresh == {"status": "clean"}

        pinged = await at.call("ping", status_message="halfway", progress_snapshot=[{"label": "a", "status": "done"}])
        assert pinged["acknowledged"] is True
        assert pinged["stall_detection_enabled"] is True
        await at.person.notice(text="halfway", session_id=pinged["session_id"])

        told = await at.call("broadcast", message="built", level="success")
        assert told == {"posted": False}
        await at.person.notice(text="built", level="success")

        judged = await at.call("auto_check", tool_name="cargo", context={"args": "test", "operation": "read"})
        assert judged == {"auto_approved": False, "matched_rule": None}

        switched = await at.call("switch_freq", mode="hybrid")
        assert switched == {"previous_mode": "local", "current_mode": "hybrid"}

        again = await at.call("reboot")
        assert again["status"] == "recovered"
        assert again["progress_snapshot"] == [{"label": "a", "status": "done"}]
        for tool, answer in {
            "reboot": fresh,
            "ping": pinged,
            "broadcast": told,
            "auto_check": judged,
            "switch_freq": switched,
        }.items():
            jsonschema.validate(answer, published[tool])
        jsonschema.validate(again, published["reboot"])


@over_each
async def test_the_list_says_what_each_tool_does_to_the_world(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        tools = {tool.name: tool for tool in (await at.agent.list_tools()).tools}
    assert list(tools) == [
        "check_clearance",
        "check_diff",
        "auto_check",
        "transmit",
        "broadcast",
        "reboot",
        "switch_freq",
        "standby",
        "ping",
    ]
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert [name for name, hint in hints.items() if hint.read_only_hint] == ["auto_check"]
    assert [name for name, hint in hints.items() if hint.destructive_hint] == ["check_diff"]
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        # Some clients refuse alternatives at the top of a schema.
        assert not {"anyOf", "oneOf", "allOf"} & set(tool.input_schema)
        assert len(tool.description or "") > 80
    waiting = {"check_clearance", "transmit", "standby"}
    assert all("request_id" in tools[name].input_schema["properties"] for name in waiting)
    assert all("required" not in tools[name].input_schema for name in waiting)


#: A patch of a file that is not there.
GONE = "--- a/gone.txt\n+++ b/gone.txt\n@@ -1 +1 @@\n-a\n+b\n"

# What is asked -> the code of the refusal, and a part of its sentence
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("check_clearance", {}, "invalid_arguments", "title, file_path and one of diff and content"),
    ("check_clearance", {"title": 1, "diff": "x", "file_path": "a"}, "invalid_arguments", "title: must be a string"),
    ("check_clearance", {"titel": "x"}, "invalid_arguments", "did you mean title?"),
    ("check_clearance", {"title": "t", "diff": "x", "file_path": "../a"}, "path_violation", "workspace"),
    ("check_clearance", {"title": "t", "diff": "x", "file_path": "/etc/passwd"}, "path_violation", "workspace"),
    ("check_clearance", {"title": "t", "diff": GONE, "file_path": "gone.txt"}, "patch_conflict", "gone.txt"),
    ("check_clearance", {"title": "t", "diff": GONE, "file_path": "other.txt"}, "diff", "other.txt"),
    ("check_clearance", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    (
        "check_clearance",
        {"title": "t", "diff": "x", "file_path": "a", "risk_level": "huge"},
        "invalid_arguments",
        "low",
    ),
    ("check_diff", {}, "invalid_arguments", "request_id: missing"),
    ("check_diff", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    ("auto_check", {"tool_name": "read", "context": {"file_path": "/etc/shadow"}}, "path_violation", "workspace"),
    ("auto_check", {"context": {}}, "invalid_arguments", "tool_name: missing"),
    ("auto_check", {"tool_name": "x", "context": {"args": [1]}}, "invalid_arguments", "context.args"),
    ("transmit", {}, "invalid_arguments", "prompt_text"),
    ("transmit", {"prompt_text": "x", "elapsed_seconds": -1}, "invalid_arguments", "at least 0"),
    ("transmit", {"prompt_text": "   "}, "invalid_arguments", "prompt_text"),
    ("transmit", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    ("broadcast", {"message": ""}, "invalid_arguments", "must not be empty"),
    ("broadcast", {"message": "x", "level": "loud"}, "invalid_arguments", "info, success, warning, error"),
    ("reboot", {"session_id": "nonsense"}, "not_found", "nonsense"),
    ("switch_freq", {"mode": "sideways"}, "invalid_arguments", "remote, local, hybrid"),
    ("standby", {"timeout_seconds": "soon"}, "invalid_arguments", "a whole number"),
    ("standby", {"request_id": "nonsense"}, "request_not_found", "nonsense"),
    ("ping", {"progress_snapshot": [{"label": "a"}]}, "invalid_arguments", "status: missing"),
    ("ping", {"progress_snapshot": "all"}, "invalid_arguments", "must be a list"),
    ("no_such_tool", {}, "unknown_tool", "check_clearance"),
]


@over_each
async def test_what_is_refused_says_so_in_one_shape(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        for tool, given, code, part in REFUSED:
            said = await at.call(tool, **given)
            assert set(said) == {"status", "error_code", "error_message"}, (tool, given)
            assert (said["status"], said["error_code"]) == ("error", code), (tool, given, said)
            assert part in said["error_message"], (tool, given)
            assert "Traceback" not in said["error_message"]
        # And none of that did any harm.
        assert (await at.call("ping"))["acknowledged"]


@over_each
async def test_nulls_stand_for_what_is_left_out(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        said = await at.call("ping", status_message=None, progress_snapshot=None)
        assert said["acknowledged"]


@over_each
async def test_the_policy_lets_a_change_pass_and_says_by_which_rule(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        (at.root / ".intercom").mkdir()
        (at.root / ".intercom/settings.json").write_text(
            '{"enabled": true, "file_patterns": {"write": ["notes/*.md"]}, "log_auto_approved": true,'
            ' "summary_interval_seconds": 0}'
        )
        published = await at.schemas()
        await at.person.do("policy-accept", workspace=str(at.root))
        said = await at.call("check_clearance", title="Note", diff="one\n", file_path="notes/a.md")
        assert said["status"] == "approved"
        assert said["auto_approved"] == "file_pattern:write:notes/*.md"
        jsonschema.validate(said, published["check_clearance"])
        assert (await at.call("check_diff", request_id=said["request_id"]))["status"] == "applied"
        await at.person.notice(text="the policy let pass: Note (file_pattern:write:notes/*.md)")

        judged = await at.call("auto_check", tool_name="write", context={"file_path": "notes/b.md"})
        assert judged == {"auto_approved": True, "matched_rule": "file_pattern:write:notes/*.md"}
        jsonschema.validate(judged, published["auto_check"])


@over_each
async def test_the_channels_messages_are_listed_and_need_slack(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        (template,) = (await at.agent.list_resource_templates()).resource_templates
        assert template.uri_template == "slack://channel/{id}/recent{?limit}"
        assert (await at.agent.list_resources()).resources == []
        with pytest.raises(Exception, match="slack is not set up"):
            await at.agent.read_resource("slack://channel/C0123/recent")
        with pytest.raises(Exception, match="no resource has this uri"):
            await at.agent.read_resource("file:///etc/passwd")


async def test_the_older_names_work_where_the_configuration_says_so() -> None:
    with user_home(TRUSTING + "[mcp]\nlegacy_tool_names = true\n") as home, home.serving():
        async with home.agent(home.workspace()) as agent:
            names = [tool.name for tool in (await agent.list_tools()).tools]
            assert len(names) == 18
            assert "ask_approval" in names
            assert (await call(agent, "heartbeat"))["acknowledged"]
            assert (await call(agent, "recover_state")) == {"status": "clean"}


@over_each
async def test_the_older_names_are_unknown_otherwise(server: Home, transport: Transport) -> None:
    async with desk(server, transport) as at:
        assert (await at.call("heartbeat"))["error_code"] == "unknown_tool"


def test_a_result_may_hold_more_than_its_schema_names() -> None:
    # A validator in a client must not refuse what rides on an answer.
    from intercom.agents import schemas
    from intercom.sessions.tools.table import TOOLS

    for tool in TOOLS:
        schema = schemas.of_answer(tool.result)
        assert {"late_verdicts", "instructions"} <= set(schema["properties"])
        assert schema.get("additionalProperties", True) is True
