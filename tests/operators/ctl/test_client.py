"""ctl's end: it asks again when the server dies under it, and the act counts once."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from intercom.local.places import Places, places, private_directory
from intercom.local.server_socket import listen
from intercom.model.errors import IpcError, Unauthorized
from intercom.operators.ctl import client
from intercom.operators.ctl.client import ANSWER, PATIENCE, NoServer, Refusal, Watch, request
from intercom.operators.ctl.connection import CtlRequest, failure, read_request, success
from intercom.operators.ctl.listener import write_token
from tests.operators.ctl_server import ctl_server, environ
from tests.operators.stand_in_service import StandInService, card

pytestmark = pytest.mark.real_time


async def in_thread(where: Places, command: str, fields: dict[str, Any], **options: Any) -> Any:
    return await trio.to_thread.run_sync(functools.partial(request, where, command, fields, **options))


async def test_a_request_brings_its_token_and_returns_the_data(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        assert (await in_thread(server.places, "approve", {"id": "a"}))["status"] == "approved"
        with pytest.raises(Refusal) as caught:
            await in_thread(server.places, "approve", {"id": "a"})
        assert caught.value.code == "already_decided"
        assert caught.value.details


def leave_socket(where: Places, which: str = "ctl_socket") -> None:
    """A socket file as a killed server leaves it."""
    private_directory(where.runtime_dir)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(getattr(where, which))


def test_no_server_is_known_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoServer):
        request(places(environ=environ(tmp_path)), "list", {})


async def test_a_socket_nobody_listens_at_is_no_server(tmp_path: Path) -> None:
    where = places(environ=environ(tmp_path))
    leave_socket(where)
    with pytest.raises(NoServer):
        await in_thread(where, "list", {}, patience=0.1)


@pytest.mark.parametrize("left", ["ctl_socket", "mcp_socket"])
async def test_a_server_that_was_killed_and_is_being_started_again_is_waited_for(
    tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of which only the agents' socket is there, as its listener for people is being started again."""
    where = places(environ=environ(tmp_path))
    leave_socket(where, left)
    tried = trio.Event()
    answers: list[Any] = []

    def tries_again(seconds: float) -> None:
        trio.from_thread.run_sync(tried.set)
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=tries_again)
    monkeypatch.setattr("intercom.operators.ctl.client.time", clock)

    async def approve() -> None:
        answers.append(await in_thread(where, "approve", {"id": "a"}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(approve)
        await tried.wait()
        async with ctl_server(tmp_path, StandInService(card("a"))):
            while not answers:
                await trio.testing.wait_all_tasks_blocked(0.01)
    assert answers[0]["status"] == "approved"


class Scripted:
    """A server that treats each connection as the next step of a script says."""

    def __init__(self, where: Places) -> None:
        self.where = where
        self.seen: list[CtlRequest] = []

    async def run(self, *steps: Any, task_status: trio.TaskStatus[None]) -> None:
        for number, step in enumerate(steps):
            write_token(self.where.token_file, f"token-{number}")
            listener = listen(self.where.ctl_socket)
            if number == 0:
                task_status.started()
            stream = await listener.accept()
            line = await stream.receive_some(65536)
            self.seen.append(read_request(line.strip()))
            if step is not None:
                await stream.send_all(step)
            await stream.aclose()
            await listener.aclose()


async def scripted(
    tmp_path: Path, command: str, fields: dict[str, Any], *steps: Any, **options: Any
) -> tuple[Any, list[CtlRequest]]:
    server = Scripted(places(environ=environ(tmp_path)))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, *steps)
        try:
            data = await in_thread(server.where, command, fields, **options)
        finally:
            nursery.cancel_scope.cancel()
    return data, server.seen


@pytest.mark.parametrize("command", ["approve", "nudge"])
async def test_a_server_that_dies_before_it_answers_is_asked_again_for_the_same_act(
    tmp_path: Path, command: str
) -> None:
    done = success({"status": "done"})
    data, seen = await scripted(tmp_path, command, {"id": "a"}, None, done[:7], done)
    assert data == {"status": "done"}
    assert len(seen) == 3
    assert len({each.verdict_id for each in seen}) == 1
    assert seen[0].verdict_id
    assert [each.auth_token for each in seen] == ["token-0", "token-1", "token-2"]


@pytest.fixture
def works_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Makes each answer, or its loss, come after this many seconds of the client's clock."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=time.sleep)
    receive = client._Line.receive

    def make(seconds: float) -> None:
        def received(line: client._Line) -> Any:
            clock.now += seconds
            if seconds >= ANSWER:
                raise TimeoutError
            return receive(line)

        monkeypatch.setattr(client, "time", clock)
        monkeypatch.setattr(client._Line, "receive", received)

    return make


async def test_a_request_on_which_the_server_worked_for_long_before_it_died_is_sent_again(
    tmp_path: Path, works_for: Callable[[float], None]
) -> None:
    works_for(PATIENCE + 2)
    data, seen = await scripted(tmp_path, "gateway-call", {"id": "a"}, None, success(1))
    assert data == 1
    assert seen[0].verdict_id == seen[1].verdict_id


async def test_a_server_that_dies_of_a_request_again_and_again_is_given_up(
    tmp_path: Path, works_for: Callable[[float], None]
) -> None:
    works_for(PATIENCE + 2)
    with pytest.RaisesGroup(pytest.RaisesExc(NoServer, check=lambda none: none.may_be_done)):
        await scripted(tmp_path, "gateway-call", {"id": "a"}, *[None] * 10)


@pytest.mark.parametrize(
    ("command", "then"), [("approve", "may still be done: check"), ("list", "try again"), ("amend", "try again")]
)
async def test_whether_an_act_without_an_answer_is_done_is_not_claimed(
    tmp_path: Path, works_for: Callable[[float], None], command: str, then: str
) -> None:
    works_for(ANSWER)
    with pytest.RaisesGroup(pytest.RaisesExc(Refusal, match=f"did not answer in time; .*{then}")):
        await scripted(tmp_path, command, {"id": "a"}, None, None)


WRONG = failure(Unauthorized("the token is missing or not this server's"))


@pytest.mark.parametrize(("left", "told"), [("new", NoServer), (None, Refusal)])
async def test_a_token_that_is_never_the_right_one_is_given_up(
    tmp_path: Path, works_for: Callable[[float], None], left: str | None, told: type[Exception]
) -> None:
    """Where servers come and go no word of tokens helps; where there is no token, that is what to see to."""
    works_for(PATIENCE + 2)
    where = places(environ=environ(tmp_path))

    async def stale(task_status: trio.TaskStatus[None]) -> None:
        write_token(where.token_file, "old")
        listener = listen(where.ctl_socket)
        task_status.started()
        stream = await listener.accept()
        await stream.receive_some(65536)
        os.unlink(where.token_file)
        if left is not None:
            write_token(where.token_file, left)
        await stream.send_all(WRONG)
        await listener.aclose()

    async with trio.open_nursery() as nursery:
        await nursery.start(stale)
        with pytest.raises(told):
            await in_thread(where, "approve", {"id": "a"})


async def test_a_token_of_the_server_before_is_no_refusal(tmp_path: Path) -> None:
    server = Scripted(places(environ=environ(tmp_path)))

    async def stale(task_status: trio.TaskStatus[None]) -> None:
        write_token(server.where.token_file, "old")
        listener = listen(server.where.ctl_socket)
        task_status.started()
        stream = await listener.accept()
        await stream.receive_some(65536)
        # By now the next server's token is there.
        write_token(server.where.token_file, "new")
        await stream.send_all(WRONG)
        await listener.aclose()
        await server.run(success(1), task_status=trio.TASK_STATUS_IGNORED)

    async with trio.open_nursery() as nursery:
        await nursery.start(stale)
        assert await in_thread(server.where, "list", {}) == 1


NO_PLACE = failure(IpcError("too many connections", code="busy"))


@pytest.mark.parametrize("command", ["approve", "nudge", "pending"])
async def test_where_there_is_no_place_it_is_asked_again_for_a_while(tmp_path: Path, command: str) -> None:
    data, seen = await scripted(tmp_path, command, {"id": "a"}, NO_PLACE, NO_PLACE, success(1))
    assert data == 1
    assert len(seen) == 3


async def test_and_no_longer(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(Refusal, match="too many connections")):
        await scripted(tmp_path, "list", {}, *[NO_PLACE] * 100, patience=0.2)


async def test_an_answer_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(IpcError, match="not of this protocol")):
        await scripted(tmp_path, "list", {}, b"hello\n")


async def test_a_server_that_stays_away_is_given_up(tmp_path: Path) -> None:
    server = Scripted(places(environ=environ(tmp_path)))
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, None)
        with pytest.raises(NoServer):
            await in_thread(server.where, "list", {}, patience=0.2)


async def test_a_watch_ends_with_its_server(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("a"))) as server:
        await trio.testing.wait_all_tasks_blocked(0.01)
        watch = await trio.to_thread.run_sync(Watch, server.places)
        events = await trio.to_thread.run_sync(watch.read)
        assert [event.data["request_id"] for event in events] == ["a"]
    with watch, pytest.raises(EOFError):
        watch.read()


def test_the_client_is_of_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import intercom.operators.ctl.client, intercom.cli.ctl;"
        "import intercom.cli.ctl_sign, intercom.cli.ctl_text;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in found if name not in sys.stdlib_module_names} == {"intercom"}
