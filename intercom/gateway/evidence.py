"""Evidence: results of calls as normalised records, for findings, rooms and the cache.

A record says where its data came from (downstream, tool, call), and whether secrets were removed from it. Its data is
always the redacted result. `Cache` holds redacted results of read-only calls, to give them again without asking
the downstream.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import datetime
from typing import Final
from uuid import uuid4

from attrs import frozen

from intercom.gateway.journal import Invocation
from intercom.masking import Masker
from intercom.model import clock
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import Json, JsonObject
from intercom.store.gateway import StoredEvidence

#: Where all evidence of the gateway comes from, and what it is if nobody says more.
SOURCE: Final = "mcp"
TYPE: Final = "tool_result"
#: How much the cache holds, and how much of it one result may take, in bytes of JSON.
CACHE_BYTES: Final = 16 * 1024 * 1024
LARGEST_BYTES: Final = CACHE_BYTES // 8


@frozen
class Evidence:
    """What a call has found.

    `tool` is the downstream and `method` its tool. `data` is the redacted result; `redacted` says that secrets were
    removed from it. `cache_key` names equal calls. `confidence` is between 0 and 1.
    """

    id: str
    run_id: str
    invocation_id: str
    tool: str
    method: str
    at: datetime
    data: Json
    redacted: bool
    cache_key: str
    type: str = TYPE
    description: str = ""
    confidence: float = 1.0
    tags: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if not self.tool or not self.method:
            raise ValueError("evidence of a call names its downstream and its tool")
        if not 0 <= self.confidence <= 1:
            raise ValueError("confidence is between 0 and 1")

    @property
    def metadata(self) -> JsonObject:
        """The spec's metadata: whether the data was redacted, and the cache key."""
        return {"redacted": self.redacted, "cache_key": self.cache_key}


def redact(result: Json, masker: Masker | None = None) -> tuple[Json, bool]:
    """Return a result without its secrets, and whether there were any.

    100 KB take about 40 ms: redact large results in a thread. Raises InvalidArguments if it is nested too deeply.
    """
    try:
        found: Json = (masker or Masker()).mask_all(result)
        return found, found != result
    except RecursionError:
        raise InvalidArguments("the result is nested too deeply to search it for secrets") from None


def normalize(
    invocation: Invocation,
    data: Json,
    *,
    redacted: bool,
    description: str = "",
    confidence: float = 1.0,
    tags: tuple[str, ...] = (),
) -> Evidence:
    """Return the evidence of a call whose redacted result is `data`. Raises ValueError if its names are empty."""
    return Evidence(
        str(uuid4()),
        invocation.run_id,
        invocation.id,
        invocation.tool,
        invocation.method,
        invocation.at,
        data,
        redacted,
        cache_key(invocation.tool, invocation.method, invocation.args_hmac),
        description=description,
        confidence=confidence,
        tags=tags,
    )


def cache_key(tool: str, method: str, args_hmac: str) -> str:
    """Return the name of all calls of a tool with these arguments."""
    return f"{tool}:{method}:{args_hmac}"


def export(evidence: Evidence) -> JsonObject:
    """Return the evidence as a `Finding` refers to it: a JSON object with the spec's fields."""
    return {
        "id": evidence.id,
        "type": evidence.type,
        "description": evidence.description,
        "timestamp": clock.to_text(evidence.at),
        "source_type": SOURCE,
        "mcp_tool_name": evidence.tool,
        "mcp_method": evidence.method,
        "mcp_invocation_id": evidence.invocation_id,
        "run_id": evidence.run_id,
        "data": evidence.data,
        "metadata": evidence.metadata,
        "confidence": evidence.confidence,
        "tags": list(evidence.tags),
    }


def to_stored(evidence: Evidence) -> StoredEvidence:
    """Return the row of evidence that somebody keeps."""
    others = {name: getattr(evidence, name) for name in ("type", "description", "confidence")}
    return StoredEvidence(
        evidence.id,
        evidence.run_id,
        evidence.invocation_id,
        evidence.tool,
        evidence.method,
        evidence.at,
        evidence.data,
        {**evidence.metadata, **others, "tags": list(evidence.tags)},
    )


def from_stored(kept: StoredEvidence) -> Evidence:
    """Return the evidence in a row. Raises ValueError if another program has changed the row to something else."""
    said = kept.metadata
    try:
        return Evidence(
            kept.id,
            kept.run_id,
            kept.invocation_id,
            kept.tool,
            kept.method,
            kept.at,
            kept.data,
            bool(said["redacted"]),
            str(said["cache_key"]),
            str(said["type"]),
            str(said["description"]),
            float(said["confidence"]),
            tuple(map(str, said["tags"])),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the metadata of evidence {kept.id} is incomplete") from error


# --- the cache -------------------------------------------------------------------------------------------------------


@frozen
class _Entry:
    """A result as JSON text: so nobody can change what others get, and its size is known."""

    text: bytes
    expires: float


@frozen
class Counts:
    """How often the cache had what was looked for, how many results it holds, and their bytes."""

    hits: int = 0
    misses: int = 0
    entries: int = 0
    size: int = 0


class Cache:
    """Results of read-only calls, in memory, each for a limited time, under their `cache_key`.

    The configuration says which tools only read; a downstream's own word does not count. A call that may change
    something makes all results of its downstream old: call `forget`. Do not share a cache between agents that may see
    different things, such as those with their own sign-in: append their name to the key.

    At most `most` bytes of JSON are held, and at most `largest` of one result; the least recently used goes first.
    `now` is in seconds on any clock that does not go back.
    """

    def __init__(self, most: int = CACHE_BYTES, largest: int = LARGEST_BYTES) -> None:
        self._most = most
        self._largest = largest
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._size = 0
        self._hits = 0
        self._misses = 0

    def get(self, key: str, now: float) -> JsonObject | None:
        """Return a copy of the result under this key, or None."""
        entry = self._entries.get(key)
        if entry is None or entry.expires <= now:
            self._remove(key)
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        found: JsonObject = json.loads(entry.text)
        return found

    def put(self, key: str, result: JsonObject, now: float, seconds: float) -> bool:
        """Hold a redacted result for so many seconds, in place of an earlier one. Returns False if it is too large or
        not JSON: it is not held then, and neither is the earlier one."""
        self._remove(key)
        try:
            text = json.dumps(result, separators=(",", ":")).encode("ascii")
        except (TypeError, ValueError, RecursionError):
            return False
        size = len(text) + len(key)
        if size > min(self._largest, self._most) or seconds <= 0:
            return False
        self._entries[key] = _Entry(text, now + seconds)
        self._size += size
        while self._size > self._most:
            self._remove(next(iter(self._entries)))
        return True

    def forget(self, tool: str) -> None:
        """Remove all results of a downstream."""
        for key in [key for key in self._entries if key.startswith(f"{tool}:")]:
            self._remove(key)

    @property
    def counts(self) -> Counts:
        return Counts(self._hits, self._misses, len(self._entries), self._size)

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= len(entry.text) + len(key)
