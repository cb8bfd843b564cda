"""The entries of the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import frozen


@frozen
class AuditEntry:
    """An entry of the log.

    `id` rises by one with each entry. `kind` is a past participle ("approved", "refused", ...). `who` names a person,
    an agent or a part of the server. `hash` covers everything else, including `previous`, the hash of the entry before.
    """

    id: int
    at: datetime
    kind: str
    session_id: str | None
    who: str
    summary: str
    data: Mapping[str, Any] | None = None
    previous: str = ""
    hash: str = ""


@frozen
class LogEntry(AuditEntry):
    """An entry as people read it. `title` is that of the request that it is about, which the log itself has once."""

    title: str | None = None
