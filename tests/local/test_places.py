"""Where things live, and whom a directory is trusted to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.local import places as where
from intercom.local.places import SOCKET_PATH_LIMIT, ipc_name_in, peek, places, private_directory
from intercom.model.errors import ConfigError, IpcError


@pytest.fixture(autouse=True)
def no_directory_of_the_uid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "RUN_USER", str(tmp_path / "none"))


def test_the_environment_says_where(tmp_path: Path) -> None:
    env = {"HOME": "/home/kim", "XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c/"}
    found = places("desk", env)
    assert found.config_file == "/c/agent-intercom/config.toml"
    assert found.database == "/s/agent-intercom/data/agent-rc.db"
    assert found.log_file == "/s/agent-intercom/log/desk.log"
    assert found.ctl_socket == f"{tmp_path}/agent-intercom/desk.sock"
    assert found.mcp_socket == f"{tmp_path}/agent-intercom/desk.mcp.sock"
    assert found.token_file == f"{tmp_path}/agent-intercom/desk.token"


def test_without_the_variables_the_usual_places_hold() -> None:
    found = places(environ={"HOME": "/home/kim", "XDG_STATE_HOME": "relative/is/ignored"})
    assert found.config_file == "/home/kim/.config/agent-intercom/config.toml"
    assert found.state_dir == "/home/kim/.local/state/agent-intercom"
    assert found.runtime_dir == f"/tmp/agent-intercom-{os.geteuid()}"
    assert found.mcp_socket.endswith("/agent-intercom.mcp.sock")


def test_without_the_variable_the_directory_of_the_uid_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / str(os.geteuid())
    own.mkdir()
    monkeypatch.setattr(where, "RUN_USER", str(tmp_path))
    for runtime in ("", "relative", str(tmp_path / "missing")):
        found = places(environ={"HOME": "/h", "XDG_RUNTIME_DIR": runtime}).runtime_dir
        assert found == str(own / "agent-intercom")
    assert places(environ={"HOME": "/h", "XDG_RUNTIME_DIR": str(tmp_path)}).runtime_dir == str(
        tmp_path / "agent-intercom"
    )


def test_without_a_home_the_password_file_says_where() -> None:
    assert os.path.isabs(places(environ={}).config_file)


def test_a_runtime_directory_of_another_user_or_none_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for runtime in ("relative", str(tmp_path / "missing")):
        assert places(environ={"XDG_RUNTIME_DIR": runtime, "TMPDIR": "/t"}).runtime_dir.startswith("/t/agent-intercom-")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    env = {"HOME": "/h", "XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": "/t"}
    assert places(environ=env).runtime_dir.startswith("/t/")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "-x", "a b", "ä", "x" * 65, "a\n"])
def test_a_name_that_could_not_be_a_files_is_refused(name: str) -> None:
    with pytest.raises(IpcError, match="ipc_name"):
        places(name, {"HOME": "/h"})


def test_a_socket_path_longer_than_the_system_allows_is_refused() -> None:
    tail = f"/agent-intercom-{os.geteuid()}/agent-intercom.mcp.sock"
    fits = "/" + "x" * (SOCKET_PATH_LIMIT - len(tail) - 1)
    assert len(places(environ={"HOME": "/h", "TMPDIR": fits}).mcp_socket) == SOCKET_PATH_LIMIT
    with pytest.raises(IpcError, match="bytes"):
        places(environ={"HOME": "/h", "TMPDIR": fits + "x"})


def test_the_name_is_read_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert ipc_name_in(str(file)) == "agent-intercom"
    file.write_text("[slack]\nx = 1\n")
    assert ipc_name_in(str(file)) == "agent-intercom"
    file.write_text('ipc_name = "desk"\nsomething_unknown = 1\n')
    assert ipc_name_in(str(file)) == "desk"


@pytest.mark.parametrize("content", [b"ipc_name =", b"\xff"])
def test_a_configuration_that_is_no_toml_is_said_so(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="not TOML"):
        peek(str(file))
    with pytest.raises(ConfigError, match="cannot read"):
        peek(str(tmp_path))


def test_a_private_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_directory(str(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    for path in (Path(made), Path(made).parent):
        assert path.stat().st_mode & 0o777 == 0o700
    assert private_directory(made) == made


def test_a_directory_that_others_could_change_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tmp_path / "good"
    good.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(good)
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    for name, why in (("link", "link"), ("file", "file"), ("open", "chmod 700")):
        with pytest.raises(IpcError, match=why):
            private_directory(str(tmp_path / name))
    monkeypatch.setattr(os, "geteuid", lambda: good.stat().st_uid + 1)
    with pytest.raises(IpcError, match="belongs to uid"):
        private_directory(str(good))


@pytest.mark.parametrize("module", ["intercom.local.places", "intercom.local.wire", "intercom.agents.shim.main"])
def test_what_ctl_and_the_shim_start_with_is_the_standard_library(module: str) -> None:
    heavy = "attr attrs trio anyio mcp pydantic pykka rich psutil dataclasses inspect subprocess"
    code = f"import sys, {module}; print([m for m in '{heavy}'.split() if m in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert said.stdout.strip() == "[]", said.stderr
