"""Checks what is answered against the API's document, more strictly than its readers do: an unknown key is a fault."""

from __future__ import annotations

import functools
import re
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from intercom.operators.commands.answer_schemas import AnswerSchemas
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.web import api
from tests.support.http_responses import Response

#: The commands whose answers were checked in this process.
checked: set[str] = set()

_FORMATS = FormatChecker(formats=())
_ROOM_EVENTS = re.compile(r"/rooms/[^/]+/events")


@_FORMATS.checks("date-time", raises=ValueError)
def _is_instant(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def strict(schema: Any) -> Any:
    """The same schemas; those of objects refuse what they do not describe."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    if isinstance(made.get("properties"), dict) and "object" in made.get("type", ""):
        made.setdefault("additionalProperties", False)
    return made


@functools.cache
def _document() -> dict[str, Any]:
    """The document of all that people may ask for, and a schema for each command, also for those of a terminal."""
    schemas = AnswerSchemas()
    commands = {name: schemas.of_command(name) for name in COMMANDS}
    document: Any = api.openapi()
    parts = {**document["components"]["schemas"], **schemas.named}
    return {"paths": strict(document["paths"]), "components": {"schemas": strict(parts)}, "commands": strict(commands)}


@functools.cache
def _validator(*place: str | int) -> Draft202012Validator:
    pointer = "/".join(str(each).replace("~", "~0").replace("/", "~1") for each in place)
    return Draft202012Validator({**_document(), "$ref": f"#/{pointer}"}, format_checker=_FORMATS)


def check_command(name: str, data: Any) -> None:
    """Check the data that a command has answered."""
    _validator("commands", name).validate(data)
    checked.add(name)


def check_answer(method: str, path: str, answer: Response) -> None:
    """Check what was answered with success at a path, if it is one of the API that is answered with JSON."""
    found = _document()["paths"].get(path, {}).get(method)
    if found is None or "application/json" not in found["responses"]["200"]["content"]:
        return
    place = ("paths", path, method, "responses", "200", "content", "application/json", "schema")
    _validator(*place).validate(answer.json())
    if path.startswith(api.COMMANDS_PATH):
        checked.add(path.removeprefix(api.COMMANDS_PATH))


def check_event(path: str, name: str, data: Any) -> None:
    """Check an event of a stream below the API."""
    path = api.BASE + _ROOM_EVENTS.sub("/rooms/{id}/events", path)
    place = ("paths", path, "get", "responses", "200", "content", "text/event-stream", "schema", "oneOf")
    found: Any = _document()
    for part in place:
        found = found[part]
    (at,) = [at for at, each in enumerate(found) if each["properties"]["event"]["const"] == name]
    _validator(*place, at, "properties", "data", "contentSchema").validate(data)
