"""Signing in to remote downstreams with OAuth: the tokens that requests send, and the flow that a person starts.

`OAuthTokens` is the token source of one downstream. It returns the stored access token, and refreshes it when it is old
or refused. It never asks a person: without a usable token it returns a NoToken that says "needs sign-in".

`sign_in` is the flow of a person's command: it finds the authorization server, registers a client, shows an address to
open in a browser, and waits on the loopback for the browser's return, or until the person gives the address that the
browser was sent to. `sign_out` ends what it began. Both may run in another process than the server.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import h11
import httpx2
import trio
from attrs import evolve, frozen
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.shared.auth import AuthorizationCodeResult, OAuthMetadata

from intercom.gateway.breaker import NEEDS_SIGN_IN
from intercom.gateway.carrier import CarrierLost
from intercom.gateway.credentials import Credentials, CredentialStore
from intercom.gateway.downstream_config import DownstreamConfig, OAuth, Transport
from intercom.gateway.http_exchange import EVENTS, JSON, ExchangeFailed, NoToken, checked_url
from intercom.gateway.oauth_client import (
    CALLBACK_PATH,
    ERROR_CODE,
    PROTOCOL_VERSION,
    AuthorizationHttp,
    Provider,
    error_code,
)
from intercom.model.errors import ConfigError

log = logging.getLogger("intercom.gateway.oauth")

#: How long a person has to sign in (seconds).
SIGN_IN_SECONDS: Final = 300.0
#: How long after a failed refresh the next one is tried (seconds).
RETRY_SECONDS: Final = 10.0
#: The longest request of a browser (bytes), how long it may take (seconds), and how many fields its query may have.
_REQUEST_BYTES: Final = 65_536
_BROWSER_SECONDS: Final = 10.0
_QUERY_FIELDS: Final = 50


class SignInFailed(Exception):
    """A sign-in did not succeed; what was stored before is still there. `reason` is a clause for people. `detail` may
    contain what a server wrote: mask it before it is shown."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


@frozen
class SignedIn:
    """A sign-in that succeeded. `expires_at` is when its first token expires (seconds of the epoch), if that is known;
    `is_refreshable` says whether a new one can then be had without a person."""

    downstream: str
    issuer: str
    scopes: tuple[str, ...]
    expires_at: float | None
    is_refreshable: bool


class Revocation(StrEnum):
    """Whether the authorization server has ended a token."""

    DONE = "done"
    #: It was asked, and did not confirm it.
    FAILED = "failed"
    #: It offers no way to ask for it.
    NOT_OFFERED = "not offered"


@frozen
class SignedOut:
    """A sign-out. `issuer` is the authorization server whose token was in use, None if there was none."""

    downstream: str
    issuer: str | None = None
    revocation: Revocation = Revocation.NOT_OFFERED


#: Takes the address that a browser was sent to. Returns None, or why it is not that of this sign-in: a clause.
TakeAddress = Callable[[str], str | None]


# --- the token that requests send


class OAuthTokens:
    """The token source of one downstream. `config` is expanded; `clock` returns seconds of the epoch, `steady` those of
    a clock that nobody sets.

    Many tasks may ask at once: one of them refreshes, the others wait for it.
    """

    def __init__(
        self,
        config: DownstreamConfig,
        store: CredentialStore,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = trio.current_time,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._steady = steady
        self._lock = trio.Lock()
        self._credentials: Credentials | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._is_read = False
        #: The stamp of what was there at the start, of what this object has stored, or that `notice_change` has seen.
        self._noticed = store.stamp(config.name)
        #: When a failed refresh may be repeated (of the steady clock), and why it failed.
        self._retry_at = -math.inf
        self._failure = ""

    async def __call__(self, refused: str | None = None) -> str | NoToken:
        """See TokenSource."""
        try:
            found = self._usable(refused)
            return found if found is not None else await self._refresh(refused)
        except ConfigError as fault:
            log.error("the sign-in of %s cannot be used: %s", self._config.name, fault.message)
            return NoToken("the file of its sign-in cannot be used: see the log of the server")

    def notice_change(self) -> bool:
        """Return whether another process has stored or removed credentials since this was asked last. What this object
        stores itself does not count."""
        before, self._noticed = self._noticed, self._store.stamp(self._config.name)
        return self._noticed != before

    def _usable(self, refused: str | None) -> str | NoToken | None:
        """Return the stored token, or why there is none; None if it has to be refreshed first."""
        credentials, now = self._read(), self._clock()
        token = None if credentials is None else credentials.access_token
        if credentials is None or token is None:
            why = "nobody has signed in" if credentials is None else "the authorization server has ended the sign-in"
            return self._needs_sign_in(why, may_try=True)
        if token == refused:
            if not credentials.can_refresh:
                return self._needs_sign_in("the server refused the token")
        elif not credentials.is_old(now) or (self._has_just_failed and not credentials.is_expired(now)):
            return token
        elif not credentials.can_refresh:
            return self._needs_sign_in("the sign-in has expired") if credentials.is_expired(now) else token
        return NoToken(self._failure) if self._has_just_failed else None

    @property
    def _has_just_failed(self) -> bool:
        return self._steady() < self._retry_at

    def _read(self) -> Credentials | None:
        stamp = self._store.stamp(self._config.name)
        if not self._is_read or stamp != self._stamp:
            # A sign-in may have been stored by another process.
            self._credentials = self._store.load(self._config)
            self._stamp, self._is_read, self._retry_at = stamp, True, -math.inf
        return self._credentials

    def _needs_sign_in(self, why: str, *, may_try: bool = False) -> NoToken:
        reason = f"{NEEDS_SIGN_IN}: {why}: run 'agent-intercom gateway sign-in {self._config.name}'"
        return NoToken(reason, may_try=may_try)

    async def _refresh(self, refused: str | None) -> str | NoToken:
        found: str | NoToken | None = None
        # A refresh that is cut off loses a refresh token that is valid once. Each of its steps has a time limit.
        with trio.CancelScope(shield=True):
            async with self._lock:
                found = self._usable(refused)
                if found is None:
                    async with self._store.locked(self._config.name):
                        # Another process may have done it meanwhile.
                        found = self._usable(refused)
                        if found is None:
                            found = await self._refresh_now(refused)
        assert found is not None
        return found

    async def _refresh_now(self, refused: str | None) -> str | NoToken:
        credentials = self._read()
        assert credentials is not None
        try:
            fresh = await _refreshed(self._config, credentials, self._clock)
        except _Rejected as rejection:
            self._save(rejection.left_of(credentials))
            return self._needs_sign_in("the authorization server has ended the sign-in")
        except _RefreshFailed as failure:
            self._failure = f"its token could not be refreshed: {failure.reason}"
            self._retry_at = self._steady() + RETRY_SECONDS
            # Until it expires the old one may still do.
            return self._usable(refused) or NoToken(self._failure)
        self._save(fresh)
        return fresh.access_token or NoToken("its token could not be refreshed: the new one is empty")

    def _save(self, credentials: Credentials) -> None:
        self._store.save(self._config.name, credentials)
        self._noticed = self._store.stamp(self._config.name)
        self._is_read = False


class _RefreshFailed(Exception):
    """There is no new token now. `reason` is a clause for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Rejected(Exception):
    """The authorization server does not accept the refresh token, or not even the client."""

    def __init__(self, *, is_client_unknown: bool) -> None:
        super().__init__()
        self.is_client_unknown = is_client_unknown

    def left_of(self, credentials: Credentials) -> Credentials:
        """What is still of use of the credentials."""
        return evolve(credentials, tokens=None, client={} if self.is_client_unknown else credentials.client)


async def _refreshed(config: DownstreamConfig, credentials: Credentials, clock: Callable[[], float]) -> Credentials:
    """Return the credentials with a new token. Raises _Rejected and _RefreshFailed."""
    try:
        provider = Provider(config, credentials, f"http://127.0.0.1{CALLBACK_PATH}")
        provider.restore(credentials)
        request = await provider._refresh_token()
    except (OAuthFlowError, ValueError):
        # What is stored is damaged, or from a server that has changed.
        raise _Rejected(is_client_unknown=False) from None
    now = clock()
    try:
        async with AuthorizationHttp(checked_url(config.base_url)) as http:
            response = await http.fetch(request)
        if response.status_code in (400, 401):
            error = error_code(response.content)
            if error in ("invalid_grant", "invalid_client", "unauthorized_client"):
                raise _Rejected(is_client_unknown=error != "invalid_grant")
        if response.status_code != 200:
            raise _RefreshFailed(f"the authorization server answered HTTP {response.status_code}")
        if not await provider._handle_refresh_response(response):
            raise _RefreshFailed("the authorization server sent no token")
    except ExchangeFailed as failure:
        raise _RefreshFailed(failure.reason) from None
    except CarrierLost as lost:
        raise _RefreshFailed(lost.reason) from None
    return provider.credentials(now, credentials.port, credentials.issuer)


# --- the flow of a person's command


class _Declined(Exception):
    """The browser came back with an error instead of a code. `code` is one of OAuth's, or empty."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Callback:
    """Shows the address to the person, and takes the browser's return to `address`: its request, or what a person
    copied from it."""

    def __init__(self, address: str, show: Callable[[str], Awaitable[None]]) -> None:
        self.address = address
        self.was_shown = False
        self._show = show
        self._state: str | None = None
        self._query: dict[str, str] = {}
        self._is_back = trio.Event()

    async def redirect(self, url: str) -> None:
        """Show the address of the authorization server's page."""
        self._state = dict(parse_qsl(urlsplit(url).query)).get("state")
        self.was_shown = True
        await self._show(url)

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the browser. Raises _Declined."""
        await self._is_back.wait()
        if "code" not in self._query:
            error = self._query.get("error", "")
            raise _Declined(error if ERROR_CODE.fullmatch(error) else "")
        return AuthorizationCodeResult(
            code=self._query["code"], state=self._query["state"], iss=self._query.get("iss") or None
        )

    def take(self, address: str) -> str | None:
        """See TakeAddress."""
        whole = address.strip()
        path, _, query = (whole if "://" in whole else f"http://{whole}").partition("?")
        if path != self.address:
            return f"this is not where the sign-in leads: paste the whole address, which begins with {self.address}?"
        found = self._returned(query.partition("#")[0])
        if found is None:
            return "this address is of another sign-in, or a part of it is missing: paste the one of this, whole"
        self._take(found)
        return None

    def _take(self, query: dict[str, str]) -> None:
        if not self._is_back.is_set():
            self._query = query
            self._is_back.set()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection of a browser."""
        with trio.move_on_after(_BROWSER_SECONDS):
            try:
                async with stream:
                    await self._answer(stream)
            except (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError):
                pass

    async def _answer(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES)
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(_REQUEST_BYTES))
        if not isinstance(event, h11.Request):
            return
        query = self._requested(event)
        if query is None:
            status, text = 404, "This is not the page that the sign-in leads to. Start the sign-in again."
        elif "code" in query:
            status, text = 200, "The sign-in is complete as far as the browser. You can close this page."
        else:
            status, text = 200, "The sign-in was refused. You can close this page."
        body = f"<!doctype html><meta charset=utf-8><title>Intercom</title><p>{text}</p>".encode()
        headers = [
            ("content-type", "text/html; charset=utf-8"),
            ("content-length", str(len(body))),
            ("cache-control", "no-store"),
            ("content-security-policy", "default-src 'none'"),
            ("referrer-policy", "no-referrer"),
            ("connection", "close"),
        ]
        head = connection.send(h11.Response(status_code=status, headers=headers)) or b""
        data = connection.send(h11.Data(data=body if event.method != b"HEAD" else b"")) or b""
        await stream.send_all(head + data)
        if query is not None:
            self._take(query)

    def _requested(self, request: h11.Request) -> dict[str, str] | None:
        """The query of the browser's return, or None for any other request."""
        try:
            target = urlsplit(request.target.decode("ascii"))
        except ValueError:
            return None
        if request.method != b"GET" or target.path != CALLBACK_PATH:
            return None
        return self._returned(target.query)

    def _returned(self, written: str) -> dict[str, str] | None:
        """The parameters of a query, or None if they are not of this sign-in: only its own know the state."""
        try:
            pairs = parse_qsl(written, keep_blank_values=True, max_num_fields=_QUERY_FIELDS)
        except ValueError:
            return None
        query = dict(pairs)
        if len(query) != len(pairs):
            return None
        state = query.get("state", "")
        if self._state is None or not secrets.compare_digest(state.encode("utf-8", "replace"), self._state.encode()):
            return None
        return query if query.get("code") or "error" in query else None


async def sign_in(
    config: DownstreamConfig,
    store: CredentialStore,
    show: Callable[[str], Awaitable[None]],
    *,
    paste: Callable[[TakeAddress], Awaitable[None]] | None = None,
    register: bool = False,
    seconds: float = SIGN_IN_SECONDS,
    clock: Callable[[], float] = time.time,
) -> SignedIn:
    """Sign in to a remote downstream, and store the credentials. Only a person's command calls this.

    `config` is expanded. `show` gets the address that the person must open in a browser; the browser returns to the
    loopback of this machine. Where it cannot, `paste` runs meanwhile, and takes the address that it was sent to.
    `register` registers a new client although there is one. `seconds` limit everything. Others may sign in to the same
    downstream meanwhile: the last one to finish counts.

    Raises SignInFailed. Until it succeeds, stored credentials stay as they are.
    """
    try:
        server = checked_url(config.base_url)
        known = store.load(config)
    except CarrierLost as lost:
        raise SignInFailed(lost.reason) from None
    except ConfigError as fault:
        raise SignInFailed(fault.message) from None
    known = evolve(known, client={}) if known is not None and register else known
    listeners, port, known = await _open_callback(config.oauth or OAuth(), known)
    # Clients whose port is configured are usually registered with this name.
    host = "localhost" if config.oauth is not None and config.oauth.callback_port is not None else "127.0.0.1"
    callback = _Callback(f"http://{host}:{port}{CALLBACK_PATH}", show)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, callback.serve, listeners)
        if paste is not None:
            nursery.start_soon(paste, callback.take)
        # The nursery would wrap what it raises.
        try:
            with trio.fail_after(seconds):
                credentials = await _flow(config, server, known, callback, port, clock)
            # A server may be refreshing the old token, and would store that after this one.
            async with store.locked(config.name):
                store.save(config.name, credentials)
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise _explained(failure, callback, seconds) from None
    scope = (credentials.tokens or {}).get("scope")
    scopes = tuple(scope.split()) if isinstance(scope, str) else ()
    return SignedIn(config.name, credentials.issuer, scopes, credentials.expires_at, credentials.can_refresh)


async def _open_callback(
    settings: OAuth, known: Credentials | None
) -> tuple[list[trio.SocketListener], int, Credentials | None]:
    """Listen for the browser. Returns the listeners, their port, and what is still of use of the credentials: a client
    is registered with the port of its callback."""
    if settings.callback_port is not None:
        try:
            listeners = await trio.open_tcp_listeners(settings.callback_port, host="localhost")
        except OSError:
            reason = (
                f"port {settings.callback_port} is in use: end the program that uses it, or change oauth.callbackPort"
            )
            raise SignInFailed(reason) from None
        return listeners, settings.callback_port, known
    if known is not None and known.client and known.port is not None:
        try:
            return await trio.open_tcp_listeners(known.port, host="127.0.0.1"), known.port, known
        except OSError:
            known = evolve(known, client={})
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listeners[0].socket.getsockname()[1]
    if known is not None and known.client and settings.client_id is None:
        known = evolve(known, client={})
    return listeners, port, known


async def _flow(
    config: DownstreamConfig,
    server: httpx2.URL,
    known: Credentials | None,
    callback: _Callback,
    port: int,
    clock: Callable[[], float],
) -> Credentials:
    settings = config.oauth or OAuth()
    _quiet_the_sdk()
    async with AuthorizationHttp(server) as http:
        issuer = None
        if settings.metadata_url is not None:
            response = await http.fetch(httpx2.Request("GET", settings.metadata_url, headers={"accept": JSON}))
            issuer = str(OAuthMetadata.model_validate_json(response.content).issuer)

        async def redirect(url: str) -> None:
            # Metadata name this address, and the person's browser would open it.
            http.check(httpx2.URL(url))
            await callback.redirect(url)

        provider = Provider(config, known, callback.address, redirect, callback.wait, issuer)
        response = await http.drive(provider, _probe(config, server))
        if provider.context.current_tokens is None:
            raise SignInFailed(f"the server asks for no sign-in (HTTP {response.status_code})")
        if response.status_code in (401, 403):
            raise SignInFailed(f"the server does not accept the token it asked for (HTTP {response.status_code})")
        return provider.credentials(clock(), port)


def _probe(config: DownstreamConfig, server: httpx2.URL) -> httpx2.Request:
    """A request that does nothing, and that a server without a token answers with 401."""
    headers = {name: value for name, value in config.headers.items() if name.lower() != "authorization"}
    headers["mcp-protocol-version"] = PROTOCOL_VERSION
    if config.transport is Transport.SSE:
        return httpx2.Request("GET", server, headers={**headers, "accept": EVENTS})
    headers |= {"accept": f"{JSON}, {EVENTS}", "content-type": JSON}
    return httpx2.Request("POST", server, headers=headers, content=b'{"jsonrpc":"2.0","id":1,"method":"ping"}')


def _explained(failure: Exception, callback: _Callback, seconds: float) -> Exception:
    """The failure of a flow as SignInFailed; what is none of the flow's stays as it is."""
    detail = str(failure)
    if isinstance(failure, trio.TooSlowError):
        who = "nobody finished the sign-in in the browser" if callback.was_shown else "the server did not answer"
        return SignInFailed(f"{who} within {seconds:g} s: sign in again; if its page shows an error, add --register")
    if isinstance(failure, ExchangeFailed):
        return SignInFailed(failure.reason)
    if isinstance(failure, _Declined):
        return SignInFailed(f"the sign-in was refused in the browser{f' ({failure.code})' if failure.code else ''}")
    if isinstance(failure, OAuthRegistrationError):
        reason = "the authorization server registers no client by itself: get an id from it, and write oauth.clientId"
        return SignInFailed(f"{reason} into the downstream's file", detail)
    if isinstance(failure, OAuthTokenError):
        return SignInFailed(
            "the authorization server gave no token: sign in again, and add --register if that fails", detail
        )
    if isinstance(failure, OAuthFlowError | ValueError):  # pydantic's errors are of the latter
        reason = "the server or the authorization server breaks the protocol of the sign-in: tell its operators"
        return SignInFailed(reason, detail)
    if isinstance(failure, ConfigError):
        return SignInFailed(failure.message)
    return failure  # what `show` raised


# --- the end of a sign-in


async def sign_out(name: str, config: DownstreamConfig | None, store: CredentialStore) -> SignedOut:
    """Remove all credentials of a downstream, and ask the authorization server to end the token in use. Only a person's
    command calls this.

    `config` is expanded; None for a downstream that is not configured any more, whose token cannot be ended. A server
    that does not answer does not stop the removal. Raises ConfigError if the file cannot be removed.
    """
    async with store.locked(name):
        known, revocation = None, Revocation.NOT_OFFERED
        if config is not None:
            try:
                known = store.load(config)
            except ConfigError as fault:
                # It is removed, whatever it has.
                log.info("the sign-in of %s could not be read: %s", name, fault.message)
            if known is not None:
                revocation = await _revoke(config, known)
        store.forget(name)
    return SignedOut(name, None if known is None else known.issuer, revocation)


async def _revoke(config: DownstreamConfig, known: Credentials) -> Revocation:
    """Ask for the end of a token, as RFC 7009 has it: of the one that gives others, if there is one."""
    endpoint = (known.metadata or {}).get("revocation_endpoint")
    kind = "refresh_token" if known.can_refresh else "access_token"
    token = (known.tokens or {}).get(kind)
    if not isinstance(endpoint, str) or not isinstance(token, str):
        return Revocation.NOT_OFFERED
    try:
        provider = Provider(config, known, f"http://127.0.0.1{CALLBACK_PATH}")
        provider.restore(known)
        fields = {"token": token, "token_type_hint": kind, "client_id": str(known.client.get("client_id", ""))}
        form, headers = provider.context.prepare_token_auth(fields, {"accept": JSON})
        async with AuthorizationHttp(checked_url(config.base_url)) as http:
            response = await http.fetch(httpx2.Request("POST", endpoint, data=form, headers=headers))
    except (ExchangeFailed, CarrierLost, OAuthFlowError, ValueError, httpx2.InvalidURL):
        return Revocation.FAILED
    return Revocation.DONE if response.status_code == 200 else Revocation.FAILED


def _quiet_the_sdk() -> None:
    """Keep the SDK from logging failed flows: their text has what servers wrote. Repeated calls have no effect."""
    logging.getLogger("mcp.client.auth.oauth2").addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    return record.exc_info is None
