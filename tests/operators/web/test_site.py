"""The page's port, over real sockets: who gets in, what they may do, and what the answers look like."""
# ruff: noqa: ASYNC240 - files of one line

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Send

from actors import ask
from actors.events import ActorRestarted
from intercom.local.own_files import replace
from intercom.local.places import places, private_directory
from intercom.local.processes import ProcessKey, examine
from intercom.model.card import CardState, Notice
from intercom.model.config import WebSettings
from intercom.model.errors import IpcError
from intercom.model.web_role import WebRole
from intercom.operators.authorization import AWAIT_SECONDS
from intercom.operators.commands.command_table import COMMANDS, MAX_REQUEST
from intercom.operators.router_messages import Channel, Subscribe
from intercom.operators.web import site
from intercom.operators.web.events import EventLog
from intercom.operators.web.listener import IsNeeded
from intercom.operators.web.passkeys import Proposals
from intercom.operators.web.sign_in import IDLE_LIFE, LINK_LIFE, LONGEST_LIFE, SignIns, may_use, new_secret
from intercom.operators.web.site import SiteDeps, WebSite
from intercom.store.store_and_reader import StoreUnavailable
from intercom.web_server import server as web_server
from intercom.web_server.acceptor import ConnectionProcesses
from intercom.web_server.server import Connection
from tests.operators.ctl_server import environ
from tests.operators.stand_in_service import START, StandInAgents, StandInService, card
from tests.operators.web.page_server import API, Browser, Clock, page_server
from tests.support.http_responses import Response, request
from tests.support.virtual_server import Operator

pytestmark = pytest.mark.real_time

#: Of no process that is there.
HIDDEN = frozenset({ProcessKey(1, 1, "another")})


def parent() -> frozenset[ProcessKey]:
    """The process that started the tests."""
    return frozenset({examine(os.getppid()).key})


def error(answer: Response) -> tuple[int, str]:
    return answer.status, answer.json()["error"]["code"]


# --- signing in ------------------------------------------------------------------------------------------------------


async def test_a_link_signs_in_one_browser_once(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        link = await server.link()
        base, _, code = link.url.partition("/#sign-in=")
        assert base == f"http://localhost:{server.port}"
        assert len(code) == 64
        file = Path(link.file or "")
        assert link.url in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
        browser = Browser(server.port)
        assert error(await browser.get(f"{API}/me")) == (401, "unauthorized")
        assert (await browser.sign_in(code)).status == 200
        assert browser.me["name"] == "kim"
        assert browser.me["role"] == "admin"
        assert browser.me["signing"] == {"required": False}
        assert browser.me["server"]["rooms"] is False
        assert (await browser.get(f"{API}/me")).json() == browser.me
        ((summary, data),) = server.service.events
        assert summary == "kim signed in to the page"
        assert data["origin"]["pid"] == os.getpid()
        again = await Browser(server.port).sign_in(code)
        assert error(again) == (401, "unauthorized")
        assert code not in again.body.decode()
        # It was the same process, and the file still leads there: to it the link was used before, and no more.
        assert (await browser.get(f"{API}/me")).status == 200
        assert file.exists()


async def test_what_comes_after_a_sign_out_does_nothing_though_its_head_came_before(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service) as server:
        browser = await server.browser()
        other = evolve(browser)
        browser.before_body = partial(other.post, "/sign-out", {})
        assert error(await browser.command("approve", id="a-1")) == (401, "unauthorized")
        assert service.acts == []


async def test_a_link_that_somebody_used_before_the_persons_browser_signs_in_neither(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        operator = Operator()
        server.system.adopt(operator, "operator")
        await ask(server.system.named("card_router"), Subscribe("operator", Channel.CTL))
        code = await server.code()
        thief = Browser(server.port)
        await thief.sign_in(code)
        kept = server.sign_ins._sessions
        for name, session in [*kept.items()]:
            # As if another process had it. This one is the person's browser.
            kept[name] = evolve(session, processes=HIDDEN)
        assert error(await Browser(server.port).sign_in(code)) == (401, "unauthorized")
        await operator.notice("a link of kim to the page was opened in two browsers, last with python")
        assert not kept
        assert error(await thief.get(f"{API}/me")) == (401, "unauthorized")
        assert "it signs in neither" in server.service.events[-1][0]


async def test_each_sign_in_with_a_program_that_is_not_shown_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finds_none(*_: object) -> frozenset[int]:
        return frozenset()

    monkeypatch.setattr("intercom.web_server.acceptor.ConnectionProcesses.find", finds_none)
    async with page_server(tmp_path) as server:
        operator = Operator()
        server.system.adopt(operator, "operator")
        await ask(server.system.named("card_router"), Subscribe("operator", Channel.CTL))
        await server.browser()
        await server.browser()
        server.tell(Notice("last", "info", START))
        await operator.notice("last")
        assert [each.text for each in operator.notices[:-1]] == [
            "kim signed in to the page with a program that the system does not show"
        ] * 2


async def test_the_first_sign_in_of_each_program_is_announced(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        operator = Operator()
        server.system.adopt(operator, "operator")
        await ask(server.system.named("card_router"), Subscribe("operator", Channel.CTL))
        await server.browser()
        await operator.notice("kim signed in to the page for the first time since the server started, with python")
        await server.browser()
        server.tell(Notice("last", "info", START))
        await operator.notice("last")
        assert len(operator.notices) == 2


async def test_a_link_that_is_too_old_signs_nobody_in(tmp_path: Path) -> None:
    now = START
    async with page_server(tmp_path, clock=lambda: now) as server:
        code = await server.code()
        now += 2 * LINK_LIFE
        refused = await Browser(server.port).sign_in(code)
        assert error(refused) == (401, "unauthorized")
        assert "older than 60 s" in refused.body.decode()


async def test_a_sign_in_ignores_the_cookie_that_the_browser_had(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        code = await server.code()
        fixed = f"intercom_session_{server.port}={new_secret()}"
        victim = Browser(server.port, cookie=fixed)
        done = await victim.sign_in(code)
        assert victim.cookie != fixed
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(done.headers["set-cookie"].split("; "))
        assert error(await Browser(server.port, cookie=fixed).get(f"{API}/me")) == (401, "unauthorized")


async def test_a_sign_out_ends_the_session_and_its_stream(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        async with browser.events() as stream:
            await stream.until_ready()
            assert error(await browser.post("/sign-out", {}, X_Intercom_CSRF=None)) == (403, "unauthorized")
            done = await browser.post("/sign-out", {})
            assert (done.status, done.body) == (204, b"")
            assert "Max-Age=0" in done.headers["set-cookie"]
            with pytest.raises(EOFError):
                await stream.next()
        assert error(await browser.get(f"{API}/me")) == (401, "unauthorized")


async def test_an_agents_process_can_use_neither_a_link_nor_a_session(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service) as server:
        browser, code = await server.browser(), await server.code()
        service.clients = frozenset({os.getpid()})
        assert error(await Browser(server.port).sign_in(code)) == (403, "unauthorized")
        refused = await browser.command("approve", id="a-1")
        assert error(refused) == (403, "unauthorized")
        assert "an agent's own processes may not answer for it" in refused.body.decode()
        assert (await browser.command("pending")).status == 200
        assert service.acts == []
        assert any(summary.startswith("refused sign-in: ") for summary, _ in service.events)
        service.clients = frozenset()
        # The link is used up, also by an agent.
        assert error(await Browser(server.port).sign_in(code)) == (401, "unauthorized")


async def test_a_stolen_cookie_is_of_no_use_to_another_process(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(card("a-1"))) as server:
        browser = await server.browser()
        kept = server.sign_ins._sessions
        for name, session in [*kept.items()]:
            kept[name] = evolve(session, processes=parent())
        for answer in (await browser.get(f"{API}/me"), await browser.command("approve", id="a-1")):
            assert error(answer) == (401, "unauthorized")
            assert "is not the browser that signed in" in answer.body.decode()
        assert server.service.acts == []
        # People are told once.
        assert len([said for said, _ in server.service.events if "is not the browser that signed in" in said]) == 1


async def test_a_browser_that_begins_again_with_its_old_cookie_is_no_theft(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser, other = await server.browser(), await server.browser()
        kept = server.sign_ins._sessions
        first, *_ = kept
        kept[first] = evolve(kept[first], processes=HIDDEN)
        refused = await browser.get(f"{API}/me")
        assert error(refused) == (401, "unauthorized")
        assert "nobody is signed in in this browser, or not any more" in refused.body.decode()
        assert {said for said, _ in server.service.events} == {"kim signed in to the page"}
        (left,) = server.sign_ins.every()
        assert (await other.get(f"{API}/me")).status == 200
        assert left.csrf == other.csrf


async def test_a_tab_that_is_closed_at_once_is_no_theft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_late, find = False, ConnectionProcesses.find

    async def finds(processes: ConnectionProcesses, connection: Connection) -> frozenset[int]:
        while is_late and not connection.is_left:
            await trio.lowlevel.checkpoint()
        return frozenset() if is_late else await find(processes, connection)

    monkeypatch.setattr(ConnectionProcesses, "find", finds)
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        is_late = True
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            await stream.send_all(request("GET", f"{API}/me", browser.headers()))
            await stream.send_eof()
            # Only then it was looked for.
            assert b"the client closed its connection" in await stream.receive_some(65536)
        assert [said for said, _ in server.service.events] == ["kim signed in to the page"]


async def test_while_agents_of_an_earlier_run_may_come_back_nothing_is_decided(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    agents = StandInAgents(service)
    async with page_server(tmp_path, service, agents=agents) as server:
        browser = await server.browser()
        agents.awaited = 2
        refused = await browser.command("approve", id="a-1")
        assert error(refused) == (503, "unavailable")
        assert 0 < refused.json()["error"]["retry_after"] <= AWAIT_SECONDS + 0.1
        assert (await browser.command("pending")).status == 200
        assert service.acts == []


async def test_a_link_stays_good_if_a_passing_failure_kept_it_from_signing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = StandInService()
    agents, find, too_slow = StandInAgents(service), ConnectionProcesses.find, [True]

    async def finds(processes: ConnectionProcesses, connection: Connection) -> frozenset[int]:
        if too_slow:
            too_slow.clear()
            raise trio.TooSlowError
        return await find(processes, connection)

    monkeypatch.setattr(ConnectionProcesses, "find", finds)
    async with page_server(tmp_path, service, agents=agents) as server:
        code, agents.awaited = await server.code(), 2
        for why in ("the process of this connection could not be found", "the server has just started"):
            refused = await Browser(server.port).sign_in(code)
            assert error(refused) == (503, "unavailable")
            assert why in refused.body.decode()
        agents.awaited = 0
        assert (await Browser(server.port).sign_in(code)).status == 200
        assert [said for said, _ in service.events] == ["kim signed in to the page"]


# --- other pages, other names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, (421, "host_refused")),
        ({"Host": "127.0.0.1"}, (421, "host_refused")),
        ({"Host": "127.0.0.1:1"}, (421, "host_refused")),
        ({"Host": "127.0.0.1:{port}.evil.example"}, (421, "host_refused")),
        ({"Host": "[::1]:{port}"}, (421, "host_refused")),
        ({"Origin": "http://evil.example"}, (403, "origin_refused")),
        ({"Origin": "null"}, (403, "origin_refused")),
        # Another local server: to a browser it is the same site, so it gets the cookie.
        ({"Origin": "http://127.0.0.1:1"}, (403, "origin_refused")),
        ({"Origin": "http://127.0.0.1:{port}"}, (403, "origin_refused")),
        ({"Host": "127.0.0.1:{port}"}, (403, "origin_refused")),
        ({"Origin": "http://[::1]:{port}"}, (403, "origin_refused")),
        ({"Origin": "https://localhost:{port}"}, (403, "origin_refused")),
        ({"Sec-Fetch-Site": "cross-site"}, (403, "origin_refused")),
        ({"Sec-Fetch-Site": "same-site"}, (403, "origin_refused")),
        ({"X-Intercom-CSRF": None}, (403, "unauthorized")),
        ({"X-Intercom-CSRF": "0" * 64}, (403, "unauthorized")),
        # What a form of another page can send.
        ({"Content-Type": "text/plain"}, (415, "invalid_arguments")),
        ({"Content-Type": "application/x-www-form-urlencoded"}, (415, "invalid_arguments")),
        ({"Content-Type": None}, (415, "invalid_arguments")),
        ({"Cookie": None}, (401, "unauthorized")),
    ],
)
async def test_a_request_of_another_page_does_nothing(
    tmp_path: Path, headers: dict[str, str | None], expected: tuple[int, str]
) -> None:
    async with page_server(tmp_path, StandInService(card("a-1"))) as server:
        browser = await server.browser()
        told = {name: value if value is None else value.format(port=server.port) for name, value in headers.items()}
        answer = await browser.post("/commands/approve", {"id": "a-1"}, **told)
        assert error(answer) == expected
        assert server.service.acts == []


async def test_every_answer_keeps_other_pages_out(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        answers = [
            await browser.get("/"),
            await browser.get("/nothing"),
            await browser.get(f"{API}/me"),
            await browser.get(f"{API}/nothing"),
            await browser.command("nothing"),
            # The web server refuses this by itself.
            await browser.raw(b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n"),
        ]
        assert [each.status for each in answers] == [200, 404, 200, 404, 404, 400]
        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert answer.headers["cache-control"] == "no-store"


# --- roles and commands ----------------------------------------------------------------------------------------------


async def test_a_role_does_not_reach_further_than_its_word(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service) as server:
        viewer, operator = await server.browser(WebRole.VIEWER), await server.browser(WebRole.OPERATOR)
        assert (await viewer.command("pending")).json()["data"][0]["request_id"] == "a-1"
        for name, row in COMMANDS.items():
            for browser, role in ((viewer, WebRole.VIEWER), (operator, WebRole.OPERATOR)):
                if not may_use(role, row):
                    refused = await browser.command(name, id="a-1")
                    assert error(refused) == (403, "unauthorized"), name
                    assert name in refused.body.decode()
        # No spelling of a name gets around that.
        for name in ("APPROVE", "approve/", "%2e/approve", "approve%00", "approve?x=list", "list/../approve"):
            status, _ = error(await viewer.command(name, id="a-1"))
            assert status == (403 if "?" in name else 404)
        # A link would make a viewer an admin.
        assert error(await (await server.browser()).command("web")) == (403, "unauthorized")
        assert service.acts == []
        assert (await operator.command("approve", id="a-1")).status == 200
        assert service.acts == [("decide", "a-1", "approve", None, "kim", "web")]


async def test_a_link_for_somebody_else_is_on_record_with_who_made_it(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service) as server:
        code = await server.code(WebRole.VIEWER, by="alex")
        browser = Browser(server.port)
        await browser.sign_in(code)
        assert (browser.me["name"], browser.me["role"]) == ("kim", "viewer")
        # What it shows before it signs in, or asks for in the body, makes it no admin.
        more = Browser(server.port, cookie=browser.cookie, csrf=browser.csrf)
        await more.post("/sign-in", {"code": await server.code(WebRole.VIEWER, by="alex"), "role": "admin"})
        assert (await more.get(f"{API}/me")).json()["role"] == "viewer"
        (made, by), (signed_in, who), *_ = service.events
        assert made == "alex made a link to the page for kim"
        assert by == {"user": "alex", "for": "kim", "role": "viewer"}
        assert signed_in == "kim signed in to the page as viewer, with a link that alex made"
        assert (who["user"], who["by"], who["role"]) == ("kim", "alex", "viewer")


async def test_people_and_roles_are_listed_and_an_admin_signs_a_browser_out(tmp_path: Path) -> None:
    service = StandInService()
    settings = WebSettings(
        port=4321,
        public_url="https://page.example.org",
        members={"zoe@example.org": WebRole.OPERATOR, "kim@example.org": WebRole.ADMIN},
    )
    async with page_server(tmp_path, service, settings=settings) as server:
        service.web = server.links
        admin, viewer = await server.browser(), await server.browser(WebRole.VIEWER)
        assert (await viewer.command("people-list")).json()["data"]["in_slack"] is None
        service.chat_people = ("U012AB3CD",)
        listed = (await viewer.command("people-list")).json()["data"]
        assert listed["in_slack"] == ["U012AB3CD"]
        assert listed["public_url"] == "https://page.example.org"
        assert listed["members"] == [
            {"name": "kim@example.org", "role": "admin"},
            {"name": "zoe@example.org", "role": "operator"},
        ]
        assert [(each["name"], each["role"]) for each in listed["signed_in"]] == [("kim", "viewer"), ("kim", "admin")]
        own, other = (each["browser_id"] for each in listed["signed_in"])
        # The page finds itself in the list.
        assert own == hashlib.sha256(viewer.csrf.encode()).hexdigest()[:32]
        assert not {admin.csrf, viewer.csrf} & set(json.dumps(listed).split('"'))
        assert error(await viewer.command("people-sign-out", id=other)) == (403, "unauthorized")
        async with viewer.events() as stream:
            await stream.until_ready()
            ended = (await admin.command("people-sign-out", id=own[:8])).json()["data"]
            assert (ended["browser_id"], ended["status"]) == (own, "signed out")
            with trio.fail_after(120):
                await stream.until_end()
        assert (await viewer.get(f"{API}/me")).status == 401
        assert (await admin.get(f"{API}/me")).status == 200
        assert error(await admin.command("people-sign-out", id=own)) == (404, "not_found")
        told = [summary for summary, _ in service.events]
        assert told[-1] == "kim signed kim out of the page in a browser"


async def test_who_is_signed_out_elsewhere_in_the_middle_of_an_act_does_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service) as server:
        service.web = server.links
        admin = await server.browser()
        own = hashlib.sha256(admin.csrf.encode()).hexdigest()[:32]
        secrets = [admin.csrf, admin.cookie.partition("=")[2]]
        for name, id in (("approve", "a-1"), ("people-sign-out", own)):
            lost = await server.browser()
            secrets += [lost.csrf, lost.cookie.partition("=")[2]]
            id_of_lost = hashlib.sha256(lost.csrf.encode()).hexdigest()[:32]
            lost.before_body = partial(admin.command, "people-sign-out", id=id_of_lost)
            assert error(await lost.command(name, id=id)) == (401, "unauthorized")
        assert service.acts == []
        # What a listing shows is no secret: neither a cookie nor what a request has to show beside it.
        forged = evolve(admin, csrf=own)
        assert error(await forged.command("people-sign-out", id=own)) == (403, "unauthorized")
        cookie = f"{admin.cookie.partition('=')[0]}={own}{own}"
        assert error(await evolve(admin, cookie=cookie).get(f"{API}/me")) == (401, "unauthorized")
        # An agent's process signs nobody out.
        service.clients = frozenset({os.getpid()})
        assert error(await admin.command("people-sign-out", id=own)) == (403, "unauthorized")
        service.clients = frozenset()
        # Nothing that is on record helps to sign in.
        said = f"{service.events}{caplog.text}{(await admin.command('people-list')).body.decode()}"
        assert not [each for each in secrets if each in said]
        # An admin may be the last one, and sign out here as elsewhere.
        assert (await admin.command("people-sign-out", id=own)).status == 200
        assert error(await admin.get(f"{API}/me")) == (401, "unauthorized")


async def test_a_browser_is_signed_out_though_that_cannot_be_recorded(tmp_path: Path) -> None:
    class Full(StandInService):
        is_full = False

        async def security_event(self, summary: str, data: dict[str, Any]) -> None:
            if self.is_full:
                raise StoreUnavailable("the database is full")
            await super().security_event(summary, data)

    service = Full()
    async with page_server(tmp_path, service) as server:
        service.web = server.links
        admin, lost = await server.browser(), await server.browser()
        own = hashlib.sha256(lost.csrf.encode()).hexdigest()
        service.is_full = True
        refused = await admin.command("people-sign-out", id=own[:32])
        assert error(refused) == (503, "unavailable")
        assert "is signed out there, but that could not be recorded: the database is full" in refused.body.decode()
        assert error(await lost.get(f"{API}/me")) == (401, "unauthorized")
        assert (await admin.get(f"{API}/me")).status == 200


async def test_a_viewer_sees_events_and_no_passkeys_that_wait(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(card("a-1"))) as server:
        viewer = await server.browser(WebRole.VIEWER)
        async with viewer.events() as stream:
            assert (await stream.until_ready())[0] == [("reset", None), ("card", "a-1")]
        assert error(await viewer.post("/passkeys", {})) == (403, "unauthorized")


async def test_a_command_answers_as_ctl_does_and_is_done_once_however_often_it_is_sent(tmp_path: Path) -> None:
    service = StandInService(card("a-1"), card("a-2"))
    async with page_server(tmp_path, service) as server:
        browser = await server.browser()
        once = {"id": "a-1", "verdict_id": "12345678"}
        first, again = await browser.command("reject", **once), await browser.command("reject", **once)
        assert first.json() == again.json()
        assert first.json()["data"]["status"] == "rejected"
        assert service.cards["a-1"].decided is not None
        assert service.cards["a-1"].decided.text == "rejected in the browser"
        assert (service.cards["a-1"].decided.channel, service.cards["a-1"].decided.by) == ("web", "kim")
        origin = service.cards["a-1"].decided.origin
        assert origin is not None
        assert (origin.channel, origin.pid) == ("web", os.getpid())
        late = await browser.command("approve", id="a-1")
        assert error(late) == (409, "already_decided")
        assert error(await browser.command("approve", id="nothing")) == (404, "not_found")
        assert error(await browser.command("approve", id="a")) == (409, "ambiguous")
        assert error(await browser.command("approve")) == (400, "invalid_arguments")
        assert error(await browser.command("approve", id=5)) == (400, "invalid_arguments")
        await browser.command("pause", session="s-1", verdict_id="abcdefgh")
        assert service.acts[-1][-1] == "web/abcdefgh" or service.acts[-1][:2] == ("pause", "s-1")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[1]", (400, "invalid_arguments")),
        (b"{", (400, "invalid_arguments")),
        (b"[" * 200_000, (400, "invalid_arguments")),
        (b'{"id": "\xff"}', (400, "invalid_arguments")),
        (b'{"id": "' + b"x" * MAX_REQUEST + b'"}', (413, "request_too_large")),
    ],
)
async def test_what_is_no_request_is_refused(tmp_path: Path, body: bytes, expected: tuple[int, str]) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        assert error(await browser.post("/commands/show", body)) == expected
        # Anybody can send this one, so it may be short only.
        refused = error(await Browser(server.port).post("/sign-in", body))
        assert refused == ((413, "request_too_large") if len(body) > 4096 else expected)
        assert (await browser.command("list")).status == 200


async def test_a_fault_of_the_server_shows_nothing_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = StandInService()
    async with page_server(tmp_path, service) as server:
        browser = await server.browser()
        service.crash = RuntimeError("a secret of the server")
        failed = await browser.command("list")
        assert error(failed) == (503, "unavailable")
        assert b"secret" not in failed.body
        assert "a secret of the server" in caplog.text
        assert (await browser.get(f"{API}/me")).status == 200


async def test_methods_and_lists(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser(WebRole.VIEWER)
        assert error(await browser.get(f"{API}/commands/list")) == (405, "method_not_allowed")
        assert error(await browser.post("/me", {})) == (405, "method_not_allowed")
        assert error(await browser.raw(request("DELETE", "/", browser.headers()))) == (405, "method_not_allowed")
        listed = (await browser.get(f"{API}/commands")).json()["commands"]
        assert {"pending", "log"} <= {each["name"] for each in listed}
        assert "approve" not in {each["name"] for each in listed}
        assert (await browser.get(f"{API}/openapi.json")).json()["openapi"] == "3.1.0"


# --- events ----------------------------------------------------------------------------------------------------------


async def test_events_begin_with_what_is_open_and_resume_where_they_ended(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service) as server:
        browser = await server.browser()
        async with browser.events() as stream:
            assert (await stream.until_ready())[0] == [("reset", None), ("card", "a-1")]
            server.tell(card("a-2"))
            name, data, id = await stream.next()
            assert (name, data["request_id"], data["status"]) == ("card", "a-2", "pending")
        server.tell(card("a-2", state=CardState.APPROVED))
        server.tell(Notice("look", "warning", START))
        async with browser.events(last=id) as stream:
            missed, _ = await stream.until_ready()
            while len(missed) < 2:
                name, data, _ = await stream.next()
                missed.append((name, data.get("request_id") or data.get("text")))
            assert missed == [("card", "a-2"), ("notice", "look")]


async def test_a_restarted_listener_keeps_port_and_sessions_and_pages_begin_again(tmp_path: Path) -> None:
    restarted = trio.Event()

    def happened(event: object) -> None:
        if isinstance(event, ActorRestarted) and event.name == "web":
            restarted.set()

    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, on_event=happened) as server:
        browser = await server.browser()
        async with browser.events() as stream:
            _, ready = await stream.until_ready()
            port = server.port
            # No card: the actor crashes.
            server.system.named("web").tell(card(["unhashable"]))  # type: ignore[arg-type]
            await restarted.wait()
            await stream.until_end()
        while True:
            try:
                assert (await browser.get(f"{API}/me")).json() == browser.me
                break
            except OSError:
                await trio.sleep(0.01)
        assert server.port == port
        async with browser.events(last=ready) as stream:
            assert (await stream.next())[0] == "reset"


async def test_an_open_page_finds_the_next_server_where_the_last_one_was(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        port = server.port
    async with page_server(tmp_path) as server:
        while True:
            try:
                answer = await browser.get(f"{API}/me")
                break
            except OSError:
                await trio.sleep(0.01)
        assert (server.port, answer.status) == (port, 401)
        # A link leads there too.
        assert (await server.browser()).port == port


async def test_nothing_listens_for_a_page_that_nobody_has_open(tmp_path: Path) -> None:
    clock = Clock()
    async with page_server(tmp_path, clock=clock) as server:
        await server.browser()
        file = Path(server.places.web_port_file)
        left = file.read_text()
        clock.at += IDLE_LIFE + timedelta(seconds=1)
    # Nobody was signed in any more.
    assert not file.exists()

    # That server was killed, a week ago.
    file.write_text(left)
    file.chmod(0o600)
    clock.at += LONGEST_LIFE
    async with page_server(tmp_path, clock=clock) as server:
        await ask(server.links.actor, IsNeeded())
        assert server.sign_ins.port is None


@pytest.mark.parametrize(
    "left", ["", "x", "50000", "3000 {now}", "50000 {later}", "50000 1" + "0" * 400, "1" * 5000, None]
)
async def test_what_an_earlier_server_left_is_read_with_care(tmp_path: Path, left: str | None) -> None:
    clock = Clock()
    now = int(clock.at.timestamp())
    file = Path(places(environ=environ(tmp_path)).web_port_file)
    private_directory(str(file.parent))
    if left is None:
        file.mkdir(0o700)
        file.with_name(f"{file.name}-x.html").mkdir(0o700)
    else:
        replace(file, left.format(now=now, later=now + 60).encode())
    async with page_server(tmp_path, clock=clock) as server:
        await ask(server.links.actor, IsNeeded())
        assert server.sign_ins.port is None


async def test_a_set_port_opens_again_for_an_open_page(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        port = server.port
    async with page_server(tmp_path, has_store=True, port=port):
        while True:
            try:
                assert (await browser.get(f"{API}/me")).status == 401
                break
            except OSError:
                await trio.sleep(0.01)


async def test_a_port_that_another_program_has_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        await server.browser()
        port = server.port
    listening = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with page_server(tmp_path) as server, listening[0]:
        assert (await server.browser()).port != port


async def test_more_tabs_than_a_browser_has_connections_for_take_the_place_of_the_oldest(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server, AsyncExitStack() as stack:
        browser = await server.browser()
        streams = []
        for _ in range(site.MOST_STREAMS + 1):
            streams.append(await stack.enter_async_context(browser.events()))
            await streams[-1].until_ready()
        assert (await streams[0].next())[0] == "elsewhere"
        with pytest.raises(EOFError):
            await streams[0].next()
        server.tell(Notice("news", "info", START))
        assert [(await each.next())[0] for each in streams[1:]] == ["notice"] * site.MOST_STREAMS
        # Another browser has its own.
        async with (await server.browser()).events() as stream:
            await stream.until_ready()
            server.tell(Notice("more", "info", START))
            assert [(await each.next())[0] for each in streams[1:]] == ["notice"] * site.MOST_STREAMS


async def test_a_reader_that_does_not_read_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "STALLED_SECONDS", 0.2)
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        async with browser.events(reads_little=True) as slow:
            await slow.until_ready()
            for number in range(100):
                server.tell(card(str(number), diff="x" * 100_000))
            async with browser.events() as quick:
                seen = {text for _, text in (await quick.until_ready())[0]}
                while "99" not in seen:
                    seen.add((await quick.next())[1]["request_id"])
            # The server has hung up on it, in the middle of a card.
            await slow.until_end()


# --- the files of the page -------------------------------------------------------------------------------------------


#: How one script of the page names another one, or a style sheet.
_ASSET = re.compile(r"[./\"'`]([A-Za-z_.-]+-[A-Za-z0-9_-]{8}\.(?:js|css))[\"'`]")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built page of a few files."""
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html><title>the page</title>")
    (page / "assets" / "app-1a2b.js").write_text("let page = 1;\n" * 1000)
    (page / "assets" / "app.js.map").write_text("{}")
    (page / "sw.js").write_text("let worker;\n")
    (page / "secret.js").symlink_to("/etc/passwd")
    monkeypatch.setattr(site.page_files, "__defaults__", (page,))
    return page


def test_the_shipped_page_is_whole_and_its_first_view_is_small() -> None:
    """What is committed and put into the wheel: nothing leads to a file that is not there."""
    files = site.page_files()
    index = files["/index.html"].body.decode()
    first = re.findall(r'(?:src|href)="(/[^"#]+)"', index)
    assert {"/manifest.webmanifest", "/icon.svg"} < set(first)
    icons = [each["src"] for each in json.loads(files["/manifest.webmanifest"].body)["icons"]]
    scripts = {path: file for path, file in files.items() if path.endswith(".js")}
    later = {f"/assets/{name}" for file in scripts.values() for name in _ASSET.findall(file.body.decode())}
    assert len(later) > 10
    assert set(first) | set(icons) | later | {"/sw.js", "/licenses.txt"} <= files.keys()
    assert "<style" not in index
    assert re.search(r"<script(?![^>]* src=)", index) is None
    # What is asked for first comes first, and the page is painted while the scripts are on their way.
    assert index.index('rel="stylesheet"') < index.index("<script")
    early, *others = re.findall(r'<script[^>]* src="([^"]+)"', index)
    assert b"/me`" in files[early].body
    assert len(files[early].body) < 1000
    assert b"import" not in files[early].body, "it would wait for others"
    assert others
    sizes = [len(files[each].packed or files[each].body) for each in first if each.endswith(".js")]
    assert len(sizes) > 2
    assert sum(sizes) <= 300 * 1024


async def test_files_are_served_as_they_are_and_views_are_the_page(tmp_path: Path, built: Path) -> None:
    async with page_server(tmp_path) as server:
        await server.link()
        browser = Browser(server.port)
        for view in ("/", "/index.html", "/inbox", "/inbox/a-1", "/sessions", "/sessions/s-1", "/rooms/1", "/settings"):
            shown = await browser.get(view)
            assert (shown.status, shown.body) == (200, b"<!doctype html><title>the page</title>"), view
            assert shown.headers["cache-control"] == "no-store"
        script = await browser.get("/assets/app-1a2b.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
        # It has one address for ever, and no copy of it may outlive an update.
        worker = await browser.get("/sw.js")
        assert worker.headers["content-type"].startswith("text/javascript")
        assert worker.headers["cache-control"] == "no-store"
        assert "worker-src 'self'" in worker.headers["content-security-policy"]
        packed = await browser.get("/assets/app-1a2b.js", Accept_Encoding="br, gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == script.body
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
            await stream.send_all(request("HEAD", "/", browser.headers(Connection="close")))
            head = b"".join([part async for part in stream])
        assert head.startswith(b"HTTP/1.1 200")
        assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "path",
    [
        "/secret.js",
        "/assets/app.js.map",
        "/assets/",
        "/../site.py",
        "/assets/../../site.py",
        "/assets/..%2f..%2fsite.py",
        "/%2e%2e/site.py",
        "//etc/passwd",
        "/assets/app-1a2b.js%00.html",
        "/assets\\..\\site.py",
        "/loginbox",
        "/api",
        "/api/sessions",
        "/mcp",
    ],
)
async def test_no_other_file_is_reached(tmp_path: Path, built: Path, path: str) -> None:
    async with page_server(tmp_path) as server:
        await server.link()
        assert (await Browser(server.port).get(path)).status == 404


async def test_without_built_files_the_page_says_how_to_build_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.page_files, "__defaults__", (tmp_path / "nothing",))
    async with page_server(tmp_path) as server:
        await server.link()
        assert b"<code>tox -e web</code>" in (await Browser(server.port).get("/")).body


# --- the port --------------------------------------------------------------------------------------------------------


async def test_nothing_listens_before_a_link_is_asked_for_and_a_port_in_use_is_said(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        assert server.sign_ins.port is None
        port = (await server.link(), server.port)[1]
        async with page_server(tmp_path / "other", port=port) as other:
            with pytest.raises(IpcError, match="another program listens there: stop it, or set another port under"):
                await other.link()
            assert other.sign_ins.port is None
        # Several links, one port.
        assert (await server.link()).url.startswith(f"http://localhost:{port}/#sign-in=")


async def test_files_that_a_killed_server_left_are_removed(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        left = Path(server.places.runtime_dir, "agent-intercom.web-0123.html")
    left.parent.mkdir(mode=0o700, exist_ok=True)
    left.write_text("left")
    kept = left.with_name("agent-intercom.token")
    kept.write_text("kept")
    async with page_server(tmp_path) as server:
        link = Path((await server.link()).file or "")
        assert not left.exists()
        assert link.exists()
    assert not link.exists()
    assert kept.exists()


# --- strangers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "others",
    [
        [(b"origin", b"http://evil.example"), (b"origin", b"http://127.0.0.1:80")],
        [(b"origin", b"http://127.0.0.1:80"), (b"origin", b"http://evil.example")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"none")],
    ],
)
def test_no_header_hides_another_one(others: list[tuple[bytes, bytes]]) -> None:
    told: list[Any] = []

    async def run() -> None:
        headers = [(b"host", b"127.0.0.1:80"), *others]
        connection = SimpleNamespace()
        scope = {"method": "GET", "path": f"{API}/me", "headers": headers, "state": {"connection": connection}}
        await WebSite(deps_of(StandInService()), 80)(scope, receiving(b""), sending(told))

    trio.run(run)
    assert told[0]["status"] == 403


HEADERS = st.sampled_from(
    [
        b"host",
        b"origin",
        b"cookie",
        b"content-type",
        b"content-length",
        b"x-intercom-csrf",
        b"sec-fetch-site",
        b"accept",
    ]
)
VALUES = st.sampled_from(
    [b"localhost:80", b"http://localhost:80", b"127.0.0.1:80", b"application/json", b"same-origin", b"none"]
)
PATHS = st.sampled_from(
    [f"{API}/{each}" for each in ("me", "events", "commands/approve", "openapi.json", "", "sign-out", "passkeys")]
)


@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS"]),
    path=PATHS | st.text().map(lambda text: f"/{text}") | st.text().map(lambda text: f"{API}/{text}"),
    headers=st.lists(st.tuples(HEADERS, VALUES | st.binary(max_size=80)), max_size=8),
    body=st.binary(max_size=200),
)
def test_whatever_a_stranger_sends_is_refused_and_nothing_is_done(
    method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    service = StandInService(card("a-1"))
    told: list[Any] = []

    async def run() -> None:
        sent = [(name, value) for name, value in headers if name != b"content-length" or value.isdigit()]
        scope = {"method": method, "path": path, "headers": sent, "state": {"connection": SimpleNamespace()}}
        page = WebSite(deps_of(service), 80)
        await page(scope, receiving(body), sending(told))

    trio.run(run)
    status = told[0]["status"]
    assert 200 <= status < 500
    if path.startswith(f"{API}/") or method not in ("GET", "HEAD"):
        assert status >= 400
    assert service.acts == service.events == []


def deps_of(service: StandInService) -> SiteDeps:
    """What a page needs before anybody has signed in."""

    async def fails(*_: object) -> Any:
        raise AssertionError("a stranger got this far")

    return SiteDeps(
        service=service,  # type: ignore[arg-type]
        sign_ins=SignIns(lambda: START),
        tokens=fails,  # type: ignore[arg-type]
        authorization=fails,  # type: ignore[arg-type]
        log=EventLog(),
        open_cards=service.cards.values,
        caught_up=fails,
        find=fails,
        tell=lambda _text: None,
        proposals=Proposals(lambda: START),
        files=site.page_files(),
        started_at=START,
    )


def receiving(body: bytes) -> Receive:
    """A client that sends this body, and no more."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def sending(told: list[Any]) -> Send:
    async def send(message: Message) -> None:
        told.append(message)

    return send
