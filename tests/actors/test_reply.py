from __future__ import annotations

import threading
from typing import Any

import pykka
import pytest
import trio
import trio.testing

from actors import Actor, NotRunning, Reply, System, ask
from actors._reply import _tell_loop
from tests.actors.puppets import Do, Get, Plain, Puppet, child, in_thread


def test_a_reply_is_answered_once() -> None:
    reply: Reply[int] = Reply()
    assert repr(reply) == "<Reply pending>"
    reply.set(3)
    assert repr(reply) == "<Reply answered>"
    assert reply.get() == 3
    with pytest.raises(RuntimeError, match="answered already"):
        reply.set(4)
    with pytest.raises(RuntimeError, match="answered already"):
        reply.map(str).set("5")


def test_get_waits_in_a_thread_and_runs_out_of_time() -> None:
    reply: Reply[int] = Reply()
    with pytest.raises(pykka.Timeout):
        reply.get(timeout=0)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(reply.get(timeout=30)))
    thread.start()
    while not reply._watchers or len(reply._watchers) < 2:
        pass
    reply.set(5)
    thread.join()
    assert got == [5]


def test_a_watcher_that_comes_late_is_called_all_the_same() -> None:
    reply: Reply[int] = Reply()
    reply.set(1)
    called: list[int] = []
    reply._watch(lambda: called.append(1))
    assert called == [1]
    reply._complete_late(2, None)  # an answer from a thread that was overtaken
    assert reply.get() == 1


@pytest.mark.real_time
async def test_pykkas_combinations_of_futures_can_be_awaited() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        assert await ref.ask(Get(), block=False).map(lambda n: n * 10) == 10
        joined = ref.ask(Get(), block=False).join(ref.ask(Get(), block=False))
        assert await joined == [2, 3]
        assert await joined == [2, 3]
        assert joined.get() == [2, 3]


async def test_several_tasks_may_wait_for_one_reply() -> None:
    taken: list[Reply[Any]] = []
    async with System([child("a")]) as system:
        reply = system.named("a").ask(Do(lambda me: taken.append(me.defer())), block=False)
        got: list[Any] = []

        async def wait() -> None:
            got.append(await reply)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(1):
                await reply
            assert reply.abandoned
            assert repr(Reply()) == "<Reply pending>"
            taken[0].set("all")
        assert got == ["all"] * 3
        assert await reply == "all"


def test_a_reply_that_nobody_waits_for_any_more_says_so() -> None:
    reply: Reply[int] = Reply()
    reply.abandoned = True
    assert repr(reply) == "<Reply abandoned>"


def test_a_system_on_another_threads_loop_is_asked_like_any_other() -> None:
    async def main(system: System) -> None:
        assert await ask(system.named("a"), Get()) == 1
        assert await ask(system.named("a"), Get(), retry=True) == 2
        with pytest.raises(trio.TooSlowError):
            await ask(system.named("late"), Get(), retry=True, timeout=0)

        def start_late() -> None:
            trio.from_thread.run_sync(system.adopt, Plain(), "late", trio_token=system.token)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, start_late)
            assert await ask(system.named("late"), Get(), retry=True, timeout=30) == 1
        with trio.move_on_after(0) as scope:
            await ask(system.named("a"), Do(lambda me: me.defer()))
        assert scope.cancelled_caught

    with in_thread([child("a")]) as system:
        trio.run(main, system)
        taken: list[Reply[int]] = []
        reply = system.named("a").ask(Do(lambda me: taken.append(me.defer())), block=False)

        async def leave() -> None:
            token = trio.lowlevel.current_trio_token()
            reply._watch(lambda: _tell_loop(token, list))
            with trio.move_on_after(0.01):
                await reply

        trio.run(leave)  # that loop is over when the answer comes
        assert reply.abandoned
        system.named("a").ask(Do(lambda _: taken[0].set(1)), timeout=30)
        assert reply.get(timeout=30) == 1


def test_a_system_on_another_threads_loop_serves_a_synchronous_program() -> None:
    with in_thread([child("a")]) as system:
        name = system.named("a")
        assert name.ask(Get(), timeout=30) == 1
        assert name.ask(Get(), timeout=30) == 2
        ref = system.ref("a")
        assert ref is not None
        with pytest.raises(pykka.Timeout):
            ref.ask(Do(lambda me: me.defer()), timeout=0)
        assert ref.stop(timeout=30) is True
        reply = ref.ask(Get(), block=False)
        with pytest.raises(NotRunning):
            reply.get(timeout=30)
    assert ref.stop() is False
    with pytest.raises(NotRunning):
        ref.ask(Get())
    with pytest.raises(NotRunning):
        ref.tell("x")
    with pytest.raises(NotRunning):
        name.ask(Get())
    system.request_stop()  # no harm in that


def test_actor_and_ref_are_pykkas() -> None:
    actor = Puppet()
    ref = actor.actor_ref
    assert isinstance(actor, pykka.Actor)
    assert isinstance(actor, Actor)
    assert isinstance(ref, pykka.ActorRef)
    assert ref.actor_class is Puppet
    assert ref.actor_urn == actor.actor_urn
    assert ref.actor_urn in str(ref)
    assert repr(ref) == f"<Ref Puppet ({ref.actor_urn})>"
    assert ref.label == f"Puppet#{ref.actor_urn.rpartition(':')[2]}"
    assert actor.name is None
    with pytest.raises(RuntimeError, match="started by its supervisor"):
        actor._start_actor_loop()
    with pytest.raises(RuntimeError, match="handler of an ask"):
        actor.defer()
    with pytest.raises(NotRunning, match="no actor system"):
        Puppet.start()


@pytest.mark.real_time
async def test_pykkas_way_to_start_and_stop_works() -> None:
    from pykka.messages import _ActorStop

    async with System([child("a")]) as system:
        ref = Puppet.start()
        assert await ask(ref, Get()) == 1
        assert ref in system.living()
        ref.tell(_ActorStop())
        await trio.testing.wait_all_tasks_blocked()
        assert not ref.is_alive()
        assert ref not in system.living()


async def test_an_actor_keeps_no_deferred_reply_that_is_answered_or_given_up() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        taken: list[Any] = []
        async with trio.open_nursery() as nursery:
            for _ in range(70):
                nursery.start_soon(ask, system.named("a"), Do(lambda me: taken.append(me.defer())))
            await trio.testing.wait_all_tasks_blocked()
            assert len(ref._extras.deferred) == 70
            taken[0].set(1)
            assert len(ref._extras.deferred) == 69
            nursery.cancel_scope.cancel()
        assert not ref._extras.deferred
