"""`agent-intercom-ctl web`: the browser opens a private file, and the link is printed where none can be opened."""

from __future__ import annotations

import json
import webbrowser
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import define, evolve, field

from intercom.cli import ctl_web
from intercom.cli.ctl_web import open_page
from intercom.model.web import SignInLink
from intercom.model.web_role import WebRole
from tests.cli.test_ctl import run
from tests.operators.ctl_server import ctl_server
from tests.operators.stand_in_service import StandInService

LINK = SignInLink("http://127.0.0.1:4000/#sign-in=c0de", datetime(2026, 1, 1, tzinfo=UTC))
DESKTOP = {"DISPLAY": ":0"}


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


@pytest.mark.parametrize("environ", [DESKTOP, {"WAYLAND_DISPLAY": "wayland-0"}, {"BROWSER": "firefox"}])
def test_on_a_desktop_the_browser_gets_the_file_and_not_the_link(browser: Browser, environ: dict[str, str]) -> None:
    assert open_page("/run/a b.html", environ, "linux") is None
    assert browser.opened == ["file:///run/a%20b.html"]


def test_without_a_desktop_no_browser_of_the_terminal_is_started(browser: Browser) -> None:
    assert "no desktop" in (open_page("/x", {}, "linux") or "")
    browser.name = "w3m"
    assert "cannot show the page" in (open_page("/x", DESKTOP, "linux") or "")
    assert browser.opened == []
    browser.name, browser.opens = "firefox", False
    assert open_page("/x", {}, "darwin") == "the browser could not be started"


def test_no_browser_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise webbrowser.Error("none")

    monkeypatch.setattr(webbrowser, "get", none)
    assert "no browser was found" in (open_page("/x", DESKTOP, "linux") or "")


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
        assert b"no desktop" in headless.stderr
        assert b"ssh -L 4000:127.0.0.1:4000" in headless.stderr
        me = links.asked[-1][0]
        assert links.asked[-1] == (me, WebRole.ADMIN, me)
        invited = await run(server.environ, "web", "--role", "viewer", "--name", "Kim")
        assert (invited.returncode, invited.stdout) == (0, f"{LINK.url}\n".encode())
        assert links.asked[-1] == ("Kim", WebRole.VIEWER, me)
        for wrong in (["--name", "Kim"], ["--role", "admin", "--name", "token ci"]):
            assert (await run(server.environ, "web", *wrong)).returncode == 1
        monkeypatch.setattr(ctl_web, "open_page", lambda file, *_: opened.append(file))
        done = await run(server.environ, "web")
        assert done.returncode == 0
        assert b"c0de" not in done.stdout + done.stderr
    assert opened == ["/run/web.html"]
