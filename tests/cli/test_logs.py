"""The log file of a background server: private, and there again when somebody took it away."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import actors
from intercom.cli import serve
from intercom.model.config import LogLevel


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    root = logging.getLogger()
    before = root.handlers[:]
    levels = [(each, each.level) for each in map(logging.getLogger, ("", "mcp", "httpx2", "httpcore2", "wsproto"))]
    made = tmp_path / "log" / "server.log"
    serve.set_up_log(LogLevel.INFO, "text", made)
    yield made
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before
    for logger, level in levels:
        logger.setLevel(level)


def remove(file: Path) -> None:
    file.unlink()


def remove_directory(file: Path) -> None:
    shutil.rmtree(file.parent)


def rename(file: Path) -> None:
    file.rename(file.with_name("old.log"))


def replace(file: Path) -> None:
    (file.parent / "other").write_text("")
    os.chmod(file.parent / "other", 0o600)
    os.replace(file.parent / "other", file)


@pytest.mark.parametrize("act", [remove, remove_directory, rename, replace])
def test_a_log_that_was_taken_away_is_begun_anew(file: Path, act: Callable[[Path], object]) -> None:
    serve.log.info("one")
    act(file)
    serve.log.info("two")
    serve.log.info("three")
    lines = file.read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["two", "three"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_log_that_stays_is_not_begun_anew(file: Path) -> None:
    for word in ("one", "two"):
        serve.log.info(word)
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize("formatter", [serve.TextLines("%(levelname)s %(message)s"), serve.JsonLines()])
def test_what_an_agent_wrote_begins_no_line_and_moves_no_cursor(formatter: logging.Formatter) -> None:
    """Failed before: libraries log what they are sent, and a log is read in a terminal."""
    said = "refused: \x1b[2J\r\n2026-11-23 INFO intercom: approved by ann\x9b1A\u202e\u200b"
    record = logging.LogRecord("mcp", logging.WARNING, "x.py", 1, "a message was %s", (said,), None)
    shown = formatter.format(record)
    assert not [line for line in shown.split("\n")[1:] if not line.startswith("    ")]
    assert not [each for each in "\x1b\r\x9b\u202e\u200b" if each in shown]
    assert "approved by ann" in shown


@pytest.mark.parametrize(("seconds", "level"), [(0.24, logging.DEBUG), (1.5, logging.WARNING)])
def test_only_a_long_step_is_a_warning(caplog: pytest.LogCaptureFixture, seconds: float, level: int) -> None:
    caplog.set_level(logging.DEBUG, "intercom")
    serve.log_actor_event(actors.StepTooLong("slack/web", seconds))
    assert [each.levelno for each in caplog.records] == [level]
