"""Runs the server: in the foreground, in the background for a shim, or in a client's own process; and sets up its log.

The log goes to stderr in the foreground, to a rotated file of mode 0600 in the background; as text or JSON lines.
"""

from __future__ import annotations

import argparse
import errno
import gc
import json
import logging
import logging.handlers
import os
import resource
import signal
import socket
import stat
import sys
import tempfile
import time
import uuid
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import trio
from attrs import evolve

import actors
from intercom._version import __version__, is_newer
from intercom.agents import message_stream
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.shim import launch
from intercom.agents.shim_connection import Hello, ShimConnection
from intercom.app import App
from intercom.cli.server_settings import (
    ServerSettings,
    record_directories,
    require_same_settings,
    settle,
    with_workspace,
)
from intercom.local import daemon, lock, peer_processes
from intercom.local.places import Places, private_directory
from intercom.masking import Masker
from intercom.model import limits
from intercom.model.config import LogLevel
from intercom.model.errors import ConfigError, IntercomError, InvalidArguments
from intercom.model.json_types import JsonObject
from intercom.model.server_view import ClientEntry
from intercom.model.visible_text import visible
from intercom.sessions.lookups import UNANSWERED


class Readiness:
    """Reports the start's result to the shim that started us, as one JSON line on its descriptor. `claim` is the right
    to start a server, which is given back then."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self.claim: int | None = None

    def take(self, claim: int) -> None:
        """Take over the right of the relay that started us. Raises OSError if this is no descriptor."""
        # What we start must not keep it.
        os.set_inheritable(claim, False)
        self.claim = claim

    def done(self) -> None:
        self._tell({"ready": True})

    def failed(self, error: IntercomError, *, retry: bool, sandboxed: bool) -> None:
        told: JsonObject = {"code": error.error_code, "message": error.message, "retry": retry, "sandboxed": sandboxed}
        self._tell({"error": told})

    def _tell(self, said: JsonObject) -> None:
        if self.claim is not None:
            os.close(self.claim)
            self.claim = None
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


#: Seconds that a server has to stop.
STOP_SECONDS = 15.0
#: Seconds without a connection, a person on the page or anything pending after which a background server stops.
IDLE_SECONDS = 300.0
#: Seconds that a stopping server waits for the answer whether anything is pending.
PENDING_SECONDS = 1.0
#: Seconds between two releases of free memory. Frequent releases are short, and threads that need memory meanwhile must
#: wait.
MEMORY_SECONDS = 15.0
#: Seconds from which a step that kept all others waiting is logged as a warning.
LONG_STEP = 1.0
#: Files that a server may have open: every connection is one, and shells allow as few as 1024.
OPEN_FILES = 16_384
FAILED = 1
USAGE = 2


def serve(options: argparse.Namespace) -> int:
    """Run `agent-intercom serve` until SIGTERM or SIGINT. Pending requests stay pending."""
    allow_files()
    ready = Readiness(options.ready_fd)
    try:
        if options.claim_fd is not None:
            ready.take(options.claim_fd)
        by_client = bool(options.background) or options.private_fd is not None
        settings = with_workspace(settle(options, by_client=by_client), options.workspace)
        start_log(settings, options)
        if options.private_fd is not None:
            return trio.run(_private, settings, options.private_fd)
        starters = _starters(options)
        if not options.background:
            note_directories(settings)
        database, runtime_dir = settings.prepare(), settings.places.runtime_dir
        if options.replace:
            ready.claim = take_over(settings.places, database)
        elif not options.background:
            # Relays wait until this server is ready. If one is just starting another, that has the database.
            ready.claim = launch.claim(settings.places)
        with lock.acquire(database, version=__version__, runtime_dir=runtime_dir) as held, lock_rooms(settings):
            return trio.run(_serve, settings, ready, bool(options.background), held, starters)
    except BaseException as failed:
        error = told(failed)
        ready.failed(error, retry=isinstance(failed, lock.DatabaseLocked), sandboxed=is_denied(failed))
        if isinstance(failed, KeyboardInterrupt | SystemExit):
            raise
        return report(error, failed)


def take_over(where: Places, database: Path) -> int:
    """End the server that has this database, in order, so that its place can be taken: what waits stays pending.

    Returns the right to start a server, as a descriptor to close when this one is ready. Until then no relay starts
    another, and the old server lets the agents run that it has started. Raises DatabaseLocked if the old server does
    not stop, and OSError; then nothing has changed.
    """
    deadline = time.monotonic() + STOP_SECONDS
    while (claim := launch.claim(where)) is None:
        if time.monotonic() >= deadline:
            text = f"another server is being started, and was not ready within {STOP_SECONDS:.0f} s: try again"
            raise lock.DatabaseLocked(text, lock.Holder(None, ""))
        time.sleep(0.05)
    try:
        ended = lock.end_holder(database, seconds=STOP_SECONDS, asking=_say_whom_it_asks)
    except BaseException:
        os.close(claim)
        raise
    if ended is not None:
        complain(f"this server replaces process {ended.pid} (version {ended.version}); what waited is still pending")
    return claim


def _say_whom_it_asks(server: lock.Holder) -> None:
    complain(f"asking process {server.pid} (version {server.version}) to stop; waiting for up to {STOP_SECONDS:.0f} s")


def in_process(options: argparse.Namespace) -> int:
    """Run `agent-intercom --in-process`: MCP on this process's stdin and stdout, until stdin ends."""
    try:
        _forget_clients_environment()
        settings = settle(options, by_client=True)
        start_log(settings, options)
        with lock.acquire(settings.prepare(), version=__version__) as held, lock_rooms(settings):
            if options.agent is not None and not limits.is_agent_name(options.agent):
                raise InvalidArguments(f"INTERCOM_AGENT is not {limits.AGENT_NAME_FORM}")
            return trio.run(_in_process, settings, options, held)
    except Exception as failed:
        return report(told(failed), failed)


def lock_rooms(settings: ServerSettings) -> AbstractContextManager[object]:
    """Return the lock of the rooms' own SQLite file, if the settings name one: two servers must not share it. One that
    is beside the server's database is covered by the lock of that."""
    rooms = settings.config.rooms
    if not rooms.enabled or rooms.database is None or settings.rooms_secrets.database_url is not None:
        return nullcontext()
    if not rooms.database.parent.is_dir():
        private_directory(str(rooms.database.parent))
    return lock.acquire(rooms.database, version=__version__)


def note_directories(settings: ServerSettings) -> None:
    """Record the server's directories as the user's own, because an operator runs it."""
    try:
        record_directories(settings.places, settings.database)
    except (ConfigError, OSError) as fault:
        log.warning("the server's directories are not recorded as yours: %s", fault)


def _starters(options: argparse.Namespace) -> frozenset[int]:
    """Return the relay that started us: it holds the other end of the pipe where we report that we are ready. What the
    relay says about itself does not matter."""
    if not options.background or options.ready_fd is None:
        return frozenset()
    hint = () if options.started_by is None else (options.started_by,)
    return peer_processes.stdio_holders(os.getpid(), hint, (options.ready_fd,))


async def _serve(
    settings: ServerSettings, ready: Readiness, background: bool, held: lock.DatabaseLock, starters: frozenset[int]
) -> int:
    app = make_app(settings)
    app.processes.starters = starters
    app.renew_lock = held.renew
    if not background and settings.config.logging.file is not None:
        # The log goes to a file, and a person may be watching this terminal.
        app.complain = complain
    async with app.system:
        # What is loaded stays. Frozen, it does not slow down later collections.
        gc.freeze()
        if settings.left_out_message:
            await app.service.security_event(settings.left_out_message, {"settings": list(settings.left_out)})
        log.info("MCP server ready (version %s, life %s)", __version__, app.life)
        ready.done()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_signal, app)
            nursery.start_soon(give_memory_back)
            if background:
                nursery.start_soon(_until_idle, app)
    return 0 if app.failure is None else FAILED


async def _in_process(
    settings: ServerSettings,
    options: argparse.Namespace,
    held: lock.DatabaseLock,
) -> int:
    app = make_app(settings, frozenset({"ctl"}))
    app.renew_lock = held.renew
    key = uuid.uuid4().hex
    async with app.system, trio.open_nursery() as nursery:
        nursery.start_soon(until_signal, app)
        # The client is our parent, or holds the other ends of our standard streams.
        client = await trio.to_thread.run_sync(peer_processes.stdio_holders, os.getpid(), (os.getppid(),))
        await app.processes.came(key, {*client, os.getppid()})
        connection = AgentConnection(
            app.system,
            settings.config,
            app.connected_agents,
            key,
            options.workspace,
            os.getcwd(),
            options.channel,
            options.session_id,
            agent=options.agent,
        )
        await message_stream.serve(app.shim_deps.server, connection)
        app.system.request_stop()
    return 0 if app.failure is None else FAILED


async def _private(settings: ServerSettings, descriptor: int) -> int:
    """Run a server for one shim, if nothing that outlives it may be written."""
    from actors import StartChild, ask
    from actors.spec import ChildSpec, Restart

    with tempfile.TemporaryDirectory(prefix="agent-intercom-") as directory:
        database = evolve(settings.config.database, path=Path(directory) / "agent-rc.db")
        # No Slack: an app's interactions are spread over all its connections, so each of two servers would miss some.
        # No HTTP: the port belongs to the server that all share.
        rooms = evolve(settings.config.rooms, enabled=False)
        config = evolve(settings.config, database=database, http_port=None, rooms=rooms)
        alone = evolve(settings, config=config, slack=None)
        app = make_app(alone, _open_sockets(settings))
        # Only the shim has the other socket, so no token is needed.
        deps = evolve(app.shim_deps, token="")
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=descriptor)))
        async with app.system, trio.open_nursery() as nursery:
            nursery.start_soon(until_signal, app)
            spec = ChildSpec("link/private", lambda: ShimConnection(stream, deps), restart=Restart.TEMPORARY)
            await ask(app.system.named("links"), StartChild(spec))
            while app.system.ref("link/private") is not None:  # noqa: ASYNC110 - it tells nobody when it ends
                await trio.sleep(0.2)
            app.system.request_stop()
    return 0


def _open_sockets(settings: ServerSettings) -> frozenset[str]:
    """Return the transports of a private server: ctl, if no other server has taken its socket."""
    free = os.access(settings.places.runtime_dir, os.W_OK) and not os.path.exists(settings.places.ctl_socket)
    return frozenset({"ctl"}) if free else frozenset()


async def until_signal(app: App) -> None:
    """Stop the server at SIGTERM or SIGINT."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for received in signals:
            # Agents that this server started go on if a successor waits to take over.
            app.hands_over = launch.is_claimed(app.places)
            kept = "; what waits stays pending" if await _is_anything_pending(app) else ""
            log.info("%s: stopping%s", signal.Signals(received).name, kept)
            app.system.request_stop()
            return


async def _is_anything_pending(app: App) -> bool:
    # If it cannot be read in time, assume that something is.
    with trio.move_on_after(PENDING_SECONDS), suppress(IntercomError, *UNANSWERED):
        return bool(await app.service.pending())
    return True


async def give_memory_back() -> None:
    """Return free memory to the system from time to time."""
    while True:
        await trio.sleep(MEMORY_SECONDS)
        if not await trio.to_thread.run_sync(daemon.give_memory_back):
            return


async def _until_idle(app: App) -> None:
    """Stop a background server after IDLE_SECONDS with no connection, nobody on the page, and nothing pending."""
    quiet = 0.0
    while quiet < IDLE_SECONDS:
        await trio.sleep(5.0)
        quiet = 0.0 if await _is_needed(app) else quiet + 5.0
    log.info("nobody is connected and nothing waits: leaving")
    app.system.request_stop()


async def _is_needed(app: App) -> bool:
    # Only a running server receives what people do in Slack, and HTTP clients cannot start a server.
    if app.slack is not None or app.http is not None or not app.is_idle():
        return True
    try:
        return await app.is_page_needed() or bool(await app.service.pending())
    except (IntercomError, *UNANSWERED) as failed:
        # If it cannot be read what is pending, assume that something is.
        log.warning("what waits could not be read: %s", failed)
        return True


def make_app(settings: ServerSettings, sockets: frozenset[str] = frozenset({"ctl", "shims"})) -> App:
    """Return the server for these settings. `sockets` are those that it listens on."""

    def outdated(hello: Hello) -> bool:
        if not is_newer(hello.version or "0"):
            return False
        log.info("a shim of version %s asks for a newer server: stepping down", hello.version)
        app.hands_over = True
        app.system.request_stop()
        return True

    app = App(
        settings.config,
        settings.places,
        settings.database,
        sockets,
        require_same_settings=lambda hello: require_same_settings(settings, hello),
        outdated=outdated,
        on_event=log_actor_event,
        slack=settings.slack,
        is_foreign=bool(settings.named_by_client),
        secrets=settings.rooms_secrets,
        proxy_secret=settings.proxy_secret,
        only_rooms=settings.only_rooms,
        config_path=settings.path,
        make_entries=lambda base: _new_entries(settings, base),
    )
    if settings.left_out_message:
        app.found(settings.left_out_message)
    if "gateway" in settings.left_out:
        app.service.no_gateway_reason = settings.left_out_message
    return app


def _new_entries(settings: ServerSettings, base: str) -> tuple[ClientEntry, ...]:
    """Return the entries with which clients find this server; those over HTTP at `base`. Runs in a thread."""
    # Imported lazily: only people ask for them.
    from intercom.cli.init_clients import new_entries

    own = Path(settings.places.config_file)
    named = None if settings.path == own else settings.path
    return new_entries(named, base, token=settings.config.http_token_required)


def _forget_clients_environment() -> None:
    """Remove from the client's environment what says where Slack is, how it is reached, or who may answer. What the
    interpreter and the C library read at their start stays in effect."""
    kept = daemon.for_server(os.environ)
    for name in set(os.environ) - set(kept):
        if name.startswith(("SLACK_", "INTERCOM_", "SSL_", "PYTHON_KEYRING")) or name.upper().endswith("_PROXY"):
            del os.environ[name]
    os.environ.update(kept)


#: The variable that sets the log's level, and that of single loggers: `warning,intercom.store=debug`.
LOG_VARIABLE = "INTERCOM_LOG"


def start_log(settings: ServerSettings, options: argparse.Namespace) -> None:
    """Set up the log as the settings, the environment and the command line say. An agent's client cannot set the
    levels: its environment is not the server's. Raises ConfigError if the variable or the file cannot be used."""
    file = settings.config.logging.file
    if getattr(options, "background", False) and file is None:
        file = Path(settings.places.log_file)
    level, loggers = log_levels(os.environ.get(LOG_VARIABLE, ""), settings.config.logging.level)
    set_up_log(level, options.log_format, file)
    for name, own in loggers.items():
        logging.getLogger(name).setLevel(own.value.upper())
    if settings.slack_fault:
        log.warning("slack is off: %s", settings.slack_fault)
    if settings.left_out_message:
        log.warning("%s", settings.left_out_message)


def log_levels(text: str, default: LogLevel) -> tuple[LogLevel, dict[str, LogLevel]]:
    """Return the level of the log, and those of single loggers, as `text` says: levels, and `LOGGER=LEVEL` for one
    logger and those below it, separated by commas. Without a level, the log's is `default`. Raises ConfigError."""
    level, loggers = default, {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = (each.strip() for each in part.rpartition("="))
        try:
            found = LogLevel(value.lower())
        except ValueError:
            found = None
        if found is None or bool(equals) is not bool(name):
            levels = ", ".join(LogLevel)
            raise ConfigError(
                f"{LOG_VARIABLE} in the environment has {part[:80]!r}: write LEVEL or LOGGER=LEVEL, where LEVEL is one"
                f" of {levels}"
            )
        if name:
            loggers[name] = found
        else:
            level = found
    return level, loggers


def allow_files() -> None:
    """Raise this process's limit of open files, as far as the system allows without privileges."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if most == resource.RLIM_INFINITY else min(most, OPEN_FILES)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        # Not allowed here: the server accepts fewer connections.
        log.info("no more than %d files may be open", now)


def complain(text: str) -> None:
    """Say something to the person who started the server. Does nothing if stderr is closed or has no reader: the server
    goes on, and in the middle of a takeover no other would run."""
    with suppress(OSError, ValueError):
        print(f"agent-intercom: {text}", file=sys.stderr, flush=True)


def report(error: IntercomError, failed: BaseException) -> int:
    """Say why the server did not start, or ended. Return the exit code."""
    complain(error.message)
    if error.error_code == "unavailable":
        log.error("the server failed", exc_info=failed)
    return USAGE if isinstance(error, ConfigError) else FAILED


_MEBIBYTE = 2**20
#: The most characters of a record that are logged: a library's error may quote a whole message.
_LONGEST = 64 * 1024

log = logging.getLogger("intercom")


class TextLines(logging.Formatter):
    """A line of text, with the error below it, without secrets, because logs are sent to others. Further lines are
    indented, so that an agent's text cannot look like a log line."""

    def format(self, record: logging.LogRecord) -> str:
        return _masked(super().format(record)).replace("\n", "\n    ")


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and the error if there is one; without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _masked(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = _masked(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def _masked(text: str) -> str:
    # Libraries quote what they receive, and people read logs in terminals.
    return visible(Masker().mask(text[:_LONGEST]).text) + ("…" if len(text) > _LONGEST else "")


def set_up_log(level: LogLevel, style: str, file: Path | None) -> None:
    """Send log lines of `level` and above to `file`, or to stderr if it is None. `style` is text or json. Raises
    ConfigError if the file is not one of its own that belongs to this user, and OSError if it cannot be opened."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        _make_directory(file.parent)
        handler = _Private(file, maxBytes=10 * _MEBIBYTE, backupCount=3, encoding="utf-8")
    text = TextLines("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.value.upper())
    # These libraries log every request that they serve or send; Intercom logs what matters itself.
    for library in ("mcp", "httpx2", "httpcore2", "wsproto"):
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))


def log_actor_event(event: actors.Event) -> None:
    """Log an event of the actor system."""
    match event:
        case actors.ActorCrashed(reason=actors.StartFailed()):
            # The child's own crash is logged already.
            log.debug("%s", event)
        case actors.ActorCrashed(reason=IntercomError()) if not log.isEnabledFor(logging.DEBUG):
            # Its message says what is wrong and what to do.
            log.error("%s", event)
        case actors.ActorCrashed():
            log.error("%s", event, exc_info=event.reason)
        case actors.SupervisorGaveUp() | actors.StopOverran() | actors.MailboxOverflowed():
            log.error("%s", event)
        case actors.ActorRestarted() | actors.RestartDelayed():
            log.warning("%s", event)
        case actors.StepTooLong():
            # Short ones are usual, at a start for example; `intercom_loop_blocked_total` counts them all.
            level = logging.WARNING if event.seconds >= LONG_STEP else logging.DEBUG
            log.log(level, "%s kept the server from everything else for %.2f s", event.name, event.seconds)
        case _:
            log.debug("%s", event)


class _Private(logging.handlers.RotatingFileHandler):
    """A rotating file that only its owner can read. If it was removed or replaced, the next line begins a new file."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and _is_elsewhere(self.baseFilename, self.stream.fileno()):
            try:
                _make_directory(Path(self.baseFilename).parent)
                before, self.stream = self.stream, self._open()  # type: ignore[no-untyped-call]
            except (OSError, IntercomError):
                pass  # keep writing to the old file
            else:
                before.close()
        super().emit(record)

    def _open(self):  # type: ignore[no-untyped-def]
        # The directory may be one where others can put a link, a pipe, or a file of their own.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            descriptor = os.open(self.baseFilename, flags, 0o600)
        except OSError as fault:
            if fault.errno in (errno.ELOOP, errno.ENXIO):
                raise _no_log_file(self.baseFilename) from None
            raise
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            os.close(descriptor)
            raise _no_log_file(self.baseFilename)
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
        return os.fdopen(descriptor, self.mode, encoding=self.encoding)


def _make_directory(directory: Path) -> None:
    """Create the log's directory, private, if it does not exist. An existing one stays as it is, for the file is
    private."""
    if not directory.is_dir():
        private_directory(str(directory))


def _no_log_file(path: str) -> ConfigError:
    return ConfigError(
        f"{path} cannot be the log: it must be a file of your own, not a link or another user's; remove it, or set file"
        " under [logging] to another path"
    )


def _is_elsewhere(path: str, descriptor: int) -> bool:
    """Tell whether an open file is no longer the one at `path`."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return True
    except OSError:
        return False
