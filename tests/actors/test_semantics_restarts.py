from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from actors import (
    Backoff,
    ChildSpec,
    Down,
    NotRunning,
    Restart,
    RestartDelayed,
    Strategy,
    Supervisor,
    SupervisorGaveUp,
    System,
    SystemFailed,
    ask,
    tell,
)
from actors.testing import Recorder
from tests.actors.puppets import Do, Get, Puppet, child, crash


def supervised(*children: ChildSpec, **rules: Any) -> ChildSpec:
    return ChildSpec("root", lambda: Supervisor(children, **rules), shutdown=None)


async def fell(system: System, *names: str) -> None:
    for name in names:
        with pytest.raises(Down):
            await ask(system.named(name), crash())
        await trio.testing.wait_all_tasks_blocked()


async def test_a_restart_makes_a_new_actor_with_an_empty_mailbox_under_the_same_name() -> None:
    made: list[Any] = []

    def make() -> Puppet:
        made.append(Puppet())
        return made[-1]

    async with System([ChildSpec("a", make)]) as system:
        old = system.ref("a")
        tell(system.named("a"), crash())
        for n in range(5):
            tell(system.named("a"), n)
        await trio.testing.wait_all_tasks_blocked()
        assert system.ref("a") not in (None, old)
        assert await ask(system.named("a"), Do(lambda me: (me is made[1], list(me.kept)))) == (True, [])


async def test_an_ask_with_retry_is_asked_again_of_the_next_incarnation() -> None:
    async def fall_the_first_time(me: Any) -> str:
        await trio.sleep(1)
        if not system.inspect().children[0].restarts:
            raise ValueError
        return "answered"

    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        assert await ask(system.named("a"), Do(fall_the_first_time), retry=True, timeout=5) == "answered"
        assert await ask(ref, Get(), retry=True) == 1  # a ref that has a name stands for it
        loose = system.adopt(Puppet())
        await loose.stop(block=False)
        with pytest.raises(NotRunning):
            await ask(loose, Get(), retry=True)
        stranger = Puppet().actor_ref
        tell(stranger, "kept until it starts")
        stranger.stop(block=False)
        system.adopt(stranger._actor)  # type: ignore[type-var]
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NotRunning):
            await ask(stranger, Get(), retry=True)


async def test_an_ask_with_retry_waits_for_a_name_that_nobody_has_yet() -> None:
    async with System([]) as system, trio.open_nursery() as nursery:

        async def start_late() -> None:
            await trio.sleep(5)
            system.adopt(Puppet(), "late")

        nursery.start_soon(start_late)
        with pytest.raises(trio.TooSlowError):
            await ask(system.named("late"), Get(), retry=True, timeout=4)
        assert await ask(system.named("late"), Get(), retry=True, timeout=4) == 1
        assert trio.current_time() == 5
    async with System([]) as system, trio.open_nursery() as nursery:

        async def give_up() -> None:
            with pytest.raises(NotRunning):
                await ask(system.named("never"), Get(), retry=True)

        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        await system.stop()


async def test_a_request_that_two_incarnations_crashed_over_is_not_asked_a_third_time() -> None:
    async with System([child("a")]) as system:
        with pytest.raises(Down, match="boom"):
            await ask(system.named("a"), crash(), retry=True)
        await trio.testing.wait_all_tasks_blocked()
        assert system.inspect().children[0].restarts == 2


async def test_an_ask_whose_reply_was_put_off_is_asked_again_after_any_number_of_crashes() -> None:
    taken: list[Any] = []

    async def wait() -> None:
        # It waits for somebody else's word: what fells the actor meanwhile is not its doing.
        assert await ask(system.named("a"), Do(lambda me: taken.append(me.defer())), retry=True) == "at last"

    async with System(supervised(child("a"), max_restarts=100)) as system, trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await fell(system, *["a"] * 5)
        assert len(taken) == 6
        taken[-1].set("at last")


async def test_permanent_children_are_restarted_always_transient_ones_after_a_crash_temporary_ones_never() -> None:
    kinds = [Restart.PERMANENT, Restart.TRANSIENT, Restart.TEMPORARY]
    alive: dict[tuple[Restart, str], bool] = {}
    for end in ("crash", "stop"):
        async with System([child(kind.value, restart=kind) for kind in kinds]) as system:
            for kind in kinds:
                act = crash().act if end == "crash" else (lambda me: me.stop())
                tell(system.named(kind.value), Do(act))
                await trio.testing.wait_all_tasks_blocked()
                alive[kind, end] = system.named(kind.value).is_alive()
            states = [info.state for info in system.inspect().children]
            assert states == ["running" if alive[kind, end] else "down" for kind in kinds]
    assert alive == {
        (Restart.PERMANENT, "crash"): True,
        (Restart.PERMANENT, "stop"): True,
        (Restart.TRANSIENT, "crash"): True,
        (Restart.TRANSIENT, "stop"): False,
        (Restart.TEMPORARY, "crash"): False,
        (Restart.TEMPORARY, "stop"): False,
    }


async def lives_after_crash_of_b(strategy: Strategy) -> list[Any]:
    log: list[Any] = []
    children = [child(name, log) for name in "abc"]
    async with System(supervised(*children, strategy=strategy)) as system:
        log.clear()
        await fell(system, "b")
        return list(log)


async def test_one_for_one_restarts_only_the_child_that_crashed() -> None:
    log = await lives_after_crash_of_b(Strategy.ONE_FOR_ONE)
    assert log == [("failure", "b"), ("start", "b")]


async def test_one_for_all_stops_the_others_in_reverse_order_and_starts_all_in_order() -> None:
    log = await lives_after_crash_of_b(Strategy.ONE_FOR_ALL)
    stops, starts = [("stop", "c"), ("stop", "a")], [("start", "a"), ("start", "b"), ("start", "c")]
    assert log == [("failure", "b"), *stops, *starts]


async def test_rest_for_one_restarts_the_child_that_crashed_and_those_started_after_it() -> None:
    log = await lives_after_crash_of_b(Strategy.REST_FOR_ONE)
    assert log == [("failure", "b"), ("stop", "c"), ("start", "b"), ("start", "c")]


async def test_a_groups_restart_leaves_out_children_that_had_ended_for_good() -> None:
    log: list[Any] = []
    children = [
        child("gone", log, restart=Restart.TRANSIENT),
        child("once", log, restart=Restart.TEMPORARY),
        child("b", log),
    ]
    async with System(supervised(*children, strategy=Strategy.ONE_FOR_ALL)) as system:
        await ask(system.named("gone"), Do(lambda me: me.stop()))
        await trio.testing.wait_all_tasks_blocked()
        log.clear()
        await fell(system, "b")
        assert log == [("failure", "b"), ("stop", "once"), ("start", "b")]


async def test_a_failed_restart_counts_as_a_crash() -> None:
    events = Recorder()
    tries: list[int] = []

    def start(me: Any) -> None:
        tries.append(1)
        if len(tries) in (2, 3):
            raise KeyError("not yet")

    async with System(supervised(child("a", on_start=start), max_restarts=3), on_event=events) as system:
        await fell(system, "a")
        assert await ask(system.named("a"), Get(), retry=True) == 1
        assert len(tries) == 4
    tries.clear()

    async def give_up() -> None:
        async with System(supervised(child("a", on_start=start), max_restarts=2), on_event=events) as system:
            await fell(system, "a")
            await trio.sleep_forever()

    with pytest.raises(SystemFailed, match="not yet"):
        await give_up()
    assert len(tries) == 3

    made: list[int] = []

    def make() -> Puppet:
        made.append(1)
        if len(made) == 2:
            raise RuntimeError("no actor this time")
        return Puppet()

    async with System(supervised(ChildSpec("a", make))) as system:
        await fell(system, "a")
        info = system.inspect().children[0]
        assert (info.restarts, info.last_crash) == (2, "RuntimeError: no actor this time")


async def test_a_supervisor_over_its_limit_stops_its_children_and_crashes() -> None:
    events = Recorder()
    log: list[Any] = []
    inner = ChildSpec(
        "inner", lambda: Supervisor([child("a", log), child("b")], max_restarts=1, within=5), shutdown=None
    )
    async with System([inner], on_event=events) as system:
        await fell(system, "b")
        await trio.sleep(6)
        await fell(system, "b")  # the first is forgotten by now
        assert events.of(SupervisorGaveUp) == []
        first = system.ref("inner")
        await fell(system, "b")
        assert [event.child_id for event in events.of(SupervisorGaveUp)] == ["b"]
        assert log == [("start", "a"), ("stop", "a"), ("start", "a")]
        assert system.ref("inner") is not first
        assert "gave up" in str(system.inspect().children[0].last_crash)


async def test_a_backoff_waits_longer_after_each_crash_and_starts_again_after_a_time_without_one() -> None:
    events = Recorder()
    backoff = Backoff(initial=1, factor=3, max=5, jitter=0, reset_after=60)
    async with System(supervised(child("a"), max_restarts=9, backoff=backoff), on_event=events) as system:
        for seconds in (1, 3, 5, 5):
            await fell(system, "a")
            began = trio.current_time()
            await ask(system.named("a"), Get(), retry=True)
            assert trio.current_time() - began == seconds
        await trio.sleep(60)
        await fell(system, "a")
        await ask(system.named("a"), Get(), retry=True)
        assert [event.seconds for event in events.of(RestartDelayed)] == [1, 3, 5, 5, 1]
        await fell(system, "a")  # and a stop need not wait for the wait
        assert (await system.stop()).seconds == 0
        assert len(system.timers) == 0


async def test_while_a_restart_is_timed_other_children_are_served() -> None:
    backoff = Backoff(initial=10, jitter=0.5)
    async with System(supervised(child("a"), child("b"), backoff=backoff)) as system:
        await fell(system, "a")
        await fell(system, "b")
        assert not system.named("a").is_alive()
        await trio.sleep(4)
        assert not system.named("b").is_alive()
        await ask(system.named("b"), Get(), retry=True)
        assert 5 <= trio.current_time() <= 15


async def test_a_child_that_hangs_in_on_start_does_not_keep_its_supervisor_from_stopping() -> None:
    lives: list[int] = []

    async def hang_the_second_time(_: Any) -> None:
        lives.append(1)
        if len(lives) == 2:
            await trio.sleep_forever()

    async with System([child("a", on_start=hang_the_second_time, shutdown=3.0)]) as system:
        await fell(system, "a")
        report = await system.stop()
        assert (report.killed, report.seconds) == (("a",), 3)
