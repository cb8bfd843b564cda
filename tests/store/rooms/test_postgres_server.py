"""The server of the tests: it ends with the process that started it, and keeps what it had committed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil
import psycopg
import pytest

from tests.support.postgres import PostgresServer, lives

STARTER = """
import time
from tests.support.postgres import shared_server
server = shared_server()
server.start()
print(server._process.pid, server.directory, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_with_its_starter_however_that_ends(how: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, directory = starter.stdout.readline().split()
        server = psutil.Process(int(pid))
        starter.send_signal(how)
        starter.wait(30)
        until = time.monotonic() + 30
        while lives(server) and time.monotonic() < until:
            time.sleep(0.01)
        assert not lives(server)
    # A killed process leaves its files.
    subprocess.run(["rm", "-rf", directory], check=True)


def test_what_was_committed_survives_a_kill(postgres: PostgresServer, database: str) -> None:
    with psycopg.connect(postgres.url(database)) as connection:
        connection.execute("create table it (number int)")
        connection.execute("insert into it values (1)")
        connection.commit()
        connection.execute("insert into it values (2)")
        postgres.kill()
        assert not postgres.is_running
        with pytest.raises(psycopg.OperationalError):
            connection.commit()
    postgres.start()
    assert postgres.execute("select number from it", database=database) == [(1,)]


def test_each_test_has_a_database_of_its_own(postgres: PostgresServer, database: str) -> None:
    assert postgres.execute("select count(*) from pg_tables where schemaname = 'public'", database=database) == [(0,)]
    other = postgres.new_database()
    assert other != database
    postgres.drop(other)
