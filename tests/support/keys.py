"""Operator keys for tests, which cost next to nothing to make and to open, and what is signed with them."""

from __future__ import annotations

import base64
from datetime import datetime
from unittest.mock import patch

from attrs import evolve, field, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from intercom.local import operator_keys
from intercom.local.operator_keys import KeyFile, PublicKey
from intercom.local.places import Places
from intercom.model import clock, signing
from intercom.model.card import Card, subject
from intercom.model.decision import Decision, Signature, SignedCommand, Verdict


def make_key_file(places: Places, pin: str, name: str, created_at: str) -> KeyFile:
    """As `operator_keys.create`; to derive the key from the PIN takes a millisecond, here and whenever it is opened."""
    with patch.multiple(operator_keys, _PASSES=1, _MEMORY_KIB=64):
        return operator_keys.create(places, pin, name, created_at)


@frozen
class Key:
    """A person's key pair."""

    private: Ed25519PrivateKey = field(factory=Ed25519PrivateKey.generate)

    @property
    def public(self) -> PublicKey:
        return PublicKey(base64.b64encode(self.private.public_key().public_bytes_raw()).decode(), "kim")

    def for_key(self, action: str, key: PublicKey, at: datetime) -> tuple[str, str, str]:
        """Instant, signer and signature, to add or revoke `key`."""
        text = clock.to_text(at)
        said = signing.key_statement(action, public=key.public, name=key.name, at=text, by=self.public.id)
        return text, self.public.id, self.private.sign(said).hex()

    def sign(self, unsigned: Signature) -> Signature:
        return evolve(unsigned, value=self.private.sign(unsigned.statement()).hex())

    def verdict(
        self,
        card: Card,
        decision: Decision,
        at: datetime,
        text: str | None = None,
        *,
        id: str = "v-signed",
        method: str = signing.PIN,
        channel: str = "ctl",
    ) -> Verdict:
        """A decision about this card, signed."""
        unsigned = unsigned_decision(card, decision, at, text, id, self.public.id, method)
        return Verdict(id, decision, "kim", channel, at, text, signature=self.sign(unsigned))

    def command(
        self, command: str, at: datetime, act: str = "act-0001", *, method: str = signing.PIN, **fields: str
    ) -> SignedCommand:
        """A command that is no answer to a card, signed."""
        unsigned = Signature(
            request_id="",
            subject=signing.command_subject(command, fields),
            risk=None,
            decision=command,
            text=None,
            at=clock.to_text(at),
            decision_id=act,
            key_id=self.public.id,
            method=method,
            value="",
        )
        return SignedCommand(self.sign(unsigned), fields)


def unsigned_decision(
    card: Card, decision: Decision, at: datetime, text: str | None, id: str, key_id: str, method: str
) -> Signature:
    """What a key signs of this decision about this card, without the signature's value."""
    return Signature(
        request_id=card.id,
        subject=subject(card),
        risk=None if card.risk is None else card.risk.value,
        decision=decision.value,
        text=text,
        at=clock.to_text(at),
        decision_id=id,
        key_id=key_id,
        method=method,
        value="",
    )
