"""Tokens with which programs use the page's API: who makes them, what they may do, and when they end."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sqlite3
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from attrs import define
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import IntercomError, InvalidArguments, InvalidState, NotFound, Unauthorized
from intercom.model.web import NewToken
from intercom.model.web_role import WebRole
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.web import api
from intercom.operators.web.sign_in import may_use
from intercom.operators.web.site import WebSite
from intercom.operators.web.tokens import TOKEN_DAYS, bearer_token
from intercom.store.store_and_reader import Store, StoreUnavailable
from intercom.store.writer_messages import Database
from intercom.web_server.acceptor import ConnectionProcesses
from intercom.web_server.server import Connection
from tests.docs.generated import DOCS
from tests.operators.stand_in_service import StandInService, card
from tests.operators.web.page_server import API, Browser, Clock, PageServer, Stream, page_server
from tests.operators.web.test_site import error
from tests.support.http_responses import Response, request

R = TypeVar("R")
TOKEN = f"intercom_{'0' * 64}"
PORT = 4000


@define
class Program(Browser):
    """A program that shows a token, as an HTTP client without cookies does."""

    token: str = ""

    def headers(self, **more: str | None) -> dict[str, str]:
        shown: dict[str, str | None] = {"Authorization": f"Bearer {self.token}", "Sec-Fetch-Site": None}
        return super().headers(**{"Cookie": None, **shown, **more})

    async def post(self, path: str, data: Any, **more: str | None) -> Response:
        return await super().post(path, data, **{"Origin": None, **more})


async def add(server: PageServer, role: WebRole = WebRole.OPERATOR, name: str = "nightly") -> tuple[NewToken, Program]:
    made = await server.links.add_token(name, role, None, "alex")
    return made, Program(server.port, token=made.text)


# --- what a request shows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ([], None),
        ([(b"authorization", b"Bearer " + TOKEN.encode())], TOKEN),
        ([(b"authorization", b"bearer  " + TOKEN.encode() + b" ")], TOKEN),
        ([(b"authorization", b"Bearer")], ""),
        ([(b"authorization", b"Bearer \xff")], "\xff"),
        # A proxy before the page may ask for a password.
        ([(b"authorization", b"Basic a2ltOmtpbQ=="), (b"cookie", b"intercom_session_4000=x")], None),
        # That of another server on this host.
        ([(b"authorization", b"Bearer x"), (b"cookie", b"intercom_session_4001=x")], "x"),
    ],
)
def test_a_token_is_read_from_one_header(headers: list[tuple[bytes, bytes]], shown: str | None) -> None:
    assert bearer_token(headers, PORT) == shown


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ((b"authorization", b"bearer y"), InvalidArguments),
        ((b"cookie", b"a=b; intercom_session_4000=" + b"0" * 64), Unauthorized),
        ((b"cookie", b"intercom_session_4000="), Unauthorized),
        ((b"origin", b"http://localhost:4000"), Unauthorized),
        ((b"origin", b"null"), Unauthorized),
        ((b"sec-fetch-site", b"none"), Unauthorized),
        ((b"x-intercom-csrf", b"x"), Unauthorized),
    ],
)
def test_a_request_of_a_page_shows_no_token(more: tuple[bytes, bytes], refused: type[IntercomError]) -> None:
    for headers in ([(b"authorization", b"Bearer x"), more], [more, (b"authorization", b"Bearer x")]):
        with pytest.raises(refused):
            bearer_token(headers, PORT)


@given(st.lists(st.tuples(st.sampled_from([b"authorization", b"cookie", b"origin"]), st.binary(max_size=80))))
def test_whatever_stands_there_is_read_or_refused(headers: list[tuple[bytes, bytes]]) -> None:
    try:
        shown = bearer_token(headers, PORT)
    except (Unauthorized, InvalidArguments):
        return
    assert shown is None or b"authorization" in dict(headers)


def test_no_token_makes_anything_with_which_somebody_acts() -> None:
    for role in (WebRole.VIEWER, WebRole.OPERATOR):
        for name in (
            "web",
            "token-add",
            "token-list",
            "token-revoke",
            "rooms-token",
            "key-add",
            "key-revoke",
            "passkeys",
            "people-sign-out",
        ):
            assert not may_use(role, COMMANDS[name])


def test_the_document_names_both_ways() -> None:
    made: Any = api.openapi()
    assert made["components"]["securitySchemes"].keys() == {"session", "csrf", "token"}
    by_session: dict[str, list[str]] = {"session": [], "csrf": []}
    paths = made["paths"]
    assert paths[f"{API}/commands/approve"]["post"]["security"] == [by_session, {"token": []}]
    assert paths[f"{API}/events"]["get"]["security"] == [by_session, {"token": []}]
    assert paths[f"{API}/sign-out"]["post"]["security"] == [by_session]
    assert paths[f"{API}/commands/push-subscribe"]["post"]["security"] == [by_session]
    assert paths[f"{API}/passkeys"]["post"]["security"] == [by_session]
    assert paths[f"{API}/sign-in"]["post"]["security"] == []


# --- over sockets ----------------------------------------------------------------------------------------------------


@pytest.mark.real_time
async def test_the_program_of_the_documentation_lists_what_waits(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "how-to/use-the-api.md").read_text(), re.DOTALL)
    async with page_server(tmp_path, StandInService(card("a-1")), has_store=True) as server:
        made, _ = await add(server, WebRole.VIEWER)
        command = [sys.executable, "-c", code.replace("4321", str(server.port))]
        done = await trio.run_process(command, env={"TOKEN": made.text}, capture_stdout=True)
    assert done.stdout == b"a-1 approval approval a-1\n"


@pytest.mark.real_time
async def test_a_program_acts_under_its_own_name_and_within_its_role(tmp_path: Path) -> None:
    service = StandInService(card("a-1"), card("a-2"))
    async with page_server(tmp_path, service, has_store=True) as server:
        made, program = await add(server)
        assert made.url == f"http://localhost:{server.port}"
        me = await program.get(f"{API}/me")
        assert (me.json()["name"], me.json()["role"]) == ("token nightly", "operator")
        assert "csrf" not in me.json()
        assert (await program.command("approve", id="a-1")).status == 200
        assert service.acts == [("decide", "a-1", "approve", None, "token nightly", "web")]
        for name, row in COMMANDS.items():
            if not may_use(WebRole.OPERATOR, row):
                assert error(await program.post(f"/commands/{name}", {"name": "x", "id": "x"})) == (
                    403,
                    "unauthorized",
                ), name
        for path in ("/sign-in", "/sign-out", "/passkeys"):
            assert error(await program.post(path, {"code": await server.code()})) == (403, "unauthorized")
        _, viewer = await add(server, WebRole.VIEWER, "watcher")
        assert (await viewer.command("pending")).status == 200
        assert error(await viewer.command("approve", id="a-2")) == (403, "unauthorized")
        async with viewer.events() as stream:
            assert [shown for _, shown in (await stream.until_ready())[0]] == [None, "a-1", "a-2"]
        assert len(service.acts) == 1
        # No answer repeats it, and it is kept nowhere.
        assert made.text not in str(await server.tokens.every()) + repr(made)
        with sqlite3.connect(tmp_path / "page.db") as db:
            assert made.text not in "\n".join(db.iterdump())


@pytest.mark.real_time
async def test_a_token_together_with_what_a_page_sends_is_refused(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, has_store=True) as server:
        _, program = await add(server)
        browser = await server.browser()
        here = f"http://localhost:{server.port}"
        for more in (
            {"Cookie": browser.cookie},
            {"Cookie": browser.cookie, "X_Intercom_CSRF": browser.csrf},
            {"Origin": here},
            {"Sec_Fetch_Site": "same-origin"},
        ):
            assert error(await program.post("/commands/approve", {"id": "a-1"}, **more)) == (403, "unauthorized")
        assert error(await program.post("/commands/approve", {"id": "a-1"}, Origin="http://evil.example")) == (
            403,
            "origin_refused",
        )
        assert error(await program.post("/commands/approve", {"id": "a-1"}, Host="evil.example"))[0] == 421
        # A form or a simple request of another page cannot have that header, and is not JSON.
        assert (await program.post("/commands/approve", b"id=a-1", Content_Type="text/plain")).status == 415
        assert service.acts == []


@pytest.mark.real_time
async def test_what_is_no_token_of_this_server_does_nothing(tmp_path: Path) -> None:
    clock = Clock()
    async with page_server(tmp_path, StandInService(card("a-1")), has_store=True, clock=clock) as server:
        made, program = await add(server)
        wrong = ("", TOKEN, made.text.upper(), f"{made.text}0", made.text[:-1], made.token.sha256, f"{made.text} x")
        for text in wrong:
            refused = await Program(server.port, token=text).command("pending")
            assert error(refused) == (401, "unauthorized")
            assert refused.headers["www-authenticate"] == "Bearer"
        clock.at += timedelta(days=TOKEN_DAYS) - timedelta(seconds=1)
        assert (await program.command("pending")).status == 200
        clock.at += timedelta(seconds=1)
        refused = await program.command("pending")
        assert error(refused) == (401, "unauthorized")
        assert "the token nightly was good until 2027-02-19; a person makes one" in refused.body.decode()
        # Its name is free again.
        assert (await (await add(server))[1].command("pending")).status == 200


@pytest.mark.real_time
async def test_a_revoked_token_ends_at_once_also_in_an_open_stream(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(card("a-1")), has_store=True) as server:
        _, program = await add(server)
        _, other = await add(server, name="other")
        async with program.events() as stream, other.events() as kept:
            await stream.until_ready()
            await kept.until_ready()
            assert (await server.links.revoke_token("Nightly", "alex")).name == "nightly"
            server.tell(card("a-2"))
            await ends_without(stream, "a-2")
            assert (await kept.next())[1]["request_id"] == "a-2"
        assert error(await program.get(f"{API}/me")) == (401, "unauthorized")
        assert (await other.get(f"{API}/me")).status == 200
        with pytest.raises(NotFound):
            await server.links.revoke_token("nightly", "alex")


@pytest.mark.real_time
async def test_a_program_subscribes_no_browser_since_that_would_outlive_its_token(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(), has_store=True) as server:
        _, program = await add(server)
        refused = await program.command("push-subscribe", url="https://push.example.com/x", public="p", auth="a")
        assert error(refused) == (403, "unauthorized")
        assert "push-subscribe is for people at the page" in refused.body.decode()


class _Losing(Store):
    """A store whose answers are lost."""

    async def transact(self, work: Callable[[Database], R], *, timeout: float = 1.0, retry: bool = True) -> R:
        await super().transact(work, timeout=timeout, retry=retry)
        raise StoreUnavailable("its answer was lost")


@pytest.mark.real_time
async def test_a_revocation_whose_answer_is_lost_ends_open_streams_too(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(card("a-1")), has_store=True) as server:
        _, program = await add(server, name="zoë's")
        server.tokens.store = _Losing(server.tokens.store.writer)
        async with program.events() as stream:
            await stream.until_ready()
            with pytest.raises(StoreUnavailable):
                # However its name is composed.
                await server.links.revoke_token("Zoe\u0308's", "alex")
            server.tell(card("a-2"))
            await ends_without(stream, "a-2")
        assert error(await program.get(f"{API}/me")) == (401, "unauthorized")
        assert await server.links.tokens() == ()


@pytest.mark.real_time
async def test_what_comes_after_a_token_has_ended_does_nothing_though_its_head_came_before(tmp_path: Path) -> None:
    clock, service = Clock(), StandInService(card("a-1"))

    async def get_old() -> None:
        clock.at += timedelta(days=TOKEN_DAYS)

    async with page_server(tmp_path, service, has_store=True, clock=clock) as server:
        for end in (partial(server.links.revoke_token, "nightly", "alex"), get_old):
            _, program = await add(server)
            program.before_body = end
            for command in ("approve", "show"):
                assert error(await program.command(command, id="a-1")) == (401, "unauthorized")
                program.before_body = None
        assert service.acts == []


@pytest.mark.real_time
async def test_a_token_that_gets_too_old_gets_nothing_more_in_an_open_stream(tmp_path: Path) -> None:
    clock = Clock()
    async with page_server(tmp_path, StandInService(card("a-1")), has_store=True, clock=clock) as server:
        _, program = await add(server)
        async with program.events() as stream:
            await stream.until_ready()
            clock.at += timedelta(days=TOKEN_DAYS)
            server.tell(card("a-2"))
            await ends_without(stream, "a-2")


async def ends_without(stream: Stream, id: str) -> None:
    """Read to the end of a stream, which must not show this request."""
    with contextlib.suppress(EOFError):
        while True:
            assert (await stream.next())[1].get("request_id") != id


@pytest.mark.real_time
async def test_a_configured_port_is_opened_at_the_start_if_a_program_has_a_token(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(), has_store=True) as server:
        _, program = await add(server)
        await server.links.revoke_token("nightly", "alex")
        port = server.port
    async with page_server(tmp_path, StandInService(), has_store=True, port=port) as server:
        await server.links.tokens()
        assert server.sign_ins.port is None
        _, program = await add(server)
    async with page_server(tmp_path, StandInService(), has_store=True, port=port):
        while True:
            try:
                answer = await program.get(f"{API}/me")
            except OSError:
                await trio.sleep(0.01)
                continue
            assert answer.json()["name"] == "token nightly"
            break


@pytest.mark.real_time
async def test_an_agents_process_does_not_act_with_a_token(tmp_path: Path) -> None:
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, has_store=True) as server:
        _, program = await add(server)
        service.clients = frozenset({os.getpid()})
        refused = await program.command("approve", id="a-1")
        assert error(refused) == (403, "unauthorized")
        assert "an agent's own processes may not answer for it" in refused.body.decode()
        assert service.acts == []


@pytest.mark.real_time
@pytest.mark.parametrize("behind", [b"", b"x" * 2**22], ids=["at the end", "behind what is not read"])
async def test_an_agents_process_that_closes_its_connection_at_once_does_not_act_with_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: bytes
) -> None:
    closed, done = trio.Event(), trio.Event()
    find, command = ConnectionProcesses.find, WebSite._command

    async def finds(processes: ConnectionProcesses, connection: Connection) -> frozenset[int]:
        await closed.wait()
        return await find(processes, connection)

    async def commands(*given: Any) -> None:
        try:
            await command(*given)
        finally:
            done.set()

    monkeypatch.setattr(ConnectionProcesses, "find", finds)
    monkeypatch.setattr(WebSite, "_command", commands)
    service = StandInService(card("a-1"))
    async with page_server(tmp_path, service, has_store=True) as server:
        _, program = await add(server)
        service.clients = frozenset({os.getpid()})
        sent = request(
            "POST",
            f"{API}/commands/approve",
            program.headers(Content_Type="application/json"),
            b'{"id": "a-1"}',
        )
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(sent)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while behind:
                    client.send(behind)
        closed.set()
        await done.wait()
        assert service.acts == []


@pytest.mark.real_time
async def test_tokens_are_on_record_and_outlive_the_listener_but_no_secret_is_kept(tmp_path: Path) -> None:
    async with page_server(tmp_path, StandInService(), has_store=True) as server:
        made, _ = await add(server, WebRole.VIEWER)
        with pytest.raises(InvalidState, match="there is a token nightly: revoke it first"):
            await add(server, WebRole.OPERATOR, "Nightly")
        with pytest.raises(InvalidArguments, match="no program manages keys"):
            await add(server, WebRole.ADMIN, "boss")
        with pytest.raises(InvalidArguments, match="a name has"):
            await add(server, WebRole.VIEWER, "<b>")
        assert [each.name for each in await server.links.tokens()] == ["nightly"]
        await server.links.revoke_token("nightly", "kim")
        assert await server.links.tokens() == ()
        with sqlite3.connect(tmp_path / "page.db") as db:
            said = [row[0] for row in db.execute("select summary from audit where kind = 'security' order by id")]
    assert said[0].startswith("alex made the token nightly, with the role viewer, until ")
    assert said[1:] == ["kim revoked the token nightly"]
    assert made.text not in str(said)
