"""Whose the other end of a TCP connection is, whichever address of this machine it uses."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from intercom.local import peer_processes
from intercom.local.peer_processes import Address, TcpClients

Pair = tuple[Address, Address]
NOBODY: Pair = ("127.0.0.1", 1), ("127.0.0.1", 2)


@contextmanager
def connection(address: str = "127.0.0.1", *, dual: bool = False) -> Iterator[tuple[socket.socket, Pair]]:
    """A connection of this process to itself: the client's socket, and both addresses as the server sees them."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=dual) as listener:
        client = socket.create_connection(("127.0.0.1" if dual else address, listener.getsockname()[1]))
        taken, _ = listener.accept()
        with client, taken:
            yield client, (taken.getpeername()[:2], taken.getsockname()[:2])


@contextmanager
def moved(client: socket.socket, number: int) -> Iterator[None]:
    """Give a client's socket another descriptor, `number`."""
    os.dup2(client.fileno(), number, inheritable=False)
    client.close()
    try:
        yield
    finally:
        os.close(number)


@pytest.mark.parametrize(
    ("peer", "here", "is_local"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        # Nobody else has this machine's own address.
        ("203.0.113.7", "203.0.113.7", True),
        ("::ffff:203.0.113.7", "203.0.113.7", True),
        ("fe80::7%eth0", "fe80::7", True),
        ("203.0.113.7", "203.0.113.8", False),
        ("2001:db8::7", "2001:db8::8", False),
        ("", "127.0.0.1", False),
    ],
)
def test_who_is_on_this_machine(peer: str, here: str, is_local: bool) -> None:
    assert peer_processes.is_local(peer, here) is is_local


def test_an_address_is_ours_if_a_socket_can_have_it() -> None:
    assert peer_processes._is_ours("127.0.0.1")
    assert not peer_processes._is_ours("203.0.113.7")


def _search(client: Address, server: Address) -> object:
    return TcpClients().search(client, server)


@pytest.mark.parametrize("find", [_search, peer_processes._by_psutil])
@pytest.mark.parametrize(("address", "dual"), [("127.0.0.1", False), ("::1", False), ("::", True)])
def test_a_client_is_found_over_every_kind_of_address(
    address: str, dual: bool, find: Callable[[Address, Address], dict[int, int] | frozenset[int]]
) -> None:
    if dual and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with connection(address, dual=dual) as (_, (client, server)):
        assert client[0] == ("::ffff:127.0.0.1" if dual else address)
        assert os.getpid() in find(client, server)
        # Each end of a connection is a socket of its own.
        assert peer_processes._by_netlink(client, server) != peer_processes._by_netlink(server, client)
        assert peer_processes._by_netlink(client, server) == peer_processes._by_table(client, server)


def test_without_an_answer_of_the_kernel_its_tables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_processes, "_diag", lambda _request: None)
    with connection() as (client, pair):
        clients = TcpClients()
        assert clients.search(*pair) == {os.getpid(): client.fileno()}
        assert clients.recent(*pair) == frozenset()


def test_a_closed_connection_is_nobodys() -> None:
    with connection() as (client, pair):
        client.close()
        assert TcpClients().search(*pair) == {}
    assert TcpClients().search(*NOBODY) == {}


def test_a_socket_of_another_user_is_looked_for_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(peer_processes.processes, "pids", lambda: pytest.fail("it was looked for"))
    with connection() as (_, pair):
        assert TcpClients().search(*pair) == {}


def test_a_client_that_is_known_is_found_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = TcpClients()
    # Which numbers the system gives out depends on what else this process has open. So the test chooses them.
    with connection() as (at, first), connection() as (near, second), connection() as (far, third):
        free = fcntl.fcntl(at, fcntl.F_DUPFD_CLOEXEC, 500)
        with socket.socket(fileno=free), moved(near, free + 3), moved(far, free + 40):
            assert clients.recent(*first) == frozenset()
            assert clients.remember(clients.search(*first)) == {os.getpid()}
            monkeypatch.setattr(os, "listdir", lambda _path: pytest.fail("it was searched for"))
            for pair in (first, second, second):
                assert clients.recent(*pair) == {os.getpid()}
            assert clients.recent(*third) == frozenset()
            assert clients.recent(*NOBODY) == frozenset()


def test_the_clients_that_were_found_last_are_remembered() -> None:
    clients = TcpClients()
    for pid in range(2**22, 2**22 + 20):
        clients.remember({pid: 3})
    assert list(clients._last) == list(range(2**22 + 12, 2**22 + 20))


@pytest.mark.parametrize("wrapper", [[], ["setsid", "-w"]])
def test_a_connection_that_a_child_has_too_is_also_its_parents(
    wrapper: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever finds the child first, and whether or not it has left its parent's POSIX session."""
    with connection() as (client, pair):
        said = "import os; os.write(1, b'%d\\n' % os.getpid()); os.read(0, 1)"
        with subprocess.Popen(
            [*wrapper, sys.executable, "-c", said],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(client.fileno(),),
            start_new_session=True,
        ) as child:
            pid = int(child.stdout.readline())
            monkeypatch.setattr(peer_processes.processes, "pids", lambda: [pid])
            assert {pid, os.getpid()} <= TcpClients().search(*pair).keys()
            child.stdin.close()
