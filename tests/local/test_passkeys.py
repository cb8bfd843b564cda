"""Passkeys: which texts are one, and which assertions count."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from intercom.local import operator_keys, passkeys
from intercom.local.operator_keys import PublicKey
from intercom.local.passkeys import Passkey, to_base64url
from intercom.model import signing
from intercom.model.errors import ConfigError, InvalidArguments
from tests.support.passkeys import ORIGIN, Authenticator

MESSAGE = b"agent-intercom decision v1\n{}"
PHONE = Authenticator()
ASSERTION = PHONE.assertion(MESSAGE)


@pytest.mark.parametrize(
    "private",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["ES256", "EdDSA", "RS256"],
)
def test_each_algorithm_signs_and_counts_for_its_message_only(private: object) -> None:
    phone = Authenticator(private=private)  # type: ignore[arg-type]
    assertion = phone.assertion(MESSAGE)
    assert passkeys.verifies(phone.public.public, assertion, MESSAGE)
    assert not passkeys.verifies(phone.public.public, assertion, MESSAGE + b" ")
    assert not passkeys.verifies(PHONE.public.public, assertion, MESSAGE)
    passkeys.proposed(ORIGIN, to_base64url(phone.credential), to_base64url(phone.spki))


@pytest.mark.parametrize(
    "how",
    [
        {"flags": 0x01},
        {"flags": 0x04},
        {"flags": 0x00},
        {"party": "127.0.0.1"},
        {"party": "example.org"},
        {"type": "webauthn.create"},
        {"type": None},
        {"origin": "http://localhost:8124"},
        {"origin": "http://localhost"},
        {"origin": "https://localhost:8123"},
        {"origin": "http://127.0.0.1:8123"},
        {"origin": "http://localhost:8123.example.org"},
        {"origin": None},
        {"crossOrigin": True},
        {"crossOrigin": "false"},
        {"crossOrigin": 0},
        {"topOrigin": "https://example.org"},
        {"topOrigin": ORIGIN},
        {"challenge": ""},
        {"challenge": passkeys.challenge(b"another")},
        {"challenge": passkeys.challenge(MESSAGE) + "="},
    ],
    ids=str,
)
def test_what_was_not_asked_for_by_this_page_and_confirmed_by_a_person_does_not_count(how: dict[str, object]) -> None:
    assert not passkeys.verifies(PHONE.public.public, PHONE.assertion(MESSAGE, **how), MESSAGE)  # type: ignore[arg-type]


def test_more_flags_and_an_older_browser_s_data_count() -> None:
    assert passkeys.verifies(PHONE.public.public, PHONE.assertion(MESSAGE, flags=0x1D), MESSAGE)
    assert passkeys.verifies(PHONE.public.public, PHONE.assertion(MESSAGE, crossOrigin=None), MESSAGE)
    assert passkeys.verifies(PHONE.public.public, PHONE.assertion(MESSAGE, other_keys_can_be_added_here="x"), MESSAGE)


@given(st.data())
def test_no_changed_byte_counts(data: st.DataObject) -> None:
    parts = [base64.urlsafe_b64decode(part + "==") for part in ASSERTION.split(".")]
    part = data.draw(st.integers(0, 2))
    at, bit = data.draw(st.integers(0, len(parts[part]) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(parts[part])
    changed[at] ^= 1 << bit
    parts[part] = bytes(changed)
    assert not passkeys.verifies(PHONE.public.public, ".".join(map(to_base64url, parts)), MESSAGE)


@given(st.text() | st.lists(st.binary().map(to_base64url), max_size=4).map(".".join))
def test_other_texts_are_no_assertion(text: str) -> None:
    assert not passkeys.verifies(PHONE.public.public, text, MESSAGE)
    assert not passkeys.verifies(text, ASSERTION, MESSAGE)


@given(st.text() | st.tuples(st.just(ORIGIN) | st.text(), st.text(), st.text()).map(",".join))
def test_what_is_read_as_a_passkey_is_written_the_same(text: str) -> None:
    found = passkeys.read(text)
    assert found is None or found.text() == text


@pytest.mark.parametrize(
    ("origin", "is_one"),
    [
        ("http://localhost:8123", True),
        ("https://intercom.example.org", True),
        ("https://intercom.example.org:8443", True),
        ("http://intercom.example.org", False),
        ("http://127.0.0.1:8123", False),
        ("https://127.0.0.1", False),
        ("https://[::1]:8123", False),
        ("http://localhost:8123/", False),
        ("http://localhost:08123", False),
        ("http://localhost:65536", False),
        ("http://LOCALHOST:8123", False),
        ("http://localhost.", False),
        ("http://kim@localhost:8123", False),
        ("file://localhost", False),
        ("http://localhost:8123\n", False),
        ("null", False),
    ],
)
def test_addresses_for_which_browsers_make_passkeys(origin: str, is_one: bool) -> None:
    assert passkeys.is_origin(origin) is is_one


@pytest.mark.parametrize(
    "spki",
    [
        b"no key",
        ec.generate_private_key(ec.SECP384R1()),
        rsa.generate_private_key(65537, 1024),
    ],
    ids=["none", "P-384", "RSA-1024"],
)
def test_a_public_key_of_another_kind_is_not_proposed_and_verifies_nothing(spki: object) -> None:
    other = spki if isinstance(spki, bytes) else Authenticator(private=spki).spki  # type: ignore[arg-type]
    with pytest.raises(InvalidArguments, match="ES256"):
        passkeys.proposed(ORIGIN, "AAAA", to_base64url(other))
    assert not passkeys.verifies(Passkey(ORIGIN, b"id", other).text(), PHONE.assertion(MESSAGE), MESSAGE)


@pytest.mark.parametrize("credential", ["", "AAA=", "AA/A", "AA A", "AB", "A" * 1500])
def test_a_credential_s_id_has_one_form(credential: str) -> None:
    with pytest.raises(InvalidArguments, match="base64url"):
        passkeys.proposed(ORIGIN, credential, to_base64url(PHONE.spki))


def test_a_passkey_is_a_line_of_the_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "operator-keys"
    file.write_text(f"{PHONE.public.line()}\n")
    file.chmod(0o600)
    assert operator_keys.read_public(file) == {PHONE.public.id: PHONE.public}
    assert PHONE.public.is_passkey
    for wrong in (
        f"ed25519 {PHONE.public.public}",
        f"passkey {base64.b64encode(bytes(32)).decode()}",
        "passkey",
        "passkey http://localhost:1,AAAA",
    ):
        file.write_text(f"{wrong}\n")
        with pytest.raises(ConfigError, match="line 1 is not a key"):
            operator_keys.read_public(file)


def test_a_passkey_signs_decisions_only_and_an_operator_key_makes_no_assertion() -> None:
    assertion = PHONE.assertion(MESSAGE)
    assert operator_keys.verifies_decision(PHONE.public.public, signing.PASSKEY, assertion, MESSAGE)
    for method in (signing.PIN, signing.TICKET, signing.CHANNEL, "other"):
        assert not operator_keys.verifies_decision(PHONE.public.public, method, assertion, MESSAGE)
    assert not operator_keys.verifies(PHONE.public.public, assertion, MESSAGE)
    # Base64 decoders skip commas: the text of a passkey must not be read as an Ed25519 key.
    private = ed25519.Ed25519PrivateKey.generate()
    text = base64.b64encode(private.public_key().public_bytes_raw()).decode()
    assert operator_keys.verifies(text, private.sign(MESSAGE).hex(), MESSAGE)
    assert not operator_keys.verifies(f"{text[:5]},{text[5:]}", private.sign(MESSAGE).hex(), MESSAGE)
    assert not operator_keys.verifies_decision(text, signing.PASSKEY, private.sign(MESSAGE).hex(), MESSAGE)


def test_a_key_from_outside_is_checked() -> None:
    assert PublicKey.of(PHONE.public.public, "phone").is_passkey
    for wrong in ("http://localhost:1,AAAA", PHONE.public.public + ",", "x,y,z"):
        with pytest.raises(ConfigError, match="this is no passkey"):
            PublicKey.of(wrong, "phone")


def test_nothing_is_kept_of_a_signature_that_is_not_genuine() -> None:
    """An agent's process may send as many as it likes, of a megabyte each. Failed before: each was cached."""
    phone, other = Authenticator(), base64.b64encode(bytes(32)).decode()
    statement, value = b"x" * 100_000, "ab" * 50_000
    for public, method, sent in (
        (phone.public.public, signing.PASSKEY, value),
        (phone.public.public, signing.PASSKEY, f"{'A' * 5000}.{'B' * 5000}.{'C' * 5000}"),
        (other, signing.PIN, value),
        (other, signing.PIN, "ab" * 64),
    ):
        before = sys.getrefcount(sent), sys.getrefcount(statement)
        assert not operator_keys.verifies_decision(public, method, sent, statement)
        assert (sys.getrefcount(sent), sys.getrefcount(statement)) == before
