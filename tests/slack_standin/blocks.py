"""Is this Block Kit what Slack takes? Pure: a list of blocks or a view in, Slack's complaints out.

Only what the app uses is known; anything else is an unsupported type. The numbers are those of Slack's reference, and
nothing is imported from the program under test, so a wrong number there is caught here. Lengths are in characters (code
points), as Slack counts what it was sent: an entity such as `&amp;` counts as the five characters it is. A complaint
reads as Slack's do: `must be less than 3001 characters [json-pointer:/blocks/0/text/text]`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.slack_standin import limits

Complaints = list[str]
#: Complains of a value; the second argument is its place.
Check = Callable[[Any, str, Complaints], None]


def anything(value: Any, at: str, found: Complaints) -> None:
    pass


def string(most: int, *, empty: bool = False) -> Check:
    """A string of at most so many characters, and of one at least unless `empty`."""

    def check(value: Any, at: str, found: Complaints) -> None:
        if not isinstance(value, str):
            found.append(f"must be a string [json-pointer:{at}]")
        elif len(value) > most:
            found.append(f"must be less than {most + 1} characters [json-pointer:{at}]")
        elif not value and not empty:
            found.append(f"must be more than 0 characters [json-pointer:{at}]")
        elif any("\ud800" <= character <= "\udfff" for character in value):
            found.append(f"must be valid utf-8 [json-pointer:{at}]")

    return check


def word(*words: str) -> Check:
    def check(value: Any, at: str, found: Complaints) -> None:
        if value not in words:
            found.append(f"must be a valid enum value: {', '.join(words)} [json-pointer:{at}]")

    return check


def number(least: int, most: int) -> Check:
    def check(value: Any, at: str, found: Complaints) -> None:
        if not isinstance(value, int) or not least <= value <= most:
            found.append(f"must be between {least} and {most} [json-pointer:{at}]")

    return check


def array(item: Check, least: int, most: int) -> Check:
    def check(value: Any, at: str, found: Complaints) -> None:
        if not isinstance(value, list):
            found.append(f"must be an array [json-pointer:{at}]")
            return
        if len(value) < least:
            found.append(f"no fewer than {least} items allowed [json-pointer:{at}]")
        if len(value) > most:
            found.append(f"no more than {most} items allowed [json-pointer:{at}]")
        for index, each in enumerate(value):
            item(each, f"{at}/{index}", found)
        for name in ("block_id", "action_id"):
            ids = [each.get(name) for each in value if isinstance(each, dict)]
            for twice in _twice(id for id in ids if id and isinstance(id, str)):
                found.append(f"`{name}` already exists: {twice} [json-pointer:{at}]")

    return check


def shape(properties: Mapping[str, Check]) -> Check:
    """An object with these properties; a name that ends in "?" may be absent."""
    known = {name.removesuffix("?"): check for name, check in properties.items()}

    def check(value: Any, at: str, found: Complaints) -> None:
        if not isinstance(value, dict):
            found.append(f"must be an object [json-pointer:{at}]")
            return
        found += [f"invalid additional property: {name} [json-pointer:{at}]" for name in value if name not in known]
        absent = [name for name in properties if not name.endswith("?") and value.get(name) is None]
        found += [f"missing required field: {name} [json-pointer:{at}]" for name in absent]
        for name, inner in known.items():
            if name in value and name not in absent:
                inner(value[name], f"{at}/{name}", found)

    return check


def kinds(**known: Mapping[str, Check]) -> Check:
    """An object of one of these types."""
    shapes = {kind: shape({"type": anything, **properties}) for kind, properties in known.items()}

    def check(value: Any, at: str, found: Complaints) -> None:
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(value, dict):
            found.append(f"must be an object [json-pointer:{at}]")
        elif not isinstance(kind, str) or kind not in shapes:
            found.append(f"unsupported type: {kind} [json-pointer:{at}/type]")
        else:
            shapes[kind](value, at, found)

    return check


def plain(most: int) -> Check:
    return kinds(plain_text={"text": string(most), "emoji?": anything})


def text(most: int) -> Check:
    return kinds(
        plain_text={"text": string(most), "emoji?": anything}, mrkdwn={"text": string(most), "verbatim?": anything}
    )


_ACTION_ID = {"action_id?": string(255)}
_STYLE = word("primary", "danger")
_CONFIRM = shape({"title": plain(100), "text": text(300), "confirm": plain(30), "deny": plain(30), "style?": _STYLE})
_BUTTON = _ACTION_ID | {
    "text": plain(75),
    "value?": string(2_000, empty=True),
    "url?": string(3_000),
    "accessibility_label?": string(75),
    "style?": _STYLE,
    "confirm?": _CONFIRM,
}
_TEXT_INPUT = _ACTION_ID | {
    "initial_value?": string(3_000, empty=True),
    "multiline?": anything,
    "min_length?": number(0, 3_000),
    "max_length?": number(1, 3_000),
    "focus_on_load?": anything,
    "placeholder?": plain(150),
}
_OPTION = shape({"text": text(75), "value": string(150), "description?": text(75)})
_CHECKBOXES = _ACTION_ID | {
    "options": array(_OPTION, 1, 10),
    "initial_options?": array(_OPTION, 1, 10),
    "focus_on_load?": anything,
}
_BLOCK_ID = {"block_id?": string(255, empty=True)}
_BLOCK = kinds(
    section=_BLOCK_ID | {"text?": text(3_000), "fields?": array(text(2_000), 1, 10)},
    header=_BLOCK_ID | {"text": plain(150)},
    context=_BLOCK_ID | {"elements": array(text(3_000), 1, 10)},
    actions=_BLOCK_ID | {"elements": array(kinds(button=_BUTTON), 1, 25)},
    divider=_BLOCK_ID,
    input=_BLOCK_ID
    | {
        "label": plain(2_000),
        "hint?": plain(2_000),
        "optional?": anything,
        "element": kinds(plain_text_input=_TEXT_INPUT, checkboxes=_CHECKBOXES),
    },
)
_VIEW = kinds(
    modal={
        "title": plain(24),
        "submit?": plain(24),
        "close?": plain(24),
        "private_metadata?": string(3_000, empty=True),
        "callback_id?": string(255, empty=True),
        "external_id?": string(255, empty=True),
        "clear_on_close?": anything,
        "notify_on_close?": anything,
        "blocks": array(_BLOCK, 1, 100),
    }
)


def faults_of_message(blocks: Any) -> list[str]:
    """What Slack would complain of in the blocks of a message; empty when it takes them."""
    found: Complaints = []
    array(_BLOCK, 0, 50)(blocks, "/blocks", found)
    return found + _rules(blocks, "/blocks")


def weight(blocks: list[Any]) -> int:
    """How much the blocks of a message hold together, as `limits.BLOCKS_TOGETHER` counts it."""
    return sum(_text_in(block) + limits.WEIGHT_OF_BLOCK for block in blocks)


def faults_of_view(view: Any) -> list[str]:
    """What Slack would complain of in a modal; empty when it takes it."""
    found: Complaints = []
    _VIEW(view, "/view", found)
    if not isinstance(view, dict):
        return found
    found += _rules(view.get("blocks"), "/view/blocks")
    if "submit" not in view and any(block.get("type") == "input" for block in _dicts(view.get("blocks"))):
        found.append("missing required field: submit [json-pointer:/view]")
    if len(json.dumps(view, ensure_ascii=False).encode()) > limits.VIEW_BYTES:
        found.append("view_too_large [json-pointer:/view]")
    return found


def _rules(blocks: Any, at: str) -> list[str]:
    """What no single property shows."""
    found: Complaints = []
    for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
        block = block if isinstance(block, dict) else {}
        if block.get("type") == "section" and not {"text", "fields"} & block.keys():
            found.append(f"must define either `fields` or `text` [json-pointer:{at}/{index}]")
        element = block.get("element")
        if isinstance(element, dict) and element.get("type") == "checkboxes":
            options = element.get("options")
            if any(each not in (options or ()) for each in element.get("initial_options") or ()):
                found.append(f"must be among the options [json-pointer:{at}/{index}/element/initial_options]")
        most, value = (
            (element.get(name) for name in ("max_length", "initial_value")) if isinstance(element, dict) else (0, 0)
        )
        if isinstance(most, int) and isinstance(value, str) and len(value) > most:
            found.append(f"must be less than {most + 1} characters [json-pointer:{at}/{index}/element/initial_value]")
    return found


def _dicts(blocks: Any) -> list[dict[str, Any]]:
    return [block for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []


def _twice(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _text_in(part: Any) -> int:
    if isinstance(part, dict):
        return sum(
            len(value) if key == "text" and isinstance(value, str) else _text_in(value) for key, value in part.items()
        )
    return sum(_text_in(one) for one in part) if isinstance(part, list) else 0
