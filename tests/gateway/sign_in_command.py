"""`agent-intercom gateway sign-in` as a process, and the browsers of the people who run it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import trio
from attrs import define, field

from tests.support.server_process import Home


@define(eq=False)
class SignInCommand:
    """A running command. `lines` is what it has printed so far."""

    process: trio.Process
    lines: list[str] = field(factory=list)
    _rest: bytes = b""

    async def address(self) -> str:
        """The address that it shows. Returns when it waits for the person."""
        while not any(line.startswith("waiting up to") for line in self.lines):
            assert await self._read(), self.lines
        return next(line.strip() for line in self.lines if line.startswith("  http"))

    async def paste(self, line: str) -> None:
        """Paste a line into its terminal, and return when it has answered."""
        assert self.process.stdin is not None
        known = len(self.lines)
        await self.process.stdin.send_all(f"{line}\n".encode())
        while len(self.lines) == known and await self._read():
            pass

    async def end(self) -> tuple[int, str]:
        """Its exit code, and all that it has printed, when it has ended."""
        while await self._read():
            pass
        return await self.process.wait(), "\n".join(self.lines)

    async def _read(self) -> bool:
        assert self.process.stdout is not None
        data = await self.process.stdout.receive_some()
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(data)


@asynccontextmanager
async def signing_in(home: Home, *words: str, **environ: str) -> AsyncIterator[SignInCommand]:
    """Run the command without a browser of its own, for as long as the block."""
    process = await trio.lowlevel.open_process(
        [*home.program, "gateway", "sign-in", "--no-browser", *words],
        env=home.environ | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        async with process.stdin or trio.open_nursery(), process.stdout or trio.open_nursery():
            yield SignInCommand(process)
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def browse(address: str) -> int:
    """Open an address in a browser on this machine, to whose page the person says yes. Returns the last status."""
    async with httpx2.AsyncClient(trust_env=False, follow_redirects=True) as browser:
        return (await browser.get(address)).status_code


async def browse_elsewhere(address: str) -> str:
    """Open an address in a browser on another machine. Returns where that was sent to, which it cannot reach."""
    async with httpx2.AsyncClient(trust_env=False) as browser:
        location: str = (await browser.get(address)).headers["location"]
    return location


def configure_far(home: Home, url: str, **settings: object) -> None:
    """Put the remote server `far` behind the gateway; every agent may call all its tools."""
    configure_far_in(Path(home.places.gateway_directory), url, **settings)


def configure_far_in(directory: Path, url: str, **settings: object) -> None:
    """The same, for a gateway with this directory."""
    directory.mkdir(parents=True, exist_ok=True)
    common = {"name": "far", "transport": "http", "baseURL": url, "capabilities": ["far.*"], "schemaVersion": "1.0.0"}
    (directory / "far.json").write_text(json.dumps({**common, **settings}))
    roles = {"defaultRole": "all", "roles": [{"role": "all", "capabilities": ["*.*"]}]}
    (directory / "roles.json").write_text(json.dumps(roles))
