"""People whom a reverse proxy has signed in: who is believed, what they may do, and what a forged header does."""

from __future__ import annotations

import os
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from intercom.local import server_secrets
from intercom.local.own_files import replace
from intercom.local.places import places, private_directory
from intercom.model.card import Notice
from intercom.model.config import WebSettings
from intercom.model.errors import ConfigError
from intercom.model.web_role import WebRole
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.web import site
from intercom.operators.web.proxy import Member, ProxyRules, rules_of
from intercom.operators.web.sign_in import may_use
from intercom.web_server.http_request import Refusal
from tests.operators.ctl_server import environ
from tests.operators.stand_in_service import START, StandInService, card
from tests.operators.web.page_server import (
    API,
    SECRET,
    Browser,
    PageServer,
    ProxiedBrowser,
    page_server,
    proxied,
)
from tests.operators.web.page_server import PUBLIC_HOST as HOST
from tests.operators.web.test_site import error
from tests.support.http_responses import request

SETTINGS = WebSettings(
    port=4000,
    public_url=f"https://{HOST.upper()}:443",
    members={
        "kim": WebRole.OPERATOR,
        "zoë@example.org": WebRole.VIEWER,
        "root": WebRole.ADMIN,
        "zoe": WebRole.VIEWER,
        "Kay": WebRole.ADMIN,
    },
)
PROOF = (b"x-intercom-proxy-secret", SECRET.encode())
KIM = (b"x-forwarded-user", b"kim")
ROOT = (b"x-forwarded-user", b"root")


def rules() -> ProxyRules:
    found = rules_of(SETTINGS, SECRET)
    assert found is not None
    return found


# --- what is believed ------------------------------------------------------------------------------------------------


def test_a_member_has_the_role_of_the_configuration() -> None:
    found = rules()
    assert (found.host, found.origin) == (HOST.encode(), f"https://{HOST}".encode())
    kim = found.member([PROOF, KIM])
    assert (kim.name, kim.role) == ("kim", WebRole.OPERATOR)
    assert found.member([(b"x-forwarded-user", "zoë@example.org".encode()), PROOF]).name == "zoë@example.org"
    assert kim.csrf == found.member([KIM, PROOF]).csrf
    assert kim.csrf != found.member([PROOF, ROOT]).csrf
    assert kim.csrf != rules().member([PROOF, KIM]).csrf
    assert kim.csrf not in repr(kim)
    assert SECRET not in repr(found)
    assert rules_of(SETTINGS, None) is None
    assert rules_of(WebSettings(), SECRET) is None


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([], "only the proxy reaches the page"),
        ([KIM], "only the proxy reaches the page"),
        ([KIM, (PROOF[0], b"")], "only the proxy"),
        ([KIM, (PROOF[0], b"t" * 32)], "only the proxy"),
        ([KIM, (PROOF[0], SECRET.encode() + b"s")], "only the proxy"),
        # Twice, in whichever order, or in another spelling beside it.
        ([KIM, PROOF, PROOF], "only the proxy"),
        ([KIM, PROOF, (b"x_intercom_proxy_secret", SECRET.encode())], "only the proxy"),
        ([KIM, (b"x_intercom_proxy_secret", SECRET.encode())], "only the proxy"),
        ([PROOF], "does not say who you are"),
        ([PROOF, (KIM[0], b"")], "does not say who you are"),
        ([PROOF, KIM, ROOT], "does not say who you are"),
        ([ROOT, PROOF, KIM], "does not say who you are"),
        ([PROOF, KIM, KIM], "does not say who you are"),
        ([PROOF, KIM, (b"x_forwarded_user", b"root")], "does not say who you are"),
        ([PROOF, (b"x_forwarded_user", b"root")], "does not say who you are"),
        ([PROOF, (b"x_forwarded-user", b"root"), KIM], "does not say who you are"),
        ([PROOF, (KIM[0], b"kim, root")], "who is no member here"),
        ([PROOF, (KIM[0], b"Kim")], "who is no member here"),
        ([PROOF, (KIM[0], b"kim\x00")], "who is no member here"),
        ([PROOF, (KIM[0], "kіm".encode())], "who is no member here"),
        # Other characters that Unicode holds to be the same: where people sign in, they may be another account.
        ([PROOF, (KIM[0], "zoe\u0308@example.org".encode())], "who is no member here"),
        ([PROOF, (KIM[0], "\u212aay".encode())], "who is no member here"),
        ([PROOF, (KIM[0], b"k\xff")], "another encoding"),
    ],
)
def test_whatever_else_a_request_says_signs_nobody_in(headers: list[tuple[bytes, bytes]], why: str) -> None:
    with pytest.raises(Refusal) as refused:
        rules().member(headers)
    assert refused.value.status == 403
    assert why in refused.value.message
    assert SECRET not in refused.value.message


@given(
    st.lists(
        st.tuples(
            st.sampled_from([PROOF[0], KIM[0], b"x_forwarded_user", b"cookie"]),
            st.sampled_from([SECRET.encode(), b"kim", b"root", b"", b"nobody"]),
        ),
        max_size=4,
    )
)
def test_only_one_proof_and_one_name_make_a_member(headers: list[tuple[bytes, bytes]]) -> None:
    spelled = [(name.replace(b"_", b"-"), value) for name, value in headers]
    proofs = [value for name, value in spelled if name == PROOF[0]]
    names = [(name, value) for name, value in headers if name.replace(b"_", b"-") == KIM[0]]
    is_member = proofs == [SECRET.encode()] and len(names) == 1 and names[0] in (KIM, ROOT)
    try:
        found: Member | None = rules().member(headers)
    except Refusal:
        found = None
    assert (found is not None) is is_member
    if found is not None:
        assert found.name.encode() == names[0][1]


@pytest.mark.parametrize(
    ("environ", "by_client", "found"),
    [
        ({"INTERCOM_PROXY_SECRET": SECRET}, False, SECRET),
        ({"INTERCOM_PROXY_SECRET": "short"}, False, "at least 16"),
        ({}, False, "any process could say who it is"),
        # An agent's client could choose it.
        ({"INTERCOM_PROXY_SECRET": SECRET}, True, None),
        ({}, True, None),
    ],
)
def test_without_a_secret_no_proxy_is_believed(environ: dict[str, str], by_client: bool, found: str | None) -> None:
    if found in (SECRET, None):
        assert server_secrets.proxy_secret(SETTINGS, environ, by_client=by_client) == found
        return
    with pytest.raises(ConfigError, match=found):
        server_secrets.proxy_secret(SETTINGS, environ, by_client=by_client)


def test_the_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    settings = WebSettings(port=1, public_url="https://x.example", proxy_secret_file=file)
    assert server_secrets.proxy_secret(settings, {}, by_client=True) == SECRET
    file.unlink()
    with pytest.raises(ConfigError, match=r"web\.proxy_secret_file .* cannot be read"):
        server_secrets.proxy_secret(settings, {}, by_client=False)
    assert server_secrets.proxy_secret(WebSettings(), {}, by_client=False) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"public_url": "https://x.example"},
        {"port": 1, "public_url": "http://x.example"},
        {"port": 1, "public_url": "https://x.example/page"},
        {"members": {"<b>": WebRole.VIEWER}},
        {"members": {"kim": WebRole.VIEWER, "token nightly": WebRole.ADMIN}},
        {"members": {"kim\u3164": WebRole.ADMIN}},
        {"members": {"\u212aay": WebRole.ADMIN}},
        {"proxy_header": "X User"},
        {"proxy_header": "x-intercom-proxy-secret"},
        {"proxy_header": "x_user"},
    ],
)
def test_settings_that_could_not_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"public_url|must be"):
        WebSettings(**wrong)  # type: ignore[arg-type]


# --- over sockets ----------------------------------------------------------------------------------------------------


async def opened(server: PageServer) -> None:
    """Have the port opened: the one in the settings may be taken on this machine."""
    await server.link()


@pytest.mark.real_time
async def test_a_member_acts_under_the_own_name_and_within_the_role(tmp_path: Path) -> None:
    service = StandInService(card("a-1"), card("a-2"))
    async with page_server(tmp_path, service, settings=SETTINGS, proxy_secret=SECRET) as server:
        await opened(server)
        kim = await proxied(server).come()
        assert (kim.me["name"], kim.me["role"]) == ("kim", "operator")
        assert (await kim.command("approve", id="a-1")).status == 200
        assert service.acts == [("decide", "a-1", "approve", None, "kim", "web")]
        viewer = await proxied(server, "zoe").come()
        for name, row in COMMANDS.items():
            if not may_use(WebRole.VIEWER, row):
                assert error(await viewer.command(name, id="a-2")) == (403, "unauthorized"), name
        async with viewer.events() as stream:
            assert "a-2" in [shown for _, shown in (await stream.until_ready())[0]]
        assert len(service.acts) == 1
        assert [said for said, _ in service.events if "proxy" in said] == [
            "kim came to the page through the proxy",
            "zoe came to the page through the proxy",
        ]
        page = await kim.get("/")
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")


@pytest.mark.real_time
async def test_a_request_that_another_page_forges_does_nothing(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, settings=SETTINGS, proxy_secret=SECRET) as server:
        await opened(server)
        kim = await proxied(server).come()
        viewer = await proxied(server, "zoe").come()
        for more, refused in (
            ({"Origin": "https://evil.example"}, "origin_refused"),
            ({"Origin": f"http://{HOST}"}, "origin_refused"),
            ({"Origin": f"http://localhost:{server.port}"}, "origin_refused"),
            ({"Sec-Fetch-Site": "cross-site"}, "origin_refused"),
            ({"Sec-Fetch-Site": "same-site"}, "origin_refused"),
            ({"X-Intercom-CSRF": ""}, "unauthorized"),
            ({"X-Intercom-CSRF": viewer.csrf}, "unauthorized"),
        ):
            forged = ProxiedBrowser(server.port, csrf=kim.csrf, more=more)
            assert error(await forged.command("approve", id="a-1")) == (403, refused), more
        assert service.acts == []


@pytest.mark.real_time
async def test_nobody_but_the_proxy_uses_the_public_name_and_its_headers_count_nowhere_else(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, settings=SETTINGS, proxy_secret=SECRET, has_store=True) as server:
        code = await server.code()
        kim = await proxied(server).come()
        for more in ({"X-Intercom-Proxy-Secret": "t" * 32}, {"X-Forwarded-User": "mallory"}):
            for path in (f"{API}/me", "/", "/assets/x.js"):
                refused = await ProxiedBrowser(server.port, more=more).get(path)
                assert error(refused) == (403, "unauthorized")
                assert SECRET not in refused.body.decode()
        # Under the own name, what a proxy says does not count.
        here = f"localhost:{server.port}"
        local = Browser(server.port)
        assert error(await local.get(f"{API}/me", X_Forwarded_User="root")) == (401, "unauthorized")
        # Under the public name, no link, cookie or token counts.
        browser = await server.browser()
        token = await server.links.add_token("nightly", WebRole.OPERATOR, None, "alex")
        for shown in ({"Cookie": browser.cookie}, {"Authorization": f"Bearer {token.text}"}):
            as_viewer = ProxiedBrowser(server.port, who="zoe", more=shown)
            assert (await as_viewer.come()).me["role"] == "viewer"
            assert error(await as_viewer.command("approve", id="a-1")) == (403, "unauthorized")
        for path in ("/sign-in", "/sign-out"):
            assert error(await kim.post(path, {"code": code})) == (403, "unauthorized")
        # Nor through the proxy, if that passes on another Host that somebody writes there.
        for name in ("X-Intercom-Proxy-Secret", "x_intercom_proxy_secret"):
            for shown in ({"Cookie": browser.cookie}, {"Authorization": f"Bearer {token.text}"}):
                through = {"Host": here, name: SECRET, "X-Forwarded-User": "zoe", **shown}
                for path in (f"{API}/me", "/"):
                    refused = await local.raw(request("GET", path, through))
                    assert error(refused) == (421, "host_refused")
            local = Browser(server.port)
            assert error(await local.post("/sign-in", {"code": code}, **{name: SECRET})) == (421, "host_refused")
        assert (await Browser(server.port).sign_in(code)).status == 200
        assert service.acts == []


@pytest.mark.real_time
async def test_another_program_at_the_port_is_on_record_since_it_is_shown_the_secret(tmp_path: Path) -> None:
    class Recording(StandInService):
        recorded = trio.Event()

        async def security_event(self, summary: str, data: dict[str, Any]) -> None:
            await super().security_event(summary, data)
            self.recorded.set()

    service = Recording()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        # Whatever an earlier server has left.
        left = Path(places(environ=environ(tmp_path)).web_port_file)
        private_directory(str(left.parent))
        replace(left, f"40000 {time.time():.0f}".encode())
        async with page_server(tmp_path, service, settings=SETTINGS, proxy_secret=SECRET, port=port) as server:
            await service.recorded.wait()
            assert server.sign_ins.port is None
    [(summary, data)] = service.events
    assert f"port {port} on 127.0.0.1 cannot be opened (another program listens there" in summary
    assert summary.endswith("is shown the secrets of the proxy and of programs with tokens")
    assert data == {"port": port}


@pytest.mark.real_time
async def test_without_a_proxy_its_name_is_none_of_this_server(tmp_path: Path) -> None:
    async with page_server(tmp_path, settings=SETTINGS) as server:
        await opened(server)
        assert error(await proxied(server).get(f"{API}/me"))[0] == 421


@pytest.mark.real_time
async def test_an_agents_process_does_not_act_through_the_proxy(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, settings=SETTINGS, proxy_secret=SECRET) as server:
        await opened(server)
        kim = await proxied(server).come()
        service.clients = frozenset({os.getpid()})
        assert error(await kim.command("approve", id="a-1")) == (403, "unauthorized")
        assert service.acts == []


@pytest.mark.real_time
async def test_a_stream_ends_so_that_the_proxy_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with page_server(tmp_path, StandInService(), settings=SETTINGS, proxy_secret=SECRET) as server:
        await opened(server)
        kim = await proxied(server).come()
        async with kim.events() as stream:
            await stream.until_ready()
            monkeypatch.setattr(site, "STREAM_SECONDS", 0.0)
            server.tell(card("a-1"))
            with trio.fail_after(120):
                # What came meanwhile comes with the next one.
                assert (await stream.next())[0] == "again"
                with pytest.raises(EOFError):
                    await stream.next()


@pytest.mark.real_time
async def test_a_member_has_streams_for_several_browsers(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(), settings=SETTINGS, proxy_secret=SECRET) as server:
        await opened(server)
        async with AsyncExitStack() as stack:
            streams = []
            for _ in range(site.MOST_MEMBER_STREAMS + 1):
                # Each in a browser of its own, of which the server does not know.
                kim = await proxied(server).come()
                streams.append(await stack.enter_async_context(kim.events()))
                await streams[-1].until_ready()
            assert (await streams[0].next())[0] == "elsewhere"
            server.tell(Notice("news", "info", START))
            assert [(await each.next())[0] for each in streams[1:]] == ["notice"] * site.MOST_MEMBER_STREAMS
        # A laptop and a phone, each with the four of a browser.
        assert site.MOST_MEMBER_STREAMS >= 2 * site.MOST_STREAMS


@pytest.mark.real_time
async def test_two_headers_on_the_wire_name_nobody(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(), settings=SETTINGS, proxy_secret=SECRET) as server:
        await opened(server)
        head = request("GET", f"{API}/me", proxied(server).headers())
        for second in (b"X-FORWARDED-USER: root", b"x_forwarded_user: root", b"X-Forwarded-User: kim"):
            doubled = head.replace(b"\r\n\r\n", b"\r\n" + second + b"\r\n\r\n", 1)
            assert error(await Browser(server.port).raw(doubled)) == (403, "unauthorized")
