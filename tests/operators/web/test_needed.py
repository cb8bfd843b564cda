"""For whom a server stays that no agent needs: people who are signed in, and those who cannot start another one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from actors import ask
from intercom.app import App
from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.web_role import WebRole
from intercom.operators.web.listener import IsNeeded
from intercom.operators.web.sign_in import IDLE_LIFE, LONGEST_LIFE
from intercom.operators.web.tokens import TOKEN_DAYS
from tests.operators.ctl_server import environ
from tests.operators.web.page_server import SECRET, Browser, Clock, PageServer, page_server
from tests.operators.web.test_proxy import SETTINGS
from tests.operators.web.test_tokens import add
from tests.support.virtual_server import VirtualServer

SECOND = timedelta(seconds=1)


async def is_needed(server: PageServer) -> bool:
    return await ask(server.links.actor, IsNeeded())


async def test_it_stays_for_who_is_signed_in_until_that_ends_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    async with page_server(tmp_path, clock=clock) as server:
        sign_ins = server.sign_ins
        sign_ins.issue("kim", WebRole.ADMIN, "code")
        assert not await is_needed(server)
        secret, _ = sign_ins.begin(sign_ins.redeem("code"), frozenset())
        assert await is_needed(server)
        clock.at += IDLE_LIFE
        assert await is_needed(server)
        # A tab that nobody looks at sends nothing.
        clock.at += SECOND
        assert not await is_needed(server)
        assert sign_ins.find([secret]) is None


async def test_a_tab_that_asks_by_itself_does_not_keep_it_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    async with page_server(tmp_path, clock=clock) as server:
        sign_ins = server.sign_ins
        sign_ins.issue("kim", WebRole.ADMIN, "code")
        secret, _ = sign_ins.begin(sign_ins.redeem("code"), frozenset())
        for _ in range(LONGEST_LIFE // IDLE_LIFE):
            clock.at += IDLE_LIFE
            assert sign_ins.find([secret]) is not None
            assert await is_needed(server)
        clock.at += SECOND
        assert not await is_needed(server)


@pytest.mark.real_time
@pytest.mark.parametrize(("port", "stays"), [(4321, True), (0, False)])
async def test_it_stays_for_a_program_that_finds_it_at_a_set_port(tmp_path: Path, port: int, stays: bool) -> None:
    clock = Clock()
    async with page_server(tmp_path, has_store=True, clock=clock, port=port) as server:
        # The port is opened at the start only, when there was no token.
        assert not await is_needed(server)
        await server.tokens.add("nightly", WebRole.VIEWER, TOKEN_DAYS, "alex")
        assert await is_needed(server) is stays
        clock.at += timedelta(days=TOKEN_DAYS)
        assert not await is_needed(server)


async def test_it_stays_for_those_whom_a_proxy_signs_in(tmp_path: Path) -> None:
    async with page_server(tmp_path, settings=SETTINGS, proxy_secret=SECRET) as server:
        assert await is_needed(server)


@pytest.mark.real_time
async def test_it_stays_for_a_program_that_reads_the_events(tmp_path: Path) -> None:
    async with page_server(tmp_path, has_store=True) as server:
        _, program = await add(server)
        assert not await is_needed(server)
        async with program.events() as stream:
            await stream.until_ready()
            assert await is_needed(server)
            await server.links.revoke_token("nightly", "alex")
            await stream.until_end()
            assert not await is_needed(server)


@pytest.mark.real_time
async def test_the_server_knows_who_is_on_its_page(tmp_path: Path) -> None:
    app = App(Config(), places(environ=environ(tmp_path)), tmp_path / "intercom.db", frozenset({"ctl"}))
    async with app.system:
        assert not await app.is_page_needed()
        web = app.service.web
        assert web is not None
        link = urlsplit((await web.sign_in_link("kim")).url)
        await Browser(link.port or 0).sign_in(link.fragment.partition("=")[2])
        assert app.is_idle()
        assert await app.is_page_needed()


async def test_a_server_without_a_page_has_nobody_there(server: VirtualServer) -> None:
    assert not await server.app.is_page_needed()
