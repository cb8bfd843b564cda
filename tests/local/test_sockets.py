"""Listening and dialling, with real sockets."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
import trio.testing

from intercom.local import wire
from intercom.local.server_socket import LocalListener, Renewal, listen, peer
from intercom.model.errors import IpcError

pytestmark = pytest.mark.real_time


@pytest.fixture
def path() -> Iterator[str]:
    with TemporaryDirectory(prefix="ic-", dir="/tmp") as directory:
        yield os.path.join(directory, "s", "desk.sock")


async def test_both_ends_know_each_other(path: str) -> None:
    listener = listen(path)
    with wire.connect(path) as client:
        assert wire.peer_of(client) == (os.getpid(), os.geteuid())
        stream = await listener.accept()
        assert peer(stream) == (os.getpid(), os.geteuid())
        client.sendall(b"hello")
        assert await stream.receive_some() == b"hello"
        await stream.aclose()
    await listener.aclose()


async def test_the_socket_and_its_directory_are_the_users_alone_and_gone_afterwards(path: str) -> None:
    before = os.umask(0)
    try:
        listener = listen(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.lstat(os.path.dirname(path)).st_mode) == 0o700
    await listener.aclose()
    await listener.aclose()
    assert os.path.basename(path) not in os.listdir(os.path.dirname(path))
    with pytest.raises(FileNotFoundError):
        wire.connect(path)
    with pytest.raises(trio.ClosedResourceError):
        await listener.accept()


async def test_a_dead_servers_socket_is_replaced(path: str) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with pytest.raises(ConnectionRefusedError):
        wire.connect(path)
    listener = listen(path)
    wire.connect(path).close()
    await listener.aclose()


async def test_a_living_servers_socket_is_left_alone(path: str) -> None:
    listener = listen(path)
    with pytest.raises(IpcError, match="another server"):
        listen(path)
    wire.connect(path).close()
    await listener.aclose()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(path)
        stranger.listen()
        with pytest.raises(IpcError, match="another program"):
            listen(path)
        wire.connect(path).close()


async def test_what_is_no_socket_is_neither_removed_nor_connected_to(path: str) -> None:
    os.mkdir(os.path.dirname(path), 0o700)
    target = path + ".target"
    for make in (lambda: os.close(os.open(path, os.O_CREAT)), lambda: os.symlink(target, path)):
        make()
        with pytest.raises(IpcError, match="not a socket"):
            listen(path)
        with pytest.raises(IpcError, match="not a socket"):
            wire.connect(path)
        os.unlink(path)


async def test_a_socket_that_took_the_place_is_not_removed_on_closing(path: str) -> None:
    listener = listen(path)
    os.rename(path, path + ".moved")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        await listener.aclose()
        assert os.path.basename(path) in os.listdir(os.path.dirname(path))


async def test_peers_of_another_user_are_closed_unheard(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listen(path)
    uids = iter([os.geteuid() + 1, os.geteuid()])
    monkeypatch.setattr("intercom.local.server_socket.peer_of", lambda sock: wire.Peer(1, next(uids)))
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as own:
        other.connect(path)
        own.connect(path)
        own.sendall(b"own")
        stream = await listener.accept()
        assert await stream.receive_some() == b"own"
        assert other.recv(1) == b""
        await stream.aclose()
    await listener.aclose()


async def test_a_server_of_another_user_is_not_talked_to(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = listen(path)
    with monkeypatch.context() as patch:
        patch.setattr(wire, "peer_of", lambda sock: wire.Peer(1, os.geteuid() + 1))
        with pytest.raises(IpcError, match="runs as uid"):
            wire.connect(path)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(IpcError, match="belongs to uid"):
        wire.connect(path)
    monkeypatch.undo()
    await listener.aclose()


def test_a_path_too_long_for_a_socket_is_said_so(tmp_path: Path) -> None:
    for reach in (wire.connect, listen):
        with pytest.raises(IpcError, match="bytes"):
            reach(str(tmp_path / ("x" * 120)))


async def served(listener: LocalListener, path: str) -> None:
    """Whoever connects now is accepted by this listener."""
    with wire.connect(path) as client, trio.fail_after(120):
        stream = await listener.accept()
        await stream.send_all(b"hello")
        assert client.recv(5) == b"hello"
        await stream.aclose()


@pytest.mark.parametrize("what", ["socket", "lock", "both", "directory"])
async def test_a_socket_that_was_taken_away_is_made_again(path: str, what: str) -> None:
    listener = listen(path)
    with wire.connect(path) as before:
        stream = await listener.accept()
        assert listener.renew() is None
        if what in ("socket", "both"):
            os.unlink(path)
        if what in ("lock", "both"):
            os.unlink(path + ".lock")
        if what == "directory":
            shutil.rmtree(os.path.dirname(path))
        said = listener.renew()
        assert said is not None
        assert "is there again" in said
        assert listener.renew() is None
        assert stat.S_IMODE(os.lstat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.lstat(os.path.dirname(path)).st_mode) == 0o700
        await served(listener, path)
        # Who was connected before goes on.
        await stream.send_all(b"x")
        assert before.recv(1) == b"x"
        await stream.aclose()
    # Nobody else can listen there, before or after.
    with pytest.raises(IpcError, match="another server"):
        listen(path)
    await listener.aclose()
    with pytest.raises(FileNotFoundError):
        wire.connect(path)
    await listen(path).aclose()


async def test_who_waits_to_be_accepted_meanwhile_is_served_by_the_new_socket(path: str) -> None:
    listener = listen(path)
    async with trio.open_nursery() as nursery:
        accepted: list[trio.SocketStream] = []

        async def accept() -> None:
            accepted.append(await listener.accept())

        nursery.start_soon(accept)
        await trio.testing.wait_all_tasks_blocked(0.01)
        os.unlink(path)
        assert listener.renew() is not None
        with wire.connect(path):
            while not accepted:
                await trio.testing.wait_all_tasks_blocked(0.01)
        await accepted[0].aclose()
    await listener.aclose()


async def test_what_stands_in_its_place_is_replaced_while_the_lock_is_ours(path: str) -> None:
    listener = listen(path)
    with socket.socket(socket.AF_UNIX) as impostor:
        os.unlink(path)
        impostor.bind(path)
        impostor.listen()
        said = listener.renew()
        assert said is not None
        assert "was replaced" in said
        await served(listener, path)
    for stands in (lambda: Path(path).write_text("x"), lambda: os.symlink("/nowhere", path)):
        os.unlink(path)
        stands()
        assert listener.renew() is not None
        await served(listener, path)
    await listener.aclose()


async def test_a_place_that_another_server_has_taken_by_its_lock_is_left_to_it(path: str) -> None:
    listener = listen(path)
    os.unlink(path)
    os.unlink(path + ".lock")
    other = listen(path)
    with pytest.raises(IpcError, match="another server"):
        listener.renew()
    await served(other, path)
    await listener.aclose()
    # It has not taken the other's socket with it.
    await served(other, path)
    await other.aclose()


async def test_a_directory_that_others_can_write_is_not_trusted_again(path: str) -> None:
    listener = listen(path)
    shutil.rmtree(os.path.dirname(path))
    os.mkdir(os.path.dirname(path), 0o777)
    os.chmod(os.path.dirname(path), 0o777)
    with pytest.raises(IpcError, match="open to other users"):
        listener.renew()
    os.chmod(os.path.dirname(path), 0o700)
    assert listener.renew() is not None
    await listener.aclose()


def test_what_can_not_be_made_again_is_said_once_and_what_can_each_time() -> None:
    told: list[tuple[str, str]] = []
    results: list[str | Exception | None] = [
        IpcError("no"),
        IpcError("no"),
        OSError(28, "No space", "f"),
        None,
        "again",
    ]

    def check() -> str | None:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    renewal = Renewal(lambda text, level: told.append((text, level)), check)
    while results:
        renewal.run()
    assert told == [("no", "error"), ("f cannot be made again (no space)", "error"), ("again", "warning")]
