"""`agent-intercom demo`: the main job from end to end, in one terminal, with the server killed on the way."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from attrs import define
from rich.console import Console
from rich.text import Text

from intercom.agents.clients import NAMES
from intercom.cli import ctl_draw
from intercom.cli.ctl_text import clean, short
from intercom.cli.demo_agent import FILE, NAME
from intercom.cli.demo_server import Agent, DemoFailed, DemoServer, agent, demo_server, until
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal, request

_WIDTH = 80
_INDENT = 3


class NobodyThere(Exception):
    """Raised if standard input has ended and is not a terminal, so that no person can answer."""


class Page:
    """A page on standard output, at most 80 columns wide."""

    def __init__(self) -> None:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        self._console = Console(markup=False, emoji=False, highlight=False)
        self._console.width = min(self._console.width, _WIDTH)
        self._steps = 0

    def head(self, text: str) -> None:
        self._console.print(Text(text, "bold"))

    def step(self, title: str) -> None:
        """Begin the next numbered step."""
        self._steps += 1
        self.gap()
        self._console.print(Text(f"{self._steps}  ", "cyan").append(clean(title), "bold"))

    def say(self, text: str, style: str = "") -> None:
        self._put(Text(clean(text), style))

    def fact(self, name: str, text: str) -> None:
        """Print a name and its value on one unwrapped line, so that it can be copied."""
        line = Text(" " * _INDENT).append(f"{name:<10}", "cyan").append(clean(text))
        self._console.print(line, soft_wrap=True)

    def command(self, command: str, what: str) -> None:
        """Print a command to type, and what it does."""
        self._console.print(Text(" " * _INDENT).append(clean(what), "dim"), soft_wrap=True)
        self._console.print(Text(" " * _INDENT * 2).append(clean(command), "bold"), soft_wrap=True)

    def card(self, entry: Any, *, whole: bool = False) -> None:
        """Print a request's card as `agent-intercom-ctl pending` does, or as `show` does if `whole`."""
        self.gap()
        for line in ctl_draw.card_lines(entry, ctl_draw.now(), None if whole else ctl_draw.PENDING_LINES):
            self._put(line)
        self.gap()

    def gap(self) -> None:
        self._console.print()

    def ask(self, question: str) -> str:
        """Read a line. Raises KeyboardInterrupt if the person ends the input, NobodyThere without a terminal."""
        self._console.print(Text(" " * _INDENT).append(question, "bold yellow"), end=" ", soft_wrap=True)
        sys.stdout.flush()
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            self.gap()
            if sys.stdin is not None and sys.stdin.isatty():
                raise KeyboardInterrupt
            raise NobodyThere
        if not sys.stdin.isatty():
            # A terminal echoes what is typed; a pipe does not.
            self._console.print(clean(line.strip()))
        return line.strip()

    def _put(self, text: Text) -> None:
        # Wrapped here, because rich would pad each line with blanks, which are then copied too.
        for line in text.wrap(self._console, self._console.width - _INDENT, no_wrap=False):
            line.rstrip()
            self._console.print(Text(" " * _INDENT).append_text(line), soft_wrap=True)


def run(options: argparse.Namespace) -> int:
    """Play the demo. Returns 0 if it completed (whatever the answers), 1 if something failed, 2 for options that it
    does not accept, 130 if interrupted. It leaves no process running."""
    if options.config is not None:
        print("agent-intercom: the demo has a configuration of its own: leave --config out", file=sys.stderr)
        return 2
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _leave)
    page = Page()
    try:
        with demo_server(options.ipc_name) as at:
            try:
                with agent(at) as asking:
                    _Demo(page, at, asking, alone=options.yes).play()
            except DemoFailed:
                _show_log(at)
                raise
        return 0
    except KeyboardInterrupt:
        page.gap()
        page.say("Stopped. Nothing of it is running any more.")
        return 130
    except (DemoFailed, NoServer, Refusal, IntercomError, OSError) as failed:
        print(f"agent-intercom: the demo failed: {failed}; agent-intercom doctor may know why", file=sys.stderr)
        return 1


@define
class _Demo:
    page: Page
    at: DemoServer
    agent: Agent
    alone: bool

    def play(self) -> None:
        self.page.head("Intercom: an agent asks, you answer, and what you approved is what is written.")
        self.page.say("Everything here is temporary, and apart from any Intercom of yours.", "dim")
        self._arrives()
        self.page.step("It asks to add a file")
        entry = self._card()
        self.page.say(f"Elsewhere you would type: agent-intercom-ctl approve {short(entry['request_id'])}", "dim")
        self._decide(entry)
        self.page.step("It asks again, and the server is killed while you think")
        entry = self._card()
        self._kill(entry)
        self._decide(entry, killed=True)
        self.agent.hear("finished")
        self._record()
        self._what_is_left()

    def _arrives(self) -> None:
        self.page.step("An agent starts")
        self.page.say(f"{NAME}, process {self.agent.process.pid}: a scripted MCP client.")
        self.page.say("It starts agent-intercom over stdio, as Claude Code or Codex would.")
        told = self.agent.hear("connected")
        server = self.at.server_other_than(None)
        self.page.say(f"No server ran yet, so one was started in the background: process {server}.")
        self.page.say(f"The agent was offered {len(told['tools'])} tools, {told['seconds']:.1f} s after its start.")

    def _card(self) -> Any:
        """Wait for the agent's request, and show it."""
        self.agent.hear("asks")
        entry = until(lambda: next(iter(self._pending()), None), "no request came")
        self.page.say("Its call waits for you. Nothing is written before you say so.")
        self.page.card(entry)
        return entry

    def _kill(self, entry: Any) -> None:
        before = self.at.server()
        if before is None:
            raise DemoFailed("the server is gone")
        began = time.monotonic()
        os.kill(before, signal.SIGKILL)
        self.page.say(f"kill -9 {before}: the server is gone, in the middle of the agent's call.", "red")
        after = self.at.server_other_than(before)
        self._same(entry)
        seconds = time.monotonic() - began
        self.page.say(f"process {after}: the agent's side started it again, within {seconds:.1f} s.", "green")
        self.page.say("The request is still there, and the agent's call still waits. It noticed nothing.")
        self.page.gap()

    def _same(self, entry: Any) -> None:
        def still_open() -> bool | None:
            return [each["request_id"] for each in self._pending()] == [entry["request_id"]] or None

        until(still_open, "the request did not come back")

    def _pending(self) -> list[Any]:
        """Return the pending requests; none if no server listens yet."""
        try:
            return list(request(self.at.where, "pending", {}))
        except NoServer:
            return []

    def _decide(self, entry: Any, *, killed: bool = False) -> None:
        id = entry["request_id"]
        try:
            self._answer(entry)
        except Refusal as refusal:
            # The request expired before the answer; the agent is told so, and continues.
            self.page.say(f"{refusal}.", "yellow")
        told = self.agent.hear("answered")
        answer = told["answer"]
        call = "The call it made to the first server" if killed else "The agent's call"
        if told["calls"] > 1:
            # Like a client that ends a long call: it got "pending", and asked for the same request again.
            call = f"The last of {told['calls']} calls in which the agent waited"
        self.page.say(f"{call} returned after {told['seconds']:.1f} s, with status {answer['status']}.")
        if answer["status"] != "approved":
            if answer.get("reason"):
                self.page.say(f"It was told why: {answer['reason']}")
            self.page.say("So it wrote nothing.")
            return
        self.agent.hear("applied")
        file = self.at.workspace / FILE
        whole = request(self.at.where, "show", {"id": id})
        self.page.say(f"It had the server apply the change: {file.stat().st_size} bytes, sha256 {_hash(file)}.")
        self.page.say(f"The request is {whole['status']}.")

    def _answer(self, entry: Any) -> None:
        id = entry["request_id"]
        if self._approves(entry):
            request(self.at.where, "approve", {"id": id})
            self.page.say("Approved." if not self.alone else "Approved, as nobody was to be asked.", "green")
            return
        reason = self.page.ask("why not? (the agent is told; may be empty)")
        request(self.at.where, "reject", {"id": id, **({"reason": reason} if reason else {})})
        self.page.say("Rejected.", "red")

    def _approves(self, entry: Any) -> bool:
        while not self.alone:
            try:
                word = self.page.ask("approve? [y]es, [n]o, [d]etails:").lower()
            except NobodyThere:
                self.page.say("Nobody is there to answer, so the demo goes on as with --yes.", "yellow")
                self.alone = True
                break
            if word in ("y", "yes"):
                return True
            if word in ("n", "no"):
                return False
            if word in ("d", "details"):
                self.page.card(request(self.at.where, "show", {"id": entry["request_id"]}), whole=True)
            else:
                self.page.say("y approves, n rejects, d shows the request whole, ^C ends the demo.", "dim")
        return True

    def _record(self) -> None:
        self.page.step("All of it is on record")
        for each in request(self.at.where, "log", {"limit": 50})["entries"]:
            at = datetime.fromisoformat(each["at"]).astimezone()
            self.page.fact(f"{at:%H:%M:%S}", f"{each['who'] or '-':<12}  {each['kind']:<18}  {each['summary']}")

    def _what_is_left(self) -> None:
        self.page.step("What is left")
        file = self.at.workspace / FILE
        if file.exists():
            self.page.fact("file", str(file))
        else:
            self.page.say("No file, since you approved none.")
        self.page.say("The server and everything else of the demo is removed now.")
        self.page.gap()
        self.page.head("Next, in a project of yours")
        here = _called()
        connect = f"{here} init --write --client {NAMES[0]}"
        self.page.command(connect, f"connect your agent (or {', '.join(NAMES[1:])})")
        self.page.command(f"{here}-ctl watch", "see what it asks, and answer with a key")
        self.page.command(f"{here} doctor", "if something does not work")


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _called() -> str:
    """Return how the user can call agent-intercom: by name if the shell finds it, else by path."""
    ours = Path(sys.executable).parent / "agent-intercom"
    found = shutil.which("agent-intercom")
    if not ours.exists() or (found and os.path.realpath(found) == os.path.realpath(ours)):
        return "agent-intercom"
    near = os.path.relpath(ours)
    return near if len(near) < len(str(ours)) else str(ours)


def _show_log(at: DemoServer) -> None:
    for file in (at.log, Path(at.where.log_file)):
        if file.exists() and (tail := file.read_text(errors="backslashreplace").splitlines()[-8:]):
            print(f"the last lines of {file.name}:", *tail, sep="\n  ", file=sys.stderr)


def _leave(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
