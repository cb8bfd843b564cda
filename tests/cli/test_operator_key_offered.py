"""Who has no operator key is offered one, and told what it means to have none."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest
import trio

from intercom.cli import ctl_key, doctor_checks, init, main
from intercom.cli.ctl import main as ctl_main
from intercom.cli.doctor_checks import State
from intercom.local import operator_keys, own_files
from intercom.local.places import Places, places
from intercom.model.errors import ConfigError
from intercom.model.json_types import JsonObject
from tests.cli.test_ctl_signed import CTL, PIN, ctl, make_key, scene, with_pin
from tests.operators.ctl_server import environ
from tests.support.server_process import COMMAND
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.real_time


def where(home: Path) -> Places:
    return places(environ=environ(home))


@pytest.mark.parametrize(("typed", "is_made"), [("\n", True), ("y\n", True), ("n\n", False), ("\x04", False)])
async def test_init_offers_an_operator_key_and_recommends_it(tmp_path: Path, typed: str, is_made: bool) -> None:
    (tmp_path / "project").mkdir()
    words = ["init", "--write", "--client", "cursor", "--no-hooks", "--workspace", str(tmp_path / "project")]
    async with on_terminal([*COMMAND, *words], environ(tmp_path)) as screen:
        said = await screen.until("Make an operator key? [Y/n] ")
        assert "only what you sign with a PIN is approved" in said
        assert "Recommended" in said
        screen.type(typed)
        if is_made:
            await screen.until("Choose a PIN for the new key: ")
            screen.type(f"{PIN}\n")
            await screen.until("The same again: ")
            screen.type(f"{PIN}\n")
            assert "it counts from your first signed decision on" in await screen.rest()
        assert await screen.ended() == 0
    assert len(operator_keys.private_keys(where(tmp_path))) == is_made


def test_init_says_that_no_key_was_made(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> int:
        raise ConfigError("the PIN has 3 digits")

    monkeypatch.setattr(init, "_is_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "y")
    monkeypatch.setattr(init.ctl_key, "create", refuse)
    assert main.main(["init", "--write", "--workspace", str(tmp_path)]) == 0
    assert capsys.readouterr().err == (
        "the PIN has 3 digits\nno key was made: agent-intercom-ctl key create makes one\n"
    )


async def test_pending_and_watch_say_once_that_nothing_is_signed(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        for words in (["pending"], ["watch"]):
            async with on_terminal([*CTL, *words], at.env) as screen:
                await screen.until("no operator key: decisions count by the terminal that they come from")
        # Who asks for JSON gets nothing but JSON.
        code, cards = await ctl(at.env, "pending")
        assert (code, len(cards)) == (0, 1)


def test_doctor_counts_keys_where_no_server_runs(tmp_path: Path) -> None:
    make_key(tmp_path)
    found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
    assert found.state is State.OK
    assert "1 key listed" in found.text


def test_doctor_finds_a_damaged_list_and_one_that_others_may_write(tmp_path: Path) -> None:
    make_key(tmp_path)
    anchor = tmp_path / "etc" / "operator-keys"
    anchor.parent.mkdir(mode=0o755)
    anchor.write_text("")
    anchor.chmod(0o666)
    found = doctor_checks.examine_keys(where(tmp_path), str(anchor), os.geteuid())
    assert found.state is State.FAULT
    assert "must be root's" in found.text
    Path(where(tmp_path).operator_keys_file).write_text("nonsense\n")
    found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
    assert found.state is State.FAULT
    assert "line 1 is not a key" in found.text


async def test_doctor_asks_the_server_which_keys_count(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    async with scene(tmp_path) as at:
        # Listed before the server started, and not enrolled: nobody has signed with it yet.
        found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
        assert found.state is State.OK
        assert f"the first one that you sign enrols your key {key}" in found.text
        assert "key enrol" in found.advice
        # Of a key that is not here, nobody can sign a first decision.
        await trio.Path(where(tmp_path).keys_directory).rename(tmp_path / "elsewhere")
        found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
        assert found.state is State.FAULT
        assert f"{key}: not enrolled" in found.text
        await trio.Path(tmp_path / "elsewhere").rename(where(tmp_path).keys_directory)
        # Nor is another made, which it would not take.
        async with on_terminal([*CTL, "key", "create"], at.env) as screen:
            await screen.until(f"{key}: not enrolled: run agent-intercom-ctl key enrol")
            assert await screen.ended() == 1
        assert [each.key.id for each in operator_keys.private_keys(where(tmp_path))] == [key]
        await with_pin(at, "key", "enrol")
        found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
        assert found.state is State.OK
        assert "decisions are signed" in found.text
        assert "sudo install" in found.advice


def answering(monkeypatch: pytest.MonkeyPatch, *keys: JsonObject, of: ModuleType = doctor_checks) -> None:
    """Have a server answer doctor, or another module, that decisions have to be signed, and that these are its keys."""
    known: JsonObject = {"required": True, "keys": list(keys), "unsigned_settings": None}
    monkeypatch.setattr(of, "request", lambda where, verb, fields, **more: known)


def waiting(id: str, why: str = "not enrolled: run agent-intercom-ctl key enrol", *, can_be_first: bool) -> JsonObject:
    return {"key_id": id, "public": "", "name": "", "counts": False, "why": why, "can_be_first": can_be_first}


@pytest.mark.parametrize(
    "why",
    [
        "pinned at the next start",
        "not enrolled, and it cannot be enrolled again: remove its line",
        "not listed in /etc/agent-intercom/operator-keys",
        "not listed when the server started",
    ],
)
def test_doctor_names_a_key_with_which_nothing_can_be_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    key = make_key(tmp_path)
    answering(monkeypatch, waiting(key, why, can_be_first=False))
    found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
    assert found.state is State.FAULT
    assert found.text == f"{key}: {why}"


def test_doctor_says_that_the_directories_are_not_recorded(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that an agent's client started there wants the keys of the user's own directories."""
    answering(monkeypatch)
    assert list(doctor_checks.examine_own_directories(where)) == []
    monkeypatch.setattr(doctor_checks, "_runs", lambda _where: True)
    directories = (os.path.dirname(where.config_file), where.state_dir)
    found = [*doctor_checks.examine_own_directories(where), doctor_checks.examine_keys(where, "/nowhere/keys")]
    assert [(each.subject, each.state) for each in found] == [
        ("own directories", State.WARN),
        ("operator key", State.FAULT),
    ]
    assert "decisions have to be signed, and no key counts" in found[1].text
    for each in found:
        assert f"{' and '.join(directories)} are not recorded as yours in {own_files.directories_file()}" in each.text
        assert each.advice == "agent-intercom init --write in a terminal of your own, then agent-intercom stop"
    own_files.record_directories(*directories)
    assert list(doctor_checks.examine_own_directories(where)) == []
    found = [doctor_checks.examine_keys(where, "/nowhere/keys")]
    assert found[0].text == "decisions have to be signed, and no key counts"


def test_key_list_says_what_the_running_server_requires(
    where: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that decisions are not signed, because it looked at this environment's list alone."""
    answering(monkeypatch, of=ctl_key)
    assert ctl_main(["key", "list"]) == 0
    said = capsys.readouterr().out
    assert said == "the running server requires signed decisions, and no key counts there: see agent-intercom doctor\n"


def test_doctor_takes_what_to_do_from_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: JsonObject = {"key_id": "k", "public": "", "name": "", "counts": True, "why": ""}
    known: JsonObject = {
        "required": True,
        "keys": [counts],
        "unsigned_settings": "no; if you want it, run key settings",
    }
    parts: JsonObject = {"unsigned_settings_text": "not signed; not yet", "unsigned_settings_advice": "sign it"}
    for said, text, advice in (
        (known | parts, "not signed; not yet", "sign it"),
        (known, known["unsigned_settings"], ""),
    ):
        monkeypatch.setattr(doctor_checks, "request", lambda where, verb, fields, said=said, **more: said)
        found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
        assert (found.state, found.text, found.advice) == (State.WARN, text, advice)


def test_doctor_says_of_no_second_new_key_that_it_is_yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may have made it, and listed it."""
    keys = [make_key(tmp_path) for _ in range(2)]
    answering(monkeypatch, *(waiting(key, can_be_first=True) for key in keys))
    found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
    assert found.state is State.FAULT
    assert all(f"{key}: not enrolled" in found.text for key in keys)
    assert "your key" not in found.text


async def test_doctor_and_key_list_say_which_settings_nobody_signed(tmp_path: Path) -> None:
    make_key(tmp_path)
    config = Path(where(tmp_path).config_file)
    await trio.Path(config).write_text('[decisions]\nembed = "low"\n')
    async with scene(tmp_path) as at:
        assert "nothing can be decided yet" in await with_pin(at, "key", "enrol")
        found = doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none"))
        assert found.state is State.WARN
        assert found.text.startswith(
            "in programs that embed Intercom, nothing can be decided yet: your operator key has"
        )
        assert found.advice == "if you want it, run agent-intercom-ctl key settings"
        async with on_terminal([*CTL, "key", "list"], at.env) as screen:
            assert found.text in await screen.rest()
        code, reply = await ctl(at.env, "key", "list")
        assert code == 0
        assert reply["unsigned_settings"] == f"{found.text}; {found.advice}"
        await with_pin(at, "key", "settings")
        # Before anybody asks again: the server takes no older ones from here on.
        _, log = await ctl(at.env, "log")
        assert "settings_signed" in [entry["kind"] for entry in log["entries"]]
        assert doctor_checks.examine_keys(where(tmp_path), str(tmp_path / "none")).state is State.OK
        code, reply = await ctl(at.env, "key", "list")
        assert (code, reply["unsigned_settings"]) == (0, None)
