"""The storm: grounds with all that must not be written, swappers, and an agent that proposes and applies meanwhile."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import trio
import trio.testing
from attrs import define, field, frozen

from actors import Info
from intercom.model.checkpoint import Manifest
from intercom.model.decision import Decision
from intercom.model.errors import ApplyStuck, IntercomError
from intercom.model.request import ApprovalStatus
from intercom.sessions.tools.check_diff import CheckDiff
from intercom.store.requests import approvals
from intercom.store.writer_messages import Transact
from intercom.workspace import transaction
from intercom.workspace.change_plan import plan, plan_again
from intercom.workspace.change_plan import steps as steps_of
from intercom.workspace.files import directory_id, opened_root
from intercom.workspace.manifest import divergences, plan_restore, take_manifest
from intercom.workspace.preview import preview
from intercom.workspace.proposal import parse
from tests.attack.swaps.swapper import TARGETS
from tests.support.virtual_server import AgentClient, VirtualServer, virtual_server

BAIT = "one\ntwo\nthree\n"
SECRET = "SECRET that no card may show\n"


@frozen
class Grounds:
    """`work` is the workspace. In it `docs` is what the agent changes; the rest, and all beside it, it never may."""

    base: Path

    @property
    def work(self) -> Path:
        return self.base / "work"

    @staticmethod
    def lay_out(base: Path) -> Grounds:
        work, astray = base / "work", base / "astray"
        for directory in ("docs/deep", ".git/hooks/deep", ".intercom/deep"):
            (work / directory).mkdir(parents=True)
        for directory in (base / "outside/deep", base / "outside/docs/deep", astray / "other-root/docs/deep"):
            directory.mkdir(parents=True)
        for directory in ("plain/deep", "plain-deep", "directory"):
            (astray / directory).mkdir(parents=True)
        for path in base.rglob("*"):
            # As bait: what a patch, a deletion or a rename would fit if it were led there.
            if path.is_dir() and path != astray:
                for name in ("file", "gone", "old"):
                    (path / name).write_text(BAIT)
        (base / "outside/secret").write_text(SECRET)
        (work / "CLAUDE.md").write_text(BAIT)
        for name, target in (
            ("to-hooks", work / ".git/hooks"),
            ("to-hooks-deep", work / ".git/hooks/deep"),
            ("to-intercom", work / ".intercom"),
            ("to-outside", base / "outside"),
            ("to-outside-deep", base / "outside/deep"),
            ("to-outside-root", base / "outside"),
            ("to-claude", work / "CLAUDE.md"),
            ("to-secret", base / "outside/secret"),
        ):
            (astray / name).symlink_to(target)
        os.mkfifo(astray / "pipe")
        os.link(work / "CLAUDE.md", astray / "twin")
        return Grounds(base)

    def forbidden(self) -> dict[str, tuple[object, ...]]:
        """All that is never to be written to, file by file, with the times of directories: what was there for a moment
        shows in them. `plain` directories may hold what was written while they stood at the recorded path."""
        found: dict[str, tuple[object, ...]] = {}
        for top in (
            self.base / "outside",
            self.base / "astray/other-root",
            self.work / ".git",
            self.work / ".intercom",
            self.work / "CLAUDE.md",
            self.base / "astray/directory",
        ):
            for path in (top, *top.rglob("*")):
                status = path.lstat()
                held = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
                found[str(path.relative_to(self.base))] = (status.st_ino, status.st_mode, status.st_mtime_ns, held)
        return found

    def strayed(self) -> list[str]:
        """Where the marks of proposals are and must not be. They may be in `docs`, in what stood in its place as a
        directory of its own, and in what the swapper took out of `docs` under the name of a partner of `docs/file`."""
        allowed = [self.base / each for each in ("work/docs", "astray/plain", "astray/plain-deep")]
        moved = [self.base / "astray" / each for each in TARGETS["file"][2]]
        return [
            str(path)
            for path in self.base.rglob("*")
            if stat.S_ISREG(path.lstat().st_mode)
            and b"mark-" in path.read_bytes()
            and path not in moved
            and not any(each in path.parents for each in allowed)
        ]


@contextmanager
def swapping(grounds: Grounds, which: str, count: int, seed: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.attack.swaps.swapper", str(grounds.base), which, str(count), str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3])
    assert process.stdout.readline() == "swapping\n"
    try:
        yield process
        assert process.wait(60) == 0, f"the swapper of {which} failed"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@define
class Storm:
    """`said` counts what became of the rounds; `shown` counts the cards that showed what they must not."""

    grounds: Grounds
    dice: random.Random
    said: Counter[str] = field(factory=Counter)
    leaks: int = 0
    number: int = 0

    def next(self) -> tuple[str, str]:
        """A proposal to be made: path and text, both empty for a restore."""
        self.number += 1
        self._reset()
        path, diff = self.dice.choice(_PROPOSALS)
        return path.replace("{n}", str(self.number)), diff.replace("{n}", str(self.number))

    def is_ours(self, paths: Iterable[str], root_id: int | None) -> bool:
        """Whether a proposal is recorded for the agent's part of the workspace. Where a link stood when it was made,
        the card names the place that it leads to, and a person says no."""
        return root_id == self.root_id and all(path.startswith("docs/") for path in paths)

    def round(self) -> None:
        """One proposal, made, recorded and applied, or one restore."""
        path, diff = self.next()
        try:
            outcome = self._propose(path, diff) if path else self._restore()
        except IntercomError as refused:
            outcome = refused.error_code
        self.said[outcome] += 1

    def _propose(self, path: str, diff: str) -> str:
        root = self.grounds.work
        parsed = parse(diff, path)
        planned = plan(root, parsed)
        self.leaks += SECRET.strip() in preview(root, planned).diff
        if not self.is_ours(planned.paths, planned.root_id):
            return "rejected"
        planned = plan_again(root, parsed, planned.changes, root_id=planned.root_id)
        steps = transaction.prepare(root, f"r{self.number}", steps_of(root, planned), planned.root_id)
        try:
            transaction.stage(root, steps, planned.contents.get)
            transaction.roll_forward(root, steps)
        except IntercomError:
            transaction.discard(root, steps)
            raise
        return "applied"

    def _restore(self) -> str:
        root, tag = self.grounds.work, f"r{self.number}"
        now = take_manifest(root, also=self.then.files)
        if now.root_id != self.root_id:
            return "rejected"
        plan = plan_restore(root, self.then, now, divergences(self.then, now), (), exact=False)
        steps = [step for step in plan.steps if step.path.startswith("docs/")]
        prepared = transaction.prepare(root, tag, steps, now.root_id)
        try:
            transaction.stage(root, prepared, lambda _: BAIT.encode())
            transaction.roll_forward(root, prepared)
        finally:
            with suppress(IntercomError):
                transaction.discard(root, prepared)
        return "restored"

    def _reset(self) -> None:
        """Put back what earlier rounds removed, from the real directory: no link is in its way."""
        for name in ("gone", "old", "file"):
            with suppress(FileExistsError):
                fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=self.docs)
                os.write(fd, BAIT.encode())
                os.close(fd)

    docs: int = field(init=False)
    root_id: int = field(init=False)
    then: Manifest = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.docs = os.open(self.grounds.work / "docs", os.O_RDONLY | os.O_DIRECTORY)
        with opened_root(self.grounds.work) as top:
            self.root_id = directory_id(top)
        self.then = take_manifest(self.grounds.work)


@frozen
class Served:
    """The same rounds through a server's session: an agent proposes and applies, a person approves."""

    storm: Storm
    server: VirtualServer
    agent: AgentClient

    async def round(self) -> None:
        path, diff = self.storm.next()
        try:
            outcome = await self._propose(path, diff) if path else "left out"
        except IntercomError as refused:
            outcome = refused.error_code
        self.storm.said[outcome] += 1

    async def _propose(self, path: str, diff: str) -> str:
        id = (await self.agent.propose(path, diff)).request_id
        force = self.storm.dice.random() < 0.5
        while True:
            if not await self._decide(id):
                return "rejected"
            try:
                opened = await self.agent.ask(CheckDiff(id, force))
            except ApplyStuck:
                await self.server.decide(f"apply-{id}", Decision.DISMISS)
                raise
            if opened.answered is not None:
                return "applied" if not force else "applied with force"
            id = opened.request_id

    async def _decide(self, id: str) -> bool:
        """What the person says, who reads the paths."""
        request = await self.server.ask("store", Transact(lambda db: approvals.get(db, id)))
        self.storm.leaks += SECRET.strip() in str(request.preview)
        paths = (path for file in request.files for path in file.paths)
        ours = self.storm.is_ours(paths, request.root_inode)
        if request.status is ApprovalStatus.PENDING:
            await self.server.decide(id, Decision.APPROVE if ours else Decision.REJECT)
        return ours


_EDIT = "--- a/{p}\n+++ b/{p}\n@@ -1,3 +1,3 @@\n one\n-two\n+mark-{n}\n three\n"
_PROPOSALS = [
    ("docs/file", "mark-{n}\n"),
    ("docs/deep/file", "mark-{n}\n"),
    ("docs/new{n}", "mark-{n}\n"),
    ("docs/deep/new{n}", "mark-{n}\n"),
    ("docs/deep/made{n}/more/new", "mark-{n}\n"),
    ("docs/old", _EDIT.replace("{p}", "docs/old")),
    ("docs/gone", "--- a/docs/gone\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n"),
    (
        "docs/old",
        "diff --git a/docs/old b/docs/deep/renamed{n}\nsimilarity index 60%\nrename from docs/old\n"
        "rename to docs/deep/renamed{n}\n--- a/docs/old\n+++ b/docs/deep/renamed{n}\n"
        "@@ -1,3 +1,3 @@\n one\n-two\n+mark-{n}\n three\n",
    ),
    ("", ""),
]


@frozen
class Result:
    """`swaps` were made; `said` counts what became of the proposals and restores; `strayed` and `touched` name what
    was written where it must not be. `leaks` counts cards that show what lies elsewhere, `crashes` actors restarted."""

    swaps: int
    said: Counter[str]
    strayed: tuple[str, ...]
    touched: tuple[str, ...]
    leaks: int
    crashes: int

    @property
    def wrong(self) -> tuple[str, ...]:
        return (*self.strayed, *self.touched)


async def run(base: Path, swaps: int, seed: int = 0, *, through_server: bool = False) -> Result:
    """A storm of about so many swaps in a new directory `base`: against what the server uses to plan and to apply, or
    `through_server` against its sessions, where a person approves. Needs a MockClock then."""
    grounds = Grounds.lay_out(base / "grounds")
    storm = Storm(grounds, random.Random(seed))
    before = grounds.forbidden()
    made = 0
    async with AsyncExitStack() as stack:
        served = None
        if through_server:
            clock = trio.lowlevel.current_clock()
            assert isinstance(clock, trio.testing.MockClock)
            server = await stack.enter_async_context(virtual_server(base, clock))
            # What crashed is to come back, and to be counted.
            await stack.enter_async_context(server.restarting())
            served = Served(storm, server, await server.arrive(grounds.work))
        for i, which in enumerate(TARGETS):
            with swapping(grounds, which, swaps // len(TARGETS), seed + i) as process:
                while process.poll() is None:
                    if served is None:
                        storm.round()
                    else:
                        await served.round()
                assert process.stdout is not None
                made += int(process.stdout.read())
        crashes = 0 if served is None else _restarts(served.server.app.system.inspect())
    os.close(storm.docs)
    after = grounds.forbidden()
    touched = tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))
    return Result(made, storm.said, tuple(grounds.strayed()), touched, storm.leaks, crashes)


def _restarts(info: Info) -> int:
    return info.restarts + sum(map(_restarts, info.children))
