"""A process killed, or a power cut, loses nothing that was answered and leaves nothing half-written."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.model.request import ApprovalStatus
from intercom.store import audit, sessions
from intercom.store.database import Database, open_database, transaction
from intercom.store.requests import approvals

from . import cases, crash_child

ROOT = Path(__file__).parents[2]


def stored(db: Database) -> set[str]:
    """The ids of the proposals in the database, each found whole."""
    ids = set()
    for request in approvals.select(db, "1 = 1"):
        assert len(request.files) == crash_child.FILES
        assert request.status is ApprovalStatus.APPROVED
        assert request.decided == cases.verdict(f"verdict of {request.id}", "approve")
        ids.add(request.id)
    assert {entry.summary for entry in audit.recent(db, 100_000)} == ids
    return ids


@pytest.mark.parametrize("times", [1, 2, 40])
@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
def test_a_killed_server_keeps_all_that_it_answered(point: str, times: int, tmp_path: Path) -> None:
    path = tmp_path / "intercom.db"
    command = [sys.executable, "-m", "tests.store.crash_child", str(path), point, str(times)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    answered = set(ran.stdout.decode().split())

    opened = open_database(path)
    assert opened.moved_aside is None
    kept = stored(opened.db)
    assert answered <= kept
    if point == "store.after_commit":
        # the last group was on disk, and nobody had been told
        assert kept - answered
    else:
        # the last group was not on disk
        assert times > 1 or not kept
    opened.db.close()


def test_a_power_cut_leaves_a_prefix_of_the_commits() -> None:
    """The log cut at any byte, as a disk may leave it that lost its last writes."""
    commits = 12
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "intercom.db"
        db = open_database(path).db
        sessions.insert(db, cases.session("s1"))
        db.execute("pragma wal_checkpoint(truncate)")
        for number in range(commits):
            with transaction(db):
                crash_child.propose(db, f"{number:02}")
                crash_child.propose(db, f"{number:02}b")
        log = Path(f"{path}-wal").read_bytes()
        content = path.read_bytes()
        found = set()

        @settings(max_examples=60, deadline=None)
        @given(st.integers(0, len(log)), st.booleans())
        def check(length: int, torn: bool) -> None:
            cut = Path(directory) / "cut"
            cut.mkdir()
            (cut / "intercom.db").write_bytes(content)
            # torn: the file has its length, and its end was never written
            (cut / "intercom.db-wal").write_bytes(log[:length] + (bytes(len(log) - length) if torn else b""))
            opened = open_database(cut / "intercom.db")
            assert opened.moved_aside is None
            kept = sorted(stored(opened.db))
            opened.db.close()
            shutil.rmtree(cut)
            assert kept == sorted(f"{number:02}{twin}" for number in range(len(kept) // 2) for twin in ("", "b"))
            found.add(len(kept))

        check()
        db.close()
        assert len(found) > 2
