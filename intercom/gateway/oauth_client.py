"""The SDK's OAuth client as the gateway uses it: driven by hand, and never on the way of an agent's request.

`Provider` subclasses the SDK's, which holds a lock during a request, forgets when a token expires and where it can be
refreshed, and would ask a person in the middle of a call. `AuthorizationHttp` sends what a flow asks for: only over
TLS, and with limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

import httpx2
import trio
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed
from pydantic import AnyUrl, BaseModel

from intercom.gateway.breaker import Failure
from intercom.gateway.credentials import Credentials
from intercom.gateway.downstream_config import DownstreamConfig, OAuth
from intercom.gateway.http_exchange import JSON, ExchangeFailed, open_transport, read_body, reason_of
from intercom.model.json_types import JsonObject

#: How long one request to an authorization server may take (seconds).
REQUEST_SECONDS: Final = 15.0
#: Decides about the parameter `resource` of requests (RFC 8707).
PROTOCOL_VERSION: Final = "2025-11-25"
CALLBACK_PATH: Final = "/callback"
#: What an error of OAuth looks like. Other texts are not shown.
ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}")
#: The longest response of an authorization server (bytes).
_RESPONSE_BYTES: Final = 1_048_576
#: The longest life of a token that is believed (seconds).
_LONGEST_LIFE: Final = 10 * 365 * 86_400
_METADATA_PATHS: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class _Nowhere:
    """The SDK's storage of tokens. It keeps nothing: credentials are stored whole, at the end."""

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class _FixedScope(OAuthClientMetadata):
    """What this client registers, with the scope of the configuration, which the SDK would replace by the server's."""

    def __setattr__(self, name: str, value: object) -> None:
        if name != "scope":
            super().__setattr__(name, value)


class _Context(OAuthContext):
    """The state of a flow, with the resource of the configuration if that has one."""

    fixed_resource: str | None = None

    def get_resource_url(self) -> str:
        return self.fixed_resource or super().get_resource_url()

    def should_include_resource_param(self, protocol_version: str | None = None) -> bool:
        return self.fixed_resource is not None or super().should_include_resource_param(protocol_version)


class Provider(OAuthClientProvider):
    """The SDK's client of one flow, with the configuration's settings and what is known from before.

    `issuer` is the one that the configured metadata names. Without `redirect` and `callback` nobody can be asked.
    """

    def __init__(
        self,
        config: DownstreamConfig,
        known: Credentials | None,
        redirect_uri: str,
        redirect: Callable[[str], Awaitable[None]] | None = None,
        callback: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
        issuer: str | None = None,
    ) -> None:
        settings = config.oauth or OAuth()
        make = _FixedScope if settings.scopes else OAuthClientMetadata
        scope = " ".join(settings.scopes) or None
        metadata = make(redirect_uris=[AnyUrl(redirect_uri)], client_name="agent-intercom", scope=scope)
        super().__init__(config.base_url or "", metadata, _Nowhere(), redirect, callback)
        self.context = _Context(config.base_url or "", metadata, _Nowhere(), redirect, callback)
        self.context.fixed_resource = settings.resource
        self._settings = settings
        self._issuer = issuer
        self._server = config.base_url or ""
        self._first_client = _client_of(settings, known, redirect_uri)

    def restore(self, known: Credentials) -> None:
        """Continue with stored tokens. Raises ValueError if they are damaged."""
        context = self.context
        context.client_info = self._first_client
        context.current_tokens = OAuthToken.model_validate(known.tokens)
        context.protocol_version = PROTOCOL_VERSION
        if known.metadata is not None:
            context.oauth_metadata = OAuthMetadata.model_validate(known.metadata)
        if known.resource is not None:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(known.resource)

    def credentials(self, now: float, port: int | None, issuer: str | None = None) -> Credentials:
        """Return what a later refresh needs. `now` is when the token was requested (seconds of the epoch)."""
        context = self.context
        assert context.current_tokens is not None
        assert context.client_info is not None
        if issuer is None:
            issuer = str(context.oauth_metadata.issuer) if context.oauth_metadata else self._expected_issuer()
        seconds = context.current_tokens.expires_in
        return Credentials(
            issuer,
            self._server,
            _dumped(context.client_info),
            port,
            _dumped(context.oauth_metadata) if context.oauth_metadata else None,
            _dumped(context.protected_resource_metadata) if context.protected_resource_metadata else None,
            _dumped(context.current_tokens),
            now,
            # Without a sensible life it is used until it is refused.
            None if seconds is None or seconds <= 0 else now + min(seconds, _LONGEST_LIFE),
        )

    async def _initialize(self) -> None:
        self.context.client_info = self._first_client
        self._initialized = True

    def _expected_issuer(self) -> str:
        return self._issuer or super()._expected_issuer()

    async def _validate_resource_match(self, prm: ProtectedResourceMetadata) -> None:
        fixed = self._settings.resource
        if fixed is None or not check_resource_allowed(requested_resource=fixed, configured_resource=str(prm.resource)):
            await super()._validate_resource_match(prm)

    async def _perform_authorization(self) -> httpx2.Request:
        client, metadata = self.context.client_info, self.context.oauth_metadata
        if client is not None and client.client_secret is not None and metadata is not None:
            supported = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            # A server that gives a secret at the registration need not say how to send it.
            is_open = client.token_endpoint_auth_method is None or self._settings.client_secret is not None
            if is_open:
                is_basic = "client_secret_basic" in supported
                client.token_endpoint_auth_method = "client_secret_basic" if is_basic else "client_secret_post"
        return await super()._perform_authorization()

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The SDK's flow, which reads the metadata of the authorization server where the configuration says."""
        async with aclosing(super()._auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                if self._settings.metadata_url and any(path in outgoing.url.path for path in _METADATA_PATHS):
                    outgoing = httpx2.Request("GET", self._settings.metadata_url, headers={"accept": JSON})
                response = yield outgoing
                try:
                    outgoing = await flow.asend(response)
                except StopAsyncIteration:
                    return


def _client_of(settings: OAuth, known: Credentials | None, redirect_uri: str) -> OAuthClientInformationFull | None:
    """The client to sign in with: that of the configuration, or the one that was registered. None: register one."""
    if settings.client_id is not None:
        is_bound = known is not None and known.client.get("client_id") == settings.client_id
        return OAuthClientInformationFull(
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method="client_secret_basic" if settings.client_secret is not None else "none",
            issuer=known.issuer if known is not None and is_bound else None,
        )
    if known is None or not known.client:
        return None
    return OAuthClientInformationFull.model_validate(known.client)


def _dumped(model: BaseModel) -> JsonObject:
    dumped: JsonObject = model.model_dump(mode="json", exclude_none=True)
    return dumped


# --- HTTP with authorization servers


class AuthorizationHttp:
    """Sends the requests of a flow. `server` is the downstream's address: only if that is on the loopback, others on it
    may be asked without TLS."""

    def __init__(self, server: httpx2.URL) -> None:
        self._is_local = _is_loopback(server)
        self._client = httpx2.AsyncClient(transport=open_transport(), trust_env=False, timeout=REQUEST_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            await self._client.aclose()

    def check(self, url: httpx2.URL) -> None:
        """Raise ExchangeFailed if nothing secret should be sent to this address."""
        if url.scheme != "https" and not (url.scheme == "http" and self._is_local and _is_loopback(url)):
            raise ExchangeFailed(Failure.PROTOCOL, "the sign-in leads to an address without TLS, which is not used")
        if url.userinfo or not url.host:
            reason = "the sign-in leads to an address with a user's name in it, as forged ones have, which is not used"
            raise ExchangeFailed(Failure.PROTOCOL, reason)

    async def fetch(self, request: httpx2.Request, *, with_body: bool = True) -> httpx2.Response:
        """Send a request and return the response. Redirects are left to the flow. Raises ExchangeFailed."""
        self.check(request.url)
        request.headers["accept-encoding"] = "identity"
        reason = None
        try:
            with trio.move_on_after(REQUEST_SECONDS):
                response = await self._client.send(request, stream=True, follow_redirects=False)
                try:
                    body = await read_body(response, _RESPONSE_BYTES) if with_body else b""
                finally:
                    await response.aclose()
                headers = _without_length(response.headers)
                whole = httpx2.Response(response.status_code, headers=headers, content=body, request=request)
                whole.next_request = response.next_request
                return whole
            reason = f"the authorization server did not answer within {REQUEST_SECONDS:g} s"
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            reason = reason_of(error)
        # Raised here, because the traceback of the first error has the request.
        raise ExchangeFailed(Failure.TRANSPORT, reason)

    async def drive(self, provider: Provider, request: httpx2.Request) -> httpx2.Response:
        """Run a flow to its end and return the response to the request. Raises what the flow raises, ExchangeFailed."""
        async with aclosing(provider.async_auth_flow(request)) as flow:
            outgoing = await anext(flow)
            while True:
                response = await self.fetch(outgoing, with_body=outgoing is not request)
                try:
                    outgoing = await flow.asend(response)
                except StopAsyncIteration:
                    return response


def _without_length(headers: httpx2.Headers) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in headers.multi_items()
        if name.lower() not in ("content-length", "content-encoding", "transfer-encoding")
    ]


def _is_loopback(url: httpx2.URL) -> bool:
    if url.host == "localhost":
        return True
    try:
        return ip_address(url.host).is_loopback
    except ValueError:
        return False


def error_code(content: bytes) -> str:
    """Return the error of a response, as OAuth has it, or an empty text."""
    try:
        error = json.loads(content)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return error if isinstance(error, str) and ERROR_CODE.fullmatch(error) else ""
