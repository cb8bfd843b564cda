"""Which agent a process belongs to: a hook is started by the same client that started the agent's shim."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from intercom.local.launchers import is_launcher


def nearest(pid: int, doors: Mapping[str, frozenset[int]]) -> tuple[str, ...]:
    """The doors (by name, each with the processes of its shim and client) whose client is the nearest above process
    `pid`; several where one client has several. None where no client of theirs started it."""
    above = [process.pid for process in _line(pid)[1:]]
    # Over HTTP one client may have many doors.
    known = {pids: _with_hosts(pids) for pids in set(doors.values())}
    hosts = {name: known[pids] for name, pids in doors.items()}
    for ancestor in above:
        found = tuple(name for name, pids in hosts.items() if ancestor in pids)
        if found:
            return found
    return ()


def _with_hosts(pids: frozenset[int]) -> frozenset[int]:
    """`pids`, and above each that is a mere launcher who used it."""
    found = set(pids)
    for pid in pids:
        for process in _line(pid):
            if not is_launcher(_command(process)):
                found.add(process.pid)
                break
            found.add(process.pid)
    return frozenset(pid for pid in found if pid > 1)


def _line(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.parents()]
    except (psutil.Error, ValueError):
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
