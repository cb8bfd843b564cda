"""A push service on loopback, and a browser that is subscribed to it and reads what it gets."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import h11
import trio
from attrs import define, field
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from intercom.local.passkeys import from_base64url, to_base64url
from intercom.operators.web.push_subscriptions import Destinations


def private_key(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(data(text), "big"), ec.SECP256R1())


def data(text: str) -> bytes:
    found = from_base64url(text)
    assert found is not None
    return found


def _expand(key: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return hmac.digest(hmac.digest(salt, key, sha256), info + b"\x01", sha256)[:length]


@define
class PushBrowser:
    """The keys of a browser; it decrypts as RFC 8291 says, by code of its own."""

    private: ec.EllipticCurvePrivateKey = field(factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = b"0123456789abcdef"

    @property
    def public_bytes(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def keys(self) -> dict[str, str]:
        return {"public": to_base64url(self.public_bytes), "auth": to_base64url(self.auth)}

    def read(self, body: bytes) -> bytes:
        salt, size, sender, record = body[:16], body[16:20], body[21 : 21 + body[20]], body[21 + body[20] :]
        assert int.from_bytes(size, "big") >= len(record)
        shared = self.private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        ikm = _expand(shared, self.auth, b"WebPush: info\0" + self.public_bytes + sender, 32)
        key = _expand(ikm, salt, b"Content-Encoding: aes128gcm\0", 16)
        nonce = _expand(ikm, salt, b"Content-Encoding: nonce\0", 12)
        text, end, rest = AESGCM(key).decrypt(nonce, record, None).rpartition(b"\x02")
        assert (end, rest.strip(b"\0")) == (b"\x02", b"")
        return text


def claims(authorization: str) -> tuple[dict[str, Any], str]:
    """The claims of a VAPID header, whose signature holds, and the key that signed it."""
    token, key = authorization.removeprefix("vapid t=").split(", k=")
    signed, _, signature = token.rpartition(".")
    raw = data(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), data(key))
    public.verify(der, signed.encode(), ec.ECDSA(SHA256()))
    head, body = (json.loads(data(part)) for part in signed.split("."))
    assert head == {"typ": "JWT", "alg": "ES256"}
    return body, key


@define
class PushService:
    """Takes messages. `answers` are the statuses and headers of its next answers; then it takes everything."""

    port: int
    answers: list[tuple[int, dict[str, str]]] = field(factory=list)
    #: The target, the headers and the body of each request.
    got: list[tuple[str, dict[str, str], bytes]] = field(factory=list)
    _news: trio.Event = field(factory=trio.Event)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/send/secret-1"

    @property
    def destinations(self) -> Destinations:
        """The rule of the tests: everything is allowed, on loopback too."""
        return Destinations("http", None, lambda address: True)

    async def until(self, requests: int) -> None:
        while len(self.got) < requests:
            await self._news.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        target, headers, body = "", {}, b""
        async with stream:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    target = event.target.decode()
                    headers = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    return
            self.got.append((target, headers, body))
            status, more = self.answers.pop(0) if self.answers else (201, {})
            head = h11.Response(status_code=status, headers=[*more.items(), ("Content-Length", "0")])
            await stream.send_all((connection.send(head) or b"") + (connection.send(h11.EndOfMessage()) or b""))
            self._news.set()
            self._news = trio.Event()


@asynccontextmanager
async def push_service() -> AsyncIterator[PushService]:
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        service = PushService(listener.socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, service.serve, [listener])
        yield service
        nursery.cancel_scope.cancel()
