"""Real MCP servers from npm and PyPI behind the gateway: the SDK's client calls them in both protocol versions, and so
do Codex and Claude Code. Each check looks at what a call has done."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
import trio
from mcp import Client

from tests.clients import npm
from tests.clients.at_work import running, said, stand_in
from tests.clients.ctl import ctl
from tests.clients.model import Call, Say, Script, Step, serving
from tests.clients.real_downstreams import RealDownstreams, real_downstreams
from tests.clients.run_codex import PROVIDER
from tests.support.server_process import ERAS

pytestmark = pytest.mark.real_time

#: What each downstream must list at least.
TOOLS: Mapping[str, set[str]] = {
    "everything": {"echo", "get-sum", "get-tiny-image"},
    "files": {"write_file", "read_text_file", "move_file"},
    "memory": {"create_entities", "open_nodes"},
    "playwright": {"browser_navigate", "browser_snapshot"},
    "fetch": {"fetch"},
    "git": {"git_log", "git_status", "git_commit"},
    "time": {"get_current_time", "convert_time"},
}

VERSIONS: Mapping[str, str] = dict(zip(ERAS, ("2026-07-28", "2025-11-25"), strict=True))


@pytest.fixture(scope="module")
def real() -> Iterator[RealDownstreams]:
    with real_downstreams() as made:
        yield made


def text(result: types.CallToolResult) -> str:
    """The first text of a result."""
    first = result.content[0]
    assert isinstance(first, types.TextContent)
    return first.text


async def use(client: Client, tool: str, **arguments: Any) -> types.CallToolResult:
    """Call a tool that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result


async def use_everything(client: Client, real: RealDownstreams, era: str) -> None:
    assert text(await use(client, "everything__echo", message=era)) == f"Echo: {era}"
    assert "42" in text(await use(client, "everything__get-sum", a=2, b=40))
    image = (await use(client, "everything__get-tiny-image")).content
    assert [part.mime_type for part in image if isinstance(part, types.ImageContent)] == ["image/png"]
    reported: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)

    await client.call_tool(
        "everything__trigger-long-running-operation", {"duration": 0.3, "steps": 3}, progress_callback=note
    )
    assert reported == [1, 2, 3]


async def use_files(client: Client, real: RealDownstreams, era: str) -> None:
    file = real.files / f"{era}.txt"
    await use(client, "files__write_file", path=str(file), content=f"written in {era}\n")
    assert file.read_text() == f"written in {era}\n"
    read = await use(client, "files__read_text_file", path=str(file))
    assert read.structured_content == {"content": f"written in {era}\n"}
    outside = await client.call_tool("files__read_text_file", {"path": "/etc/hostname"})
    assert outside.is_error
    assert "outside allowed directories" in text(outside)


async def use_memory(client: Client, real: RealDownstreams, era: str) -> None:
    name = f"Ada-{era}"
    entity = {"name": name, "entityType": "person", "observations": ["wrote the first program"]}
    await use(client, "memory__create_entities", entities=[entity])
    found = await use(client, "memory__open_nodes", names=[name])
    assert found.structured_content == {"entities": [entity], "relations": []}
    assert name in real.memory.read_text()


async def use_playwright(client: Client, real: RealDownstreams, era: str) -> None:
    for tool, arguments in (("browser_navigate", {"url": f"{real.pages.url}/page"}), ("browser_snapshot", {})):
        result = await client.call_tool(f"playwright__{tool}", arguments)
        if result.is_error:
            # Without a browser, what it says about that is what the agent gets.
            assert "npx playwright install" in text(result)
        else:
            assert "Of this test" in text(result) or "A page" in text(result)


async def use_fetch(client: Client, real: RealDownstreams, era: str) -> None:
    real.pages.asked.clear()
    url = f"{real.pages.url}/page"
    assert "Of this test" in text(await use(client, "fetch__fetch", url=url, raw=True))
    # A page's robots.txt is asked for first.
    assert real.pages.asked == ["/robots.txt", "/page"]
    missing = await client.call_tool("fetch__fetch", {"url": f"{real.pages.url}/missing"})
    assert missing.is_error
    assert "404" in text(missing)
    prompt = await client.get_prompt("fetch__fetch", {"url": url})
    assert "Of this test" in str(prompt.messages[0].content)


async def use_git(client: Client, real: RealDownstreams, era: str) -> None:
    repository = str(real.repository)
    file = real.repository / f"{era}.txt"
    file.write_text("new\n")
    assert file.name in text(await use(client, "git__git_status", repo_path=repository))
    await use(client, "git__git_add", repo_path=repository, files=[file.name])
    real.git("config", "user.name", "Kim")
    real.git("config", "user.email", "kim@example.org")
    await use(client, "git__git_commit", repo_path=repository, message=f"Add a file in {era}")
    assert real.git("log", "-1", "--format=%s") == f"Add a file in {era}"
    told = text(await use(client, "git__git_log", repo_path=repository, max_count=9))
    assert "The first commit" in told
    assert real.git("rev-parse", "HEAD") in told


async def use_time(client: Client, real: RealDownstreams, era: str) -> None:
    now = json.loads(text(await use(client, "time__get_current_time", timezone="Asia/Tokyo")))
    assert now["datetime"].endswith("+09:00")
    converted = await use(
        client, "time__convert_time", source_timezone="Asia/Tokyo", time="12:30", target_timezone="Asia/Kolkata"
    )
    told = json.loads(text(converted))
    assert told["target"]["datetime"].endswith("T09:00:00+05:30")
    assert told["time_difference"] == "-3.5h"


USES: Mapping[str, Callable[[Client, RealDownstreams, str], Awaitable[None]]] = {
    "everything": use_everything,
    "files": use_files,
    "memory": use_memory,
    "playwright": use_playwright,
    "fetch": use_fetch,
    "git": use_git,
    "time": use_time,
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("downstream", TOOLS)
async def test_the_sdks_client_lists_and_calls_its_tools(real: RealDownstreams, downstream: str, era: str) -> None:
    async with real.home.agent(real.home.workspace(), mode=era) as client:
        assert client.protocol_version == VERSIONS[era]
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {f"{downstream}__{tool}" for tool in TOOLS[downstream]} <= names
        await USES[downstream](client, real, era)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_a_person_is_asked_for_is_sent_when_it_is_approved(real: RealDownstreams, era: str) -> None:
    before, after = real.files / f"before-{era}", real.files / f"after-{era}"
    before.write_text("moved\n")
    root = real.home.workspace()
    async with (
        real.home.agent(root, mode=era) as client,
        real.home.person(root) as person,
        trio.open_nursery() as nursery,
    ):
        results: list[types.CallToolResult] = []

        async def move() -> None:
            results.append(await use(client, "files__move_file", source=str(before), destination=str(after)))

        nursery.start_soon(move)
        card = await person.card(kind="approval")
        assert before.exists()
        await ctl(real.home, "approve", card["request_id"])
    assert after.read_text() == "moved\n"
    assert not before.exists()
    assert "Successfully moved" in text(results[0])


# --- coding agents ---------------------------------------------------------------------------------------------------


async def echo_and_move(real: RealDownstreams, name: str) -> AsyncGenerator[Step, str]:
    """Have something echoed, then a file moved, and say what was answered."""
    echoed = yield Call("everything__echo", {"message": "from an agent"})
    moved = yield Call(
        "files__move_file", {"source": str(real.files / name), "destination": str(real.files / f"{name}-moved")}
    )
    yield Say(f"echoed: {echoed}\nmoved: {moved}")


async def approve_the_move(real: RealDownstreams, root: Path, name: str, command: list[str], script: Script) -> str:
    """Run an agent with this script, and approve what it asks for; what it says at the end."""
    (real.files / name).write_text("moved\n")
    async with serving(script) as (model, url):
        environ = {"ANTHROPIC_BASE_URL": url}
        config = Path(real.home.environ["CODEX_HOME"]) / "config.toml"
        if config.exists():
            config.write_text(PROVIDER.format(url=url) + config.read_text())
        async with real.home.person(root) as person, running(real.home, root, model, command, environ) as process:
            card = await person.card(kind="approval")
            assert (real.files / name).exists()
            await ctl(real.home, "approve", card["request_id"])
            assert await process.wait() == 0, said(real.home)
            last = (await ctl(real.home, "gateway", "tail"))["calls"][-1]
    assert (real.files / f"{name}-moved").read_text() == "moved\n"
    assert (last["tool"], last["status"], last["request_id"]) == ("move_file", "success", card["request_id"])
    return said(real.home)


def agents_environ(real: RealDownstreams) -> None:
    """Keep the agents' own files in the user's directories here."""
    real.home.environ |= {
        "CODEX_HOME": str(real.home.root / "codex"),
        "STAND_IN_KEY": "none",
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CONFIG_DIR": str(real.home.root / "claude"),
    }


async def connect_without_hooks(real: RealDownstreams, client: str, *words: str) -> None:
    """Let `agent-intercom init` write the client's files. A hook would ask for each call of a downstream, too."""
    stand_in(real.home)
    init = ("init", "--write", "--client", client, *words)
    done = await trio.to_thread.run_sync(lambda: real.home.command(*init))
    assert done.returncode == 0, done.stderr


def a_project(real: RealDownstreams) -> Path:
    root = real.home.workspace()
    (root / ".git").mkdir()
    return root


async def test_codex_calls_downstreams_and_one_call_is_approved(real: RealDownstreams) -> None:
    agents_environ(real)
    root = a_project(real)
    await connect_without_hooks(real, "codex")
    command = [npm.program("codex"), "exec", "--skip-git-repo-check", "greet the world"]
    told = await approve_the_move(real, root, "codex.txt", command, echo_and_move(real, "codex.txt"))
    assert "Echo: from an agent" in told
    assert "Successfully moved" in told


async def test_claude_code_calls_downstreams_and_one_call_is_approved(real: RealDownstreams) -> None:
    agents_environ(real)
    root = a_project(real)
    await connect_without_hooks(real, "claude-code", "--workspace", str(root))
    command = [
        npm.program("claude"),
        *("-p", "greet the world", "--mcp-config", ".mcp.json", "--strict-mcp-config"),
        *("--allowedTools", "mcp__agent-intercom"),
    ]
    told = await approve_the_move(real, root, "claude.txt", command, echo_and_move(real, "claude.txt"))
    assert "Echo: from an agent" in told
    assert "Successfully moved" in told
