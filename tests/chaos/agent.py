"""Agents, driven by a script: real MCP clients, each behind a real shim or over HTTP, that note all they were told.

Started as a process of its own, `python agent.py SETTINGS.json`, with one set of settings for all its agents. Each
works until the file named `stop` is there, finishes what it began, and says so. A shim that dies is replaced, as a
client's user would restart it; the agent then takes its session up again. Over HTTP it connects anew under its name.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import trio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation

#: agent-intercom, with the faults that the environment asks for.
PROGRAM = Path(__file__).resolve().parents[1] / "support" / "program_with_faults.py"


class ShimDied(Exception):
    """The connection broke: the shim was killed, or over HTTP the server."""


class Agent:
    """One agent with files of its own, `<name>-*.txt` and `<name>/…` in its workspace."""

    def __init__(
        self,
        settings: dict[str, Any],
        name: str,
        mode: str,
        workspace: str,
        client: str,
        over_http: bool = False,
        session: str | None = None,
    ) -> None:
        self.name = name
        self._mode = mode
        self._client_name = client
        self._workspace = Path(workspace)
        self._random = random.Random(f"{settings['seed']}/{name}")
        self._stop = Path(settings["stop"])
        self._rounds = settings["rounds"]
        self._pause = settings["pause"]
        #: Seconds a call may take; longer is a fault the judge is told of.
        self._patience = settings["patience"]
        self._http = settings["http"] if over_http else None
        self._log = open(Path(settings["logs"]) / f"{name}.jsonl", "a")  # noqa: SIM115 - closed with the process
        self._client: Client | None = None
        self._session = session
        self._files: dict[str, tuple[str, tuple[int, int]]] = {}
        self._late: dict[str, dict[str, Any]] = {}
        self._life = 0

    def note(self, what: str, **more: Any) -> None:
        """One line for the judge."""
        line = {"at": time.time(), "agent": self.name, "life": self._life, "http": self._http is not None, "what": what}
        line |= more
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()

    async def live(self) -> None:
        """Work until told to stop."""
        number = 0
        unfinished: dict[str, Any] | None = None
        while True:
            self._life += 1
            try:
                async with self._connected() as client:
                    self._client = client
                    await self._take_up()
                    while True:
                        if unfinished is None:
                            if self._stop.exists() or number >= self._rounds:
                                break
                            number += 1
                            unfinished = self._plan(number)
                        await self._round(unfinished)
                        unfinished = None
                        await trio.sleep(self._pause * self._random.uniform(0.5, 1.5))
                    await self._settle()
                self.note("finished", rounds=number)
                return
            except ShimDied as died:
                if self._http is None:
                    self.note("shim_died", why=str(died))
                else:
                    self.note("connection_broke", why=str(died))
                    await trio.sleep(0.2)

    # What an agent does

    def _plan(self, number: int) -> dict[str, Any]:
        kind = self._random.choices(
            ["file", "files", "transmit", "standby", "brief", "report"], weights=[6, 4, 2, 2, 1, 2]
        )[0]
        return {"number": number, "kind": kind, "cancel": self._random.random() < 0.12}

    async def _round(self, plan: dict[str, Any]) -> None:
        number = plan["number"]
        title = f"{self.name} round {number}"
        match plan["kind"]:
            case "file":
                path = f"{self.name}-{number % 3}.txt"
                plan.setdefault("wanted", {path: _longer(self._text(path), f"{title}: one line more\n")})
                arguments = {"title": title, "file_path": path, "diff": plan["wanted"][path]}
                await self._change(plan, arguments)
            case "files":
                deep = "" if number % 2 else f"{number}/deep/"
                paths = [f"{self.name}-{number % 3}.txt", f"{self.name}/{deep}{number}.txt"]
                plan.setdefault("wanted", {path: _longer(self._text(path), f"{title}: patched\n") for path in paths})
                diff = "".join(_patch(path, self._text(path), text) for path, text in plan["wanted"].items())
                plan.setdefault("diff", diff)
                await self._change(plan, {"title": title, "file_path": paths[0], "diff": plan["diff"]})
            case "transmit":
                await self._ask(plan, "transmit", {"prompt_text": title, "prompt_type": "clarification"})
            case "standby":
                await self._ask(plan, "standby", {"message": title})
            case "brief":
                await self._ask(plan, "standby", {"message": f"{title} brief", "timeout_seconds": 1})
            case _:
                await self._call("broadcast", {"message": f"{title} broadcast"})
                items = [{"label": title, "status": "done"}]
                await self._call("ping", {"status_message": title, "progress_snapshot": items})

    async def _change(self, plan: dict[str, Any], arguments: dict[str, Any]) -> None:
        if "applying" not in plan:
            answer = await self._ask(plan, "check_clearance", arguments)
            if answer.get("status") != "approved":
                return
            plan["applying"] = answer["request_id"]
            # Not when it is asked for again: it may have been applied, and the answer gone with the shim.
            self._check()
        answer = await self._call("check_diff", {"request_id": plan["applying"]}, allowed=("already_consumed",))
        if answer.get("status") == "applied" or answer.get("error_code") == "already_consumed":
            for path, text in plan["wanted"].items():
                self._files[path] = (text, self._stamp(path))
            self._check()

    async def _ask(self, plan: dict[str, Any], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Ask a person and wait as often as it takes. A verdict that came by another road counts as well."""
        if plan.pop("cancel", False):
            with trio.move_on_after(self._random.uniform(0.02, 0.4)):
                return await self._call(tool, arguments)
            self.note("cancelled", tool=tool, plan=plan["number"])
        while True:
            known = plan.get("request")
            if known in self._late:
                return self._late[known]
            asked = {"request_id": known} if known else arguments
            answer = await self._call(tool, asked)
            if answer.get("request_id"):
                plan["request"] = answer["request_id"]
            if answer.get("status") not in ("pending", "paused"):
                return answer

    async def _take_up(self) -> None:
        """Get hold of the session there was before the shim died; its connection counts as live for a moment."""
        for _ in range(200):
            wanted = {"session_id": self._session} if self._session else {}
            answer = await self._call("reboot", wanted, allowed=("invalid_state",))
            if "error_code" not in answer:
                break
            await trio.sleep(0.2)
        else:
            self.note("fault", why=f"session {self._session} could not be taken up again: {answer}")
        pong = await self._call("ping", {})
        if self._session not in (None, pong["session_id"]):
            self.note("fault", why=f"the session was {self._session} and is {pong['session_id']}")
        self._session = pong["session_id"]

    async def _settle(self) -> None:
        """Let everything that is still on its way arrive, and look at the files a last time."""
        for _ in range(3):
            await self._call("ping", {})
        self._check()

    # What an agent notes

    async def _call(self, tool: str, arguments: dict[str, Any], *, allowed: tuple[str, ...] = ()) -> dict[str, Any]:
        """Call a tool, and again while the session is paused: nothing was done then."""
        while True:
            answer = await self._call_once(tool, arguments, allowed)
            if answer.get("status") != "paused" or "request_id" in answer:
                return answer
            await trio.sleep(0.1)

    async def _call_once(self, tool: str, arguments: dict[str, Any], allowed: tuple[str, ...]) -> dict[str, Any]:
        assert self._client is not None
        self.note("called", tool=tool, arguments=arguments)
        began = time.monotonic()
        try:
            with trio.fail_after(self._patience):
                result = await self._client.call_tool(tool, arguments)
        except trio.TooSlowError:
            self.note("fault", why=f"{tool} did not return within {self._patience:g} s", arguments=arguments)
            raise ShimDied("no answer") from None
        except Exception as error:
            # With its shim alive a client never sees this; the judge knows which shims were killed.
            raise ShimDied(f"{type(error).__name__}: {error}") from None
        answer: dict[str, Any] = dict(result.structured_content or {})
        self.note("answered", tool=tool, answer=answer, error=bool(result.is_error), seconds=time.monotonic() - began)
        for late in answer.get("late_verdicts", ()):
            self._late[late["request_id"]] = {"request_id": late["request_id"], **late["answer"]}
        if result.is_error and answer.get("error_code") not in allowed:
            self.note("fault", why=f"{tool} was answered with an error", answer=answer, arguments=arguments)
        return answer

    def _text(self, path: str) -> str:
        return self._files[path][0] if path in self._files else ""

    def _stamp(self, path: str) -> tuple[int, int]:
        found = os.stat(self._workspace / path)
        return found.st_ino, found.st_mtime_ns

    def _check(self) -> None:
        """Every file of mine holds what was applied last, and nobody has written it since."""
        for path, (text, stamp) in self._files.items():
            there = (self._workspace / path).read_text()
            if there != text:
                self.note("fault", why=f"{path} holds {_digest(there)} and not {_digest(text)}")
            elif self._stamp(path) != stamp:
                self.note("fault", why=f"{path} was written again")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Client]:
        who = Implementation(name=self._client_name, version="1")
        try:
            async with self._transport() as transport, Client(transport, mode=self._mode, client_info=who) as client:  # type: ignore[arg-type]
                yield client
        except ShimDied:
            raise
        except BaseExceptionGroup as several:
            died, rest = several.split(ShimDied)
            if rest is not None and died is None:
                raise ShimDied(f"while connecting: {rest!r}") from None
            raise ShimDied(str(died)) from None
        except (OSError, httpx2.HTTPError, MCPError) as error:
            raise ShimDied(f"while connecting: {error}") from None

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        if self._http is None:
            command = StdioServerParameters(
                command=sys.executable,
                args=[str(PROGRAM), "--workspace", str(self._workspace)],
                env=dict(os.environ),
            )
            yield stdio_client(command)
            return
        headers = {"Authorization": f"Bearer {self._http['token']}"}
        patience = httpx2.Timeout(10.0, read=self._patience)
        async with httpx2.AsyncClient(headers=headers, timeout=patience) as http:
            yield streamable_http_client(
                self._http["url"].format(agent=self.name, workspace=quote(str(self._workspace))), http_client=http
            )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _longer(text: str, line: str) -> str:
    """One line more; of a text that got long, the end is kept."""
    return "".join([*text.splitlines(True)[-20:], line])


def _patch(path: str, before: str, after: str) -> str:
    import difflib

    old = f"a/{path}" if before else "/dev/null"
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), old, f"b/{path}")
    head = f"diff --git a/{path} b/{path}\n" + ("" if before else "new file mode 100644\n")
    return head + "".join(lines)


async def _main(settings: dict[str, Any]) -> None:
    async with trio.open_nursery() as nursery:
        for each in settings["agents"]:
            agent = Agent(settings, **each)
            nursery.start_soon(agent.live)


async def _child(settings: dict[str, Any], name: str) -> None:
    """One agent that people started, in the session that was made for it."""
    dice = random.Random(f"{settings['seed']}/{name}")
    over_http = dice.random() < 0.5 and "INTERCOM_MCP_URL" in os.environ
    http = {"url": os.environ.get("INTERCOM_MCP_URL"), "token": os.environ.get("INTERCOM_HTTP_TOKEN")}
    settings = {**settings, "http": http, "rounds": dice.randint(1, 3)}
    mode, workspace = dice.choice(("auto", "legacy")), os.environ["INTERCOM_WORKSPACE_ROOT"]
    agent = Agent(settings, name, mode, workspace, "chaos-child", over_http, os.environ["INTERCOM_SESSION_ID"])
    print(f"{name} begins", flush=True)
    if dice.random() < 0.2:
        # It crashes, whatever it is at.
        with trio.move_on_after(dice.uniform(0.1, 1.5)):
            await agent.live()
        agent.note("crashed")
        os._exit(3)
    await agent.live()


if __name__ == "__main__":
    # Over HTTP the client logs each connection that breaks, at length.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    if sys.argv[1] == "--child":
        trio.run(_child, json.loads(Path(sys.argv[2]).read_text()), sys.argv[-1])
    else:
        trio.run(_main, json.loads(Path(sys.argv[1]).read_text()))
