"""agent-intercom-ctl as a person runs it: real processes, a real socket, exit codes and nothing but JSON."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.shim import launch
from intercom.cli import ctl
from intercom.cli.ctl import TYPED, fields_of, hoist, parser
from intercom.cli.ctl_sign import Sender
from intercom.local import places
from intercom.model.card import CardKind
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.ctl import client
from intercom.operators.ctl.client import NoServer
from tests.operators.ctl_server import ctl_server, environ
from tests.operators.stand_in_service import StandInService, card, session

pytestmark = pytest.mark.real_time


async def run(env: dict[str, str], *words: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[bytes]:
    """The program, called in this process: to start it takes a while."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))

    def call() -> int:
        try:
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                mock.patch.dict(os.environ, env, clear=True),
            ):
                return ctl.main(words)
        except SystemExit as left:
            return int(left.code or 0)

    code = await trio.to_thread.run_sync(call)
    printed: list[bytes] = []
    for stream in (out, err):
        stream.flush()
        printed.append(stream.buffer.getvalue())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, code, *printed)


async def start(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[bytes]:
    """The program as a process of its own."""
    done: subprocess.CompletedProcess[bytes] = await trio.run_process(
        [sys.executable, "-m", "intercom.cli.ctl", *words],
        env=env,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    return done


def service() -> StandInService:
    return StandInService(
        card("abc-1"),
        card("abd-2"),
        card("pro-1", CardKind.PROMPT),
        card("ala-1", CardKind.STALL),
        card("pol-1", CardKind.POLICY),
    )


LINES = [
    ("list", 0),
    ("list --all", 0),
    ("pending", 0),
    ("pending --session s-1", 0),
    ("show abc", 0),
    ("approve abc", 0),
    ("reject abc --reason no", 0),
    ("answer pro continue", 0),
    ("answer pro refine do it so", 0),
    ("resume carry on", 0),
    ("resume --session s-1", 0),
    ("mode local", 0),
    ("nudge ala hey you", 0),
    ("tree", 0),
    ("slack", 0),
    ("log --limit 3", 0),
    ("policy accept", 0),
    ("policy accept pol-1", 0),
    ("policy reject pol-1", 0),
    ("policy list", 0),
    ("policy show pol-1", 0),
    ("approve ab", 1),
    ("approve zzz", 1),
    ("approve pro", 1),
    ("resume --session nobody", 1),
    ("answer pro refine", 2),
    ("answer pro perhaps", 2),
    ("mode sideways", 2),
    ("log --limit many", 2),
    ("approve", 2),
    ("frobnicate", 2),
    ("policy", 2),
    ("--config /nowhere/at/all.toml list", 2),
    ("--ipc-name ../up list", 2),
    ("--ipc-name another list", 3),
]


@pytest.mark.parametrize(("line", "code"), LINES)
async def test_a_line_prints_one_json_value_or_words_with_errors_on_stderr(
    tmp_path: Path, line: str, code: int
) -> None:
    async with ctl_server(tmp_path, service()) as server:
        done = await run(server.environ, *line.split(), "--json")
        assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (code, b"", 1)
        value = json.loads(done.stdout)
        if code:
            assert value["ok"] is False
            assert value["error"]
            assert value["error_code"]
        server.service.cards = service().cards
        done = await run(server.environ, *line.split())
        assert (done.returncode, bool(done.stdout), bool(done.stderr)) == (code, code == 0, code != 0)
        assert b"\x1b" not in done.stdout
        assert (b"agent-intercom-ctl" in done.stderr) is (code != 0)


async def test_pending_as_json_is_a_list_with_the_names_of_the_reference(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        entries = json.loads((await run(server.environ, "pending", "--json")).stdout)
        assert [entry["request_id"] for entry in entries] == ["abc-1", "abd-2", "pro-1", "ala-1", "pol-1"]
        assert {"request_id", "kind", "title", "session_id", "created_at"} <= entries[0].keys()
        listed = json.loads((await run(server.environ, "list", "--json")).stdout)
        names = {"session_id", "status", "mode", "workspace_root", "last_tool", "updated_at"}
        assert names <= listed["sessions"][0].keys()


async def test_an_ambiguous_resume_lists_the_sessions(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(sessions=[session("s-1"), session("s-2")])) as server:
        done = await run(server.environ, "resume", "--json")
        assert done.returncode == 1
        value = json.loads(done.stdout)
        assert value["error_code"] == "ambiguous"
        assert value["details"] == {"sessions": ["s-1", "s-2"]}


async def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = await run(environ(tmp_path), "list")
    assert done.returncode == 3
    assert b"agent-intercom serve" in done.stderr


async def test_the_name_of_the_server_comes_from_the_config(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('ipc_name = "mine"\n')
    done = await start(environ(tmp_path), "--config", str(config), "list")
    assert done.returncode == 3
    assert b"mine.sock" in done.stderr
    (tmp_path / ".config" / "agent-intercom").mkdir(parents=True)
    config.rename(tmp_path / ".config" / "agent-intercom" / "config.toml")
    assert b"mine.sock" in (await start(environ(tmp_path), "list")).stderr


async def test_a_broken_config_is_a_matter_of_usage(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("ipc_name = \n")
    done = await run(environ(tmp_path), "--config", str(config), "list", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error_code"] == "config"


async def test_what_was_decided_before_the_server_went_away_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, lost = Sender.send, NoServer("gone")
    lost.may_be_done = True

    def sends(sender: Sender, verb: str, fields: dict[str, Any], **more: Any) -> Any:
        if fields["id"] == "b-2":
            raise lost
        return send(sender, verb, fields, **more)

    monkeypatch.setattr(Sender, "send", sends)
    async with ctl_server(tmp_path, StandInService(card("a-1"), card("b-2"), card("c-3"))) as server:
        done = await run(server.environ, "--json", "approve", "a-1", "b-2", "c-3")
    assert done.returncode == 3
    first, second, third = json.loads(done.stdout)
    assert (first["request_id"], first["status"]) == ("a-1", "approved")
    assert (second["request_id"], second["error_code"]) == ("b-2", "ipc")
    assert "may still be done: check" in second["error"]
    assert (third["request_id"], third["error"]) == ("c-3", "not sent, because the one before has no answer")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        # What is drawn, what is printed at once, and what is printed at the end.
        (["pending"], 0),
        (["logs", "s-1"], 0),
        (["--json", "pending"], 0),
        (["--json", "show", "nothing"], 1),
    ],
)
async def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, words: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    async with ctl_server(tmp_path, StandInService(card("c-1"))) as server:
        command = [sys.executable, "-m", "intercom.cli.ctl", *words]
        done = await trio.run_process(command, env=server.environ, stdout=writer, capture_stderr=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (code, b"")


async def test_help_needs_no_server_and_names_every_command(tmp_path: Path) -> None:
    done = await run(environ(tmp_path), "--help")
    assert done.returncode == 0
    for word in {words[0] for words in TYPED}:
        assert word.encode() in done.stdout.split()


async def test_a_terminal_that_knows_ascii_only_is_no_error(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a", title="grün"))) as server:
        for words in (["pending"], ["show", "grün"], ["nudge", "a", "grün"]):
            done = await run(server.environ, *words, encoding="ascii")
            assert done.stdout.isascii()
            assert done.stderr.isascii()
        assert b"gr\\xfcn" in (await run(server.environ, "pending", encoding="ascii")).stdout


WORDS = st.sampled_from([*COMMANDS, "policy", "accept", "--json", "--session", "--", "--reason", "-x", "local", "stop"])


@given(st.lists(WORDS | st.text(max_size=8), max_size=6))
def test_any_line_is_a_request_or_a_matter_of_usage(words: list[str]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            verb, fields = fields_of(parser().parse_args(hoist(words)))
        except SystemExit as left:
            code = left.code
        else:
            code = None
            json.dumps(fields)
    assert code in (0, 2) if code is not None else verb in {row.name for row in TYPED.values()}


@pytest.mark.parametrize(
    ("words", "hoisted"),
    [
        ("pending --json", "--json pending"),
        ("resume --session s go on", "--session s resume go on"),
        ("resume --session=s go", "--session=s resume go"),
        ("answer x refine -- --json", "answer x refine -- --json"),
        ("list --session", "--session list"),
        ("approve x --ipc-name n --json --config f", "--ipc-name n --json --config f approve x"),
        ("start prompt --json", "--json start prompt"),
        ("start --json fix it", "--json start fix it"),
        ("start fix it --json --label l --ipc-name n", "--json --ipc-name n start fix it --label l"),
        ("start --label l --json fix it --workspace w", "--json start --label l fix it --workspace w"),
        ("answer --json x refine do it", "--json answer x refine do it"),
        ("answer x --json refine do it", "--json answer x refine do it"),
        ("start fix -- the --json flag", "start fix -- the --json flag"),
        # What stands amid a text is no option for certain.
        ("start fix the --json flag", "start fix the --json flag"),
        ("start use the --config file now", "start use the --config file now"),
        ("steer s use the --session flag", "steer s use the --session flag"),
        ("answer x refine use --json here", "answer x refine use --json here"),
    ],
)
def test_some_options_may_stand_anywhere(words: str, hoisted: str) -> None:
    assert hoist(words.split()) == hoisted.split()


@pytest.mark.parametrize("line", ["start fix the --json flag", "steer s use the --session flag", "start --jso fix"])
def test_an_option_amid_a_text_is_refused_with_the_way_out(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(hoist(line.split()))
    assert "put -- before a text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "verb", "fields"),
    [
        ("approve r", "approve", {"id": "r"}),
        ("answer r refine a b", "answer", {"id": "r", "decision": "refine", "text": "a b"}),
        ("resume do this --session s", "resume", {"session": "s", "instruction": "do this"}),
        ("resume", "resume", {}),
        ("list --all", "list", {"everything": True}),
        ("log --limit 5", "log", {"limit": 5}),
        ("policy accept", "policy-accept", {}),
        ("policy accept policy-12", "policy-accept", {"id": "policy-12"}),
        ("policy accept /ws", "policy-accept", {"workspace": "/ws"}),
        ("policy reject /ws", "policy-reject", {"workspace": "/ws"}),
        ("policy reject --reason no", "policy-reject", {"reason": "no"}),
        ("policy show /ws/", "policy-show", {"workspace": "/ws"}),
        ("policy list", "policy-list", {}),
        ("nudge s", "nudge", {"id": "s"}),
        ("reject r", "reject", {"id": "r"}),
        ("start tidy up", "start", {"text": "tidy up", "workspace": os.getcwd()}),
        ("start --label mine -- --help", "start", {"text": "--help", "workspace": os.getcwd(), "label": "mine"}),
        ("start --workspace /ws 'x", "start", {"text": "'x", "workspace": "/ws"}),
        ("end 1a2b", "clear", {"id": "1a2b"}),
        ("clear 1a2b", "clear", {"id": "1a2b"}),
        ("sessions", "list", {}),
        ("sessions --all", "list", {"everything": True}),
        ("end --interrupted", "clear", {"interrupted": True}),
        ("clear --json --session 1a2b", "clear", {"session": "1a2b"}),
        ("pending --full", "pending", {}),
        ("logs 1a2b -f --stderr --lines 7", "logs", {"id": "1a2b", "stream": "stderr", "limit": 7}),
        ("pause", "pause", {}),
        ("pause 1a2b", "pause", {"id": "1a2b"}),
        ("unpause --session 1a2b", "unpause", {"session": "1a2b"}),
        ("steer 1a2b mind the gap", "steer", {"id": "1a2b", "text": "mind the gap"}),
        ("steer 1a2b -- --help", "steer", {"id": "1a2b", "text": "--help"}),
        ("steering 1a2b --limit 7", "steering", {"id": "1a2b", "limit": 7}),
        ("task do it", "task", {"text": "do it", "workspace": os.getcwd()}),
        ("task --workspace /ws do it", "task", {"text": "do it", "workspace": "/ws"}),
        ("task --session 1a2b do it", "task", {"text": "do it", "session": "1a2b"}),
        ("tasks --all", "tasks", {"everything": True}),
        ("take-back 1a2b", "take-back", {"id": "1a2b"}),
    ],
)
def test_a_line_stands_for_a_request(line: str, verb: str, fields: dict[str, Any]) -> None:
    assert fields_of(parser().parse_args(hoist(line.split()))) == (verb, fields)
    assert verb in COMMANDS


@pytest.mark.parametrize(
    "words", [("approve", "abc"), ("list",), ("start", "fix", "it"), ("restore", "c-1"), ("watch",)]
)
async def test_a_session_named_for_a_command_that_heeds_none_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = await run(environ(tmp_path), "--session", "s-1", *words)
    assert done.returncode == 2
    assert f"--session is not for {words[0]}".encode() in done.stderr


async def test_a_session_that_is_not_there_is_refused_and_not_said_to_wait_for_nothing(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        for words in (
            ("pending",),
            ("task", "x"),
            ("tasks",),
            ("log",),
            ("pause",),
            ("steer", "x", "y"),
            ("mode", "local"),
        ):
            done = await run(server.environ, "--session", "nope", *words)
            assert done.returncode == 1, words
            assert done.stderr
        assert server.service.acts == []


async def test_logs_prints_what_was_written_and_nothing_that_acts_on_the_terminal(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        server.service.agent_processes.text = "\x1b[2Jgone\nand on\n"
        done = await run(server.environ, "logs", "s-1")
        assert done.stdout == b"\\x1b[2Jgone\nand on\n"
        followed = await run(server.environ, "logs", "-f", "s-1")
        assert (followed.stdout, followed.stderr) == (done.stdout, b"[ended: exit code 0]\n")
        assert (await run(server.environ, "logs", "nothing")).returncode == 1


async def test_what_was_said_to_agents_can_be_read(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        assert (await run(server.environ, "pause")).stdout == b"paused s-1\n"
        assert (await run(server.environ, "unpause", "s-1")).stdout == b"active s-1\n"
        said = await run(server.environ, "steer", "s-1", "mind", "\x1b[2J")
        assert said.stdout == b"queued w-1: goes with the agent's next result\n"
        listed = (await run(server.environ, "steering")).stdout.decode()
        assert "mind \\x1b[2J" in listed
        assert "queued" in listed
        assert b"no messages or tasks" in (await run(server.environ, "tasks")).stdout


@pytest.fixture
def claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The right to start the server of this environment: while it is held, one is being started."""
    monkeypatch.setattr(os, "environ", {**environ(tmp_path)})
    claim = launch.claim(places.places())
    assert claim is not None
    yield claim
    with contextlib.suppress(OSError):
        os.close(claim)


def test_a_command_waits_for_a_server_that_is_being_started(
    claimed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The right is given up while the command waits.
    monkeypatch.setattr(launch.time, "sleep", lambda _seconds: os.close(claimed))  # type: ignore[attr-defined]
    monkeypatch.setattr(client, "FIRST_PATIENCE", 0.0)
    assert ctl.main(["pending"]) == ctl.NO_SERVER
    said = capsys.readouterr().err
    assert said.count("a server is starting: waiting for it") == 1
    assert "no server answers" in said


@pytest.mark.parametrize("words", [["approve", "one", "two"], ["list"]])
def test_a_command_is_not_repeated_if_the_server_goes_away_during_it(
    claimed: int, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    carried_out = []

    def carry_out(*given: object) -> int:
        carried_out.append(given)
        raise NoServer("it went away")

    monkeypatch.setattr(ctl, "START_SECONDS", 0.0)
    monkeypatch.setattr(ctl, "_carry_out", carry_out)
    assert ctl.main(words) == ctl.NO_SERVER
    assert len(carried_out) == 1
    assert "no server answers" in capsys.readouterr().err


@pytest.mark.parametrize("closes", ["its reader", "before"])
@pytest.mark.parametrize("more", [[], ["--json"]])
async def test_a_command_that_nobody_hears_about_does_not_claim_to_be_done(
    claimed: int, more: list[str], closes: str
) -> None:
    code = "import sys; from intercom.cli import ctl; ctl.START_SECONDS = 0.0; sys.exit(ctl.main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, *more, "approve", "7c41"]
    if closes == "before":
        words = ["sh", "-c", f"exec {shlex.join(words)} 2>&-"]
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = await trio.run_process(words, stderr=writes, capture_stdout=True, check=False)
    finally:
        os.close(writes)
    assert done.returncode == ctl.NO_SERVER
    assert (b"no server answers" in done.stdout) is bool(more)
