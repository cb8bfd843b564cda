"""The OpenAPI 3.1 document of the rooms' plain HTTP, made from the same argument and answer classes that serve it."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import fields

from intercom._version import __version__
from intercom.agents import argument_schemas
from intercom.model.json_types import JsonObject
from intercom.model.type_schemas import Schema
from intercom.rooms.tools import feed
from intercom.rooms.tools.room_tool_table import OVER_HTTP
from intercom.rooms.tools.tool import RoomTool

#: The security schemes, by name.
_TEAM, _SECRET = "team", "secret"

_FAILURES = {
    400: ("BadRequest", "An argument is missing, unknown, or of the wrong type."),
    401: (
        "Unauthorized",
        "No token, or not the token of a team in this session. Or the secret of the server is missing.",
    ),
    403: (
        "Forbidden",
        "The session is closed or paused, or the team may not do this. Or a web page may not call this.",
    ),
    404: ("NotFound", "There is no such session, version, message or path."),
    405: ("MethodNotAllowed", "The path takes other methods: see the header Allow."),
    408: ("RequestTimeout", "The request did not come in time."),
    409: ("Conflict", "The document has another version, or a key was used before. `details` say more."),
    413: ("ContentTooLarge", "The request is larger than the server takes."),
    415: ("UnsupportedMediaType", "The body is no `application/json`."),
    421: ("MisdirectedRequest", "The server is called by a name that is not its own."),
    429: ("TooManyRequests", "The team did this too often: try again after `Retry-After` seconds."),
    500: ("InternalServerError", "The server failed. The fault is in its log."),
    503: ("ServiceUnavailable", "A part of the server is restarting: try again after `Retry-After` seconds."),
}
_WITH_RETRY = (429, 503)

_ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "description": "A short code, which stays the same."},
                "message": {"type": "string", "description": "What is wrong, and what to do."},
                "details": {"type": "object", "description": "More for programs, for example the current version."},
            },
            "required": ["code", "message", "details"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}


def document(base: str, *, secret: bool) -> JsonObject:
    """Return the document. `base` is the server's public URL; with `secret`, callers have to show one."""
    paths: dict[str, JsonObject] = {}
    for tool in OVER_HTTP:
        paths.setdefault(tool.route.path, {})[tool.route.method.lower()] = _operation(tool, secret)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rooms of Agent Intercom",
            "version": __version__,
            "description": "Sessions in which teams of agents work together. /agents.md has instructions for agents.",
        },
        "servers": [{"url": base}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, "Message": feed.MESSAGE},
            "responses": {name: _failure(status) for status, (name, _) in _FAILURES.items()},
            "securitySchemes": {
                _TEAM: {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Team-ID",
                    "description": "The team_id that create_session or join_session gave.",
                },
                **({_SECRET: {"type": "http", "scheme": "bearer"}} if secret else {}),
            },
        },
    }


def _operation(tool: RoomTool, secret: bool) -> JsonObject:
    schema = argument_schemas.of(tool.takes, lengths=True)
    properties: dict[str, Schema] = schema["properties"]
    required = set(schema.get("required", ()))
    parameters: list[JsonObject] = []
    responses = {"200": _success(tool)}
    operation: JsonObject = {
        "operationId": tool.name,
        "summary": tool.title,
        "description": tool.description,
        "parameters": parameters,
        "responses": responses,
        "security": [_security(tool, secret)],
    }
    in_path = "{session_id}" in tool.route.path
    if in_path:
        id = {**properties.pop("session_id"), "pattern": "^[^/?#%]+$"}
        described = id.pop("description")
        parameters.append(
            {"name": "session_id", "in": "path", "required": True, "description": described, "schema": id}
        )
    if tool.needs_token:
        properties.pop("team_id")
    required &= properties.keys()
    if tool.route.method == "GET":
        parameters += _query(properties, required)
    else:
        body: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            body["required"] = [name for name in properties if name in required]
        operation["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": body}},
        }
    for status in _failures_of(tool):
        responses[str(status)] = {"$ref": f"#/components/responses/{_FAILURES[status][0]}"}
    return operation


def _query(properties: dict[str, Schema], required: set[str]) -> Iterable[JsonObject]:
    for name, schema in properties.items():
        described = dict(schema)
        description = described.pop("description")
        # A query has no null: an absent argument is one.
        if isinstance(kind := described["type"], list):
            described["type"] = next(each for each in kind if each != "null")
        if "enum" in described:
            described["enum"] = [each for each in described["enum"] if each is not None]
        yield {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": description,
            "schema": described,
        }


def _security(tool: RoomTool, secret: bool) -> dict[str, list[str]]:
    return {**({_TEAM: []} if tool.needs_token else {}), **({_SECRET: []} if secret else {})}


def _failures_of(tool: RoomTool) -> tuple[int, ...]:
    """Return the error statuses of an operation."""
    found = {400, 401, 403, 405, 408, 413, 421, 500, 503}
    if "session_id" in {each.name for each in fields(tool.takes)}:
        found.add(404)
    if tool.route.method == "POST":
        found |= {409, 415, 429}
    return tuple(sorted(found))


def _failure(status: int) -> JsonObject:
    failure: JsonObject = {
        "description": _FAILURES[status][1],
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    if status in _WITH_RETRY:
        failure["headers"] = {
            "Retry-After": {
                "description": "The seconds to wait before the next call.",
                "required": True,
                "schema": {"type": "integer", "minimum": 1},
            }
        }
    if status == 405:
        failure["headers"] = {
            "Allow": {"description": "The methods of the path.", "required": True, "schema": {"type": "string"}}
        }
    return failure


def _success(tool: RoomTool) -> JsonObject:
    if tool.result is None:
        return {
            "description": "The session: a text, or with `format=json` an object.",
            "content": {
                "text/markdown": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
            },
        }
    answer = argument_schemas.of_result(tool.result)
    if "messages" in answer["properties"]:
        described = answer["properties"]["messages"]
        answer["properties"]["messages"] = {**described, "items": {"$ref": "#/components/schemas/Message"}}
    content = {"application/json": {"schema": answer}}
    if tool is feed.WAIT:
        # In OpenAPI, the schema of an event stream is that of each event.
        event = {
            "type": "object",
            "properties": {
                "event": {"type": "string", "enum": ["result", "error"]},
                "data": {"type": "string", "contentMediaType": "application/json"},
            },
            "description": "Comments while it waits, and then one event with the same JSON as its data.",
        }
        content["text/event-stream"] = {"schema": event}
    return {"description": tool.title, "content": content}
