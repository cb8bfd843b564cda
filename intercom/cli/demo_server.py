"""The demo's server and agent, in directories of their own, apart from any Intercom the user has."""

from __future__ import annotations

import contextlib
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil
from attrs import define, frozen

from intercom.local import lock, own_files
from intercom.local.places import Places, places
from intercom.model.errors import ConfigError, IpcError

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
        return holder.pid if holder is not None and holder.pid else None

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
                raise DemoFailed("the agent ended without a word")
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
    command = [sys.executable, "-P", "-m", "intercom.cli.demo_agent", str(at.workspace), at.where.ipc_name]
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
