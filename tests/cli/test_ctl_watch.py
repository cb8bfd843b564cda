"""watch and tree --watch, in a pipe and on a real terminal."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.request import RiskLevel
from tests.operators.ctl_server import CtlServer, ctl_server, environ
from tests.operators.stand_in_service import START, StandInService, card
from tests.support.terminal import Terminal, on_terminal

pytestmark = pytest.mark.real_time

COMMAND = [sys.executable, "-m", "intercom.cli.ctl"]


@contextlib.asynccontextmanager
async def watching(directory: Path, *cards: Card) -> AsyncIterator[tuple[CtlServer, Terminal]]:
    """A watch on a terminal, at a server with these cards."""
    async with ctl_server(directory, StandInService(*cards)) as server:
        await ready(server)
        async with on_terminal([*COMMAND, "watch", "--plain"], server.environ) as screen:
            yield server, screen


async def lines(process: trio.Process) -> AsyncIterator[str]:
    assert process.stdout is not None
    rest = ""
    async for chunk in process.stdout:
        rest += chunk.decode()
        *whole, rest = rest.split("\n")
        for line in whole:
            yield line


@contextlib.asynccontextmanager
async def piped(server: CtlServer, *words: str) -> AsyncIterator[AsyncIterator[str]]:
    process = await trio.lowlevel.open_process(
        [*COMMAND, *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=server.environ
    )
    try:
        async with contextlib.aclosing(lines(process)) as found:  # type: ignore[type-var]
            yield found
    finally:
        process.kill()
        await process.wait()


async def ready(server: CtlServer) -> None:
    """Until the listener has been told of the open cards."""
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_watch_as_json_is_a_line_an_event(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("old"))) as server:
        await ready(server)
        async with piped(server, "watch", "--json") as found:
            first = json.loads(await anext(found))
            assert (first["event"], first["data"]["request_id"]) == ("card", "old")
            server.tell(Notice("hello", "info", START))
            assert json.loads(await anext(found))["data"]["text"] == "hello"


async def test_watch_in_a_pipe_prints_cards(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("old"))) as server:
        await ready(server)
        async with piped(server, "watch") as found:
            assert await anext(found) == " HIGH  Agent asks: approval old"
            while await anext(found) != "  agent-intercom-ctl approve old":
                pass


async def test_watch_outlives_its_server(tmp_path: Path) -> None:
    service = StandInService(card("old"))
    async with contextlib.AsyncExitStack() as stack:
        async with ctl_server(tmp_path, service) as server:
            await ready(server)
            found = await stack.enter_async_context(piped(server, "watch", "--json"))
            assert json.loads(await anext(found))["data"]["request_id"] == "old"
        service.cards["new"] = card("new")
        async with ctl_server(tmp_path, service) as server:
            seen: set[str] = set()
            while "new" not in seen:
                seen.add(json.loads(await anext(found))["data"]["request_id"])


LOW: dict[str, Any] = {"risk": RiskLevel.LOW}


async def select(screen: Terminal, name: str) -> None:
    """Select the next card, which is this one."""
    screen.type("n")
    await screen.until(f"approval {name} '")
    await screen.until("[q]uit")


async def test_a_key_approves_the_selected_card(tmp_path: Path) -> None:
    async with watching(tmp_path, card("one", **LOW)) as (server, screen):
        await screen.until("+ approval one 'approval one' (low)")
        await screen.until("1 waiting, none selected; [n]ext [q]uit")
        screen.type("n")
        drawn = await screen.until("[a]pprove [r]eject [v]iew whole [q]uit")
        assert "\x1b[32m+new = 2" in drawn
        assert "approval one 'approval one' (low, src/app.py)" in drawn
        screen.type("a")
        await screen.until("approved one 'approval one' (low)")
        assert server.service.acts == [("decide", "one", "approve", None, server.service.acts[0][4], "ctl")]
        server.tell(server.service.cards["one"])
        await screen.until("nothing waits; [q]uit")
        screen.type("q")
        assert await screen.ended() == 0


async def test_keys_typed_together_do_not_decide_a_card_that_was_not_on_the_screen(tmp_path: Path) -> None:
    """`n` and `a` in one go approved the other card."""
    async with watching(tmp_path, card("one", **LOW), card("two", **LOW)) as (server, screen):
        await screen.until("2 waiting")
        screen.type("nana")
        await screen.until("[a]pprove")
        screen.type("nay\n")
        await screen.until("approval two 'approval two'")
        screen.type("q")
        assert await screen.ended() == 0
        assert server.service.acts == []


@pytest.mark.parametrize("answer", ["a", "\x04"])
async def test_a_critical_card_that_was_not_seen_whole_asks_by_name(tmp_path: Path, answer: str) -> None:
    """A critical change, 60 of 755 lines seen, was approved with one key."""
    long = card("one", diff="".join(f"+{number}\n" for number in range(755)), risk=RiskLevel.CRITICAL)
    async with watching(tmp_path, long) as (server, screen):
        await screen.until("none selected")
        await select(screen, "one")
        screen.type("ay")
        await screen.until("approve one 'approval one' (critical, 695 of 755 lines not seen)? type y ")
        screen.type(answer)
        await screen.until("approve left undone: one 'approval one' (critical)")
        await screen.until("[q]uit")
        assert server.service.acts == []
        screen.type("v")
        await screen.until("+754")
        await screen.until("[q]uit")
        screen.type("a")
        await screen.until("approve one 'approval one' (critical)? type y ")
        screen.type("y")
        await screen.until("approved one")


async def test_a_selected_card_that_changes_is_shown_again(tmp_path: Path) -> None:
    async with watching(tmp_path, card("one", **LOW)) as (server, screen):
        await screen.until("none selected")
        await select(screen, "one")
        server.tell(card("one", risk=RiskLevel.CRITICAL, title="another"))
        await screen.until("the selected card has changed:")
        await screen.until("approval one 'another' (critical, src/app.py)")


@pytest.mark.parametrize(("typed", "states"), [(True, "rejected rejected"), (False, "approved delivered applied")])
async def test_a_card_that_has_ended_is_drawn_once(tmp_path: Path, typed: bool, states: str) -> None:
    """What becomes of it later is told on a line, and nothing if nothing is new."""
    async with ctl_server(tmp_path, StandInService(card("one"))) as server, contextlib.AsyncExitStack() as stack:
        await ready(server)
        if typed:
            screen = await stack.enter_async_context(on_terminal([*COMMAND, "watch", "--plain"], server.environ))
            await screen.until("none selected")
        else:
            found = await stack.enter_async_context(piped(server, "watch"))
            while "approve one" not in await anext(found):
                pass
        for state in states.split():
            server.tell(card("one", state=CardState(state)))
        server.tell(Notice("the end", "info", START))
        if typed:
            seen = await screen.until("the end")
        else:
            seen = ""
            while "the end" not in seen:
                seen += await anext(found)
        assert seen.count("Agent asks:") == 1
        assert [seen.count(state) for state in dict.fromkeys(states.split())] == [1] * len(set(states.split()))


async def test_a_key_asks_for_the_words_it_needs(tmp_path: Path) -> None:
    async with watching(tmp_path, card("one"), card("two", CardKind.PROMPT)) as (server, screen):
        await screen.until("2 waiting")
        await select(screen, "one")
        screen.type("rthis was typed before the question\n")
        await screen.until("reject one 'approval one' (high), with what text (may be empty)? ")
        screen.type("too broad\n")
        await screen.until("rejected one")
        server.tell(server.service.cards["one"])
        await screen.until("1 waiting, none selected")
        screen.type("n")
        await screen.until("[c]ontinue re[f]ine")
        screen.type("f")
        await screen.until("refine two 'prompt two', with what text? ")
        screen.type("\n")
        await screen.until("refine left undone")
        await screen.until("[q]uit")
        screen.type("f")
        await screen.until("with what text? ")
        screen.type("do less\n")
        await screen.until("refined two")
        assert [act[1:4] for act in server.service.acts] == [
            ("one", "reject", "too broad"),
            ("two", "refine", "do less"),
        ]


@pytest.mark.parametrize("typed", ["\x1b", "too broad\x1b", "\x03", "\x04"])
async def test_a_text_is_left_undone_on_esc_and_the_next_one_counts(tmp_path: Path, typed: str) -> None:
    async with watching(tmp_path, card("one")) as (server, screen):
        await screen.until("1 waiting")
        await select(screen, "one")
        screen.type("r")
        await screen.until("with what text (may be empty)? ")
        screen.type(typed)
        await screen.until("reject left undone: one")
        await screen.until("[q]uit")
        assert server.service.acts == []
        screen.type("r")
        await screen.until("with what text (may be empty)? ")
        screen.type("größer, bitte\n")
        await screen.until("rejected one")
        assert [act[1:4] for act in server.service.acts] == [("one", "reject", "größer, bitte")]


async def test_keys_view_and_go_on_and_a_refusal_is_shown(tmp_path: Path) -> None:
    long = card("one", diff="".join(f"+{number}\n" for number in range(100)))
    async with watching(tmp_path, long, card("two", **LOW)) as (server, screen):
        await screen.until("2 waiting")
        screen.type("?")
        await screen.until("approval: a approve, r reject")
        await screen.until("always: v view whole, n next, q quit, ? help")
        await screen.until("[q]uit")
        screen.type("n")
        await screen.until("60 of 100 lines")
        await screen.until("40 of 100 lines not seen")
        await screen.until("[q]uit")
        screen.type("v")
        await screen.until("+99")
        await screen.until("(high, src/app.py)")
        await screen.until("[q]uit")
        await select(screen, "two")
        del server.service.cards["two"]
        screen.type("a")
        await screen.until("no request or alert begins with two")
        server.tell(Notice("a \x1b[2Jnotice", "warning", START))
        await screen.until("a \\x1b[2Jnotice")
        server.tell(card("three"))
        await screen.until("+ approval three 'approval three' (high)")
        server.tell(card("two", state=CardState.EXPIRED))
        await screen.until("expired")


@pytest.mark.parametrize("key", ["\x04", None])
async def test_a_watch_ends_quietly_and_leaves_the_terminal_as_it_was(tmp_path: Path, key: str | None) -> None:
    async with ctl_server(tmp_path) as server, on_terminal([*COMMAND, "watch", "--plain"], server.environ) as screen:
        before = termios.tcgetattr(screen._descriptor)
        await screen.until("nothing waits")
        assert termios.tcgetattr(screen._descriptor) != before
        await leave(screen, key)
        assert termios.tcgetattr(screen._descriptor) == before


async def leave(screen: Terminal, key: str | None) -> None:
    """By a key, or by an interrupt."""
    if key is None:
        screen.process.send_signal(signal.SIGINT)
    else:
        screen.type(key)
    assert await screen.ended() == (130 if key is None else 0)
    assert "Traceback" not in screen._seen


async def test_the_server_may_go_and_come_back_under_a_person(tmp_path: Path) -> None:
    service = StandInService(card("one", **LOW))
    async with contextlib.AsyncExitStack() as stack:
        async with ctl_server(tmp_path, service) as server:
            await ready(server)
            screen = await stack.enter_async_context(on_terminal([*COMMAND, "watch", "--plain"], server.environ))
            await screen.until("[q]uit")
        await screen.until("the server went away; waiting for it")
        async with ctl_server(tmp_path, service) as server:
            await screen.until("the server is back")
            await screen.until("1 waiting, none selected")
            await select(screen, "one")
            screen.type("a")
            await screen.until("approved one")


async def test_a_person_may_watch_before_there_is_a_server(tmp_path: Path) -> None:
    async with on_terminal([*COMMAND, "watch", "--plain"], environ(tmp_path)) as screen:
        await screen.until("no server runs yet; waiting for one")
        await screen.until("[q]uit")
        screen.type("a")
        async with ctl_server(tmp_path, StandInService(card("one", **LOW))):
            await screen.until("a server runs now")
            await screen.until("1 waiting, none selected")
            await select(screen, "one")
            screen.type("a")
            await screen.until("approved one")


@pytest.mark.parametrize("key", ["q", None])
async def test_who_waits_for_a_server_may_stop_waiting(tmp_path: Path, key: str | None) -> None:
    async with on_terminal([*COMMAND, "watch", "--plain"], environ(tmp_path)) as screen:
        await screen.until("[q]uit")
        await leave(screen, key)


@pytest.mark.parametrize("words", [("watch", "--json"), ("tree", "--watch", "--json")])
async def test_in_a_pipe_a_server_is_waited_for_too(tmp_path: Path, words: tuple[str, ...]) -> None:
    process = await trio.lowlevel.open_process(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ(tmp_path),
    )
    assert process.stderr is not None
    try:
        assert await process.stderr.receive_some() == b"agent-intercom-ctl: no server runs yet; waiting for one\n"
        async with ctl_server(tmp_path, StandInService(card("one"))):
            first = json.loads(await anext(lines(process)))
        assert {"event", "tree"} & set(first)
        assert await process.stderr.receive_some() == b"agent-intercom-ctl: the server went away; waiting for it\n"
    finally:
        process.kill()
        await process.wait()


async def test_the_tree_may_be_watched(tmp_path: Path) -> None:
    async with ctl_server(tmp_path) as server:
        async with on_terminal([*COMMAND, "tree", "--watch"], server.environ) as screen:
            for _ in range(2):
                await screen.until("\x1b[H\x1b[J")
                await screen.until("disk full")
        async with piped(server, "--json", "tree", "--watch") as found:
            trees: list[Any] = [json.loads(await anext(found)) for _ in range(2)]
            assert trees[0]["tree"]["name"] == "root"
