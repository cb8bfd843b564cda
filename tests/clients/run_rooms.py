"""Codex and Claude Code themselves work together in a room, as /agents.md says: one over MCP, the other with curl.

The scripts in place of their models use what the agents show them: the page, and the answers of tools and commands.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import frozen

from intercom.rooms.instructions import SERVER_NAME
from tests.clients import npm
from tests.clients.at_work import project, running, said
from tests.clients.model import Call, Say, Script, Step, Use, serving
from tests.clients.run_claude_code import home as claude_home
from tests.clients.run_codex import PROVIDER
from tests.clients.run_codex import home as codex_home
from tests.clients.wires import told
from tests.examples.test_rooms import calling, read_room
from tests.rooms.node import Node, nodes
from tests.support.server_process import Home

pytestmark = pytest.mark.real_time

__all__ = ["claude_home", "codex_home"]

TITLE = "Port the parser"


@frozen
class OwnTools:
    """The tools of an agent's own that a script uses. `search` finds MCP tools, if the agent shows only their names."""

    shell: Callable[[str], Use]
    search: Use | None = None


CLAUDE_CODE = OwnTools(
    lambda line: Use("Bash", {"command": line, "description": "Work in the room"}),
    Use("ToolSearch", {"query": f"+{SERVER_NAME}", "max_results": 20}),
)
#: Codex would answer after 10 seconds that a command still runs.
CODEX = OwnTools(lambda line: Use("exec_command", {"cmd": line, "yield_time_ms": 30_000}))

Begin = Callable[[OwnTools], Script]
#: Runs an agent with a prompt and a script. If it gets the text of /agents.md, it is connected over MCP.
Agent = Callable[[Home, str, Begin, str | None], AbstractAsyncContextManager[trio.Process]]


@asynccontextmanager
async def claude_code(home: Home, prompt: str, begin: Begin, page: str | None) -> AsyncIterator[trio.Process]:
    root = project(home)
    command = [npm.program("claude"), "-p", prompt, "--allowedTools", "Bash", f"mcp__{SERVER_NAME}"]
    if page is not None:
        path = f"{Path(command[0]).parent}:{home.environ['PATH']}"
        add = block(page, "claude mcp add")
        await trio.run_process(add, shell=True, cwd=root, env=home.environ | {"PATH": path})
    async with (
        serving(begin(CLAUDE_CODE), SERVER_NAME, own="Bash") as (model, url),
        running(home, root, model, command, {"ANTHROPIC_BASE_URL": url}) as process,
    ):
        yield process


@asynccontextmanager
async def codex(home: Home, prompt: str, begin: Begin, page: str | None) -> AsyncIterator[trio.Process]:
    root = project(home)
    flags = ("--sandbox", "workspace-write", "-c", "sandbox_workspace_write.network_access=true")
    command = [npm.program("codex"), "exec", "--skip-git-repo-check", *flags, prompt]
    config = Path(home.environ["CODEX_HOME"]) / "config.toml"
    config.parent.mkdir()
    async with serving(begin(CODEX), SERVER_NAME, own="exec_command") as (model, url):
        config.write_text(PROVIDER.format(url=url) + ("" if page is None else block(page, "[mcp_servers.")))
        async with running(home, root, model, command, {}) as process:
            yield process


def block(page: str, beginning: str) -> str:
    """Return the block of code in /agents.md that begins so."""
    found = re.search(rf"^```\w+\n({re.escape(beginning)}.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert found is not None, page
    return found[1]


# --- what their models do --------------------------------------------------------------------------------------------


async def convene(url: str, own: OwnTools) -> AsyncGenerator[Step, str]:
    """Over MCP: create the session, give the team that joins its part, and conclude with what that has found."""
    assert "conclude_session" in (yield own.shell(f"curl -sS {url}/agents.md"))
    if own.search is not None:
        yield own.search
    goal = {"title": TITLE, "description": "The lexer and the grammar", "creator_team_name": "Team Alex"}
    created = told((yield Call("create_session", goal)))
    us = {"session_id": created["session_id"], "team_id": created["team_id"]}
    cursor, closed = created["cursor"], False
    while not closed:
        news = told((yield Call("wait_for_messages", us | {"since_cursor": cursor, "timeout": 30})))
        for message in news["messages"]:
            if message.get("event") == "team_joined":
                yield Call("append_to_session_doc", us | {"section": "Notes", "text": "- the lexer is ported"})
                yield Call("post_message", us | {"content": {"text": f"{message['team']}: the grammar"}})
            elif message["from"] == "peer":
                yield Call("conclude_session", us | {"summary_section": f"Resume from: {message['content']['text']}"})
        cursor, closed = news["next_cursor"], news["session_closed"]
    yield Say("the session is concluded")


async def take_part(url: str, own: OwnTools) -> AsyncGenerator[Step, str]:
    """With curl: find the session, join it, do the part that is given, and read the document when it is closed."""
    page = yield own.shell(f"curl -sS {url}/agents.md")
    yield own.shell(f"cat > room.sh <<'END'\n{block(page, 'TEAM=')}END")

    def call(line: str, body: dict[str, object] | None = None) -> Use:
        return own.shell(f". ./room.sh\n{line}" + ("" if body is None else f" @- <<'END'\n{json.dumps(body)}\nEND"))

    def fill(cursor: int) -> Use:
        return own.shell(f"sed -i 's/^TEAM=.*/TEAM={joined['team_id']} ID={room} CURSOR={cursor}/' room.sh")

    room = None
    while room is None:
        active = told((yield call("sleep 1; get '?status=active'")))["sessions"]
        room = next((each["session_id"] for each in active if each["title"] == TITLE), None)
    joined = told((yield call(f"post /{room}/join", {"team_name": "Kim Team"})))
    yield fill(joined["cursor"])
    closed = False
    while not closed:
        news = told((yield call('get "/$ID/messages/wait?since_cursor=$CURSOR&timeout=30"')))
        for message in news["messages"]:
            if message["from"] == "peer":
                part = message["content"]["text"].removeprefix("Kim Team: ")
                yield call("post /$ID/doc/append", {"section": "Notes", "text": f"- {part} is ported"})
                done = call("post /$ID/messages", {"content": {"text": f"{part}, it's ported"}, "key": "done"})
                yield done
                # Again, as if the answer had not arrived.
                yield done
        yield fill(news["next_cursor"])
        closed = news["session_closed"]
    yield Say((yield call("get /$ID/doc")))


# --- the test --------------------------------------------------------------------------------------------------------


@pytest.fixture
def node() -> Iterator[Node]:
    with nodes() as (served,):
        yield served


def instructions(node: Node) -> str:
    """Return what the person reads who connects an agent over MCP."""
    with urllib.request.urlopen(f"{node.url}/agents.md") as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("convener", "team"),
    [
        pytest.param(codex, claude_code, id="Codex over MCP, Claude Code with curl"),
        pytest.param(claude_code, codex, id="Claude Code over MCP, Codex with curl"),
    ],
)
async def test_two_agents_do_their_parts_and_conclude(
    node: Node, codex_home: Home, claude_home: Home, convener: Agent, team: Agent
) -> None:
    homes: dict[Agent, Home] = {codex: codex_home, claude_code: claude_home}
    create = f'Read {node.url}/agents.md, and create the session "{TITLE}" as Team Alex.'
    join = f'Read {node.url}/agents.md, and join the session "{TITLE}" as Kim Team.'
    async with (
        convener(homes[convener], create, partial(convene, node.url), instructions(node)) as leading,
        team(homes[team], join, partial(take_part, node.url), None) as following,
    ):
        assert (await leading.wait(), await following.wait()) == (0, 0)

    async with calling(node) as person:
        (room,) = (await person.get("/api/sessions"))["sessions"]
    assert (room["title"], room["status"]) == (TITLE, "closed")
    document, feed = await read_room(node, room["session_id"])
    assert [(each["cursor"], each.get("event") or each["content"]["text"]) for each in feed] == [
        (1, "team_joined"),
        (2, "Kim Team: the grammar"),
        (3, "the grammar, it's ported"),
        (4, "session_concluded"),
    ]
    notes = "## Notes\n\n- the lexer is ported\n- the grammar is ported\n\n"
    assert document == f"{notes}## Conclusion\n\nResume from: the grammar, it's ported\n"
    assert "the session is concluded" in said(homes[convener])
    assert json.dumps(document) in said(homes[team])
