"""Which directories are the user's own, whatever an environment says."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from intercom.cli import server_settings
from intercom.local import own_files, places, server_secrets
from intercom.local.own_files import is_own, is_own_config
from intercom.local.processes import Recognised, Who
from intercom.model.config import RoomsSettings, WebSettings
from intercom.model.errors import ConfigError
from intercom.model.process import Origin


@pytest.fixture(autouse=True)
def me(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home as the system says."""
    monkeypatch.setattr(places, "STAND_IN_HOME", str(tmp_path / "me"))
    return tmp_path / "me"


def test_the_directories_in_the_home_that_the_system_knows_are_own(me: Path, tmp_path: Path) -> None:
    known, fault = own_files.own_directories()
    assert fault == ""
    assert is_own(str(me / ".local/state/agent-intercom"), known)
    assert is_own_config(str(me / ".config/agent-intercom/config.toml"), known)
    assert not is_own_config(str(me / ".config/agent-intercom/other.toml"), known)
    assert not is_own(str(tmp_path / "state/agent-intercom"), known)


def test_a_configuration_that_is_a_link_is_own_by_either_name(me: Path, tmp_path: Path) -> None:
    file = me / ".config/agent-intercom/config.toml"
    file.parent.mkdir(parents=True)
    (tmp_path / "dotfiles").mkdir()
    file.symlink_to(tmp_path / "dotfiles/intercom.toml")
    assert is_own_config(str(tmp_path / "dotfiles/intercom.toml"), own_files.own_directories()[0])


def test_what_is_recorded_is_own_until_it_is_forgotten(tmp_path: Path) -> None:
    other = str(tmp_path / "config/agent-intercom")
    own_files.record_directories(other)
    assert is_own(other, own_files.own_directories()[0])
    file = own_files.directories_file()
    assert file.stat().st_mode & 0o777 == 0o600
    own_files.forget_directories(other)
    assert not is_own(other, own_files.own_directories()[0])


def test_what_is_recorded_before_it_exists_stays_own(tmp_path: Path) -> None:
    state, other = str(tmp_path / "state/agent-intercom"), str(tmp_path / "config/agent-intercom")
    own_files.record_directories(state)
    own_files.record_directories(other)
    known = own_files.own_directories()[0]
    assert is_own(state, known)
    assert is_own(other, known)


def test_those_who_record_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = [str(tmp_path / f"{number}/agent-intercom") for number in range(2)]
    read, both = own_files._listed, threading.Barrier(2)

    def listed() -> set[str]:
        # Unless the first one holds a lock, the second one reads before the first one writes.
        found = read()
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return found

    monkeypatch.setattr(own_files, "_listed", listed)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(own_files.record_directories, several))
    monkeypatch.undo()
    monkeypatch.setattr(places, "STAND_IN_HOME", str(tmp_path / "me"))
    assert read() == set(several)


def test_who_keeps_the_list_locked_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_files.record_directories(str(tmp_path / "config/agent-intercom"))
    monkeypatch.setattr(own_files, "_PATIENCE", 0.05)
    directory = os.open(own_files.directories_file().parent, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        with pytest.raises(ConfigError, match=r"another program keeps .* locked: see which with lslocks"):
            own_files.record_directories(str(tmp_path / "state/agent-intercom"))
    finally:
        os.close(directory)


def test_a_list_that_others_may_read_or_write_or_that_is_a_link_lists_nothing(me: Path, tmp_path: Path) -> None:
    other = str(tmp_path / "config/agent-intercom")
    own_files.record_directories(other)
    file = own_files.directories_file()
    file.chmod(0o666)
    known, fault = own_files.own_directories()
    assert not is_own(other, known)
    assert "open to other users" in fault
    file.chmod(0o600)
    file.rename(tmp_path / "moved")
    file.symlink_to(tmp_path / "moved")
    assert not is_own(other, own_files.own_directories()[0])


@pytest.mark.parametrize("who", list(Who))
def test_only_a_recognised_operator_records(who: Who, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = places.places(
        environ={name: str(tmp_path / name) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    )
    monkeypatch.setattr(server_settings.processes, "recognise", lambda *_: Recognised(who, "", Origin("ctl")))
    assert server_settings.record_directories(other) is (who is Who.OPERATOR)
    assert is_own(os.path.dirname(other.config_file), own_files.own_directories()[0]) is (who is Who.OPERATOR)
    assert is_own(other.state_dir, own_files.own_directories()[0]) is (who is Who.OPERATOR)


# --- secrets that others share ---------------------------------------------------------------------------------------


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory in which every user of the machine can look: those of the tests are private."""
    made = Path(tempfile.mkdtemp(dir="/tmp", prefix="ic-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def shared(directory: Path, mode: int) -> Path:
    file = directory / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o620, 0o602, 0o666])
def test_a_secret_that_other_users_can_read_or_change_does_not_count(mode: int, reachable: Path) -> None:
    file = shared(reachable, mode)
    settings = WebSettings(port=1, public_url="https://x.example", proxy_secret_file=file)
    rooms = RoomsSettings(enabled=True, secret_file=file)
    with pytest.raises(ConfigError, match=r"web\.proxy_secret_file .* is open to other users: run chmod go-rwx on it"):
        server_secrets.proxy_secret(settings, {}, by_client=False)
    with pytest.raises(ConfigError, match=r"rooms\.secret_file .* is open to other users: run chmod go-rwx on it"):
        server_secrets.read(rooms, {})
    # A link to it is as open.
    link = reachable / "link"
    link.symlink_to(file)
    with pytest.raises(ConfigError, match="is open to other users"):
        own_files.read_shared(link)


@pytest.mark.parametrize(
    ("mode", "directory"),
    [
        (0o600, 0o755),
        (0o400, 0o755),
        # The group of the proxy, for example.
        (0o640, 0o755),
        # Where nobody else can look, nobody else finds the file.
        (0o664, 0o700),
        (0o644, 0o750),
    ],
)
def test_a_secret_that_only_its_user_and_its_group_can_read_counts(
    mode: int, directory: int, reachable: Path, tmp_path: Path
) -> None:
    file = shared(reachable, mode)
    reachable.chmod(directory)
    link = tmp_path / "link"
    link.symlink_to(file)
    for each in (file, link):
        assert own_files.read_shared(each) == b"0123456789abcdef\n"


def test_a_secret_of_another_user_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shared(tmp_path, 0o600)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:
        with pytest.raises(ConfigError, match="must be a file of yours or root's"):
            own_files.read_shared(file)
    else:
        assert own_files.read_shared(file) == b"0123456789abcdef\n"
