"""ctl and the gateway: what each line asks, what it prints, and with which code it exits."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from rich.console import Console

from intercom.cli import ctl_gateway
from intercom.cli.ctl import fields_of, hoist, parser
from intercom.cli.ctl_gateway import DRAWINGS, call_line, milliseconds, result_lines
from intercom.local.places import places
from intercom.model.errors import IntercomError
from intercom.model.gateway_view import DownstreamDetail, ParameterView
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.commands.json_forms import plain
from intercom.operators.ctl.client import Refusal
from tests.cli.test_ctl import run
from tests.operators.ctl_server import CtlServer, ctl_server
from tests.operators.stand_in_gateway import BUDGET, OFFLINE, READY, TOOLS, StandInGateway, evidence_export
from tests.operators.stand_in_gateway import call_line as recorded
from tests.operators.stand_in_service import StandInService

pytestmark = pytest.mark.real_time


def service(*, has_gateway: bool = True) -> StandInService:
    made = StandInService()
    if has_gateway:
        made.gateway = StandInGateway()
        made.gateway.calls = [
            recorded(3),
            recorded(4, status="error", error="it\x1b[2J\nbroke", request_id="r-12345678-1", decided_by="kim (ctl)"),
        ]
    return made


@pytest.mark.parametrize(
    ("line", "verb", "fields"),
    [
        ("gateway list", "gateway-list", {}),
        ("gateway show github", "gateway-show", {"id": "github"}),
        ("gateway show github search", "gateway-show", {"id": "github", "tool": "search"}),
        ("gateway test github --json", "gateway-test", {"id": "github"}),
        ("gateway call github search", "gateway-call", {"id": "github", "tool": "search"}),
        ('gateway call github search {"q":1}', "gateway-call", {"id": "github", "tool": "search", "text": '{"q":1}'}),
        ("gateway enable github", "gateway-enable", {"id": "github"}),
        ("gateway disable github", "gateway-disable", {"id": "github"}),
        ("gateway tail", "gateway-tail", {}),
        ("gateway tail -n 5", "gateway-tail", {"limit": 5}),
        ("gateway tail github -f --lines 9", "gateway-tail", {"id": "github", "limit": 9}),
        ("gateway evidence", "gateway-evidence", {}),
        ("gateway evidence e1 --json", "gateway-evidence", {"text": "e1"}),
        ("gateway evidence e1 e2 --json", "gateway-evidence", {"text": "e1 e2"}),
        (
            "gateway evidence --session s-1 --from github --tool search --lines 3",
            "gateway-evidence",
            {"session": "s-1", "name": "github", "tool": "search", "limit": 3},
        ),
        ("gateway explain dev", "gateway-explain", {"role": "dev"}),
        ("gateway explain dev github", "gateway-explain", {"role": "dev", "id": "github"}),
        ("gateway explain dev github x", "gateway-explain", {"role": "dev", "id": "github", "tool": "x"}),
        ("gateway budgets", "gateway-budgets", {}),
        ("gateway lint", "gateway-lint", {}),
    ],
)
def test_a_line_stands_for_a_request(line: str, verb: str, fields: dict[str, Any]) -> None:
    assert fields_of(parser().parse_args(hoist(line.split()))) == (verb, fields)


def test_each_command_has_a_way_to_show_its_answer() -> None:
    shown = {"gateway-tail", "gateway-enable", "gateway-disable", *DRAWINGS}
    assert shown == {name for name, row in COMMANDS.items() if name.startswith("gateway-") and row.is_typed}


LINES = [
    ("list", 0),
    ("show github", 0),
    ("test github", 0),
    ("test noisy", 1),
    ("test files", 2),
    ("call github search", 0),
    ('call github search {"q":1}', 0),
    ("call github fail", 1),
    ("enable github", 0),
    ("disable github", 0),
    ("tail", 0),
    ("tail files", 0),
    ("evidence", 0),
    ("evidence --from files", 0),
    ("evidence e1 e2", 0),
    ("explain dev", 0),
    ("explain dev github search", 0),
    ("budgets", 0),
    ("lint", 1),
]
REFUSED = [
    ("show nosuch", 1),
    ("test nosuch", 1),
    ("call github search {", 1),
    ("evidence nosuch", 1),
    ("explain nobody", 1),
    ("call github", 2),
    ("show", 2),
    ("frobnicate", 2),
]


@pytest.mark.parametrize(("line", "code"), LINES)
async def test_a_line_prints_one_json_value_or_words_for_people(tmp_path: Path, line: str, code: int) -> None:
    async with ctl_server(tmp_path, service()) as server:
        done = await run(server.environ, "gateway", *line.split(), "--json")
        assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (code, b"", 1)
        json.loads(done.stdout)
        done = await run(server.environ, "gateway", *line.split())
        assert (done.returncode, done.stderr) == (code, b"")
        assert done.stdout.strip()
        # A downstream wrote parts of this; it cannot control the terminal.
        assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(("line", "code"), REFUSED)
async def test_a_refusal_is_one_json_value_or_a_sentence_on_stderr(tmp_path: Path, line: str, code: int) -> None:
    async with ctl_server(tmp_path, service()) as server:
        done = await run(server.environ, "gateway", *line.split(), "--json")
        assert (done.returncode, done.stderr) == (code, b"")
        assert json.loads(done.stdout)["ok"] is False
        done = await run(server.environ, "gateway", *line.split())
        assert (done.returncode, done.stdout) == (code, b"")
        assert b"agent-intercom-ctl" in done.stderr


async def test_a_server_without_a_gateway_says_how_to_have_one(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service(has_gateway=False)) as server:
        done = await run(server.environ, "gateway", "list", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["error_code"] == "no_gateway"


async def printed(server: CtlServer, *words: str) -> str:
    return (await run(server.environ, "gateway", *words)).stdout.decode()


async def test_what_people_read_has_what_they_need(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        listed = await printed(server, "list")
        assert "the process exited with status 1 (it\\x1b[2J broke)" in listed
        assert "2+1" in listed
        assert "withheld: delete_repo" in listed
        assert "agent-intercom-ctl gateway test files" in listed
        shown = await printed(server, "show", "github")
        for part in (
            "withheld",
            "read-only",
            "2026-11-25, kim, abababab",
            "! delete_repo: description tells the model",
        ):
            assert part in shown
        assert "fault of its file: a fault" in shown
        tested = await printed(server, "test", "files")
        assert "files is unhealthy" in tested
        assert "| Fatal:\\x1b[2J no" in tested
        assert "-> run its command in a terminal" in tested
        assert "7 calls, cost 0.07" in await printed(server, "budgets")
        assert "93 today, cost 2.43, 19 now, 4 more running" in await printed(server, "budgets")
        assert "deny    files   rm      no rule names it" in await printed(server, "explain", "dev")
        assert "fault   a.json: is not JSON" in await printed(server, "lint")
        disabled = await printed(server, "disable", "github")
        assert "gateway enable github" in disabled
        assert "disabled" in await printed(server, "list")


async def test_a_call_prints_the_texts_and_what_became_of_it(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        said = await printed(server, "call", "github", "search", "q=x")
        assert said.splitlines() == [
            "found\\x1b[2J {'q': 'x'}",
            "[done, 500 ms, record 0f1e2d3c, cost 0.01, masked: token]",
        ]


async def test_evidence_is_printed_for_people_and_for_programs(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        listed = await printed(server, "evidence")
        assert "e1d2c3b4-0" in listed
        assert "github.sea\\x1b[2Jrch" in listed
        assert "agent-intercom-ctl gateway evidence e1d2c3b4" in listed
        assert 'name tools under "evidence"' in await printed(server, "evidence", "--from", "files")
        assert (await printed(server, "evidence", "e1")).splitlines() == [
            "evidence:e1  github.sea\\x1b[2Jrch  2026-11-25T12:00:00.000000+00:00",
            "    session s-12345678, record c-1, secrets masked",
            "    found\\x1b[2J it",
        ]
        assert json.loads(await printed(server, "evidence", "e1", "--json")) == evidence_export("e1")
        several = json.loads(await printed(server, "evidence", "e1", "e2", "--json"))
        assert several == [evidence_export("e1"), evidence_export("e2")]


async def test_the_tail_is_a_line_a_call_and_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = service()
    asked: list[float] = []

    def sleep(seconds: float) -> None:
        asked.append(seconds)
        if len(asked) > 1:
            raise KeyboardInterrupt
        made.gateway.calls.append(recorded(9, tool="late"))

    monkeypatch.setattr(ctl_gateway.time, "sleep", sleep)
    async with ctl_server(tmp_path, made) as server:
        with trio.fail_after(120):
            done = await run(server.environ, "gateway", "tail", "-f")
    assert done.returncode == 130
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "2026-11-25 12:00:03  claude 1 (dev)  github.search  success  12 ms"
    assert lines[1].endswith("decided by kim (ctl): it\\x1b[2J broke")
    assert lines[2] == "2026-11-25 12:00:09  claude 1 (dev)  github.late  success  12 ms"
    assert len(lines) == 3


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"is_cached": True}, "success (cached)"),
        ({"role": ""}, "(no role)"),
        ({"request_id": "r-1"}, "asked in r-1"),
        ({"is_redacted": True}, "secrets masked"),
        (
            {"session_id": "5e551017" * 4, "agent": "a9e27000" * 4},
            "session 5e551017, agent a9e27000 (dev)",
        ),
        ({"agent": "x\n12:00:00  root"}, "x 12:00:00  root (dev)"),
        ({"session_id": "5e551017" * 4, "client": "codex"}, "codex, session 5e551017, agent "),
        ({"status": "operator_denied", "decided_by": "kim (slack)"}, "rejected by kim (slack)"),
    ],
)
def test_a_call_is_one_line_whatever_is_in_it(more: dict[str, Any], says: str) -> None:
    line = call_line(recorded(1, **more))
    assert says in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        ({"content": [{"type": "text", "text": "a\nb"}]}, ["a", "b"]),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * 8}]},
            ["[image: image/png, 6 bytes; --json has it]"],
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///x", "text": "in it"}}]},
            ["[resource file:///x]", "in it"],
        ),
        ({"content": [{"type": "resource_link", "uri": "file:///x"}]}, ["[resource_link: file:///x; --json has it]"]),
        ({"content": [], "structuredContent": {"a": 1}}, ["{", '  "a": 1', "}"]),
        ({"content": ["nonsense", None, 7]}, []),
        ({"content": {"no": "list"}}, []),
        ({"resultType": "input_required"}, ["[it wants input, which ctl cannot give: let an agent call this tool]"]),
    ],
)  # fmt: skip
def test_a_result_is_read_as_text(result: dict[str, Any], lines: list[str]) -> None:
    assert result_lines(result) == lines


@pytest.mark.parametrize(("seconds", "text"), [(0.0004, "0.4 ms"), (0.0123, "12 ms"), (3.21, "3.2 s")])
def test_a_duration_is_short(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def test_a_narrow_terminal_has_the_reasons_below_the_list() -> None:
    on = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    long = evolve(READY, name="a-name-of-twenty-char", withheld=())
    ctl_gateway.draw_list(on, {"downstreams": [plain(OFFLINE), plain(long)]}, OFFLINE.since)
    assert isinstance(on.file, io.StringIO)
    lines = [each.rstrip() for each in on.file.getvalue().splitlines()]
    assert max(map(len, lines[:-1])) <= 60
    assert lines[0].split() == ["name", "status", "tools", "calls", "lost", "mean"]
    assert lines[2].split()[-1] == "ms"
    below = " ".join(lines[3:])
    assert "  files: the process exited with status 1 (it\\x1b[2J broke)" in below
    assert "a-name-of-twenty-char:" not in below


def test_a_call_without_a_session_says_so() -> None:
    refused = recorded(5, agent="5cbd1dd683ae48038faaeffeddcd9257", status="workspace_refused")
    assert "  no session, agent 5cbd1dd6 (dev)  " in call_line(refused)
    assert "  kim (ctl) (dev)  " in call_line(recorded(6, agent="kim (ctl)"))


async def test_a_downstream_that_needs_a_sign_in_names_its_command(tmp_path: Path) -> None:
    command = "agent-intercom gateway sign-in far"
    reason = f"the connection could not be made: needs sign-in: nobody has signed in: run '{command}'"
    found = service()
    assert isinstance(found.gateway, StandInGateway)
    far = evolve(OFFLINE, name="far", reason=reason, last_error=reason, needs_sign_in=True)
    found.gateway.views |= {"far": far}
    async with ctl_server(tmp_path, found) as server:
        listed = await printed(server, "list")
        # Once, and beside it the test of another one that fails.
        assert listed.count(command) == 1
        assert "agent-intercom-ctl gateway test files" in listed
        assert "gateway test far" not in listed
        assert f"-> {command}" in await printed(server, "show", "far")


def test_a_call_of_today_has_no_date() -> None:
    line = recorded(7)
    assert call_line(line, line.at).startswith("12:00:07  ")
    assert call_line(line, line.at + timedelta(days=1)).startswith("2026-11-25 12:00:07  ")


def test_a_fault_of_the_files_is_above_the_list() -> None:
    on = Console(file=io.StringIO(), width=120, color_system=None)
    data = {"downstreams": [plain(READY)], "faults": ["roles.json: is not JSON\x1b[2J; until then no agent may call"]}
    ctl_gateway.draw_list(on, data, READY.since)
    assert isinstance(on.file, io.StringIO)
    assert on.file.getvalue().startswith("fault   roles.json: is not JSON\\x1b[2J; until then no agent may call")


def test_all_limits_are_there_on_a_terminal_of_100_columns() -> None:
    on = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    ctl_gateway.draw_budgets(on, {"budgets": [plain(BUDGET)]}, READY.since)
    assert isinstance(on.file, io.StringIO)
    said = " ".join(on.file.getvalue().split())
    for part in ("100 calls", "a day", "93 today", "10/s", "count towards the limits"):
        assert part in said, said


def test_a_tool_alone_has_its_arguments() -> None:
    on = Console(file=io.StringIO(), width=120, color_system=None)
    parameters = (ParameterView("q", "string", True, "what\x1b[2J to find"), ParameterView("n", "integer", False))
    tool = evolve(TOOLS[1], parameters=parameters)
    detail = DownstreamDetail(READY, BUDGET, "all", "all", tools=(tool,))
    ctl_gateway.draw_show(on, plain(detail), READY.since)
    assert isinstance(on.file, io.StringIO)
    lines = [each.split() for each in on.file.getvalue().splitlines()]
    assert ["q", "string", "required", "what\\x1b[2J", "to", "find"] in lines
    assert ["n", "integer"] in lines


def test_a_call_that_cannot_be_made_is_refused_before_it_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def refuse(_where: object, command: str, fields: dict[str, Any]) -> Any:
        sent.append(command)
        if command == "gateway-check":
            assert fields["text"] == '["q=1"]'
            raise Refusal({"error": "github has no tool 'serach'; did you mean search?", "error_code": "unknown_tool"})
        raise AssertionError

    monkeypatch.setattr("intercom.operators.ctl.client.request", refuse)
    monkeypatch.setattr("intercom.cli.ctl_sign.send", refuse)
    with pytest.raises(Refusal, match="did you mean search"):
        ctl_gateway.gateway(places(), "gateway-call", {"id": "github", "tool": "serach"}, words=["q=1"])
    assert sent == ["gateway-check"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["q=1"], '{"q": 1}'),
        (["q=1", "r=a=b"], '{"q": "1", "r": "a=b"}'),
        (['{"q":', "[1.0,true]}"], '{"q": [1.0, true]}'),
        ([], "{}"),
    ],
)
def test_what_the_server_makes_of_typed_arguments_is_signed(words: list[str], named: str) -> None:
    assert ctl_gateway.as_typed(words, named) == named


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["q=1"], '{"q": 2}'),
        (["q=1"], '{"q": true}'),
        (["q=1"], '{"q": 1, "force": true}'),
        (["q=1", "r=2"], '{"q": 1}'),
        (['{"q": 1}'], '{"q": true}'),
        ([], '{"force": true}'),
        (["q=1"], "q=1"),
        (["q=1"], None),
    ],
)
def test_a_program_that_answers_for_the_server_does_not_choose_what_is_signed(
    monkeypatch: pytest.MonkeyPatch, words: list[str], named: object
) -> None:
    """The program at the socket may be another one, and an unlocked key would sign what it named without a PIN."""
    monkeypatch.setattr("intercom.operators.ctl.client.request", lambda *_: {"arguments": named})
    monkeypatch.setattr("intercom.cli.ctl_sign.send", lambda *_: pytest.fail("it was signed"))
    with pytest.raises(IntercomError, match="other arguments than you typed"):
        ctl_gateway.gateway(places(), "gateway-call", {"id": "github", "tool": "search"}, words=words)
