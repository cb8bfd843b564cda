"""Evidence records: results of calls in one form, for findings and rooms. And the cache of results.

A record says where its data came from (downstream, tool, call), and whether secrets were removed from it. Its data is
always the redacted result. `EvidenceRecords` keeps the records in the store: one for a call, of the tools that the
downstream's file names. A record is on disk before the agent hears of it. `Cache` holds results of read-only calls, to
give them again without asking the downstream.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final
from uuid import uuid4

import trio
from attrs import frozen

from intercom.gateway.call_journal import Invocation
from intercom.model import clock
from intercom.model.errors import Ambiguous, InvalidState, NotFound
from intercom.model.json_types import Json, JsonObject
from intercom.store import gateway as stored
from intercom.store.gateway import ListedEvidence, StoredEvidence
from intercom.store.store_and_reader import STORE_FAULTS, Reader, Store
from intercom.store.writer_messages import Database

log = logging.getLogger("intercom.gateway")

#: Where all evidence of the gateway comes from, and what it is if nobody says more.
SOURCE: Final = "mcp"
TYPE: Final = "tool_result"
#: How much the cache holds, and how much of it one result may take, in bytes of JSON.
CACHE_BYTES: Final = 16 * 1024 * 1024
LARGEST_BYTES: Final = CACHE_BYTES // 8
#: How much data one record may have, in bytes of JSON, and how many records a session may keep.
LARGEST_DATA: Final = 256 * 1024
MOST_RECORDS: Final = 1_000
#: How long an agent waits for the database to keep a record (seconds). It has its result after that, without evidence.
KEEP_SECONDS: Final = 10.0


@frozen
class Evidence:
    """What a call has found.

    `tool` is the downstream and `method` its tool. `data` is the redacted result; `redacted` says that secrets were
    removed from it. `cache_key` names equal calls. `confidence` is between 0 and 1. `cached_from` is the id of the
    earlier call that the downstream answered, if this one was answered from the cache.
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
    cached_from: str | None = None

    def __attrs_post_init__(self) -> None:
        if not self.tool or not self.method:
            raise ValueError("evidence of a call names its downstream and its tool")
        if not 0 <= self.confidence <= 1:
            raise ValueError("confidence is between 0 and 1")

    @property
    def metadata(self) -> JsonObject:
        """The spec's metadata: whether the data was redacted, the cache key, and where a cached result came from."""
        cached: JsonObject = {} if self.cached_from is None else {"cached_from": self.cached_from}
        return {"redacted": self.redacted, "cache_key": self.cache_key, **cached}


def normalize(
    invocation: Invocation,
    data: Json,
    *,
    redacted: bool,
    description: str = "",
    confidence: float = 1.0,
    tags: tuple[str, ...] = (),
    cached_from: str | None = None,
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
        cached_from=cached_from,
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
        cached_from = said.get("cached_from")
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
            None if cached_from is None else str(cached_from),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the metadata of evidence {kept.id} is incomplete") from error


# --- in the store ----------------------------------------------------------------------------------------------------


class NotStored(Exception):
    """A result is not kept as evidence. `reason` is a clause for the agent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@frozen
class EvidenceRecords:
    """The evidence of this server. Who may read it is decided by those that call this: `of_session` is for agents, all
    else is for people."""

    store: Store
    reader: Reader

    async def keep(self, evidence: Evidence) -> None:
        """Write a record, which is on disk then. Raises NotStored if it is too large, if its session has too many, or
        if the database cannot be written now; then it is not kept, or nobody knows its id."""
        size = await trio.to_thread.run_sync(_size, evidence.data)
        if size > LARGEST_DATA:
            raise NotStored(f"the result has {size} bytes, and at most {LARGEST_DATA} are kept: ask for less at once")
        try:
            has_room = await self.store.transact(partial(_keep, kept=to_stored(evidence)), timeout=KEEP_SECONDS)
        except STORE_FAULTS as fault:
            log.warning("evidence of the call %s is not kept: %s", evidence.invocation_id, fault)
            raise NotStored("the database cannot be written now") from None
        if not has_room:
            raise NotStored(f"this session has kept {MOST_RECORDS} results, and may keep no more")

    async def of_session(self, ids: Collection[str], session_id: str) -> Mapping[str, JsonObject]:
        """Return the exports of those of these ids whose calls this session made, by id. Others are left out, like ids
        that do not exist. Raises DatabaseError."""
        found = await self.of_all(ids) if session_id else {}
        return {id: each for id, each in found.items() if each["run_id"] == session_id}

    async def of_all(self, ids: Collection[str]) -> Mapping[str, JsonObject]:
        """Return the exports of those of these ids that exist, by id. Raises DatabaseError."""
        found = await self.reader.read(partial(stored.evidence.among, ids=tuple(ids)))
        return dict(_exports(found))

    async def listed(
        self, limit: int, *, run_id: str = "", tool: str = "", method: str = ""
    ) -> tuple[ListedEvidence, ...]:
        """Return the newest records without their data, newest first: of runs whose id begins with `run_id`, and of a
        downstream and its tool, if these are given. Raises DatabaseError."""
        return await self.reader.read(
            partial(stored.evidence.newest, limit=limit, run_id=run_id, tool=tool, method=method)
        )

    async def exported(self, prefixes: Sequence[str]) -> tuple[JsonObject, ...]:
        """Return the exports of the records whose ids begin so, in this order. Raises NotFound, Ambiguous, InvalidState
        for a record that another program has changed, and DatabaseError."""

        def read(db: Database) -> tuple[StoredEvidence, ...]:
            return tuple(_only(db, prefix) for prefix in prefixes)

        found = await self.reader.read(read)
        try:
            return tuple(export(from_stored(each)) for each in found)
        except ValueError as fault:
            raise InvalidState(f"{fault}: another program has changed it") from None


def _size(data: Json) -> int:
    """Return the bytes of data as JSON. Raises NotStored for data that is no JSON."""
    try:
        return len(json.dumps(data, separators=(",", ":"), allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise NotStored("the result is no JSON") from None


def _keep(db: Database, kept: StoredEvidence) -> bool:
    """Insert a record once. Returns False if its run has too many."""
    if stored.evidence.get(db, kept.id) is not None:
        return True
    return stored.evidence.count_of_run(db, kept.run_id) < MOST_RECORDS and stored.evidence.insert(db, kept)


def _exports(found: Iterable[StoredEvidence]) -> Iterable[tuple[str, JsonObject]]:
    for each in found:
        try:
            yield each.id, export(from_stored(each))
        except ValueError as fault:
            log.warning("%s", fault)


def _only(db: Database, prefix: str) -> StoredEvidence:
    """Return the only record whose id begins with `prefix`."""
    ids = stored.evidence.with_prefix(db, prefix)
    found = stored.evidence.get(db, prefix if prefix in ids else ids[0]) if ids else None
    if found is None:
        raise NotFound(f"no evidence has an id that begins with {prefix[:80]!r}; see gateway evidence")
    if len(ids) > 1 and prefix not in ids:
        raise Ambiguous(f"{prefix[:80]!r} fits {len(ids)} records ({', '.join(ids[:5])}); give more of the id")
    return found


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

    The configuration says which tools only read; a downstream's own word does not count. All results of a downstream
    are old when a call that may change something begins and when it ends, when the downstream announces a change, has a
    new connection, or is configured or signed in otherwise: call `forget`. A result that was asked for before that must
    not be held after it: compare `generation`. Do not share a cache between agents that may see
    different things, such as those with their own sign-in: append their name to the key.

    At most `most` bytes of JSON are held, and at most `largest` of one result; the least recently used goes first.
    `now` is in seconds on any clock that does not go back.
    """

    def __init__(self, most: int = CACHE_BYTES, largest: int = LARGEST_BYTES) -> None:
        self._most = most
        self._largest = largest
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._generations: dict[str, int] = {}
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

    def generation(self, tool: str) -> int:
        """Return a number that is another one after each `forget` of this downstream."""
        return self._generations.get(tool, 0)

    def forget(self, tool: str) -> None:
        """Remove all results of a downstream."""
        self._generations[tool] = self.generation(tool) + 1
        for key in [key for key in self._entries if key.startswith(f"{tool}:")]:
            self._remove(key)

    @property
    def counts(self) -> Counts:
        return Counts(self._hits, self._misses, len(self._entries), self._size)

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= len(entry.text) + len(key)
