"""Operator keys: Ed25519 key pairs whose private half is encrypted under a PIN, and the settings that one has signed.

Passkeys are operator keys too, which sign decisions and nothing else (`intercom.local.passkeys`).

The private half is encrypted with ChaCha20-Poly1305 under a key that argon2id derives from the PIN. The file's header
is authenticated with it. A thief of the file can try PINs without limit, so a delay after a wrong PIN would slow down
only the owner. What slows the thief down is argon2id and the length of the PIN.

`cryptography` is imported lazily, because that takes 25 to 50 ms.

Any process of this user can write the configuration and restart the server. So if there is an operator key, these
settings count only as far as a person has signed them (`agent-intercom-ctl key settings`). The signed statement is in a
file beside the list of keys. Without it, or without a valid signature, nothing is allowed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import asdict, evolve, field, fields, frozen

from intercom.local import passkeys
from intercom.local.own_files import read_own, replace
from intercom.local.places import Places, private_directory
from intercom.model import signing
from intercom.model.config import Config, HighestRisk
from intercom.model.errors import ConfigError, IntercomError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: Minimum PIN lengths, in general and for digits only.
SHORTEST_PIN = 8
SHORTEST_OF_DIGITS = 10
_FEWEST_CHARACTERS = 4
_LONGEST_PIN = 1024

#: Parameters of argon2id: passes, lanes, memory in KiB. A file may use higher values, up to `_MOST`.
_PASSES, _LANES, _MEMORY_KIB = 3, 1, 64 * 1024
_MOST = (16, 8, 1024 * 1024)

_ALGORITHM, _PASSKEY = "ed25519", "passkey"
NAME_CHARACTERS = 64
_PUBLIC_BYTES = 32
#: The length of a signature, in hexadecimal digits.
_SIGNATURE = 128


class WrongPin(IntercomError):
    """The PIN does not open the key."""

    code = "unauthorized"


@frozen
class PublicKey:
    """The public half and its owner's name for it. `public` is base64 of 32 bytes, or the text of a passkey."""

    public: str
    name: str = ""

    @staticmethod
    def of(public: str, name: str) -> PublicKey:
        """Check a key from outside. Raises ConfigError for an invalid key or name."""
        if not _is_public(public) and passkeys.read(public) is None:
            raise ConfigError("this is no passkey, and not an Ed25519 public key: give base64 of its 32 bytes")
        _check_name(name)
        return PublicKey(public, name)

    @property
    def is_passkey(self) -> bool:
        return "," in self.public

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of its SHA-256; of a passkey, of its line in a file without the name."""
        said = f"{_PASSKEY} {self.public}".encode() if self.is_passkey else base64.b64decode(self.public)
        return hashlib.sha256(said).hexdigest()[:16]

    def line(self) -> str:
        """Return its line in a file of public keys."""
        return f"{_PASSKEY if self.is_passkey else _ALGORITHM} {self.public} {self.name}".rstrip()


@frozen
class Sealed:
    """A private key that is encrypted under a PIN, as its file has it: bytes in base64."""

    salt: str
    nonce: str
    private: str = ""
    kdf: str = "argon2id"
    passes: int = _PASSES
    lanes: int = _LANES
    memory_kib: int = _MEMORY_KIB
    cipher: str = "chacha20-poly1305"

    def wrapping(self, pin: str) -> bytes:
        """Return the key that the PIN gives."""
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        kdf = Argon2id(
            salt=_bytes(self.salt), length=32, iterations=self.passes, lanes=self.lanes, memory_cost=self.memory_kib
        )
        return kdf.derive(pin.encode("utf-8", "surrogatepass"))

    def header(self, key: PublicKey) -> bytes:
        """Return the data that is authenticated with the secret, so a file with exchanged parts does not open."""
        names = ("kdf", "passes", "lanes", "memory_kib", "salt", "cipher")
        said = {"public": key.public, **{name: getattr(self, name) for name in names}}
        return json.dumps(said, sort_keys=True).encode("ascii")

    @property
    def is_valid(self) -> bool:
        """Whether this program makes such files, and its costs are bounded. Raises ValueError and TypeError."""
        costs = (self.passes, self.lanes, self.memory_kib)
        bounded = all(isinstance(cost, int) and 1 <= cost <= most for cost, most in zip(costs, _MOST, strict=True))
        sizes = [len(_bytes(each)) for each in (self.salt, self.nonce, self.private)]
        known = (self.kdf, self.cipher) == ("argon2id", "chacha20-poly1305")
        return known and bounded and self.memory_kib >= 8 * self.lanes and sizes == [16, 12, 48]


@frozen
class KeyFile:
    """An encrypted private key, as stored in its file."""

    path: Path
    key: PublicKey
    created_at: str
    sealed: Sealed = field(repr=False)


# --- the PIN ---------------------------------------------------------------------------------------------------------


def check_pin(pin: str) -> None:
    """Raise ConfigError, with the requirements, for a PIN that could be guessed within days."""
    needed = SHORTEST_OF_DIGITS if pin.isdigit() else SHORTEST_PIN
    if len(pin) < needed:
        what = "digits" if pin.isdigit() else "characters"
        raise ConfigError(
            f"the PIN has {len(pin)} {what}: take at least {SHORTEST_PIN} characters, or {SHORTEST_OF_DIGITS} digits"
        )
    if len(pin) > _LONGEST_PIN:
        raise ConfigError(f"the PIN has more than {_LONGEST_PIN} characters: take a shorter one")
    if len(set(pin)) < _FEWEST_CHARACTERS or pin in "01234567890123456789" or pin in "98765432109876543210":
        raise ConfigError("the PIN is one of the first that are tried: take one with more different characters")


# --- the private half ------------------------------------------------------------------------------------------------


def create(places: Places, pin: str, name: str, created_at: str) -> KeyFile:
    """Create and store a key pair. The private half goes encrypted into its own file, mode 0600, and the public half
    into the file of operator keys. Raises ConfigError for an invalid PIN or name."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    check_pin(pin)
    _check_name(name)
    # Check the list first, so that no key is created that a damaged list cannot hold.
    read_public(Path(places.operator_keys_file))
    private = Ed25519PrivateKey.generate()
    key = PublicKey(base64.b64encode(private.public_key().public_bytes_raw()).decode("ascii"), name)
    made = _seal(Path(places.keys_directory) / f"{key.id}.json", key, created_at, private, pin)
    _write_private(made)
    add_public(places, key)
    return made


def change_pin(kept: KeyFile, private: Ed25519PrivateKey, pin: str) -> KeyFile:
    """Encrypt the key again under another PIN. Raises ConfigError for an invalid PIN."""
    check_pin(pin)
    made = _seal(kept.path, kept.key, kept.created_at, private, pin)
    _write_private(made)
    return made


def unlock(kept: KeyFile, pin: str) -> Ed25519PrivateKey:
    """Return the private key. Raises WrongPin."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    sealed = kept.sealed
    cipher = ChaCha20Poly1305(sealed.wrapping(pin))
    try:
        secret = cipher.decrypt(_bytes(sealed.nonce), _bytes(sealed.private), sealed.header(kept.key))
    except InvalidTag:
        raise WrongPin(f"this PIN does not open key {kept.key.id}; nothing was signed") from None
    return Ed25519PrivateKey.from_private_bytes(secret)


def private_keys(places: Places) -> tuple[KeyFile, ...]:
    """Return the keys whose private half is on this machine, oldest first. Raises ConfigError for a damaged file."""
    try:
        names = sorted(name for name in os.listdir(places.keys_directory) if name.endswith(".json"))
    except FileNotFoundError:
        return ()
    found = [_read_private(Path(places.keys_directory) / name) for name in names]
    return tuple(sorted(found, key=lambda each: (each.created_at, each.key.id)))


def forget(places: Places, key_id: str) -> None:
    """Remove a key's private half and its line in the file of operator keys."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(Path(places.keys_directory) / f"{key_id}.json")
    file = Path(places.operator_keys_file)
    keys = read_public(file)
    if key_id in keys:
        _write_public(file, [key for key in keys.values() if key.id != key_id])


def _seal(path: Path, key: PublicKey, created_at: str, private: Ed25519PrivateKey, pin: str) -> KeyFile:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = os.urandom(12)
    sealed = Sealed(_text(os.urandom(16)), _text(nonce))
    cipher = ChaCha20Poly1305(sealed.wrapping(pin))
    secret = cipher.encrypt(nonce, private.private_bytes_raw(), sealed.header(key))
    return KeyFile(path, key, created_at, evolve(sealed, private=_text(secret)))


def _write_private(made: KeyFile) -> None:
    private_directory(str(made.path.parent))
    value = {
        "version": 1,
        "public": made.key.public,
        "name": made.key.name,
        "created_at": made.created_at,
        **asdict(made.sealed),
    }
    replace(made.path, json.dumps(value, indent=2).encode("ascii") + b"\n")


def _read_private(path: Path) -> KeyFile:
    damaged = ConfigError(f"{path} is not a key file of this program: restore it from a backup, or move it away")
    try:
        value = json.loads(read_own(path, private=True))
        sealed = Sealed(**{each.name: value[each.name] for each in fields(Sealed)})
        texts = (value["public"], value["name"], value["created_at"])
        is_ours = value["version"] == 1 and sealed.is_valid and all(isinstance(each, str) for each in texts)
    except (ValueError, KeyError, TypeError):
        raise damaged from None
    public, name, created_at = texts
    if not (is_ours and _is_public(public)):
        raise damaged
    return KeyFile(path, PublicKey(public, name), created_at, sealed)


# --- public halves ---------------------------------------------------------------------------------------------------


def read_public(file: Path) -> dict[str, PublicKey]:
    """Return the keys in a file of operator keys, by id; none if there is no file. Raises ConfigError, with the line
    number, for an invalid line."""
    try:
        text = read_own(file).decode("utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8: restore it from a backup") from None
    found: dict[str, PublicKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        if not _is_line(words):
            raise ConfigError(f"{file} line {number} is not a key (expected: {_ALGORITHM} PUBLIC-KEY NAME): remove it")
        key = PublicKey(words[1], words[2] if len(words) > 2 else "")
        found[key.id] = key
    return found


def add_public(places: Places, key: PublicKey) -> None:
    """Add a key to the user's file of operator keys."""
    file = Path(places.operator_keys_file)
    keys = read_public(file)
    _write_public(file, [*(each for each in keys.values() if each.id != key.id), key])


def verifies(public: str, signature: str, message: bytes) -> bool:
    """Whether `signature` (hexadecimal) of `message` was made with the private half of `public`.

    False for a passkey, which signs decisions only. A genuine one is remembered, because a decision is verified when it
    is made and each time it takes effect, at 0.15 ms each. Of others nothing is kept: any process may send them, and
    large ones.
    """
    from cryptography.exceptions import InvalidSignature

    if len(signature) != _SIGNATURE or not _is_public(public):
        return False
    try:
        _verify(public, signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _verify(public: str, signature: str, message: bytes) -> None:
    """Raise InvalidSignature or ValueError if this is not genuine; what raises is not cached."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    Ed25519PublicKey.from_public_bytes(base64.b64decode(public)).verify(bytes.fromhex(signature), message)


def verifies_decision(public: str, method: str, signature: str, statement: bytes) -> bool:
    """Whether this key has signed the statement of a decision, in the way that the signature's method says."""
    if method == signing.PASSKEY:
        return passkeys.verifies(public, signature, statement)
    return verifies(public, signature, statement)


def _write_public(file: Path, keys: list[PublicKey]) -> None:
    private_directory(str(file.parent))
    head = "# Operator keys of agent-intercom, one a line; see agent-intercom-ctl key --help.\n"
    replace(file, (head + "".join(f"{key.line()}\n" for key in keys)).encode("utf-8"))


def _is_line(words: list[str]) -> bool:
    if len(words) < 2:
        return False
    if words[0] == _PASSKEY:
        return passkeys.read(words[1]) is not None
    return words[0] == _ALGORITHM and _is_public(words[1])


def _is_public(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        return len(base64.b64decode(value, validate=True)) == _PUBLIC_BYTES
    except (binascii.Error, ValueError):
        return False


def _check_name(name: str) -> None:
    if not name.isprintable() or not 0 < len(name) <= NAME_CHARACTERS or name != name.strip():
        raise ConfigError(f"a key's name is one line of 1 to {NAME_CHARACTERS} characters, not {name!r}")


# --- files -----------------------------------------------------------------------------------------------------------


def channel_file(places: Places, channel: str) -> Path:
    """Return the path of the key with which the server signs for a channel."""
    return Path(places.state_dir) / "keys" / f"{channel}.key"


def read_secret(path: Path) -> bytes:
    """Read 32 secret bytes that `write_secret` wrote. Raises FileNotFoundError and ConfigError."""
    try:
        secret = bytes.fromhex(read_own(path, private=True).decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != _PUBLIC_BYTES:
        raise ConfigError(f"{path} is not a key of this program: move it away, and a new one is created")
    return secret


def write_secret(path: Path, secret: bytes) -> None:
    """Store 32 secret bytes without a PIN, readable by this user only."""
    replace(path, secret.hex().encode("ascii") + b"\n")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


@frozen
class Allowed:
    """The highest risk for each of the two channels that the server signs for, and whether every content of a policy
    file takes effect. The defaults allow nothing."""

    slack: HighestRisk = HighestRisk.NONE
    embed: HighestRisk = HighestRisk.NONE
    trust_changes: bool = False

    @staticmethod
    def by(config: Config) -> Allowed:
        """Return what a configuration asks for. A channel that is not configured decides nothing."""
        slack = config.decisions.slack if config.slack.channel_id is not None else HighestRisk.NONE
        return Allowed(slack, config.decisions.embed, config.policy.trust_changes)

    def within(self, signed: Allowed) -> Allowed:
        """Return what both allow."""
        return Allowed(
            min(self.slack, signed.slack, key=_rank),
            min(self.embed, signed.embed, key=_rank),
            self.trust_changes and signed.trust_changes,
        )

    def beyond(self, signed: Allowed) -> tuple[str, ...]:
        """Return the settings, as lines of the file, that allow more than was signed."""
        both = self.within(signed).settings()
        return tuple(_line(name, value) for name, value in self.settings().items() if value != both[name])

    def settings(self) -> dict[str, str | bool]:
        """Return the settings by their configuration names, as JSON and TOML values."""
        return {
            "decisions.slack": self.slack.value,
            "decisions.embed": self.embed.value,
            "policy.trust_changes": self.trust_changes,
        }

    def lines(self) -> tuple[str, ...]:
        """Return the settings as lines for people."""
        return tuple(_line(name, value) for name, value in self.settings().items())


NOTHING = Allowed()


@frozen
class SignedSettings:
    """What was signed, when, and with which key."""

    allowed: Allowed
    at: str
    by: str
    signature: str

    def is_genuine(self, key: PublicKey) -> bool:
        """Whether this key signed it."""
        said = signing.settings_statement(self.allowed.settings(), at=self.at, by=self.by)
        return key.id == self.by and verifies(key.public, self.signature, said)


def sign(allowed: Allowed, at: str, by: str, private: Callable[[bytes], bytes]) -> SignedSettings:
    """Sign with the key whose id is `by`. `private` signs bytes."""
    said = signing.settings_statement(allowed.settings(), at=at, by=by)
    return SignedSettings(allowed, at, by, private(said).hex())


def write(places: Places, signed: SignedSettings) -> None:
    """Store the signed settings in place of the earlier ones."""
    file = Path(places.signed_settings_file)
    private_directory(str(file.parent))
    value = {"settings": signed.allowed.settings(), "at": signed.at, "by": signed.by, "signature": signed.signature}
    replace(file, json.dumps(value, indent=2).encode("ascii") + b"\n")


def read(file: Path) -> SignedSettings | None:
    """Read the signed settings, not verified. None if there is no file. Raises ConfigError for a damaged one."""
    try:
        value = json.loads(read_own(file))
        settings, said = value["settings"], [value[name] for name in ("at", "by", "signature")]
        allowed = Allowed(
            HighestRisk(settings["decisions.slack"]),
            HighestRisk(settings["decisions.embed"]),
            settings["policy.trust_changes"] is True,
        )
        if settings != allowed.settings() or not all(isinstance(each, str) for each in said):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{file} is damaged: sign your settings again with agent-intercom-ctl key settings") from None
    return SignedSettings(allowed, *said)


def _rank(level: HighestRisk) -> int:
    return level.rank


def _line(name: str, value: str | bool) -> str:
    table, _, setting = name.partition(".")
    return f"[{table}] {setting} = {json.dumps(value)}"
