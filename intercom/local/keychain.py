"""The user's keychain: reads, stores and deletes Intercom's secrets in it.

It may wait for a password at a screen without a user, and the call cannot be cancelled. After the deadline the daemon
thread is abandoned. The library is imported lazily, because the import takes a tenth of a second.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from intercom.model.errors import IntercomError

#: The name of Intercom's secrets in the keychain.
SERVICE: Final = "agent-intercom"

T = TypeVar("T")


class KeychainError(IntercomError):
    """The keychain cannot be used: it does not answer, is locked, or stores nothing."""

    code = "config"


def read(names: Iterable[str], *, patience: float) -> dict[str, str] | None:
    """Return the values of these names in the keychain; None if this machine has no keychain. Raises KeychainError if
    it does not answer within `patience` seconds, or is locked."""

    def work() -> dict[str, str]:
        import keyring

        values = {name: keyring.get_password(SERVICE, name) for name in names}
        return {name: value for name, value in values.items() if value}

    return _ask(work, patience)


def write(values: Mapping[str, str], *, patience: float) -> str | None:
    """Store these values and verify that they are stored; an empty value is deleted.

    Returns the keychain's own name; None if this machine has none. Raises KeychainError if it does not answer within
    `patience` seconds, is locked, or stores nothing.
    """

    def work() -> str:
        import keyring

        for name, value in values.items():
            if value:
                keyring.set_password(SERVICE, name, value)
                # The null backend accepts everything and stores nothing.
                if keyring.get_password(SERVICE, name) != value:
                    raise KeychainError(
                        "the keychain did not store the secret: see `python -m keyring --list-backends`"
                    )
            else:
                _forget(name)
        return str(keyring.get_keyring().name)

    return _ask(work, patience)


def forget(names: Iterable[str], *, patience: float) -> tuple[str, ...] | None:
    """Delete these names. Returns the ones that existed; None if this machine has no keychain. Raises KeychainError if
    the keychain does not answer within `patience` seconds, or is locked."""

    def work() -> tuple[str, ...]:
        return tuple(name for name in names if _forget(name))

    return _ask(work, patience)


def _forget(name: str) -> bool:
    import keyring

    if keyring.get_password(SERVICE, name) is None:
        return False
    keyring.delete_password(SERVICE, name)
    return True


def _ask(work: Callable[[], T], patience: float) -> T | None:
    outcome: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put(work())
        except BaseException as error:
            outcome.put(error)

    threading.Thread(target=run, name="keychain", daemon=True).start()
    try:
        answer = outcome.get(timeout=patience)
    except queue.Empty:
        raise KeychainError(
            f"the keychain did not answer within {patience:g} s: unlock it (it may be asking for its password on the"
            " machine's own screen)"
        ) from None
    if not isinstance(answer, BaseException):
        return answer
    _failed(answer)
    return None


def _failed(error: BaseException) -> None:
    """Return if there is no keychain at all; otherwise raise an error for people."""
    from keyring.errors import KeyringLocked, NoKeyringError

    if isinstance(error, NoKeyringError):
        return
    if isinstance(error, KeychainError):
        raise error
    if isinstance(error, KeyringLocked):
        raise KeychainError("the keychain is locked: unlock it")
    # Each backend has its own errors, D-Bus errors for example; none may keep the server from starting.
    raise KeychainError(f"the keychain cannot be used ({type(error).__name__}: {error})")
