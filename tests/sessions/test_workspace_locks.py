"""Changes of files wait for each other where workspaces overlap, and only there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from intercom.model.checkpoint import CheckpointTaken, Files, Restore
from intercom.model.decision import Decision
from intercom.model.errors import PatchConflict
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.sessions.workspace_locks import WorkspaceLocks
from tests.sessions.test_checkpoints import ask as ask_restore
from tests.sessions.test_checkpoints import take
from tests.support.virtual_server import virtual_server

Clock = trio.testing.MockClock
EDIT = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"


class Holder:
    """A task that holds a lock until it is told to let go."""

    def __init__(self, locks: WorkspaceLocks, root: Path, holding: trio.MemorySendChannel[Holder]) -> None:
        self._locks = locks
        self._root = root
        self._holding = holding
        self._enough = trio.Event()
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            async with self._locks.hold(str(self._root)):
                self._holding.send_nowait(self)
                await self._enough.wait()

    def let_go(self) -> None:
        self._enough.set()


class Scene:
    """Tasks that ask for locks one after the other."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._send, self._receive = trio.open_memory_channel[Holder](100)
        self.locks = WorkspaceLocks()

    async def ask(self, root: Path) -> Holder:
        """Ask for a lock; the task has it, or waits for it, when this returns."""
        holder = Holder(self.locks, root, self._send)
        before = len(self.locks._turns)
        self._nursery.start_soon(holder.run)
        while len(self.locks._turns) == before:
            await trio.testing.wait_all_tasks_blocked(0.001)  # to Trio, a task that waits for a thread is blocked
        await trio.testing.wait_all_tasks_blocked()
        return holder

    async def next(self) -> Holder:
        """The next task that got its lock."""
        return await self._receive.receive()

    async def nobody_else(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            self._receive.receive_nowait()


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    (tmp_path / "p/sub/deep").mkdir(parents=True)
    (tmp_path / "p-sub").mkdir()
    return tmp_path / "p"


@pytest.mark.parametrize(("first", "second"), [("p", "p"), ("p", "p/sub"), ("p/sub", "p"), ("p", "p/sub/deep")])
async def test_overlapping_workspaces_are_held_one_after_the_other(
    clock: Clock, outer: Path, first: str, second: str
) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        one = await scene.ask(outer.parent / first)
        other = await scene.ask(outer.parent / second)
        assert await scene.next() is one
        await scene.nobody_else()
        one.let_go()
        assert await scene.next() is other
        other.let_go()


async def test_workspaces_that_do_not_overlap_are_held_together(clock: Clock, outer: Path) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        held = [
            await scene.ask(outer / "sub"),
            await scene.ask(outer.parent / "p-sub"),
            await scene.ask(outer / "none"),
        ]
        assert {await scene.next() for _ in held} == set(held)
        for each in held:
            each.let_go()


async def test_a_workspace_is_known_by_its_directory_under_any_name(clock: Clock, outer: Path) -> None:
    (outer.parent / "link").symlink_to(outer)
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        one = await scene.ask(outer)
        other = await scene.ask(outer.parent / "link/sub")
        assert await scene.next() is one
        await scene.nobody_else()
        one.let_go()
        assert await scene.next() is other
        other.let_go()


async def test_a_task_that_gives_up_waiting_is_waited_for_no_more_and_nobody_overtakes(
    clock: Clock, outer: Path
) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        inner, whole, later, beside = [
            await scene.ask(root) for root in (outer / "sub", outer, outer / "sub/deep", outer / "other")
        ]
        assert await scene.next() is inner
        await scene.nobody_else()
        whole.scope.cancel()
        assert await scene.next() is beside
        await scene.nobody_else()
        inner.let_go()
        assert await scene.next() is later
        later.let_go()
        beside.let_go()


async def test_an_apply_waits_for_one_in_a_workspace_that_contains_its_own(clock: Clock, outer: Path) -> None:
    (outer / "sub/f").write_text("a\n")
    async with virtual_server(outer.parent, clock) as server:
        agent = await server.arrive(outer / "sub")
        id = (await agent.propose("f", EDIT)).request_id
        await server.decide(id, Decision.APPROVE)
        async with server.app.session_deps.locks.hold(str(outer)):
            applying = server.begin(partial(agent.ask, CheckDiff(id)))
            await server.later(0)
            (outer / "sub/f").write_text("what the other wrote\n")
        with pytest.raises(PatchConflict):
            await applying()
    assert (outer / "sub/f").read_text() == "what the other wrote\n"


@pytest.mark.parametrize("act", [take, partial(ask_restore, files=Files.EXACT)], ids=["checkpoint", "restore"])
async def test_a_workspace_is_not_read_for_a_checkpoint_while_a_change_is_half_applied(
    clock: Clock, outer: Path, act: Callable[..., Awaitable[object]]
) -> None:
    (outer / "f").write_text("a\n")
    async with virtual_server(outer.parent, clock) as server:
        agent = await server.arrive(outer)
        taken = await take(server, agent)
        locks = server.app.session_deps.locks
        async with locks.hold(str(outer)):
            acting = server.begin(partial(act, server, agent if act is take else taken))
            while len(locks._turns) < 2:
                await trio.testing.wait_all_tasks_blocked(0.001)
            (outer / "f").write_text("what the apply wrote\n")
            (outer / "f2").write_text("what it wrote too\n")
        done = await acting()
    if isinstance(done, CheckpointTaken):
        assert done.checkpoint.files == 2
    else:
        assert isinstance(done, Restore)
        assert (done.divergence.modified, done.divergence.added) == (1, 1)
