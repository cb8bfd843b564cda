"""The page's API: which commands there are, how a request for one is read, and its OpenAPI document.

All of it is made from the table of operator commands. What the answers look like is said by the forms that make them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus

from attrs import frozen

from intercom._version import __version__
from intercom.model.errors import ERROR_CODES, IntercomError, InvalidArguments
from intercom.model.json_types import Json, JsonObject
from intercom.model.web_role import WebRole
from intercom.operators.commands.answer_schemas import PLACE, AnswerSchemas
from intercom.operators.commands.command import Access, OperatorCommand
from intercom.operators.commands.command_execution import CommandRequest, read_fields
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.commands.command_table import COMMANDS, FIELDS, Kind
from intercom.operators.commands.json_forms import (
    card_entry,
    notice_entry,
    plain,
    returns,
    room_entry,
    room_message_entry,
    shape,
    teams_entry,
)
from intercom.operators.web.passkeys import passkeys_entry, proposal_entry
from intercom.operators.web.sign_in import may_use

BASE = "/api/operator"
COMMANDS_PATH = f"{BASE}/commands/"
#: The header that shows the second secret of a session.
CSRF_HEADER = b"x-intercom-csrf"

_CONFLICTS = ("already_decided", "invalid_state", "ambiguous", "already_consumed", "not_approved", "record_mismatch")
_STATUS = {
    **dict.fromkeys(_CONFLICTS, HTTPStatus.CONFLICT),
    **dict.fromkeys(("invalid_arguments", "ipc"), HTTPStatus.BAD_REQUEST),
    **dict.fromkeys(("unauthorized", "signature_required"), HTTPStatus.FORBIDDEN),
    **dict.fromkeys(("not_found", "request_not_found", "no_gateway", "no_rooms"), HTTPStatus.NOT_FOUND),
    **dict.fromkeys(("busy", "steer_queue_full", "too_many_sessions"), HTTPStatus.TOO_MANY_REQUESTS),
    **dict.fromkeys(("unavailable", "db"), HTTPStatus.SERVICE_UNAVAILABLE),
}


def status_of(error: IntercomError) -> HTTPStatus:
    """Return the status of the answer to a request that was refused with this error."""
    return _STATUS.get(error.error_code, HTTPStatus.UNPROCESSABLE_ENTITY)


def error_entry(error: IntercomError) -> JsonObject:
    """Return the body of that answer. Details that are not `retry_after` stand below `details`."""
    details = dict(error.details)
    said: JsonObject = {"code": error.error_code, "message": error.message}
    if isinstance(after := details.pop("retry_after", None), int | float):
        said["retry_after"] = after
    if details:
        said["details"] = plain(details)
    return {"error": said}


def json_body(data: Json) -> bytes:
    return json.dumps(data, separators=(",", ":"), default=str).encode("ascii")


def read_object(data: bytes) -> JsonObject:
    """Return the JSON object that a request's body is. Raises InvalidArguments."""
    try:
        raw = json.loads(data.decode("utf-8")) if data else {}
    except (ValueError, RecursionError):
        raise InvalidArguments("the body is not JSON in UTF-8: send one JSON object") from None
    if not isinstance(raw, dict):
        raise InvalidArguments("the body is not a JSON object: send one")
    return raw


def read_command(name: str, data: bytes) -> CommandRequest:
    """Return the request for this command. Raises InvalidArguments for a body or a field that is not of its kind."""
    return read_fields(name, read_object(data))


# --- which commands there are ----------------------------------------------------------------------------------------


@frozen
class CommandField:
    """One field of a command, as it is sent."""

    name: str
    kind: Kind
    help: str
    choices: tuple[str, ...]
    is_needed: bool


def fields_of(row: OperatorCommand) -> list[CommandField]:
    """Return the fields of a command, in the order in which ctl takes them."""
    needed = handler_of(row.name).needed
    found: dict[str, CommandField] = {}
    for each in row.arguments:
        # Two options of ctl may set one field.
        if each.wire in FIELDS and each.wire not in found:
            help, is_needed = each.help or each.missing, each.field in needed
            found[each.wire] = CommandField(each.wire, FIELDS[each.wire], help, each.choices, is_needed)
    return list(found.values())


_FIELD = shape(
    "CommandField",
    field=str,
    kind={"type": "string", "enum": [each.name.lower() for each in Kind]},
    help=str,
    choices=[str],
    required=bool,
)


@returns(shape("Command", name=str, access=Access, help=str, arguments=[_FIELD]))
def _command(row: OperatorCommand) -> JsonObject:
    arguments: list[Json] = [
        {
            "field": each.name,
            "kind": each.kind.name.lower(),
            "help": each.help,
            "choices": list(each.choices),
            "required": each.is_needed,
        }
        for each in fields_of(row)
    ]
    return {"name": row.name, "access": row.access.value, "help": row.help, "arguments": arguments}


@returns(shape(commands=[_command]))
def command_entries(role: WebRole) -> JsonObject:
    """Return the commands that a person of this role may send."""
    return {"commands": [_command(row) for row in COMMANDS.values() if may_use(role, row)]}


# --- OpenAPI ---------------------------------------------------------------------------------------------------------

_SCHEMAS: dict[Kind, JsonObject] = {
    Kind.ID: {"type": "string", "minLength": 1, "maxLength": 200},
    Kind.TEXT: {"type": "string"},
    Kind.NAME: {"type": "string", "maxLength": 4096},
    Kind.NUMBER: {"type": "integer", "minimum": 1, "maximum": 10_000},
    Kind.OFFSET: {"type": "integer", "minimum": 0},
    Kind.FLAG: {"type": "boolean"},
}
#: The refusals that any request may get, with the name of each in the document, and when.
FAILURES = {
    400: ("BadRequest", "The body or a field is malformed."),
    401: ("Unauthorized", "Nobody is signed in in this browser, or the token does not count."),
    403: (
        "Forbidden",
        "The role, the process or the page that sends this may not do it, or the decision is not signed.",
    ),
    404: ("NotFound", "There is no such thing or path."),
    405: ("MethodNotAllowed", "The path takes another method."),
    408: ("RequestTimeout", "The request did not come in time."),
    409: ("Conflict", "Another decision came first, or the state does not allow this."),
    413: ("ContentTooLarge", "The request is too large."),
    415: ("UnsupportedMediaType", "The body is no `application/json`."),
    421: ("MisdirectedRequest", "The server is called by a name that is not its own."),
    422: ("UnprocessableContent", "The command was refused for another reason; `code` says which."),
    429: ("TooManyRequests", "Too much is queued: try again later."),
    500: ("InternalServerError", "The server failed at this; its log says why."),
    503: ("ServiceUnavailable", "A part of the server is restarting: try again after `retry_after` seconds."),
}


def openapi(role: WebRole = WebRole.ADMIN) -> JsonObject:
    """Return the OpenAPI 3.1 document of what a person of this role may send."""
    schemas = AnswerSchemas()
    paths: JsonObject = {
        f"{BASE}/sign-in": {
            "post": _operation(
                "sign-in",
                "Sign in with the code of a one-time link.",
                _ref("Me"),
                body={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
                signed_in=False,
            )
        },
        f"{BASE}/sign-out": {"post": _operation("sign-out", "End this session.", None, for_pages=True)},
        f"{BASE}/me": {"get": _operation("me", "Who is signed in.", _ref("Me"))},
        f"{BASE}/commands": {"get": _operation("commands", "What this person may send.", schemas.of(command_entries))},
        f"{BASE}/passkeys": {
            "get": _operation(
                "list-passkeys",
                "The passkeys that sign here, and those that nobody has enrolled yet.",
                schemas.of(passkeys_entry),
            ),
            "post": _operation(
                "propose-passkey",
                "Propose a passkey that was made on the page. A person enrols it in a terminal.",
                schemas.of(proposal_entry),
                body={
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in ("name", "credential_id", "public_key")},
                    "required": ["name", "credential_id", "public_key"],
                },
                for_pages=True,
            ),
        },
        f"{BASE}/events": {
            "get": _operation(
                "events",
                "A stream of `reset`, `card`, `notice`, `ready`, `again` and `elsewhere`. It resumes after"
                " `Last-Event-ID`.",
                _stream(schemas, _EVENTS),
                media="text/event-stream",
            )
        },
        f"{BASE}/rooms/{{id}}/events": {
            "get": _operation(
                "room-events",
                "A stream of `reset`, `message`, `room`, `ready`, `again` and `elsewhere` of one room, by its id or a"
                " unique start of it. The id of an event is the number of the newest message; it resumes after"
                " `Last-Event-ID`.",
                _stream(schemas, _ROOM_EVENTS),
                media="text/event-stream",
                path_id="a room's id",
            )
        },
        f"{BASE}/openapi.json": {"get": _operation("openapi", "This document.", {"type": "object"})},
    }
    for row in COMMANDS.values():
        if may_use(role, row):
            data = schemas.of_command(row.name)
            answer: JsonObject = {"type": "object", "properties": {"data": data}, "required": ["data"]}
            paths[COMMANDS_PATH + row.name] = {
                "post": _operation(
                    row.name,
                    f"{row.help[:1].upper()}{row.help[1:]}.",
                    answer,
                    body=_body(row),
                    for_pages=row.in_browser,
                )
            }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agent Intercom for operators",
            "version": __version__,
            "description": "What the page in the browser uses. The commands are those of agent-intercom-ctl.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR, "Me": _ME, **schemas.named},
            "responses": {
                name: {"description": said, "content": {"application/json": {"schema": _ref("Error")}}}
                for name, said in FAILURES.values()
            },
            "securitySchemes": {
                "session": {"type": "apiKey", "in": "cookie", "name": "intercom_session_PORT"},
                "csrf": {"type": "apiKey", "in": "header", "name": "X-Intercom-CSRF"},
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A program's, from agent-intercom-ctl token add. Without cookie and Origin.",
                },
            },
        },
    }


_BY_SESSION: JsonObject = {"session": [], "csrf": []}


def _ref(name: str) -> JsonObject:
    return {"$ref": PLACE + name}


#: What the events of each name hold.
_EVENTS = {
    "reset": shape(),
    "card": card_entry,
    "notice": notice_entry,
    "ready": shape(),
    "again": shape(),
    "elsewhere": shape(),
}
_ROOM_EVENTS = {
    "reset": shape(messages=int),
    "message": room_message_entry,
    "room": shape(room_entry, teams_entry),
    "ready": shape(),
    "again": shape(),
    "elsewhere": shape(),
}


def _stream(schemas: AnswerSchemas, events: Mapping[str, object]) -> JsonObject:
    """Return the schema of a stream, which is that of each event."""
    return {
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "event": {"type": "string", "const": name},
                    "id": {"type": "string"},
                    "data": {
                        "type": "string",
                        "contentMediaType": "application/json",
                        "contentSchema": schemas.of(part),
                    },
                },
                "required": ["event", "data"],
            }
            for name, part in events.items()
        ]
    }


def _operation(
    name: str,
    summary: str,
    answer: JsonObject | None,
    *,
    body: JsonObject | None = None,
    signed_in: bool = True,
    for_pages: bool = False,
    media: str = "application/json",
    path_id: str = "",
) -> JsonObject:
    done: JsonObject = {"description": "Done."}
    if answer is not None:
        done["content"] = {media: {"schema": answer}}
    failures: JsonObject = {
        str(status): {"$ref": f"#/components/responses/{name}"} for status, (name, _) in FAILURES.items()
    }
    # Each entry of the list is one way, and needs all of its schemes.
    security: list[Json] = [] if not signed_in else [_BY_SESSION] if for_pages else [_BY_SESSION, {"token": []}]
    operation: JsonObject = {
        "operationId": name,
        "summary": summary,
        "responses": {"204" if answer is None else "200": done, **failures},
        "security": security,
    }
    if path_id:
        operation["parameters"] = [
            {"name": "id", "in": "path", "required": True, "description": path_id, "schema": {"type": "string"}}
        ]
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _body(row: OperatorCommand) -> JsonObject:
    fields = fields_of(row)
    properties: JsonObject = {
        each.name: {
            **_SCHEMAS[each.kind],
            **({"description": each.help} if each.help else {}),
            **({"enum": list(each.choices)} if each.choices else {}),
        }
        for each in fields
    }
    if row.acts:
        properties["verdict_id"] = {
            "type": "string",
            "pattern": "^[A-Za-z0-9_-]{8,64}$",
            "description": "The id of this act: sent again with it, it is done once.",
        }
    if row.access in (Access.SIGNED, Access.SIGNED_CARD):
        properties["signature"] = {"type": "object", "description": "Where there is an operator key: its signature."}
    needed: list[Json] = [each.name for each in fields if each.is_needed]
    return {"type": "object", "properties": properties, **({"required": needed} if needed else {})}


_ERROR: JsonObject = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string", "enum": list(ERROR_CODES)},
                "message": {"type": "string", "description": "What is wrong, and what to do."},
                "retry_after": {"type": "number", "description": "Seconds after which it is worth trying again."},
                "details": {"type": "object", "description": "More for programs."},
            },
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}
_ME: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "role": {"type": "string", "enum": [each.value for each in WebRole]},
        "csrf": {"type": "string", "description": "What the header X-Intercom-CSRF has to show; not for a token."},
        "server": {
            "type": "object",
            "properties": {
                "version": {"type": "string"},
                "started_at": {"type": "string", "format": "date-time"},
                "rooms": {"type": "boolean", "description": "Whether there are rooms on this server."},
            },
            "required": ["version", "started_at", "rooms"],
        },
        "signing": {
            "type": "object",
            "properties": {
                "required": {"type": "boolean", "description": "Whether decisions have to be signed with a key."}
            },
            "required": ["required"],
        },
    },
    "required": ["name", "role", "server", "signing"],
}
