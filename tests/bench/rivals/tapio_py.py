"""The jobs with tapio-py."""

from __future__ import annotations

import asyncio
import logging

from meter import ASKS, CHUNK, CRASHES, FEW, MANY, TELLS, cpu, emit, resident
from tapio import ActorContext, ActorRef, ActorSystem, Behavior, Behaviors, MailboxConfig, Message, SupervisorStrategy

logging.disable(logging.CRITICAL)
BOUNDED = MailboxConfig(capacity=1_000)


class Count(Message):
    count: int


class Get(Message):
    reply_to: ActorRef[Count]


class Add(Message):
    pass


class Crash(Message):
    pass


def counter() -> Behavior[Get | Add | Crash]:
    count = 0

    async def on_message(message: Get | Add | Crash) -> Behavior[Get | Add | Crash]:
        nonlocal count
        if type(message) is Get:
            message.reply_to.tell(Count(count=count))
        elif type(message) is Add:
            count += 1
        else:
            raise ValueError("asked to crash")
        return Behaviors.same()

    return Behaviors.receive_message(on_message)


def make(reply_to: ActorRef[Count]) -> Get:
    return Get(reply_to=reply_to)


async def alive(count: int, figures: dict[str, float], tag: str) -> None:
    system = ActorSystem("bench")
    before = resident()
    start = cpu()
    for n in range(count):
        ref = system.spawn(counter(), f"c{n}", BOUNDED)
        await ref.ask(make, expect=Count)
    figures[f"start_{tag}"] = (cpu() - start) / count * 1e6
    figures[f"bytes_{tag}"] = (resident() - before) / count
    start = cpu()
    await system.terminate()
    figures[f"stop_{tag}"] = (cpu() - start) / count * 1e6


async def main() -> None:
    figures: dict[str, float] = {}
    async with ActorSystem("bench") as system:
        ref = system.spawn(counter(), "counter", BOUNDED)
        start = cpu()
        for _ in range(ASKS):
            await ref.ask(make, expect=Count)
        figures["ask"] = (cpu() - start) / ASKS * 1e6
        message = Add()
        start = cpu()
        for _ in range(TELLS // CHUNK):
            for _ in range(CHUNK):
                ref.tell(message)
            await ref.ask(make, expect=Count)
        figures["tell"] = (cpu() - start) / TELLS * 1e6
    await alive(FEW, figures, "few")
    await alive(MANY, figures, "many")
    async with ActorSystem("bench") as system:

        def again(ctx: ActorContext[Get | Add | Crash]) -> Behavior[Get | Add | Crash]:
            return counter()

        refs = [
            system.spawn(
                Behaviors.supervise(Behaviors.setup(again)).on_failure(SupervisorStrategy.restart()), f"c{n}", BOUNDED
            )
            for n in range(CRASHES)
        ]
        for ref in refs:
            await ref.ask(make, expect=Count)
        start = cpu()
        for ref in refs:
            ref.tell(Crash())
        for ref in refs:
            await ref.ask(make, expect=Count)
        figures["restart"] = (cpu() - start) / CRASHES * 1e6
    emit(figures)


asyncio.run(main())
