"""The rig: directories of its own, agents and operators at work, and faults in between."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from attrs import define, field, frozen

from intercom.local import lock, own_files
from intercom.local.places import Places, places
from tests.chaos.operator_desk import Operators
from tests.chaos.service_manager import ServiceManager
from tests.chaos.slack_people import SlackPeople
from tests.chaos.starter import Starter
from tests.chaos.witness import Witness
from tests.operators.slack.live.truth import Found
from tests.slack_standin import CHANNEL
from tests.support import server_forks
from tests.support.server_forks import Starts
from tests.support.server_process import FAULTY

AGENT = Path(__file__).with_name("agent.py")
ROOT = Path(__file__).resolve().parents[2]

CONFIG = """\
[clients.chaos-hasty]
call_wait_seconds = 1

[timeouts]
prompt_seconds = 3600
"""
#: What stands before the first table.
SERVICE_TOP = """\
http_port = {port}
host_cli = {python}
host_cli_args = [{agent}, "--child", {settings}, "--"]
max_concurrent_sessions = 4
"""
SERVICE_CONFIG = f"""
[slack]
channel_id = "{CHANNEL}"
reconnect_backoff_max_seconds = 2

[spawn]
environment = ["PYTHONPATH"]
"""

#: Seconds the next fault of a list may take to strike, the server to be there again.
STRIKE_SECONDS = 60.0
PROCESS_STRIKE_SECONDS = 240.0
BACK_SECONDS = 60.0


#: Faults that only come about when an agent comes by another shim: one is killed for them.
ONLY_NEW_SHIMS = ("session.opened", "session.adopted", "SessionRegistry")
#: Seconds between two such kills.
AGAIN_SECONDS = 5.0


class Broken(Exception):
    """The rig cannot go on; says what did not happen."""


@frozen
class Plan:
    """How much is to happen. `faults` come first, one by one (see `tests.support.faults`), then the random kills."""

    seed: str
    agents: int
    processes: int
    server_kills: int
    shim_kills: int
    faults: tuple[str, ...] = ()
    #: Whether a service manager keeps the server, with Slack and all, instead of the shims that need one.
    service: bool = False
    #: Seconds an agent rests between two things it does, about.
    pause: float = 0.0
    #: Seconds a call of an agent may take.
    patience: float = 90.0

    @property
    def finish_seconds(self) -> float:
        """Seconds everybody may take to finish: the last call, and what is around it."""
        return self.patience + 30


@define
class Rig:
    """What runs, and where. Built by `rig`, which also cleans up."""

    plan: Plan
    root: Path
    environment: dict[str, str]
    #: Where its servers come from.
    starts: Starts
    places: Places
    dice: random.Random
    drivers: list[subprocess.Popen[bytes]] = field(factory=list)
    servers: set[int] = field(factory=set)
    #: How many were killed in all; and how many of them at random instants, and not to let a fault come about.
    killed_servers: int = 0
    killed_shims: int = 0
    random_server_kills: int = 0
    random_shim_kills: int = 0
    _next_help: float = 0.0
    witness: Witness = field(factory=Witness)
    operators: Operators = field(init=False)
    slack: SlackPeople | None = None
    shown: Found | None = None
    port: int = 0
    agents: list[dict[str, Any]] = field(factory=list)
    starter: Starter | None = None
    left_running: list[str] = field(factory=list)
    _manager: ServiceManager | None = None

    def __attrs_post_init__(self) -> None:
        # With people in Slack, who have farther to go, those at the terminal leave them something to do.
        self.operators = Operators(self.places, self.plan.seed, later=0.8 if self.plan.service else 0.4)

    @property
    def database(self) -> Path:
        return Path(self.places.database)

    @property
    def queue(self) -> Path:
        return self.root / "faults"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def errors(self) -> Path:
        """Where a server that is kept as a service says what it has to say."""
        return self.root / "server.err"

    def struck(self) -> list[str]:
        """The faults that have come true, in order."""
        done = self.root / "faults.done"
        return done.read_text().split() if done.exists() else []

    def workspaces(self) -> list[Path]:
        """The directories that agents work in."""
        return sorted((self.root / "ws").iterdir())

    def configuration(self) -> str:
        """What its server is told."""
        if not self.plan.service:
            return CONFIG
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        top = SERVICE_TOP.format(
            port=self.port,
            python=json.dumps(sys.executable),
            agent=json.dumps(str(AGENT)),
            settings=json.dumps(str(self.root / "agent_process.json")),
        )
        return f"{top}{CONFIG}{SERVICE_CONFIG}"

    # --- what runs ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the agents, wait until each has a session, and let the operators begin."""
        self.queue.write_text("".join(f"{fault}\n" for fault in self.plan.faults))
        if self.plan.service and self._manager is None:
            self.open_service()
        self.agents = agents = [self._agent(number) for number in range(self.plan.agents)]
        common = {"seed": self.plan.seed, "stop": str(self.root / "stop"), "logs": str(self.logs)}
        common |= {"rounds": 1_000_000, "pause": self.plan.pause, "patience": self.plan.patience}
        if self.plan.service:
            common["http"] = {
                "url": f"http://127.0.0.1:{self.port}/mcp?agent={{agent}}&workspace={{workspace}}",
                "token": own_files.http_token(self.places),
            }
        (self.root / "agent_process.json").write_text(json.dumps(common))
        for number in range(self.plan.processes):
            settings = {**common, "agents": agents[number :: self.plan.processes]}
            file = self.root / f"driver-{number}.json"
            file.write_text(json.dumps(settings))
            with open(self.root / f"driver-{number}.err", "wb") as errors:
                driver = subprocess.Popen(
                    [sys.executable, str(AGENT), str(file)],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    cwd=self.root,
                    start_new_session=True,
                )
            self.drivers.append(driver)
        names = [agent["name"] for agent in agents]
        self.operators.start()
        self.until(lambda: all(self._has_begun(name) for name in names), BACK_SECONDS, "every agent has a session")
        if self.plan.service:
            (workspace := self.root / "ws" / "children").mkdir()
            self.witness.watch(workspace)
            self.starter = Starter(self.places, workspace, self.plan.seed, pause=0.1 + 5 * self.plan.pause)
            self.starter.start()

    def open_service(self) -> None:
        """Start Slack, and a server that is kept."""
        self.slack = SlackPeople(self.plan.seed)
        self.slack.start()
        environment = {**self.environment, **self.slack.environment}
        self._manager = ServiceManager(self.starts, self.places, environment, self.errors)
        self._manager.start()

    def _agent(self, number: int) -> dict[str, Any]:
        # Two share a workspace, and each its session.
        workspace = self.root / "ws" / f"{number // 2}"
        name = f"a{number}"
        if not workspace.exists():
            workspace.mkdir()
            self.witness.watch(workspace)
        # This directory is there and can be watched; the agent makes others.
        (workspace / name).mkdir()
        self.witness.watch(workspace / name)
        return {
            "name": name,
            "mode": "auto" if number % 2 else "legacy",
            "workspace": str(workspace),
            "client": "chaos-hasty" if number % 3 == 0 else "claude-code",
            # Two eras, two clients.
            "over_http": self.plan.service and number % 4 in (1, 2),
        }

    def _has_begun(self, name: str) -> bool:
        file = self.logs / f"{name}.jsonl"
        return file.exists() and '"tool": "ping"' in file.read_text()

    # --- what happens to it ------------------------------------------------------------------------------------------

    def strike_all(self) -> None:
        """Wait until every fault of the list has come true."""
        while (before := len(self.struck())) < len(self.plan.faults):
            fault = self.plan.faults[before]
            # There are few agents that people start, and fewer that come to such an end.
            seconds = PROCESS_STRIKE_SECONDS if fault.split(":")[1].startswith("agent_process.") else STRIKE_SECONDS
            self.until(partial(self._has_struck, before, fault), seconds, f"the fault {fault} comes true")

    def _has_struck(self, before: int, fault: str) -> bool:
        if len(self.struck()) > before:
            return True
        self._watch_drivers()
        target = fault.split(":")[1]
        if target in ONLY_NEW_SHIMS and time.monotonic() > self._next_help:
            self._next_help = time.monotonic() + AGAIN_SECONDS
            if shims := self.shims():
                self.killed_shims += self._kill(self.dice.choice(shims))
        return False

    def kill_servers(self) -> None:
        """Kill the server at random instants, each time once it is there again."""
        while self.random_server_kills < self.plan.server_kills:
            pid = self.server()
            if self.random_server_kills % 4 == 0:
                # With all that it brings back, and on a busy machine, it may fall each time before anybody is answered.
                self._let_answer()
            time.sleep(self.dice.uniform(0.0, 1.6) if self.dice.random() < 0.8 else self.dice.uniform(0.0, 0.3))
            if self._kill(pid):
                self.killed_servers += 1
                self.random_server_kills += 1

    def _let_answer(self) -> None:
        """Wait until half of the agents have been answered something."""
        files = [self.logs / f"{agent['name']}.jsonl" for agent in self.agents]
        before = {file: file.stat().st_size for file in files}

        def answered(file: Path) -> bool:
            with file.open("rb") as log:
                log.seek(before[file])
                return b'"what": "answered"' in log.read()

        enough = len(files) // 2
        self.until(lambda: sum(map(answered, files)) >= enough, self.plan.finish_seconds, "agents are answered")

    def kill_shims(self) -> None:
        """Kill shims at random instants."""
        while self.random_shim_kills < self.plan.shim_kills:
            time.sleep(self.dice.uniform(0.1, 0.8))
            self.witness.look()
            shims = self.shims()
            if shims and self._kill(self.dice.choice(shims)):
                self.killed_shims += 1
                self.random_shim_kills += 1

    def server(self) -> int:
        """The server's process, waiting for one that was not killed yet."""
        found = 0

        def there() -> bool:
            nonlocal found
            self._watch_drivers()
            if not self.database.parent.exists():
                return False
            holder = lock.holder(self.database)
            found = 0 if holder is None else holder.pid or 0
            return found != 0 and found not in self.servers

        self.until(there, BACK_SECONDS, "there is a server")
        return found

    def shims(self) -> list[int]:
        """The living shims of all agents, oldest first."""
        found = []
        for driver in self.drivers:
            try:
                found += [child.pid for child in psutil.Process(driver.pid).children() if child.status() != "zombie"]
            except psutil.Error:
                continue
        return sorted(found)

    def _kill(self, pid: int) -> bool:
        self.servers.add(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def until_decided(self, count: int, by: str = "") -> None:
        """Wait until so many requests are decided, by operators whose decisions' ids begin so."""
        self.until(lambda: self._decided(by) >= count, self.plan.finish_seconds, f"{count} decisions {by} are made")

    def _decided(self, by: str) -> int:
        self._watch_drivers()
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as db:
            tables = ("approval_request", "continuation_prompt", "wait")
            counts = [f"select count(*) from {table} where verdict_id glob ?" for table in tables]
            return sum(db.execute(each, (f"{by}*",)).fetchone()[0] for each in counts)

    # --- the end -----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """See what files were written, and that the agents are well."""
        self.witness.look()
        self._watch_drivers()

    def stop_agents(self) -> None:
        """Let the agents finish what they began, and leave; no more are started."""
        (self.root / "stop").touch()
        self.until(
            lambda: all(d.poll() is not None for d in self.drivers), self.plan.finish_seconds, "all agents finish"
        )
        if self.starter is not None:
            self.starter.stop()
            self.until(
                lambda: self.starter.running(everything=True) == 0,
                self.plan.finish_seconds,
                "all agents that were started end",
            )

    def finish(self) -> None:
        """Let the agents finish what they began, answer what is left, and stop the server."""
        self.stop_agents()
        self.operators.finish()
        with self._serving():
            self.until(
                lambda: self.operators.pending == 0, self.plan.finish_seconds, "every pending request can be answered"
            )
            self.operators.stop()
            if self.slack is not None:
                self.shown = self.slack.compare(self.database)
        if self.plan.service:
            left = [each for each in _mine(self.root) if each.pid != self.starts.pid]
            self.left_running = [" ".join(each.cmdline()) for each in left]

    @contextmanager
    def _serving(self) -> Iterator[None]:
        """A server stays for as long as this does, whoever has started it."""
        if self._manager is not None:
            self.server()
            yield
            self._manager.stop()
        elif lock.holder(self.database) is None:
            server = self.starts.start(["serve"], self.environment, cwd=self.root)
            try:
                yield
            finally:
                server.terminate()
                server.wait(30)
        else:
            yield
            command = [*FAULTY, "stop"]
            subprocess.run(
                command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30
            )

    def until(self, true: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something is true; raises Broken, naming it, when it does not come about."""
        deadline = time.monotonic() + seconds
        while not true():
            self.witness.look()
            if time.monotonic() > deadline:
                raise Broken(f"within {seconds:g} s it did not come about that {what}")
            time.sleep(0.02)

    def _watch_drivers(self) -> None:
        for number, driver in enumerate(self.drivers):
            if driver.poll() not in (None, 0):
                raise Broken(f"driver {number} fell: {(self.root / f'driver-{number}.err').read_text()[-2000:]}")

    def clean_up(self) -> None:
        """End every process there is; nothing outlives the rig."""
        self.operators.stop()
        if self.starter is not None:
            self.starter.stop()
        if self._manager is not None:
            self._manager.stop()
        if self.slack is not None:
            self.slack.stop()
        self.witness.close()
        for driver in self.drivers:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            driver.wait()
        # A shim that was just starting a server may still bring it up.
        deadline = time.monotonic() + 5
        quiet = 0
        while quiet < 3 and time.monotonic() < deadline:
            ours = [process for process in _mine(self.root) if process.pid != os.getpid()]
            for process in ours:
                try:
                    process.kill()
                except psutil.Error:
                    pass
            quiet = 0 if ours else quiet + 1
            time.sleep(0.05)


def _mine(root: Path) -> Sequence[psutil.Process]:
    """Processes that live in this rig's directories."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_RUNTIME_DIR", "").startswith(f"{root}/"):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def rig(plan: Plan, keep: bool = False) -> Iterator[Rig]:
    """A rig in short-named directories (sockets live there), gone afterwards unless it is to be kept."""
    root = Path(tempfile.mkdtemp(prefix="ic-", dir="/tmp"))
    for name, mode in (("run", 0o700), ("state", 0o700), ("cfg", 0o700), ("logs", 0o755), ("ws", 0o755)):
        (root / name).mkdir(mode=mode)
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ},
        "HOME": str(root),
        "PYTHONPATH": str(ROOT),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "XDG_STATE_HOME": str(root / "state"),
        "XDG_CONFIG_HOME": str(root / "cfg"),
        "INTERCOM_FAULT": f"queue:{root / 'faults'}",
    }
    # What belongs to the rig is found by its environment.
    starts = server_forks.starts(environment)
    if starts.address is not None:
        environment[server_forks.VARIABLE] = starts.address
    (root / "cfg" / "agent-intercom").mkdir()
    made = Rig(plan, root, environment, starts, places(environ=environment), random.Random(plan.seed))
    (root / "cfg" / "agent-intercom" / "config.toml").write_text(made.configuration())
    try:
        yield made
    finally:
        made.clean_up()
        starts.close()
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
