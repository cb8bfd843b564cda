"""Runs the server: in the foreground, in the background for a shim, or in a client's own process."""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import trio
from attrs import evolve

from intercom._version import __version__, is_newer
from intercom.agents import transport
from intercom.agents.connection import AgentConnection
from intercom.agents.transport import Hello, ShimConnection
from intercom.app import App
from intercom.cli import logs
from intercom.cli.settings import Settings, judge, record_directories, settle
from intercom.local import daemon, lock, peers
from intercom.model.errors import ConfigError, IntercomError


class Readiness:
    """Reports the start's result to the shim that started us, as one JSON line on its descriptor."""

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
            # The shim no longer waits; other clients may.
            pass
        self._descriptor = None


def told(failed: BaseException) -> IntercomError:
    """Return the error to report: the IntercomError at the root of `failed`, if there is one."""
    seen: BaseException | None = failed
    while seen is not None:
        if isinstance(seen, IntercomError):
            return seen
        if isinstance(seen, BaseExceptionGroup):
            seen = seen.exceptions[0]
            continue
        seen = getattr(seen, "reason", None) or seen.__cause__
    if isinstance(failed, OSError):
        return ConfigError(f"{failed.filename or 'a file'} cannot be used: {failed.strerror}", code="config")
    return IntercomError(f"the server failed ({type(failed).__name__}); its log says more", code="unavailable")


def is_denied(failed: BaseException) -> bool:
    """Tell whether the system did not let us write, usually because of a sandbox."""
    return isinstance(failed, PermissionError) or (isinstance(failed, OSError) and failed.errno == errno.EROFS)


#: Seconds without a connection or anything pending after which a background server stops.
IDLE_SECONDS = 300.0
#: Seconds between two releases of free memory. Frequent releases are short, and threads that need memory meanwhile must
#: wait.
MEMORY_SECONDS = 15.0
#: Files that a server may have open: every connection is one, and shells allow as few as 1024.
OPEN_FILES = 16_384
FAILED = 1
USAGE = 2


def serve(options: argparse.Namespace) -> int:
    """Run `agent-intercom serve` until SIGTERM or SIGINT. Pending requests stay pending."""
    _allow_files()
    ready = Readiness(options.ready_fd)
    try:
        settings = settle(options, by_client=bool(options.background) or options.private_fd is not None)
        _log(settings, options)
        if options.private_fd is not None:
            return trio.run(_private, settings, options.private_fd)
        starters = _starters(options)
        if not options.background:
            _record_directories(settings)
        with lock.acquire(settings.prepare(), version=__version__) as held:
            return trio.run(_serve, settings, ready, bool(options.background), held, starters)
    except BaseException as failed:
        error = told(failed)
        ready.failed(error, retry=isinstance(failed, lock.DatabaseLocked), sandboxed=is_denied(failed))
        if isinstance(failed, KeyboardInterrupt | SystemExit):
            raise
        return _say(error, failed)


def in_process(options: argparse.Namespace) -> int:
    """Run `agent-intercom --in-process`: MCP on this process's stdin and stdout, until stdin ends."""
    try:
        _forget_clients_environment()
        settings = settle(options, by_client=True)
        _log(settings, options)
        with lock.acquire(settings.prepare(), version=__version__) as held:
            return trio.run(_in_process, settings, options.workspace, options.channel, options.session_id, held)
    except Exception as failed:
        return _say(told(failed), failed)


def _record_directories(settings: Settings) -> None:
    """Record the server's directories as the user's own, because an operator runs it."""
    try:
        record_directories(settings.places, settings.database)
    except (ConfigError, OSError) as fault:
        logs.log.warning("the server's directories are not recorded as yours: %s", fault)


def _starters(options: argparse.Namespace) -> frozenset[int]:
    """Return the relay that started us: it holds the other end of the pipe where we report that we are ready. What the
    relay says about itself does not matter."""
    if not options.background or options.ready_fd is None:
        return frozenset()
    hint = () if options.started_by is None else (options.started_by,)
    return peers.stdio_holders(os.getpid(), hint, (options.ready_fd,))


async def _serve(
    settings: Settings, ready: Readiness, background: bool, held: lock.DatabaseLock, starters: frozenset[int]
) -> int:
    app = _app(settings)
    app.processes.starters = starters
    app.renew_lock = held.renew
    if not background and settings.config.logging.file is not None:
        # The log goes to a file, and a person may be watching this terminal.
        app.complain = _complain
    async with app.system:
        # What is loaded stays. Frozen, it does not slow down later collections.
        gc.freeze()
        if settings.left_out_words:
            await app.service.security_event(settings.left_out_words, {"settings": list(settings.left_out)})
        logs.log.info("MCP server ready (version %s, life %s)", __version__, app.life)
        ready.done()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_signal, app)
            nursery.start_soon(_give_memory_back)
            if background:
                nursery.start_soon(_until_idle, app)
    return 0 if app.failure is None else FAILED


async def _in_process(
    settings: Settings, workspace: str | None, channel: str | None, session_id: str | None, held: lock.DatabaseLock
) -> int:

    app = _app(settings, frozenset({"ctl"}))
    app.renew_lock = held.renew
    key = uuid.uuid4().hex
    async with app.system, trio.open_nursery() as nursery:
        nursery.start_soon(_until_signal, app)
        # The client is our parent, or holds the other ends of our standard streams.
        client = await trio.to_thread.run_sync(peers.stdio_holders, os.getpid(), (os.getppid(),))
        await app.processes.came(key, {*client, os.getppid()})
        door = AgentConnection(
            app.system, settings.config, app.presence, key, workspace, os.getcwd(), channel, session_id
        )
        await transport.serve(app.shim_deps.server, door)
        app.system.request_stop()
    return 0 if app.failure is None else FAILED


async def _private(settings: Settings, descriptor: int) -> int:
    """Run a server for one shim, if nothing that outlives it may be written."""
    from actors import StartChild, ask
    from actors.spec import ChildSpec, Restart

    with tempfile.TemporaryDirectory(prefix="agent-intercom-") as directory:
        database = evolve(settings.config.database, path=Path(directory) / "agent-rc.db")
        # No Slack: an app's interactions are spread over all its connections, so each of two servers would miss some.
        # No HTTP: the port belongs to the server that all share.
        alone = evolve(settings, config=evolve(settings.config, database=database, http_port=None), slack=None)
        app = _app(alone, _open_doors(settings))
        # Only the shim has the other socket, so no token is needed.
        deps = evolve(app.shim_deps, token="")
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor)))
        async with app.system, trio.open_nursery() as nursery:
            nursery.start_soon(_until_signal, app)
            spec = ChildSpec("link/private", lambda: ShimConnection(stream, deps), restart=Restart.TEMPORARY)
            await ask(app.system.named("links"), StartChild(spec))
            while app.system.ref("link/private") is not None:  # noqa: ASYNC110 - it tells nobody when it ends
                await trio.sleep(0.2)
            app.system.request_stop()
    return 0


def _open_doors(settings: Settings) -> frozenset[str]:
    """Return the transports of a private server: ctl, if no other server has taken its socket."""
    free = os.access(settings.places.runtime_dir, os.W_OK) and not os.path.exists(settings.places.ctl_socket)
    return frozenset({"ctl"}) if free else frozenset()


async def _until_signal(app: App) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for received in signals:
            logs.log.info("%s: stopping; what waits stays pending", signal.Signals(received).name)
            app.system.request_stop()
            return


async def _give_memory_back() -> None:
    while True:
        await trio.sleep(MEMORY_SECONDS)
        if not await trio.to_thread.run_sync(daemon.give_memory_back):
            return


async def _until_idle(app: App) -> None:
    """Stop a background server after IDLE_SECONDS with no connection and nothing pending."""
    quiet = 0.0
    while quiet < IDLE_SECONDS:
        await trio.sleep(5.0)
        quiet = 0.0 if await _is_needed(app) else quiet + 5.0
    logs.log.info("nobody is connected and nothing waits: leaving")
    app.system.request_stop()


async def _is_needed(app: App) -> bool:
    try:
        # Only a running server receives what people do in Slack, and HTTP clients cannot start a server.
        return app.slack is not None or app.http is not None or not app.is_idle() or bool(await app.service.pending())
    except IntercomError as failed:
        # If pending requests cannot be read, assume that there are some.
        logs.log.warning("what waits could not be read: %s", failed)
        return True


def _app(settings: Settings, doors: frozenset[str] = frozenset({"ctl", "shims"})) -> App:
    def outdated(hello: Hello) -> bool:
        if not is_newer(hello.version or "0"):
            return False
        logs.log.info("a shim of version %s asks for a newer server: stepping down", hello.version)
        app.hands_over = True
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
        slack=settings.slack,
        is_foreign=bool(settings.named_by_client),
    )
    if settings.left_out_words:
        app.found(settings.left_out_words)
    return app


def _forget_clients_environment() -> None:
    """Remove from the client's environment what says where Slack is, how it is reached, or who may answer. What the
    interpreter and the C library read at their start stays in effect."""
    kept = daemon.for_server(os.environ)
    for name in set(os.environ) - set(kept):
        if name.startswith(("SLACK_", "INTERCOM_", "SSL_", "PYTHON_KEYRING")) or name.upper().endswith("_PROXY"):
            del os.environ[name]
    os.environ.update(kept)


def _log(settings: Settings, options: argparse.Namespace) -> None:
    file = settings.config.logging.file
    if getattr(options, "background", False) and file is None:
        file = Path(settings.places.log_file)
    logs.set_up(settings.config.logging.level.value, options.log_format, file)
    if settings.slack_fault:
        logs.log.warning("slack is off: %s", settings.slack_fault)
    if settings.left_out_words:
        logs.log.warning("%s", settings.left_out_words)


def _allow_files() -> None:
    """Raise this process's limit of open files, as far as the system allows without privileges."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(most, OPEN_FILES)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        # Not allowed here: the server accepts fewer connections.
        logs.log.info("no more than %d files may be open", now)


def _complain(text: str) -> None:
    print(f"agent-intercom: {text}", file=sys.stderr, flush=True)


def _say(error: IntercomError, failed: BaseException) -> int:
    print(f"agent-intercom: {error.message}", file=sys.stderr)
    if error.error_code == "unavailable":
        logs.log.error("the server failed", exc_info=failed)
    return USAGE if isinstance(error, ConfigError) else FAILED
