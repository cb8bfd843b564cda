"""Rich text blocks: a tree of sections, lists, quotes and preformatted text."""

from __future__ import annotations

from typing import Any

from tests.slack import limits
from tests.slack.pieces import Complaints, allowed, array, wanted_string

_LEAVES = {
    "text": "text",
    "link": "url",
    "emoji": "name",
    "user": "user_id",
    "channel": "channel_id",
    "usergroup": "usergroup_id",
    "broadcast": "range",
    "date": "format",
    "color": "value",
}
_TREES = ("rich_text_section", "rich_text_preformatted", "rich_text_quote")


def rich_text(block: dict[str, Any], at: str, found: Complaints) -> None:
    """Complain unless this is a sound `rich_text` block."""
    allowed(block, {"type", "block_id", "elements"}, at, found)
    if array(block.get("elements"), f"{at}/elements", 0, limits.BLOCKS_IN_MESSAGE * 10, found):
        for index, one in enumerate(block["elements"]):
            _tree(one, f"{at}/elements/{index}", found)


def _tree(value: Any, at: str, found: Complaints) -> None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in (*_TREES, "rich_text_list"):
        found.append(f"unsupported type: {kind} [json-pointer:{at}/type]")
        return
    if kind == "rich_text_list" and value.get("style") not in ("bullet", "ordered"):
        found.append(f"must be a valid enum value: bullet, ordered [json-pointer:{at}/style]")
    allowed(value, {"type", "elements", "style", "indent", "border", "offset", "language"}, at, found)
    if array(value.get("elements"), f"{at}/elements", 0, limits.TEXT_OBJECT, found):
        for index, one in enumerate(value["elements"]):
            (_tree if kind == "rich_text_list" else _leaf)(one, f"{at}/elements/{index}", found)


def _leaf(value: Any, at: str, found: Complaints) -> None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in _LEAVES:
        found.append(f"unsupported type: {kind} [json-pointer:{at}/type]")
    else:
        wanted_string(value, _LEAVES[kind], at, limits.TEXT_OF_POST, found)
