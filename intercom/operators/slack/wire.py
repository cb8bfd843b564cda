"""Rows in the form of Slack's method arguments."""

from __future__ import annotations

from typing import Any, Protocol

from intercom.model.outbox import Content, Row

EVENT_TYPE = "intercom_message"


class Web(Protocol):
    """The part of the Web API that the sender uses; `web.WebApi` documents the errors."""

    async def call(self, method: str, *, app: bool = ..., timeout: float = ..., **params: Any) -> dict[str, Any]: ...

    async def upload(self, url: str, data: bytes, filename: str, /) -> None: ...


def message(row: Row, content: Content, *, plain: bool = False) -> dict[str, Any]:
    """Return the arguments for a message that shows `content`; with `plain`, without its blocks. The metadata
    identifies the row and its version, so the message can be found again."""
    return {
        "channel": row.channel,
        "text": str(content.get("text", "")),
        "blocks": [] if plain else list(content.get("blocks") or ()),
        "metadata": {"event_type": EVENT_TYPE, "event_payload": {"client_id": row.client_id, "version": row.version}},
        "unfurl_links": False,
        "unfurl_media": False,
    }
