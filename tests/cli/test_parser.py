"""What both commands say of a line that is wrong, and how shells complete it."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest
import trio

from intercom.cli import ctl, main
from intercom.cli.command_examples import CTL_EXAMPLES, MAIN_EXAMPLES
from intercom.cli.parser import SHELLS, completion_script
from intercom.model.web import PageMember, PagePeople, SignedIn
from intercom.model.web_role import WebRole
from intercom.operators.commands import command_table
from intercom.operators.commands.server_handlers import _people_entry
from intercom.operators.ctl import client
from tests.docs.generated import subcommands
from tests.operators.ctl_server import ctl_server
from tests.operators.stand_in_service import START, StandInService, card

pytestmark = pytest.mark.real_time


def test_the_help_lists_every_command_once_and_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert sorted(word for words in command_table.SUBJECTS.values() for word in words) == sorted(
        {word for word, *_ in ctl.TYPED}
    )
    assert len(ctl.parser().format_help().splitlines()) <= 40


def test_a_line_without_a_command_is_parsed_without_any_commands_parser() -> None:
    bare = ctl.parser(word="")
    assert bare.format_help() == ctl.parser().format_help()
    (commands,) = (each for each in bare._actions if isinstance(each, argparse._SubParsersAction))
    assert not commands.choices


@pytest.mark.parametrize(
    ("program", "line", "said"),
    [
        (ctl, "aprove x", "agent-intercom-ctl: there is no command 'aprove'; did you mean approve? see"),
        (ctl, "pend", "agent-intercom-ctl: there is no command 'pend'; did you mean pending? see"),
        (ctl, "zzz", "agent-intercom-ctl: there is no command 'zzz'; see agent-intercom-ctl --help"),
        (ctl, "policy acept", "agent-intercom-ctl: there is no command 'acept'; did you mean accept? see"),
        (
            ctl,
            "mode remot",
            "is none of remote, local, hybrid; did you mean remote? see agent-intercom-ctl mode",
        ),
        (ctl, "reject 7 --raeson x", "unrecognized arguments: --raeson x (did you mean --reason? put -- before"),
        (ctl, "reject 7 --zzz", "unrecognized arguments: --zzz (put -- before a text that contains an option); see"),
        (main, "inti", "agent-intercom: there is no command 'inti'; did you mean init? see agent-intercom --help"),
        (main, "gateway imprt", "there is no command 'imprt'; did you mean import? see agent-intercom gateway --help"),
        (main, "init --hoks", "did you mean --hooks"),
    ],
)
def test_a_misspelled_line_is_answered_with_what_was_probably_meant(
    program: object, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        program.parser().parse_args(shlex.split(line))  # type: ignore[attr-defined]

    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_only_the_line_that_asks_for_json_is_answered_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--json", "policy", "acept"], ["policy", "--json", "acept"]):
        with pytest.raises(SystemExit):
            ctl.main(words)
        said = capsys.readouterr()
        assert (json.loads(said.out)["error_code"], said.err) == ("invalid_arguments", "")
    with pytest.raises(SystemExit):
        ctl.main(["policy", "acept"])
    said = capsys.readouterr()
    assert (said.out, "did you mean accept?" in said.err) == ("", True)


@pytest.mark.parametrize("line", CTL_EXAMPLES)
def test_an_example_can_be_typed_and_stands_in_the_help_of_its_command(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line.partition(" > ")[0])
    options = ctl.parser().parse_args(ctl.hoist(words))
    row = ctl.row_of(options)

    with pytest.raises(SystemExit):
        ctl.parser().parse_args([*row.name.split("-", 1 if words[0] in ctl.GROUPS else 0), "--help"])
    assert f"  agent-intercom-ctl {line}\n" in capsys.readouterr().out


@pytest.mark.parametrize("line", MAIN_EXAMPLES)
def test_an_example_of_the_other_program_can_be_typed(line: str) -> None:
    assert main.parser().parse_args(shlex.split(line.partition(" > ")[0])).command == line.split()[0]


@pytest.mark.parametrize(("program", "name"), [(ctl, "agent-intercom-ctl"), (main, "agent-intercom")])
def test_the_help_of_every_command_ends_with_an_example(program: ModuleType, name: str) -> None:
    helps = {" ".join(words): command.format_help() for words, command in subcommands(program.parser())}

    assert len(helps) > 10
    for words, text in helps.items():
        assert f"{name} {words}" in text.partition("\nexamples:\n")[2], words


def test_both_commands_tell_their_version(capsys: pytest.CaptureFixture[str]) -> None:
    for program, name in ((ctl, "agent-intercom-ctl"), (main, "agent-intercom")):
        with pytest.raises(SystemExit):
            program.parser().parse_args(["--version"])
        assert capsys.readouterr().out.startswith(f"{name} ")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_completes_both_commands(shell: str) -> None:
    script = completion_script(shell, ("agent-intercom", "agent-intercom-ctl"))

    assert "agent-intercom-ctl" in script
    assert "_ARGCOMPLETE" in script
    # That of zsh may also be a file in its $fpath.
    assert shell != "zsh" or script.startswith("#compdef ")


def completions(line: str, env: dict[str, str], tmp_path: Path) -> set[str]:
    """What a shell is told for the line as it is now."""
    out = tmp_path / "completions"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    done = subprocess.run(
        [sys.executable, "-m", "intercom.cli.ctl"], env={**env, **asked}, capture_output=True, check=False
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    return {each.strip() for each in out.read_text().split("\n") if each.strip()}


def test_a_shell_completes_commands_options_and_choices_without_a_server(tmp_path: Path) -> None:
    # Not the directory of other servers of this machine.
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(tmp_path)}

    assert "approve" in completions("agent-intercom-ctl app", env, tmp_path)
    assert "accept" in completions("agent-intercom-ctl policy ac", env, tmp_path)
    assert {"remote", "local", "hybrid"} <= completions("agent-intercom-ctl mode ", env, tmp_path)
    assert "--workspace" in completions("agent-intercom-ctl start --w", env, tmp_path)
    assert completions("agent-intercom-ctl show ", env, tmp_path) <= {"--help"}


async def test_a_shell_completes_the_ids_of_what_waits(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("abc-1"), card("xyz-2"))) as server:
        found = await trio.to_thread.run_sync(
            completions, "agent-intercom-ctl approve ", {**server.environ, "PATH": os.environ["PATH"]}, tmp_path
        )

    assert {"abc-1", "xyz-2"} <= found


@pytest.mark.parametrize("members", [(), (PageMember("zoe", WebRole.OPERATOR),)])
def test_the_ids_of_browsers_complete_a_sign_out_whoever_else_is_listed(
    monkeypatch: pytest.MonkeyPatch, members: tuple[PageMember, ...]
) -> None:
    browser = SignedIn("5c0f2e91" * 4, "kim", WebRole.VIEWER, START, START)
    listed = _people_entry(PagePeople("https://page.example.org", members, (browser,), ("U012AB3CD",)))
    monkeypatch.setattr(client, "request", lambda where, verb, fields, **more: {"people-list": listed}[verb])
    options = Namespace(command="people", act="sign-out", ipc_name=None, config=None)
    assert ctl._ids("id", options) == ["5c0f2e91"]


def test_a_command_of_ctl_is_named_with_its_program_and_help_is_an_option_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main.main(["approve", "12"])
    assert "there is no command 'approve'; did you mean agent-intercom-ctl approve?" in capsys.readouterr().err
    for program, line in ((ctl.main, ["help"]), (ctl.main, ["help", "grant"]), (main.main, ["help", "init"])):
        with pytest.raises(SystemExit) as ended:
            program(line)
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith("usage: agent-intercom")
    assert main.main(["init", "--client", "claude"]) == 2
    assert "no client is called claude: did you mean claude-code?" in capsys.readouterr().err
