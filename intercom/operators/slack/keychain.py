"""The operating system's keychain, asked from a thread and under a deadline.

It may wait for its owner to type a password at a screen nobody sits at, and it can not be called off: the thread is
then left to itself, and does not keep the process. The library is loaded by the first question: it costs a tenth of a
second.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from intercom.model.errors import SlackError

SERVICE = "agent-intercom"

T = TypeVar("T")


def read(names: Iterable[str], *, patience: float) -> dict[str, str] | None:
    """What the keychain holds under these names; None where this machine has no keychain.

    Raises SlackError when it does not answer within `patience` seconds, or is locked.
    """

    def work() -> dict[str, str]:
        import keyring

        values = {name: keyring.get_password(SERVICE, name) for name in names}
        return {name: value for name, value in values.items() if value}

    return _ask(work, patience)


def write(values: Mapping[str, str], *, patience: float) -> str | None:
    """Keep these values, and see that they are kept. Returns what the keychain calls itself; None where this machine
    has none. An empty value is forgotten.

    Raises SlackError when it does not answer within `patience` seconds, is locked, or keeps nothing.
    """

    def work() -> str:
        import keyring

        for name, value in values.items():
            if value:
                keyring.set_password(SERVICE, name, value)
                # The null backend takes everything and keeps nothing.
                if keyring.get_password(SERVICE, name) != value:
                    raise SlackError(
                        "the keychain did not keep what it was given: see `python -m keyring --list-backends`"
                    )
            else:
                _forget(name)
        return str(keyring.get_keyring().name)

    return _ask(work, patience)


def forget(names: Iterable[str], *, patience: float) -> tuple[str, ...] | None:
    """Delete these names. Returns those that were there; None where this machine has no keychain.

    Raises SlackError when the keychain does not answer within `patience` seconds, or is locked.
    """

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
        raise SlackError(
            f"the keychain did not answer within {patience:g} s: unlock it (it may be asking for its password on the"
            " machine's own screen), or use agent-intercom slack login --file"
        ) from None
    if not isinstance(answer, BaseException):
        return answer
    _failed(answer)
    return None


def _failed(error: BaseException) -> None:
    """None when there is no keychain at all; raises what people should read otherwise."""
    from keyring.errors import KeyringLocked, NoKeyringError

    if isinstance(error, NoKeyringError):
        return
    if isinstance(error, SlackError):
        raise error
    if isinstance(error, KeyringLocked):
        raise SlackError("the keychain is locked: unlock it, or use agent-intercom slack login --file")
    # Each backend has errors of its own, those of D-Bus among them; none may keep the server from starting.
    raise SlackError(f"the keychain can not be used ({type(error).__name__}: {error})")
