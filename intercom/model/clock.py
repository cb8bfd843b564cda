"""Instants: aware datetimes in UTC. Their text is ISO 8601 with microseconds, so text order is time order."""

from __future__ import annotations

from datetime import UTC, datetime


def to_text(at: datetime) -> str:
    """Write an aware instant as fixed-width ISO 8601 in UTC."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def from_text(text: str) -> datetime:
    """Read what `to_text` wrote. Raises ValueError for anything else than an aware ISO 8601 instant."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"instant without a time zone: {text}")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"instant out of range: {text}") from None
