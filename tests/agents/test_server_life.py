"""The server behind the shims: started by them, one of it, stopped, killed, replaced, or told apart."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.agents.shim import launch, link
from intercom.agents.shim.launch import Options
from intercom.agents.shim.link import WIRE
from intercom.agents.shim.relay import Party
from intercom.local.wire import connect
from intercom.operators.ctl.client import request
from intercom.sessions.request_kinds import APPROVED
from tests.support.server_process import COMMAND, ERAS, TRUSTING, Home, begin, call

pytestmark = pytest.mark.real_time

both_eras = pytest.mark.parametrize("mode", ERAS)
CHANGE: dict[str, Any] = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}


async def pending(home: Home, root: Path) -> str:
    """Wait until the card of this workspace can be seen at whatever server is there; its id."""
    async with home.person(root) as person:
        return str((await person.card(status="pending", away=False))["request_id"])


async def decide(home: Home, root: Path, id: str) -> None:
    async with home.person(root) as person:
        await person.do("approve", id=id)


@pytest.mark.usefixtures("real_starts")
@both_eras
async def test_a_shim_starts_the_server_and_leaves_it_running(home: Home, mode: str) -> None:
    assert home.server() is None
    root = home.workspace()
    async with home.agent(root, mode=mode) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
    pid = home.server()
    assert pid is not None
    async with home.agent(root, mode=mode) as agent:
        assert (await call(agent, "ping"))["acknowledged"]
    assert home.server() == pid


@pytest.mark.usefixtures("real_starts")
async def test_shims_that_start_at_once_have_one_server(home: Home) -> None:
    roots = [home.workspace() for _ in range(4)]
    seen: list[int | None] = []

    async def use(root: Path, mode: str) -> None:
        async with home.agent(root, mode=mode) as agent:
            assert (await call(agent, "ping"))["acknowledged"]
            seen.append(home.server())

    async with trio.open_nursery() as nursery:
        for n, root in enumerate(roots):
            nursery.start_soon(use, root, ERAS[n % 2])
    assert len(seen) == 4
    assert len(set(seen)) == 1


async def test_nobody_else_starts_a_server_before_the_first_one_is_ready(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process is a relay that ends as soon as it has started one."""
    for name, value in home.environ.items():
        monkeypatch.setenv(name, value)
    claim = launch.claim(home.places)
    assert claim is not None
    launch.start(Options(), claim).close()
    lock = os.open(home.places.start_lock, os.O_RDWR)
    try:
        await trio.to_thread.run_sync(fcntl.flock, lock, fcntl.LOCK_EX)
        connect(home.places.mcp_socket, timeout=0).close()
    finally:
        os.close(lock)


def test_a_relay_that_finds_a_busy_server_keeps_nobody_from_starting_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw no server, took the right to start one, and met one whose queue of connections was full."""
    for name, value in home.environ.items():
        monkeypatch.setenv(name, value)
    met: list[OSError] = [ConnectionRefusedError(), BlockingIOError()]

    def connecting(*_given: object, **_how: object) -> socket.socket:
        raise met.pop(0)

    monkeypatch.setattr(link, "connect", connecting)
    seeking = link.Link(Options(), Party(), "shim", lambda effects: None, lambda text: None)
    seeking.on_time()
    assert not met
    assert not launch.is_claimed(home.places)
    assert seeking.due < time.monotonic() + 1, "it looks again soon"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
@both_eras
async def test_a_call_outlives_its_server(home: Home, mode: str, how: signal.Signals) -> None:
    root = home.workspace()
    async with home.agent(root, mode=mode) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = await pending(home, root)
        first = home.server()
        assert first is not None
        os.kill(first, how)
        await gone(first)
        # The shim starts another by itself; the same call waits there under the same request.
        assert (await call(agent, "ping"))["acknowledged"]
        assert home.server() not in (None, first)
        assert await pending(home, root) == id
        await decide(home, root, id)
        assert await asked() == {"status": "approved", "request_id": id, "message": APPROVED}
        assert (await call(agent, "check_diff", request_id=id))["status"] == "applied"


async def gone(pid: int) -> None:
    """Wait for the end of a process that is no child of ours."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(process)
    finally:
        os.close(process)


async def test_a_verdict_given_between_two_lives_of_the_agent_is_not_lost(home: Home) -> None:
    root = home.workspace()
    async with home.agent(root) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = await pending(home, root)
        home.kill()
        await call(agent, "ping")
        await decide(home, root, id)
        home.kill()
        assert await asked() == {"status": "approved", "request_id": id, "message": APPROVED}


async def test_stopping_says_what_becomes_of_what_waits(home: Home) -> None:
    assert "no server is running" in home.command("stop").stdout
    async with home.agent(home.workspace()) as agent:
        await call(agent, "ping")
        stopped = await trio.to_thread.run_sync(home.command, "stop")
        assert stopped.returncode == 0
        assert "pending requests are kept" in stopped.stdout


@both_eras
async def test_a_shim_with_another_configuration_is_told_what_differs(home: Home, mode: str) -> None:
    root, other = home.workspace(), home.root / "other.toml"
    other.write_text(TRUSTING)
    with home.serving():
        async with home.agent(root, "--config", str(other), mode=mode) as agent:
            said = await call(agent, "ping")
            assert said["error_code"] == "config_mismatch"
            assert str(other) in said["error_message"]
            assert home.places.config_file in said["error_message"]
            assert "agent-intercom stop" in said["error_message"]
        # The configuration that the server runs with is no other.
        async with home.agent(root, "--config", home.places.config_file, mode=mode) as agent:
            assert (await call(agent, "ping"))["acknowledged"]
        home.configure("retention_days = 7\n" + TRUSTING)
        async with home.agent(root, "--config", home.places.config_file, mode=mode) as agent:
            said = await call(agent, "ping")
            assert said["error_code"] == "config_mismatch"
            assert "retention_days" in said["error_message"]


@both_eras
async def test_an_invalid_configuration_is_told_through_the_calls(home: Home, mode: str) -> None:
    home.configure("[timeouts]\napproval_secnods = 3\n")
    async with home.agent(home.workspace(), mode=mode) as agent:
        # The list is there all the same: a client that gets none forgets the server.
        assert len((await agent.list_tools()).tools) == 9
        said = await call(agent, "ping")
        assert said["error_code"] == "config"
        assert "approval_secnods" in said["error_message"]
        assert "approval_seconds" in said["error_message"]
    assert home.server() is None


@both_eras
async def test_a_server_in_the_clients_own_process_does_the_whole_job(home: Home, mode: str) -> None:
    root = home.workspace()
    async with home.agent(root, "--in-process", mode=mode) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        pid = home.server()
        assert pid is not None
        assert "--in-process" in await trio.Path(f"/proc/{pid}/cmdline").read_text()
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = await pending(home, root)
        await decide(home, root, id)
        assert (await asked())["status"] == "approved"
        assert (await call(agent, "check_diff", request_id=id))["status"] == "applied"
    await gone(pid)


async def test_a_server_in_a_clients_own_process_is_refused_beside_another(home: Home) -> None:
    with home.serving():
        done = await trio.to_thread.run_sync(home.command, "--in-process")
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(home.places.database) in done.stderr
    assert "Traceback" not in done.stderr


async def test_standard_output_of_a_shim_carries_nothing_but_messages(home: Home) -> None:
    line = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    done = await trio.run_process(
        [*COMMAND, "--workspace", str(home.workspace())],
        stdin=b"nonsense\n" + json.dumps(line).encode() + b"\n",
        env=home.environ,
        capture_stdout=True,
        capture_stderr=True,
    )
    assert all(json.loads(each)["jsonrpc"] == "2.0" for each in done.stdout.splitlines())


async def test_a_newer_shim_makes_the_server_step_down_and_the_older_call_goes_on(home: Home) -> None:
    root = home.workspace()
    async with home.agent(root) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        id = await pending(home, root)
        first = home.server()
        assert first is not None
        assert (await greet(home, version="99.0"))["intercom"] == {"handover": {}}
        await gone(first)
        assert (await call(agent, "ping"))["acknowledged"]
        await decide(home, root, id)
        assert (await asked())["status"] == "approved"


async def test_what_a_newer_shim_adds_to_its_greeting_is_ignored(home: Home) -> None:
    with home.serving():
        assert "welcome" in (await greet(home, around={"trace": "0af7"}, color="blue"))["intercom"]


async def test_an_older_shim_is_served_and_one_that_speaks_otherwise_is_told(home: Home) -> None:
    with home.serving() as server:
        assert "welcome" in (await greet(home, version="0.0.1"))["intercom"]
        refused = (await greet(home, wire=WIRE + 1))["intercom"]["refused"]
        assert refused["code"] == "version_mismatch"
        refused = (await greet(home, token="guessed"))["intercom"]["refused"]
        assert refused["code"] == "unauthorized"
        assert server.poll() is None


async def greet(home: Home, around: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """Say hello as a shim would, with other kinds `around` it; what the server answers."""
    hello = {
        "wire": WIRE,
        "version": "0.1.0",
        "shim": "f" * 32,
        "pid": os.getpid(),
        "client_pid": os.getppid(),
        "cwd": str(home.root),
        "workspace": None,
        "config": None,
        "config_digest": None,
        "token": (await trio.Path(home.places.token_file).read_text()).strip(),
        "delivered": [],
    } | changed
    async with await trio.open_unix_socket(home.places.mcp_socket) as stream:
        await stream.send_all(json.dumps({"intercom": {"hello": hello} | (around or {})}).encode() + b"\n")
        said = b""
        while b"\n" not in said:
            data = await stream.receive_some()
            assert data, "the server hung up"
            said += data
    answer: dict[str, Any] = json.loads(said.partition(b"\n")[0])
    return answer


async def test_who_speaks_nonsense_at_the_shims_socket_harms_nobody(home: Home) -> None:
    root = home.workspace()
    with home.serving() as server:
        async with home.agent(root) as agent:
            await call(agent, "ping")
            for nonsense in (b"\n", b"{}\n", b"\x00" * 5000, b'{"intercom": {"hello": 5}}\n', b"[" * 100_000 + b"\n"):
                with socket.socket(socket.AF_UNIX) as peer:
                    peer.connect(home.places.mcp_socket)
                    peer.sendall(nonsense)
                assert (await call(agent, "ping"))["acknowledged"]
        assert server.poll() is None


async def test_a_runtime_directory_that_was_cleaned_away_is_there_again_for_agents_and_people(home: Home) -> None:
    root = home.workspace()
    async with home.agent(root) as agent, trio.open_nursery() as nursery:
        await call(agent, "ping")
        server = home.server()
        shutil.rmtree(home.places.runtime_dir)
        # Connections go on; people and new agents find the same server again.
        asked = begin(nursery, agent, "check_clearance", **CHANGE)
        assert await trio.to_thread.run_sync(request, home.places, "list", {})
        id = await pending(home, root)
        await decide(home, root, id)
        assert (await asked())["status"] == "approved"
        async with home.agent(root) as other:
            assert (await call(other, "ping"))["acknowledged"]
        assert home.server() == server
