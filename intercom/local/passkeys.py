"""Passkeys: the keys of a browser's authenticator (WebAuthn level 3), and the check of what they sign.

A passkey is written as one text: the origin of the page that made it, the credential's id, and the public key (DER of
SubjectPublicKeyInfo), the last two as base64url, separated by commas. All three are what an operator key signs when it
enrols the passkey. So a page at another address cannot use it: not even one at another port of this machine, for which
browsers would ask the same authenticator.

A signature is an assertion as one text: authenticator data, client data and signature, each as base64url, separated by
dots. Its challenge is the SHA-256 of the signed statement, so it is good for that statement only. The counter of
signatures that some authenticators keep is not read: a statement has the decision's own id and time, and counts once.

`cryptography` is imported lazily, because that takes 20 to 40 ms.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import json
import re
from typing import Final

from attrs import frozen

from intercom.model.errors import InvalidArguments

#: The longest texts of a passkey and of an assertion, and the longest id of a credential in bytes (WebAuthn).
LONGEST: Final = 4096
_LONGEST_ASSERTION: Final = 16 * 1024
_LONGEST_ID: Final = 1023
#: The fewest bits of an RSA key.
_FEWEST_BITS: Final = 2048
#: Authenticator data: the hash of the relying party's id, the flags, the counter.
_SHORTEST_DATA: Final = 37
_PRESENT, _VERIFIED = 0x01, 0x04

_LOOPBACK: Final = "localhost"
_LAST_PORT: Final = 65535
_ORIGIN = re.compile(r"(http|https)://([a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[1-9][0-9]{0,4})?")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")


@frozen
class Passkey:
    """The parts of a passkey. `origin` is the address of the page, `credential` the id that its authenticator knows it
    by, `spki` the public key."""

    origin: str
    credential: bytes
    spki: bytes

    @property
    def relying_party(self) -> str:
        return relying_party(self.origin)

    def text(self) -> str:
        return f"{self.origin},{to_base64url(self.credential)},{to_base64url(self.spki)}"


def relying_party(origin: str) -> str:
    """Return the id of the relying party of pages at this address: the host."""
    return origin.partition("//")[2].partition(":")[0]


def read(text: str) -> Passkey | None:
    """Read the text of a passkey, which must be as `Passkey.text` writes it. Returns None for any other text. Whether
    the public key is one is not checked."""
    parts = text.split(",") if len(text) <= LONGEST else []
    if len(parts) != 3 or not is_origin(parts[0]):
        return None
    credential, spki = from_base64url(parts[1]), from_base64url(parts[2])
    if not credential or not spki or len(credential) > _LONGEST_ID:
        return None
    found = Passkey(parts[0], credential, spki)
    return found if found.text() == text else None


def proposed(origin: str, credential: str, spki: str) -> Passkey:
    """Return the passkey that a page at `origin` has made, from its base64url parts. Raises InvalidArguments for one
    that could never sign."""
    found = read(f"{origin},{credential},{spki}")
    if found is None:
        raise InvalidArguments(
            "credential_id and public_key must be base64url without padding, as the browser gave them"
        )
    if _verifier(found.spki) is None:
        raise InvalidArguments(
            "the public key is of no kind that is verified here: let the browser make one for ES256 (-7), EdDSA (-8)"
            " or RS256 (-257)"
        )
    return found


def is_origin(text: str) -> bool:
    """Whether passkeys work for pages at this address: behind https, or on this machine. Browsers allow no passkey
    for an IP address."""
    found = _ORIGIN.fullmatch(text)
    if found is None:
        return False
    scheme, host, port = found[1], found[2], found[4]
    if port is not None and int(port[1:]) > _LAST_PORT:
        return False
    is_name = not host.rpartition(".")[2].isdigit()
    return host == _LOOPBACK if scheme == "http" else is_name


class _NotGenuine(Exception):
    """An assertion does not count."""


def verifies(text: str, assertion: str, message: bytes) -> bool:
    """Whether an assertion is one of this passkey over this message, made by a person whom the authenticator has
    verified, on the passkey's own page.

    A genuine one is remembered, because a decision is verified when it is made and each time it takes effect. Of others
    nothing is kept: any process may send them, and large ones.
    """
    try:
        _verify(text, assertion, message)
    except _NotGenuine:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _verify(text: str, assertion: str, message: bytes) -> None:
    """Raise _NotGenuine if the assertion does not count; what raises is not cached."""
    if not _is_genuine(text, assertion, message):
        raise _NotGenuine


def _is_genuine(text: str, assertion: str, message: bytes) -> bool:
    key = read(text)
    parts = assertion.split(".") if len(assertion) <= _LONGEST_ASSERTION else []
    if key is None or len(parts) != 3:
        return False
    data, client, signature = (from_base64url(part) for part in parts)
    if data is None or client is None or signature is None or len(data) < _SHORTEST_DATA:
        return False
    party = hashlib.sha256(key.relying_party.encode("ascii")).digest()
    flags = data[32]
    is_ours = hmac.compare_digest(data[:32], party) and flags & _PRESENT and flags & _VERIFIED
    if not is_ours or not _is_for(client, key.origin, challenge(message)):
        return False
    verify = _verifier(key.spki)
    return verify is not None and verify(signature, data + hashlib.sha256(client).digest())


def challenge(message: bytes) -> str:
    """Return the challenge that an assertion over this message answers, as base64url."""
    return to_base64url(hashlib.sha256(message).digest())


def _is_for(client: bytes, origin: str, wanted: str) -> bool:
    """Whether the browser's own data say that this page, and no other around it, asked for this."""
    try:
        said = json.loads(client.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict):
        return False
    named = (said.get("type"), said.get("challenge"), said.get("origin"))
    # `topOrigin` names the page around a frame. Older browsers leave `crossOrigin` out.
    return (
        named == ("webauthn.get", wanted, origin)
        and said.get("crossOrigin", False) is False
        and ("topOrigin" not in said)
    )


class _Verifier:
    """Verifies signatures with one public key. Raises ValueError for a key of no kind that is allowed."""

    def __init__(self, spki: bytes) -> None:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        try:
            key = load_der_public_key(spki)
        except UnsupportedAlgorithm:
            raise ValueError("unknown algorithm") from None
        is_p256 = isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)
        is_rsa = isinstance(key, rsa.RSAPublicKey) and key.key_size >= _FEWEST_BITS
        if not (is_p256 or is_rsa or isinstance(key, ed25519.Ed25519PublicKey)):
            raise ValueError("another algorithm")
        self._key = key

    def __call__(self, signature: bytes, message: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
        from cryptography.hazmat.primitives.hashes import SHA256

        key = self._key
        try:
            if isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, message, ec.ECDSA(SHA256()))
            elif isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, message, padding.PKCS1v15(), SHA256())
            elif isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@functools.lru_cache(maxsize=64)
def _verifier(spki: bytes) -> _Verifier | None:
    try:
        return _Verifier(spki)
    except ValueError:
        return None


def to_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def from_base64url(text: str) -> bytes | None:
    """Read base64url without padding, in its only form. Returns None for another text."""
    if not _BASE64URL.fullmatch(text):
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if to_base64url(data) == text else None
