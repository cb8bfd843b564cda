"""One connection, in virtual time: good peers, bad peers, slow peers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from attrs import frozen

from actors import Busy, Down, NotRunning, Refused
from intercom.local.server_socket import PlaceLimits
from intercom.local.wire import Peer as Who
from intercom.model.card import Card
from intercom.operators.authorization import AWAIT_SECONDS
from intercom.operators.commands.command_table import COMMANDS, MAX_REQUEST
from intercom.operators.ctl.connection import DROPPED, CtlDeps, Limits, Watchers, serve
from tests.operators.ctl_server import Peer
from tests.operators.stand_in_service import StandInAgents, StandInService, card

ME = Who(os.getpid(), os.geteuid())


@frozen
class Line:
    peer: Peer
    service: StandInService
    deps: CtlDeps


@contextlib.asynccontextmanager
async def connected(
    *cards: Card, who: Who = ME, queue: int = 4, clients: frozenset[int] | None = None, **options: Any
) -> AsyncIterator[Line]:
    """A served connection without a socket beneath it, whose buffers hold nothing back. Everybody may act, unless it is
    said who is an agent."""
    service = StandInService(*cards)
    options.setdefault("trust_agent_processes", clients is None)
    service.clients = clients or frozenset()
    options.setdefault("agents", StandInAgents(service))
    deps = CtlDeps(service, "the token", Watchers(queue), lambda: cards, os.geteuid(), **options)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, theirs, who, deps)
        yield Line(Peer(ours, deps.token), service, deps)  # type: ignore[arg-type]
        await ours.aclose()


async def test_one_connection_carries_several_requests() -> None:
    async with connected(card("a")) as line:
        assert (await line.peer.ask("pending"))["data"][0]["request_id"] == "a"
        assert (await line.peer.ask("approve", id="a"))["data"]["status"] == "approved"
        assert (await line.peer.ask("pending"))["data"] == []


async def test_requests_sent_in_one_go_are_answered_in_order() -> None:
    async with connected(card("a")) as line:
        lines = [json.dumps({"command": verb, "auth_token": "the token"}) for verb in ("version", "pending", "nothing")]
        await line.peer.stream.send_all("\n\r\n".join([*lines, ""]).encode())
        replies = [await line.peer.line() for _ in lines]
        assert [reply and reply["ok"] for reply in replies] == [True, True, False]


@pytest.mark.parametrize("token", [None, "", "wrong", "the toke", "é"])
async def test_a_wrong_token_is_refused_and_ends_the_connection(token: str | None) -> None:
    async with connected(card("a")) as line:
        line.peer.token = token
        reply = await line.peer.ask("approve", id="a")
        assert (reply["ok"], reply["error_code"]) == (False, "unauthorized")
        assert await line.peer.line() is None
        assert line.service.acts == []


async def test_another_user_is_refused_whatever_they_know() -> None:
    async with connected(card("a"), who=Who(os.getpid(), os.geteuid() + 1)) as line:
        reply = await line.peer.line()
        assert reply is not None
        assert reply["error_code"] == "unauthorized"
        assert await line.peer.line() is None


async def test_bad_lines_are_refused_and_the_connection_goes_on() -> None:
    async with connected() as line:
        for bad in (b"nonsense", b"[]", b'{"command": 1}', b"\xff\xfe", b'{"command":"list","limit":"x"}'):
            assert (await line.peer.send(bad))["ok"] is False
        unknown = await line.peer.ask("frobnicate")
        assert unknown["error_code"] == "invalid_arguments"
        assert "watch" in unknown["error"]
        assert (await line.peer.ask("version"))["ok"] is True


@pytest.mark.parametrize("ended", [True, False])
async def test_a_line_over_the_limit_ends_the_connection(ended: bool) -> None:
    async with connected() as line:
        await line.peer.stream.send_all(b"a" * (MAX_REQUEST + 1) + (b"\n" if ended else b""))
        reply = await line.peer.line()
        assert reply is not None
        assert "longer than" in reply["error"]
        assert await line.peer.line() is None


async def test_a_line_at_the_limit_is_read() -> None:
    async with connected() as line:
        head, tail = b'{"command": "version", "auth_token": "the token", "text": "', b'"}'
        filled = head + b"a" * (MAX_REQUEST - len(head) - len(tail)) + tail
        assert (await line.peer.send(filled))["ok"] is True


@pytest.mark.parametrize("sent", [b"", b'{"command": "vers'])
async def test_a_peer_that_sends_no_whole_line_is_dropped_after_its_time(sent: bytes) -> None:
    async with connected(limits=Limits(first=30)) as line:
        began = trio.current_time()
        if sent:
            await line.peer.stream.send_all(sent)
        reply = await line.peer.line()
        assert reply is not None
        assert "within 30 s" in reply["error"]
        assert await line.peer.line() is None
        assert trio.current_time() - began == pytest.approx(30)


async def test_a_peer_that_drips_is_dropped_all_the_same() -> None:
    async with connected(limits=Limits(first=30)) as line, trio.open_nursery() as nursery:

        async def drip() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                while True:
                    await line.peer.stream.send_all(b"x")
                    await trio.sleep(1)

        nursery.start_soon(drip)
        assert "within 30 s" in ((await line.peer.line()) or {})["error"]
        nursery.cancel_scope.cancel()


async def test_a_peer_that_does_not_read_its_reply_is_dropped() -> None:
    service = StandInService()
    deps = CtlDeps(service, "t", Watchers(), tuple, os.geteuid(), Limits(reply=10))
    # A lock-step stream: a send ends when the other side has read.
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, theirs, ME, deps)
        await ours.send_all(b'{"command": "version", "auth_token": "t"}\n')
        began = trio.current_time()
        await trio.sleep(20)
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"more")
        assert trio.current_time() - began == pytest.approx(20)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (Busy("full"), "busy"),
        (Down("session/1", None, begun=True), "unavailable"),
        (NotRunning("gone"), "unavailable"),
        (Refused("no more"), "invalid_state"),
        (ValueError("a fault of ours: /secret/path"), "unavailable"),
    ],
)
async def test_whatever_happens_at_the_service_is_told_in_a_sentence(raised: BaseException, code: str) -> None:
    async with connected() as line:
        line.service.crash = raised
        reply = await line.peer.ask("list")
        assert (reply["ok"], reply["error_code"]) == (False, code)
        assert "secret" not in reply["error"]
        line.service.crash = None
        assert (await line.peer.ask("list"))["ok"] is True


async def test_a_service_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    async with connected(limits=Limits(work=60)) as line:

        async def never(**_: object) -> Any:
            await trio.sleep_forever()

        line.service.sessions = never  # type: ignore[method-assign]
        reply = await line.peer.ask("list")
        assert reply["error_code"] == "unavailable"
        assert reply["error"].endswith("takes longer than the time limit; try again")


async def test_a_verdict_from_a_clients_own_process_is_refused_and_recorded() -> None:
    async with connected(card("a"), clients=frozenset({os.getpid()})) as line:
        reply = await line.peer.ask("approve", id="a")
        assert (reply["ok"], reply["error_code"]) == (False, "unauthorized")
        assert "an agent's own processes may not answer for it" in reply["error"]
        assert line.service.acts == []
        [(summary, data)] = line.service.events
        assert "refused approve" in summary
        assert data["pid"] == os.getpid()
        assert (await line.peer.ask("pending"))["ok"] is True


ACTING = [name for name, row in COMMANDS.items() if row.acts]


@pytest.mark.parametrize("verb", ACTING)
async def test_no_verb_that_acts_is_open_to_an_agent(verb: str) -> None:
    async with connected(card("a"), clients=frozenset({os.getpid()})) as line:
        reply = await line.peer.ask(verb, id="a", mode="local", decision="stop")
        assert reply["error_code"] == "unauthorized"
        assert line.service.acts == []


async def test_an_agents_processes_may_be_trusted() -> None:
    async with connected(card("a"), clients=frozenset({os.getpid()}), trust_agent_processes=True) as line:
        assert (await line.peer.ask("approve", id="a"))["ok"] is True


@pytest.mark.parametrize("pid", [0, 2**22 + 1])
async def test_a_process_that_can_not_be_examined_may_not_act(pid: int) -> None:
    async with connected(card("a"), who=Who(pid, os.geteuid()), clients=frozenset({1})) as line:
        assert (await line.peer.ask("approve", id="a"))["error_code"] == "unauthorized"


async def test_who_has_shown_the_token_may_take_longer_for_the_next_request() -> None:
    async with connected(limits=Limits(first=10, request=30)) as line:
        assert (await line.peer.ask("version"))["ok"] is True
        await trio.sleep(29)
        assert (await line.peer.ask("version"))["ok"] is True
        assert "within 30 s" in ((await line.peer.line()) or {})["error"]


ONE = PlaceLimits(unauthenticated=1, shared=1, reserved=0, watching=1, reserved_watching=0)


async def test_a_connection_that_gives_way_is_told_so_and_what_it_asked_at_that_moment_is_not_done() -> None:
    service = StandInService(card("a"))
    deps = CtlDeps(service, "t", Watchers(), tuple, os.geteuid(), limits=Limits(places=ONE))
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, theirs, ME, deps)
        await trio.testing.wait_all_tasks_blocked()
        # Its request arrives, and before it can be read another connection does.
        theirs.receive_stream.put_data(b'{"command": "approve", "id": "a", "auth_token": "t"}\n')
        deps.admission.arrive(lambda: None)
        reply = await Peer(ours).line()  # type: ignore[arg-type]
        assert reply is not None
        assert reply["error_code"] == "busy"
        assert await Peer(ours).line() is None  # type: ignore[arg-type]
        assert service.acts == []


async def test_a_watch_begins_with_the_open_cards_and_goes_on_with_what_comes() -> None:
    async with connected(card("a")) as line:
        assert (await line.peer.ask("watch"))["data"] == {"watching": True}
        assert (await line.peer.line() or {})["data"]["request_id"] == "a"
        line.deps.watchers.publish(card("b"))
        assert await line.peer.line() == {"event": "card", "data": line_data("b")}


def line_data(name: str) -> dict[str, Any]:
    from intercom.operators.commands.json_forms import card_entry

    return card_entry(card(name))


async def test_a_watcher_that_falls_behind_is_dropped_with_a_notice_and_nobody_waits_for_it() -> None:
    async with connected(queue=4) as line:
        await line.peer.ask("watch")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(20):
            line.deps.watchers.publish(card(str(number)))
        assert len(line.deps.watchers) == 0
        events = []
        while (event := await line.peer.line()) is not None:
            events.append(event)
        assert events[-1] == json.loads(DROPPED)
        assert len(events) <= 6


async def test_a_watcher_that_goes_is_forgotten() -> None:
    async with connected() as line:
        await line.peer.ask("watch")
        await trio.testing.wait_all_tasks_blocked()
        assert len(line.deps.watchers) == 1
        await line.peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert len(line.deps.watchers) == 0


async def test_a_long_diff_is_left_out_of_a_watch_line() -> None:
    async with connected() as line:
        await line.peer.ask("watch")
        line.deps.watchers.publish(card("big", diff="+" * 1_000_000))
        event = await line.peer.line() or {}
        assert (event["data"]["diff"], event["data"]["diff_omitted"]) == (None, True)


async def test_nothing_is_decided_while_agents_of_an_earlier_server_may_come_back() -> None:
    service = StandInService(card("a"))
    agents = StandInAgents(service)
    agents.awaited = 2
    async with connected(card("a"), clients=frozenset(), agents=agents) as line:
        reply = await line.peer.ask("approve", id="a")
        assert (reply["error_code"], line.service.acts) == ("unavailable", [])
        assert "the server has just started and does not know yet which processes are agents'" in reply["error"]
        assert 0 < reply["details"]["retry_after"] <= AWAIT_SECONDS + 0.1
        assert (await line.peer.ask("pending"))["ok"] is True
        await trio.sleep(AWAIT_SECONDS)
        # They are gone for good: whoever asks is judged by who they are.
        reply = await line.peer.ask("approve", id="a")
        assert reply["error_code"] == "unauthorized"
