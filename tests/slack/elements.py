"""Block Kit's elements: what one can press, choose or fill in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.slack import limits
from tests.slack.pieces import Complaints, allowed, array, text_object, wanted_string


def element(value: Any, at: str, kinds: frozenset[str], found: Complaints) -> None:
    """Complain unless this is a sound element of one of these kinds."""
    if not isinstance(value, dict):
        where = at.rsplit("/", 1)
        if value is None:
            found.append(f"missing required field: {where[1]} [json-pointer:{where[0]}]")
        else:
            found.append(f"must be an object [json-pointer:{at}]")
        return
    kind = str(value.get("type"))
    if kind not in kinds:
        found.append(f"unsupported type: {value.get('type')} [json-pointer:{at}/type]")
        return
    if kind != "image":
        wanted_string(value, "action_id", at, limits.ACTION_ID, found, optional=True)
    if "confirm" in value:
        _confirm(value["confirm"], f"{at}/confirm", found)
    if "placeholder" in value:
        text_object(value["placeholder"], f"{at}/placeholder", limits.PLACEHOLDER, found, plain=True)
    CHECKS[kind](value, at, found)


def _button(value: dict[str, Any], at: str, found: Complaints) -> None:
    known = {"type", "text", "action_id", "url", "value", "style", "confirm", "accessibility_label"}
    allowed(value, known, at, found)
    text_object(value.get("text"), f"{at}/text", limits.BUTTON_TEXT, found, plain=True)
    wanted_string(value, "value", at, limits.BUTTON_VALUE, found, optional=True, empty=True)
    wanted_string(value, "url", at, limits.BUTTON_URL, found, optional=True)
    wanted_string(value, "accessibility_label", at, limits.ACCESSIBILITY_LABEL, found, optional=True)
    if value.get("style", "primary") not in ("primary", "danger"):
        found.append(f"must be a valid enum value: primary, danger [json-pointer:{at}/style]")


def _image(value: dict[str, Any], at: str, found: Complaints) -> None:
    allowed(value, {"type", "image_url", "slack_file", "alt_text"}, at, found)
    wanted_string(value, "alt_text", at, limits.IMAGE_ALT_TEXT, found)
    if "slack_file" not in value:
        wanted_string(value, "image_url", at, limits.IMAGE_URL, found)


def _plain_text_input(value: dict[str, Any], at: str, found: Complaints) -> None:
    known = "type action_id initial_value multiline min_length max_length dispatch_action_config focus_on_load"
    allowed(value, {*known.split(), "placeholder"}, at, found)
    wanted_string(value, "initial_value", at, limits.INPUT_VALUE, found, optional=True, empty=True)
    most = value.get("max_length", limits.INPUT_VALUE)
    least = value.get("min_length", 0)
    if not isinstance(most, int) or not 1 <= most <= limits.INPUT_VALUE:
        found.append(f"must be between 1 and {limits.INPUT_VALUE} [json-pointer:{at}/max_length]")
    elif not isinstance(least, int) or not 0 <= least <= most:
        found.append(f"must be between 0 and {most} [json-pointer:{at}/min_length]")
    elif isinstance(value.get("initial_value"), str) and len(value["initial_value"]) > most:
        found.append(f"must be less than {most + 1} characters [json-pointer:{at}/initial_value]")


def _choice(most: int) -> Callable[[dict[str, Any], str, Complaints], None]:
    def check(value: dict[str, Any], at: str, found: Complaints) -> None:
        known = "type action_id options option_groups initial_option initial_options confirm placeholder focus_on_load"
        allowed(value, {*known.split(), "max_selected_items"}, at, found)
        if "option_groups" in value:
            if array(value["option_groups"], f"{at}/option_groups", 1, limits.OPTION_GROUPS, found):
                for index, group in enumerate(value["option_groups"]):
                    here = f"{at}/option_groups/{index}"
                    held = group if isinstance(group, dict) else {}
                    text_object(held.get("label"), f"{here}/label", limits.OPTION_GROUP_LABEL, found, plain=True)
                    _options(held.get("options"), f"{here}/options", most, found)
        else:
            _options(value.get("options"), f"{at}/options", most, found)

    return check


def _options(options: Any, at: str, most: int, found: Complaints) -> None:
    if not array(options, at, 1, most, found):
        return
    for index, option in enumerate(options):
        here = f"{at}/{index}"
        if not isinstance(option, dict):
            found.append(f"must be an object [json-pointer:{here}]")
            continue
        allowed(option, {"text", "value", "description", "url"}, here, found)
        text_object(option.get("text"), f"{here}/text", limits.OPTION_TEXT, found)
        wanted_string(option, "value", here, limits.OPTION_VALUE, found, optional="url" in option)
        if "description" in option:
            text_object(option["description"], f"{here}/description", limits.OPTION_DESCRIPTION, found)


def _confirm(value: Any, at: str, found: Complaints) -> None:
    if not isinstance(value, dict):
        found.append(f"must be an object [json-pointer:{at}]")
        return
    allowed(value, {"title", "text", "confirm", "deny", "style"}, at, found)
    text_object(value.get("title"), f"{at}/title", limits.CONFIRM_TITLE, found, plain=True)
    text_object(value.get("text"), f"{at}/text", limits.CONFIRM_TEXT, found)
    for button in ("confirm", "deny"):
        text_object(value.get(button), f"{at}/{button}", limits.CONFIRM_BUTTON, found, plain=True)


CHECKS: dict[str, Callable[[dict[str, Any], str, Complaints], None]] = {
    "button": _button,
    "image": _image,
    "plain_text_input": _plain_text_input,
    "static_select": _choice(limits.SELECT_OPTIONS),
    "multi_static_select": _choice(limits.SELECT_OPTIONS),
    "overflow": _choice(limits.OVERFLOW_OPTIONS),
    "checkboxes": _choice(limits.CHECKBOX_OPTIONS),
    "radio_buttons": _choice(limits.CHECKBOX_OPTIONS),
}
_CHOICES = frozenset({"static_select", "overflow", "checkboxes", "radio_buttons"})
ACTION_ELEMENTS = _CHOICES | {"button"}
SECTION_ACCESSORIES = _CHOICES | {"button", "image", "multi_static_select"}
INPUT_ELEMENTS = frozenset({"plain_text_input", "static_select", "multi_static_select", "checkboxes", "radio_buttons"})
