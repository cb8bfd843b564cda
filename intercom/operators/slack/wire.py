"""Rows as Slack's methods take them."""

from __future__ import annotations

from typing import Any, Protocol

from intercom.model.outbox import Content, Row

EVENT_TYPE = "intercom_message"


class Web(Protocol):
    """What the sender uses of the Web API; see `web.WebApi` for what each raises."""

    async def call(self, method: str, *, app: bool = ..., timeout: float = ..., **params: Any) -> dict[str, Any]: ...

    async def upload(self, url: str, data: bytes, filename: str, /) -> None: ...


def message(row: Row, content: Content, *, plain: bool = False) -> dict[str, Any]:
    """The arguments with which a message shows `content`; `plain` without its blocks.

    The metadata says which row this is, and which version of it, so that a message can be found again.
    """
    return {
        "channel": row.channel,
        "text": str(content.get("text", "")),
        "blocks": [] if plain else list(content.get("blocks") or ()),
        "metadata": {"event_type": EVENT_TYPE, "event_payload": {"client_id": row.client_id, "version": row.version}},
        "unfurl_links": False,
        "unfurl_media": False,
    }
