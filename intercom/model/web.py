"""The page in the browser, as the rest of the server knows it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from attrs import field, frozen


@frozen
class SignInLink:
    """A link with which a person signs in to the page, once. Its code is in the fragment of `url`, which no browser
    sends. `file` is a private file that leads a browser to the link, so that no command line shows it; None if none was
    asked for. Neither is of use after `expires_at`."""

    url: str = field(repr=False)
    expires_at: datetime
    file: str | None = None


@frozen
class ProposedPasskey:
    """A passkey that a browser has made, and that does not count before an operator key has signed its enrolment.
    `public` is its text (`intercom.local.passkeys`), `origin` the page's address, `by` the person who was signed in."""

    key_id: str
    public: str
    name: str
    origin: str
    by: str
    expires_at: datetime


class WebOperations(Protocol):
    """What people can ask of the page's server."""

    async def sign_in_link(self, name: str, *, with_file: bool = False) -> SignInLink:
        """Make a link for this person, and open the port if it is not open. Raises IpcError if it cannot be opened."""
        ...

    async def proposed_passkeys(self) -> tuple[ProposedPasskey, ...]:
        """Return the passkeys that wait for their enrolment."""
        ...
