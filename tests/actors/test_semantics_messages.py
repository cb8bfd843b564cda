from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
import trio.testing

from actors import (
    ActorCrashed,
    Busy,
    ChildSpec,
    DeadLettered,
    Down,
    DownEvent,
    MailboxOverflowed,
    NotRunning,
    Refused,
    Reply,
    System,
    ask,
    tell,
)
from actors.testing import Recorder
from tests.actors.puppets import Do, Get, Puppet, child, crash


async def test_messages_from_one_sender_to_one_actor_are_handled_in_the_order_they_were_sent() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        for n in range(300):
            ref.tell(n)
        await ask(ref, Get())
        assert await ask(ref, Do(lambda me: me.kept)) == [*range(300), Get()]


async def test_an_actor_handles_one_message_at_a_time_also_while_a_handler_awaits() -> None:
    log: list[str] = []

    async def slow(_: Any) -> None:
        log.append("in")
        await trio.sleep(1)
        log.append("out")

    async with System([child("a")]) as system, trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask, system.named("a"), Do(slow))
    assert log == ["in", "out"] * 3


async def test_a_message_is_handled_at_most_once() -> None:
    seen: list[int] = []

    def once(n: int) -> Do:
        def act(_: Any) -> None:
            seen.append(n)
            if n == 1:
                raise ValueError

        return Do(act)

    async with System([child("a")]) as system:
        for n in range(4):
            tell(system.named("a"), once(n))
        await trio.testing.wait_all_tasks_blocked()
    assert seen == [0, 1]  # what waited behind the crash is not handed to the next incarnation


async def test_an_actor_with_much_to_do_lets_others_run() -> None:
    async with System([child("busy")]) as system:
        ref = system.ref("busy")
        assert ref is not None
        left: list[int] = []

        async def look() -> None:
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            left.append(system.inspect().children[0].mailbox)

        async with trio.open_nursery() as nursery:
            for _ in range(900):
                ref.tell("work")
            nursery.start_soon(look)
        assert 0 < left[0] < 900


async def test_the_result_of_a_handler_is_the_answer_to_the_request() -> None:
    async def later(_: Any) -> str:
        await trio.sleep(1)
        return "later"

    async with System([child("a")]) as system:
        assert await ask(system.named("a"), Do(lambda _: "now")) == "now"
        assert await ask(system.named("a"), Do(later)) == "later"


class No(Refused):
    pass


async def test_a_refusal_is_an_answer_and_the_actor_lives_on() -> None:
    def refuse(_: Any) -> None:
        raise No("not today")

    async def refuse_later(_: Any) -> None:
        await trio.sleep(1)
        raise No("not tomorrow")

    def take_and_refuse(me: Any) -> None:
        me.defer()
        raise No("not mine")

    async def take_and_refuse_later(me: Any) -> None:
        me.defer()
        raise No("nor mine")

    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        for act, words in [
            (refuse, "not today"),
            (refuse_later, "not tomorrow"),
            (take_and_refuse, "not mine"),
            (take_and_refuse_later, "nor mine"),
        ]:
            with pytest.raises(No, match=words):
                await ask(ref, Do(act))
        waiting = ref.ask(Do(refuse), block=False)
        with pytest.raises(No, match="not today"):
            await waiting
        assert ref.is_alive()


async def test_a_refusal_of_a_message_that_nobody_asked_goes_nowhere() -> None:
    def refuse(_: Any) -> None:
        raise No

    events = Recorder()
    async with System([child("a")], on_event=events) as system:
        tell(system.named("a"), Do(refuse))
        assert await ask(system.named("a"), Get()) == 1
    assert not events.of(ActorCrashed)
    assert not events.of(DeadLettered)


async def test_any_other_exception_answers_the_asker_with_down_and_ends_the_incarnation() -> None:
    async def later(_: Any) -> None:
        await trio.sleep(1)
        raise KeyError("later")

    async with System([child("a")]) as system:
        for message, kind in [(crash(), ValueError), (Do(later), KeyError)]:
            ref = system.ref("a")
            assert ref is not None
            with pytest.raises(Down) as down:
                await ask(ref, message)
            assert isinstance(down.value.reason, kind)
            assert down.value.begun
            assert down.value.name == "a"
            await trio.testing.wait_all_tasks_blocked()
            assert not ref.is_alive()
            assert system.ref("a") not in (None, ref)


async def test_a_systemexit_in_a_handler_crashes_only_its_own_actor() -> None:
    async with System([child("a"), child("b")]) as system:
        with pytest.raises(Down, match="SystemExit"):
            await ask(system.named("a"), crash(kind=SystemExit))
        tell(system.named("a"), crash(kind=SystemExit))
        assert await ask(system.named("b"), Get()) == 1
        assert await ask(system.named("a"), Get(), retry=True) == 1


async def test_a_keyboardinterrupt_in_a_handler_ends_the_system_and_is_raised_from_it() -> None:
    log: list[Any] = []

    async def interrupted() -> None:
        async with System([child("a"), child("b", log)]) as system:
            tell(system.named("a"), crash(kind=KeyboardInterrupt))
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        await interrupted()
    assert log[-1] == ("stop", "b")

    with pytest.raises(KeyboardInterrupt):
        async with System(child("a", on_start=lambda _: crash(kind=KeyboardInterrupt).act(None))):
            raise AssertionError("it did not start")


async def test_a_deferred_reply_can_be_given_later_by_anybody() -> None:
    taken: list[Reply[Any]] = []

    def take(me: Any) -> str:
        taken.append(me.defer())
        return "ignored"

    async def take_late(me: Any) -> str:
        return take(me)

    answers: list[str] = []

    async def collect(message: Do) -> None:
        answers.append(await ask(system.named("a"), message))

    async with System([child("a")]) as system, trio.open_nursery() as nursery:
        for message in [Do(take), Do(take_late)]:
            nursery.start_soon(collect, message)
            await trio.testing.wait_all_tasks_blocked()
        assert await ask(system.named("a"), Get()) == 1  # the actor is free meanwhile
        taken[1].set("second")
        await trio.to_thread.run_sync(taken[0].set, "first")
    assert answers == ["second", "first"]


async def test_a_deferred_reply_is_answered_with_down_if_the_incarnation_ends_first() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        many = [ref.ask(Do(lambda me: me.defer().set(1)), block=False) for _ in range(100)]
        waiting = ref.ask(Do(lambda me: me.defer()), block=False)
        tell(ref, crash())
        with pytest.raises(Down) as down:
            await waiting
        assert down.value.begun
        assert [await reply for reply in many] == [1] * 100
        with pytest.raises(RuntimeError, match="answered already"):
            waiting.set("too late")


async def test_cancelling_an_ask_does_no_harm_and_the_actor_may_see_that_the_reply_is_abandoned() -> None:
    taken: list[Reply[Any]] = []
    async with System([child("a")]) as system:
        with trio.move_on_after(1):
            await ask(system.named("a"), Do(lambda me: taken.append(me.defer())))
        assert taken[0].abandoned
        taken[0].set("nobody hears")
        with trio.CancelScope() as scope:
            scope.cancel()
            await ask(system.named("a"), Get())
        assert await ask(system.named("a"), Get()) == 1


async def test_an_ask_that_runs_out_of_time_raises_tooslowerror() -> None:
    async with System([child("a")]) as system:
        began = trio.current_time()
        with pytest.raises(trio.TooSlowError):
            await ask(system.named("a"), Do(lambda me: me.defer()), timeout=3)
        assert trio.current_time() - began == 3


@pytest.mark.real_time
async def test_ask_and_tell_work_in_the_same_way_from_other_threads() -> None:
    def refuse(_: Any) -> None:
        raise No

    def outside(name: Any, ref: Any) -> None:
        for target in (name, ref):
            target.tell("hello")
            assert target.ask(Do(lambda me: me.kept[-1])) == "hello"
            assert target.ask(Do(lambda _: threading.get_ident())) != threading.get_ident()
            with pytest.raises(No):
                target.ask(Do(refuse))
            assert isinstance(target.ask(Get(), block=False).get(timeout=10), int)
        tell(ref, "again")
        with pytest.raises(Down, match="boom"):
            ref.ask(crash())
        with pytest.raises(NotRunning):
            ref.ask(Get())
        with pytest.raises(NotRunning):
            ref.tell("late")

    async with System([child("a")]) as system:
        await trio.to_thread.run_sync(outside, system.named("a"), system.ref("a"))


async def test_a_blocking_ask_on_the_loop_raises_instead_of_blocking_it() -> None:
    async with System([child("a")]) as system:
        ref = system.ref("a")
        assert ref is not None
        with pytest.raises(RuntimeError, match="use `await"):
            ref.ask(Get())
        with pytest.raises(RuntimeError, match="use `await"):
            system.named("a").ask(Get())
        with pytest.raises(RuntimeError, match="await the reply"):
            ref.ask(Get(), block=False).get()
        with pytest.raises(RuntimeError, match="block the loop"):
            ref.stop()


class Proxied(Puppet):
    number = 7

    def double(self, n: int) -> int:
        return 2 * n

    async def double_later(self, n: int) -> int:
        await trio.lowlevel.checkpoint()
        return 2 * n


@pytest.mark.real_time
async def test_pykkas_proxies_work() -> None:
    async with System([ChildSpec("a", Proxied)]) as system:
        ref = system.ref("a")
        assert ref is not None
        proxy: Any = ref.proxy()
        assert await proxy.double(4) == 8
        assert await proxy.double_later(4) == 8
        assert await proxy.number == 7

        def outside() -> None:
            proxy.number = 8
            proxy.double.defer(3)
            assert proxy.number.get() == 8
            assert proxy.double(5).map(str).get() == "10"

        await trio.to_thread.run_sync(outside)


# Mailboxes


class Small(Puppet):
    mailbox_size = 2


class Rolling(Small):
    overflow = "drop_oldest"


async def blocked(_: Any) -> None:
    await trio.sleep(1)


async def test_a_full_mailbox_refuses_the_newest_message_and_its_asker_gets_busy() -> None:
    events = Recorder()
    async with System([ChildSpec("a", Small)], on_event=events) as system:
        ref = system.ref("a")
        assert ref is not None
        tell(ref, Do(blocked))
        await trio.testing.wait_all_tasks_blocked()
        tell(ref, 1)
        tell(ref, 2)
        with pytest.raises(Busy, match="full"):
            await ask(ref, Get())
        tell(ref, 3)
        assert [event.message for event in events.of(MailboxOverflowed)] == [Get(), 3]
        await trio.sleep(2)
        assert await ask(ref, Do(lambda me: me.kept)) == [1, 2]


async def test_a_mailbox_that_drops_the_oldest_answers_its_asker_with_busy_and_takes_the_new_one() -> None:
    events = Recorder()
    async with System([ChildSpec("a", Rolling)], on_event=events) as system:
        ref = system.ref("a")
        assert ref is not None
        tell(ref, Do(blocked))
        await trio.testing.wait_all_tasks_blocked()
        oldest = ref.ask(Get(), block=False)
        tell(ref, 1)
        tell(ref, 2)
        newest = ref.ask(Do(lambda me: list(me.kept)), block=False)
        with pytest.raises(Busy):
            await oldest
        assert await newest == [2]
        assert [event.message for event in events.of(MailboxOverflowed)] == [Get(), 1]


@pytest.mark.real_time
async def test_a_full_mailbox_never_blocks_the_sender() -> None:
    free = trio.Event()
    async with System([ChildSpec("a", Small)]) as system:
        tell(system.named("a"), Do(lambda _: free.wait()))
        await trio.testing.wait_all_tasks_blocked()
        for n in range(100):
            tell(system.named("a"), n)
        await trio.to_thread.run_sync(system.named("a").tell, "from a thread")
        assert system.inspect().children[0].mailbox == 2
        free.set()


async def test_stops_and_news_of_children_overtake_waiting_messages() -> None:
    log: list[Any] = []
    waiting: list[int] = []
    spec = child("a", log, on_start=lambda me: waiting.append(me.system.inspect().mailbox))
    async with System([spec]) as system:
        ref, root = system.ref("a"), system.ref("root")
        assert ref is not None
        assert root is not None
        for n in range(1000):
            tell(ref, Do(lambda _, n=n: log.append(n)))
            for _ in range(5):
                tell(root, "which it does not know")
        ref.stop(block=False)
        await trio.testing.wait_all_tasks_blocked()
    assert log[:2] == [("start", "a"), ("stop", "a")]
    assert waiting[1] > 0  # the root restarted its child before it had handled what waited


async def test_timer_messages_and_downevents_wait_in_line_but_are_not_refused() -> None:
    order: list[Any] = []

    class Listening(Small):
        def on_receive(self, message: Any) -> Any:
            if not isinstance(message, Do):
                order.append(message if isinstance(message, str) else type(message))
            return super().on_receive(message)

    async with System([ChildSpec("a", Listening), child("b")]) as system:
        ref = system.ref("a")
        assert ref is not None

        def prepare(me: Any) -> None:
            me.set_timer("t", 0.5, "tick")
            me.monitor(system.named("b"))

        await ask(ref, Do(prepare))
        tell(ref, Do(blocked))
        await trio.testing.wait_all_tasks_blocked()
        tell(ref, "one")
        tell(ref, "two")
        tell(system.named("b"), crash())
        await trio.sleep(2)
    assert order == ["one", "two", DownEvent, "tick"]
