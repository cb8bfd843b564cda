"""Every verb of ctl, over a real socket."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from intercom.model.card import CardKind, CardState
from intercom.model.chat_status import ChatStatus, ConnectionState, ConnectionStatus
from intercom.model.clock import to_text
from intercom.model.session import SessionStatus
from intercom.operators.commands.command_table import DEFAULT_REASON, LISTED
from tests.operators.ctl_server import ctl_server
from tests.operators.stand_in_service import START, StandInService, card, session

pytestmark = pytest.mark.real_time


def service() -> StandInService:
    return StandInService(
        card("abc-1"),
        card("abd-2"),
        card("pro-1", CardKind.PROMPT),
        card("sta-1", CardKind.STANDBY),
        card("ala-1", CardKind.STALL),
        card("pol-1", CardKind.POLICY),
        card("app-1", CardKind.APPLY),
    )


ME = pwd.getpwuid(os.geteuid()).pw_name

# verb, fields -> parts of the data, what the service was asked to do
TABLE: list[tuple[str, dict[str, Any], dict[str, Any], tuple[Any, ...] | None]] = [
    ("approve", {"id": "abc"}, {"request_id": "abc-1", "status": "approved"}, ("decide", "abc-1", "approve", None)),
    ("reject", {"id": "abc"}, {"status": "rejected"}, ("decide", "abc-1", "reject", DEFAULT_REASON)),
    ("reject", {"id": "abc", "reason": "no"}, {"status": "rejected"}, ("decide", "abc-1", "reject", "no")),
    ("reject", {"id": "pol-1"}, {"status": "rejected"}, ("decide", "pol-1", "reject", DEFAULT_REASON)),
    ("answer", {"id": "pro", "decision": "continue"}, {"status": "continued"}, ("decide", "pro-1", "continue", None)),
    (
        "answer",
        {"id": "pro", "decision": "refine", "text": "x"},
        {"status": "refined"},
        ("decide", "pro-1", "refine", "x"),
    ),
    ("answer", {"id": "pro", "decision": "stop"}, {"status": "stopped"}, ("decide", "pro-1", "stop", None)),
    ("answer", {"id": "sta", "decision": "continue"}, {"status": "resumed"}, ("decide", "sta-1", "resume", None)),
    (
        "answer",
        {"id": "sta", "decision": "refine", "text": "x"},
        {"status": "resumed"},
        ("decide", "sta-1", "resume", "x"),
    ),
    ("answer", {"id": "sta", "decision": "stop"}, {"status": "stopped"}, ("decide", "sta-1", "stop", None)),
    ("answer", {"id": "ala", "decision": "dismiss"}, {"status": "dismissed"}, ("decide", "ala-1", "dismiss", None)),
    ("answer", {"id": "app-1", "decision": "dismiss"}, {"status": "dismissed"}, ("decide", "app-1", "dismiss", None)),
    ("resume", {}, {"session_id": "s-1", "status": "resumed"}, ("resume", None, None, "resume")),
    ("resume", {"instruction": "go"}, {"status": "resumed"}, ("resume", None, "go", "resume")),
    ("resume", {"session": "s-1"}, {"session_id": "s-1"}, ("resume", "s-1", None, "resume")),
    ("resume", {"id": "s-1"}, {"session_id": "s-1"}, ("resume", "s-1", None, "resume")),
    ("mode", {"mode": "remote"}, {"previous_mode": "local", "current_mode": "remote"}, ("mode", "s-1", "remote")),
    ("nudge", {"id": "ala-1", "text": "hey"}, {"request_id": "ala-1", "status": "nudged"}, ("nudge", "ala-1", "hey")),
    ("nudge", {"id": "s-1"}, {"session_id": "s-1", "status": "nudged"}, ("nudge", "s-1", None)),
    ("policy-accept", {}, {"request_id": "pol-1", "status": "accepted"}, ("policy", None)),
    ("policy-accept", {"id": "pol-1"}, {"status": "accepted"}, ("policy", "pol-1")),
    ("policy-reject", {"id": "pol-1"}, {"status": "rejected"}, ("policy", "pol-1")),
    ("pause", {"id": "s-1"}, {"session_id": "s-1", "status": "paused"}, ("pause", "s-1")),
    ("pause", {}, {"session_id": "s-1"}, ("pause", "s-1")),
    (
        "steer",
        {"id": "s-1", "text": "mind it", "verdict_id": "12345678"},
        {"session_id": "s-1", "request_id": "w-1", "status": "queued", "note": "goes with the agent's next result"},
        ("steer", "s-1", "mind it", ME, "ctl", "ctl/12345678"),
    ),
    (
        "task",
        {"workspace": "/ws", "text": "do it", "verdict_id": "12345678"},
        {"session_id": None, "request_id": "t-1", "workspace_root": "/ws", "status": "queued"},
        ("task", "do it", ME, "ctl", None, "/ws", "ctl/12345678"),
    ),
    ("task", {"session": "s-1", "text": "do it"}, {"session_id": "s-1"}, ("task", "do it", ME, "ctl", "s-1", None)),
    ("show", {"id": "abc"}, {"request_id": "abc-1", "kind": "approval", "risk_level": "high"}, None),
    ("task-workspace", {"workspace": "/ws"}, {"workspace_root": "/ws"}, None),
    ("nudge-text", {}, {"text": "go on"}, None),
    ("version", {}, {"version": "0.1.0"}, None),
]


@pytest.mark.parametrize(("verb", "fields", "data", "act"), TABLE)
async def test_a_verb_does_what_its_row_says(
    tmp_path: Path, verb: str, fields: dict[str, Any], data: dict[str, Any], act: tuple[Any, ...] | None
) -> None:
    async with ctl_server(tmp_path, service()) as server:
        reply = await (await server.dial()).ask(verb, **fields)
        assert reply["ok"] is True
        assert data.items() <= reply["data"].items()
        assert [done[: len(act or ())] for done in server.service.acts] == ([act] if act else [])


async def test_what_is_listed_has_the_names_of_the_reference(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        peer = await server.dial()
        [entry] = (await peer.ask("list"))["data"]["sessions"]
        assert entry["session_id"] == "s-1"
        assert (entry["status"], entry["mode"]) == ("active", "local")
        assert {"workspace_root", "last_tool", "updated_at"} <= entry.keys()
        assert (await peer.ask("log", limit=7))["data"]["entries"][0]["data"] == {"limit": 7}
        assert (await peer.ask("log"))["data"]["entries"][0]["data"] == {"limit": LISTED}
        assert (await peer.ask("slack"))["data"] == {"slack": None}
        server.service.chat = ChatStatus("C1", ConnectionStatus(ConnectionState.UP, START, 0, None, None, 0), None)
        [chat] = (await peer.ask("slack"))["data"].values()
        assert (chat["channel"], chat["connection"]["since"], chat["outbox"]) == ("C1", to_text(START), None)
        tree = (await peer.ask("tree"))["data"]["tree"]
        assert (tree["name"], tree["children"][0]["last_crash"]) == ("root", "OSError: disk full")
        waiting = [card["request_id"] for card in (await peer.ask("pending", session="s-1"))["data"]]
        assert waiting[0] == "abc-1"
        # "nothing waits" would be said of a session that is not there.
        for verb in ("pending", "list", "task", "log", "show", "approve"):
            refused = await peer.ask(verb, session="nope", id="abc-1" if verb in ("show", "approve") else None)
            assert (refused["ok"], refused["error_code"]) == (False, "not_found"), verb
        assert server.service.acts == []


async def test_what_is_paused_steered_and_left_is_listed_and_taken_back(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        peer = await server.dial()
        assert (await peer.ask("unpause"))["error_code"] == "invalid_state"
        await peer.ask("pause")
        [entry] = (await peer.ask("list"))["data"]["sessions"]
        assert (entry["status"], entry["paused_by"], entry["paused_at"]) == ("paused", ME, to_text(START))
        assert (await peer.ask("unpause", verdict_id="12345678"))["data"] == {"session_id": "s-1", "status": "active"}
        assert server.service.acts[-1] == ("unpause", "s-1", ME, "ctl", "ctl/12345678")
        await peer.ask("steer", id="s-1", text="mind it")
        await peer.ask("task", workspace="/ws", text="do it")
        [word] = (await peer.ask("steering"))["data"]["words"]
        assert (word["kind"], word["status"], word["text"], word["by"]) == ("steer", "queued", "mind it", ME)
        [task] = (await peer.ask("tasks"))["data"]["words"]
        assert (task["session_id"], task["workspace_root"], task["delivered_at"]) == (None, "/ws", None)
        taken = (await peer.ask("take-back", id="t-1"))["data"]
        assert taken == {"request_id": "t-1", "session_id": None, "status": "taken back"}
        assert (await peer.ask("tasks"))["data"] == {"words": []}
        assert [each["status"] for each in (await peer.ask("tasks", everything=True))["data"]["words"]] == ["closed"]
        assert (await peer.ask("take-back"))["error_code"] == "invalid_arguments"


async def test_ended_sessions_are_listed_when_everything_is_wanted(tmp_path: Path) -> None:
    ended = session("s-2", status=SessionStatus.TERMINATED)
    async with ctl_server(tmp_path, StandInService(sessions=[session("s-1"), ended])) as server:
        peer = await server.dial()
        for everything, names in ((False, ["s-1"]), (True, ["s-1", "s-2"])):
            found = (await peer.ask("list", everything=everything))["data"]["sessions"]
            assert [entry["session_id"] for entry in found] == names


REFUSALS = [
    ("approve", {"id": "ab"}, "ambiguous", "fits more than one"),
    ("approve", {"id": "zzz"}, "not_found", "zzz"),
    ("approve", {}, "invalid_arguments", "needs an id"),
    ("approve", {"id": "pro"}, "invalid_state", "answer pro-1 continue | refine TEXT | stop"),
    ("approve", {"id": "sta"}, "invalid_state", "answer sta-1 continue"),
    ("approve", {"id": "ala"}, "invalid_state", "nudge ala-1"),
    ("approve", {"id": "pol"}, "invalid_state", "policy accept pol-1"),
    ("approve", {"id": "app"}, "invalid_state", "correct the files"),
    ("answer", {"id": "abc", "decision": "continue"}, "invalid_state", "approve abc-1 or reject abc-1"),
    ("answer", {"id": "pro"}, "invalid_arguments", "continue, refine, stop"),
    ("answer", {"id": "pro", "decision": "perhaps"}, "invalid_arguments", "continue, refine, stop"),
    ("answer", {"id": "pro", "decision": "refine", "text": "  "}, "invalid_arguments", "refine needs the text"),
    ("mode", {}, "invalid_arguments", "remote, local, hybrid"),
    ("mode", {"mode": "sideways"}, "invalid_arguments", "remote, local, hybrid"),
    ("resume", {"session": "nobody"}, "not_found", "nobody"),
    ("policy-accept", {"id": "a", "limit": 0}, "invalid_arguments", "from 1 to 10000"),
    *(
        (verb, {"session": "s1", "id": "fix", "text": "it", "mode": "local"}, "invalid_arguments", "two sessions")
        for verb in ("clear", "pause", "unpause", "steer", "resume", "mode", "logs", "checkpoint", "checkpoints")
    ),
    ("frobnicate", {}, "invalid_arguments", "unknown command"),
]


@pytest.mark.parametrize(("verb", "fields", "code", "says"), REFUSALS)
async def test_a_refusal_says_what_was_wrong_and_what_to_do(
    tmp_path: Path, verb: str, fields: dict[str, Any], code: str, says: str
) -> None:
    async with ctl_server(tmp_path, service()) as server:
        reply = await (await server.dial()).ask(verb, **fields)
        assert (reply["ok"], reply["error_code"]) == (False, code)
        assert says in reply["error"]
        assert [act for act in server.service.acts if act[0] == "decide"] == []


async def test_the_same_verdict_again_is_the_same_act_and_another_is_too_late(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        peer = await server.dial()
        first = await peer.ask("approve", id="abc", verdict_id="verdict-0001")
        again = await peer.ask("approve", id="abc", verdict_id="verdict-0001")
        assert first == again
        late = await peer.ask("reject", id="abc", verdict_id="verdict-0002")
        assert late["error_code"] == "already_decided"
        assert server.service.cards["abc-1"].state is CardState.APPROVED


async def test_a_verdict_id_used_for_another_act_does_not_claim_that_it_was_done(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        peer = await server.dial()
        await peer.ask("approve", id="abc", verdict_id="verdict-0001")
        other = await peer.ask("reject", id="abc", verdict_id="verdict-0001")
        assert (other["ok"], other["error_code"]) == (False, "already_decided")
        assert "another action (approve by " in other["error"]


async def test_a_verdict_says_who_gave_it_and_over_which_channel(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        await (await server.dial()).ask("approve", id="abc")
        decided = server.service.cards["abc-1"].decided
        assert decided is not None
        assert (decided.by, decided.channel) == (pwd.getpwuid(os.geteuid()).pw_name, "ctl")


async def test_start_names_the_act_so_that_a_repetition_starts_one_agent(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        reply = await (await server.dial()).ask(
            "start", text="tidy up", workspace="/ws", label=" mine ", verdict_id="12345678"
        )
        assert reply["data"] == {"session_id": "s-new", "status": "started", "workspace_root": "/home/me/project"}
        more = {"by": ME, "channel": "ctl", "workspace": "/ws", "label": "mine", "act": "ctl/12345678"}
        assert server.service.acts == [("start", "tidy up", more)]


async def test_clear_ends_the_session_that_is_named(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        peer = await server.dial()
        assert (await peer.ask("clear", id="s-1"))["data"] == {"session_id": "s-1", "status": "ended"}
        assert (await peer.ask("clear"))["error_code"] == "invalid_arguments"
        assert server.service.acts == [("end", "s-1", ME, "ctl", "ended with agent-intercom-ctl end")]


async def test_clear_ends_all_sessions_whose_agents_are_away(tmp_path: Path) -> None:
    away = [session(id, status=SessionStatus.INTERRUPTED) for id in ("s-2", "s-3")]
    async with ctl_server(tmp_path, StandInService(sessions=(session("s-1"), *away))) as server:
        peer = await server.dial()
        assert (await peer.ask("clear", id="s-1", interrupted=True))["error_code"] == "invalid_arguments"
        assert (await peer.ask("clear", interrupted=True))["data"] == {"status": "ended", "sessions": ["s-2", "s-3"]}
        assert [act[1] for act in server.service.acts] == ["s-2", "s-3"]


async def test_logs_are_read_from_the_end_or_from_a_byte_on(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        peer = await server.dial()
        said = (await peer.ask("logs", id="s-1", limit=5))["data"]
        assert (said["text"], said["end"], said["exit"]) == ("one\ntwo\n", 8, "exit code 0")
        assert (await peer.ask("logs", id="s-1", stream="stderr", start=4))["data"]["text"] == "two\n"
        for wrong in ({"stream": "stdin"}, {"start": -1}, {"start": True}, {"start": 2**64}, {"id": None}):
            assert (await peer.ask("logs", **{"id": "s-1", **wrong}))["error_code"] == "invalid_arguments"
        assert server.service.acts == [("output", "s-1", "stdout", 5, None), ("output", "s-1", "stderr", 200, 4)]
