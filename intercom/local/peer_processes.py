"""Which processes hold the other end of a connection: a local socket, a loopback connection, or standard streams.

For a TCP connection the system does not report the peer process, as it does for a Unix socket. While both ends are on
this machine, the kernel names the client's socket, and `/proc` says who has it open.

An MCP client speaks to its relay over pipes or socket pairs, whatever programs are between them. So the holder of the
other end is the client, even if a wrapper has put the relay into its own session.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

import psutil
from attrs import define, field, frozen

from intercom.local import processes

#: A TCP address: host and port.
Address = tuple[str, int]


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


@functools.lru_cache(maxsize=256)
def _plain(address: str) -> str:
    """Return an address without its zone. An IPv4 client of an IPv6 socket gets its IPv4 form."""
    text = address.partition("%")[0]
    try:
        found = ip_address(text)
    except ValueError:
        return text
    return str(getattr(found, "ipv4_mapped", None) or found)


#: How many clients are remembered.
_REMEMBERED = 8
#: Where the next connection of a remembered client is looked for, counted from the descriptor of its last one: the
#: system gives out the lowest free number.
_NEAR = (1, 0, 2, 3, -1, 4)


@define(eq=False)
class TcpClients:
    """Finds the processes that hold the client's end of TCP connections from this machine.

    Which socket that is, the kernel says at once. Who has it open is known only from the descriptors of all processes.
    So the clients that were found last are remembered. `recent` looks only there, which takes a fraction of a
    millisecond however many connections and processes there are; `search` looks everywhere.
    """

    _last: dict[int, int] = field(factory=dict, init=False)

    def recent(self, client: Address, server: Address) -> frozenset[int]:
        """Return the process that holds this connection if it was found before and has the connection near its last
        one; otherwise nothing. Does not block."""
        wanted = _by_netlink(client, server)
        if wanted is not None:
            for pid, last in reversed(self._last.items()):
                for step in _NEAR:
                    if _link(pid, last + step) == wanted.link:
                        return self.remember({pid: last + step})
        return frozenset()

    def search(self, client: Address, server: Address) -> dict[int, int]:
        """Return the processes that hold this connection, and the descriptor of each. They are one process and those of
        its ancestors that hold it too, because a connection outlives a fork.

        Remembered clients are examined first, then the newest processes. Empty if the connection is closed, or belongs
        to another user, machine or container. This may read the descriptors of all processes: run it in a thread.
        """
        if not sys.platform.startswith("linux"):
            return dict.fromkeys(_by_psutil(client, server), 0)
        wanted = _by_netlink(client, server) or _by_table(client, server)
        if wanted is None or os.geteuid() not in (0, wanted.uid):
            return {}
        for pid in dict.fromkeys((*reversed(tuple(self._last)), *sorted(processes.pids(), reverse=True))):
            if (found := _descriptor(pid, wanted)) is not None:
                above = {each: _descriptor(each, wanted) for each in _ancestors(pid)}
                return {pid: found} | {each: at for each, at in above.items() if at is not None}
        return {}

    def remember(self, holders: Mapping[int, int]) -> frozenset[int]:
        """Remember the result of a search, and return its processes."""
        for pid, descriptor in holders.items():
            self._last.pop(pid, None)
            self._last[pid] = descriptor
        while len(self._last) > _REMEMBERED:
            del self._last[next(iter(self._last))]
        return frozenset(holders)


@frozen
class _Socket:
    inode: int
    uid: int

    @property
    def link(self) -> str:
        """The target of the link in `/proc` of each of its descriptors."""
        return f"socket:[{self.inode}]"


def _descriptor(pid: int, wanted: _Socket) -> int | None:
    """Return the newest descriptor of this socket in a process; None if the process does not have it, has ended, or is
    another user's."""
    held = (number for number in sorted(_descriptors(pid), reverse=True) if _link(pid, number) == wanted.link)
    return next(held, None)


def _ancestors(pid: int) -> list[int]:
    try:
        return [each.pid for each in processes.line(pid)[1:]]
    except processes.NotExaminable:
        return []


def _by_netlink(client: Address, server: Address) -> _Socket | None:
    """Return the client's socket of a connection. None if the kernel knows none, or answers no such question."""
    ports = client[1].to_bytes(2, "big") + server[1].to_bytes(2, "big")
    for family in (socket.AF_INET, socket.AF_INET6):
        ours, theirs = _packed(client[0], family), _packed(server[0], family)
        if ours is None or theirs is None:
            # No connection of this address family.
            continue
        told = _diag(_TCP_REQUEST.pack(family, socket.IPPROTO_TCP, 0, _ALL_STATES, ports, ours, theirs, 0, *_NO_COOKIE))
        if told is not None and told[_TCP_PORTS] == ports:
            uid, inode = _TCP_OWNER.unpack_from(told, _TCP_OWNER_AT)
            # An ended connection may still be there, without a process.
            return _Socket(inode, uid) if inode else None
    return None


def _by_table(client: Address, server: Address) -> _Socket | None:
    """The same from the kernel's tables of all connections."""
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        ours, theirs = _packed(client[0], family), _packed(server[0], family)
        if ours is None or theirs is None:
            continue
        try:
            with open(table, "rb") as file:
                text = file.read()
        except OSError:
            continue
        at = text.find(f" {_hex(ours, client[1], family)} {_hex(theirs, server[1], family)} ".encode())
        if at >= 0:
            # Counted from the two addresses, the uid is the seventh field, and the inode the ninth.
            fields = text[at:].split(None, 9)
            return _Socket(int(fields[8]), int(fields[6])) if fields[8] != b"0" else None
    return None


def _packed(host: str, family: socket.AddressFamily) -> bytes | None:
    """Return an address in network order; None if no socket of this family has it."""
    plain = _plain(host)
    try:
        return socket.inet_pton(family, plain)
    except OSError:
        if family is not socket.AF_INET6:
            return None
        try:
            # An IPv4 client at an IPv6 socket.
            return b"\0" * 10 + b"\xff\xff" + socket.inet_pton(socket.AF_INET, plain)
        except OSError:
            return None


def _hex(address: bytes, port: int, family: socket.AddressFamily) -> str:
    """Return an address in the format of the kernel's tables: 32-bit words in native byte order, and the port."""
    step = -1 if sys.byteorder == "little" else 1
    text = "".join(address[at : at + 4][::step].hex() for at in range(0, len(address), 4))
    return f"{text.upper()}:{port:04X}"


def _descriptors(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        # The process is gone, or another user's.
        return []


def _link(pid: int, descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return None


def _by_psutil(client: Address, server: Address) -> frozenset[int]:
    # A client's socket may be IPv4 although the server's is IPv6.
    wanted = (_plain(client[0]), client[1]), (_plain(server[0]), server[1])
    found = set()
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
        except psutil.Error:
            continue
        for each in connections:
            if each.raddr and wanted == (
                (_plain(each.laddr.ip), each.laddr.port),
                (_plain(each.raddr.ip), each.raddr.port),
            ):
                found.add(process.pid)
    return frozenset(found)


def stdio_holders(pid: int, likely: Iterable[int], streams: Iterable[int] = (0, 1)) -> frozenset[int]:
    """Return the processes that hold the other end of the given `streams` of process `pid`. `likely` processes are
    examined first, and all others only if none of those matches. This reads many small files, so run it in a thread."""
    if not sys.platform.startswith("linux"):
        return frozenset()
    wanted = {end for stream in streams if (end := _other_end(pid, stream)) is not None}
    if not wanted:
        return frozenset()
    found = frozenset(each for each in likely if each != pid and wanted & _ends(each))
    if found:
        return found
    return frozenset(each for each in processes.pids() if each != pid and wanted & _ends(each))


#: One end of a pipe (its inode, and whether it is the write end), or a socket (its inode, None).
End = tuple[int, bool | None]


def _other_end(pid: int, stream: int) -> End | None:
    end = _end(pid, stream)
    if end is None:
        return None
    inode, writes = end
    if writes is not None:
        return inode, not writes
    peer = _socket_peer(inode)
    return None if peer is None else (peer, None)


def _ends(pid: int) -> set[End]:
    return {end for each in _descriptors(pid) if (end := _end(pid, each)) is not None}


def _end(pid: int, descriptor: int) -> End | None:
    target = _link(pid, descriptor) or ""
    try:
        if target.startswith("socket:["):
            return int(target[8:-1]), None
        if target.startswith("pipe:["):
            # The link's mode says whether the descriptor is open for reading or writing.
            mode = os.lstat(f"/proc/{pid}/fd/{descriptor}").st_mode
            return (int(target[6:-1]), bool(mode & 0o200)) if bool(mode & 0o200) != bool(mode & 0o400) else None
    except (OSError, ValueError):
        return None
    return None


def _socket_peer(inode: int) -> int | None:
    """Return the inode of the peer of a connected Unix socket, or None if the system does not report it."""
    told = _diag(_UNIX_REQUEST.pack(socket.AF_UNIX, 0, _ALL_STATES, inode, _UDIAG_SHOW_PEER, *_NO_COOKIE))
    if told is None:
        return None
    at = _UNIX_MESSAGE.size
    while at + _ATTRIBUTE.size <= len(told):
        length, kind = _ATTRIBUTE.unpack_from(told, at)
        if length < _ATTRIBUTE.size:
            return None
        if kind == _UNIX_DIAG_PEER:
            return int(struct.unpack_from("=I", told, at + _ATTRIBUTE.size)[0])
        at += (length + 3) & ~3
    return None


# The kernel's interface for questions about sockets: sock_diag(7).
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_UDIAG_SHOW_PEER = 4
_UNIX_DIAG_PEER = 2
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = (0xFFFFFFFF, 0xFFFFFFFF)
#: struct nlmsghdr, struct unix_diag_req, struct unix_diag_msg, struct nlattr.
_HEADER = struct.Struct("=IHHII")
_UNIX_REQUEST = struct.Struct("=BBxxIIIII")
_UNIX_MESSAGE = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
#: struct inet_diag_req_v2; the ports, and the uid and inode, in struct inet_diag_msg.
_TCP_REQUEST = struct.Struct("=BBBxI4s16s16sIII")
_TCP_PORTS = slice(4, 8)
_TCP_OWNER, _TCP_OWNER_AT = struct.Struct("=II"), 64


def _diag(request: bytes) -> bytes | None:
    """Ask the kernel about one socket. None if there is none, or the kernel does not answer."""
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as diag:
            # The answer is there when the question was sent.
            diag.setblocking(False)
            diag.send(header + request)
            told = diag.recv(8192)
    except OSError:
        return None
    if len(told) < _HEADER.size or _HEADER.unpack_from(told)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    return told[_HEADER.size :]
