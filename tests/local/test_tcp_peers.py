"""Whose the other end of a TCP connection is, whichever address of this machine it uses."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from intercom.local import tcp_peers

Find = Callable[[list[tcp_peers.Pair]], dict[tcp_peers.Pair, frozenset[int]]]


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
    assert tcp_peers.is_local(peer, here) is is_local


def test_an_address_is_ours_if_a_socket_can_have_it() -> None:
    assert tcp_peers._is_ours("127.0.0.1")
    assert not tcp_peers._is_ours("203.0.113.7")


@pytest.mark.parametrize("find", [tcp_peers.holders, tcp_peers._by_psutil])
def test_a_client_of_the_older_kind_is_found_behind_a_socket_for_both(find: Find) -> None:
    both = socket.has_dualstack_ipv6()
    address, family = ("::", socket.AF_INET6) if both else ("127.0.0.1", socket.AF_INET)
    with socket.create_server((address, 0), family=family, dualstack_ipv6=both) as listener:
        client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
        taken, _ = listener.accept()
        with client, taken:
            pair = taken.getpeername()[:2], taken.getsockname()[:2]
            assert pair[0][0] == ("::ffff:127.0.0.1" if both else "127.0.0.1")
            assert os.getpid() in find([pair])[pair]
