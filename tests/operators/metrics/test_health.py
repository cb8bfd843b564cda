"""The page for whoever watches over the process."""

from __future__ import annotations

import json
from typing import Any

import attrs
import trio

from actors import Actor, ChildSpec, Info, Supervisor, System
from intercom._version import __version__
from intercom.model.errors import DatabaseError
from intercom.operators.metrics import GOOD_SECONDS, Health
from intercom.store.store_and_reader import PROBE_SECONDS
from intercom.store.store_and_reader import Store as StoreClient


class Store(Actor):
    """Answers, refuses or says nothing, as told."""

    manner = "answers"
    asked = 0

    async def on_receive(self, message: Any) -> None:
        type(self).asked += 1
        if self.manner == "refuses":
            raise DatabaseError("the database /home/me/agent-rc.db cannot be written")
        if self.manner == "hangs":
            await trio.sleep_forever()


def server(manner: str) -> tuple[System, type[Store]]:
    kind = type("Store", (Store,), {"manner": manner, "asked": 0, "refusals": (DatabaseError,)})
    top = ChildSpec("server", lambda: Supervisor([ChildSpec("store", kind), ChildSpec("ctl", Actor)]), shutdown=None)
    return System([top], clock=lambda: trio.current_time() + 1000), kind


def health(system: System) -> Health:
    return Health(system.inspect, StoreClient(system.named("store")), "life-1", system.clock)


async def read(at: Health) -> tuple[int, dict[str, Any]]:
    page = await at.answer()
    assert page.media_type == "application/json"
    said: dict[str, Any] = json.loads(page.body)
    return page.status, said


async def test_a_server_that_works_says_so_and_for_how_long() -> None:
    system, _ = server("answers")
    async with system:
        await trio.sleep(90)
        status, said = await read(health(system))
    assert status == 200
    assert said == {
        "status": "ok",
        "version": __version__,
        "life": "life-1",
        "uptime_seconds": 90.0,
        "store": "ok",
        "faults": [],
    }


async def test_a_store_that_refuses_is_told_without_its_path() -> None:
    system, _ = server("refuses")
    async with system:
        status, said = await read(health(system))
    assert status == 503
    assert (said["status"], said["store"]) == ("failing", "failing")
    assert "/home" not in json.dumps(said)
    assert "the database cannot be written" in said["faults"][0]


async def test_a_store_that_says_nothing_is_not_waited_for_long() -> None:
    system, _ = server("hangs")
    async with system:
        began = trio.current_time()
        status, said = await read(health(system))
        assert trio.current_time() - began == PROBE_SECONDS
    assert (status, said["store"]) == (503, "failing")


async def test_a_part_that_is_down_is_named() -> None:
    system, _ = server("answers")

    def without_ctl() -> Info:
        root = system.inspect()
        parts = [attrs.evolve(part, state="down") if part.id == "ctl" else part for part in root.children[0].children]
        return attrs.evolve(root, children=(attrs.evolve(root.children[0], children=tuple(parts)),))

    async with system:
        status, said = await read(Health(without_ctl, StoreClient(system.named("store")), "life-1", system.clock))
    assert (status, said["store"], said["faults"]) == (503, "ok", ["ctl is down"])


async def test_a_server_that_has_not_started_or_is_stopping_is_not_well() -> None:
    system, _ = server("answers")
    async with system:
        page = health(system)
    status, said = await read(page)
    assert status == 503
    assert "the server is starting or stopping" in said["faults"]


async def test_many_who_ask_cost_the_store_one_answer_a_second() -> None:
    system, kind = server("answers")
    async with system:
        page = health(system)
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(read, page)
        assert kind.asked == 1
        await trio.sleep(GOOD_SECONDS)
        await read(page)
        assert kind.asked == 2
