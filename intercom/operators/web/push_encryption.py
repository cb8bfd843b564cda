"""What a push message is: its encryption (RFC 8291, RFC 8188), and the key pair by which push services know this server
(VAPID, RFC 8292).

Only the browser can read a message: the push service has neither key. Messages have one length, so it does not learn
that either. `cryptography` is imported lazily, because that takes 20 to 40 ms.
"""

from __future__ import annotations

import hmac
import json
import os
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from intercom.local import own_files
from intercom.local.passkeys import from_base64url, to_base64url
from intercom.model.errors import ConfigError, InvalidArguments, IpcError
from intercom.model.json_types import JsonObject

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

#: The length of a public key (uncompressed point of P-256) and of an authentication secret, in bytes.
_POINT: Final = 65
_SECRET: Final = 16
#: The length that every text is padded to, in bytes. A push service takes 4096 bytes of ciphertext.
PADDED: Final = 3000
_RECORD: Final = 4096
#: How long a token for a push service is good: at most a day.
_TOKEN_LIFE: Final = timedelta(hours=12)


@frozen
class BrowserKeys:
    """The keys with which a browser reads its messages: its public key, and a secret."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def read(cls, public: str, secret: str) -> BrowserKeys:
        """Read them from base64url. Raises InvalidArguments for others than a browser makes."""
        keys = cls(from_base64url(public) or b"", from_base64url(secret) or b"")
        if len(keys.public) != _POINT or len(keys.secret) != _SECRET:
            raise InvalidArguments("public and auth must be the keys of a push subscription, as base64url")
        try:
            _point(keys.public)
        except ValueError:
            raise InvalidArguments("public is no public key of the curve P-256") from None
        return keys


def encrypt(text: bytes, keys: BrowserKeys) -> bytes:
    """Encrypt a text for one browser, as one record of `aes128gcm`. Raises ValueError for a text above PADDED."""
    from cryptography.hazmat.primitives.asymmetric import ec

    if len(text) > PADDED:
        raise ValueError(f"a push message has at most {PADDED} bytes")
    padded = text + b"\x02" + bytes(PADDED - len(text))
    return _encrypt(padded, keys, ec.generate_private_key(ec.SECP256R1()), os.urandom(16))


def _encrypt(padded: bytes, keys: BrowserKeys, own: EllipticCurvePrivateKey, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    public = _bytes_of(own.public_key())
    shared = own.exchange(ec.ECDH(), _point(keys.public))
    # The names are those of RFC 8291, section 3.4, and RFC 8188, section 2.
    prk_key = _hmac(keys.secret, shared)
    ikm = _hmac(prk_key, b"WebPush: info\0" + keys.public + public + b"\x01")
    prk = _hmac(salt, ikm)
    cek = _hmac(prk, b"Content-Encoding: aes128gcm\0\x01")[:16]
    nonce = _hmac(prk, b"Content-Encoding: nonce\0\x01")[:12]
    head = salt + _RECORD.to_bytes(4, "big") + bytes([len(public)]) + public
    return head + AESGCM(cek).encrypt(nonce, padded, None)


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, sha256)


def _point(public: bytes) -> EllipticCurvePublicKey:
    """Raises ValueError for bytes that are no point of the curve."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)


def _bytes_of(public: EllipticCurvePublicKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


# --- the server's own key --------------------------------------------------------------------------------------------


@frozen
class ServerKey:
    """The key pair by which push services know this server. Browsers are subscribed to its public half."""

    _key: EllipticCurvePrivateKey = field(repr=False)

    @property
    def public(self) -> str:
        return to_base64url(_bytes_of(self._key.public_key()))

    def authorization(self, endpoint: str, contact: str | None, now: datetime) -> str:
        """Return the header with which a push service accepts a message for this endpoint: a token signed with ES256
        that is good there only. `contact` is how its operators may reach this server's owner."""
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256

        parts = urlsplit(endpoint)
        claims: JsonObject = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int((now + _TOKEN_LIFE).timestamp()),
            **({} if contact is None else {"sub": contact}),
        }
        signed = f"{_part({'typ': 'JWT', 'alg': 'ES256'})}.{_part(claims)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode("ascii"), ec.ECDSA(SHA256())))
        signature = to_base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        return f"vapid t={signed}.{signature}, k={self.public}"


def _part(data: JsonObject) -> str:
    return to_base64url(json.dumps(data, separators=(",", ":")).encode("ascii"))


def server_key(path: Path) -> ServerKey:
    """Return the key in this file, mode 0600; make it if there is none. It is never changed: browsers are subscribed to
    it. Blocks. Raises IpcError if the file is open to other users, holds no such key, or cannot be written."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    try:
        if not os.path.lexists(path):
            made = ec.generate_private_key(ec.SECP256R1())
            pem = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            own_files.create(path, pem)
        key = load_pem_private_key(own_files.read_own(path, private=True), None)
    except OSError as error:
        raise IpcError(f"cannot keep {path} ({error.strerror}): check its directory") from None
    except ConfigError as fault:
        raise IpcError(
            f"{fault.message}; without it a new key is made, and browsers have to be subscribed again"
        ) from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IpcError(f"{path} holds no key for push messages: remove it, and a new one is made")
    return ServerKey(key)
