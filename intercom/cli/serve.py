"""Running the server: in the foreground, in the background for a shim, or in a client's own process."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import trio
from attrs import evolve, frozen

from intercom._version import __version__
from intercom.app import App, database_path, is_newer
from intercom.cli import faults, logs
from intercom.local import config_file, lock
from intercom.local.places import Places, places, private_directory
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IntercomError, VersionMismatch

#: A background server with nobody connected and nothing pending leaves after so many seconds.
IDLE_SECONDS = 300.0
FAILED = 1
USAGE = 2


@frozen
class Settings:
    """What a server runs with; `digest` is that of the configuration file as it was read, None without a file."""

    config: Config
    places: Places
    path: Path | None
    digest: str | None

    @property
    def database(self) -> Path:
        return database_path(self.config, self.places)


def serve(options: argparse.Namespace) -> int:
    """`agent-intercom serve`: run until SIGTERM or SIGINT. What waits stays pending."""
    ready = Readiness(options.ready_fd)
    try:
        settings = _settings(options)
        _log(settings, options)
        if options.private_fd is not None:
            return trio.run(_private, settings, options.private_fd)
        with lock.acquire(_prepared(settings.database), version=__version__):
            return trio.run(_serve, settings, ready, bool(options.background))
    except BaseException as failed:
        error = _told(failed)
        ready.failed(error, retry=isinstance(failed, lock.DatabaseLocked), sandboxed=_is_denied(failed))
        if isinstance(failed, KeyboardInterrupt | SystemExit):
            raise
        return _say(error, failed)


def in_process(options: argparse.Namespace) -> int:
    """`agent-intercom --in-process`: MCP on this process's stdin and stdout, until stdin ends."""
    try:
        settings = _settings(options)
        _log(settings, options)
        with lock.acquire(_prepared(settings.database), version=__version__):
            return trio.run(_in_process, settings, options.workspace)
    except Exception as failed:
        return _say(_told(failed), failed)


async def _serve(settings: Settings, ready: Readiness, background: bool) -> int:
    app = _app(settings)
    faults.arm(app.system)
    async with app.system:
        logs.log.info("MCP server ready (version %s, life %s)", __version__, app.life)
        ready.done()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_signal, app)
            if background:
                nursery.start_soon(_until_idle, app)
    return 0


async def _in_process(settings: Settings, workspace: str | None) -> int:
    from intercom.agents import stdio
    from intercom.agents.door import Door

    app = _app(settings, frozenset({"ctl"}))
    key = uuid.uuid4().hex
    async with app.system, trio.open_nursery() as nursery:
        nursery.start_soon(_until_signal, app)
        app.processes.came(key, frozenset({os.getppid()}))
        door = Door(app.system, settings.config, key, workspace, os.getcwd())
        await stdio.serve(app.surroundings.server, door)
        app.system.request_stop()
    return 0


async def _private(settings: Settings, descriptor: int) -> int:
    """A server for one shim, where nothing may be written that outlives it."""
    from actors import StartChild, ask
    from actors.spec import ChildSpec, Restart
    from intercom.agents.links import Link

    with tempfile.TemporaryDirectory(prefix="agent-intercom-") as directory:
        database = evolve(settings.config.database, path=Path(directory) / "agent-rc.db")
        app = _app(evolve(settings, config=evolve(settings.config, database=database)), frozenset())
        gone = trio.Event()
        # The socket pair is known to the shim alone, so there is no token to show.
        surroundings = evolve(app.surroundings, token="", left=lambda _door, _said: gone.set())
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor)))
        async with app.system:
            spec = ChildSpec("link/private", lambda: Link(stream, surroundings), restart=Restart.TEMPORARY)
            await ask(app.system.named("links"), StartChild(spec))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_signal, app)
                await gone.wait()
                app.system.request_stop()
    return 0


async def _until_signal(app: App) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for received in signals:
            logs.log.info("%s: stopping; what waits stays pending", signal.Signals(received).name)
            app.system.request_stop()
            return


async def _until_idle(app: App) -> None:
    """A background server leaves when nobody needs it: nothing connected and nothing pending, for a while."""
    quiet = 0.0
    while quiet < IDLE_SECONDS:
        await trio.sleep(5.0)
        busy = not app.is_idle() or bool(await app.desk.pending())
        quiet = 0.0 if busy else quiet + 5.0
    logs.log.info("nobody is connected and nothing waits: leaving")
    app.system.request_stop()


def _app(settings: Settings, doors: frozenset[str] = frozenset({"ctl", "shims"})) -> App:
    def outdated(hello: dict[str, Any]) -> bool:
        if not is_newer(str(hello.get("version", "0"))):
            return False
        logs.log.info("a shim of version %s asks for a newer server: stepping down", hello.get("version"))
        app.system.request_stop()
        return True

    app = App(
        settings.config,
        settings.places,
        settings.database,
        doors,
        judge=lambda hello: judge(settings, hello),
        outdated=outdated,
        on_event=logs.of_actors,
    )
    return app


def judge(settings: Settings, hello: dict[str, Any]) -> None:
    """Refuse a shim that was started with another configuration than this server's, saying what differs and what to
    do. Raises IntercomError (`config_mismatch`)."""
    theirs = hello.get("config")
    if theirs is None:
        return
    ours = str(settings.path) if settings.path is not None else "no configuration file"
    if settings.path is None or os.path.realpath(theirs) != os.path.realpath(settings.path):
        raise VersionMismatch(
            f"the running server uses {ours}, this agent was started with --config {theirs}: start it with the server's"
            " configuration, give its own another ipc_name and [database] path, or stop the server with"
            " agent-intercom stop",
            code="config_mismatch",
        )
    if hello.get("config_digest") not in (None, settings.digest):
        raise VersionMismatch(
            f"{theirs} has changed since the server read it ({_differing(settings, str(theirs))}): let the server read"
            " it with agent-intercom stop; it starts again by itself, and nothing that waits is lost",
            code="config_mismatch",
        )


def _differing(settings: Settings, path: str) -> str:
    try:
        now = config_file.load(Path(path))
    except IntercomError as fault:
        return f"it is not valid now: {fault}"
    names = [name for name in _names(now) if getattr(now, name) != getattr(settings.config, name)]
    return f"settings that differ: {', '.join(names)}" if names else "only comments or layout differ"


def _names(config: Config) -> list[str]:
    return [attribute.name for attribute in type(config).__attrs_attrs__]


def _settings(options: argparse.Namespace) -> Settings:
    path = Path(options.config).absolute() if options.config is not None else None
    name = options.ipc_name
    if path is None:
        users = Path(places(name or "agent-intercom").config_file)
        path = users if users.exists() else None
    config = config_file.load(path)
    return Settings(config, places(name or config.ipc_name), path, _digest(path))


def _digest(path: Path | None) -> str | None:
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def _prepared(database: Path) -> Path:
    """Make the directory the database and its lock stand in; one that is there is the user's business."""
    if not database.parent.is_dir():
        private_directory(str(database.parent))
    return database


def _log(settings: Settings, options: argparse.Namespace) -> None:
    file = settings.config.logging.file
    if getattr(options, "background", False) and file is None:
        file = Path(settings.places.log_file)
    logs.set_up(settings.config.logging.level.value, options.log_format, file)


class Readiness:
    """Tells the shim that started us how that went, as one JSON line on the descriptor it gave."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def done(self) -> None:
        self._tell({"ready": True})

    def failed(self, error: IntercomError, *, retry: bool, sandboxed: bool) -> None:
        told = {"code": error.error_code, "message": error.message, "retry": retry, "sandboxed": sandboxed}
        self._tell({"error": told})

    def _tell(self, said: dict[str, Any]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(said).encode() + b"\n")
            os.close(self._descriptor)
        except OSError:
            # The shim did not wait for us; others may.
            pass
        self._descriptor = None


def _told(failed: BaseException) -> IntercomError:
    """What went wrong, in words: the refusal at the bottom of it, if there is one."""
    seen: BaseException | None = failed
    while seen is not None:
        if isinstance(seen, IntercomError):
            return seen
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
            continue
        seen = getattr(seen, "reason", None) or seen.__cause__
    if isinstance(failed, OSError):
        return ConfigError(f"{failed.filename or 'a file'} can not be used: {failed.strerror}", code="config")
    return IntercomError(f"the server failed ({type(failed).__name__}); its log says more", code="unavailable")


def _is_denied(failed: BaseException) -> bool:
    return isinstance(failed, PermissionError) or (isinstance(failed, OSError) and failed.errno == 30)


def _say(error: IntercomError, failed: BaseException) -> int:
    print(f"agent-intercom: {error.message}", file=sys.stderr)
    if error.error_code == "unavailable":
        logs.log.error("the server failed", exc_info=failed)
    return USAGE if isinstance(error, ConfigError) else FAILED
