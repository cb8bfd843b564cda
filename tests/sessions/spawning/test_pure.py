"""What is decided without a process: the command line, the environment, restarts, and how an output is kept."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.config import Config, SpawnRestart, SpawnSettings
from intercom.model.errors import ConfigError, InvalidArguments
from intercom.model.process import Exit
from intercom.sessions.processes import agent_process as command
from intercom.sessions.processes import monitor_client, monitor_program
from intercom.sessions.processes.agent_process import plan_restart
from intercom.sessions.processes.monitor_client import Stream
from intercom.sessions.processes.monitor_program import Segments, segment_starts
from intercom.sessions.processes.spawner import _loose_end

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BAD, GOOD = Exit(code=1), Exit(code=0)
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/home/kim"}


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "a prompt is needed"),
        (" \n\t", "a prompt is needed"),
        ("a\0b", "NUL"),
        ("half \ud800", "not valid Unicode"),
        ("x" * 100_001, "100001 bytes"),
        ("é" * 50_001, "100002 bytes"),
        ("--help", "begins with a dash"),
        ("-p x", "begins with a dash"),
        ("\n --yolo", "begins with a dash"),
        ("-", "begins with a dash"),
    ],
)
def test_a_prompt_that_can_not_be_one_argument_is_refused(prompt: str, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        command.check_prompt(prompt, ("--model", "x"))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_any_other_is_the_last_argument_as_it_stands(prompt: str) -> None:
    built = Config(host_cli="sh", host_cli_args=("a b", "$HOME", "--"))
    if prompt.strip():
        assert command.build_command(built, prompt, ENVIRON).arguments[1:] == ("a b", "$HOME", "--", prompt)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (None, "set host_cli"),
        ("no-such-program", "not found in the server's PATH"),
        ("./agent", "give a program's name, or a path"),
        ("/etc", "no program that can be run"),
        ("~/nothing", "no program that can be run"),
    ],
)
def test_a_program_that_can_not_be_run_is_refused_with_what_to_do(name: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        command.find_program(name, ENVIRON)


def test_a_program_is_found_by_name_path_and_home(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "agent"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("agent", str(program), "~/bin/agent"):
        assert command.find_program(name, {"PATH": str(program.parent), "HOME": str(tmp_path)}) == str(program)


def test_the_environment_is_what_programs_need_what_is_passed_on_and_its_own() -> None:
    server = {
        **ENVIRON,
        "API_KEY": "k",
        "SECRET": "s",
        "INTERCOM_FAULT": "f",
        "LD_PRELOAD": "x",
        "SLACK_BOT_TOKEN": "t",
    }
    built = command.build_environment(server, ("API_KEY", "ABSENT"), "s-1", "/ws", {"INTERCOM_MCP_URL": "http://x"})
    assert built["API_KEY"] == "k"
    assert (built["INTERCOM_SESSION_ID"], built["INTERCOM_WORKSPACE_ROOT"]) == ("s-1", "/ws")
    assert built["INTERCOM_MCP_URL"] == "http://x"
    assert not {"SECRET", "INTERCOM_FAULT", "LD_PRELOAD", "SLACK_BOT_TOKEN", "ABSENT"} & built.keys()


@pytest.mark.parametrize(
    ("policy", "ended", "before", "again", "pause"),
    [
        (SpawnRestart.NEVER, BAD, 0, False, 0),
        (SpawnRestart.ON_FAILURE, GOOD, 0, False, 0),
        (SpawnRestart.ON_FAILURE, BAD, 0, True, 1),
        (SpawnRestart.ON_FAILURE, Exit(signal=9, oom=True), 1, True, 2),
        (SpawnRestart.ON_FAILURE, Exit(), 2, True, 4),
        (SpawnRestart.ON_FAILURE, BAD, 3, False, 0),
        (SpawnRestart.ALWAYS, GOOD, 2, True, 4),
        (SpawnRestart.ALWAYS, GOOD, 3, False, 0),
    ],
)
def test_whether_it_runs_again(policy: SpawnRestart, ended: Exit, before: int, again: bool, pause: float) -> None:
    restarts, at = plan_restart(NOW, before, ended, NOW, SpawnSettings(restart=policy))
    assert at == (NOW + timedelta(seconds=pause) if again else None)
    assert restarts == before + again


@given(st.integers(0, 1000), st.integers(0, 2000), st.sampled_from([GOOD, BAD, Exit()]))
def test_restarts_stay_within_their_number_and_pauses_within_their_length(before: int, ran: int, ended: Exit) -> None:
    settings = SpawnSettings(restart=SpawnRestart.ALWAYS, max_restarts=20, restart_backoff_seconds=2)
    now = NOW + timedelta(seconds=ran)
    restarts, at = plan_restart(NOW, before, ended, now, settings)
    counted = 0 if ran >= command.STEADY_SECONDS else before
    assert (at is not None) == (counted < 20)
    if at is not None:
        assert restarts == counted + 1
        assert timedelta(0) < at - now <= timedelta(seconds=command.LONGEST_PAUSE)


RESUMING = SpawnSettings(resume_args=("--resume", "{session_id}"), max_restarts=2)


@pytest.mark.parametrize(
    ("ended", "settings", "before", "given", "again"),
    [
        (GOOD, RESUMING, 0, 5, 1),
        # However often it was woken for others: it has not been told of these.
        (GOOD, RESUMING, 2, 5, 1),
        (GOOD, RESUMING, 1, -5, 2),
        (GOOD, RESUMING, 2, -5, None),
        (GOOD, RESUMING, 0, None, None),
        (BAD, RESUMING, 0, 5, None),
        (GOOD, SpawnSettings(), 0, 5, None),
    ],
)
def test_an_agent_that_ended_well_is_woken_for_words_it_did_not_hear(
    ended: Exit, settings: SpawnSettings, before: int, given: int | None, again: int | None
) -> None:
    began = NOW - timedelta(seconds=10)
    instruction_at = None if given is None else began + timedelta(seconds=given)
    decided = plan_restart(began, before, ended, NOW, settings, instruction_at)
    assert decided == ((before, None) if again is None else (again, NOW))


def test_the_session_stands_in_the_arguments_and_never_in_the_prompt() -> None:
    config = Config(host_cli="sh", host_cli_args=("--session-id", "{session_id}"), spawn=RESUMING)
    first = command.build_command(config, "say {session_id}", ENVIRON, "s-1")
    assert first.arguments[1:] == ("--session-id", "s-1", "say {session_id}")
    woken = command.build_command(config, "say {session_id}", ENVIRON, "s-1", resumes=True)
    assert woken.arguments[1:] == ("--resume", "s-1", command.WAKE)


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.integers(2, 400),
    st.integers(0, 3000),
    st.integers(1, 500),
    st.integers(0, 20),
)
def test_an_output_keeps_its_end_and_is_read_from_anywhere(
    pieces: list[bytes], limit: int, start: int, most: int, reopened: int
) -> None:
    with tempfile.TemporaryDirectory() as where:
        segments = Segments(where, "stdout", limit)
        for number, piece in enumerate(pieces):
            if number == reopened:
                # Another run of the same agent goes on in the same files.
                segments = Segments(where, "stdout", limit)
            segments.add(piece)
        whole = b"".join(pieces)
        directory = Path(where)
        kept = sum(file.stat().st_size for file in directory.iterdir())
        assert kept <= limit
        assert kept >= min(len(whole), limit // 2)
        first = (segment_starts(where, "stdout") or [0])[0]
        assert monitor_client.end_of(directory, Stream.STDOUT) == len(whole)
        found = monitor_client.read_from(directory, Stream.STDOUT, start, most)
        begin = max(start, first)
        assert found.data == whole[begin : begin + most]
        assert found.end == found.start + len(found.data)
        # By pieces it is the same as in one.
        at, read = first, b""
        while (piece := monitor_client.read_from(directory, Stream.STDOUT, at, most)).data:
            at, read = piece.end, read + piece.data
        assert read == whole[first:]


@given(st.text(max_size=30), st.integers(1, 40))
def test_a_piece_ends_with_its_last_whole_character(text: str, size: int) -> None:
    whole = text.encode()
    data = whole[:size]
    assert data[: len(data) - _loose_end(data)].decode() == data.decode(errors="ignore")
    assert _loose_end(whole) == 0


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Exit(code=3), "exit code 3"),
        (Exit(signal=9), "killed by SIGKILL"),
        (Exit(signal=9, oom=True), "killed by SIGKILL because memory ran out"),
        (Exit(signal=63), "killed by signal 63"),
        (Exit(), "its end was not observed"),
    ],
)
def test_an_end_is_put_into_words(ended: Exit, words: str) -> None:
    assert str(ended) == words


@pytest.mark.parametrize(
    ("ending", "before", "after", "oom"), [(9, 0, 1, True), (9, 1, 1, False), (9, None, 1, False), (15, 0, 1, False)]
)
def test_a_kill_is_put_down_to_memory_only_when_the_system_counts_one_more(
    monkeypatch: pytest.MonkeyPatch, ending: int, before: int | None, after: int, oom: bool
) -> None:
    monkeypatch.setattr(monitor_program, "_oom_kills", lambda: after)
    found = monitor_program._exit_of(ending, before)
    assert (found["code"], found["signal"], found["oom"]) == (None, ending, oom)
    assert monitor_program._exit_of(3 << 8, before)["code"] == 3
