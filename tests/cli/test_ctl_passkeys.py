"""`agent-intercom-ctl key add` and `key revoke`: a passkey of the page counts once the PIN has signed for it."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from intercom.cli import ctl_key
from intercom.cli.ctl_text import one_line
from intercom.local import operator_keys
from intercom.local.operator_keys import KeyFile, PublicKey, WrongPin
from intercom.local.places import Places, places
from intercom.model import signing
from intercom.model.errors import Ambiguous, InvalidArguments, NotFound, Unauthorized
from tests.operators.ctl_server import environ
from tests.support.keys import Key, make_key_file
from tests.support.passkeys import Authenticator

PIN = "correct horse"
PHONE = Authenticator()
ID = PHONE.public.id


@define
class Server:
    """A server as ctl sees it."""

    offered: list[PublicKey]
    counting: list[PublicKey]
    #: The keys that do not count, as the server answers.
    others: list[dict[str, Any]] = field(factory=list)
    enrolled: list[dict[str, Any]] = field(factory=list)
    revoked: list[str] = field(factory=list)
    claims: str = ""

    def request(self, where: Places, verb: str, fields: dict[str, Any], **more: Any) -> Any:
        match verb:
            case "passkeys":
                return {
                    "passkeys": [
                        {"key_id": self.claims or each.id, "public": each.public, "name": each.name, "by": "zoe"}
                        for each in self.offered
                    ]
                }
            case "keys":
                keys = [
                    {"key_id": each.id, "public": each.public, "name": each.name, "counts": True}
                    for each in self.counting
                ]
                return {"required": True, "keys": [*keys, *self.others]}
            case "key-add":
                self.enrolled.append(fields)
                return {}
            case "key-revoke":
                self.revoked.append(fields["id"])
                self.counting = [each for each in self.counting if not each.is_passkey and each.id != fields["id"]]
                return {}
        raise AssertionError(verb)


@pytest.fixture
def where(tmp_path: Path) -> Places:
    return places(environ=environ(tmp_path))


@pytest.fixture
def kept(where: Places) -> KeyFile:
    return make_key_file(where, PIN, "kim", "2026-11-26T08:00:00.000000+00:00")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, kept: KeyFile) -> Server:
    made = Server([PHONE.public], [kept.key])
    monkeypatch.setattr(ctl_key, "request", made.request)
    monkeypatch.setattr(ctl_key, "ask_pin", lambda prompt: PIN)
    monkeypatch.setattr(ctl_key, "keep_private", lambda: None)
    monkeypatch.setattr(ctl_key, "say", lambda text: None)
    return made


def not_counting(key: PublicKey, why: str = "", *, can_be_first: bool = False) -> dict[str, Any]:
    entry = {"key_id": key.id, "public": key.public, "name": key.name}
    return {**entry, "counts": False, "why": why, "can_be_first": can_be_first}


def key(where: Places, act: str, id: str) -> int:
    return ctl_key.key(where, Namespace(act=act, id=id, json=False))


@pytest.mark.parametrize(
    "code", [ID, ID.upper(), f"{ID[:4]}-{ID[4:8]} {ID[8:]}"], ids=["as shown", "in capitals", "in groups"]
)
def test_the_pin_signs_for_the_passkey_whose_whole_code_was_given(
    where: Places, kept: KeyFile, server: Server, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert key(where, "add", code) == 0
    said = capsys.readouterr()
    assert said.out == f"added passkey {ID}\n"
    (sent,) = server.enrolled
    signed = sent["signature"]
    assert (sent["public"], sent["name"]) == (PHONE.public.public, PHONE.public.name)
    statement = signing.key_statement("add", public=sent["public"], name=sent["name"], at=signed["at"], by=kept.key.id)
    assert operator_keys.verifies(kept.key.public, signed["value"], statement)
    assert operator_keys.read_public(Path(where.operator_keys_file)).keys() == {kept.key.id, ID}


@pytest.mark.parametrize(
    "code",
    ["", ID[:8], ID[:15], ID + "0", "x" * 16, PHONE.public.public],
    ids=["none", "half", "all but one digit", "one digit more", "another", "the key itself"],
)
def test_a_part_of_the_code_adds_nothing(where: Places, server: Server, code: str) -> None:
    with pytest.raises(InvalidArguments, match="give all of it"):
        key(where, "add", code)
    assert server.enrolled == []


def test_another_passkey_in_its_place_is_not_added(where: Places, kept: KeyFile, server: Server) -> None:
    """A false server, or an agent that proposes one of its own at the same time."""
    server.offered, server.claims = [Authenticator().public], ID
    with pytest.raises(NotFound, match=f"no passkey {ID} waits for this"):
        key(where, "add", ID)
    # Nor a key of another kind.
    server.offered, server.claims = [kept.key], kept.key.id
    with pytest.raises(NotFound, match="waits for this"):
        key(where, "add", kept.key.id)
    assert server.enrolled == []
    assert operator_keys.read_public(Path(where.operator_keys_file)).keys() == {kept.key.id}


def test_without_a_key_that_counts_here_or_its_pin_nothing_is_added(
    where: Places, kept: KeyFile, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.counting = [PublicKey(Key().public.public, "somebody else's")]
    with pytest.raises(NotFound, match="an operator key that counts has to be on this machine"):
        key(where, "add", ID)
    server.counting = [kept.key]
    monkeypatch.setattr(ctl_key, "ask_pin", lambda prompt: "wrong horse")
    with pytest.raises(WrongPin):
        key(where, "add", ID)
    assert server.enrolled == []
    assert operator_keys.read_public(Path(where.operator_keys_file)).keys() == {kept.key.id}


def test_a_key_that_was_made_while_no_server_ran_enrols_itself_with_its_first_passkey(
    where: Places, kept: KeyFile, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.counting, server.others = [], [not_counting(kept.key, can_be_first=True)]
    typed: list[str] = []

    def typing(prompt: str) -> str:
        typed.append(prompt)
        return PIN

    told: list[str] = []
    monkeypatch.setattr(ctl_key, "ask_pin", typing)
    monkeypatch.setattr(ctl_key, "say", told.append)
    assert key(where, "add", ID) == 0
    assert len(typed) == 1
    assert told[-1] == f"operator key {kept.key.id} (kim) counts from now on too: all decisions are signed"
    own, phone = server.enrolled
    for sent in (own, phone):
        at = sent["signature"]["at"]
        said = signing.key_statement("add", public=sent["public"], name=sent["name"], at=at, by=kept.key.id)
        assert operator_keys.verifies(kept.key.public, sent["signature"]["value"], said)
    assert (own["public"], phone["public"]) == (kept.key.public, PHONE.public.public)
    # Without one here there is nothing to enrol.
    Path(kept.path).unlink()
    with pytest.raises(NotFound, match="key list"):
        key(where, "add", ID)


@pytest.mark.parametrize("why", ["pinned at the next start", "not enrolled, and it cannot be enrolled again", ""])
def test_a_key_that_the_server_would_not_take_is_not_said_to_count_from_now_on(
    where: Places, kept: KeyFile, server: Server, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    told: list[str] = []
    # The last one is not listed.
    server.counting, server.others = [], [not_counting(kept.key, why)] if why else []
    monkeypatch.setattr(ctl_key, "say", told.append)
    monkeypatch.setattr(ctl_key, "ask_pin", lambda prompt: pytest.fail(f"asked for a PIN: {prompt}"))
    with pytest.raises(Unauthorized, match=f"operator key {kept.key.id} does not count.*{why}"):
        key(where, "add", ID)
    assert (told, server.enrolled) == ([], [])


@pytest.mark.parametrize(
    "name",
    [
        "phone",
        "phone), made by kim, signs decisions on the page at http://",
        "x was made by kim, who signs decisions with it",
        "\u05d0\u05d1 (\u05d2) 1",
        "\u0440hone \u3164 kim",
    ],
    ids=["plain", "our own sentence", "our first line", "right to left", "letters that look the same or like none"],
)
def test_the_name_of_a_passkey_says_nothing_of_whose_it_is(
    where: Places, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    said: list[str] = []
    monkeypatch.setattr(ctl_key, "say", said.append)
    server.offered = [evolve(PHONE.public, name=name)]
    key(where, "add", ID)
    assert said == [
        f"passkey {ID} was made by zoe, who signs decisions with it from now on",
        f"  on the page at {PHONE.origin}",
        f"  its name there: {one_line(name)}",
    ]


def test_of_several_keys_that_do_not_count_none_is_chosen(
    where: Places, kept: KeyFile, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program of this user may have put one there, and the oldest would be asked for first."""
    server.counting = []
    planted = make_key_file(where, "another horse", "kim", "2001-01-01T00:00:00.000000+00:00")
    monkeypatch.setattr(ctl_key, "ask_pin", lambda prompt: pytest.fail(f"asked for a PIN: {prompt}"))
    server.others = [not_counting(each, can_be_first=True) for each in (kept.key, planted.key)]
    with pytest.raises(Ambiguous, match=r"there are 2 operator keys .* run agent-intercom-ctl key enrol KEY first"):
        key(where, "add", ID)
    assert server.enrolled == []
    # Once the own one counts, it is the one that is asked for.
    server.counting = [kept.key]
    prompts: list[str] = []

    def typing(prompt: str) -> str:
        prompts.append(prompt)
        return PIN

    monkeypatch.setattr(ctl_key, "ask_pin", typing)
    key(where, "add", ID)
    assert prompts == [f"PIN of key {kept.key.id}, to add passkey {ID} (esc to leave): "]
    assert [each["public"] for each in server.enrolled] == [PHONE.public.public]
    assert planted.path.exists()


def test_passkeys_are_listed_and_go_with_their_key(
    where: Places, kept: KeyFile, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    key(where, "add", ID)
    server.counting = [kept.key, PHONE.public]
    key(where, "list", "")
    assert f"{ID}  kim's phone  passkey at {PHONE.origin}  counts" in capsys.readouterr().out
    key(where, "revoke", kept.key.id)
    assert capsys.readouterr().out == (
        f"revoked operator key {kept.key.id} (kim)\n"
        f"passkey {ID}, which it had added, does not count any more\n"
        "no operator key is left: decisions are not signed any more, and count by the terminal they come from\n"
    )
    assert operator_keys.read_public(Path(where.operator_keys_file)) == {}


def test_a_passkey_is_revoked_by_the_pin(where: Places, kept: KeyFile, server: Server) -> None:
    key(where, "add", ID)
    server.counting = [kept.key, PHONE.public]
    key(where, "revoke", ID)
    assert server.revoked == [ID]
    assert operator_keys.read_public(Path(where.operator_keys_file)).keys() == {kept.key.id}
