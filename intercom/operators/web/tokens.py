"""The tokens with which programs use the page's API: how they are made, listed, revoked and recognised.

A token is shown once, when it is made. Only its SHA-256 is in the database. It is a viewer's or an operator's, and
never an admin's: so no token makes a key, a link or another token.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial

from attrs import define, evolve, field, frozen

from intercom.model.errors import InvalidArguments, InvalidState, NotFound, Unauthorized
from intercom.model.json_types import JsonObject
from intercom.model.web import TOKEN_PREFIX, ApiToken, person_name
from intercom.model.web_role import WebRole
from intercom.operators.web.sign_in import cookie_name
from intercom.store import audit
from intercom.store.store_and_reader import Reader, Store
from intercom.store.trust import api_tokens
from intercom.store.writer_messages import Database

#: How many days a token is good, if nothing else is said.
TOKEN_DAYS = 90
#: The most tokens that count at once.
MOST_TOKENS = 100
#: What a token begins with, so that people and scanners for secrets recognise one.
_BEGIN = "intercom_"
_ANOTHER = "a person makes one with agent-intercom-ctl token add"
_TOKEN = re.compile(rf"{_BEGIN}[0-9a-f]{{64}}")
_SCHEME = re.compile(rb"bearer(?: +(.*))?", re.IGNORECASE)
#: What only a page sends.
_OF_PAGES = frozenset({b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"x-intercom-csrf"})


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def bearer_token(headers: Iterable[tuple[bytes, bytes]], port: int) -> str | None:
    """Return what a request shows as its token; None if it shows none.

    Raises InvalidArguments if it shows several. Raises Unauthorized if it comes from a page: a browser adds the cookie
    of the person who is signed in there, and then nobody could say who asked.
    """
    headers = tuple(headers)
    shown = [found for name, value in headers if name == b"authorization" and (found := _SCHEME.fullmatch(value))]
    if not shown:
        return None
    if len(shown) > 1:
        raise InvalidArguments("the header Authorization is given twice: give it once")
    has_cookie = any(cookie_name(port) in value for name, value in headers if name == b"cookie")
    if has_cookie or any(name in _OF_PAGES for name, _ in headers):
        raise Unauthorized("a token is for programs, and a cookie or an Origin is of a page: send the token without it")
    return (shown[0][1] or b"").strip().decode("latin-1")


@frozen
class Program:
    """A program that shows a token. It may do what a person of this role may, and nothing that needs a page."""

    token: ApiToken

    @property
    def name(self) -> str:
        """Its name in the record; no person's name looks like it."""
        return f"{TOKEN_PREFIX}{self.token.name}"

    @property
    def role(self) -> WebRole:
        return self.token.role

    @property
    def key(self) -> str:
        return self.token.id


@define(eq=False)
class ApiTokens:
    """All tokens of this server's database. `now` is the wall clock."""

    store: Store
    reader: Reader
    now: Callable[[], datetime]
    #: Those revoked in this run, by their ids: a stream that began before ends. A revocation whose answer was lost
    #: counts too.
    _revoked: set[str] = field(factory=set, init=False)

    async def add(self, name: str, role: WebRole, days: int, by: str) -> tuple[str, ApiToken]:
        """Make a token for a program, good for this many days, and record who made it. Returns its secret, which is
        kept nowhere, and the rest. Raises InvalidState if a program of this name has one."""
        if role is WebRole.ADMIN:
            raise InvalidArguments(
                "a token is a viewer's or an operator's: no program manages keys, tokens and settings"
            )
        now, secret = self.now(), f"{_BEGIN}{secrets.token_hex(32)}"
        until = now + timedelta(days=days)
        made = ApiToken(uuid.uuid4().hex, person_name(name), role, _digest(secret), now, by, until)
        # Sent again after it was done, it would be refused as the second token of this name.
        await self.store.transact(partial(_add, made=made), retry=False)
        return secret, made

    async def every(self) -> tuple[ApiToken, ...]:
        """Return the tokens that count, the oldest first."""
        found = await self.reader.read(api_tokens.unrevoked)
        return tuple(each for each in found if not each.is_over(self.now()))

    async def revoke(self, name: str, by: str) -> ApiToken:
        """Revoke the token of this name, for good. Raises NotFound, and StoreUnavailable if it is not known whether
        that is recorded. If it may be, the token counts no more in this run."""
        name = unicodedata.normalize("NFC", name.strip())
        work = partial(_revoke, name=name, by=by, at=self.now(), noted=self._revoked)
        return await self.store.transact(work, retry=False)

    async def find(self, shown: str) -> Program:
        """Return the program that shows this. Raises Unauthorized for what is no token, unknown, revoked or too old."""
        if _TOKEN.fullmatch(shown) is None:
            raise Unauthorized(f"this is no token: one is {_BEGIN} and 64 digits; {_ANOTHER}")
        found = await self.reader.read(partial(api_tokens.with_digest, digest=_digest(shown)))
        if found is None:
            raise Unauthorized(f"this server has no such token; {_ANOTHER}")
        if not self.lasts(found):
            why = "was revoked" if self._is_revoked(found) else f"was good until {_day(found.expires_at)}"
            raise Unauthorized(f"the token {found.name} {why}; {_ANOTHER}")
        return Program(found)

    def lasts(self, token: ApiToken) -> bool:
        """Whether a token that was found earlier still counts."""
        return not self._is_revoked(token) and not token.is_over(self.now())

    def _is_revoked(self, token: ApiToken) -> bool:
        return token.revoked_at is not None or token.id in self._revoked


def _add(db: Database, made: ApiToken) -> None:
    known = api_tokens.unrevoked(db)
    for each in known:
        if each.name.casefold() != made.name.casefold():
            continue
        if not each.is_over(made.created_at):
            raise InvalidState(f"there is a token {each.name}: revoke it first (token revoke), or take another name")
        api_tokens.revoke(db, each.id, made.created_at, made.created_by)
    if len([each for each in known if not each.is_over(made.created_at)]) >= MOST_TOKENS:
        raise InvalidState(f"there are {MOST_TOKENS} tokens, which is the most: revoke one that is not used")
    api_tokens.insert(db, made)
    summary = f"{made.created_by} made the token {made.name}, with the role {made.role}, until {_day(made.expires_at)}"
    _record(db, made, made.created_at, made.created_by, summary)


def _revoke(db: Database, name: str, by: str, at: datetime, noted: set[str]) -> ApiToken:
    for each in api_tokens.unrevoked(db):
        if each.name.casefold() == name.casefold():
            noted.add(each.id)
            api_tokens.revoke(db, each.id, at, by)
            _record(db, each, at, by, f"{by} revoked the token {each.name}")
            return evolve(each, revoked_at=at, revoked_by=by)
    raise NotFound(f"there is no token {name[:64]!r}: token list has them")


def _record(db: Database, token: ApiToken, at: datetime, by: str, summary: str) -> None:
    data: JsonObject = {"user": by, "token": token.id, "name": token.name, "role": token.role.value}
    audit.record(db, at, "security", None, by, summary, data)
