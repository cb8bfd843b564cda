"""Is this Block Kit what Slack takes? Pure: a list of blocks or a view in, Slack's complaints out.

A complaint reads as Slack's do: `must be less than 3001 characters [json-pointer:/blocks/0/text/text]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from tests.slack import limits
from tests.slack.elements import ACTION_ELEMENTS, INPUT_ELEMENTS, SECTION_ACCESSORIES, element
from tests.slack.pieces import Complaints, allowed, array, text_object, wanted_string
from tests.slack.rich import rich_text

MESSAGE, MODAL = "message", "modal"


def faults_of_message(blocks: Any) -> list[str]:
    """What Slack would complain of in the blocks of a message; empty when it takes them."""
    return _faults(blocks, "/blocks", limits.BLOCKS_IN_MESSAGE, MESSAGE)


def weight(blocks: list[Any]) -> int:
    """How much the blocks of a message hold together, as `limits.BLOCKS_TOGETHER` counts it."""
    return sum(_text_in(block) + limits.WEIGHT_OF_BLOCK for block in blocks)


def faults_of_view(view: Any) -> list[str]:
    """What Slack would complain of in a modal; empty when it takes it."""
    if not isinstance(view, dict):
        return ["must be an object [json-pointer:/view]"]
    found: Complaints = []
    if view.get("type") != "modal":
        found.append(f"unsupported type: {view.get('type')} [json-pointer:/view/type]")
    known = "type title blocks close submit private_metadata callback_id clear_on_close notify_on_close external_id"
    allowed(view, {*known.split(), "submit_disabled"}, "/view", found)
    text_object(view.get("title"), "/view/title", limits.MODAL_TITLE, found, plain=True)
    for button in ("submit", "close"):
        if button in view:
            text_object(view[button], f"/view/{button}", limits.MODAL_BUTTON, found, plain=True)
    wanted_string(view, "private_metadata", "/view", limits.PRIVATE_METADATA, found, optional=True, empty=True)
    wanted_string(view, "callback_id", "/view", limits.CALLBACK_ID, found, optional=True, empty=True)
    wanted_string(view, "external_id", "/view", limits.EXTERNAL_ID, found, optional=True, empty=True)
    found += _faults(view.get("blocks"), "/view/blocks", limits.BLOCKS_IN_MODAL, MODAL)
    blocks = view.get("blocks")
    inputs = isinstance(blocks, list) and any(isinstance(one, dict) and one.get("type") == "input" for one in blocks)
    if inputs and "submit" not in view:
        found.append("missing required field: submit [json-pointer:/view]")
    if len(json.dumps(view, ensure_ascii=False).encode()) > limits.VIEW_BYTES:
        found.append("view_too_large [json-pointer:/view]")
    return found


def _faults(blocks: Any, at: str, most: int, surface: str) -> list[str]:
    found: Complaints = []
    if not array(blocks, at, 0 if surface == MESSAGE else 1, most, found):
        return found
    for index, block in enumerate(blocks):
        _block(block, f"{at}/{index}", surface, found)
    ids = [block["block_id"] for block in blocks if isinstance(block, dict) and isinstance(block.get("block_id"), str)]
    found += [f"`block_id` already exists: {twice} [json-pointer:{at}]" for twice in _twice(filter(None, ids))]
    markdown = sum(_text_in(one) for one in blocks if isinstance(one, dict) and one.get("type") == "markdown")
    if markdown > limits.MARKDOWN_TEXT:
        found.append(f"must be less than {limits.MARKDOWN_TEXT + 1} characters [json-pointer:{at}]")
    return found


def _block(block: Any, at: str, surface: str, found: Complaints) -> None:
    if not isinstance(block, dict):
        found.append(f"must be an object [json-pointer:{at}]")
        return
    check = BLOCKS[surface].get(str(block.get("type")))
    if check is None:
        found.append(f"unsupported type: {block.get('type')} [json-pointer:{at}/type]")
        return
    wanted_string(block, "block_id", at, limits.BLOCK_ID, found, optional=True, empty=True)
    check(block, at, found)


def _section(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "text", "fields", "accessory", "expand"}, at, found)
    if "text" not in block and "fields" not in block:
        found.append(f"must define either `fields` or `text` [json-pointer:{at}]")
    if "text" in block:
        text_object(block["text"], f"{at}/text", limits.SECTION_TEXT, found)
    if "fields" in block and array(block["fields"], f"{at}/fields", 1, limits.SECTION_FIELDS, found):
        for index, field in enumerate(block["fields"]):
            text_object(field, f"{at}/fields/{index}", limits.SECTION_FIELD_TEXT, found)
    if "accessory" in block:
        element(block["accessory"], f"{at}/accessory", SECTION_ACCESSORIES, found)


def _header(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "text", "level"}, at, found)
    text_object(block.get("text"), f"{at}/text", limits.HEADER_TEXT, found, plain=True)


def _context(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "elements"}, at, found)
    if array(block.get("elements"), f"{at}/elements", 1, limits.CONTEXT_ELEMENTS, found):
        for index, one in enumerate(block["elements"]):
            here = f"{at}/elements/{index}"
            if isinstance(one, dict) and one.get("type") == "image":
                element(one, here, frozenset({"image"}), found)
            else:
                text_object(one, here, limits.TEXT_OBJECT, found)


def _actions(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "elements"}, at, found)
    if array(block.get("elements"), f"{at}/elements", 1, limits.ACTIONS_ELEMENTS, found):
        for index, one in enumerate(block["elements"]):
            element(one, f"{at}/elements/{index}", ACTION_ELEMENTS, found)
        ids = [str(one["action_id"]) for one in block["elements"] if isinstance(one, dict) and one.get("action_id")]
        for twice in _twice(ids):
            found.append(f"`action_id` already exists: {twice} [json-pointer:{at}/elements]")


def _divider(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id"}, at, found)


def _image(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "image_url", "slack_file", "alt_text", "title"}, at, found)
    wanted_string(block, "alt_text", at, limits.IMAGE_ALT_TEXT, found)
    if "slack_file" not in block:
        wanted_string(block, "image_url", at, limits.IMAGE_URL, found)
    if "title" in block:
        text_object(block["title"], f"{at}/title", limits.IMAGE_TITLE, found, plain=True)


def _markdown(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "text"}, at, found)
    wanted_string(block, "text", at, limits.MARKDOWN_TEXT, found)


def _input(block: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(block, {"type", "block_id", "label", "element", "dispatch_action", "hint", "optional"}, at, found)
    text_object(block.get("label"), f"{at}/label", limits.INPUT_LABEL, found, plain=True)
    if "hint" in block:
        text_object(block["hint"], f"{at}/hint", limits.INPUT_HINT, found, plain=True)
    element(block.get("element"), f"{at}/element", INPUT_ELEMENTS, found)


Check = Callable[[dict[str, Any], str, Complaints], None]
_ANYWHERE: dict[str, Check] = {
    "section": _section,
    "header": _header,
    "context": _context,
    "actions": _actions,
    "divider": _divider,
    "image": _image,
    "input": _input,
    "rich_text": rich_text,
}
BLOCKS: dict[str, dict[str, Check]] = {MESSAGE: {**_ANYWHERE, "markdown": _markdown}, MODAL: _ANYWHERE}


def _twice(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _text_in(part: Any) -> int:
    if isinstance(part, dict):
        return sum(
            len(value) if key == "text" and isinstance(value, str) else _text_in(value) for key, value in part.items()
        )
    return sum(_text_in(one) for one in part) if isinstance(part, list) else 0
