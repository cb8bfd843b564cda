"""The person's browser: it opens a private file, and the link is printed where none can be opened."""

from __future__ import annotations

import json
import webbrowser
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import define, evolve, field

from intercom.cli import browser as browser_module
from intercom.cli.browser import has_screen, open_in_browser
from intercom.model.web import ApiToken, NewToken, SignInLink
from intercom.model.web_role import WebRole
from tests.cli.test_ctl import run
from tests.operators.ctl_server import ctl_server
from tests.operators.stand_in_service import StandInService

LINK = SignInLink("http://127.0.0.1:4000/#sign-in=c0de", datetime(2026, 1, 1, tzinfo=UTC))


@define
class Browser:
    """A browser that opens what it is given, or does not."""

    name: str = "xdg-open"
    opens: bool = True
    opened: list[str] = field(factory=list)

    def open(self, url: str) -> bool:
        self.opened.append(url)
        return self.opens


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    found = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: found)
    return found


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "a"}, "linux", False),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", False),
        ({"SSH_TTY": "/dev/pts/1", "BROWSER": "code-open"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
    ],
)
def test_a_browser_is_opened_where_the_person_sees_it(environ: dict[str, str], platform: str, expected: bool) -> None:
    assert has_screen(environ, platform) is expected


def test_a_browser_of_the_terminal_is_not_started(browser: Browser) -> None:
    browser.name = "/usr/bin/w3m"
    assert "cannot show the page" in (open_in_browser("http://localhost") or "")
    assert browser.opened == []
    browser.name, browser.opens = "firefox", False
    assert open_in_browser("http://localhost") == "the browser could not be started"


def test_no_browser_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise webbrowser.Error("none")

    monkeypatch.setattr(webbrowser, "get", none)
    assert "no browser was found" in (open_in_browser("http://localhost") or "")


class Links:
    def __init__(self) -> None:
        self.asked: list[tuple[str, WebRole, str]] = []

    async def sign_in_link(
        self, name: str, *, role: WebRole = WebRole.ADMIN, by: str = "", with_file: bool = False
    ) -> SignInLink:
        self.asked.append((name, role, by))
        return evolve(LINK, file="/run/web.html") if with_file else LINK


@pytest.mark.real_time
async def test_the_link_is_printed_alone_and_the_rest_is_said_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    service = StandInService()
    async with ctl_server(tmp_path, service) as server:
        refused = await run(server.environ, "web")
        assert refused.returncode == 1
        assert b"this server has no page: set enabled under [web]" in refused.stderr
        service.web = links = Links()
        done = await run(server.environ, "--json", "web")
        assert json.loads(done.stdout) == {
            "url": LINK.url,
            "expires_at": "2026-01-01T00:00:00.000000+00:00",
            "file": None,
        }
        printed = await run(server.environ, "web", "--print")
        assert (printed.returncode, printed.stdout) == (0, f"{LINK.url}\n".encode())
        assert b"within 60 s" in printed.stderr
        headless = await run(server.environ, "web")
        assert (headless.returncode, headless.stdout) == (0, f"{LINK.url}\n".encode())
        assert b"would not be on your screen" in headless.stderr
        assert b"ssh -L 4000:127.0.0.1:4000" in headless.stderr
        me = links.asked[-1][0]
        assert links.asked[-1] == (me, WebRole.ADMIN, me)
        invited = await run(server.environ, "web", "--role", "viewer", "--name", "Kim")
        assert (invited.returncode, invited.stdout) == (0, f"{LINK.url}\n".encode())
        assert links.asked[-1] == ("Kim", WebRole.VIEWER, me)
        for wrong in (["--name", "Kim"], ["--role", "admin", "--name", "token ci"]):
            assert (await run(server.environ, "web", *wrong)).returncode == 1
        monkeypatch.setattr(browser_module, "has_screen", lambda *_: True)
        monkeypatch.setattr(browser_module, "open_in_browser", opened.append)
        done = await run(server.environ, "web")
        assert done.returncode == 0
        assert b"c0de" not in done.stdout + done.stderr
    assert opened == ["file:///run/web.html"]


class Tokens:
    """A page with one token."""

    made = ApiToken(
        "1", "nightly", WebRole.OPERATOR, "0" * 64, LINK.expires_at, "alex", LINK.expires_at + timedelta(days=30)
    )

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    async def add_token(self, name: str, role: WebRole, days: int | None, by: str) -> NewToken:
        self.asked.append((name, role, days))
        return NewToken(self.made, "intercom_5ec4e7", "http://localhost:4000")

    async def tokens(self) -> tuple[ApiToken, ...]:
        return (self.made,)

    async def revoke_token(self, name: str, by: str) -> ApiToken:
        self.asked.append((name,))
        return self.made


@pytest.mark.real_time
async def test_a_token_is_printed_alone_and_listed_without_its_secret(tmp_path: Path) -> None:
    service = StandInService()
    service.web = page = Tokens()
    async with ctl_server(tmp_path, service) as server:
        made = await run(server.environ, "token", "add", "nightly", "--role", "operator", "--days", "30")
        assert (made.returncode, made.stdout) == (0, b"intercom_5ec4e7\n")
        assert b"the token nightly has the role operator until 2026-01-31" in made.stderr
        assert b"http://localhost:4000/api/operator" in made.stderr
        listed = await run(server.environ, "token", "list")
        assert b"nightly  operator  alex" in listed.stdout
        as_json = json.loads((await run(server.environ, "--json", "token", "list")).stdout)
        assert as_json["tokens"][0].keys() == {"name", "role", "created_at", "created_by", "expires_at"}
        revoked = await run(server.environ, "token", "revoke", "nightly")
        assert (revoked.returncode, revoked.stdout) == (0, b"revoked the token nightly\n")
        assert page.asked == [("nightly", WebRole.OPERATOR, 30), ("nightly",)]
        assert (await run(server.environ, "token", "add", "x", "--role", "admin")).returncode == 1
