"""The OpenAPI document: it is well-formed, it describes what is served, and what is served fits it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from intercom.agents.rooms import http as rooms_http
from intercom.agents.rooms.openapi import document
from intercom.model.room import LinkedEvidence, RoomId
from intercom.rooms.tools.room_tool_table import OVER_HTTP
from intercom.store import rooms
from tests.agents.http.rig import Reply
from tests.rooms.http_rig import CREATE, SECRET, Server, Team, server_with_rooms

DOCUMENT = document("https://rooms.example.org", secret=False)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def resolved(schema: Any) -> Any:
    """A schema with its references replaced."""
    if isinstance(schema, dict):
        if (ref := schema.get("$ref")) is not None:
            found: Any = DOCUMENT
            for name in ref.removeprefix("#/").split("/"):
                found = found[name]
            return resolved(found)
        return {name: resolved(each) for name, each in schema.items()}
    return [resolved(each) for each in schema] if isinstance(schema, list) else schema


def fits(path: str, method: str, reply: Reply) -> None:
    """Check that a response is a documented one."""
    responses = resolved(DOCUMENT["paths"][path][method]["responses"])
    assert str(reply.status) in responses, (path, reply)
    told = responses[str(reply.status)]
    media_type = reply.headers["content-type"].partition(";")[0]
    schema = told["content"][media_type]["schema"]
    if media_type == "application/json":
        Draft202012Validator(schema).validate(json.loads(reply.body))
    for name, header in told.get("headers", {}).items():
        assert not header["required"] or name.lower() in reply.headers


def test_every_operation_is_one_that_is_served_and_the_other_way_round() -> None:
    told = {(path, method.upper()) for path, method, _ in operations()}
    assert told == {(tool.route.path, tool.route.method) for tool in OVER_HTTP}
    ids = [operation["operationId"] for *_, operation in operations()]
    assert len(ids) == len(set(ids))


def test_every_schema_is_one_and_every_parameter_is_described() -> None:
    for path, method, operation in operations():
        in_path = set(re.findall(r"{(\w+)}", path))
        parameters = operation["parameters"]
        assert {each["name"] for each in parameters if each["in"] == "path"} == in_path
        for each in parameters:
            assert each["description"]
            Draft202012Validator.check_schema(each["schema"])
            assert not isinstance(each["schema"]["type"], list), "a query has no null"
        body = operation.get("requestBody")
        assert (body is not None) == (method == "post")
        if body is not None:
            schema = body["content"]["application/json"]["schema"]
            Draft202012Validator.check_schema(schema)
            assert "session_id" not in schema["properties"] or not in_path
        for response in resolved(operation["responses"]).values():
            for content in response["content"].values():
                Draft202012Validator.check_schema(content["schema"])


def test_it_limits_texts_as_the_server_does() -> None:
    made = DOCUMENT["paths"]["/api/sessions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert (made["properties"]["title"]["minLength"], made["properties"]["title"]["maxLength"]) == (1, 200)
    assert made["required"] == ["title", "description", "creator_team_name"]


def test_the_secret_is_a_scheme_where_there_is_one() -> None:
    told = document("https://rooms.example.org", secret=True)
    assert told["components"]["securitySchemes"]["secret"] == {"type": "http", "scheme": "bearer"}
    assert told["paths"]["/api/sessions"]["get"]["security"] == [{"secret": []}]
    assert told["paths"]["/api/sessions/{session_id}"]["get"]["security"] == [{"team": [], "secret": []}]
    assert SECRET not in json.dumps(told)
    assert DOCUMENT["paths"]["/api/sessions"]["get"]["security"] == [{}]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with server_with_rooms() as made:
        yield made


@pytest.mark.real_time
async def test_the_document_is_served_with_the_address_of_the_server(server: Server) -> None:
    served = await server.good("GET", "/api/openapi.json")
    assert served == document(server.base, secret=False)


@pytest.mark.real_time
async def test_what_is_answered_is_documented(server: Server) -> None:
    alex = await server.create()
    kim = await alex.join()
    await kim.say("hello")
    bodies: dict[str, Any] = {
        "create_session": CREATE,
        "join_session": {"team_name": "Lee's Team", "replay_from": 0},
        "post_message": {"content": {"text": "hello"}},
        "update_session_doc": {"content": "# All", "expected_version": 1},
        "append_to_session_doc": {"text": "more", "section": "Notes"},
        "ack": {"cursor": 1},
        "update_session_metadata": {"title": "Port it all", "reason": "the scope has grown"},
        "conclude_session": {"summary_section": "Done."},
        "reopen_session": {"reason": "not done"},
        "leave_session": {},
    }
    room_id, evidence_id = RoomId(alex.session_id), str(uuid.uuid4())
    linked = LinkedEvidence(room_id, evidence_id, {"id": evidence_id, "data": [1]}, "Alex's Team", datetime.now(UTC))
    await server.service.room_actors.transact(room_id, partial(rooms.link_evidence, linked=linked))
    queries = {
        "read_evidence": f"?evidence_id={evidence_id}",
        "search_sessions": "?query=parser",
        "wait_for_messages": "?since_cursor=0&timeout=0",
        "read_session_doc": "?history=true",
        "export_session": "?format=json",
    }
    late = ("leave_session", "conclude_session", "reopen_session")
    for tool in sorted(OVER_HTTP, key=lambda tool: (*late, "").index(tool.name) if tool.name in late else -1):
        path = tool.route.path.replace("{session_id}", alex.session_id)
        method = tool.route.method.lower()
        team = kim if tool.name == "leave_session" else alex
        good = await server.ask(tool.route.method, path + queries.get(tool.name, ""), bodies.get(tool.name), team.token)
        assert good.status == 200, (tool.name, good)
        fits(tool.route.path, method, good)
        for reply in await bad_requests(server, tool.route.method, path, alex):
            assert reply.status >= 400 or tool.route.method == "GET", (tool.name, reply)
            fits(tool.route.path, method, reply)


async def bad_requests(server: Server, method: str, path: str, team: Team) -> list[Reply]:
    return [
        await server.ask(method, f"{path}?nonsense=1", None, team.token),
        await server.ask(method, path, {"nonsense": 1} if method == "POST" else None, "nobody"),
        await server.ask(method, path, {"nonsense": 1} if method == "POST" else None, None),
        await server.ask(method, path.replace(team.session_id, "nothing"), None, team.token),
        await server.ask(method, path, b"{" if method == "POST" else None, team.token),
        await server.ask(method, path, None, team.token, Host="evil.example"),
        await server.ask(method, path, None, team.token, Origin="http://evil.example"),
        await server.ask(method, path, b"x", team.token, Content_Type="text/plain"),
        await server.ask(method, path, b"x" * (rooms_http.MOST_BYTES + 1), team.token),
        await server.ask("PATCH", path, None, team.token),
    ]
