from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing

from actors import BatchItem, ChildSpec, Down, Refused, Request, Restart, System, ThreadActor, ask, tell
from actors.testing import no_leaks, start_probe
from tests.actors.puppets import Do, Get, ThreadPuppet, crash


class Batching(ThreadPuppet):
    batch_size = 4


def stop_waiting(gate: threading.Event) -> Do:
    return Do(lambda _: gate.wait(30))


@pytest.mark.real_time
async def test_a_thread_actor_runs_all_its_hooks_and_handlers_in_one_thread_of_its_own() -> None:
    threads: dict[str, set[int]] = {}

    def note(me: Any) -> int:
        threads.setdefault(me.actor_urn, set()).add(threading.get_ident())
        return 1

    def make() -> ThreadPuppet:
        return ThreadPuppet(start=note, stop=note, failure=note)

    async with no_leaks(), System([ChildSpec("a", make)]) as system:
        name = system.named("a")
        assert await ask(name, Do(note)) == 1
        tell(name, Do(note))
        await ask(name, Do(lambda me: me.set_timer("t", 0, Do(note))))
        await ask(name, Do(lambda me: (me.monitor(name), me.cancel_timer("none"))))
        with pytest.raises(Down, match="loop"):
            await ask(name, Do(lambda me: me.spawn(trio.sleep, 1)))
        await ask(name, Get(), retry=True)

        def outrun_a_timer(me: Any) -> None:
            me.set_timer("t", 0, "never")
            while not me.actor_ref._mailbox:
                time.sleep(0)
            me.cancel_timer("t")

        await ask(name, Do(outrun_a_timer))
        assert await ask(name, Do(lambda me: me.kept)) == [Get()]
        await ask(name, Do(lambda me: me.stop()))
        await ask(name, Get(), retry=True)
    assert len(threads) == 3  # incarnations
    for used in threads.values():
        assert len(used) == 1
        assert threading.get_ident() not in used


@pytest.mark.real_time
async def test_a_batch_takes_what_waits_up_to_its_size() -> None:
    sizes: list[int] = []
    gate = threading.Event()

    class Counting(Batching):
        def receive_batch(self, items: Sequence[BatchItem]) -> None:
            sizes.append(len(items))
            super().receive_batch(items)

    async with System([ChildSpec("a", Counting)]) as system:
        name = system.named("a")
        tell(name, stop_waiting(gate))
        await trio.testing.wait_all_tasks_blocked()
        replies = [name.ask(Get(), block=False) for _ in range(9)]
        gate.set()
        assert [await reply for reply in replies] == list(range(1, 10))
    assert sizes == [1, 4, 4, 1]


class Work(Request[Any]):
    pass


class Batch(ThreadActor):
    """Hands its items to a function of the test."""

    batch_size = 10

    def __init__(self, work: Any) -> None:
        self.work = work

    def receive_batch(self, items: Sequence[BatchItem]) -> None:
        self.work(items)


async def batch_of(count: int, work: Any, *, task: bool = True) -> tuple[list[Any], System]:
    """Hand a batch to `work` and collect what each asker got."""

    def make() -> Batch:
        actor = Batch(work)
        actor.run_as_task = task
        return actor

    results: list[Any] = []
    async with System([ChildSpec("a", make, restart=Restart.TEMPORARY)]) as system:
        replies = [system.named("a").ask(Work(), block=False) for _ in range(count)]
        for reply in replies:
            try:
                results.append(await reply)
            except Exception as exc:
                results.append(exc)
    return results, system


async def test_the_answers_of_a_batch_go_out_together_when_it_returns() -> None:
    log: list[Any] = []

    def work(items: Sequence[BatchItem]) -> None:
        for n, item in enumerate(items):
            item.reply(n)
            with pytest.raises(RuntimeError, match="answered already"):
                item.reply(n)
            log.append([other._reply.done for other in items if other._reply is not None])

    results, _ = await batch_of(3, work)
    assert results == [0, 1, 2]
    assert log == [[False] * 3] * 3

    def refuse(items: Sequence[BatchItem]) -> None:
        items[0].fail(Refused("no"))
        items[1].fail(KeyError("its own fault"))

    results, _ = await batch_of(2, refuse)
    assert isinstance(results[0], Refused)
    assert isinstance(results[1], KeyError)


async def test_an_item_left_unanswered_gets_down() -> None:
    lives: list[int] = []

    def work(items: Sequence[BatchItem]) -> None:
        lives.append(len(items))
        items[0].reply("kept")

    results, _ = await batch_of(2, work)
    assert results[0] == "kept"
    assert isinstance(results[1], Down)
    assert "without an answer" in str(results[1])
    assert lives == [2]


async def test_a_batch_that_raises_keeps_the_answers_it_gave_and_crashes_the_actor() -> None:
    def work(items: Sequence[BatchItem]) -> None:
        items[0].reply("kept")
        raise KeyError("half way")

    results, _ = await batch_of(3, work)
    assert results[0] == "kept"
    assert [(result.begun, type(result.reason)) for result in results[1:]] == [(True, KeyError)] * 2

    # The default batch knows which of its items it had begun.
    class AsTask(Batching):
        run_as_task = True

    def refuse(_: Any) -> None:
        raise Refused("no")

    async with System([ChildSpec("a", AsTask)]) as system:
        name = system.named("a")
        messages = [Get(), Do(refuse), Do(lambda me: me.defer().set("late")), crash()]
        first, refused, deferred, fallen, after = [name.ask(message, block=False) for message in [*messages, Get()]]
        assert await first == 1
        with pytest.raises(Refused):
            await refused
        assert await deferred == "late"
        with pytest.raises(Down) as down:
            await fallen
        assert down.value.begun
        with pytest.raises(Down) as down:
            await after
        assert not down.value.begun
        tell(name, crash())
        replies = [name.ask(Get(), block=False) for _ in range(2)]
        for reply in replies:
            with pytest.raises(Down) as down:
                await reply
            assert not down.value.begun


def test_a_thread_that_does_not_return_is_abandoned_and_reported_as_stuck() -> None:
    gates = {"a": threading.Event(), "b": threading.Event()}
    held: dict[str, threading.Thread] = {}

    def hold(me: Any) -> None:
        held[me.name] = threading.current_thread()
        gates[me.name].wait(30)

    async def main() -> None:
        async with System([ChildSpec(name, ThreadPuppet, shutdown=0.0) for name in gates]) as system:
            waiting = [system.named(name).ask(Do(hold), block=False) for name in gates]
            while len(held) < 2:
                await trio.lowlevel.checkpoint()
            report = await system.stop()
            for reply in waiting:
                with pytest.raises(Down):
                    await reply
            assert sorted(report.stuck) == ["a", "b"]
        gates["a"].set()
        await trio.to_thread.run_sync(held["a"].join)

    trio.run(main)
    gates["b"].set()  # its loop is over by now
    for thread in held.values():
        thread.join(30)
        assert not thread.is_alive()


async def test_a_thread_actor_can_run_as_a_task() -> None:
    class AsTask(ThreadPuppet):
        run_as_task = True

    async def wrong(_: Any) -> None: ...

    async with System([ChildSpec("a", AsTask)]) as system:
        probe = start_probe(system)
        ident = threading.get_ident()
        name = system.named("a")
        assert await ask(name, Do(lambda _: threading.get_ident())) == ident
        message = Do(lambda _: probe.actor_ref.tell("ticked"))
        await ask(name, Do(lambda me: me.set_timer("t", 3600, message)))
        assert await probe.expect(str, timeout=3601) == "ticked"

    with pytest.raises(Exception, match="plain def"):
        async with System([ChildSpec("a", lambda: AsTask(start=wrong))]):
            raise AssertionError("it did not start")
