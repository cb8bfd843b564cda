"""Downstreams that are small Python programs, and what belongs to a test of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import psutil
import trio

from intercom.gateway.downstream_config import DownstreamConfig, Transport

#: What each program begins with: the messages that come, and functions that write.
_BEGINNING = """
import json, os, signal, subprocess, sys, time
def raw(line): sys.stdout.buffer.write(line); sys.stdout.buffer.flush()
def put(**message): raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\n")
def messages():
    for line in sys.stdin.buffer: yield json.loads(line)
def greet(message):
    # Answers the handshake of 2025-11-25, and says whether it was that.
    if message["method"] == "initialize":
        put(id=message["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
    elif message["method"] == "server/discover":
        put(id=message["id"], error={"code": -32601, "message": "unknown method"})
    return message["method"] in ("initialize", "server/discover", "notifications/initialized")
def calls():
    for message in messages():
        if not greet(message): yield message
def echo(message):
    if "id" in message: put(id=message["id"], result={"echo": message["params"]})
def linger():
    # A process that ignores that it is asked to end, and holds the pipes open. Returns its pid.
    ready, tell = os.pipe()
    code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code += f"; os.write({tell}, b'1'); time.sleep(900)"
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], pass_fds=[tell])
    os.read(ready, 1)
    return child.pid
"""


def program(code: str, **settings: Any) -> DownstreamConfig:
    """The configuration of a downstream that runs this code."""
    arguments = ("-I", "-S", "-c", _BEGINNING + code)
    return DownstreamConfig(
        "hostile", Transport.STDIO, ("hostile.*",), "1.0.0", command=sys.executable, args=arguments, **settings
    )


def environ() -> Mapping[str, str]:
    """The environment of a server, with a token that no downstream may see."""
    return {"PATH": os.environ["PATH"], "HOME": "/", "GITHUB_TOKEN": "hidden", "WANTED": "seen"}


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_dead(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
