"""`agent-intercom-ctl key` as a person runs it, on a real terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from intercom.local import operator_keys, own_files
from intercom.local import places as where_things_live
from intercom.local.places import Places, places
from intercom.model.config import HighestRisk
from tests.operators.ctl_server import environ
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.real_time

KEY = [sys.executable, str(Path(__file__).parents[1] / "support" / "ctl_at_home.py"), "key"]
PIN = "correct horse"


def where(home: Path) -> Places:
    return places(environ=environ(home))


def run(home: Path, *words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """Without a terminal, and with something on stdin."""
    return subprocess.run(
        [*KEY, *words],
        env=environ(home),
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )


async def create(env: dict[str, str], *words: str) -> str:
    async with on_terminal([*KEY, "create", *words], env) as screen:
        for question in ("Choose a PIN for the new key: ", "The same again: "):
            await screen.until(question)
            screen.type(f"{PIN}\n")
        said = await screen.rest()
        assert await screen.ended() == 0, said
        return said


async def test_a_key_is_made_with_a_pin_typed_twice(tmp_path: Path) -> None:
    said = await create(environ(tmp_path), "--name", "ann")
    (kept,) = operator_keys.private_keys(where(tmp_path))
    assert f"created operator key {kept.key.id} (ann)" in said
    assert "sudo install -D -o root -g root -m 0644" in said
    assert PIN not in said
    assert operator_keys.unlock(kept, PIN).public_key().public_bytes_raw()
    listed = run(tmp_path, "list")
    assert kept.key.id in listed.stdout
    assert "ann" in listed.stdout


async def test_the_directories_of_a_key_are_its_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**environ(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert "not recorded" not in await create(env)
    monkeypatch.setattr(where_things_live, "STAND_IN_HOME", str(tmp_path))
    assert Path(tmp_path, "config/agent-intercom/operator-keys") in own_files.operator_keys_files()
    assert own_files.is_own(places(environ=env).state_dir, own_files.own_directories()[0])


def configure(found: Places, text: str) -> None:
    file = Path(found.config_file)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(text)


async def test_settings_are_signed_as_they_were_shown(tmp_path: Path) -> None:
    found = where(tmp_path)
    configure(found, '[slack]\nchannel_id = "C0123456789"\n[decisions]\nslack = "low"\n')
    said = await create(environ(tmp_path))
    assert "do not count until you run agent-intercom-ctl key settings" in said
    assert '[decisions] slack = "low"' in said
    async with on_terminal([*KEY, "settings"], environ(tmp_path)) as screen:
        await screen.until('[decisions] slack = "low"')
        await screen.until('[decisions] embed = "none"')
        # What comes into the file now was not shown.
        configure(found, '[decisions]\nembed = "critical"\n')
        await screen.until("PIN of key")
        screen.type(f"{PIN}\n")
        await screen.until("signed your settings with key")
        assert await screen.ended() == 0
    signed = operator_keys.read(Path(found.signed_settings_file))
    assert signed is not None
    assert signed.allowed == operator_keys.Allowed(slack=HighestRisk.LOW)
    (kept,) = operator_keys.private_keys(found)
    assert signed.is_genuine(kept.key)


async def test_a_pin_that_is_too_short_is_asked_for_again(tmp_path: Path) -> None:
    async with on_terminal([*KEY, "create"], environ(tmp_path)) as screen:
        said = await screen.until("Choose a PIN for the new key: ")
        assert "A PIN has at least 8 characters, or 10 if all are digits.\r\n" in said
        screen.type("1234\n")
        await screen.until("the PIN has 4 digits: take at least 8 characters, or 10 digits")
        await screen.until("Another PIN: ")
        screen.type(f"{PIN}\n")
        await screen.until("The same again: ")
        screen.type("another one\n")
        await screen.until("The two differ. Choose a PIN: ")
        screen.type(f"{PIN}\n")
        await screen.until("The same again: ")
        screen.type(f"{PIN}\n")
        await screen.until("created operator key")
        assert await screen.ended() == 0


async def test_a_pin_is_changed_with_the_old_one_in_three_tries(tmp_path: Path) -> None:
    await create(environ(tmp_path))
    async with on_terminal([*KEY, "change-pin"], environ(tmp_path)) as screen:
        await screen.until(": ")
        screen.type("not this one\n")
        await screen.until("That PIN does not open the key; try again: ")
        screen.type(f"{PIN}\n")
        await screen.until("New PIN: ")
        screen.type("battery staple\n")
        await screen.until("The same again: ")
        screen.type("battery staple\n")
        await screen.until("changed the PIN of key")
        assert await screen.ended() == 0
    (kept,) = operator_keys.private_keys(where(tmp_path))
    assert operator_keys.unlock(kept, "battery staple")
    # Three wrong ones end it.
    async with on_terminal([*KEY, "change-pin"], environ(tmp_path)) as screen:
        for _ in range(3):
            await screen.until(": ")
            screen.type("not this one\n")
        await screen.until("does not open key")
        assert await screen.ended() == 1


@pytest.mark.parametrize("typed", ["\x1b", f"{PIN}\x1b"])
async def test_esc_at_the_question_for_a_pin_cancels(tmp_path: Path, typed: str) -> None:
    async with on_terminal([*KEY, "create"], environ(tmp_path)) as screen:
        before = termios.tcgetattr(screen._descriptor)
        await screen.until("Choose a PIN for the new key: ")
        assert termios.tcgetattr(screen._descriptor) != before
        screen.type(typed)
        assert await screen.ended() == 130
        assert termios.tcgetattr(screen._descriptor) == before
    assert operator_keys.private_keys(where(tmp_path)) == ()


@pytest.mark.parametrize("words", [("create",), ("create", "--json")])
def test_a_pin_is_never_read_from_a_pipe(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words, typed=f"{PIN}\n{PIN}\n")
    assert done.returncode == 1
    assert "the PIN is read from a terminal, and there is none here" in done.stdout + done.stderr
    assert operator_keys.private_keys(where(tmp_path)) == ()


def test_no_option_takes_a_pin(tmp_path: Path) -> None:
    help_text = run(tmp_path, "create", "--help").stdout
    assert "pin" not in [word.strip("-[] ").lower() for word in help_text.split() if word.startswith(("-", "["))]
    assert run(tmp_path, "create", "--pin", PIN).returncode == 2


def test_without_a_key_the_list_says_what_that_means(tmp_path: Path) -> None:
    assert "decisions are not signed" in run(tmp_path, "list").stdout
    assert json.loads(run(tmp_path, "list", "--json").stdout) == {"keys": [], "unsigned_settings": None}
    assert "there is no operator key on this machine" in run(tmp_path, "change-pin").stderr
