"""Keychains for tests: backends as the keyring library knows them, none of which leaves this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeychain
from keyring.backends.null import Keyring as NullKeychain
from keyring.errors import KeyringLocked, PasswordDeleteError

__all__ = ["Broken", "Kept", "Locked", "NoKeychain", "NullKeychain", "Silent", "keychain_is"]


class Kept(KeyringBackend):
    """Keeps what it is given, in `held` by (service, name)."""

    name = "a drawer"
    priority = 0.1  # type: ignore[assignment]

    def __init__(self, **held: str) -> None:
        super().__init__()
        self.held = {("agent-intercom", name): value for name, value in held.items()}

    def get_password(self, service: str, username: str) -> str | None:
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.held.pop((service, username), None) is None:
            raise PasswordDeleteError("no such password")


class Locked(Kept):
    """Nobody is there to unlock it."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("failed to unlock the collection")


class Broken(Kept):
    """Fails as a backend does whose service went away."""

    def get_password(self, service: str, username: str) -> str | None:
        raise ConnectionResetError("the bus is gone")


class Silent(Kept):
    """Waits for somebody to type a password, until `typed`."""

    def __init__(self, **held: str) -> None:
        super().__init__(**held)
        self.asked = threading.Event()
        self.typed = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.set()
        self.typed.wait(30)
        return super().get_password(service, username)


@contextmanager
def keychain_is(backend: KeyringBackend) -> Iterator[None]:
    """This machine has this keychain; no other is looked for."""
    before = keyring.core._keyring_backend
    keyring.core.set_keyring(backend)
    try:
        yield
    finally:
        if isinstance(backend, Silent):
            backend.typed.set()
        keyring.core._keyring_backend = before
