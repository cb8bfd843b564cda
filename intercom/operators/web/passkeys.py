"""Passkeys on the page: those that count there, and those that a browser has made and nobody has enrolled yet.

A browser can only propose a passkey. It shows the passkey's id, a person types that in a terminal, and the PIN of an
operator key signs the enrolment there (`agent-intercom-ctl key add`). The id is a hash of the whole passkey, so it
cannot be another one. What was proposed is kept in memory for some minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from attrs import define, field

from intercom.local import passkeys
from intercom.local.operator_keys import PublicKey
from intercom.local.passkeys import Passkey, to_base64url
from intercom.model.clock import to_text
from intercom.model.errors import ConfigError, InvalidArguments, InvalidState
from intercom.model.json_types import Json, JsonObject
from intercom.model.web import ProposedPasskey
from intercom.operators.commands.json_forms import returns, shape

#: How long a proposal waits for its enrolment, and how many wait at once: of the person with most, the oldest ends.
PROPOSAL_LIFE = timedelta(minutes=10)
MOST_PROPOSALS = 8

#: The host of the page's own address. Browsers make no passkeys for IP addresses.
NAME = "localhost"


def origin_of(port: int) -> str:
    """Return the origin of the page at this port, as browsers write it."""
    return f"http://{NAME}" if port == 80 else f"http://{NAME}:{port}"


def port_of(keys: Iterable[PublicKey]) -> int | None:
    """Return the port of the page at which these passkeys work; None without passkeys. Of several, the last counts."""
    found = None
    for key in keys:
        passkey = passkeys.read(key.public) if key.is_passkey else None
        # A public address may lead to this machine by the same name: its port is the proxy's.
        if passkey is not None and passkey.origin.startswith(f"http://{NAME}"):
            found = int(passkey.origin.rpartition(":")[2]) if passkey.origin.count(":") == 2 else 80
    return found


@define(eq=False)
class Proposals:
    """The passkeys that browsers have proposed in this server's run. `now` is the wall clock."""

    now: Callable[[], datetime]
    _proposed: dict[str, ProposedPasskey] = field(factory=dict, init=False)

    def propose(self, passkey: Passkey, name: str, by: str) -> ProposedPasskey:
        """Keep a passkey that a person has made on the page. Raises InvalidArguments for an invalid name."""
        try:
            key = PublicKey.of(passkey.text(), name)
        except ConfigError as fault:
            raise InvalidArguments(fault.message) from None
        self._proposed.pop(key.id, None)
        made = ProposedPasskey(key.id, key.public, name, passkey.origin, by, self.now() + PROPOSAL_LIFE)
        self._proposed[key.id] = made
        self._drop_over()
        if len(self._proposed) > MOST_PROPOSALS:
            # Nobody pushes out what others wait for.
            most = Counter(each.by for each in self._proposed.values())
            one = max(self._proposed.values(), key=lambda each: most[each.by])
            del self._proposed[one.key_id]
        return made

    def waiting(self, known: Iterable[str]) -> tuple[ProposedPasskey, ...]:
        """Return those that still wait: not those in `known`, which are enrolled."""
        for id in known:
            self._proposed.pop(id, None)
        self._drop_over()
        return tuple(self._proposed.values())

    def _drop_over(self) -> None:
        now = self.now()
        for id, each in tuple(self._proposed.items()):
            # The clock may have been set back since: then it was proposed in the future.
            if not timedelta(0) <= each.expires_at - now <= PROPOSAL_LIFE:
                del self._proposed[id]


def read_proposal(origin: str, data: JsonObject) -> tuple[Passkey, str]:
    """Return the passkey that a request from the page at `origin` proposes, and its name. Raises InvalidArguments, and
    InvalidState if browsers have no passkeys at that address."""
    if not passkeys.is_origin(origin):
        raise InvalidState(f"browsers have no passkeys at {origin}: that takes a name, and no IP address")
    parts = [data.get(name) for name in ("credential_id", "public_key", "name")]
    if not all(isinstance(part, str) for part in parts):
        raise InvalidArguments("credential_id, public_key and name must be strings")
    credential, public, name = map(str, parts)
    return passkeys.proposed(origin, credential, public), name


def require_key(has_keys: bool) -> None:
    """Raise InvalidState if there is no operator key that could enrol a passkey."""
    if not has_keys:
        raise InvalidState(
            "a passkey is enrolled by an operator key with a PIN, and there is none: make one first, with"
            " agent-intercom-ctl key create"
        )


@returns(shape("PasskeyProposal", key_id=str, name=str, expires_at=datetime))
def proposal_entry(proposed: ProposedPasskey) -> JsonObject:
    return {"key_id": proposed.key_id, "name": proposed.name, "expires_at": to_text(proposed.expires_at)}


@returns(
    shape(
        origin=str,
        rp_id=str,
        passkeys=[shape("Passkey", key_id=str, name=str, credential_id=str)],
        proposals=[proposal_entry],
    )
)
def passkeys_entry(origin: str, counting: Iterable[PublicKey], waiting: Iterable[ProposedPasskey]) -> JsonObject:
    """Return what the page has to know to have a passkey sign, or to make one."""
    found = [(key, passkey) for key in counting if (passkey := passkeys.read(key.public)) is not None]
    here: list[Json] = [
        {"key_id": key.id, "name": key.name, "credential_id": to_base64url(passkey.credential)}
        for key, passkey in found
        if passkey.origin == origin
    ]
    return {
        "origin": origin,
        "rp_id": passkeys.relying_party(origin),
        "passkeys": here,
        "proposals": [proposal_entry(each) for each in waiting if each.origin == origin],
    }
