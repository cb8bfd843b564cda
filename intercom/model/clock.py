"""Instants: aware datetimes in UTC, written as ISO 8601 with microseconds so that text sorts as time does."""

from __future__ import annotations

from datetime import UTC, datetime


def to_text(at: datetime) -> str:
    """Write an aware instant as fixed-width ISO 8601 in UTC."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def from_text(text: str) -> datetime:
    """Read what `to_text` wrote; raises ValueError for anything that is no aware ISO 8601 instant."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"instant without a time zone: {text}")
    return at.astimezone(UTC)
