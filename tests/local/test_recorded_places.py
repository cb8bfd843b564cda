"""A server that was started in another environment is found by the record beside its database."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from intercom.local import lock
from intercom.local.places import Places, places, recorded


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The runtime directory of the server's environment."""
    directory = tmp_path / "run" / "agent-intercom"
    directory.mkdir(mode=0o700, parents=True)
    return directory


@pytest.fixture
def where(tmp_path: Path) -> Places:
    """The places in an environment with another runtime directory."""
    found = places(environ={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path / "tmp")})
    Path(found.database).parent.mkdir(parents=True)
    return Places(found.ipc_name, found.config_file, found.state_dir, str(tmp_path / "tmp/agent-intercom-1"))


def test_it_is_found_while_the_server_has_its_database_and_after(where: Places, runtime: Path) -> None:
    assert recorded(where) is None
    with lock.acquire(where.database, version="1", runtime_dir=str(runtime)):
        found = recorded(where)
        assert found is not None
        assert (found.runtime_dir, found.ipc_name, found.database) == (str(runtime), where.ipc_name, where.database)
        # The lock itself is not touched.
        assert lock.holder(where.database) == lock.Holder(os.getpid(), "1")


def test_a_server_in_the_same_directory_needs_no_record(where: Places, runtime: Path) -> None:
    here = Places(where.ipc_name, where.config_file, where.state_dir, str(runtime))
    with lock.acquire(where.database, version="1", runtime_dir=str(runtime)):
        assert recorded(here) is None


@pytest.mark.parametrize("path", ["own/db", "{root}/elsewhere/db", "~/db"])
def test_the_database_that_the_configuration_names_counts(
    where: Places, runtime: Path, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written = path.format(root=tmp_path)
    config = tmp_path / "other" / "config.toml"
    config.parent.mkdir()
    config.write_text(f'[database]\npath = "{written}"\n')
    database = config.parent / os.path.expanduser(written)
    database.parent.mkdir(parents=True, exist_ok=True)
    with lock.acquire(database, version="1", runtime_dir=str(runtime)):
        found = recorded(where, str(config))
    assert found is not None
    assert found.runtime_dir == str(runtime)


def test_a_record_that_cannot_be_trusted_is_none(where: Places, runtime: Path, tmp_path: Path) -> None:
    file = Path(f"{where.database}.lock")
    is_open = tmp_path / "open"
    is_open.mkdir()
    is_open.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(runtime)
    records: list[Any] = [
        {"pid": 1},
        {"runtime_dir": 1},
        {"runtime_dir": ""},
        {"runtime_dir": "run/agent-intercom"},
        {"runtime_dir": str(tmp_path / "gone")},
        {"runtime_dir": str(is_open)},
        {"runtime_dir": str(link)},
        {"runtime_dir": "/x\0y"},
        [],
        None,
        "text",
    ]
    for record in records:
        file.write_text(json.dumps(record))
        assert recorded(where) is None, record
    for raw in (b"", b"{", b"\xff", b'{"runtime_dir": "' + b"x" * 10_000):
        file.write_bytes(raw)
        assert recorded(where) is None, raw[:10]
    file.write_text(json.dumps({"runtime_dir": str(runtime)}))
    assert recorded(where) is not None
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert recorded(where) is None


def test_a_configuration_that_cannot_be_read_leads_nowhere(where: Places, tmp_path: Path) -> None:
    config = tmp_path / "broken.toml"
    config.write_text("[database\n")
    assert recorded(where, str(config)) is None
