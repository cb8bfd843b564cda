"""Kills the server and says "approve" on the local socket from the first instant at which one answers again:
`approve_during_start.py DATABASE REQUEST KILLS ANSWERS [--session]`. Each life of the server is asked ANSWERS times.
With --session each try comes from a process in a POSIX session of its own. Prints each different reply once."""

import json
import os
import signal
import socket
import sys
import time

database, request, kills, answers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")


def holder() -> int | None:
    try:
        with open(database + ".lock") as file:
            return int(json.loads(file.readline())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def attempt() -> str | None:
    try:
        with open(os.path.join(directory, "agent-intercom.token")) as file:
            token = file.read().strip()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(20)
            link.connect(os.path.join(directory, "agent-intercom.sock"))
            link.sendall(json.dumps({"command": "approve", "id": request, "auth_token": token}).encode() + b"\n")
            return link.makefile().readline().strip() or None
    except OSError:
        return None


def apart() -> str | None:
    """One try from a child's child in a POSIX session of its own."""
    hear, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, (attempt() or "").encode())
        os._exit(0)
    os.close(tell)
    os.wait()
    with os.fdopen(hear) as said:
        return said.read() or None


seen = set()
for _ in range(kills):
    pid = holder()
    if pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    heard, deadline = 0, time.monotonic() + 20
    while heard < answers and time.monotonic() < deadline:
        reply = apart() if "--session" in sys.argv else attempt()
        if reply is None:
            continue
        heard += 1
        if reply not in seen:
            seen.add(reply)
            print(reply, flush=True)
