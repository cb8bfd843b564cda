"""One server per database."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.local.lock import DatabaseLocked, Holder, acquire, holder

HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from intercom.local.lock import acquire
lock = acquire(sys.argv[2], version="9.9")
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_names_its_holder_until_it_is_released(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    assert holder(database) is None
    with acquire(database, version="0.1"):
        assert holder(database) == Holder(os.getpid(), "0.1")
        with pytest.raises(DatabaseLocked, match=r"0\.1.*another \[database\] path") as caught:
            acquire(database, version="0.2")
        assert caught.value.holder == Holder(os.getpid(), "0.1")
        assert caught.value.error_code == "db"
    assert holder(database) is None
    acquire(database, version="0.3").release()
    assert (tmp_path / "agent-rc.db.lock").stat().st_mode & 0o777 == 0o600


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", HOLD, root, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert holder(database) == Holder(other.pid, "9.9")
        with pytest.raises(DatabaseLocked, match=str(other.pid)):
            acquire(database, version="1")
        other.kill()
    with acquire(database, version="1"):
        assert holder(database) == Holder(os.getpid(), "1")


def test_two_names_of_one_database_share_a_lock(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "name").symlink_to(tmp_path / "real")
    with acquire(tmp_path / "real" / "db", version="1"), pytest.raises(DatabaseLocked):
        acquire(tmp_path / "name" / "db", version="1")


@pytest.mark.parametrize("written", ["", '{"pid": 0, "version": "1"}', '{"pid": -1, "version": "1"}'])
def test_a_holder_that_has_not_written_its_name_yet_is_still_one(tmp_path: Path, written: str) -> None:
    with acquire(tmp_path / "db", version="1"):
        (tmp_path / "db.lock").write_text(written)
        assert holder(tmp_path / "db") == Holder(None, "")
        with pytest.raises(DatabaseLocked, match="another agent-intercom server uses"):
            acquire(tmp_path / "db", version="1")


def test_a_lock_whose_file_was_removed_keeps_others_out(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    database.write_bytes(b"")
    with acquire(database, version="1") as lock:
        os.unlink(lock.path)
        # At once, and after it is there again.
        for _ in range(2):
            with pytest.raises(DatabaseLocked):
                acquire(database, version="2")
            lock.renew()
        assert holder(database) == Holder(os.getpid(), "1")
        assert not lock.renew()
    assert holder(database) is None
    acquire(database, version="3").release()


def test_a_lock_file_that_was_replaced_is_taken_again(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    with acquire(database, version="1") as lock:
        (tmp_path / "other").write_text("")
        os.replace(tmp_path / "other", lock.path)
        assert lock.renew()
        with pytest.raises(DatabaseLocked):
            acquire(database, version="2")


def test_a_database_that_came_after_the_lock_is_locked_too(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    with acquire(database, version="1") as lock:
        for _ in range(2):
            database.unlink(missing_ok=True)
            database.write_bytes(b"")
            assert lock.renew()
            os.unlink(lock.path)
            with pytest.raises(DatabaseLocked):
                acquire(database, version="2")
            assert lock.renew()
    assert not lock.renew()


def test_who_just_tries_the_lock_does_not_take_it_from_its_holder(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    database.write_bytes(b"")
    with acquire(database, version="1") as lock:
        os.unlink(lock.path)
        with open(lock.path, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert not lock.renew()
        assert lock.renew()
