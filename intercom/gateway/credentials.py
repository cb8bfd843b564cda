"""The stored credentials of remote downstreams, by downstream and by the issuer that they are from.

Each downstream has one file, mode 0600. No credential reaches another authorization server, or another address of the
downstream, than the one it is for.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio
from attrs import field, frozen

from intercom.gateway.downstream_config import NAME_LENGTH, DownstreamConfig
from intercom.local.own_files import read_own, replace
from intercom.local.places import private_directory
from intercom.model.errors import ConfigError, IpcError
from intercom.model.json_types import JsonObject

#: A token counts as old so long before it expires (seconds), or in the last tenth of a short life.
MARGIN_SECONDS: Final = 60.0
_LEAST_MARGIN_SECONDS: Final = 1.5
#: How long another process may hold the lock of a refresh (seconds).
LOCK_SECONDS: Final = 20.0
_LOCK_POLL_SECONDS: Final = 0.05
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9-]{{0,{NAME_LENGTH - 1}}}")


@frozen
class Credentials:
    """What is known of one downstream's sign-in at one authorization server.

    `server` is the downstream's address that they are for. `client` is the registered client, `port` that of its
    callback. `metadata` and `resource` describe the authorization server and the downstream. Times are seconds of the
    epoch. `tokens` is None until somebody has signed in.
    """

    issuer: str
    server: str = field(repr=False)
    client: JsonObject = field(repr=False)
    port: int | None = None
    metadata: JsonObject | None = field(default=None, repr=False)
    resource: JsonObject | None = field(default=None, repr=False)
    tokens: JsonObject | None = field(default=None, repr=False)
    obtained_at: float = 0.0
    expires_at: float | None = None

    @property
    def access_token(self) -> str | None:
        """The access token, or None."""
        token = (self.tokens or {}).get("access_token")
        return token if isinstance(token, str) and token else None

    @property
    def can_refresh(self) -> bool:
        """Whether there is a refresh token."""
        return bool((self.tokens or {}).get("refresh_token"))

    def is_old(self, now: float) -> bool:
        """Whether the token should be refreshed before it is sent."""
        if self.expires_at is None:
            return False
        # Servers count whole seconds, and some end the whole sign-in when they see an expired token.
        margin = min(MARGIN_SECONDS, max(_LEAST_MARGIN_SECONDS, 0.1 * (self.expires_at - self.obtained_at)))
        return now >= self.expires_at - margin

    def is_expired(self, now: float) -> bool:
        """Whether the token must not be sent any more."""
        return self.expires_at is not None and now >= self.expires_at


@frozen
class _StoredFile:
    """What a file has: the credentials of each issuer, and the issuer whose are in use; empty if none are."""

    current: str = ""
    issuers: Mapping[str, Credentials] = field(factory=dict, repr=False)


class CredentialStore:
    """Keeps credentials in a directory: one file for each downstream, with the credentials of each issuer, and which
    of them are in use. Several processes may use it. The directory and its files are private to this user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, config: DownstreamConfig) -> Credentials | None:
        """Return the credentials in use, or None if there are none for this address.

        Raises ConfigError if the file is open to other users, damaged or cannot be read.
        """
        content = self._read(config.name)
        current = content.issuers.get(content.current)
        if current is None or current.server != config.base_url:
            return None
        return current

    def needs_sign_in(self, config: DownstreamConfig, now: float) -> bool:
        """Whether a person must sign in, as far as files can tell: the configuration says how and nobody has, or a
        sign-in has ended. `now` is seconds of the epoch. A server that nobody was asked for may need none.

        Raises ConfigError as `load` does.
        """
        credentials = self.load(config)
        if credentials is None:
            return config.oauth is not None
        is_usable = credentials.can_refresh or not credentials.is_expired(now)
        return credentials.access_token is None or not is_usable

    def stamp(self, name: str) -> tuple[int, int, int] | None:
        """Return what changes whenever the file of a downstream does, or None without a file."""
        try:
            found = os.stat(self._path(name))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def save(self, name: str, credentials: Credentials) -> None:
        """Store these credentials and use them. Raises ConfigError if the file cannot be written. Whatever ends this
        process meanwhile, the file has the old credentials or the new ones. Hold the lock (`locked`)."""
        try:
            content = self._read(name)
        except ConfigError:
            content = _StoredFile()
        issuers = {**content.issuers, credentials.issuer: credentials}
        text = json.dumps(
            {"current": credentials.issuer, "issuers": {key: _to_json(each) for key, each in issuers.items()}}
        )
        try:
            private_directory(str(self._directory))
            self._remove_drafts(name)
            replace(self._path(name), text.encode("ascii"))
        except IpcError as fault:
            raise ConfigError(fault.message) from None
        except OSError as error:
            raise ConfigError(f"cannot write {self._path(name)} ({error.strerror}): check its directory") from None

    def forget(self, name: str) -> bool:
        """Remove everything about a downstream. Returns whether there was something. Raises ConfigError. Hold the lock
        (`locked`)."""
        try:
            self._remove_drafts(name)
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"cannot remove {self._path(name)} ({error.strerror}): remove it yourself") from None
        return True

    @asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[None]:
        """Keep other processes from storing credentials, and from refreshing the same token, which some servers take
        for theft. After 20 s, go on without: the other process hangs. Raises ConfigError."""
        try:
            private_directory(str(self._directory))
            path = self._path(name).with_suffix(".lock")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except IpcError as fault:
            raise ConfigError(fault.message) from None
        except OSError as error:
            raise ConfigError(f"cannot lock {self._path(name)} ({error.strerror}): check its directory") from None
        try:
            with trio.move_on_after(LOCK_SECONDS):
                while not _try_lock(descriptor):  # noqa: ASYNC110  no event tells of another process
                    await trio.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _remove_drafts(self, name: str) -> None:
        """Remove what a process that was killed while it wrote has left: it has tokens, too."""
        for draft in self._directory.glob(f".{self._path(name).name}.*"):
            draft.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ValueError("the name of a downstream is not valid")
        return self._directory / f"{name}.json"

    def _read(self, name: str) -> _StoredFile:
        path = self._path(name)
        try:
            content = json.loads(read_own(path, private=True))
            issuers = {
                str(key): Credentials(**{each: said[each] for each in _KEYS})
                for key, said in content["issuers"].items()
            }
            return _StoredFile(str(content["current"]), issuers)
        except FileNotFoundError:
            return _StoredFile()
        except OSError as error:
            raise ConfigError(f"cannot read {path} ({error.strerror}): check its directory") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(f"{path} is damaged: remove it, and sign in again") from None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_KEYS: Final = ("issuer", "server", "client", "port", "metadata", "resource", "tokens", "obtained_at", "expires_at")


def _to_json(credentials: Credentials) -> JsonObject:
    return {key: getattr(credentials, key) for key in _KEYS}
