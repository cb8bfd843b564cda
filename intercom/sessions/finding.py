"""Finds objects by the prefix of an id, as people give it."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from intercom.model.errors import Ambiguous, NotFound
from intercom.store import sessions
from intercom.store.reader import Reader

T = TypeVar("T")


async def session_id(reader: Reader, prefix: str) -> str:
    """Return the whole id of the only session whose id is or begins with `prefix`. Raises NotFound and Ambiguous."""
    found = await reader.read(partial(sessions.with_prefix, prefix=prefix))
    return only([prefix] if prefix in found else list(found), prefix, "session")


def only(found: list[T], prefix: str, what: str) -> T:
    """Return the only element of `found`. Raises NotFound and Ambiguous, whose messages name `what`."""
    if not found:
        code = "request_not_found" if what == "request" else None
        raise NotFound(f"no {what} has an id that begins with {prefix!r}; see what there is", code=code)
    if len(found) > 1:
        shown = ", ".join(str(entry[1] if isinstance(entry, tuple) else entry) for entry in found[:5])
        raise Ambiguous(f"{prefix!r} fits {len(found)} {what}s ({shown}); give more of the id")
    return found[0]


def single(ids: list[str], what: str) -> str:
    """Return the only id. Raises NotFound and Ambiguous."""
    if not ids:
        raise NotFound(f"there is no {what}")
    if len(ids) > 1:
        raise Ambiguous(f"there are {len(ids)} {what}s ({', '.join(ids[:8])}); name one with --session")
    return ids[0]
