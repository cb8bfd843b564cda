"""schemathesis: what /api/openapi.json says of plain HTTP is true of a real node.

`tox -e openapi` runs it. Each operation gets examples, the limits of its arguments, wrong methods and random requests,
good and bad ones. No answer may be a fault of the server, and each must have a status, headers, a media type and a form
that the document names. Most requests are led to a room that exists, with the token of one of its teams: otherwise
nearly all of them would be refused at once.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from intercom.agents.rooms import openapi
from tests.rooms.node import at, nodes

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
#: Waits end soon, and what is random does not run into the guard or a limit.
CONFIG = "[rooms]\nloop_budget = 0\nmax_wait_seconds = 1\n"
EXAMPLES = int(os.environ.get("INTERCOM_OPENAPI_EXAMPLES", "100"))
#: The seconds that a run may take; one that takes longer fails and says how far it came. On two idle cores 100 examples
#: take about 70.
LIMIT_SECONDS = float(os.environ.get("INTERCOM_OPENAPI_SECONDS", 4.8 * max(EXAMPLES, 100)))
MANY = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)

pytestmark = pytest.mark.filterwarnings("default")


#: Known before a node runs, so that each operation is a test of its own.
DOCUMENT = openapi.document("http://127.0.0.1", secret=False)
api = schemathesis.openapi.from_dict(DOCUMENT)


class World:
    """Rooms of a real node, and what was answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: Counter[tuple[str, int]] = Counter()
        self._started = time.monotonic()
        self._rooms: dict[str, tuple[str, list[str]]] = {}
        self._names = itertools.count()
        self.closed, self.closed_tokens = self._create("closed")
        self.post(f"{at(self.closed)}/conclude", self.closed_tokens[0], summary_section="over")

    def _create(self, title: str) -> tuple[str, list[str]]:
        made = self.post("/api/sessions", None, title=title, description="", creator_team_name="Convener")
        room = made["session_id"]
        tokens = [made["team_id"], self._join(room)]
        for text in ("one", "two"):
            self.post(f"{at(room)}/messages", tokens[0], content=text)
        self.post(f"{at(room)}/doc/append", tokens[1], text="- a note", section="Notes")
        return room, tokens

    def _join(self, room: str) -> str:
        token: str = self.post(f"{at(room)}/join", None, team_name=f"Team {next(self._names)}")["team_id"]
        return token

    def place(self, tool: str) -> tuple[str, list[str]]:
        """A room for the calls of this tool, in which they can succeed, and the tokens of its teams."""
        if tool not in self._rooms:
            self._rooms[tool] = self._create(tool)
        room, tokens = self._rooms[tool]
        if tool == "leave_session":
            return room, [self._join(room)]
        if tool == "reopen_session":
            self.post(f"{at(room)}/conclude", tokens[0], summary_section="over")
        return room, tokens

    def check_time(self) -> None:
        """Fail if the run has taken too long: the node hangs, or other programs have the processors."""
        assert time.monotonic() - self._started < LIMIT_SECONDS, (
            f"only {sum(self.answers.values())} calls were answered in {LIMIT_SECONDS:g} s (INTERCOM_OPENAPI_SECONDS);"
            f" the load of this machine is {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        )

    def version(self, room: str, token: str) -> int:
        version: int = self._call("GET", f"{at(room)}/doc", token, None)["version"]
        return version

    def post(self, path: str, token: str | None, **body: Any) -> Any:
        return self._call("POST", path, token, json.dumps(body).encode())

    def _call(self, method: str, path: str, token: str | None, data: bytes | None) -> Any:
        headers = {"Content-Type": "application/json", **({"X-Team-ID": token} if token else {})}
        asked = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with nodes(1, None, CONFIG) as (node,):
        made = World(node.url)
        yield made
        print(f"\n{report(made.answers)}")
        assert "Traceback" not in node.log.read_text(errors="replace")


def tool_of(case: schemathesis.Case) -> str:
    """The name of the tool that a request calls."""
    name: str = case.operation.definition.raw["operationId"]
    return name


def lead(world: World, case: schemathesis.Case) -> None:
    """Lead four of five requests to a room, with a token. The request itself decides which, so that a failure can be
    repeated."""
    tool = tool_of(case)
    said = repr((tool, case.method, case.path_parameters, case.query, case.body))
    number = zlib.crc32(said.encode("utf-8", "replace"))
    if case.query and number % 2:
        # No chance makes the place of a page.
        case.query.pop("before", None)
    if "session_id" not in (case.path_parameters or {}) or number % 5 == 0:
        return
    room, tokens = (world.closed, world.closed_tokens) if number % 5 == 1 else world.place(tool)
    token = tokens[number % len(tokens)]
    case.path_parameters["session_id"] = room
    case.headers["X-Team-ID"] = token
    if tool == "wait_for_messages" and number % 3 == 0:
        case.headers["Accept"] = "text/event-stream"
    if isinstance(case.body, dict) and number % 2:
        # A number by chance is hardly ever a version or a cursor that there is.
        if isinstance(case.body.get("expected_version"), int):
            case.body["expected_version"] = world.version(room, token)
        if isinstance(case.body.get("cursor"), int):
            case.body["cursor"] = 1 + number % 3


def test_a_node_serves_the_document(world: World) -> None:
    with urllib.request.urlopen(f"{world.url}/api/openapi.json", timeout=60) as answer:
        assert json.loads(answer.read()) == {**DOCUMENT, "servers": [{"url": world.url}]}


@api.parametrize()
@MANY
def test_each_operation_answers_as_the_document_says(world: World, case: schemathesis.Case) -> None:
    world.check_time()
    lead(world, case)
    response = case.call(base_url=world.url)
    world.answers[tool_of(case), response.status_code] += 1
    case.validate_response(response, checks=CHECKS)


def test_calls_in_a_row_answer_as_the_document_says(world: World) -> None:
    tokens: dict[str, str] = {}

    class Teams(api.as_state_machine()):  # type: ignore[misc]
        """Each call of a room has the last token that was given there."""

        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, Any]:
            return {"base_url": world.url}

        def before_call(self, case: schemathesis.Case) -> None:
            world.check_time()
            room = (case.path_parameters or {}).get("session_id")
            if room in tokens:
                case.headers["X-Team-ID"] = tokens[room]

        def after_call(self, response: schemathesis.Response, case: schemathesis.Case) -> None:
            world.answers["in a row", response.status_code] += 1
            if response.status_code == 200 and case.path in ("/api/sessions", "/api/sessions/{session_id}/join"):
                given = response.json()
                if "team_id" in given:
                    tokens[given["session_id"]] = given["team_id"]

        def validate_response(self, response: Any, case: Any, additional_checks: Any = (), **more: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    Teams.run(settings=settings(MANY, max_examples=max(1, EXAMPLES // 4), stateful_step_count=20))


def test_most_calls_came_past_the_door(world: World) -> None:
    calls = sum(world.answers.values())
    refused = sum(count for (_, status), count in world.answers.items() if status in (401, 404, 405))
    print(f"{calls} calls, of which {refused} were refused by token, address or method")
    assert refused * 2 < calls
    tools = {tool for tool, _ in world.answers} - {"in a row"}
    assert [tool for tool in sorted(tools) if not world.answers[tool, 200]] == []


def report(answers: Counter[tuple[str, int]]) -> str:
    """The answers by tool and status, as lines."""
    tools = sorted({tool for tool, _ in answers})
    return "\n".join(
        f"{tool:26}" + "  ".join(f"{status} {count}" for (of, status), count in sorted(answers.items()) if of == tool)
        for tool in tools
    )
