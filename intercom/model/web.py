"""The page in the browser, as the rest of the server knows it."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from typing import Protocol
from urllib.parse import urlsplit

from attrs import field, frozen

from intercom.model.errors import InvalidArguments
from intercom.model.limits import PERSON_NAME, PERSON_NAME_FORM
from intercom.model.visible_text import one_line
from intercom.model.web_role import WebRole

#: What the name of a program with a token begins with in the record. No person's name does.
TOKEN_PREFIX = "token "


def person_name(text: str) -> str:
    """Return the name of a person as it is recorded. Raises InvalidArguments for one that might be read as something
    else: with markup, with hidden characters, or as a program's."""
    name = unicodedata.normalize("NFC", text.strip())
    # Some letters have no shape.
    if re.fullmatch(PERSON_NAME, name) is None or one_line(name) != name:
        raise InvalidArguments(f"a name has {PERSON_NAME_FORM}")
    if name.casefold().startswith(TOKEN_PREFIX):
        raise InvalidArguments(f"a name that begins with {TOKEN_PREFIX.strip()!r} is a program's: take another")
    return name


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


@frozen
class ApiToken:
    """A token with which a program uses the page's API. `sha256` is that of its text, in hexadecimal digits; the text
    is kept nowhere. `name` is the program's, `created_by` the person who made it."""

    id: str
    name: str
    role: WebRole
    sha256: str = field(repr=False)
    created_at: datetime
    created_by: str
    expires_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    def is_over(self, now: datetime) -> bool:
        return now >= self.expires_at


@frozen
class NewToken:
    """A token that was just made. `text` is what the program shows; `url` is where the API is."""

    token: ApiToken
    text: str = field(repr=False)
    url: str


@frozen
class TokenEntry:
    """A token as it is listed; a new one with its `token` and the `url` of the API."""

    name: str
    role: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    token: str = field(default="", repr=False)
    url: str = ""


@frozen
class PushSubscription:
    """A browser that is sent messages while the page is closed. `endpoint` is where its push service takes them, and a
    secret: who knows it can send to that browser. `public` and `auth` are the browser's keys, as base64url. `by` is the
    person, `label` the browser."""

    id: str
    endpoint: str = field(repr=False)
    public: str
    auth: str = field(repr=False)
    by: str
    channel: str
    label: str
    created_at: datetime

    @property
    def service(self) -> str:
        """The host of its push service. What follows it, in a path or after `?`, is secret."""
        return urlsplit(self.endpoint).netloc


@frozen
class PushEntry:
    """A subscription as it is listed: without what is secret."""

    push_id: str
    by: str
    channel: str
    label: str
    service: str
    created_at: datetime


@frozen
class PageMember:
    """Somebody who may come to the page through the proxy before it, by the name that the proxy gives."""

    name: str
    role: WebRole


@frozen
class SignedIn:
    """A browser in which somebody has signed in with a link. `id` names it, and signs nobody in."""

    id: str
    name: str
    role: WebRole
    began_at: datetime
    used_at: datetime


@frozen
class PagePeople:
    """Who may use the page, and who is signed in there. `public_url` is where the members come in; None without a
    proxy, when nobody does. `in_slack` are the ids of those who may answer in Slack; None if this server is not
    there."""

    public_url: str | None
    members: tuple[PageMember, ...]
    signed_in: tuple[SignedIn, ...]
    in_slack: tuple[str, ...] | None = None


class PushOperations(Protocol):
    """What people can ask of the push messages."""

    async def public_key(self) -> str:
        """Return the public key that browsers are subscribed to, as base64url. Raises IpcError if it cannot be kept."""
        ...

    async def subscribe(
        self, endpoint: str, public: str, auth: str, label: str, by: str, channel: str
    ) -> PushSubscription:
        """Subscribe a person's browser. An endpoint has one subscription: the last one counts. Raises
        InvalidArguments for an endpoint or keys that could not be used, and InvalidState if there are too many."""
        ...

    async def subscriptions(self) -> tuple[PushSubscription, ...]:
        """Return all subscriptions, oldest first."""
        ...

    async def unsubscribe(self, prefix: str, by: str, channel: str) -> PushSubscription:
        """End the subscription whose id begins with `prefix`. Raises NotFound and Ambiguous."""
        ...


class WebOperations(Protocol):
    """What people can ask of the page's server."""

    async def sign_in_link(
        self, name: str, *, role: WebRole = WebRole.ADMIN, by: str = "", with_file: bool = False
    ) -> SignInLink:
        """Make a link for this person, and open the port if it is not open. `by` is who asks for it, if that is
        somebody else. Raises IpcError if the port cannot be opened."""
        ...

    @property
    def push(self) -> PushOperations:
        """Return what can be asked of the push messages."""
        ...

    async def proposed_passkeys(self) -> tuple[ProposedPasskey, ...]:
        """Return the passkeys that wait for their enrolment."""
        ...

    async def people(self) -> PagePeople:
        """Return who may use the page, and who is signed in there, the one who was there last first."""
        ...

    async def sign_out(self, prefix: str, by: str) -> SignedIn:
        """End what somebody has open in the browser with this id, or a unique start of it. `by` is who does. Raises
        NotFound and Ambiguous, and IpcError if it could not be recorded; the person is signed out then too."""
        ...

    async def add_token(self, name: str, role: WebRole, days: int | None, by: str) -> NewToken:
        """Make a token for a program of this name, good for this many days, and open the port if it is not open.
        Raises IpcError if it cannot be opened, and InvalidState if the program has one."""
        ...

    async def tokens(self) -> tuple[ApiToken, ...]:
        """Return the tokens that count."""
        ...

    async def revoke_token(self, name: str, by: str) -> ApiToken:
        """Revoke the token of this name. Raises NotFound."""
        ...
