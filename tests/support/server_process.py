"""Real agents at a real server: the SDK's client, a real shim over stdio, the server in the background, and a person at
the local socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import mcp_types as types
import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from intercom.local import lock
from intercom.local.places import Places, places
from tests.operators.ctl_server import Peer
from tests.support import server_forks
from tests.support.server_forks import Started

#: The program as tests run it: with the faults that INTERCOM_FAULT in its environment asks for.
COMMAND = FAULTY = [sys.executable, str(Path(__file__).parents[1] / "support" / "program_with_faults.py")]
#: What a person types there. Only the user's own directories in that home count.
CTL = [sys.executable, str(Path(__file__).with_name("ctl_at_home.py")), "--json"]

#: The person at the socket is a process of the test's, and so is the agents' client.
TRUSTING = "[ctl]\ntrust_agent_processes = true\n"
ERAS = ("auto", "legacy")


class Home:
    """One user's directories, and the server that lives in them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {
            "HOME": str(root),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(root / "run"),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_CONFIG_HOME": str(root / "config"),
        }
        (root / "run").mkdir(mode=0o700)
        # The user has used these before.
        own = root / ".local" / "state" / "agent-intercom" / "own-directories"
        own.parent.mkdir(mode=0o700, parents=True)
        own.touch(mode=0o600)
        own.write_text(f"{Path(self.places.config_file).parent}\n{self.places.state_dir}\n")
        #: What servers, relays and commands here are run by.
        self.program = COMMAND
        self._workspaces = 0
        self.starts = server_forks.shared()
        if self.starts.address is not None:
            self.environ[server_forks.VARIABLE] = self.starts.address

    @property
    def places(self) -> Places:
        return places(environ=self.environ)

    def configure(self, text: str) -> Path:
        """Write the user's configuration file."""
        file = Path(self.places.config_file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def workspace(self) -> Path:
        """A directory of its own for one agent."""
        self._workspaces += 1
        made = self.root / f"ws{self._workspaces}"
        made.mkdir()
        return made

    def server(self) -> int | None:
        """The pid of the server that runs, if one does. Waits until one that takes the lock has written its pid."""
        deadline = time.monotonic() + 20
        while (holder := lock.holder(Path(self.places.database))) is not None and holder.pid is None:
            assert time.monotonic() < deadline, "a server has not written its process id"
            time.sleep(0.01)
        return None if holder is None else holder.pid

    def kill(self) -> None:
        """End the server as a power failure would."""
        pid = self.server()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    @contextmanager
    def serving(self, *options: str, **environ: str) -> Iterator[Started]:
        """A server in the foreground, ready when this is entered and stopped when it is left."""
        hear, tell = os.pipe()
        with (self.root / "server.log").open("ab") as log:
            process = self._start(["serve", "--ready-fd", str(tell), *options], self.environ | environ, tell, log)
        os.close(tell)
        try:
            with os.fdopen(hear) as news:
                said = json.loads(news.readline() or "{}")
            assert said == {"ready": True}, f"{said}, {(self.root / 'server.log').read_text()}"
            yield process
        finally:
            process.terminate()
            process.wait(20)

    def _start(self, words: list[str], environ: dict[str, str], keep: int, log: BinaryIO) -> Started:
        if self.starts.address is not None and self.program is COMMAND:
            return self.starts.start(words, environ, keep=[keep], stderr=log.fileno())
        return subprocess.Popen([*self.program, *words], env=environ, pass_fds=[keep], stderr=log)

    def command(self, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run agent-intercom once."""
        return subprocess.run(
            [*self.program, *arguments],
            env=environ or self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def parameters(self, *arguments: str, cwd: Path | None = None, **environ: str) -> StdioServerParameters:
        """How a client launches its shim."""
        command, *first = self.program
        return StdioServerParameters(
            command=command, args=[*first, *arguments], env=self.environ | environ, cwd=cwd or self.root
        )

    @asynccontextmanager
    async def agent(
        self, workspace: Path | None, *arguments: str, mode: str = "auto", name: str = "claude-code", **options: Any
    ) -> AsyncIterator[Client]:
        """A connected client with a shim of its own; without a workspace, none is named to the shim. Options in
        capitals are variables of its environment, the others the client's."""
        named = ("--workspace", str(workspace)) if workspace is not None else ()
        cwd = options.pop("cwd", None)
        environ = {each: options.pop(each) for each in [*options] if each.isupper()}
        client = Client(
            self.parameters(*named, *arguments, cwd=cwd, **environ),
            mode=mode,
            client_info=types.Implementation(name=name, version="1"),
            **options,
        )
        async with client:
            yield client

    @asynccontextmanager
    async def person(self, workspace: Path | None = None) -> AsyncIterator[Person]:
        """Somebody at the local socket, who sees the cards of this workspace, or all."""
        async with trio.open_nursery() as nursery:
            watch, reply = await _ask(self.places, "watch")
            while not reply["ok"]:
                # A server that has only just come may be busy: what a person sees then is "try again".
                assert reply["error_code"] == "unavailable", reply
                await trio.sleep(0.1)
                reply = await watch.ask("watch")
            person = Person(self.places, watch, None if workspace is None else str(workspace))
            nursery.start_soon(person.follow)
            yield person
            nursery.cancel_scope.cancel()


async def _ask(where: Places, command: str, **fields: Any) -> tuple[Peer, dict[str, Any]]:
    """Connect to the server, and ask; the connection and the reply. Like ctl, the token is read after connecting, and
    again if it was refused: the server that comes after another one writes its own once it listens."""
    while True:
        stream = await trio.open_unix_socket(where.ctl_socket)
        token = await trio.Path(where.token_file).read_text()
        peer = Peer(stream, token.strip())
        reply = await peer.ask(command, **fields)
        if reply.get("error_code") != "unauthorized" or token == await trio.Path(where.token_file).read_text():
            return peer, reply
        await stream.aclose()


class Person:
    """Sees what comes, and answers."""

    def __init__(self, where: Places, watch: Peer, workspace: str | None) -> None:
        self.cards: list[dict[str, Any]] = []
        self.notices: list[dict[str, Any]] = []
        self._where = where
        self._watch = watch
        self._workspace = workspace
        self._news = trio.Event()

    async def follow(self) -> None:
        async with self._watch.stream:
            while (event := await self._watch.line()) is not None:
                data = event["data"]
                if event["event"] == "notice":
                    self.notices.append(data)
                elif self._workspace in (None, data["workspace_root"]):
                    self.cards.append(data)
                self._news.set()
                self._news = trio.Event()

    async def card(self, fits: Callable[[dict[str, Any]], bool] | None = None, **wanted: Any) -> dict[str, Any]:
        """The first card that was shown with these fields, waited for if none was."""
        return await self._first(self.cards, fits, wanted)

    async def notice(self, fits: Callable[[dict[str, Any]], bool] | None = None, **wanted: Any) -> dict[str, Any]:
        return await self._first(self.notices, fits, wanted)

    async def _first(
        self, shown: list[dict[str, Any]], fits: Callable[[dict[str, Any]], bool] | None, wanted: dict[str, Any]
    ) -> dict[str, Any]:
        seen = 0
        while True:
            for each in shown[seen:]:
                if all(each[key] == value for key, value in wanted.items()) and (fits is None or fits(each)):
                    return each
            seen = len(shown)
            await self._news.wait()

    def latest(self, request_id: str) -> dict[str, Any]:
        """The card of this request as it was shown last."""
        return [card for card in self.cards if card["request_id"] == request_id][-1]

    async def say(self, command: str, **fields: Any) -> dict[str, Any]:
        """Ask the server for something; the whole reply."""
        peer, reply = await _ask(self._where, command, **fields)
        await peer.stream.aclose()
        return reply

    async def do(self, command: str, **fields: Any) -> Any:
        """The same for what must succeed; its data."""
        reply = await self.say(command, **fields)
        assert reply["ok"], reply
        return reply["data"]


@contextmanager
def user_home(config: str = TRUSTING) -> Iterator[Home]:
    """A user's directories with short names, since sockets live there; what runs in them ends with this."""
    root = Path(tempfile.mkdtemp(prefix="live-", dir="/tmp"))
    made = Home(root)
    try:
        if config:
            made.configure(config)
        yield made
    finally:
        pid = made.server()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(root, ignore_errors=True)


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Call a tool; its structured content, which its text must repeat."""
    result = await client.call_tool(tool, arguments)
    return content(result)


def content(result: types.CallToolResult) -> dict[str, Any]:
    """What a result says, once as text and once as structure."""
    (text,) = result.content
    assert isinstance(text, types.TextContent)
    found: dict[str, Any] = json.loads(text.text)
    assert result.structured_content == found
    assert result.is_error is (found.get("status") == "error")
    return found


class Later:
    """A call on its way: `await later()` gives its answer."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self._done = trio.Event()
        self._answer: dict[str, Any] | None = None

    async def run(self, client: Client, tool: str, options: dict[str, Any], arguments: dict[str, Any]) -> None:
        with self.scope:
            self._answer = content(await client.call_tool(tool, arguments, **options))
        self._done.set()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    async def __call__(self) -> dict[str, Any]:
        await self._done.wait()
        assert self._answer is not None, "the call was cancelled"
        return self._answer


def begin(
    nursery: trio.Nursery, client: Client, tool: str, /, options: dict[str, Any] | None = None, **arguments: Any
) -> Later:
    """Make a call and go on."""
    later = Later()
    nursery.start_soon(later.run, client, tool, options or {}, arguments)
    return later
