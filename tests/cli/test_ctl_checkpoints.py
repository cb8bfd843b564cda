"""ctl takes, lists and restores checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from intercom.model.checkpoint import Files, RestoreState
from tests.cli.test_ctl import run
from tests.operators.ctl_server import ctl_server
from tests.operators.stand_in_service import StandInService, session

pytestmark = pytest.mark.real_time


def service() -> StandInService:
    return StandInService(sessions=[session("abcd-1"), session("beef-2")])


async def test_a_checkpoint_is_taken_of_the_session_that_is_named_and_listed(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        done = await run(server.environ, "checkpoint", "beef-2", "before", "the", "storm")
        assert done.stdout.decode() == (
            "checkpoint c-1 (before the storm): 3 files, 42 bytes, 2 can be put back;"
            " left out: 1 files that cannot be read: secret\n"
        )
        await run(server.environ, "checkpoint", "--session", "abcd-1", "beef", "x")
        assert [act[1:3] for act in server.service.acts] == [("beef-2", "before the storm"), ("abcd-1", "beef x")]
        listed = (await run(server.environ, "checkpoints")).stdout.decode()
        assert "before the storm" in listed
        as_json = json.loads((await run(server.environ, "checkpoints", "beef-2", "--json")).stdout)
        assert [each["checkpoint_id"] for each in as_json["checkpoints"]] == ["c-1"]


async def test_a_restore_is_asked_and_answered_or_left_open(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        await run(server.environ, "checkpoint", "--session", "abcd-1", "before")
        asked = await run(server.environ, "restore", "c-1", "--files")
        words = asked.stdout.decode()
        assert asked.returncode == 0
        assert "1 modified, 0 deleted, 1 added since" in words
        assert "added    new\\x1b.txt" in words
        assert "a remark" in words
        assert "answer restore-1 proceed | cancel" in words
        assert server.service.acts[-1][:3] == ("restore", "c-1", "back")
        assert json.loads((await run(server.environ, "restore", "c-1", "--files", "--json")).stdout)["state"] == "asked"
        answered = await run(server.environ, "answer", "restore-1", "cancel")
        assert answered.stdout == b"cancelled restore-1\n"
        done = await run(server.environ, "restore", "c-1", "--exact", "--yes")
        assert done.returncode == 0
        assert done.stdout.decode() == "it is done\nto go back: agent-intercom-ctl restore c-before --exact\n"
        assert server.service.acts[-1][:3] == ("decide", "restore-3", "proceed")


@pytest.mark.parametrize("more", [(), ("--yes",)])
async def test_a_restore_without_files_shows_what_differs_and_changes_nothing(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """It ended the session, and restored nothing."""

    async with ctl_server(tmp_path, service()) as server:
        await run(server.environ, "checkpoint", "--session", "abcd-1", "before")
        shown = await run(server.environ, "restore", "c-1", *more)
        assert shown.returncode == 1
        words = shown.stdout.decode()
        assert "checkpoint before of /home/me/project: 1 modified, 0 deleted, 1 added since" in words
        assert "modified a.txt" in words
        assert "add --files to put back what was modified or deleted" in words
        assert "the session would end" in shown.stderr.decode()
        assert [act[0] for act in server.service.acts] == ["checkpoint", "restore"]


@pytest.mark.parametrize("end", [RestoreState.FAILED, RestoreState.STUCK])
async def test_a_restore_that_does_not_come_out_is_a_failure(tmp_path: Path, end: RestoreState) -> None:
    async with ctl_server(tmp_path, service()) as server:
        await run(server.environ, "checkpoint", "--session", "abcd-1")
        server.service.checkpoints.end = end
        done = await run(server.environ, "restore", "c-1", "--files", "--yes")
        assert done.returncode == 1
        assert end.value in done.stdout.decode()


@pytest.mark.parametrize(
    ("instead", "code", "words"),
    [
        ({"note": "files have changed"}, 0, "it is done"),
        (
            {"files": Files.EXACT, "asked_by": "ada", "asked_via": "slack"},
            1,
            "nothing was changed: ada (slack) has asked to restore c-1 instead, files: exact\n"
            "to answer that: agent-intercom-ctl answer restore-2 proceed | cancel",
        ),
        ({"checkpoint_id": "c-2", "asked_by": "ada"}, 1, "ada (ctl) has asked to restore c-2 instead"),
    ],
)
async def test_without_asking_it_proceeds_with_its_own_question_only(
    tmp_path: Path, instead: dict[str, Any], code: int, words: str
) -> None:
    async with ctl_server(tmp_path, service()) as server:
        await run(server.environ, "checkpoint", "--session", "abcd-1")
        server.service.checkpoints.instead = instead
        done = await run(server.environ, "restore", "c-1", "--files", "--yes")
        assert words in done.stdout.decode()
        assert done.returncode == code
        decided = [act[1] for act in server.service.acts if act[0] == "decide"]
        assert decided == (["restore-1", "restore-2"] if code == 0 else ["restore-1"])
