"""People whom a reverse proxy has signed in: what the proxy says of them, and when it is believed.

The proxy is the only one that reaches the page under its public name. It shows a secret with every request, because a
header alone could be written by any process of this machine. Its own sign-in takes the place of a link, a cookie and a
session: none of them counts under the public name.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from attrs import field, frozen

from intercom.model.config import WebSettings
from intercom.model.web_role import WebRole
from intercom.operators.web.sign_in import new_secret
from intercom.web_server.http_request import Refusal

#: How long a stream of events lasts, in seconds. The proxy is asked again then: its own sessions end too.
STREAM_SECONDS = 900.0
_USUAL_PORT = ":443"


@frozen
class Member:
    """A person whom the proxy has signed in, in one request. `csrf` is the same as long as the listener runs."""

    name: str
    role: WebRole
    csrf: str = field(repr=False)

    @property
    def key(self) -> str:
        return self.csrf

    def shows_csrf(self, shown: bytes | None) -> bool:
        """Whether a request showed the secret of this person. The comparison takes constant time."""
        return hmac.compare_digest(shown or b"", self.csrf.encode())


@frozen
class ProxyRules:
    """Which requests the proxy sends, and who may sign in with it. `host` and `origin` are those of the public address,
    `identity` and `proof` the names of its two headers, all in lower case."""

    host: bytes
    origin: bytes
    identity: bytes
    proof: bytes
    secret: bytes = field(repr=False)
    members: Mapping[str, WebRole]
    _key: bytes = field(factory=lambda: new_secret().encode(), repr=False)

    def has_sent(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a request shows anything in place of the secret, in any spelling: as the proxy's do."""
        return any(_spelled(name) == self.proof for name, _ in headers)

    def member(self, headers: Iterable[tuple[bytes, bytes]]) -> Member:
        """Return who has sent a request under the public name. Raises Refusal if it does not come from the proxy, does
        not name exactly one person, or names one who is no member."""
        headers = tuple(headers)
        shown = _only(headers, self.proof)
        if shown is None or not hmac.compare_digest(shown, self.secret):
            raise _refused(
                "under this name only the proxy reaches the page, and this request does not have its secret: the proxy"
                f" has to set the header {self.proof.decode()}"
            )
        value = _only(headers, self.identity)
        if not value:
            raise _refused(
                f"the proxy does not say who you are: it has to set the header {self.identity.decode()} once, and to"
                " remove the one that a browser sends"
            )
        try:
            name = value.decode()
        except UnicodeDecodeError:
            raise _refused("the proxy names you in another encoding than UTF-8") from None
        # In exactly this spelling: who signs in elsewhere with other letters that look the same is somebody else.
        role = self.members.get(name)
        if role is None:
            raise _refused(
                f"you are signed in as {name[:64]!r}, who is no member here: an admin adds people to [web.members] in"
                " the server's configuration"
            )
        digest = hmac.new(self._key, name.encode(), hashlib.sha256)
        return Member(name, role, digest.hexdigest())


def rules_of(settings: WebSettings, secret: str | None) -> ProxyRules | None:
    """Return the rules for the proxy before the page; None without a public address or a secret."""
    if settings.public_url is None or secret is None:
        return None
    parts = urlsplit(settings.public_url.lower())
    host = parts.netloc.removesuffix(_USUAL_PORT)
    return ProxyRules(
        host.encode(),
        f"{parts.scheme}://{host}".encode(),
        settings.proxy_header.lower().encode(),
        settings.proxy_secret_header.lower().encode(),
        secret.encode(),
        settings.members,
    )


def _only(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the value of a header that must be there once. None if it is missing, there twice, or there in another
    spelling too: some proxies take `_` for `-`, and pass on what the browser has sent."""
    found = [(each, value) for each, value in headers if _spelled(each) == name]
    return found[0][1] if len(found) == 1 and found[0][0] == name else None


def _spelled(name: bytes) -> bytes:
    return name.replace(b"_", b"-")


def _refused(message: str) -> Refusal:
    return Refusal(HTTPStatus.FORBIDDEN, "unauthorized", message)
