"""Passkeys on the page: what it is told of them, what it proposes, and at which address they work."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve

from intercom.local import operator_keys
from intercom.local.passkeys import to_base64url, verifies
from intercom.local.places import places
from intercom.model.config import Config, WebSettings
from intercom.model.errors import InvalidArguments
from intercom.model.web_role import WebRole
from intercom.operators.web import site
from intercom.operators.web.passkeys import MOST_PROPOSALS, Proposals, origin_of, port_of, read_proposal
from intercom.sessions.signatures import Signatures
from intercom.sessions.trusted_keys import Keyring
from intercom.store.database import open_database
from tests.operators.ctl_server import environ
from tests.operators.stand_in_service import StandInService
from tests.operators.web.page_server import API, SECRET, Browser, PageServer, page_server, proxied
from tests.support.keys import Key
from tests.support.passkeys import Authenticator

pytestmark = pytest.mark.real_time

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def offer(phone: Authenticator, name: str = "phone") -> dict[str, str]:
    """What the page sends of a passkey that it has made."""
    return {"credential_id": to_base64url(phone.credential), "public_key": to_base64url(phone.spki), "name": name}


@contextlib.contextmanager
def keyed_service(directory: Path, key: Key) -> Iterator[tuple[StandInService, Any]]:
    """A service whose operator has this key, and what enrols a passkey there as key-add does."""
    where = places(environ=environ(directory))
    service = StandInService()
    keyring = Keyring(where, Config())
    with contextlib.closing(open_database(directory / "keys.db").db) as db:
        operator_keys.add_public(where, key.public)
        keyring.load(db, NOW)

        def enrol(public: operator_keys.PublicKey) -> None:
            operator_keys.add_public(where, public)
            assert keyring.add(db, public, *key.for_key("add", public, NOW), NOW)

        enrol(key.public)
        service.signatures = Signatures(keyring)
        yield service, enrol


async def told(browser: Browser) -> Any:
    answer = await browser.get(f"{API}/passkeys")
    assert answer.status == 200
    return answer.json()


async def listed(server: PageServer) -> list[str]:
    return [each.key_id for each in await server.links.proposed_passkeys()]


async def test_a_passkey_that_a_browser_made_waits_for_the_terminal_and_signs_then(tmp_path: Path) -> None:
    with keyed_service(tmp_path, Key()) as (service, enrol):
        async with page_server(tmp_path, service) as server:
            browser = await server.browser()
            phone = Authenticator(f"http://localhost:{server.port}")
            assert await told(browser) == {
                "origin": phone.origin,
                "rp_id": "localhost",
                "passkeys": [],
                "proposals": [],
            }
            made = await browser.post("/passkeys", offer(phone))
            assert made.status == 200
            assert made.json()["key_id"] == phone.public.id
            assert await listed(server) == [phone.public.id]
            assert phone.public.id not in service.signatures.keyring.trusted()
            assert [each["key_id"] for each in (await told(browser))["proposals"]] == [phone.public.id]
            (event,) = [data for summary, data in service.events if "passkey" in summary]
            assert event["key_id"] == phone.public.id
            enrol(phone.public)
            assert await listed(server) == []
            known = await told(browser)
            assert known["proposals"] == []
            assert known["passkeys"] == [
                {
                    "key_id": phone.public.id,
                    "name": "kim's phone",
                    "credential_id": to_base64url(phone.credential),
                }
            ]
            # One of another address is no use here.
            enrol(Authenticator("http://localhost:1").public)
            assert len((await told(browser))["passkeys"]) == 1


async def test_a_passkey_is_not_proposed_without_a_key_a_role_a_session_or_by_an_agent(tmp_path: Path) -> None:
    async with page_server(tmp_path) as server:
        browser = await server.browser()
        refused = await browser.post("/passkeys", offer(Authenticator()))
        assert (refused.status, refused.json()["error"]["code"]) == (409, "invalid_state")
        assert "agent-intercom-ctl key create" in refused.json()["error"]["message"]
    with keyed_service(tmp_path / "keyed", Key()) as (service, _):
        async with page_server(tmp_path / "keyed", service) as server:
            refused = await (await server.browser(WebRole.VIEWER)).post("/passkeys", offer(Authenticator()))
            assert (refused.status, refused.json()["error"]["code"]) == (403, "unauthorized")
            assert (await Browser(server.port).post("/passkeys", offer(Authenticator()))).status == 401
            browser = await server.browser()
            assert (await browser.post("/passkeys", offer(Authenticator()), X_Intercom_CSRF="0" * 64)).status == 403
            service.clients = frozenset({os.getpid()})
            assert (await browser.post("/passkeys", offer(Authenticator()))).status == 403
            assert await listed(server) == []


async def test_who_decides_may_have_to_sign_and_so_proposes_a_passkey_that_an_admin_sees(tmp_path: Path) -> None:
    with keyed_service(tmp_path, Key()) as (service, _):
        async with page_server(tmp_path, service) as server:
            operator, phone = await server.browser(WebRole.OPERATOR), Authenticator()
            assert (await operator.post("/passkeys", offer(phone))).status == 200
            assert len(await listed(server)) == 1
            assert phone.public.id not in service.signatures.keyring.trusted()
            assert (await told(operator))["proposals"] == []
            assert len((await told(await server.browser()))["proposals"]) == 1
            assert (await operator.command("passkeys")).status == 403


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://intercom.example.org", "https://intercom.example.org"),
        ("https://Intercom.example.org:443", "https://intercom.example.org"),
        ("https://intercom.example.org:8443", "https://intercom.example.org:8443"),
    ],
)
async def test_behind_the_proxy_a_passkey_is_of_the_public_address_and_of_no_other(
    tmp_path: Path, url: str, origin: str
) -> None:
    with keyed_service(tmp_path, Key()) as (service, enrol):
        settings = WebSettings(port=1, public_url=url, members={"kim": WebRole.OPERATOR, "zoe": WebRole.VIEWER})
        async with page_server(tmp_path, service, settings=settings, proxy_secret=SECRET) as server:
            here, phone = await server.browser(), Authenticator(origin)
            host = origin.removeprefix("https://")
            kim = await proxied(server, host=host).come()
            assert await told(kim) == {
                "origin": origin,
                "rp_id": "intercom.example.org",
                "passkeys": [],
                "proposals": [],
            }
            assert (await proxied(server, "zoe", host).post("/passkeys", offer(phone))).status == 403
            forged = evolve(kim, csrf=here.csrf)
            assert (await forged.post("/passkeys", offer(phone))).status == 403
            assert await listed(server) == []
            assert (await kim.post("/passkeys", offer(phone))).json()["key_id"] == phone.public.id
            # Whatever else a request says of an address, its own is the one that the proxy's secret shows.
            for name in ("Forwarded", "X-Forwarded-Host", "X-Forwarded-Server", "X-Original-Host", "X-Forwarded-Proto"):
                for value in (host, f"localhost:{server.port}", "https", f"host={host};proto=https"):
                    assert (await here.get(f"{API}/passkeys", **{name: value})).json()["origin"] == origin_of(
                        server.port
                    )
                    there = evolve(kim, more={name: value})
                    assert (await told(there))["origin"] == origin
            lied = {**offer(phone, "a phone"), "origin": origin, "rp_id": "intercom.example.org"}
            assert (await here.post("/passkeys", lied)).status == 200
            assert [each.origin for each in await server.links.proposed_passkeys()] == [origin, origin_of(server.port)]
            # It waits at this address only, for a person with a PIN.
            assert [each["name"] for each in (await told(here))["proposals"]] == ["a phone"]
            event, _ = [data for summary, data in service.events if "passkey" in summary]
            assert (event["user"], event["key_id"]) == ("kim", phone.public.id)
            enrol(phone.public)
            assert [each["key_id"] for each in (await told(kim))["passkeys"]] == [phone.public.id]
            assert (await told(here))["passkeys"] == []
            # What the same authenticator signs for another page, or for the page's own address, counts for nothing.
            assert verifies(phone.public.public, phone.assertion(b"x"), b"x")
            for said in (
                {"origin": f"http://localhost:{server.port}"},
                {"origin": f"{origin}1"},
                {"party": "localhost"},
            ):
                assert not verifies(phone.public.public, phone.assertion(b"x", **said), b"x")
            # An agent's process proposes none there either.
            service.clients = frozenset({os.getpid()})
            assert (await kim.post("/passkeys", offer(Authenticator(origin)))).status == 403


async def test_where_browsers_have_no_passkeys_that_is_said(tmp_path: Path) -> None:
    with keyed_service(tmp_path, Key()) as (service, _):
        settings = WebSettings(port=1, public_url="https://10.0.0.7", members={"kim": WebRole.ADMIN})
        async with page_server(tmp_path, service, settings=settings, proxy_secret=SECRET) as server:
            await server.link()
            kim = await proxied(server, host="10.0.0.7").come()
            refused = await kim.post("/passkeys", offer(Authenticator()))
            assert refused.status == 409
            assert "browsers have no passkeys at https://10.0.0.7" in refused.body.decode()


PHONE = offer(Authenticator())


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {**PHONE, "name": None},
        {**PHONE, "name": ""},
        {**PHONE, "name": "two\nlines"},
        {**PHONE, "name": "x" * 65},
        {**PHONE, "name": " "},
        {**PHONE, "credential_id": "a+b/"},
        {**PHONE, "credential_id": "AAAA,AAAA"},
        {**PHONE, "credential_id": 7},
        {**PHONE, "public_key": "AAAA"},
        {**PHONE, "public_key": "A" * 5000},
    ],
    ids=lambda data: str(len(str(data))),
)
async def test_what_is_no_passkey_is_refused(tmp_path: Path, data: Any) -> None:
    with keyed_service(tmp_path, Key()) as (service, _):
        async with page_server(tmp_path, service) as server:
            refused = await (await server.browser()).post("/passkeys", data)
            assert (refused.status, refused.json()["error"]["code"]) == (400, "invalid_arguments")
            assert await listed(server) == []


def test_proposals_wait_for_ten_minutes_and_the_oldest_gives_way() -> None:
    now = [NOW]
    proposals = Proposals(lambda: now[0])
    made = []
    for number in range(MOST_PROPOSALS + 1):
        phone = Authenticator()
        passkey, name = read_proposal(phone.origin, offer(phone, f"phone {number}"))  # type: ignore[arg-type]
        made.append(proposals.propose(passkey, name, "kim").key_id)
    assert [each.key_id for each in proposals.waiting(())] == made[1:]
    assert [each.key_id for each in proposals.waiting(made[1:3])] == made[3:]
    now[0] += timedelta(minutes=10, seconds=1)
    assert proposals.waiting(()) == ()
    passkey, _ = read_proposal(phone.origin, offer(phone))  # type: ignore[arg-type]
    proposals.propose(passkey, "phone", "kim")
    now[0] -= timedelta(days=1)
    assert proposals.waiting(()) == ()
    with pytest.raises(InvalidArguments):
        proposals.propose(passkey, "", "kim")


def test_nobody_pushes_out_the_passkeys_of_others() -> None:
    proposals = Proposals(lambda: NOW)

    def propose(by: str) -> str:
        phone = Authenticator()
        passkey, name = read_proposal(phone.origin, offer(phone))  # type: ignore[arg-type]
        return proposals.propose(passkey, name, by).key_id

    kims, sams = propose("kim"), propose("sam")
    flood = [propose("mallory") for _ in range(3 * MOST_PROPOSALS)]
    waiting = [each.key_id for each in proposals.waiting(())]
    assert waiting == [kims, sams, *flood[2 - MOST_PROPOSALS :]]


# --- the address -----------------------------------------------------------------------------------------------------


async def test_the_page_is_at_localhost_and_its_address_leads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.page_files, "__defaults__", (tmp_path / "nothing",))
    async with page_server(tmp_path) as server:
        await server.link()
        browser = Browser(server.port)
        address = f"127.0.0.1:{server.port}"
        for path, to in (("/", "/"), ("/inbox/a%0d%0ax", "/inbox/a%0D%0Ax"), ("/log?a=b", "/log")):
            answer = await browser.get(path, Host=address)
            assert answer.status == 307
            assert answer.headers["location"] == f"http://localhost:{server.port}{to}"
        # Programs may use the API at the address.
        assert (await browser.get(f"{API}/me", Host=address)).status == 401
        assert (await browser.get("/other", Host=address)).status == 404


async def test_no_other_program_can_take_the_page_s_other_address(tmp_path: Path) -> None:
    """Browsers try ::1 first for localhost. Failed before: the page had 127.0.0.1 alone."""
    if not has_ipv6():
        async with page_server(tmp_path) as server:
            await server.link()
        return
    async with page_server(tmp_path) as server:
        await server.link()
        async with await trio.open_tcp_stream("::1", server.port) as stream:
            await stream.send_all(
                f"GET / HTTP/1.1\r\nHost: localhost:{server.port}\r\nConnection: close\r\n\r\n".encode()
            )
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        with contextlib.closing(socket.socket(socket.AF_INET6)) as thief, pytest.raises(OSError, match="in use"):
            thief.bind(("::1", server.port))


def has_ipv6() -> bool:
    try:
        with contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


async def test_a_server_opens_the_port_again_at_which_its_passkeys_work(tmp_path: Path) -> None:
    with keyed_service(tmp_path, Key()) as (service, enrol):
        async with page_server(tmp_path, service) as server:
            await server.link()
            port = server.port
        enrol(Authenticator(origin_of(port)).public)
        async with page_server(tmp_path, service) as server:
            assert (await server.link()).url.startswith(f"http://localhost:{port}/#")
        with contextlib.closing(socket.socket()) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", port))
            other.listen()
            async with page_server(tmp_path, service) as server:
                await server.link()
                assert server.port != port
                assert (await told(await server.browser()))["passkeys"] == []


def test_ports_of_origins() -> None:
    for port in (80, 1, 8123, 65535):
        assert port_of([Key().public, Authenticator(origin_of(port)).public]) == port
    for public in ("https://intercom.example.org", "https://localhost:8443", "https://localhost"):
        # What is there is a proxy, also if it is on this machine.
        assert port_of([Authenticator(public).public]) is None
        assert port_of([Authenticator(origin_of(8123)).public, Authenticator(public).public]) == 8123
