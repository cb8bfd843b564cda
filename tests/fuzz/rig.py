"""A server in the background, and agents that send it whatever they like: raw lines, in and out, with a deadline."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.machine_speed import is_below
from tests.support.server_process import COMMAND, TRUSTING, Home, user_home

#: How long anything may take to be answered, in seconds; a busy machine included.
PATIENCE = 30.0

#: These clients' calls do not wait for a person: "pending" is an answer too.
CONFIG = TRUSTING + '\n[clients."fuzz"]\ncall_wait_seconds = 0.005\n'

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
ERAS = (HANDSHAKE, STATELESS)
_META = "io.modelcontextprotocol/"


class Gone(Exception):
    """The other side has closed."""


class Late(Exception):
    """No answer came in time."""


class Wire:
    """Lines over a pair of descriptors. Neither side can block the other: what comes is kept while one speaks."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out = into, out
        self._heard = bytearray()
        self._ended = False
        #: Whether what comes is taken in while something is said.
        self.listen = True
        os.set_blocking(into, False)
        os.set_blocking(out, False)

    def say(self, data: bytes, seconds: float = PATIENCE) -> None:
        """Send these bytes as they are. Raises Gone and Late."""
        view, deadline = memoryview(data), time.monotonic() + seconds
        while view:
            listening = [self._out] if self.listen and not self._ended else []
            readable, writable, _ = select.select(listening, [self._into], [], max(0.0, deadline - time.monotonic()))
            if readable:
                self._hear()
            if writable:
                try:
                    view = view[os.write(self._into, view[:65536]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    raise Gone from None
            if time.monotonic() > deadline:
                raise Late

    def line(self, seconds: float = PATIENCE) -> bytes:
        """The next line. Raises Gone at the end and Late when none comes in time."""
        deadline = time.monotonic() + seconds
        while (end := self._heard.find(b"\n")) < 0:
            if self._ended:
                raise Gone
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise Late
            self._hear()
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return line

    def _hear(self) -> None:
        try:
            data = os.read(self._out, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._heard += data
        self._ended = not data


class Agent:
    """A client's end of a shim (or of a server in process): says JSON-RPC by hand, in the manner of one era."""

    def __init__(self, process: subprocess.Popen[bytes], era: str, name: str = "fuzz") -> None:
        self.process, self.era, self.name = process, era, name
        self.wire = Wire(process.stdin.fileno(), process.stdout.fileno())
        self._count = 0
        #: What came that answers no request of ours, oldest first.
        self.others: list[Any] = []

    def greet(self) -> None:
        """Begin as this era's clients do."""
        if self.era == HANDSHAKE:
            info = {"name": self.name, "version": "1"}
            self.ask("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": info})
            self.wire.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        else:
            self.ask("server/discover")

    def ask(self, method: str, params: Any = None, seconds: float = PATIENCE) -> dict[str, Any]:
        """Make a request and wait for its answer."""
        return self.answer(self.begin(method, params), seconds)

    def begin(self, method: str, params: Any = None) -> str:
        """Make a request; its id."""
        self._count += 1
        id = f"{self.process.pid}-{self._count}"
        params = dict(params or {})
        if self.era == STATELESS:
            params.setdefault("_meta", {})
            params["_meta"] = {**params["_meta"], **self.about()} if isinstance(params["_meta"], dict) else self.about()
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.wire.say(json.dumps(message).encode() + b"\n")
        return id

    def about(self) -> dict[str, Any]:
        """What every request of the stateless era says."""
        return {
            f"{_META}protocolVersion": STATELESS,
            f"{_META}clientCapabilities": {},
            f"{_META}clientInfo": {"name": self.name, "version": "1"},
        }

    def answer(self, id: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The answer to the request with this id."""
        deadline = time.monotonic() + seconds
        while True:
            message = json.loads(self.wire.line(deadline - time.monotonic()))
            if isinstance(message, dict) and message.get("id") in (id, None) and "method" not in message:
                # What could not be read at all is answered without an id.
                return message
            self.others.append(message)

    def call(self, tool: Any, arguments: Any, meta: Any = None, seconds: float = PATIENCE) -> dict[str, Any]:
        """Call a tool; the whole JSON-RPC answer."""
        params = {"name": tool, "arguments": arguments}
        return self.ask("tools/call", params if meta is None else {**params, "_meta": meta}, seconds)

    def does(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that has to answer; its content."""
        answer = self.call(tool, arguments)
        content: dict[str, Any] = answer["result"]["structuredContent"]
        return content

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.kill()
        self.process.wait()


class Ctl:
    """A connection to the local socket, spoken to in raw lines."""

    def __init__(self, where: Home, path: str | None = None) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(path or where.places.ctl_socket)
        self.token = Path(where.places.token_file).read_text().strip()
        self.wire = Wire(self.socket.fileno(), self.socket.fileno())

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Ask for something; the whole reply."""
        said = {"command": command, "auth_token": self.token, **fields}
        self.wire.say(json.dumps(said).encode() + b"\n")
        reply: dict[str, Any] = json.loads(self.wire.line())
        return reply

    def do(self, command: str, **fields: Any) -> Any:
        """The same for what must succeed; its data."""
        reply = self.ask(command, **fields)
        assert reply["ok"], reply
        return reply["data"]

    def close(self) -> None:
        self.socket.close()


class Rig:
    """One user's directories, one server for all agents in them."""

    def __init__(self, where: Home, era: str, *arguments: str) -> None:
        self.home = where
        self.workspace = where.workspace()
        self._open: list[Agent | Ctl] = []
        # The first agent brings the server up; it is the one that all must leave alive.
        self.first = self.agent(era, *arguments)
        self.first.does("ping")
        self.server = where.server()
        self.logs = (Path(where.places.log_file), where.root / "agents.log")

    def agent(
        self,
        era: str = HANDSHAKE,
        *arguments: str,
        workspace: Path | None = None,
        name: str = "fuzz",
        greet: bool = True,
    ) -> Agent:
        """An agent with a shim of its own, greeted."""
        process = subprocess.Popen(
            [*COMMAND, "--workspace", str(workspace or self.workspace), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.home.root / "agents.log").open("ab"),
            env=self.home.environ,
            cwd=self.home.root,
        )
        made = Agent(process, era, name)
        self._open.append(made)
        if greet:
            made.greet()
        return made

    def ctl(self, path: str | None = None) -> Ctl:
        made = Ctl(self.home, path)
        self._open.append(made)
        return made

    def done_with(self, one: Agent | Ctl) -> None:
        self._open.remove(one)
        one.close()

    def logged(self) -> str:
        return "".join(log.read_text(errors="replace") for log in self.logs if log.exists())

    def close(self) -> None:
        for each in self._open:
            each.close()


@contextmanager
def rig(config: str = CONFIG, era: str = HANDSHAKE, *arguments: str) -> Iterator[Rig]:
    """A rig of its own; `era` and `arguments` are the first agent's. On the way out, what must hold after anything: one
    server, the first one, well and sound."""
    with user_home(config) as where:
        made = Rig(where, era, *arguments)
        try:
            yield made
            sound(made)
        finally:
            made.close()


def sound(on: Rig) -> None:
    """The server is the one that began, answers at once, and nothing in it has fallen."""
    assert on.home.server() == on.server, f"the server is another one now: {on.logged()[-4000:]}"
    began = time.monotonic()
    assert on.first.does("ping")["acknowledged"] is True
    assert is_below(2.5, time.monotonic() - began, time.monotonic)
    fallen = [line for line in on.logged().splitlines() if "Traceback" in line or " ERROR " in line]
    assert not fallen, on.logged()[-6000:]
