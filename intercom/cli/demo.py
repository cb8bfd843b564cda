"""`agent-intercom demo`: the main job from end to end, in one terminal, with the server killed on the way.

`python -m intercom.cli.demo WORKSPACE IPC_NAME` is the demo's agent: a scripted MCP client in its own process, like a
coding agent. It reports events as JSON lines on stdout. It ends when its stdin closes: the demo may be killed, and
neither the agent nor the server may keep running.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import psutil
import trio
from attrs import define, frozen
from rich.console import Console
from rich.text import Text

from intercom._version import __version__
from intercom.agents.clients import NAMES
from intercom.cli import ctl_draw
from intercom.cli.ctl_text import clean, short
from intercom.local import lock, own_files
from intercom.local.places import Places, places
from intercom.model.card import Card
from intercom.model.errors import ConfigError, IntercomError, IpcError
from intercom.model.json_types import Json
from intercom.operators.commands.json_forms import read
from intercom.operators.ctl.client import NoServer, Refusal, request

if TYPE_CHECKING:
    from mcp.client import Client


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

    def card(self, card: Card, *, whole: bool = False) -> None:
        """Print a request's card as `agent-intercom-ctl pending --full` does, or as `show` does if `whole`."""
        self.gap()
        for line in ctl_draw.card_lines(card, ctl_draw.now(), None if whole else ctl_draw.PENDING_LINES):
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
        page.say("Stopped. Nothing of the demo is running any more.")
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
        self.page.say("Everything here is temporary, and separate from your own Intercom.", "dim")
        self._arrives()
        self.page.step("It asks to add a file")
        card = self._card()
        self.page.say(f"Elsewhere you would type: agent-intercom-ctl approve {short(card.id)}", "dim")
        self._decide(card)
        self.page.step("It asks again, and the server is killed while you think")
        card = self._card()
        self._kill(card)
        self._decide(card, killed=True)
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

    def _card(self) -> Card:
        """Wait for the agent's request, and show it."""
        self.agent.hear("asks")
        card = until(lambda: next(iter(self._pending()), None), "no request came")
        self.page.say("Its call waits for you. Nothing is written before you say so.")
        self.page.card(card)
        return card

    def _kill(self, card: Card) -> None:
        before = self.at.server()
        if before is None:
            raise DemoFailed("the server is gone")
        began = time.monotonic()
        os.kill(before, signal.SIGKILL)
        self.page.say(f"kill -9 {before}: the server is gone, in the middle of the agent's call.", "red")
        after = self.at.server_other_than(before)
        self._same(card)
        seconds = time.monotonic() - began
        self.page.say(f"process {after}: the agent's side started it again, within {seconds:.1f} s.", "green")
        self.page.say("The request is still there, and the agent's call still waits. It noticed nothing.")
        self.page.gap()

    def _same(self, card: Card) -> None:
        def still_open() -> bool | None:
            return [each.id for each in self._pending()] == [card.id] or None

        until(still_open, "the request did not come back")

    def _pending(self) -> list[Card]:
        """Return the pending requests; none if no server listens yet."""
        try:
            return read(list[Card], request(self.at.where, "pending", {}))
        except NoServer:
            return []

    def _decide(self, card: Card, *, killed: bool = False) -> None:
        try:
            self._answer(card)
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
        whole = request(self.at.where, "show", {"id": card.id})
        self.page.say(f"It had the server apply the change: {file.stat().st_size} bytes, sha256 {_hash(file)}.")
        self.page.say(f"The request is {whole['status']}.")

    def _answer(self, card: Card) -> None:
        if self._approves(card):
            request(self.at.where, "approve", {"id": card.id})
            self.page.say("Approved." if not self.alone else "Approved: nobody was to be asked.", "green")
            return
        reason = self.page.ask("why not? (the agent is told; may be empty)")
        request(self.at.where, "reject", {"id": card.id, **({"reason": reason} if reason else {})})
        self.page.say("Rejected.", "red")

    def _approves(self, card: Card) -> bool:
        while not self.alone:
            try:
                word = self.page.ask("approve? [y]es, [n]o, [d]etails:").lower()
            except NobodyThere:
                self.page.say("Nobody is there to answer, so the demo continues as with --yes.", "yellow")
                self.alone = True
                break
            if word in ("y", "yes"):
                return True
            if word in ("n", "no"):
                return False
            if word in ("d", "details"):
                self.page.card(read(Card, request(self.at.where, "show", {"id": card.id})), whole=True)
            else:
                self.page.say("y approves, n rejects, d shows the request whole, ^C ends the demo.", "dim")
        return True

    def _record(self) -> None:
        self.page.step("All of it is recorded")
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
        self.page.command(connect, f"connect your agent (or {', '.join(NAMES[1:4])} and others)")
        self.page.command(f"{here}-ctl", "see what it asks, and answer with a key")
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


T = TypeVar("T")

#: Seconds to wait for a start or an answer; a person's thinking time is not included.
PATIENCE = 60.0

#: Seconds that a process has to end by itself before it is killed.
GRACE = 5.0

_PAUSE = 0.05


class DemoFailed(Exception):
    """Raised if an expected step did not happen; the message says which."""


@frozen
class DemoServer:
    """The demo's directories. The agent may change `workspace`, which stays; `private` holds the rest, and is
    removed."""

    workspace: Path
    private: Path
    where: Places
    environ: Mapping[str, str]

    @property
    def log(self) -> Path:
        """The stderr output of the agent and its shim."""
        return self.private / "agent.log"

    def server(self) -> int | None:
        """Return the process id of the running server, or None."""
        holder = lock.holder(self.where.database)
        return None if holder is None else holder.pid

    def server_other_than(self, before: int | None) -> int:
        """Wait for a server whose process id is not `before`. Raises DemoFailed if none comes."""
        return until(lambda: pid if (pid := self.server()) != before else None, "no server came up")


@define
class Agent:
    """The agent's process, and the events that it reports."""

    process: subprocess.Popen[bytes]
    _said: bytes = b""

    def hear(self, event: str) -> dict[str, Any]:
        """Wait for `event`, which must be the agent's next. Raises DemoFailed if another event comes, or none."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._said:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise DemoFailed(f"the agent said nothing for {PATIENCE:.0f} s, where it should have {event}")
            chunk = os.read(self.process.stdout.fileno(), 65536)
            if not chunk:
                raise DemoFailed("the agent ended without a message")
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        if told["event"] == "failed":
            raise DemoFailed(f"the agent failed: {told['message']}")
        if told["event"] != event:
            raise DemoFailed(f"the agent {told['event']}, where it should have {event}")
        return told


def until(look: Callable[[], T | None], otherwise: str) -> T:
    """Call `look` until it returns something. Raises DemoFailed with `otherwise` after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while (found := look()) is None:
        if time.monotonic() >= deadline:
            raise DemoFailed(f"{otherwise} within {PATIENCE:.0f} s")
        time.sleep(_PAUSE)
    return found


@contextlib.contextmanager
def demo_server(wish: str | None) -> Iterator[DemoServer]:
    """Create the demo's environment. At the end its processes are ended, and everything except a used workspace is
    removed. Its random name begins with `wish`, and identifies its processes."""
    name = f"{wish or 'demo'}-{secrets.token_hex(4)}"
    workspace = Path(tempfile.mkdtemp(prefix="intercom-demo-")).resolve()
    private = _private()
    try:
        try:
            where = places(name, _environment(private))
        except IpcError:
            # The default temporary directory is too deep for a socket's path.
            shutil.rmtree(private)
            private = _private("/tmp")
            where = places(name, _environment(private))
        with _own(where):
            yield DemoServer(workspace, private, where, _environment(private))
    finally:
        with _undisturbed():
            end_all(name)
            shutil.rmtree(private, ignore_errors=True)
            with contextlib.suppress(OSError):
                workspace.rmdir()


@contextlib.contextmanager
def _own(where: Places) -> Iterator[None]:
    """Record the demo's directories as the user's own until the demo ends, for servers that its agent starts."""
    directories = (os.path.dirname(where.config_file), where.state_dir)
    Path(where.state_dir).mkdir(mode=0o700, exist_ok=True)
    try:
        own_files.record_directories(*directories)
    except (ConfigError, OSError) as fault:
        raise DemoFailed(f"{own_files.directories_file()} could not be written: {fault}") from fault
    try:
        yield
    finally:
        with _undisturbed(), contextlib.suppress(ConfigError, OSError):
            own_files.forget_directories(*directories)


@contextlib.contextmanager
def agent(at: DemoServer) -> Iterator[Agent]:
    """Run the agent until the end of the block. It leads its own session, so that keys typed here do not reach it, and
    what is typed here is not taken for the agent's."""
    command = [sys.executable, "-P", "-m", "intercom.cli.demo", str(at.workspace), at.where.ipc_name]
    with at.log.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=at.environ,
            cwd=at.workspace,
            start_new_session=True,
        )
    try:
        yield Agent(process)
    except BaseException:
        # In the middle of a call, the agent and its shim would end slowly.
        with _undisturbed():
            end_all(at.where.ipc_name)
        raise
    finally:
        with _undisturbed():
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _private(within: str | None = None) -> Path:
    made = Path(tempfile.mkdtemp(prefix="icd-", dir=within)).resolve()
    for directory in ("run", "config", "state"):
        (made / directory).mkdir(mode=0o700)
    # The demo asks its user, possibly without a terminal. No agent but the demo's own uses this server.
    config = made / "config" / "agent-intercom"
    config.mkdir(mode=0o700)
    (config / "config.toml").write_text("[ctl]\ntrust_agent_processes = true\n")
    return made


def _environment(private: Path) -> dict[str, str]:
    """Return this process's environment without the variables that would reach the user's own Intercom or Slack."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLACK_", "INTERCOM_"))}
    return {
        **kept,
        "XDG_RUNTIME_DIR": str(private / "run"),
        "XDG_CONFIG_HOME": str(private / "config"),
        "XDG_STATE_HOME": str(private / "state"),
    }


def end_all(name: str) -> None:
    """End all processes of the demo `name` except this one. The name on their command line identifies them."""
    deadline = time.monotonic() + GRACE
    while running := _running(name):
        late = time.monotonic() >= deadline
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL if late else signal.SIGTERM)
        psutil.wait_procs(running, timeout=GRACE)


def _running(name: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if name in (process.info["cmdline"] or ()) and process.pid != os.getpid():
            found.append(process)
    return found


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore signals, so that a second ^C cannot interrupt the cleanup."""
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


NAME = "demo-agent"
FILE = "hello.py"

FIRST = '''\
"""Say hello."""


def hello(name: str) -> str:
    return f"Hello, {name}!"
'''

SECOND = '''\
"""Say hello, politely."""


def hello(name: str, title: str = "") -> str:
    if title:
        name = f"{title} {name}"
    return f"Hello, {name}!"
'''

SHORTER = 'print("Hello!")\n'


def main() -> None:
    workspace, ipc_name = sys.argv[1:]
    try:
        trio.run(_until_left_alone, Path(workspace), ipc_name)
    except BaseException as failed:
        tell("failed", message=_message(failed))
        raise SystemExit(1) from None
    finally:
        # The demo, which normally ends the server, may have been killed.
        end_all(ipc_name)


def tell(event: str, **what: Json) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


async def _until_left_alone(workspace: Path, ipc_name: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave_with_parent, nursery.cancel_scope)
        nursery.start_soon(_work, workspace, ipc_name)


async def _leave_with_parent(scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
    scope.cancel()


async def _work(workspace: Path, ipc_name: str) -> None:
    # Imported lazily: it takes half a second, and the demo itself imports only names from this module.
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp_types import Implementation

    began = time.monotonic()
    shim = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "intercom.cli.main", "--workspace", str(workspace), "--ipc-name", ipc_name],
        env=dict(os.environ),
        cwd=workspace,
    )
    async with Client(stdio_client(shim), client_info=Implementation(name=NAME, version=__version__)) as client:
        tools = (await client.list_tools()).tools
        tell("connected", tools=[tool.name for tool in tools], seconds=time.monotonic() - began)
        call = partial(_call, client)
        await _propose(call, f"Add {FILE}", FIRST, "A greeting, to begin with.")
        if (workspace / FILE).exists():
            await _propose(call, f"Let {FILE} take a title", patch(FIRST, SECOND), "Greets Dr. Ada as such.")
        else:
            await _propose(call, f"Add a shorter {FILE}", SHORTER, "The first one was not wanted. Perhaps this?")
        tell("finished")
        # The server ends with this process; until then the demo may read its log.
        await trio.sleep_forever()


async def _propose(call: Callable[..., Awaitable[dict[str, Any]]], title: str, diff: str, description: str) -> None:
    tell("asks", title=title)
    began = time.monotonic()
    answer = await call("check_clearance", title=title, diff=diff, file_path=FILE, description=description)
    calls = 1
    while answer["status"] == "pending":
        answer = await call("check_clearance", request_id=answer["request_id"])
        calls += 1
    tell("answered", seconds=time.monotonic() - began, calls=calls, answer=answer)
    if answer["status"] == "approved":
        tell("applied", answer=await call("check_diff", request_id=answer["request_id"]))


async def _call(client: Client, tool: str, **arguments: str) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    answer = result.structured_content
    if result.is_error or not isinstance(answer, dict):
        said = answer.get("error_message") if isinstance(answer, dict) else None
        raise RuntimeError(f"{tool} was refused: {said or result.content}")
    return answer


def patch(before: str, after: str) -> str:
    """Return the diff that turns the demo's file from `before` into `after`."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{FILE}", f"b/{FILE}"
    )
    return "".join(lines)


def _message(failed: BaseException) -> str:
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return str(failed) or type(failed).__name__


if __name__ == "__main__":
    main()
