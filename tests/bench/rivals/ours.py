"""The jobs with `actors`: supervised, bounded mailboxes, telemetry on."""

from __future__ import annotations

import attrs
import trio
from meter import ASKS, CHUNK, CRASHES, FEW, MANY, TELLS, cpu, emit, resident

from actors import Actor, ChildSpec, DynamicSupervisor, Request, StartChild, Supervisor, System, ask


@attrs.frozen
class Get(Request[int]):
    """Answered with the count."""


@attrs.frozen
class Add:
    """Adds one."""


@attrs.frozen
class Crash:
    """Fells the actor."""


class Counter(Actor):
    """Counts."""

    def on_start(self) -> None:
        self.count = 0

    def on_receive(self, message: object) -> int | None:
        if type(message) is Add:
            self.count += 1
            return None
        if type(message) is Crash:
            raise ValueError("asked to crash")
        return self.count


class Waiting(Actor):
    """Answers from a coroutine, so that the actor's own task must run."""

    async def on_receive(self, message: object) -> int:
        return 1


events = 0


def on_event(event: object) -> None:
    global events
    events += 1


async def alive(count: int, figures: dict[str, float], tag: str) -> None:
    async with System([ChildSpec("many", DynamicSupervisor, shutdown=None)], on_event=on_event) as system:
        many = system.named("many")
        before = resident()
        start = cpu()
        for n in range(count):
            ref = await ask(many, StartChild(ChildSpec(f"c{n}", Counter)))
            await ask(ref, Get())
        figures[f"start_{tag}"] = (cpu() - start) / count * 1e6
        figures[f"bytes_{tag}"] = (resident() - before) / count
        start = cpu()
        await system.stop()
        figures[f"stop_{tag}"] = (cpu() - start) / count * 1e6


async def main() -> None:
    figures: dict[str, float] = {}
    async with System([ChildSpec("counter", Counter), ChildSpec("waiting", Waiting)], on_event=on_event) as system:
        counter = system.ref("counter")
        start = cpu()
        for _ in range(ASKS):
            await ask(counter, Get())
        figures["ask"] = (cpu() - start) / ASKS * 1e6
        figures["ask_async"] = figures["ask"]
        waiting = system.named("waiting")
        start = cpu()
        for _ in range(ASKS):
            await ask(waiting, Get())
        figures["ask_switch"] = (cpu() - start) / ASKS * 1e6
        message = Add()
        start = cpu()
        for _ in range(TELLS // CHUNK):
            for _ in range(CHUNK):
                counter.tell(message)
            await ask(counter, Get())
        figures["tell"] = (cpu() - start) / TELLS * 1e6
    await alive(FEW, figures, "few")
    await alive(MANY, figures, "many")

    def supervisor() -> Supervisor:
        return Supervisor([ChildSpec(f"c{n}", Counter) for n in range(CRASHES)], max_restarts=CRASHES)

    async with System(ChildSpec("root", supervisor, shutdown=None), on_event=on_event) as system:
        refs = [system.ref(f"c{n}") for n in range(CRASHES)]
        start = cpu()
        for ref in refs:
            ref.tell(Crash())
        for n in range(CRASHES):
            await system.next_incarnation(system.named(f"c{n}"), refs[n])
            await ask(system.named(f"c{n}"), Get())
        figures["restart"] = (cpu() - start) / CRASHES * 1e6
    emit(figures)


trio.run(main)
