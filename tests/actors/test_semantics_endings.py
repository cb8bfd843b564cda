from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from actors import (
    ActorCrashed,
    ActorStopped,
    DeadLettered,
    Down,
    DownEvent,
    NotRunning,
    Restart,
    StopOverran,
    System,
    ask,
    tell,
)
from actors.testing import Recorder, no_leaks, start_probe
from tests.actors.puppets import Do, Get, child, crash, sleeping

TEMPORARY = Restart.TEMPORARY


async def nap(_: Any) -> str:
    await trio.sleep(1)
    return "slept"


async def test_a_stop_lets_the_running_handler_finish() -> None:
    async with System([child("a", restart=TEMPORARY)]) as system:
        ref = system.ref("a")
        assert ref is not None
        asked = ref.ask(Do(nap), block=False)
        await trio.testing.wait_all_tasks_blocked()
        assert await ref.stop(block=False) is True
        assert trio.current_time() == 1
        assert await asked == "slept"
        assert await ref.stop(block=False) is False

    def stop_yourself(me: Any) -> str:
        me.stop()
        return "finished"

    async with System([child("a", restart=TEMPORARY)]) as system:
        assert await ask(system.named("a"), Do(stop_yourself)) == "finished"
        await trio.testing.wait_all_tasks_blocked()
        assert system.ref("a") is None


async def test_a_stop_does_not_wait_for_the_messages_in_the_mailbox() -> None:
    seen: list[int] = []
    async with System([child("a", restart=TEMPORARY)]) as system:
        ref = system.ref("a")
        assert ref is not None
        tell(ref, Do(nap))
        for n in range(100):
            tell(ref, Do(lambda _, n=n: seen.append(n)))
        await trio.testing.wait_all_tasks_blocked()
        await ref.stop(block=False)
    assert seen == []


async def test_requests_that_wait_in_the_mailbox_of_an_actor_that_ends_are_answered_with_down() -> None:
    async with System([child("a"), child("b")]) as system:
        for name, end in [("a", lambda me: me.stop()), ("b", crash().act)]:
            ref = system.ref(name)
            assert ref is not None
            tell(ref, Do(nap))
            tell(ref, Do(end))
            waiting = [ref.ask(Get(), block=False) for _ in range(3)]
            for reply in waiting:
                with pytest.raises(Down, match="stopped" if name == "a" else "boom"):
                    await reply


async def test_told_messages_that_wait_in_the_mailbox_of_an_actor_that_ends_become_dead_letters() -> None:
    events = Recorder()
    async with System([child("a")], on_event=events) as system:
        tell(system.named("a"), crash())
        tell(system.named("a"), 1)
        tell(system.named("a"), 2)
        await trio.testing.wait_all_tasks_blocked()
    assert events.of(DeadLettered) == [DeadLettered("a", 1), DeadLettered("a", 2)]


async def test_down_says_whether_the_handler_had_begun() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        first, second = ref.ask(crash(), block=False), ref.ask(Get(), block=False)
        begun = []
        for reply in (first, second):
            with pytest.raises(Down) as down:
                await reply
            begun.append(down.value.begun)
        assert begun == [True, False]


async def test_asking_a_ref_whose_incarnation_has_ended_raises_notrunning() -> None:
    async with System([child("a", restart=TEMPORARY)]) as system:
        ref = system.ref("a")
        assert ref is not None
        await ref.stop(block=False)
        with pytest.raises(NotRunning, match="by name"):
            await ask(ref, Get())
        with pytest.raises(NotRunning):
            await ref.ask(Get(), block=False)


async def test_telling_a_ref_whose_incarnation_has_ended_raises_notrunning_from_the_ref_and_is_a_dead_letter_otherwise() -> (  # noqa: E501
    None
):
    events = Recorder()
    async with System([child("a", restart=TEMPORARY)], on_event=events) as system:
        ref = system.ref("a")
        assert ref is not None
        await ref.stop(block=False)
        with pytest.raises(NotRunning):
            ref.tell("raised")
        tell(ref, "lost")
    assert events.of(DeadLettered) == [DeadLettered("a", "lost")]


async def test_telling_a_name_that_nobody_has_is_a_dead_letter() -> None:
    events = Recorder()
    async with System([], on_event=events) as system:
        tell(system.named("nobody"), 1)
        await trio.to_thread.run_sync(system.named("nobody").tell, 2)
        await trio.testing.wait_all_tasks_blocked()
    assert events.of(DeadLettered) == [DeadLettered("nobody", 1), DeadLettered("nobody", 2)]


async def test_asking_a_name_that_nobody_has_raises_notrunning() -> None:
    async with System([]) as system:
        nobody = system.named("nobody")
        with pytest.raises(NotRunning, match="retry=True"):
            await ask(nobody, Get())
        with pytest.raises(NotRunning):
            nobody.ask(Get())
        with pytest.raises(NotRunning):
            await nobody.ask(Get(), block=False)
        assert not nobody.is_alive()


async def test_an_actor_that_does_not_end_in_its_time_is_cancelled_and_reported() -> None:
    events = Recorder()
    cleaned: list[str] = []

    async def forever(_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append("up")

    log: list[Any] = []
    async with System([child("a", log, shutdown=2.0), child("b")], on_event=events) as system:
        waiting = system.named("a").ask(Do(forever), block=False)
        await trio.testing.wait_all_tasks_blocked()
        report = await system.stop()
        assert await system.stop() is report
        with pytest.raises(Down):
            await waiting
    assert report.killed == ("a",)
    assert report.stuck == ()
    assert report.seconds == 2
    assert cleaned == ["up"]
    assert events.of(StopOverran) == [StopOverran("a", 2.0, stuck=False)]
    assert ActorStopped("a", killed=True) in events.events
    assert log == [("start", "a")]  # neither on_stop nor on_failure


async def test_an_actor_that_does_not_end_even_when_cancelled_is_reported_as_stuck() -> None:
    async def stubborn(_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    async with System([child("b"), child("a", shutdown=2.0)]) as system:
        tell(system.named("a"), Do(stubborn))
        await trio.testing.wait_all_tasks_blocked()
        report = await system.stop()
        assert report.stuck == ("a",)
        assert report.killed == ()
        assert report.seconds == 3
    assert trio.current_time() == 100  # and the system's exit waits for it all the same


async def test_on_stop_runs_after_an_ordinary_end_and_on_failure_after_a_crash() -> None:
    log: list[Any] = []
    events = Recorder()

    async def fail_too(_: Any) -> None:
        await trio.sleep(1)
        raise KeyError("while failing")

    async def hang(_: Any) -> None:
        await trio.sleep_forever()

    specs = [
        child("a", log, restart=TEMPORARY),
        child("b", log, restart=TEMPORARY),
        child("c", restart=TEMPORARY, on_failure=fail_too),
        child("d", restart=TEMPORARY, on_failure=hang, shutdown=3.0),
        child("e", restart=TEMPORARY, on_stop=crash().act),
        child("f", restart=TEMPORARY, on_failure=hang, shutdown=None),
    ]
    async with System(specs, on_event=events) as system:
        system.named("a").ref.stop(block=False)
        for name in "bcd":
            tell(system.named(name), crash())
        await trio.sleep(5)
        system.named("e").ref.stop(block=False)
        await trio.testing.wait_all_tasks_blocked()
        tell(system.named("f"), crash())
        await trio.sleep(1)
        assert system.inspect().children[5].state == "ending"
        system.living()
        for ref in system.living():
            if ref.name == "f":
                ref._kill()
    assert log == [("start", "a"), ("start", "b"), ("stop", "a"), ("failure", "b")] or log == [
        ("start", "a"),
        ("start", "b"),
        ("failure", "b"),
        ("stop", "a"),
    ]
    errors = {event.name: event.hook_error for event in events.of(ActorCrashed)}
    assert set(errors) == {"b", "c", "d", "e", "f"}
    assert isinstance(errors["c"], KeyError)
    assert errors["b"] is errors["d"] is errors["e"] is None


async def test_background_tasks_end_with_their_incarnation() -> None:
    log: list[str] = []

    async def beside(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            log.append(name)

    async with no_leaks():
        async with System([child("a"), child("b", on_stop=lambda me: log.append("on_stop"))]) as system:
            scope = await ask(system.named("a"), Do(lambda me: me.spawn(beside, "cancelled")))
            scope.cancel()
            await trio.sleep(2)
            assert log == ["cancelled"]
            await ask(system.named("a"), Do(lambda me: me.spawn(beside, "crashed")))
            tell(system.named("a"), crash())
            await ask(system.named("a"), Get(), retry=True)
            assert log == ["cancelled", "crashed"]
            await ask(system.named("b"), Do(lambda me: me.spawn(beside, "stopped")))
            await ask(system.named("b"), Do(lambda me: me.spawn(trio.sleep, 0)))
        assert log[2:] == ["stopped", "on_stop"]
    late: list[Any] = []
    async with System([child("a", on_stop=lambda me: late.append(me.spawn(trio.sleep, 9).cancel_called))]):
        pass
    assert late == [True]


async def test_the_crash_of_a_background_task_is_the_crash_of_its_actor() -> None:
    events = Recorder()

    async def fall() -> None:
        await trio.sleep(1)
        raise KeyError("beside")

    async def fall_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("after the end")

    async with System([child("a")], on_event=events) as system:
        await ask(system.named("a"), Do(lambda me: me.spawn(fall)))
        with pytest.raises(Down, match="beside"):
            await ask(system.named("a"), Do(sleeping(9)))
        await ask(system.named("a"), Do(lambda me: me.spawn(fall_at_the_end)), retry=True)
    assert len(events.of(ActorCrashed)) == 1


async def test_timers_die_with_their_incarnation() -> None:
    async with System([child("a")]) as system:
        probe = start_probe(system)

        def arm(me: Any) -> None:
            me.set_timer("once", 1, Do(lambda _: tell(probe.actor_ref, "ticked")))
            me.set_timer("long", 5, Do(lambda _: tell(probe.actor_ref, "never")))

        await ask(system.named("a"), Do(arm))
        assert await probe.expect(str, timeout=2) == "ticked"
        tell(system.named("a"), crash())
        await probe.expect_nothing(seconds=10)
        assert len(system.timers) == 0
    ended: list[Any] = []
    async with System([child("a", on_stop=lambda me: ended.append(me.set_timer("x", 1, "never")))]) as system:
        pass
    assert len(system.timers) == 0


async def test_a_timer_that_was_cancelled_or_set_again_never_delivers_its_old_message() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None

        async def race(me: Any) -> None:
            me.set_timer("cancelled", 1, "cancelled")
            me.set_timer("replaced", 1, "old")
            await trio.sleep(2)  # both have run out and wait in the mailbox
            me.cancel_timer("cancelled")
            me.cancel_timer("unknown")
            me.set_timer("replaced", 1, "new")
            me.set_timer("soon", 9, "soon")
            me.cancel_timer("soon")

        await ask(ref, Do(race))
        await trio.sleep(20)
        assert await ask(ref, Do(lambda me: me.kept)) == ["new"]


async def test_a_monitor_gets_one_downevent_also_for_an_actor_that_is_gone_already() -> None:
    async with System([child("a"), child("b", restart=TEMPORARY), child("watcher")]) as system:
        a, b, watcher = system.named("a"), system.named("b"), system.named("watcher")
        a_ref, b_ref = a.ref, b.ref

        def watch(me: Any) -> None:
            me.monitor(a)
            me.monitor(a)
            me.monitor(b_ref)
            me.monitor(system.named("nobody"))

        await ask(watcher, Do(watch))
        tell(a, crash())
        await b_ref.stop(block=False)
        await trio.testing.wait_all_tasks_blocked()
        tell(a, crash())
        await trio.testing.wait_all_tasks_blocked()
        kept = {event.name: event for event in await ask(watcher, Do(lambda me: me.kept))}
        assert len(await ask(watcher, Do(lambda me: me.kept))) == 3
        assert isinstance(kept["nobody"].reason, NotRunning)
        assert isinstance(kept["a"].reason, ValueError)
        assert kept["a"] == DownEvent(a, "a", a_ref, kept["a"].reason)
        assert kept["b"] == DownEvent(b_ref, "b", b_ref, None)
        await ask(watcher, Do(lambda me: me.monitor(b_ref)))
        assert isinstance((await ask(watcher, Do(lambda me: me.kept)))[-1].reason, NotRunning)

        await trio.sleep(10)  # or the root would give up
        # One whose monitor has gone says nothing.
        await ask(watcher, Do(lambda me: me.monitor(a)))
        tell(watcher, crash())
        await ask(watcher, Get(), retry=True)
        tell(a, crash())
        assert await ask(watcher, Do(lambda me: me.kept)) == [Get()]


async def test_a_downevent_comes_after_the_messages_that_the_dead_actor_sent() -> None:
    async with System([child("a"), child("watcher")]) as system:
        watcher = system.named("watcher")
        await ask(watcher, Do(lambda me: me.monitor(system.named("a"))))

        def speak_and_die(_: Any) -> None:
            tell(watcher, "last words")
            raise ValueError

        tell(system.named("a"), Do(speak_and_die))
        await trio.testing.wait_all_tasks_blocked()
        words, event = await ask(watcher, Do(lambda me: me.kept))
        assert words == "last words"
        assert isinstance(event, DownEvent)
