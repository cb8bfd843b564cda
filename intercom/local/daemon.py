"""What a background process does, so that it outlives who started it and keeps nothing of theirs.

Standard library only: the shim starts the server with it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence

from intercom.local.places import RUN_USER

_NAMES = frozenset((*("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),))
# Nothing of proxies, certificates, Slack or trust: where the tokens are sent, whose word for people's is taken and who
# may answer is not for a client's environment to say. Nor is a bus: what answers there can be anybody's keychain.
_PREFIXES = ("LC_", "XDG_")
_BUS = "DBUS_SESSION_BUS_ADDRESS"


def allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """Choose what of an environment a background server keeps: what it needs, and nothing an agent slipped in.

    An allowlist, since a denylist would have to know every `LD_PRELOAD`, `PYTHONPATH` and credential there is.
    """
    return {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_PREFIXES)}


def for_server(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server that a client's relay starts: what is `allowed`, and the user's own message bus, by
    which the keychain is asked."""
    bus = os.path.join(RUN_USER, str(os.geteuid()), "bus")
    try:
        found = os.lstat(bus)
    except OSError:
        return allowed(environ)
    is_own = stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid()
    return {**allowed(environ), **({_BUS: f"unix:path={bus}"} if is_own else {})}


def spawn(command: Sequence[str], *, environ: Mapping[str, str], keep: int) -> None:
    """Start `command` as a process that belongs to nobody here.

    It gets a new session, `/` as its directory, umask 077, standard streams on the null device, the environment
    `for_server(environ)`, and of the descriptors only `keep`, under the same number. It is no child of this process,
    which therefore need not wait for it, and is not told when the program can not be run: whoever waits sees the other
    end of `keep` close.

    `command` must name the program by its absolute path. Raises OSError when the system has no room for a process.
    """
    program, arguments, environment = command[0], list(command), for_server(environ)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        # Nothing here may return into the caller's code: two of it would run.
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        os.umask(0o077)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        _close_all_but(keep)
        os.set_inheritable(keep, True)
        os.execve(program, arguments, environment)
    except BaseException:
        os._exit(127)
    os._exit(127)


def _close_all_but(keep: int) -> None:
    highest = os.sysconf("SC_OPEN_MAX")
    if highest < 0 or highest > 65536:
        highest = 65536
    os.closerange(3, keep)
    os.closerange(keep + 1, max(highest, keep + 1))
