"""What a downstream offers: its tools, resources and prompts, read from all pages of its lists."""

from __future__ import annotations

import json
import logging
from typing import Final

from attrs import define, frozen

from intercom.gateway.breaker import Failure
from intercom.gateway.connection import Connection
from intercom.gateway.messages import CallFailed, RpcError
from intercom.model.json_types import Json, JsonObject

log = logging.getLogger("intercom.gateway")

#: The most pages of one list, and the most items.
MOST_PAGES: Final = 100
MOST_ITEMS: Final = 2000
#: The longest text of all lists of one downstream as JSON, in characters. All of it is compared at each change.
MOST_CHARACTERS: Final = 4_000_000


@frozen
class DownstreamLists:
    """What a downstream listed: everything that agents may see."""

    tools: tuple[JsonObject, ...] = ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()


async def read_lists(connection: Connection) -> DownstreamLists:
    """Read all lists that the downstream has. A list of resources or prompts that it refuses counts as empty.

    Raises RpcError and CallFailed, the latter also if the lists are too long. There is no time limit.
    """
    has = connection.capabilities
    room = _Room()
    tools = await _pages(connection, "tools/list", "tools", room) if "tools" in has else ()
    resources: tuple[JsonObject, ...] = ()
    templates: tuple[JsonObject, ...] = ()
    prompts: tuple[JsonObject, ...] = ()
    if "resources" in has:
        resources = await _optional(connection, "resources/list", "resources", room)
        templates = await _optional(connection, "resources/templates/list", "resourceTemplates", room)
    if "prompts" in has:
        prompts = await _optional(connection, "prompts/list", "prompts", room)
    return DownstreamLists(tools, resources, templates, prompts)


@define
class _Room:
    """How many more characters the lists may have."""

    characters: int = MOST_CHARACTERS

    def use(self, items: list[JsonObject]) -> None:
        try:
            self.characters -= sum(len(json.dumps(each, ensure_ascii=False)) for each in items)
        except RecursionError:
            raise CallFailed(Failure.PROTOCOL, "its lists are nested too deeply") from None
        if self.characters < 0:
            raise CallFailed(
                Failure.PROTOCOL, f"its lists have more than {MOST_CHARACTERS // 1_000_000} million characters"
            )


async def _optional(connection: Connection, method: str, key: str, room: _Room) -> tuple[JsonObject, ...]:
    try:
        return await _pages(connection, method, key, room)
    except RpcError:
        return ()


async def _pages(connection: Connection, method: str, key: str, room: _Room) -> tuple[JsonObject, ...]:
    found: list[JsonObject] = []
    cursor: Json = None
    for _ in range(MOST_PAGES):
        params: JsonObject = {} if cursor is None else {"cursor": cursor}
        page = await connection.request(method, params, call=f"{method} {len(found)}")
        items = page.get(key)
        usable = [each for each in (items if isinstance(items, list) else []) if isinstance(each, dict)]
        room.use(usable)
        found += [each for each in usable if key != "tools" or _is_tool(each)]
        cursor = page.get("nextCursor")
        if cursor is None or not isinstance(cursor, str) or len(found) >= MOST_ITEMS:
            break
    return tuple(found[:MOST_ITEMS])


def _is_tool(item: JsonObject) -> bool:
    """Whether a tool has the form that clients require. Many refuse a whole list because of one that has not."""
    is_tool = (
        isinstance(item.get("name"), str)
        and isinstance(item.get("inputSchema"), dict)
        and all(isinstance(item.get(key), str | None) for key in ("title", "description"))
        and all(isinstance(item.get(key), dict | None) for key in ("outputSchema", "annotations"))
    )
    if not is_tool:
        log.warning("a downstream lists a tool that is none, which is left out")
    return is_tool
