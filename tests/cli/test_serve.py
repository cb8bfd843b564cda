"""How `agent-intercom serve` starts: what its command line and environment set, and what it says when it cannot. And
that no command minds a reader that closes the pipe."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from intercom.agents.shim import launch
from intercom.cli import main, serve, server_settings
from intercom.model.config import LogLevel
from intercom.model.errors import ConfigError
from tests.support.server_process import Home


def settled(*words: str) -> server_settings.ServerSettings:
    options = main.parser().parse_args(words)
    return server_settings.with_workspace(server_settings.settle(options), options.workspace)


@pytest.mark.usefixtures("own_home")
def test_a_workspace_before_or_after_the_command_is_the_default_one() -> None:
    here = Path.cwd()
    for words in (["--workspace", ".", "serve"], ["serve", "--workspace", str(here)]):
        assert settled(*words).config.default_workspace_root == here
    assert settled("serve").config.default_workspace_root is None


@pytest.mark.parametrize("root", ["/", "~", "nowhere", ""])
@pytest.mark.usefixtures("own_home")
def test_a_workspace_that_no_agent_may_have_is_refused(root: str) -> None:
    with pytest.raises(ConfigError, match="--workspace"):
        settled("--workspace", root, "serve")


@pytest.mark.usefixtures("own_home")
def test_while_it_starts_no_relay_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    options = main.parser().parse_args(["serve"])
    where = settled("serve").places
    seen: list[bool] = []

    def run(_: object, __: object, ready: serve.Readiness, *more: object) -> int:
        seen.append(launch.is_claimed(where))
        ready.done()
        seen.append(launch.is_claimed(where))
        return 0

    monkeypatch.setattr("intercom.cli.serve.trio.run", run)
    assert serve.serve(options) == 0
    assert seen == [True, False]


def test_a_directory_as_database_is_said_in_one_line(home: Home) -> None:
    (home.root / "db").mkdir()
    home.configure(f'[database]\npath = "{home.root / "db"}"\n')
    done = home.command("serve")
    assert (done.returncode, done.stdout) == (serve.USAGE, "")
    assert done.stderr == (
        f"agent-intercom: the database {home.root / 'db'} is a directory: set [database] path to a file in it\n"
    )


def test_a_database_that_cannot_be_opened_is_said_without_a_traceback(home: Home) -> None:
    (home.root / "db").symlink_to("db")
    home.configure(f'[database]\npath = "{home.root / "db"}"\n')
    done = home.command("serve")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    logged, told = done.stderr.splitlines()
    assert "ActorCrashed(name='store'" in logged
    assert told.startswith("agent-intercom: ")


@pytest.mark.parametrize(
    ("text", "level", "loggers"),
    [
        ("", LogLevel.WARNING, {}),
        ("debug", LogLevel.DEBUG, {}),
        ("Error, intercom.store=debug", LogLevel.ERROR, {"intercom.store": LogLevel.DEBUG}),
        ("mcp=error,,", LogLevel.WARNING, {"mcp": LogLevel.ERROR}),
    ],
)
def test_the_environment_sets_the_levels_of_the_log(text: str, level: LogLevel, loggers: dict[str, LogLevel]) -> None:
    assert serve.log_levels(text, LogLevel.WARNING) == (level, loggers)


@pytest.mark.parametrize("text", ["loud", "=debug", "intercom=", "intercom=loud", "debug,loud"])
def test_levels_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write LEVEL or LOGGER=LEVEL"):
        serve.log_levels(text, LogLevel.INFO)


def test_a_server_takes_the_levels_from_its_environment(home: Home) -> None:
    with home.serving(INTERCOM_LOG="error,intercom.card_router=debug"):
        pass
    assert "MCP server ready" not in (home.root / "server.log").read_text()
    done = home.command("serve", environ=home.environ | {"INTERCOM_LOG": "loud"})
    assert done.returncode == serve.USAGE
    assert done.stderr.startswith("agent-intercom: INTERCOM_LOG in the environment has 'loud'")


def test_a_log_in_an_ordinary_directory_is_private_itself(home: Home) -> None:
    (home.root / "logs").mkdir(mode=0o755)
    os.chmod(home.root / "logs", 0o755)
    home.configure(f'[logging]\nfile = "{home.root / "logs" / "x.log"}"\n')
    with home.serving():
        pass
    log = home.root / "logs" / "x.log"
    assert "MCP server ready" in log.read_text()
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o755)


def test_a_log_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.touch(mode=0o644)
    os.chmod(log, 0o644)
    serve._Private(log).close()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("trap", ["link", "second name", "pipe"])
def test_a_log_that_is_no_file_of_its_own_is_refused(tmp_path: Path, trap: str) -> None:
    log = tmp_path / "x.log"
    (tmp_path / "other").write_text("precious")
    match trap:
        case "link":
            log.symlink_to(tmp_path / "other")
        case "second name":
            os.link(tmp_path / "other", log)
        case _:
            os.mkfifo(log)
    with pytest.raises(ConfigError, match="cannot be the log"):
        serve._Private(log)
    assert (tmp_path / "other").read_text() == "precious"


def test_a_link_put_in_place_of_the_log_does_not_stop_it(tmp_path: Path) -> None:
    """The lines go to the old file: a directory that others may change gives them nothing."""
    log = serve._Private(tmp_path / "x.log")
    log.setFormatter(logging.Formatter("%(message)s"))
    try:
        (tmp_path / "x.log").rename(tmp_path / "old")
        (tmp_path / "x.log").symlink_to(tmp_path / "theirs")
        log.emit(logging.LogRecord("x", logging.INFO, "x.py", 1, "hello", None, None))
    finally:
        log.close()
    assert (tmp_path / "old").read_text() == "hello\n"
    assert not (tmp_path / "theirs").exists()


def test_no_command_minds_a_reader_that_closes_the_pipe(home: Home) -> None:
    command = [*home.program, "slack", "manifest"]
    with subprocess.Popen(command, env=home.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
