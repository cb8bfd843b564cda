"""An authenticator of a browser, in software: it makes passkeys, and signs with them as WebAuthn says."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime

from attrs import evolve, field, frozen
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from intercom.local import passkeys
from intercom.local.operator_keys import PublicKey
from intercom.local.passkeys import Passkey, to_base64url
from intercom.model import clock, signing
from intercom.model.card import Card
from intercom.model.decision import Decision, Signature, SignedCommand, Verdict
from tests.support.keys import unsigned_decision

ORIGIN = "http://localhost:8123"
PRESENT_AND_VERIFIED = 0x05

Private = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


@frozen
class Authenticator:
    """One credential, made on the page at `origin`."""

    origin: str = ORIGIN
    private: Private = field(factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential: bytes = field(factory=lambda: os.urandom(16))

    @property
    def spki(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    @property
    def public(self) -> PublicKey:
        return PublicKey(Passkey(self.origin, self.credential, self.spki).text(), "kim's phone")

    def assertion(
        self,
        message: bytes,
        *,
        flags: int = PRESENT_AND_VERIFIED,
        party: str | None = None,
        **client: object,
    ) -> str:
        """What `navigator.credentials.get` gives for the hash of this message; `party` is that of the origin, if no
        other is given. `client` are changes of what the browser says of it, None leaves a field out."""
        said = {
            "type": "webauthn.get",
            "challenge": passkeys.challenge(message),
            "origin": self.origin,
            "crossOrigin": False,
            **client,
        }
        told = json.dumps({name: part for name, part in said.items() if part is not None}).encode()
        party = passkeys.relying_party(self.origin) if party is None else party
        data = hashlib.sha256(party.encode()).digest() + bytes([flags]) + bytes(4)
        signed = self._sign(data + hashlib.sha256(told).digest())
        return ".".join(to_base64url(part) for part in (data, told, signed))

    def _sign(self, message: bytes) -> bytes:
        if isinstance(self.private, ec.EllipticCurvePrivateKey):
            return self.private.sign(message, ec.ECDSA(SHA256()))
        if isinstance(self.private, rsa.RSAPrivateKey):
            return self.private.sign(message, padding.PKCS1v15(), SHA256())
        return self.private.sign(message)

    def sign(self, unsigned: Signature, **how: object) -> Signature:
        return evolve(unsigned, value=self.assertion(unsigned.statement(), **how))  # type: ignore[arg-type]

    def verdict(
        self,
        card: Card,
        decision: Decision,
        at: datetime,
        text: str | None = None,
        *,
        id: str = "v-passkey",
        channel: str = "web",
        method: str = signing.PASSKEY,
        **how: object,
    ) -> Verdict:
        """A decision about this card, signed on the page."""
        unsigned = unsigned_decision(card, decision, at, text, id, self.public.id, method)
        return Verdict(id, decision, "kim", channel, at, text, signature=self.sign(unsigned, **how))

    def command(self, command: str, at: datetime, act: str = "act-0001", **fields: str) -> SignedCommand:
        """A command that is no answer to a card, signed on the page."""
        unsigned = Signature(
            request_id="",
            subject=signing.command_subject(command, fields),
            risk=None,
            decision=command,
            text=None,
            at=clock.to_text(at),
            decision_id=act,
            key_id=self.public.id,
            method=signing.PASSKEY,
            value="",
        )
        return SignedCommand(self.sign(unsigned), fields)
