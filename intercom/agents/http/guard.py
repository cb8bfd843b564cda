"""The access rules of the HTTP port: allowed hosts, allowed origins and the token. No I/O."""

from __future__ import annotations

import hmac
from http import HTTPStatus

from attrs import field, frozen

from intercom.agents.http.identity import Headers
from intercom.agents.http.refusal import Refusal
from intercom.model.config import Config

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SCHEME = b"bearer "


@frozen
class Rules:
    """The access rules. `hosts` and `origins` are the allowed values of those headers, in lower case. The hosts in
    `names` may have any port. `token` is None if none is required."""

    hosts: frozenset[bytes]
    names: frozenset[bytes]
    origins: frozenset[bytes]
    token: bytes | None = field(repr=False)

    def refuse(self, headers: Headers, *, open: bool = False) -> Refusal | None:
        """Return why a request with these headers is refused; None if it is accepted. `open` pages need no token."""
        host = origin = shown = None
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"authorization":
                # The last of several counts; this gives an attacker nothing.
                shown = value
        if not self._knows(host):
            return _wrong_host()
        if origin is not None and origin.lower() not in self.origins:
            return _wrong_origin()
        if self.token is None or open or _shows(shown, self.token):
            return None
        return _no_token(shown is not None)

    def _knows(self, host: bytes | None) -> bool:
        if host is None:
            return False
        host = host.lower()
        if host in self.hosts:
            return True
        name, _, port = host.rpartition(b":")
        return port.isdigit() and name in self.names


def rules(config: Config, port: int, token: str | None) -> Rules:
    """Return the rules for a server with this configuration at `port`. The configuration may lift the `token`."""
    own = {*_LOOPBACK, _as_host(config.http_host)}
    names = {each.lower() for each in config.http_allowed_hosts if not _has_port(each)}
    hosts = own | names | {each.lower() for each in config.http_allowed_hosts} | {f"{each}:{port}" for each in own}
    origins = {f"http://{each}:{port}" for each in own} | {each.lower() for each in config.http_allowed_origins}
    return Rules(
        hosts=_bytes(hosts),
        names=_bytes(names),
        origins=_bytes(origins),
        token=token.encode() if token is not None and config.http_token_required else None,
    )


def _as_host(address: str) -> str:
    return f"[{address.lower()}]" if ":" in address else address.lower()


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _bytes(texts: set[str]) -> frozenset[bytes]:
    return frozenset(text.encode() for text in texts)


def _shows(shown: bytes | None, token: bytes) -> bool:
    """Whether a header contains the token. The comparison takes constant time."""
    given = shown[len(_SCHEME) :].strip() if shown is not None and shown[: len(_SCHEME)].lower() == _SCHEME else b""
    return hmac.compare_digest(given, token)


def _wrong_host() -> Refusal:
    return Refusal(
        HTTPStatus.MISDIRECTED_REQUEST,
        "host_refused",
        "this server is not called by that Host: call it by the address it listens at, or add the name to"
        " http_allowed_hosts in its configuration",
    )


def _wrong_origin() -> Refusal:
    return Refusal(
        HTTPStatus.FORBIDDEN,
        "origin_refused",
        "pages of that Origin may not call this server: add it to http_allowed_origins in its configuration if it is"
        " yours",
    )


def _no_token(shown: bool) -> Refusal:
    message = (
        "that is not this server's token: it stands in the file http.token in the state directory"
        if shown
        else "show the token: Authorization: Bearer and what stands in the file http.token in the state directory"
    )
    challenge = (b"www-authenticate", b'Bearer realm="agent-intercom"')
    return Refusal(HTTPStatus.UNAUTHORIZED, "unauthorized", message, (challenge,))
