"""Nothing an agent can say, and nothing that can be swapped while it is done, writes outside the workspace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intercom.model.errors import IntercomError
from intercom.workspace import change_plan, files, proposal, transaction

NAMES = st.lists(st.sampled_from(["..", ".", "a", "out", "in", "loop", "file", "new", "", "\0", "~"]), max_size=6)
PATHS = NAMES.map("/".join) | st.text(max_size=20) | NAMES.map(lambda names: "/" + "/".join(names))
FORMS = [
    "whole\n",
    "--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n",
    "--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-secret\n+x\n",
    "--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-secret\n",
    "diff --git a/file b/{path}\nsimilarity index 100%\nrename from file\nrename to {path}\n",
    "diff --git a/{path} b/new\nsimilarity index 100%\nrename from {path}\nrename to new\n",
]


def lay_out(base: Path) -> Path:
    shutil.rmtree(base, ignore_errors=True)
    root = base / "work"
    (root / "a").mkdir(parents=True)
    for name in ("a/file", "file"):
        (root / name).write_text("secret\n")
    (base / "secret").write_text("secret\n")
    (root / "out").symlink_to(base)
    (root / "in").symlink_to("a")
    (root / "loop").symlink_to("loop")
    return root


def outside(base: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in base.iterdir() if path.is_file()}


def propose(root: Path, form: str, path: str) -> None:
    parsed = proposal.parse(form.replace("{path}", path), path)
    plan = change_plan.plan(root, parsed)
    plan = change_plan.plan_again(root, parsed, plan.changes, root_id=plan.root_id)
    steps = transaction.prepare(root, path, change_plan.steps(root, plan), plan.root_id)
    transaction.stage(root, steps, plan.contents.get)
    transaction.roll_forward(root, steps)


@settings(max_examples=100, deadline=None)
@given(form=st.sampled_from(FORMS), path=PATHS)
@example(form=FORMS[0], path="out/secret")
@example(form=FORMS[3], path="in/../../secret")
def test_no_path_in_any_form_of_proposal_writes_outside(
    tmp_path_factory: pytest.TempPathFactory, form: str, path: str
) -> None:
    base = tmp_path_factory.getbasetemp() / "escape"
    root = lay_out(base)
    try:
        propose(root, form, path)
    except IntercomError:
        pass
    assert outside(base) == {"secret": "secret\n"}
    assert sorted(entry.name for entry in base.iterdir()) == ["secret", "work"]


@pytest.mark.parametrize("by_the_kernel", [True, False], ids=["openat2", "walk"])
@pytest.mark.parametrize("form", [form for form in FORMS if "rename from {path}" not in form])
def test_a_directory_swapped_for_a_link_before_any_opening_lets_nothing_out(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, *, by_the_kernel: bool
) -> None:
    """An adversary that needs no luck: the swap happens before the n-th opening of anything, for every n."""
    if by_the_kernel:
        assert files.has_openat2(), "the kernel is too old for this test"
    else:
        monkeypatch.setattr(files, "has_openat2", lambda: False)
    real_open, real_openat2 = os.open, files._openat2
    path = "a/fresh" if "/dev/null\n+++" in form or "rename to" in form else "a/secret"
    swaps = 0
    while True:
        base = tmp_path / f"case{swaps}"
        root = lay_out(base)
        (root / "a" / "secret").write_text("secret\n")
        left = swaps

        def swap(root: Path = root, base: Path = base) -> None:
            nonlocal left
            if left == 0:
                (root / "a").rename(root / "moved")
                (root / "a").symlink_to(base)
            left -= 1

        def opening(*args: Any, swap: Callable[[], None] = swap, **kwargs: Any) -> int:
            swap()
            return real_open(*args, **kwargs)

        def opening_beneath(*args: Any, swap: Callable[[], None] = swap) -> int:
            swap()
            return real_openat2(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", opening)
            patch.setattr(files, "_openat2", opening_beneath)
            try:
                propose(root, form, path)
            except IntercomError:
                pass
        assert outside(base) == {"secret": "secret\n"}
        if left >= 0:
            break
        swaps += 1
    assert swaps > 5
