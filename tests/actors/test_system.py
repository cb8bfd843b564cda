from __future__ import annotations

import logging
from typing import Any

import pykka
import pytest
import trio
import trio.testing

from actors import (
    ActorStarted,
    ChildSpec,
    DeadLettered,
    Down,
    DynamicSupervisor,
    Info,
    MailboxOverflowed,
    NotRunning,
    Refused,
    Request,
    Restart,
    StartChild,
    StopChild,
    Supervisor,
    System,
    ask,
    tell,
)
from actors._timers import Timers
from actors.testing import Probe, Recorder, inject, no_leaks, run_virtual, start_probe
from tests.actors.puppets import Do, Get, Plain, Puppet, ThreadPuppet, child, crash, sleeping


async def test_inspect_shows_the_tree() -> None:
    dyn = ChildSpec("dyn", DynamicSupervisor, shutdown=None)
    async with System([child("a"), dyn], clock=lambda: 77.0) as system:
        await ask(system.named("dyn"), StartChild(ChildSpec("p", Plain, name="plain")))
        system.adopt(Puppet(), "loose")
        await ask(system.named("plain"), Get())  # type: ignore[arg-type]
        tell(system.named("a"), crash())
        await trio.testing.wait_all_tasks_blocked()
        tell(system.named("a"), Do(sleeping(1)))
        await trio.testing.wait_all_tasks_blocked()
        tell(system.named("a"), "waits")
        root = system.inspect()
        assert root.class_name == "Supervisor"
        assert root.children == (
            Info("a", "a", "Puppet", "running", 1, 1, 1, "ValueError: boom", 77.0),
            Info(
                "dyn",
                "dyn",
                "DynamicSupervisor",
                "running",
                0,
                1,
                started_at=77.0,
                children=(Info("p", "plain", "Plain", "running", 0, 1, started_at=77.0),),
            ),
            Info("loose", "loose", "Puppet", "running", started_at=77.0),
        )
        assert {ref.label for ref in system.living()} == {"loose", "root", "a", "dyn", "plain"}
        assert repr(system.named("a")) == "<Name a>"
        assert system.named("a") == system.named("a")


async def test_the_defaults_of_an_actor_do_nothing_but_log() -> None:
    class Bare(Plain):
        on_receive = Plain.__mro__[1].on_receive  # type: ignore[attr-defined]

    events = Recorder()
    logger = logging.getLogger("actors")
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        async with System([ChildSpec("a", Bare)], on_event=events) as system:
            tell(system.named("a"), "what?")
            await trio.testing.wait_all_tasks_blocked()
            tell(system.named("a"), Do(lambda _: None))
    finally:
        logger.removeHandler(handler)
    assert "'what?'" in records[0]
    assert [event.name for event in events.of(ActorStarted)] == ["a", "root"]


def test_limits_are_checked() -> None:
    for wrong in ({"max_restarts": -1}, {"within": 0}):
        with pytest.raises(ValueError, match="max_restarts"):
            Supervisor([], **wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="max_restarts"):
            DynamicSupervisor(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same id"):
        Supervisor([child("a"), child("a")])


async def test_a_system_is_opened_once_and_actors_start_in_an_open_one() -> None:
    system = System([])
    with pytest.raises(NotRunning, match="not open"):
        system.adopt(Puppet())
    async with system:
        actor = Puppet()
        system.adopt(actor)
        with pytest.raises(RuntimeError, match="started before"):
            system.adopt(actor)
        with pytest.raises(RuntimeError, match="opened once"):
            async with system:
                raise AssertionError("it opened twice")
    with pytest.raises(NotRunning, match="not open"):
        system.adopt(Puppet())


async def test_an_actor_may_be_told_before_it_starts_and_killed_before_it_ran() -> None:
    async with System([]) as system:
        early = Puppet()
        early.actor_ref.tell("early")
        assert await ask(system.adopt(early), Do(lambda me: me.kept)) == ["early"]
        ref = system.adopt(Puppet())
        ref._kill()
        ref.stop(block=False)
        await trio.testing.wait_all_tasks_blocked()
        assert not ref.is_alive()
        unstarted = Puppet().actor_ref
        unstarted._kill()
        await trio.to_thread.run_sync(lambda: unstarted.ask("x", block=False))
        with pytest.raises(NotRunning):
            await trio.to_thread.run_sync(unstarted.tell, "from a thread, to nowhere")
        await trio.to_thread.run_sync(tell, unstarted, "likewise")


async def test_an_interrupt_in_the_middle_of_a_stop_ends_everybody_at_once() -> None:
    log: list[Any] = []

    async def interrupted_stop() -> None:
        raise KeyboardInterrupt

    async def interrupt() -> None:
        specs = [child("a", log), child("b", log), child("c", log, on_failure=sleeping(100), restart=Restart.TEMPORARY)]
        async with System(specs) as system:
            tell(system.named("a"), Do(sleeping(100)))
            tell(system.named("b"), Do(lambda me: me.spawn(trio.sleep, 100)))
            tell(system.named("c"), crash())
            await trio.testing.wait_all_tasks_blocked()
            system._stop_in_order = interrupted_stop  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        await interrupt()
    assert trio.current_time() == 0
    assert ("stop", "a") not in log


async def test_what_ends_with_messages_of_all_kinds_answers_whoever_waits() -> None:
    events = Recorder()

    class Small(Puppet):
        mailbox_size = 1
        overflow = "drop_oldest"

    async with System([child("a"), ChildSpec("small", Small)], on_event=events) as system:
        ref = system.ref("a")
        assert ref is not None

        def defer_stop_and_nap(me: Any) -> Any:
            me.defer()
            me.stop()
            return sleeping(1)(me)

        with pytest.raises(Down, match="stopped"):
            await ask(ref, Do(defer_stop_and_nap))
        ref._accept("too late")
        assert DeadLettered("a", "too late") in events.events

        ref = await system.next_incarnation(system.named("a"), ref)
        tell(ref, Do(lambda me: me.set_timer("t", 1, "never")))
        tell(ref, Do(sleeping(2)))
        tell(ref, crash())
        await trio.sleep(3)
        assert "never" not in [event.message for event in events.of(DeadLettered)]

        small = system.named("small")
        await ask(small, Do(lambda me: me.set_timer("t", 1, "dropped")))
        tell(small, Do(sleeping(2)))
        await trio.sleep(1.5)
        tell(small, "kept")
        await trio.sleep(2)
        assert events.of(MailboxOverflowed) == [MailboxOverflowed("small", "dropped")]
        assert await ask(small, Do(lambda me: me.kept)) == ["kept"]


async def test_an_actor_that_is_ending_itself_gets_no_more_downevents() -> None:
    events = Recorder()
    watcher = child("watcher", on_stop=sleeping(5), restart=Restart.TEMPORARY)
    async with System([watcher, child("a", restart=Restart.TEMPORARY)], on_event=events) as system:
        await ask(system.named("watcher"), Do(lambda me: me.monitor(system.named("a"))))
        tell(system.named("watcher"), Do(lambda me: me.stop()))
        await trio.testing.wait_all_tasks_blocked()
        tell(system.named("a"), crash())
        await trio.testing.wait_all_tasks_blocked()
    assert events.of(DeadLettered) == []


async def test_a_child_that_fails_to_start_is_waited_for_until_it_has_cleaned_up() -> None:
    lives: list[float] = []

    def fall_once(_: Any) -> None:
        lives.append(trio.current_time())
        if len(lives) == 2:
            raise ValueError("the second start fails")

    async with System([child("a", on_start=fall_once, on_failure=sleeping(1))]) as system:
        tell(system.named("a"), crash())
        await trio.sleep(9)
    assert lives == [0, 1, 2]


async def test_an_actor_may_crash_before_it_ran() -> None:
    log: list[Any] = []
    async with System([]) as system:
        ref = system.adopt(Puppet(log), "early")
        inject(system, "early", KeyError("early"), "now")
        await trio.testing.wait_all_tasks_blocked()
        assert not ref.is_alive()
        assert ("failure", "early") in log


async def test_a_class_may_say_which_exceptions_are_refusals() -> None:
    class Polite(Puppet):
        refusals = (LookupError,)

    class PoliteThread(ThreadPuppet):
        refusals = (LookupError,)
        run_as_task = True

    async with System([ChildSpec("a", Polite), ChildSpec("b", PoliteThread)]) as system:
        for name in ("a", "b"):
            ref = system.ref(name)
            assert ref is not None
            with pytest.raises(KeyError):
                await ask(ref, crash(kind=KeyError))
            with pytest.raises(KeyError):
                await ref.ask(crash(kind=KeyError), block=False)
            with pytest.raises(Down):
                await ask(ref, crash(kind=Refused))


async def test_only_actors_of_this_library_are_asked() -> None:
    class Foreign(pykka.ThreadingActor):
        use_daemon_thread = True

    foreign = Foreign.start()
    try:
        for call in (ask(foreign, Get()), ask(foreign, Get(), retry=True)):
            with pytest.raises(TypeError, match="no actor of this library"):
                await call
    finally:
        foreign.stop(block=False)


async def test_a_crash_of_the_root_while_it_stops_is_reported() -> None:
    def fall(_: Any) -> None:
        raise ValueError("on the way out")

    with pytest.raises(Exception, match="on the way out"):
        async with System(child("top", on_stop=fall)):
            pass


async def test_a_dynamic_child_that_is_stopped_while_its_restart_is_timed_stays_away() -> None:
    from actors import Backoff

    spec = ChildSpec("dyn", lambda: DynamicSupervisor(backoff=Backoff(initial=5, jitter=0)), shutdown=None)
    async with System([spec]) as system:
        dyn = system.named("dyn")
        for name in ("a", "b"):
            await ask(dyn, StartChild(child(name)))
            tell(system.named(name), crash())
        await trio.testing.wait_all_tasks_blocked()
        await ask(dyn, StopChild("a"))
        system.ref("dyn")._put_urgent(__import__("actors._restart_rules", fromlist=["Due"]).Due("a"))  # type: ignore[union-attr]
        await trio.sleep(6)
        assert [info.id for info in system.inspect().children[0].children] == ["b"]
        assert system.named("b").is_alive()
        tell(system.named("b"), crash())
        await trio.testing.wait_all_tasks_blocked()
    assert len(system.timers) == 0


async def test_timers_fire_in_order_and_forget_what_was_cancelled() -> None:
    timers = Timers()
    fired: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        await trio.testing.wait_all_tasks_blocked()
        for n in (3, 1, 2):
            timers.add(n, lambda _, n=n: fired.append(n))
        gone = timers.add(2, lambda _: fired.append(0))
        gone.cancel()
        gone.cancel()
        await trio.sleep(4)
        assert fired == [1, 2, 3]
        for _ in range(500):
            timers.add(1000, lambda _: fired.append(0)).cancel()
        assert len(timers._heap) < 200
        assert len(timers) == 0
        timers.close()


class Ping(Request[str]):
    pass


async def test_a_probe_stands_in_for_an_actor() -> None:
    async with System([]) as system:
        probe = start_probe(system, "p", answer=lambda message: type(message).__name__)
        assert isinstance(probe, Probe)
        assert await ask(system.named("p"), Ping()) == "Ping"
        assert isinstance(await probe.expect(Ping), Ping)
        with pytest.raises(AssertionError, match="within 1 s"):
            await probe.expect(Ping)
        tell(system.named("p"), 5)
        with pytest.raises(AssertionError, match="5 came"):
            await probe.expect(Ping)
        await probe.expect_nothing()
        tell(system.named("p"), 6)
        with pytest.raises(AssertionError, match="6 came"):
            await probe.expect_nothing()
        assert probe.received[1:] == [5, 6]
        silent = start_probe(system)
        assert await ask(silent.actor_ref, Ping()) is None


async def test_faults_strike_where_they_were_laid() -> None:
    class Other(Puppet):
        pass

    class Batch(ThreadPuppet):
        run_as_task = True
        batch_size = 3

        def receive_batch(self, items: Any) -> None:
            super().receive_batch(items)

    events = Recorder()
    specs = [child("a"), ChildSpec("b", Other), ChildSpec("c", Batch)]
    async with System(ChildSpec("root", lambda: Supervisor(specs, max_restarts=99)), on_event=events) as system:
        a = system.named("a")
        fault = inject(system, "a", KeyError("struck"))
        with pytest.raises(Down, match="struck"):
            await ask(a, Get())
        assert fault.fired
        await ask(a, Get(), retry=True)

        inject(system, a, KeyError("third"), 3)
        assert [await ask(a, Get()), await ask(a, Get())] == [2, 3]
        with pytest.raises(Down, match="third"):
            await ask(a, Get())
        await trio.testing.wait_all_tasks_blocked()

        inject(system, Other, KeyError("now"), "now")
        with pytest.raises(Down, match="now"):
            await ask(system.named("b"), Get())
        await trio.testing.wait_all_tasks_blocked()
        inject(system, Other, KeyError("once"))
        assert await ask(system.named("b"), Get(), retry=True) == 1

        inject(system, Batch, KeyError("batch"))
        with pytest.raises(Down, match="batch"):
            await ask(system.named("c"), Get())
        await trio.testing.wait_all_tasks_blocked()

        ref = system.ref("a")
        assert ref is not None
        starting = inject(system, "a", KeyError("start"), "next start")
        inject(system, ref, KeyError("ref"), "now")
        assert await ask(a, Get(), retry=True) == 1
        assert starting.fired
        assert "KeyError: 'start'" in str(system.inspect().children[0].last_crash)
        with pytest.raises(LookupError, match="fits"):
            inject(system, "nobody", KeyError())
        ref = system.ref("a")
        assert ref is not None
        await trio.testing.wait_all_tasks_blocked()
        shared = inject(system, Puppet, KeyError("one of them"))
        with pytest.raises(Down, match="one of them"):
            await ask(system.named("b"), Get())
        assert shared.fired
        assert isinstance(await ask(a, Get()), int)  # guarded too, and spared
        elsewhere = inject(system, "elsewhere", KeyError("not here"), "next start")
        tell(system.named("b"), crash())
        assert await ask(system.named("b"), Get(), retry=True) == 1
        assert not elsewhere.fired
        await events.wait_for(ActorStarted)
        with pytest.raises(trio.TooSlowError):
            await events.wait_for(ActorStarted, 1000, timeout=1)


@pytest.mark.real_time
async def test_leaks_are_found() -> None:
    gate = trio.Event()
    async with trio.open_nursery() as nursery:
        with pytest.raises(AssertionError, match="1 tasks"):
            async with no_leaks():
                nursery.start_soon(gate.wait)
        gate.set()
    import threading

    hold = threading.Event()
    thread = threading.Thread(target=hold.wait, name="left over")
    with pytest.raises(AssertionError, match="left over"):
        async with no_leaks():
            thread.start()
    async with no_leaks():
        await trio.to_thread.run_sync(lambda: None)  # Trio's own threads do not count
    hold.set()
    thread.join()


def test_virtual_time_jumps() -> None:
    async def main(seconds: float) -> float:
        await trio.sleep(seconds)
        return trio.current_time()

    assert run_virtual(main, 10_000) == 10_000


async def test_a_system_says_whether_it_is_stopping() -> None:
    seen: list[bool] = []
    system = System([child("a", on_stop=lambda _: seen.append(system.is_stopping))])
    async with system:
        assert not system.is_stopping
    assert seen == [True]
    assert system.is_stopping
