"""What a background process does to outlive its starter, and to keep its memory private.

Standard library only: the shim starts the server with it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
from collections.abc import Mapping, Sequence

from intercom.local.places import RUN_USER

_NAMES = frozenset((*("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),))
# No variables about proxies, certificates, Slack or trust: a client's environment must not decide where tokens are
# sent, whose decisions count, or who may answer. No message bus either, because anybody may serve a keychain on it.
_PREFIXES = ("LC_", "XDG_")
_BUS = "DBUS_SESSION_BUS_ADDRESS"


def allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that a background server keeps.

    This is an allowlist: a denylist would have to list every `LD_PRELOAD`, `PYTHONPATH` and credential.
    """
    return {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_PREFIXES)}


def for_server(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a server that a client's relay starts: what is `allowed`, and the user's own message
    bus, through which the keychain is reached."""
    bus = os.path.join(RUN_USER, str(os.geteuid()), "bus")
    try:
        found = os.lstat(bus)
    except OSError:
        return allowed(environ)
    is_own = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
    return {**allowed(environ), **({_BUS: f"unix:path={bus}"} if is_own else {})}


#: Settings of glibc's allocator for a background server; another C library ignores them. By default each thread has a
#: heap of its own and a cache of freed blocks, and large blocks lie between small ones: the memory of a server with
#: mostly idle threads then grows for hours. Two heaps are shared, blocks from 32 KiB on get pages of their own (Trio's
#: receive buffers are 64 KiB), and freed blocks are not cached.
_ALLOCATOR = "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=32768:glibc.malloc.tcache_count=0"


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the start of a background server: `for_server`, and the allocator's settings."""
    return {**for_server(environ), "GLIBC_TUNABLES": _ALLOCATOR}


def give_memory_back() -> bool:
    """Return free heap memory to the system. Takes some milliseconds. Returns False if the C library is not glibc."""
    try:
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    except (AttributeError, OSError, TypeError):
        return False
    return True


def spawn(command: Sequence[str], *, environ: Mapping[str, str], keep: Sequence[int]) -> None:
    """Start `command` as a detached background process.

    It gets a new session, `/` as its directory, umask 077, and standard streams on the null device. Its environment is
    `server_environment(environ)`. It inherits only the descriptors `keep`, under the same numbers. It is not a child of
    this process, so there is nothing to wait for. If the program cannot be run, its descriptors close; there is no
    other report.

    `command` must start with the program's absolute path. Raises OSError if the system cannot create a process.
    """
    program, arguments, environment = command[0], list(command), server_environment(environ)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        # Never return into the caller's code here: it would run in two processes.
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        os.umask(0o077)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _close_all_but(keep)
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        os.execve(program, arguments, environment)
    except BaseException:
        os._exit(127)
    os._exit(127)


def _close_all_but(keep: Sequence[int]) -> None:
    highest = os.sysconf("SC_OPEN_MAX")
    if highest < 0 or highest > 65536:
        highest = 65536
    first = 3
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, max(highest, first))


_PR_SET_DUMPABLE = 4
_MCL_CURRENT = 1


def keep_private(*, lock: bool = False) -> None:
    """Disable core dumps, and prevent other processes of this user from attaching or reading the memory. With `lock`,
    the memory that is loaded now is not swapped out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if lock:
        libc.mlockall(_MCL_CURRENT)
