from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from actors import (
    AlreadyStarted,
    ChildSpec,
    DynamicSupervisor,
    NameTaken,
    Restart,
    StartChild,
    StartFailed,
    StepTooLong,
    StopChild,
    StopOverran,
    Supervisor,
    System,
    SystemFailed,
    TooManyChildren,
    UnknownChild,
    ask,
    tell,
)
from actors.testing import Recorder, no_leaks
from tests.actors.puppets import Do, Get, Puppet, child, crash, sleeping


async def second(_: Any) -> None:
    await trio.sleep(1)


async def test_children_start_in_order_each_after_the_on_start_of_the_one_before() -> None:
    ups: list[tuple[str, float]] = []

    async def slowly(me: Any) -> None:
        await trio.sleep(1)
        ups.append((me.name, trio.current_time()))

    async with System([child(name, on_start=slowly) for name in "abc"]):
        assert ups == [("a", 1), ("b", 2), ("c", 3)]


async def test_a_failed_start_stops_the_children_before_it_in_reverse_order_and_fails_the_supervisor() -> None:
    log: list[Any] = []
    specs = [child("a", log), child("b", log), child("bad", on_start=crash().act), child("d", log)]
    async with no_leaks():
        with pytest.raises(StartFailed, match=r"cannot start 'bad'.*boom"):
            async with System(specs):
                raise AssertionError("it did not start")
    assert log == [("start", "a"), ("start", "b"), ("stop", "b"), ("stop", "a")]
    with pytest.raises(StartFailed, match="cannot start 'root'"):
        async with System(ChildSpec("root", lambda: crash().act(None))):
            raise AssertionError("it did not start")
    with pytest.raises(StartFailed, match="cannot start 'a'"):
        async with System(child("a", on_start=crash().act)):
            raise AssertionError("it did not start")
    with trio.move_on_after(1):
        async with System([child("a", on_start=sleeping(99), shutdown=2.0)]):
            raise AssertionError("it did not start")
    assert trio.current_time() == 3


async def test_children_stop_in_reverse_order_of_their_start() -> None:
    log: list[Any] = []
    async with System([child(name, log, on_stop=second) for name in "abc"]):
        log.clear()
    assert log == [("stop", "c"), ("stop", "b"), ("stop", "a")]
    assert trio.current_time() == 3


async def test_a_dynamic_supervisor_stops_all_its_children_at_the_same_time() -> None:
    events = Recorder()

    async def stubborn(_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(20)

    async with System([ChildSpec("dyn", DynamicSupervisor, shutdown=None)], on_event=events) as system:
        dyn = system.named("dyn")
        for n in range(10):
            await ask(dyn, StartChild(child(f"c{n}", on_stop=second)))
        for name, hook, seconds in [
            ("slow", sleeping(4), 2.0),
            ("slower", sleeping(9), 3.0),
            ("stuck", stubborn, 2.0),
            ("free", sleeping(30), None),
        ]:
            await ask(dyn, StartChild(child(name, on_stop=hook, shutdown=seconds)))
        report = await system.stop()
    assert report.seconds == 30
    assert report.killed == ("slow", "slower")
    assert report.stuck == ("stuck",)
    assert len(events.of(StopOverran)) == 3


async def test_a_dynamic_supervisor_refuses_an_id_that_is_there_and_more_children_than_it_may_have() -> None:
    async with System([ChildSpec("dyn", lambda: DynamicSupervisor(max_children=2), shutdown=None)]) as system:
        dyn = system.named("dyn")
        ref = await ask(dyn, StartChild(child("a")))
        with pytest.raises(AlreadyStarted) as there:
            await ask(dyn, StartChild(child("a")))
        assert there.value.ref is ref
        with pytest.raises(StartFailed, match="boom"):
            await ask(dyn, StartChild(child("bad", on_start=crash().act)))
        await ask(dyn, StartChild(child("b", restart=Restart.TEMPORARY)))
        with pytest.raises(TooManyChildren, match="2 children"):
            await ask(dyn, StartChild(child("c")))
        await ask(dyn, StopChild("a"))
        assert not ref.is_alive()
        with pytest.raises(UnknownChild, match="'a'"):
            await ask(dyn, StopChild("a"))
        assert [info.id for info in system.inspect().children[0].children] == ["b"]
        tell(system.named("b"), crash())
        await trio.testing.wait_all_tasks_blocked()
        assert system.inspect().children[0].children == ()
        await ask(dyn, StartChild(child("c")))
        tell(system.named("c"), crash())
        assert await ask(system.named("c"), Get(), retry=True) == 1
        tell(dyn, "what it does not know")
        await trio.testing.wait_all_tasks_blocked()
        assert dyn.is_alive()


async def test_two_living_actors_never_have_the_same_name() -> None:
    async with System([ChildSpec("dyn", DynamicSupervisor, shutdown=None), child("a")]) as system:
        with pytest.raises(StartFailed) as failed:
            await ask(system.named("dyn"), StartChild(child("other id", name="a")))
        assert isinstance(failed.value.reason, NameTaken)
        await ask(system.named("dyn"), StartChild(child("a", name="b")))
        assert system.ref("b") is not None


async def test_a_root_that_goes_down_ends_the_system_with_systemfailed() -> None:
    async def body(start: Any, exc: Exception | None = None) -> None:
        async with System(ChildSpec("top", start)) as system:
            tell(system.named("top"), crash())
            try:
                await trio.sleep_forever()
            finally:
                if exc is not None:
                    raise exc

    async with no_leaks():
        with pytest.raises(SystemFailed, match="root 'top' went down: ValueError: boom") as failed:
            await body(Puppet)
        assert failed.value.__cause__ is failed.value.reason
        with pytest.raises(SystemFailed) as failed:
            await body(Puppet, KeyError("a consequence"))
        assert "a consequence" in str(failed.value.__context__) or failed.value.__cause__ is not None
    with pytest.raises(KeyError):
        async with System([child("a")]):
            raise KeyError("the body's own")
    async with System(child("top", restart=Restart.TEMPORARY)) as system:
        await ask(system.named("top"), Do(lambda me: me.stop()))
        await trio.testing.wait_all_tasks_blocked()
        assert system.inspect().state == "down"
    async with System([child("a")]) as system:
        await ask(system.named("a"), Do(lambda me: me.system.request_stop()))
        await trio.sleep_forever()


async def test_cancelling_a_system_stops_its_actors_in_order() -> None:
    log: list[Any] = []
    with trio.move_on_after(5) as scope:
        async with System([child(name, log, on_stop=second) for name in "ab"]):
            log.clear()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert log == [("stop", "b"), ("stop", "a")]
    assert trio.current_time() == 7


async def test_a_supervisor_that_is_killed_kills_its_children() -> None:
    cleaned: list[str] = []

    async def forever(me: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned.append(me.name)

    def tree(kind: Any) -> Any:
        leaves = [child(name, shutdown=None) for name in "ab"]
        return (lambda: Supervisor(leaves)) if kind is Supervisor else DynamicSupervisor

    for kind in (Supervisor, DynamicSupervisor):
        cleaned.clear()
        async with System([ChildSpec("mid", tree(kind), shutdown=1.0)]) as system:
            if kind is DynamicSupervisor:
                for name in "ab":
                    await ask(system.named("mid"), StartChild(child(name, shutdown=None)))
            for name in "ab":
                tell(system.named(name), Do(forever))
            await trio.testing.wait_all_tasks_blocked()
            report = await system.stop()
        assert sorted(cleaned) == ["a", "b"]
        assert sorted(report.killed) == ["a", "b", "mid"]
        assert report.seconds == 1

    async def hang(_: Any) -> None:
        await trio.sleep_forever()

    def nested() -> Supervisor:
        dynamic = ChildSpec("dynamic", DynamicSupervisor, shutdown=None)
        fixed = ChildSpec("fixed", lambda: Supervisor([child("leaf", on_stop=hang, shutdown=None)]), shutdown=None)
        return Supervisor([fixed, dynamic, child("last", on_stop=hang, shutdown=None)])

    async with System([ChildSpec("top", nested, shutdown=1.0)]) as system:
        report = await system.stop()
    assert sorted(report.killed) == ["dynamic", "fixed", "last", "leaf", "top"]


async def test_the_event_hook_may_fail_without_harm() -> None:
    def fail(_: object) -> None:
        raise ValueError("a bad hook")

    async with System([child("a")], on_event=fail) as system:
        assert await ask(system.named("a"), Get()) == 1


async def test_a_step_longer_than_the_limit_is_reported_with_the_actors_name() -> None:
    now = [0.0]
    events = Recorder()

    def block(_: Any) -> None:
        now[0] += 0.5

    async def block_there(_: Any) -> None:
        now[0] += 0.25

    spec = [child("a")]
    async with System(spec, on_event=events, step_clock=lambda: now[0]) as system:
        loose = system.adopt(Puppet())
        await trio.testing.wait_all_tasks_blocked()
        await ask(system.named("a"), Do(block))
        await ask(system.named("a"), Do(block_there))
        await ask(loose, Do(block_there))
        block(None)
        await trio.lowlevel.checkpoint()
    assert [(event.name, event.seconds) for event in events.of(StepTooLong)[:3]] == [
        ("a", 0.5),
        ("a", 0.25),
        (loose.label, 0.25),
    ]
    assert events.of(StepTooLong)[3].name == trio.lowlevel.current_task().name
    unwatched = Recorder()
    async with System(spec, on_event=unwatched, step_clock=lambda: now[0], step_limit=None) as system:
        await ask(system.named("a"), Do(block))
    assert unwatched.of(StepTooLong) == []
