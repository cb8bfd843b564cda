"""Operator keys: their files, and what opens them."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from intercom.local import operator_keys
from intercom.local.operator_keys import KeyFile, PublicKey, WrongPin, check_pin
from intercom.local.places import Places, places
from intercom.model.errors import ConfigError
from tests.support.keys import make_key_file

PIN = "correct horse"
AT = "2026-11-23T08:00:00.000000Z"


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return places(environ={"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})


def made(where: Places, name: str = "ann@laptop") -> KeyFile:
    return make_key_file(where, PIN, name, AT)


def test_a_key_opens_with_its_pin_and_signs_what_its_public_half_verifies(where: Places) -> None:
    key = made(where)
    private = operator_keys.unlock(operator_keys.private_keys(where)[0], PIN)
    signature = private.sign(b"yes").hex()
    assert operator_keys.verifies(key.key.public, signature, b"yes")
    assert not operator_keys.verifies(key.key.public, signature, b"yes!")
    assert not operator_keys.verifies(key.key.public, "not hexadecimal", b"yes")
    assert not operator_keys.verifies(made(where, "other").key.public, signature, b"yes")


def test_to_try_a_pin_takes_64_mib_and_three_passes(where: Places) -> None:
    key = operator_keys.create(where, PIN, "ann@laptop", AT)
    costs = [getattr(key.sealed, name) for name in ("kdf", "passes", "lanes", "memory_kib")]
    assert costs == ["argon2id", 3, 1, 64 * 1024]
    anew = operator_keys.change_pin(made(where), operator_keys.unlock(key, PIN), "battery staple")
    assert [getattr(anew.sealed, name) for name in ("kdf", "passes", "lanes", "memory_kib")] == costs


def test_a_wrong_pin_is_a_sentence(where: Places) -> None:
    key = made(where)
    with pytest.raises(WrongPin, match=f"this PIN does not open key {key.key.id}; nothing was signed"):
        operator_keys.unlock(key, PIN.upper())


def test_a_new_pin_replaces_the_old_one(where: Places) -> None:
    key = made(where)
    private = operator_keys.unlock(key, PIN)
    operator_keys.change_pin(key, private, "battery staple")
    (kept,) = operator_keys.private_keys(where)
    assert operator_keys.unlock(kept, "battery staple").private_bytes_raw() == private.private_bytes_raw()
    with pytest.raises(WrongPin):
        operator_keys.unlock(kept, PIN)


def test_the_private_half_is_its_owners_alone_and_nowhere_in_clear(where: Places) -> None:
    key = made(where)
    secret = operator_keys.unlock(key, PIN).private_bytes_raw()
    assert key.path.stat().st_mode & 0o777 == 0o600
    assert key.path.parent.stat().st_mode & 0o777 == 0o700
    everything = b"".join(file.read_bytes() for file in Path(where.config_file).parent.rglob("*") if file.is_file())
    assert secret not in everything
    assert base64.b64encode(secret) not in everything
    assert PIN.encode() not in everything


def test_the_public_half_is_listed(where: Places) -> None:
    first, second = made(where), made(where, "second")
    listed = operator_keys.read_public(Path(where.operator_keys_file))
    assert listed == {first.key.id: first.key, second.key.id: second.key}
    operator_keys.forget(where, first.key.id)
    assert list(operator_keys.read_public(Path(where.operator_keys_file))) == [second.key.id]
    assert [each.key for each in operator_keys.private_keys(where)] == [second.key]


@pytest.mark.parametrize("part", ["public", "salt", "nonce", "private", "passes", "memory_kib"])
def test_a_key_file_whose_parts_were_exchanged_does_not_open(where: Places, part: str) -> None:
    key, other = made(where), made(where, "other")
    mine, theirs = json.loads(key.path.read_text()), json.loads(other.path.read_text())
    mine[part] = theirs[part] if isinstance(theirs[part], str) else theirs[part] + 8
    key.path.write_text(json.dumps(mine))
    found = next(each for each in operator_keys.private_keys(where) if each.path == key.path)
    with pytest.raises(WrongPin):
        operator_keys.unlock(found, PIN)


@pytest.mark.parametrize(
    "change",
    [
        {"memory_kib": 1024 * 1024 * 64},
        {"passes": 10_000},
        {"passes": "3"},
        {"lanes": 0},
        {"kdf": "none"},
        {"cipher": "none"},
        {"version": 2},
        {"public": "AAAA"},
        {"salt": ""},
        {"private": "!"},
        {"name": None},
        {"nonce": None},
    ],
)
def test_a_damaged_key_file_is_refused_with_its_name(where: Places, change: dict[str, Any]) -> None:
    key = made(where)
    key.path.write_text(json.dumps({**json.loads(key.path.read_text()), **change}))
    with pytest.raises(ConfigError, match=f"{key.path} is not a key file"):
        operator_keys.private_keys(where)


@pytest.mark.parametrize("text", ["{", "[]", "", "null", '"text"'])
def test_what_is_no_key_file_at_all_is_refused(where: Places, text: str) -> None:
    key = made(where)
    key.path.write_text(text)
    with pytest.raises(ConfigError, match="is not a key file"):
        operator_keys.private_keys(where)


def test_a_key_file_that_others_may_read_is_refused(where: Places) -> None:
    key = made(where)
    key.path.chmod(0o640)
    with pytest.raises(ConfigError, match="open to other users"):
        operator_keys.private_keys(where)


def test_a_link_is_no_file_of_operator_keys(where: Places, tmp_path: Path) -> None:
    key = made(where)
    elsewhere = tmp_path / "elsewhere"
    os.rename(where.operator_keys_file, elsewhere)
    os.symlink(elsewhere, where.operator_keys_file)
    with pytest.raises(ConfigError, match="not a link"):
        operator_keys.read_public(Path(where.operator_keys_file))
    assert operator_keys.read_public(elsewhere) == {key.key.id: key.key}


def test_a_line_that_is_no_key_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "operator-keys"
    file.write_text(f"# a remark\n\n{PublicKey(base64.b64encode(bytes(32)).decode(), 'ann').line()}\nrsa AAAA\n")
    with pytest.raises(ConfigError, match="line 4 is not a key"):
        operator_keys.read_public(file)


@pytest.mark.parametrize("pin", ["", "short12", "123456789", "aaaaaaaaaaaa", "1122112211", "0123456789", "x" * 2000])
def test_a_pin_that_is_soon_found_is_refused(pin: str) -> None:
    with pytest.raises(ConfigError, match="PIN"):
        check_pin(pin)


@pytest.mark.parametrize("pin", ["8 chars!", "4071938265", "Ünïcödé pin"])
def test_a_pin_that_takes_long_to_find_is_taken(pin: str) -> None:
    check_pin(pin)


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 65, "\x1b[31m"])
def test_a_name_is_one_line(where: Places, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        made(where, name)
    assert operator_keys.private_keys(where) == ()
