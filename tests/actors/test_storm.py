"""Asks, crashes and stops at random, in virtual time: whatever happens, nobody is left waiting."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from actors import ChildSpec, Down, NotRunning, Strategy, Supervisor, System, ask, tell
from actors.testing import no_leaks
from tests.actors.puppets import Do, Get, child, crash

CLIENTS, CALLS, ACTORS = 15, 20, 4


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("seed", range(4))
async def test_every_ask_ends_and_nothing_is_left(seed: int, strategy: Strategy) -> None:
    chance = random.Random(seed)

    async def work(_: Any) -> str:
        await trio.sleep(chance.random() / 100)
        return "worked"

    async def one_call(system: System) -> None:
        name = system.named(f"c{chance.randrange(ACTORS)}")
        match chance.randrange(6):
            case 0:
                await ask(name, crash(), timeout=100)
            case 1:
                tell(name, Do(lambda me: me.stop()))
            case 2:
                await ask(name, Do(work), timeout=100)
            case 3:
                assert await ask(name, Do(work), timeout=100, retry=True) == "worked"
            case 4:
                with trio.move_on_after(0.05):
                    await ask(name, Do(lambda me: me.defer()))
            case _:
                await ask(name, Get(), timeout=100)

    async def client(system: System) -> None:
        nonlocal ended
        for _ in range(CALLS):
            try:
                await one_call(system)
            except (Down, NotRunning):
                pass  # an answer, too
            ended += 1

    def root() -> Supervisor:
        return Supervisor([child(f"c{n}") for n in range(ACTORS)], strategy, max_restarts=100_000)

    ended = 0
    async with no_leaks():
        async with System(ChildSpec("root", root, shutdown=None)) as system, trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(client, system)
        assert ended == CLIENTS * CALLS
        assert len(system.timers) == 0
