"""The jobs with Pykka's own threading actors. It has no supervision: nothing restarts."""

from __future__ import annotations

import pykka
import trio
from meter import ASKS, CHUNK, FEW, TELLS, cpu, emit, resident

# A thread each: 20,000 are more than a machine of this size bears.
MORE = 4_000


class Counter(pykka.ThreadingActor):
    """Counts."""

    def on_start(self) -> None:
        self.count = 0

    def on_receive(self, message: object) -> int | None:
        if message == "add":
            self.count += 1
            return None
        return self.count


def alive(count: int, figures: dict[str, float], tag: str) -> None:
    before = resident()
    start = cpu()
    refs = []
    for _ in range(count):
        ref = Counter.start()
        ref.ask("get")
        refs.append(ref)
    figures[f"start_{tag}"] = (cpu() - start) / count * 1e6
    figures[f"bytes_{tag}"] = (resident() - before) / count
    start = cpu()
    pykka.ActorRegistry.stop_all()
    figures[f"stop_{tag}"] = (cpu() - start) / count * 1e6


async def from_async_code(counter: pykka.ActorRef[Counter]) -> float:
    start = cpu()
    for _ in range(ASKS):
        await trio.to_thread.run_sync(counter.ask, "get")
    return (cpu() - start) / ASKS * 1e6


def main() -> None:
    figures: dict[str, float] = {}
    counter = Counter.start()
    start = cpu()
    for _ in range(ASKS):
        counter.ask("get")
    figures["ask"] = (cpu() - start) / ASKS * 1e6
    figures["ask_async"] = trio.run(from_async_code, counter)
    start = cpu()
    for _ in range(TELLS // CHUNK):
        for _ in range(CHUNK):
            counter.tell("add")
        counter.ask("get")
    figures["tell"] = (cpu() - start) / TELLS * 1e6
    counter.stop()
    alive(FEW, figures, "few")
    alive(MORE, figures, "many")
    emit(figures)


main()
