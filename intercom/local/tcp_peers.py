"""The processes at the other end of a loopback connection.

For a TCP connection the system does not report the peer process, as it does for a Unix socket. While both ends are on
this machine, the kernel's tables show it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from ipaddress import ip_address

import psutil

Address = tuple[str, int]
#: A connection from the client's side: its own address, then the server's.
Pair = tuple[Address, Address]


def is_local(peer: str, here: str) -> bool:
    """Whether a client at `peer`, connected to our address `here`, is on this machine: by loopback, or from one of this
    machine's own addresses."""
    client = _plain(peer)
    return client == _plain(here) or _is_loopback(client) or _is_ours(client)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _is_ours(address: str) -> bool:
    """Whether this machine has the address: a socket can be bound only to such an address."""
    if not address:
        return False
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _plain(address: str) -> str:
    """Return an address without its zone. An IPv4 client of an IPv6 socket gets its IPv4 form."""
    text = address.partition("%")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return text
    return str(getattr(found, "ipv4_mapped", None) or found)


def holders(pairs: Collection[Pair], likely: Iterable[int] = ()) -> dict[Pair, frozenset[int]]:
    """Return the processes that hold the client's end of each of these connections.

    The set is empty if they are unknown: another user's, another machine's or another container's process, or a closed
    connection. `likely` processes are examined first, and all others only for the remaining connections. This reads
    many small files, so run it in a thread.
    """
    if sys.platform.startswith("linux"):
        return _by_proc(pairs, likely)
    return _by_psutil(pairs)


def _by_proc(pairs: Collection[Pair], likely: Iterable[int]) -> dict[Pair, frozenset[int]]:
    wanted = {inode: pair for pair, inode in _inodes(pairs)}
    found: dict[Pair, set[int]] = {pair: set() for pair in pairs}
    first = list(likely)
    for pid in first:
        for inode in _sockets(pid, wanted, all_of_them=False):
            found[wanted[inode]].add(pid)
    if any(not found[pair] for pair in wanted.values()):
        for pid in _processes():
            for inode in _sockets(pid, wanted, all_of_them=True):
                found[wanted[inode]].add(pid)
    return {pair: frozenset(pids) for pair, pids in found.items()}


def _inodes(pairs: Collection[Pair]) -> Iterator[tuple[Pair, str]]:
    """Iterate over the inodes of the connections' client sockets, from the kernel's tables."""
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            with open(table, "rb") as file:
                text = file.read()
        except OSError:
            continue
        for ours, theirs in pairs:
            client, server = _hex(ours, family), _hex(theirs, family)
            if not client or not server:
                # No connection of this address family.
                continue
            at = text.find(f" {client} {server} ".encode())
            if at >= 0:
                # Counted from the two addresses, the inode is the ninth field.
                inode = text[at:].split(None, 9)[8].decode()
                if inode != "0":
                    yield (ours, theirs), inode


def _hex(address: Address, family: socket.AddressFamily) -> str:
    """Return an address in the format of the kernel's tables: 32-bit words in native byte order, and the port."""
    host, port = _plain(address[0]), address[1]
    try:
        packed = socket.inet_pton(family, host)
    except OSError:
        if family is not socket.AF_INET6:
            return ""
        try:
            # An IPv4 client at an IPv6 socket.
            packed = b"\0" * 10 + b"\xff\xff" + socket.inet_pton(socket.AF_INET, host)
        except OSError:
            return ""
    step = -1 if sys.byteorder == "little" else 1
    text = "".join(packed[at : at + 4][::step].hex() for at in range(0, len(packed), 4))
    return f"{text.upper()}:{port:04X}"


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _sockets(pid: int, wanted: Collection[str], *, all_of_them: bool) -> Iterator[str]:
    """Iterate over the wanted sockets that this process has open. Descriptors are read newest first. Without
    `all_of_them`, the search ends after as many matches as there are wanted sockets."""
    directory = f"/proc/{pid}/fd"
    try:
        names = os.listdir(directory)
    except OSError:
        # The process is gone, or another user's.
        return
    left = len(wanted)
    for name in reversed(names):
        try:
            target = os.readlink(f"{directory}/{name}")
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in wanted:
            yield target[8:-1]
            left -= 1
            if not left and not all_of_them:
                return


def _by_psutil(pairs: Collection[Pair]) -> dict[Pair, frozenset[int]]:
    found: dict[Pair, set[int]] = {pair: set() for pair in pairs}
    # A client's socket may be IPv4 although the server's is IPv6.
    by_plain = {_plain_pair(pair): pair for pair in pairs}
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        for each in connections:
            if each.raddr:
                pair = by_plain.get(_plain_pair(((each.laddr.ip, each.laddr.port), (each.raddr.ip, each.raddr.port))))
                if pair is not None:
                    found[pair].add(process.pid)
    return {pair: frozenset(pids) for pair, pids in found.items()}


def _plain_pair(pair: Pair) -> Pair:
    (ours, port), (theirs, their_port) = pair
    return (_plain(ours), port), (_plain(theirs), their_port)
