"""The schemas of what commands answer: each row has one, and the answers of a real server are as they say."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from attrs import evolve, frozen
from jsonschema import Draft202012Validator, ValidationError
from mcp import Client

from intercom.cli.ctl_sign import key_fields
from intercom.local import operator_keys
from intercom.model.card import Card
from intercom.model.clock import to_text
from intercom.operators.commands import answer_schemas
from intercom.operators.commands.answer_schemas import AnswerSchemas
from intercom.operators.commands.command_handlers import HANDLERS
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.commands.json_forms import card_entry, form, plain, returns, shape
from intercom.operators.web import api
from tests.agents.gateway.conftest import CONFIG, GatewayHome, gateway_home, ready
from tests.operators import answers
from tests.operators.stand_in_service import card
from tests.operators.web.page_server import Browser
from tests.operators.web.push_service import PushBrowser
from tests.support.keys import make_key_file
from tests.support.server_process import Person, begin, call

# --- what the schemas are made from ----------------------------------------------------------------------------------


def test_every_command_has_a_schema_that_says_what_its_answer_holds() -> None:
    schemas = AnswerSchemas()
    found = {name: schemas.of_command(name) for name in COMMANDS}
    for schema in (*found.values(), *schemas.named.values()):
        Draft202012Validator.check_schema(schema)
    for name, schema in found.items():
        whole = schemas.named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        assert whole.get("required") or name == "pending", name
    assert found["pending"] == {"type": "array", "items": {"$ref": "#/components/schemas/Card"}}


def test_a_command_whose_answer_is_not_described_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def undescribed(answer: str) -> dict[str, str]:
        return {"text": answer}

    async def untyped(service: Any, caller: Any):  # type: ignore[no-untyped-def]
        return ""

    handler = HANDLERS["nudge-text"]
    monkeypatch.setitem(HANDLERS, "nudge-text", evolve(handler, entry=undescribed))
    with pytest.raises(TypeError, match="nothing says what undescribed returns"):
        AnswerSchemas().of_command("nudge-text")
    monkeypatch.setitem(HANDLERS, "nudge-text", evolve(handler, entry=plain, work=untyped))
    with pytest.raises(TypeError, match="untyped does not say"):
        AnswerSchemas().of_command("nudge-text")


def test_one_name_is_of_one_schema() -> None:
    @returns(shape("Card", text=str))
    def another(answer: str) -> dict[str, str]:
        return {"text": answer}

    schemas = AnswerSchemas()
    schemas.of(card_entry)
    schemas.of(card_entry)
    with pytest.raises(TypeError, match="two schemas are called Card"):
        schemas.of(another)


def test_a_form_has_the_types_of_its_class_and_its_constants() -> None:
    schemas = AnswerSchemas()
    schemas.of(form(Card, "request_id=id", "expires_at", "kind", status="seen"))
    schema = schemas.named["Card"]
    types = {name: {**each, "description": ""} for name, each in schema["properties"].items()}
    assert types["request_id"] == {"type": "string", "description": ""}
    assert types["expires_at"] == {"type": ["string", "null"], "format": "date-time", "description": ""}
    assert "approval" in types["kind"]["enum"]
    assert types["status"] == {"type": "string", "const": "seen", "description": ""}
    assert schema["required"] == ["request_id", "expires_at", "kind", "status"]
    with pytest.raises(TypeError, match="no JSON Schema is known for"):
        AnswerSchemas().of(complex)


def test_what_is_described_is_there_and_whatever_has_a_name_is_described() -> None:
    document: Any = api.openapi()
    schemas = document["components"]["schemas"]
    for name, said in answer_schemas.DESCRIPTIONS.items():
        assert said.keys() - {""} <= schemas[name]["properties"].keys(), name
    assert {name for name, each in schemas.items() if "description" not in each} == {"Me", "Error"}


def test_the_checks_of_the_tests_find_what_is_wrong() -> None:
    good: dict[str, Any] = json.loads(json.dumps(card_entry(card("r-1"))))
    answers.check_command("show", good)
    for wrong in (
        {**good, "colour": "red"},
        {**good, "kind": "letter"},
        {**good, "created_at": "yesterday"},
        {**good, "files": [{**good["files"][0], "more": 1}]},
        {name: each for name, each in good.items() if name != "away"},
    ):
        with pytest.raises(ValidationError):
            answers.check_command("show", wrong)


# --- what a real server answers --------------------------------------------------------------------------------------

#: An agent that people start writes its task, and ends.
AGENT = f'host_cli = "{sys.executable}"\nhost_cli_args = ["-c", "import sys; print(sys.argv[1])"]\n'
ROOMS = "[rooms]\nenabled = true\n"
POLICY = ".intercom/settings.json"
PIN = "correct horse"


@pytest.fixture(scope="module")
def served() -> Iterator[GatewayHome]:
    """A server with rooms, and a gateway that keeps the results of one tool."""
    with gateway_home(config=f"{AGENT}{CONFIG}{ROOMS}") as made:
        made.configure("old", "old", evidence=["big"])
        with made.home.serving():
            trio.run(ready, made)
            yield made


@frozen
class AtWork:
    """An agent at work, and a person whose every answer is checked as it comes."""

    served: GatewayHome
    person: Person
    agent: Client
    workspace: Path
    nursery: trio.Nursery

    async def do(self, command: str, **fields: Any) -> Any:
        """Send a command that must succeed. Returns its data."""
        return await self.person.do(command, **fields)

    async def asks(self, tool: str, /, **arguments: Any) -> str:
        """The agent makes a request. Returns its id."""
        begin(self.nursery, self.agent, tool, **arguments)
        return await self._card(title=arguments.get("title"))

    async def _card(self, **wanted: Any) -> str:
        named = {name: each for name, each in wanted.items() if each is not None}
        found: str = (await self.person.card(status="pending", **named))["request_id"]
        self.person.cards.clear()
        return found

    async def proposes(self, path: str) -> str:
        return await self.asks("check_clearance", title=f"Add {path}", diff="one\ntwo\n", file_path=path)

    async def policy(self, **settings: Any) -> None:
        """Somebody writes the policy of the workspace, and its card comes."""
        file = self.workspace / POLICY
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"enabled": True, **settings}))
        await self._card(kind="policy")

    async def session(self) -> str:
        found = (await self.do("list", everything=True))["sessions"]
        return next(each["session_id"] for each in found if each["workspace_root"] == str(self.workspace))


async def requests(at: AtWork) -> None:
    id = await at.proposes("a.txt")
    await at.do("pending")
    await at.do("show", id=id)
    await at.do("amend", id=id, everything=True)
    await at.do("grant-preview", id=id)
    granted = await at.do("grant", id=id)
    await at.do("grants")
    await at.do("revoke", id=granted["grant_id"])
    await at.do("allow-preview", id=id)
    await at.do("allow", id=id)
    await at.do("approve", id=id, text="well done")
    await at.do("reject", id=await at.proposes("docs/b.md"))
    comment = [{"path": "docs/c.md", "line": 1, "text": "two"}]
    await at.do("changes", id=await at.proposes("docs/c.md"), comments=json.dumps(comment))
    await at.do("answer", id=await at.asks("transmit", prompt_text="Shall I?"), decision="continue")
    assert (await at.do("history"))["requests"]
    assert (await at.do("log"))["entries"]
    assert (await at.do("audit-verify"))["ok"]


async def policies(at: AtWork) -> None:
    await at.policy(tools=["Read"])
    await at.do("policy-list")
    await at.do("policy-show", workspace=str(at.workspace))
    await at.do("policy-accept")
    await at.policy(tools=["Write"])
    await at.do("policy-reject", reason="no")


async def sessions(at: AtWork) -> None:
    session = await at.session()
    await at.do("mode", session=session, mode="hybrid")
    await at.do("nudge-text")
    await at.do("nudge", id=session)
    told = await at.do("steer", session=session, text="mind the tests")
    await at.do("steering")
    await at.do("take-back", id=told["request_id"])
    await at.do("task", workspace=str(at.workspace), text="write the docs")
    await at.do("task-workspace", workspace=str(at.workspace))
    await at.do("tasks", everything=True)
    await at.do("pause", session=session)
    await at.do("unpause", session=session)
    await at.do("pause", session=session)
    await at.do("resume", session=session)


async def started_agents(at: AtWork) -> None:
    started = await at.do("start", text="hello", workspace=str(at.served.home.workspace()), label="first")
    (line,) = [each for each in (await at.do("list"))["sessions"] if each["session_id"] == started["session_id"]]
    assert line["process"]["label"] == "first"
    await at.do("logs", session=started["session_id"])
    await at.do("clear", session=started["session_id"])
    await at.do("clear", interrupted=True)


async def checkpoints(at: AtWork) -> None:
    file = at.workspace / "kept.txt"
    file.write_text("before\n")
    taken = await at.do("checkpoint", session=await at.session(), label="before")
    assert (await at.do("checkpoints"))["checkpoints"]
    file.write_text("after\n")
    asked = await at.do("restore", id=taken["checkpoint_id"], files="back")
    assert asked["diverged"]
    await at.do("restoring", id=asked["restore_id"])
    await at.do("answer", id=asked["restore_id"], decision="cancel")


async def rooms(at: AtWork) -> None:
    id = (await at.do("rooms-create", text="Move the parser", description="split it"))["room_id"]
    joined = await call(at.agent, "join_session", session_id=id, team_name="Alex's Team")
    await call(at.agent, "ack", session_id=id, team_id=joined["team_id"], cursor=1)
    posted = await at.do("rooms-post", id=id, text="who begins?")
    await at.do("rooms-pin", id=id, message=posted["cursor"])
    for command in ("list", "instructions", "url-show"):
        await at.do(f"rooms-{command}")
    assert (await at.do("rooms-show", id=id))["pinned"]
    assert any(each["acks"] for each in (await at.do("rooms-tail", id=id))["messages"])
    await at.do("rooms-unpin", id=id, message=posted["cursor"])
    assert (await at.do("rooms-search", text="begins"))["matches"]
    await at.do("rooms-pause", id=id, reason="lunch")
    await at.do("rooms-resume", id=id)
    await at.do("rooms-conclude", id=id, text="It is moved.")
    assert (await at.do("rooms-versions", id=id))["versions"]
    assert (await at.do("rooms-doc", id=id, diff=True))["diff"]
    await at.do("rooms-export", id=id)
    await at.do("rooms-export", id=id, format="json")
    await at.do("rooms-reopen", id=id)
    await at.do("rooms-token", id=id)
    await at.do("rooms-url", url="https://rooms.example.org")


async def gateway(at: AtWork) -> None:
    await at.agent.call_tool("old__big", {"size": 20})
    for command in ("list", "budgets", "lint"):
        await at.do(f"gateway-{command}")
    await at.do("gateway-show", id="old")
    await at.do("gateway-show", id="old", tool="echo")
    assert (await at.do("gateway-test", id="old"))["attempts"]
    checked = await at.do("gateway-check", id="old", tool="echo", text='["text=hello"]')
    await at.do("gateway-call", id="old", tool="echo", text=checked["arguments"])
    assert (await at.do("gateway-tail"))["calls"]
    (kept,) = (await at.do("gateway-evidence"))["lines"]
    assert (await at.do("gateway-evidence", text=kept["id"]))["exports"]
    await at.do("gateway-explain", role="all")
    await at.do("gateway-explain", role="all", id="old", tool="echo")
    await at.do("gateway-disable", id="new")
    await at.do("gateway-enable", id="new")


async def server(at: AtWork) -> None:
    for command in ("version", "server", "clients", "slack", "tree", "keys", "passkeys"):
        await at.do(command)


async def page(at: AtWork) -> None:
    link = urlsplit((await at.do("web"))["url"])
    browser = Browser(link.port or 0)
    assert (await browser.sign_in(link.fragment.partition("=")[2])).status == 200
    (signed_in,) = (await at.do("people-list"))["signed_in"]
    await at.do("people-sign-out", id=signed_in["browser_id"])
    await at.do("token-add", name="nightly")
    assert (await at.do("token-list"))["tokens"]
    await at.do("token-revoke", name="nightly")
    await at.do("push-key")
    endpoint = "https://push.example.com/x"
    made = await at.do("push-subscribe", url=endpoint, label="a browser", **PushBrowser().keys)
    assert (await at.do("push-list"))["subscriptions"]
    await at.do("push-remove", id=made["push_id"])


async def keys(at: AtWork) -> None:
    """Last: with a key, decisions have to be signed."""
    where = at.served.home.places
    Path(where.config_file).parent.chmod(0o700)
    made = make_key_file(where, PIN, "kim", to_text(datetime.now(UTC)))
    signed = partial(key_fields, public=made.key.public, name=made.key.name, by=made.key.id)
    operator_keys.add_public(where, made.key)
    private = operator_keys.unlock(made, PIN)
    signature = signed("add", sign=private.sign)
    await at.do("key-add", public=made.key.public, name="kim", signature=signature)
    assert (await at.do("keys"))["keys"]
    await at.do("key-revoke", id=made.key.id, signature=signed("revoke", sign=private.sign))


@asynccontextmanager
async def at_work(served: GatewayHome) -> AsyncIterator[AtWork]:
    workspace = served.home.workspace()
    async with served.home.person() as person, served.home.agent(workspace) as agent, trio.open_nursery() as nursery:
        # A session begins with the first call.
        await call(agent, "ping")
        yield AtWork(served, person, agent, workspace, nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.real_time
async def test_every_command_answers_what_its_schema_says(served: GatewayHome) -> None:
    answers.checked.clear()
    async with at_work(served) as at:
        for part in (page, sessions, requests, policies, checkpoints, started_agents, rooms, gateway, server, keys):
            await part(at)
    assert answers.checked == COMMANDS.keys()
