"""Transactions for the tests, of a proposal and of a restore, with the workspace's files before and after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from intercom.model.checkpoint import Manifest
from intercom.workspace import change_plan, proposal, transaction
from intercom.workspace.manifest import RestorePlan, divergences, plan_restore, take_manifest
from intercom.workspace.transaction import Step
from tests.workspace import trees
from tests.workspace.trees import Thing, Tree


class Contents(dict[str, bytes]):
    """A content store in memory."""

    def put(self, hash: str, data: bytes) -> bool:
        self[hash] = data
        return True


@frozen
class Transaction:
    """Prepared steps, and what reads the contents they need."""

    root: Path
    steps: tuple[Step, ...]
    read: Callable[[str], bytes | None]

    def stage(self) -> None:
        transaction.stage(self.root, self.steps, self.read)

    def roll_forward(self) -> None:
        transaction.roll_forward(self.root, self.steps)

    def discard(self) -> None:
        transaction.discard(self.root, self.steps)

    def to_json(self) -> str:
        hashes = {step.after.partition(":")[2] for step in self.steps}
        contents = {hash: data.decode("latin-1") for hash in hashes if (data := self.read(hash)) is not None}
        return json.dumps({"steps": transaction.to_text(self.steps), "contents": contents})

    @staticmethod
    def from_json(root: Path, text: str) -> Transaction:
        data = json.loads(text)
        contents = {hash: text.encode("latin-1") for hash, text in data["contents"].items()}
        return Transaction(root, transaction.from_text(data["steps"], "r1"), contents.get)


def of_proposal(root: Path, text: str, path: str = "f", tag: str = "r1") -> Transaction:
    plan = change_plan.plan(root, proposal.parse(text, path))
    steps = transaction.prepare(root, tag, change_plan.steps(root, plan), plan.root_id)
    return Transaction(root, steps, plan.contents.get)


def planned(root: Path, then: Manifest, missing: frozenset[str] = frozenset(), *, exact: bool = True) -> RestorePlan:
    now = take_manifest(root, also=then.files)
    return plan_restore(root, then, now, divergences(then, now), missing, exact=exact)


def of_restore(root: Path, then: Manifest, read: Callable[[str], bytes | None], *, exact: bool = True) -> Transaction:
    plan = planned(root, then, exact=exact)
    return Transaction(root, transaction.prepare(root, "r1", plan.steps, take_manifest(root).root_id), read)


@frozen
class Case:
    """A transaction that takes a workspace from `before` to `after`."""

    before: Tree
    after: Tree
    prepare: Callable[[Path], Transaction]

    def begin(self, root: Path) -> Transaction:
        trees.put(root, self.before)
        return self.prepare(root)


PATCH = """\
diff --git a/edit.txt b/edit.txt
old mode 100644
new mode 100755
--- a/edit.txt
+++ b/edit.txt
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-to be removed
diff --git a/old/name.txt b/new/deep/name.txt
similarity index 60%
rename from old/name.txt
rename to new/deep/name.txt
--- a/old/name.txt
+++ b/new/deep/name.txt
@@ -1,2 +1,2 @@
-before
+after
 same
diff --git a/new/tool.sh b/new/tool.sh
new file mode 100755
--- /dev/null
+++ b/new/tool.sh
@@ -0,0 +1 @@
+#!/bin/sh
diff --git a/dos.txt b/dos.txt
--- a/dos.txt
+++ b/dos.txt
@@ -1,2 +1,3 @@
 left\r
+middle\r
 right\r
"""

APPLY = Case(
    before={
        "edit.txt": Thing(b"one\ntwo\nthree\n", 0o644),
        "gone.txt": Thing(b"to be removed\n", 0o644),
        "old/name.txt": Thing(b"before\nsame\n", 0o600),
        "dos.txt": Thing(b"left\r\nright\r\n", 0o664),
        "untouched.txt": Thing(b"\x00\xff\n", 0o640),
    },
    after={
        "edit.txt": Thing(b"one\nTWO\nthree\n", 0o755),
        "new/deep/name.txt": Thing(b"after\nsame\n", 0o600),
        "new/tool.sh": Thing(b"#!/bin/sh\n", 0o755),
        "dos.txt": Thing(b"left\r\nmiddle\r\nright\r\n", 0o664),
        "untouched.txt": Thing(b"\x00\xff\n", 0o640),
    },
    prepare=lambda root: of_proposal(root, PATCH, "edit.txt"),
)

CHECKPOINT: Tree = {
    "edit.txt": Thing(b"old\n", 0o755),
    "gone/deep/one.txt": Thing(b"1\n", 0o600),
    "was-a-file": Thing(b"file\n", 0o644),
    "was-a-directory/x": Thing(b"x\n", 0o644),
    "link": Thing(b"edit.txt", 0),
    "same.txt": Thing(b"same\n", 0o640),
}


def checkpoint(base: Path, tree: Tree) -> tuple[Manifest, Contents]:
    """The manifest and the contents of a workspace that held this."""
    contents = Contents()
    trees.put(base, tree)
    return take_manifest(base, store=contents), contents


def _restore(root: Path) -> Transaction:
    then, contents = checkpoint(root.with_name(f"{root.name}-then"), CHECKPOINT)
    return of_restore(root, then, contents.get)


RESTORE = Case(
    before={
        "edit.txt": Thing(b"new\n", 0o644),
        "was-a-file/y": Thing(b"y\n", 0o644),
        "was-a-directory": Thing(b"d\n", 0o644),
        "link": Thing(b"same.txt", 0),
        "same.txt": Thing(b"same\n", 0o640),
        "added/z": Thing(b"z\n", 0o644),
    },
    after=CHECKPOINT,
    prepare=_restore,
)

CASES = {"apply": APPLY, "restore": RESTORE}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
