"""The local socket itself: who may open it, what crosses it, what a crash of its actor or the router costs."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors import StartFailed
from actors.events import ActorRestarted
from intercom.local import lock
from intercom.local.server_socket import PlaceLimits
from intercom.local.wire import Peer as Who
from intercom.model.card import CardState, Notice
from intercom.model.errors import IpcError
from intercom.operators.ctl.client import NoServer, request
from intercom.operators.ctl.connection import Limits
from intercom.operators.ctl.listener import new_token, write_token
from intercom.operators.router_messages import Channel, Subscribe
from tests.operators.ctl_server import CtlServer, Peer, ctl_server
from tests.operators.stand_in_service import START, StandInService, card

pytestmark = pytest.mark.real_time


def mode_of(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


async def test_socket_and_token_are_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with ctl_server(tmp_path) as server:
            assert mode_of(server.places.ctl_socket) == 0o600
            assert mode_of(server.places.token_file) == 0o600
            assert mode_of(server.places.runtime_dir) == 0o700
            first = server.token
        async with ctl_server(tmp_path) as server:
            assert mode_of(server.places.token_file) == 0o600
            assert len(server.token) == 64
            assert server.token != first
    finally:
        os.umask(before)


async def test_who_finds_the_socket_taken_leaves_the_others_token_alone_and_it_goes_with_its_server(
    tmp_path: Path,
) -> None:
    async with ctl_server(tmp_path) as server:
        before = server.token
        with pytest.raises(StartFailed, match="another server listens"):
            async with ctl_server(tmp_path):
                pytest.fail("two have one socket")
        assert server.token == before
    assert not await trio.Path(server.places.ctl_socket).exists()


def test_a_token_file_that_is_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link = tmp_path / "x.token"
    link.symlink_to(victim)
    write_token(str(link), new_token())
    assert victim.read_text() == "precious"
    assert not link.is_symlink()
    assert mode_of(str(link)) == 0o600


def test_a_token_file_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "x.token").mkdir()
    with pytest.raises(IpcError, match="cannot write the token file"):
        write_token(str(tmp_path / "x.token"), new_token())


async def test_a_peer_that_can_not_be_named_is_dropped(tmp_path: Path) -> None:
    def nobody(_: Any) -> Who:
        raise OSError("gone")

    async with ctl_server(tmp_path, peer_of=nobody) as server:
        assert await (await server.dial()).line() is None


async def test_a_crowd_without_the_token_never_keeps_out_who_has_it(tmp_path: Path) -> None:
    places = PlaceLimits(unauthenticated=3, shared=2, reserved=0, watching=1, reserved_watching=0)
    async with ctl_server(tmp_path, limits=Limits(places=places)) as server:
        crowd = [await server.dial() for _ in range(20)]
        late = await server.dial()
        assert (await late.ask("version"))["ok"] is True
        # The oldest gave way, and were told.
        for early in crowd[:17]:
            refused = await early.line()
            assert refused is not None
            assert refused["error_code"] == "busy"
            assert await early.line() is None


async def test_connections_that_ask_nothing_give_way_and_requests_under_way_do_not(tmp_path: Path) -> None:
    places = PlaceLimits(unauthenticated=3, shared=2, reserved=0, watching=1, reserved_watching=0)
    service = StandInService(card("a"))
    async with ctl_server(tmp_path, service, limits=Limits(places=places), trust_agent_processes=True) as server:
        held = [await server.dial() for _ in range(3)]
        for peer in held:
            assert (await peer.ask("version"))["ok"] is True
        told = await held[0].line()
        assert told is not None
        assert told["error_code"] == "busy"
        assert (await held[1].ask("version"))["ok"] is True
        assert (await held[2].ask("version"))["ok"] is True
        # Both have a request under way now: there is no room, and who comes is told so.
        waiting = trio.Event()

        async def until_told(**_: object) -> Any:
            await waiting.wait()
            return ()

        service.sessions = until_told  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for peer in held[1:]:
                nursery.start_soon(peer.ask, "list")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (await (await server.dial()).ask("version"))["error_code"] == "busy"
            waiting.set()
        assert (await (await server.dial()).ask("version"))["ok"] is True


async def test_watches_have_places_of_their_own(tmp_path: Path) -> None:
    places = PlaceLimits(unauthenticated=3, shared=2, reserved=0, watching=2, reserved_watching=0)
    async with ctl_server(tmp_path, limits=Limits(places=places)) as server:
        watching = [await server.dial() for _ in range(3)]
        assert [(await peer.ask("watch")).get("error_code") for peer in watching] == [None, None, "busy"]
        await heard(server, Notice("hello", "info", START))
        assert [(await peer.line() or {})["data"]["text"] for peer in watching[:2]] == ["hello", "hello"]
        assert (await (await server.dial()).ask("version"))["ok"] is True


async def events(peer: Peer, count: int) -> list[dict[str, Any]]:
    return [await peer.line() or {} for _ in range(count)]


async def heard(server: CtlServer, shown: Any) -> None:
    """Tell the router, once it has its subscriber."""
    await trio.testing.wait_all_tasks_blocked(0.01)
    server.tell(shown)


async def test_a_watch_shows_cards_and_notices_as_they_come(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("old"))) as server:
        await trio.testing.wait_all_tasks_blocked(0.01)
        peer = await server.dial()
        await peer.ask("watch")
        assert (await peer.line() or {})["data"]["request_id"] == "old"
        await heard(server, card("new"))
        server.tell(Notice("hello", "info", START))
        server.tell(card("old", state=CardState.APPROVED))
        got = await events(peer, 3)
        assert [(each["event"], each["data"].get("request_id"), each["data"].get("text")) for each in got] == [
            ("card", "new", None),
            ("notice", None, "hello"),
            ("card", "old", None),
        ]
        assert got[2]["data"]["status"] == "approved"


async def test_a_watch_outlives_the_router_and_hears_what_closed_meanwhile(tmp_path: Path) -> None:
    service = StandInService(card("closes"), card("stays"))
    async with ctl_server(tmp_path, service) as server:
        await trio.testing.wait_all_tasks_blocked(0.01)
        peer = await server.dial()
        await peer.ask("watch")
        await events(peer, 2)
        # Both at once: the card ends, and the router falls before it hears of it.
        service.cards["closes"] = card("closes", state=CardState.EXPIRED)
        service.cards["comes"] = card("comes")
        server.tell(Subscribe(["no name"], Channel.CTL))  # type: ignore[arg-type]
        got = await events(peer, 2)
        assert {each["data"]["request_id"]: each["data"]["status"] for each in got} == {
            "comes": "pending",
            "closes": "expired",
        }
        await heard(server, card("later"))
        assert (await peer.line() or {})["data"]["request_id"] == "later"


async def test_after_a_crash_of_the_listener_the_socket_is_there_again(tmp_path: Path) -> None:
    again = trio.Event()

    def notice(happened: object) -> None:
        if isinstance(happened, ActorRestarted) and happened.name == "ctl":
            again.set()

    async with ctl_server(tmp_path, StandInService(card("a")), on_event=notice) as server:
        peer = await server.dial()
        assert (await peer.ask("version"))["ok"] is True
        server.system.named("ctl").tell(card(["unhashable"]))  # type: ignore[arg-type]
        assert await peer.line() is None
        await again.wait()
        assert (await (await server.dial()).ask("approve", id="a"))["ok"] is True


async def heard_again(watching: Peer) -> None:
    """Wait until a watch tells that something was made again."""
    while True:
        event = await watching.line()
        assert event is not None
        text = str(event["data"].get("text"))
        if "there again" in text or "written again" in text or "was replaced" in text:
            return


@pytest.mark.parametrize("what", ["directory", "socket", "token", "token replaced", "token opened"])
async def test_what_was_taken_away_is_there_again_and_ctl_finds_it(tmp_path: Path, what: str) -> None:
    async with ctl_server(tmp_path, StandInService(card("a")), trust_agent_processes=True) as server:
        watching, token = await server.dial(), server.token
        await watching.ask("watch")
        where = server.places
        match what:
            case "directory":
                shutil.rmtree(where.runtime_dir)
            case "socket":
                os.unlink(where.ctl_socket)
            case "token":
                os.unlink(where.token_file)
            case "token replaced":
                await trio.Path(where.token_file).write_text("another")
                # Until it is put right ctl takes it for another server's, and asks nobody twice.
                await heard_again(watching)
            case _:
                os.chmod(where.token_file, 0o644)
                await heard_again(watching)
        # A server that runs has its database locked: by that ctl knows that there is one.
        os.makedirs(os.path.dirname(where.database), 0o700, exist_ok=True)
        with lock.acquire(where.database, version="1"):
            done = await trio.to_thread.run_sync(request, where, "approve", {"id": "a"})
        assert done["status"] == "approved"
        assert server.token == token
        assert mode_of(where.token_file) == 0o600
        if what in ("directory", "socket", "token"):
            # Who was connected before goes on, and hears of it.
            await heard_again(watching)


async def test_where_no_server_runs_ctl_says_so_at_once_all_the_same(tmp_path: Path) -> None:
    async with ctl_server(tmp_path) as server:
        where = server.places
    os.makedirs(os.path.dirname(where.database), 0o700)
    lock.acquire(where.database, version="1").release()
    began = trio.current_time()
    with pytest.raises(NoServer):
        await trio.to_thread.run_sync(request, where, "list", {})
    assert trio.current_time() - began < 2
