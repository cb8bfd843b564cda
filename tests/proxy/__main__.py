"""Agents at Intercom through each proxy, over TLS: `python -m tests.proxy [nginx] [caddy]`."""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.proxy import certificate
from tests.proxy.proxies import NAME, PROXIES, running
from tests.support.server_process import ERAS, TRUSTING, Home, Person, user_home

#: How long a call is let wait before it is answered, in seconds: longer than the minute after which proxies that are
#: not told otherwise end a silent answer.
HELD_SECONDS = 65.0
#: How soon what the server says has to be at the client, in seconds.
SOON = 2.0


class ToHere(trio.abc.HostnameResolver):
    """Every name is this machine."""

    async def getaddrinfo(
        self, host: bytes | None, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", int(port)))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        return NAME, str(sockaddr[1])


class Through:
    """One proxy in front of one server."""

    def __init__(self, port: int, chain: Path, token: str) -> None:
        self._token = token
        self._base = f"https://{NAME}:{port}"
        self._trust = ssl.create_default_context(cafile=str(chain))

    def web(self, token: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {token or self._token}"}
        return httpx2.AsyncClient(headers=headers, verify=self._trust, timeout=120)

    @asynccontextmanager
    async def agent(self, mode: str, key: str) -> AsyncIterator[Client]:
        async with self.web() as web:
            transport = streamable_http_client(f"{self._base}/mcp?agent={key}", http_client=web)
            info = types.Implementation(name="claude-code", version="1")
            async with Client(transport, mode=mode, client_info=info) as client:
                yield client

    async def held(self, mode: str, person: Person) -> str:
        """A clearance waits longer than proxies like, reports progress as it goes, and gets its answer at once."""
        began = time.monotonic()
        told: list[float] = []
        done: list[tuple[float, dict[str, Any] | None]] = []
        answered = trio.Event()

        async def progress(_done: float, _total: float | None, _message: str | None) -> None:
            told.append(time.monotonic() - began)

        async with self.agent(mode, f"held-{mode}") as client, trio.open_nursery() as nursery:

            async def ask() -> None:
                given = {"title": f"held {mode}", "diff": "a\n", "file_path": f"{mode}.txt"}
                answer = await client.call_tool("check_clearance", given, progress_callback=progress)
                done.append((time.monotonic(), answer.structured_content))
                answered.set()

            nursery.start_soon(ask)
            card = await person.card(title=f"held {mode}", away=False)
            await trio.sleep(HELD_SECONDS)
            assert not done, done
            decided = time.monotonic()
            await person.do("approve", id=card["request_id"])
            await answered.wait()
        at, answer = done[0]
        assert answer is not None
        assert answer["status"] == "approved", answer
        late = at - decided
        assert late < SOON, f"the answer took {late:.1f} s"
        assert told
        assert told[0] < SOON, f"the first report took {told[0]:.1f} s: something holds answers back"
        assert len(told) >= HELD_SECONDS // 15, told
        return (
            f"{len(told)} reports, the first after {told[0]:.2f} s; the answer {late * 1000:.0f} ms after the verdict"
        )

    async def left(self, mode: str, person: Person) -> str:
        """A client that goes in the middle of a call is known to have gone."""
        with trio.CancelScope() as scope:
            async with self.agent(mode, f"left-{mode}") as client, trio.open_nursery() as nursery:
                given = {"title": f"left {mode}", "diff": "a\n", "file_path": f"{mode}.txt"}
                nursery.start_soon(client.call_tool, "check_clearance", given)
                await person.card(title=f"left {mode}", away=False)
                began = time.monotonic()
                scope.cancel()
        with trio.fail_after(60):
            await person.card(title=f"left {mode}", away=True)
        return f"the card says so {(time.monotonic() - began) * 1000:.0f} ms later"

    async def guarded(self) -> str:
        """The token is asked for, by the name that is allowed, and what the machine says of itself is not shown."""
        async with self.web("wrong") as web:
            refused = await web.post(f"{self._base}/mcp", json={})
            assert refused.status_code == 401, refused
            for path in ("/metrics", "/healthz"):
                assert (await web.get(f"{self._base}{path}")).status_code == 404
        return f"401 without the token, 404 for the pages, {await self._too_large()} for 17 MiB"

    async def _too_large(self) -> str:
        async with self.web() as web:
            try:
                answer = await web.post(f"{self._base}/mcp", content=b"x" * (17 * 2**20))
            except (httpx2.ReadError, httpx2.WriteError):
                # The answer is there before the request is: not every proxy waits until it has been read.
                return "a closed connection"
        assert answer.status_code == 413, answer
        return "413"


def check(name: str, directory: Path) -> None:
    port, behind = free_port(), free_port()
    chain, private = certificate.make(directory, NAME)
    workspace = directory / "ws"
    workspace.mkdir()
    settings = (f"http_port = {behind}", f'http_allowed_hosts = ["{NAME}"]', f'default_workspace_root = "{workspace}"')
    with user_home("\n".join([*settings, TRUSTING])) as home, home.serving():
        trio.run(listening, behind)
        token = Path(home.places.http_token_file).read_text().strip()
        with running(PROXIES[name](directory, port, behind, chain, private), directory):
            trio.run(listening, port)
            trio.run(drive, name, home, Through(port, chain, token))


async def drive(name: str, home: Home, at: Through) -> None:
    trio.socket.set_custom_hostname_resolver(ToHere())
    async with home.person() as person:
        print(f"{name}: {await at.guarded()}", flush=True)
        for mode in ERAS:
            print(f"{name}, {mode}: a client that goes: {await at.left(mode, person)}", flush=True)
        async with trio.open_nursery() as nursery:
            for mode in ERAS:
                nursery.start_soon(report, name, mode, at, person)


async def report(name: str, mode: str, at: Through, person: Person) -> None:
    print(f"{name}, {mode}: held for {HELD_SECONDS:.0f} s: {await at.held(mode, person)}", flush=True)


async def listening(port: int) -> None:
    with trio.fail_after(20):
        while True:
            try:
                async with await trio.open_tcp_stream("127.0.0.1", port):
                    return
            except OSError:
                await trio.sleep(0.05)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main() -> int:
    chosen = sys.argv[1:] or list(PROXIES)
    missing = [name for name in chosen if shutil.which(name) is None]
    if missing:
        print(f"{' and '.join(missing)} must be installed (apt-get install nginx-light caddy)", file=sys.stderr)
        return 2
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="proxy-") as directory:
            check(name, Path(directory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
