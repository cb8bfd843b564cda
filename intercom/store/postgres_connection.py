"""Connections to a PostgreSQL server: what its errors mean, and how the queries of the rooms become its own.

The queries have the parameters of SQLite, and get texts and numbers as SQLite returns them, so one set of them works on
both databases. `intercom.store.postgres` has the actors that own the connections.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

import psycopg
import trio
from attrs import field, frozen
from psycopg.adapt import AdaptersMap, Buffer, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.string import TextLoader

from intercom.masking import KNOWN
from intercom.model.errors import DatabaseError, IntercomError, InvalidArguments
from intercom.store.room_database import Cursor, Dialect, RoomsDatabase
from intercom.store.rows import Values

R = TypeVar("R")

#: How long an attempt to connect may take, in seconds.
CONNECT_SECONDS = 5
#: How long a statement may take, wait for a lock, and how long a transaction may be idle, in seconds. The last frees a
#: room that a node has locked which hangs or is cut off.
STATEMENT_SECONDS = 20
LOCK_SECONDS = 10
IDLE_SECONDS = 10

# --- errors ----------------------------------------------------------------------------------------------------------


class TryAgain(Exception):
    """The transaction was not done, or it is not known whether it was, for a reason that passes. The message says
    which; it is part of a sentence."""


class Unreachable(TryAgain):
    """There is no connection to the server."""


#: The conditions that pass, by SQLSTATE: serialization failure, deadlock, lock not available, too many connections.
_PASSING = {"40001", "40P01", "55P03", "53300"}
#: Those in which a new connection may lead to a server that works: connection exceptions, a shutdown or crash, a
#: transaction ended because it was idle, and a server that only answers reads because another has taken over.
_GONE = ("08", "57P", "25P03", "25P04", "25006")

#: Why a connection failed, by what psycopg says, as such errors have no SQLSTATE: whether it may pass, what is wrong,
#: and what to do.
_REFUSED_CONNECTIONS: tuple[tuple[str, bool, str], ...] = (
    (
        "password authentication failed|no password supplied",
        False,
        "the PostgreSQL server at {host} does not accept the password of the user {user};"
        " correct it in the database URL, or set PGPASSWORD",
    ),
    (
        'role ".*" does not exist',
        False,
        "the PostgreSQL server at {host} has no user {user}; create that user, or correct the database URL",
    ),
    (
        'database ".*" does not exist',
        False,
        "the PostgreSQL server at {host} has no database {database}; create it, or correct the database URL",
    ),
    (
        "pg_hba.conf|permission denied for database",
        False,
        "the PostgreSQL server at {host} does not let the user {user} use the database {database} from this machine;"
        " allow it there (pg_hba.conf, grant connect)",
    ),
    (
        "Errno -|not known|translate host name|resolve host|name resolution",
        True,
        "the host of the PostgreSQL server, {host}, is not known; correct the database URL",
    ),
    (
        # A refusal that arrives only after the library's first look at the socket is told as a connection that closed.
        # One that closed during TLS is another matter.
        "Connection refused|No such file or directory"
        "|(?s:^(?!.*(SSL|certificate)).*(closed the connection unexpectedly|Connection reset by peer))",
        True,
        "no PostgreSQL server answers at {host}; start it, or correct the database URL",
    ),
    (
        "timeout|timed out",
        True,
        f"the PostgreSQL server at {{host}} has not answered within {CONNECT_SECONDS} seconds;"
        " check the address in the database URL, and the firewall",
    ),
)


@frozen
class Server:
    """The database of a URL, how to connect to it, and what its errors mean. No text of it has the password."""

    host: str
    user: str
    database: str
    _parameters: Mapping[str, Any] = field(repr=False)

    @classmethod
    def at(cls, url: str) -> Server:
        """Read a URL. Raises DatabaseError."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:
            # The library's message quotes the URL.
            raise DatabaseError(
                "the database URL cannot be read; it looks like postgresql://user:password@host:5432/name,"
                " with @, : and / in the password written as %40, %3A and %2F"
            ) from None
        KNOWN.add(str(given.get("password") or os.environ.get("PGPASSWORD") or ""), "database password")

        def named(name: str, variable: str, otherwise: str) -> str:
            return str(given.get(name) or os.environ.get(variable) or otherwise)

        host, port = named("host", "PGHOST", "this machine"), named("port", "PGPORT", "5432")
        user = named("user", "PGUSER", "of this process")
        return cls(f"{host}:{port}", user, named("dbname", "PGDATABASE", user), _CONNECTION | given)

    @property
    def where(self) -> str:
        """The database in messages to people."""
        return f"{self.database} at {self.host}"

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[TupleRow]:
        """Open a connection. Raises Unreachable if that may succeed later, otherwise DatabaseError."""
        try:
            made = psycopg.connect(
                autocommit=True, context=_ADAPTERS, cursor_factory=psycopg.RawCursor, **self._parameters
            )
            try:
                made.execute(_SESSION)
                made.autocommit = autocommit
            except BaseException:
                made.close()
                raise
        except (psycopg.Error, UnicodeError) as error:
            raise self._refused_connection(str(error)) from error
        return made

    def _refused_connection(self, why: str) -> Unreachable | DatabaseError:
        for pattern, passes, text in _REFUSED_CONNECTIONS:
            if re.search(pattern, why):
                sentence = text.format(host=self.host, user=self.user, database=self.database)
                return Unreachable(sentence) if passes else DatabaseError(sentence)
        return Unreachable(f"the PostgreSQL server at {self.host} cannot be used ({self._first_line(why)})")

    def refusal(self, error: psycopg.Error, *, is_lost: bool) -> TryAgain | IntercomError | None:
        """Return what an error in a transaction means for its caller. `is_lost` says whether the connection is closed.
        Returns None if the statement is at fault: that is a bug in the program."""
        state, why = error.sqlstate or "", self._first_line(str(error))
        if is_lost or state.startswith(_GONE):
            return Unreachable(f"the connection to the database {self.where} was lost ({why})")
        if state in _PASSING:
            return TryAgain(f"the database {self.where} has too much to do at once ({why})")
        if state == "57014":
            return DatabaseError(
                f"the database {self.where} was busy with this for more than {STATEMENT_SECONDS} seconds, and nothing"
                " was written; try again, and see in pg_stat_activity what it does"
            )
        if state == "42501":
            return DatabaseError(
                f"the user {self.user} may not do this in the database {self.where} ({why});"
                " use a database that this user owns"
            )
        if state == "53100":
            return DatabaseError(f"the disk of the database {self.where} is full; free some space there and try again")
        if state.startswith(("53", "58", "XX")):
            return DatabaseError(f"the database {self.where} failed ({why}); its log says more")
        if isinstance(error, psycopg.DataError) or state.startswith("54"):
            return InvalidArguments(f"the database cannot store a value ({why}); send another one")
        return None

    def _first_line(self, why: str) -> str:
        line = why.strip().partition("\n")[0]
        password = str(self._parameters.get("password") or "")
        return line.replace(password, "****") if password else line


#: What a URL need not say. A server that vanished is noticed within half a minute.
_CONNECTION: dict[str, str | int | None] = {
    "application_name": "agent-intercom",
    "client_encoding": "UTF8",
    "gssencmode": "disable",
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

#: Prepares a new connection. An administrator may have set synchronous_commit to off: here, done means on disk.
_SESSION = f"""
    select set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false),
    set_config('statement_timeout', '{STATEMENT_SECONDS}s', false),
    set_config('lock_timeout', '{LOCK_SECONDS}s', false),
    set_config('idle_in_transaction_session_timeout', '{IDLE_SECONDS}s', false),
    set_config('jit', 'off', false),
    set_config('synchronous_commit',
        case when setting = 'off' then 'on' else setting end, false)
    from current_setting('synchronous_commit') as setting
"""

# --- values ----------------------------------------------------------------------------------------------------------


class InstantLoader(Loader):
    """Reads a time of a session in UTC as `clock.to_text` writes it."""

    def load(self, data: Buffer) -> str:
        text = str(data, "ascii")
        # "2026-03-01 12:00:00.25+00"
        return f"{text[:10]}T{text[11:19]}.{text[20:-3]:0<6}+00:00"


class NumberLoader(Loader):
    """Reads a numeric, such as a sum, as SQLite returns it."""

    def load(self, data: Buffer) -> int | float:
        text = str(data, "ascii")
        return float(text) if "." in text or not text.lstrip("-").isdigit() else int(text)


def _adapters() -> AdaptersMap:
    made = AdaptersMap(psycopg.adapters)
    for name in ("uuid", "json", "jsonb"):
        made.register_loader(name, TextLoader)
    made.register_loader("timestamptz", InstantLoader)
    made.register_loader("numeric", NumberLoader)
    return made


_ADAPTERS = _adapters()

#: What has no parameters in it, and the parameters.
_PARTS = re.compile(
    r"""
      \b[eE]'(?:[^'\\]|''|\\.)*'      # a literal with escapes
    | '(?:[^']|'')*'                  # a literal
    | "(?:[^"]|"")*"                  # a name
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ # a literal between dollars
    | --[^\n]*                        # comments
    | /\*.*?\*/
    | ::                              # a cast
    | (?P<position>\?)
    | (?<![\w:\]]):(?P<name>[A-Za-z_]\w*)
    """,
    re.VERBOSE | re.DOTALL,
)


@frozen
class Statement:
    """A statement with PostgreSQL's parameters, `$1`. `names` are those of a statement with named ones, in order."""

    text: bytes
    names: tuple[str, ...] | None

    def values(self, given: Values) -> Sequence[object]:
        if isinstance(given, Mapping):
            return [given[name] for name in self.names or ()]
        return given


@functools.lru_cache(maxsize=1024)
def translated(sql: str) -> Statement:
    """Return a statement with `?` or `:name` for PostgreSQL. Literals, names, comments and casts stay as they are."""
    names: dict[str, int] = {}
    positions = 0

    def replaced(part: re.Match[str]) -> str:
        nonlocal positions
        if part["position"]:
            positions += 1
            return f"${positions}"
        if part["name"]:
            return f"${names.setdefault(part['name'], len(names) + 1)}"
        return part[0]

    text = _PARTS.sub(replaced, sql)
    if positions and names:
        raise ValueError(f"a statement has either ? or :name: {sql}")
    return Statement(text.encode(), tuple(names) if names else None)


class PostgresDatabase:
    """A connection in a transaction as a `RoomsDatabase`."""

    __slots__ = ("_connection",)
    dialect = Dialect.POSTGRESQL

    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Values = (), /) -> Cursor:
        if not values:
            return self._connection.execute(sql.encode())
        statement = translated(sql)
        return self._connection.execute(statement.text, statement.values(values))


# --- connections -----------------------------------------------------------------------------------------------------


class Connection:
    """One connection, for one thread at a time. It is opened when it is needed, and again after it was lost.

    With `is_snapshot`, a transaction reads one state and cannot write.
    """

    def __init__(self, server: Server, *, is_snapshot: bool = False) -> None:
        self._server = server
        self._is_snapshot = is_snapshot
        self._db: psycopg.Connection[TupleRow] | None = None

    def run(self, work: Callable[[RoomsDatabase], R]) -> R:
        """Run `work(db)` in one transaction and return its result.

        Raises what the work refuses, TryAgain, DatabaseError and InvalidArguments. Any other exception is a bug in the
        work. After each of them, also TryAgain, the connection can be used again.
        """
        db = self._opened()
        try:
            result = work(PostgresDatabase(db))
            db.commit()
        except psycopg.Error as error:
            # The library sometimes notices a closed socket before it counts the connection as closed. An error of this
            # class without a code of the server is one of the connection.
            is_lost = db.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None)
            self._undo(db)
            if self._is_snapshot and isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                raise
            refused = self._server.refusal(error, is_lost=is_lost)
            if refused is None:
                raise
            if isinstance(refused, Unreachable):
                self.close()
            raise refused from error
        except UnicodeEncodeError as error:
            self._undo(db)
            text = "text with half of a surrogate pair cannot be stored; send valid Unicode"
            raise InvalidArguments(text) from error
        except BaseException:
            self._undo(db)
            raise
        return result

    def _opened(self) -> psycopg.Connection[TupleRow]:
        if self._db is None or self._db.closed:
            self._db = self._server.connect()
            if self._is_snapshot:
                self._db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._db.read_only = True
        return self._db

    def _undo(self, db: psycopg.Connection[TupleRow]) -> None:
        try:
            db.rollback()
        except psycopg.Error:
            db.close()

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


class Readers:
    """The connections for reads: as many as are needed at once, up to `count`. Idle ones stay open."""

    def __init__(self, server: Server, count: int) -> None:
        self._server = server
        self._count = count
        self._limit: trio.CapacityLimiter | None = None
        self._idle: list[Connection] = []
        self._lock = Lock()
        self._is_closed = False

    async def read(self, work: Callable[[RoomsDatabase], R]) -> R:
        """Run `work(db)` in a worker thread. If the wait is cancelled, the read ends by itself."""
        if self._limit is None:
            self._limit = trio.CapacityLimiter(self._count)
        return await trio.to_thread.run_sync(self._read, work, abandon_on_cancel=True, limiter=self._limit)

    def _read(self, work: Callable[[RoomsDatabase], R]) -> R:
        with self._lock:
            if self._is_closed:
                raise DatabaseError("the database is closed; the server is stopping")
            connection = self._idle.pop() if self._idle else Connection(self._server, is_snapshot=True)
        try:
            return connection.run(work)
        finally:
            with self._lock:
                is_kept = not self._is_closed
                if is_kept:
                    self._idle.append(connection)
            if not is_kept:
                connection.close()

    def open(self) -> None:
        self._is_closed = False

    def close(self) -> None:
        """Close all connections; those in use close when their read ends."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()
