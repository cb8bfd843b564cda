"""The jobs with fauxtp."""

from __future__ import annotations

import anyio
from fauxtp import PID, ChildSpec, GenServer, Supervisor, call, cast
from meter import ASKS, CHUNK, FEW, MANY, TELLS, cpu, emit, resident

# Its supervisor copies what it knows of all children at every crash: a thousand would take minutes.
CRASHES = 100

born: list[PID] = []


class Counter(GenServer):
    """Counts."""

    async def init(self) -> int:
        born.append(self.pid)
        return 0

    async def handle_call(self, request, from_ref, state):
        return state, state

    async def handle_cast(self, request, state):
        if request == "crash":
            raise ValueError("asked to crash")
        return state + 1


async def alive(count: int, figures: dict[str, float], tag: str) -> None:
    async with anyio.create_task_group() as group:
        before = resident()
        start = cpu()
        for _ in range(count):
            pid = await Counter.start(task_group=group)
            await call(pid, "get", 120)
        figures[f"start_{tag}"] = (cpu() - start) / count * 1e6
        figures[f"bytes_{tag}"] = (resident() - before) / count
        start = cpu()
        group.cancel_scope.cancel()
    figures[f"stop_{tag}"] = (cpu() - start) / count * 1e6


async def main() -> None:
    figures: dict[str, float] = {}
    async with anyio.create_task_group() as group:
        pid = await Counter.start(task_group=group)
        start = cpu()
        for _ in range(ASKS):
            await call(pid, "get", 120)
        figures["ask"] = (cpu() - start) / ASKS * 1e6
        start = cpu()
        for _ in range(TELLS // CHUNK):
            for _ in range(CHUNK):
                await cast(pid, "add")
            await call(pid, "get", 120)
        figures["tell"] = (cpu() - start) / TELLS * 1e6
        group.cancel_scope.cancel()
    await alive(FEW, figures, "few")
    await alive(MANY, figures, "many")
    # Its registry answers with copies of the addresses, which reach nobody; so the actors say themselves who they are.
    async with anyio.create_task_group() as group:
        born.clear()
        await Supervisor.start(
            children=[ChildSpec(actor=Counter, name=f"c{n}") for n in range(CRASHES)], task_group=group
        )
        while len(born) < CRASHES:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        start = cpu()
        for pid in born[:CRASHES]:
            await cast(pid, "crash")
        while len(born) < 2 * CRASHES:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        for pid in born[CRASHES:]:
            await call(pid, "get", 60)
        figures["restart"] = (cpu() - start) / CRASHES * 1e6
        group.cancel_scope.cancel()
    emit(figures)


anyio.run(main)
