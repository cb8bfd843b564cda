"""agent-intercom gateway sign-in and sign-out: what they say, and that a server that runs uses the sign-in at once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from intercom.cli import ctl_gateway, main
from intercom.cli.gateway_sign_in import (
    failure_text,
    find,
    page_lines,
    signed_in_lines,
    signed_out_lines,
)
from intercom.gateway.config_directory import Settings
from intercom.gateway.config_directory_check import sign_in_text
from intercom.gateway.credentials import CredentialStore
from intercom.gateway.downstream_config import DownstreamConfig, Transport
from intercom.gateway.http_exchange import NoToken
from intercom.gateway.oauth import OAuthTokens, Revocation, SignedIn, SignedOut, SignInFailed
from intercom.local.places import places
from intercom.model.errors import ConfigError
from tests.gateway.authorization_server import provider
from tests.gateway.http_servers import Request
from tests.gateway.sign_in_command import browse, browse_elsewhere, configure_far, configure_far_in, signing_in
from tests.support.person_shell import the_person
from tests.support.server_process import CTL, TRUSTING, Home, user_home

pytestmark = pytest.mark.real_time

COMMAND = "agent-intercom gateway sign-in far"
CONFIG = f"{TRUSTING}\n[gateway]\nenabled = true\n"


@pytest.fixture
def home() -> Iterator[Home]:
    with user_home(CONFIG) as made:
        yield made


async def shown(home: Home, *words: str) -> str:
    """What ctl prints for people."""
    line = [word for word in CTL if word != "--json"]
    done = await the_person().run_async([*line, "gateway", *words], home.environ)
    return done.stdout + done.stderr


async def run(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    return await trio.to_thread.run_sync(partial(home.command, *words))


def says(text: str) -> Any:
    return lambda notice: text in json.dumps(notice)


async def greeting(client: Any) -> str:
    """What an agent's call of the tool is answered with."""
    return str((await client.call_tool("far__greet", {"name": "Kim"})).content[0].text)


@pytest.mark.real_time(seconds=300)
async def test_agents_can_call_between_a_sign_in_and_a_sign_out(home: Home) -> None:
    async with provider() as found:
        found.metadata = {"revocation_endpoint": f"{found.base}/revoke"}
        configure_far(home, f"{found.base}/mcp")
        with home.serving():
            async with home.agent(home.workspace()) as client, home.person() as person:
                # Without a sign-in: every surface names the command.
                while COMMAND not in await shown(home, "list"):
                    pass
                assert f"-> {COMMAND}\n" in await shown(home, "show", "far")
                assert f"-> run {COMMAND};" in await shown(home, "test", "far")
                assert f"run {COMMAND}\n" in (await run(home, "doctor")).stdout
                refused = await shown(home, "call", "far", "greet", '{"name": "Kim"}')
                assert f"needs sign-in: nobody has signed in: run '{COMMAND}'" in refused
                assert "only the person can end that: tell them" in refused

                async with signing_in(home, "far") as command:
                    assert await browse(await command.address()) == 200
                    code, said = await command.end()
                assert (code, "granted: read, write" in said, "Intercom renews it" in said) == (0, True, True)
                assert "token-" not in said
                await person.notice(says("far is ready"))
                assert await greeting(client) == "hello Kim"

                # The authorization server ends the sign-in.
                found.valid = set()
                found.override = refuse_refresh
                assert f"needs sign-in: the authorization server has ended the sign-in: run '{COMMAND}'" in (
                    await greeting(client)
                )
                found.override = None
                person.notices.clear()
                async with signing_in(home, "far", SSH_CONNECTION="198.51.100.1 1 198.51.100.2 22") as command:
                    address = await command.address()
                    assert any("ssh -N -L " in line for line in command.lines)
                    good = await browse_elsewhere(address)
                    await command.paste("http://evil.example/callback?code=x&state=y")
                    assert "paste the whole address" in command.lines[-1]
                    await command.paste("\x1b[2J")
                    await command.paste(good)
                    code, said = await command.end()
                assert (code, "\x1b" in said) == (0, False)
                await person.notice(says("far is ready"))
                assert await greeting(client) == "hello Kim"

                done = await run(home, "gateway", "sign-out", "far")
                assert (done.returncode, "has ended the token" in done.stdout) == (0, True)
                assert found.revoked == [f"refresh-{found.count}"]
                await person.notice(says("needs sign-in"))
                assert COMMAND in await greeting(client)
    assert "nobody has signed in to far" in (await run(home, "gateway", "sign-out", "far")).stdout


async def refuse_refresh(request: Request) -> bool:
    if request.path != "/oauth/token":
        return False
    await request.json_response({"error": "invalid_grant"}, status=400)
    return True


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.real_time(seconds=300)
async def test_a_person_may_interrupt_it(home: Home) -> None:
    async with provider() as found:
        configure_far(home, f"{found.base}/mcp")
        async with signing_in(home, "far") as command:
            await command.address()
            command.process.send_signal(signal.SIGINT)
            code, said = await command.end()
    assert (code, "Traceback" in said) == (130, False)
    assert said.endswith("agent-intercom: interrupted; what was stored before is still there")


async def sign_in_here(url: str, *words: str, **settings: object) -> int:
    """Run the command in this process, for the user whose directories the environment names."""
    configure_far_in(Path(places().gateway_directory), url, **settings)
    line = ["gateway", "sign-in", "far", "--no-browser", *words]
    return await trio.to_thread.run_sync(main.main, line)


async def test_nobody_finishes_the_sign_in(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with provider() as found:
        assert await sign_in_here(f"{found.base}/mcp", "--wait", "0.3") == 1
    # A machine that is busy does not even show the page in this time.
    assert "within 0.3 s: sign in again" in capsys.readouterr().err


async def test_the_person_refuses_in_the_browser(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with provider() as found, trio.open_nursery() as nursery:
        found.override = refuse_page
        nursery.start_soon(browse_when_shown, capsys, said := [])
        assert await sign_in_here(f"{found.base}/mcp") == 1
    assert said
    reason = "the sign-in was refused in the browser (access_denied)"
    assert capsys.readouterr().err == f"agent-intercom: not signed in to far: {reason}\n"


async def test_a_browser_that_only_returns_when_it_is_closed_holds_nothing_up(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = threading.Event()

    class Browser:
        def open(self, address: str) -> bool:
            with httpx2.Client(trust_env=False, follow_redirects=True) as client:
                client.get(address)
            return closed.wait()

    monkeypatch.setenv("BROWSER", "mine")
    monkeypatch.setattr("webbrowser.get", Browser)
    async with provider() as found:
        configure_far_in(Path(places().gateway_directory), f"{found.base}/mcp")
        assert await trio.to_thread.run_sync(main.main, ["gateway", "sign-in", "far", "--wait", "50"]) == 0
    closed.set()
    assert "signed in to far" in capsys.readouterr().out


async def test_without_a_browser_the_person_is_told_to_open_the_address(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BROWSER", "/nowhere/browser")
    async with provider() as found, trio.open_nursery() as nursery:
        # Without that sentence nobody browses, and the sign-in fails.
        until = "the browser could not be started: open the address yourself"
        nursery.start_soon(browse_when_shown, capsys, [], until)
        configure_far_in(Path(places().gateway_directory), f"{found.base}/mcp")
        assert await trio.to_thread.run_sync(main.main, ["gateway", "sign-in", "far", "--wait", "50"]) == 0
    assert "signed in to far" in capsys.readouterr().out


async def browse_when_shown(capsys: pytest.CaptureFixture[str], said: list[str], until: str = "waiting up to") -> None:
    """Open the address in a browser as soon as this is said."""
    while not any(line.startswith(until) for line in said):
        said += capsys.readouterr().out.splitlines()
        await trio.sleep(0.01)  # nothing tells of what a thread prints
    await browse(next(line.strip() for line in said if line.startswith("  http")))


@pytest.mark.parametrize(
    ("url", "settings", "reason"),
    [
        (
            "https://mcp.example.org/mcp",
            {"headers": {"authorization": "Bearer x"}},
            "remove Authorization from headers",
        ),
        ("${FAR_URL}", {}, "FAR_URL, which is not set here"),
    ],
)
async def test_a_configuration_that_cannot_sign_in(
    own_home: Path, capsys: pytest.CaptureFixture[str], url: str, settings: dict[str, object], reason: str
) -> None:
    assert await sign_in_here(url, **settings) == 2
    assert reason in capsys.readouterr().err


def test_a_damaged_file_is_named(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure_far_in(Path(places().gateway_directory), "https://mcp.example.org/mcp")
    file = Path(places().gateway_credentials) / "far.json"
    file.parent.mkdir(mode=0o700, parents=True)
    file.touch(0o600)
    file.write_text("{")
    assert main.main(["gateway", "sign-in", "far"]) == 1
    assert "far.json is damaged: remove it, and sign in again" in capsys.readouterr().err
    assert main.main(["gateway", "sign-out", "far"]) == 0
    assert not file.exists()


@pytest.mark.parametrize("action", ["sign-in", "sign-out"])
def test_a_name_that_is_none(own_home: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    assert main.main(["gateway", action, "../far\x1b[2J"]) == 2
    said = capsys.readouterr().err
    assert "no MCP server is called" in said
    assert "\x1b" not in said


def test_a_mistyped_name_says_what_it_may_mean(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configure_far_in(Path(places().gateway_directory), "https://mcp.example.org/mcp")
    assert main.main(["gateway", "sign-in", "fra"]) == 2
    assert "no MCP server is called 'fra'; did you mean far? those with a sign-in are: far" in capsys.readouterr().err


async def refuse_page(request: Request) -> bool:
    if not request.path.startswith("/authorize"):
        return False
    query = request.query
    await request.respond(302, location=f"{query['redirect_uri']}?error=access_denied&state={query['state']}")
    return True


async def test_a_hostile_page_cannot_write_to_the_terminal(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def lie(request: Request) -> bool:
        if request.path != "/oauth/token":
            return False
        text = "\x1b[2J\nsigned in to far" + "x" * 5000
        await request.respond(400, text.encode())
        return True

    async with provider() as found, trio.open_nursery() as nursery:
        found.override = lie
        nursery.start_soon(browse_when_shown, capsys, [])
        assert await sign_in_here(f"{found.base}/mcp") == 1
    said = capsys.readouterr().err
    assert ("\x1b" in said, "\nsigned in" in said) == (False, False)
    assert len(said) < 600


# --- what is said ----------------------------------------------------------------------------------------------------

FAR = DownstreamConfig("far", Transport.HTTP, ("far.*",), "1.0.0", base_url="https://mcp.example.org/mcp")
PAGE = "{page}/authorize?state=x&redirect_uri=http%3A%2F%2F127.0.0.1%3A4711%2Fcallback"


def test_a_page_of_another_host_is_pointed_out() -> None:
    own = page_lines(FAR, PAGE.format(page="https://mcp.example.org"), {})
    assert own[0] == "its sign-in page is at https://mcp.example.org"
    other = page_lines(FAR, PAGE.format(page="https://login.example.net"), {})
    assert other[0].startswith(
        "its sign-in page is at https://login.example.net, which https://mcp.example.org has named"
    )
    assert "http://127.0.0.1:4711/callback?" in "\n".join(other)
    assert not any("ssh" in line for line in other)


@pytest.mark.parametrize(
    ("expires_at", "is_refreshable", "said"),
    [
        (None, True, "until its server ends it"),
        (1_000_000.0, True, "until 1970-01-12 13:46 UTC; Intercom renews it by itself"),
        (1_000_000.0, False, "until 1970-01-12 13:46 UTC; then run agent-intercom gateway sign-in far again"),
    ],
)
def test_what_was_granted_is_said(expires_at: float | None, is_refreshable: bool, said: str) -> None:
    done = SignedIn("far", "https://login.example.net", ("read",), expires_at, is_refreshable)
    text = "\n".join(signed_in_lines(done, is_on=True))
    assert "granted: read" in text
    assert said in text
    assert "agent-intercom-ctl gateway list" in text
    assert "the gateway is off" in "\n".join(signed_in_lines(done, is_on=False))


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (SignedOut("far", "https://a.example", Revocation.DONE), "https://a.example has ended the token"),
        (SignedOut("far", "https://a.example", Revocation.FAILED), "https://a.example did not confirm"),
        (SignedOut("far", "https://a.example", Revocation.NOT_OFFERED), "https://a.example offers no way"),
        (SignedOut("far"), "its authorization server was not asked"),
    ],
)
def test_what_a_sign_out_could_not_end_is_said(done: SignedOut, said: str) -> None:
    assert said in "\n".join(signed_out_lines(done))


def test_a_secret_in_what_a_server_said_is_masked() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    text = failure_text("far", SignInFailed("it failed", f"no\n{'x' * 290} {secret}"))
    assert "it failed (it said: no x" in text
    assert "a1B2" not in text


async def test_the_command_that_errors_name_is_one(tmp_path: Path) -> None:
    none = await OAuthTokens(FAR, CredentialStore(tmp_path))()
    assert isinstance(none, NoToken)
    [named] = re.findall(r"run '(.*)'", none.reason)
    assert named == COMMAND == f"{ctl_gateway.SIGN_IN} far"
    assert COMMAND in sign_in_text("far")
    options = main.parser().parse_args(named.split()[1:])
    assert (options.command, options.action, options.name) == ("gateway", "sign-in", "far")


def test_a_name_that_has_no_sign_in_is_explained() -> None:
    local = DownstreamConfig("files", Transport.STDIO, ("files.*",), "1.0.0", command="x")
    settings = Settings({"far": FAR, "files": local}, faults=("/g/bad.json: is not JSON: correct that place",))
    assert find("far", settings) is FAR
    with pytest.raises(ConfigError, match="is a program on this machine"):
        find("files", settings)
    with pytest.raises(ConfigError, match=r"those with a sign-in are: far$"):
        find("nothing", settings)
    with pytest.raises(ConfigError, match=r"its file has a fault: /g/bad\.json"):
        find("bad", settings)
    with pytest.raises(ConfigError, match=r"^/g/bad\.json: is not JSON"):
        find("bad", Settings(faults=settings.faults))
