"""Any proposal for any path, approved and applied on a real server: all of its files or none, and none outside."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.canary import FILES, Grounds
from tests.fuzz.harm import is_fair_error
from tests.fuzz.rig import ERAS, Rig, sound
from tests.fuzz.values import examples, texts

NAMES = [
    "..",
    ".",
    "a",
    "src",
    "deep",
    "out",
    "up",
    "root",
    "in",
    "loop",
    "abs",
    "notes.txt",
    "main.c",
    "pipe",
    "outfile",
    "new",
]
NAMES += ["dangling", "outside", "secret", "work", "~", "", " ", ".git", ".GIT", ".git.", ".g\u200cit", "config", "tmp"]
NAMES += [
    "\0",
    "\u202e",
    "\\",
    "..\\..",
    "C:",
    "\ud800",
    "x" * 255,
    "x" * 256,
    "e\u0301",
    "\u00e9",
    "\uff0e\uff0e",
    "a\tb",
    '"',
]
names = st.sampled_from(NAMES) | st.text(max_size=4)
paths = (
    st.sampled_from([*FILES, "new.txt", "src/new.txt", "made/deep/new"])
    | st.lists(names, min_size=1, max_size=5).map("/".join)
    | st.lists(names, max_size=4).map(lambda parts: "/" + "/".join(parts))
)

#: Patches of one file, with the path to be filled in; some fit nothing.
PATCHES = [
    "--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n",
    "--- a/{path}\n+++ b/{path}\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
    "--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-deep\n+shallow\n",
    "--- a/{path}\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-one\n-two\n-three\n",
    "diff --git a/{path} b/{path}\ndeleted file mode 100644\n--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-deep\n",
    "diff --git a/notes.txt b/{path}\nsimilarity index 100%\nrename from notes.txt\nrename to {path}\n",
    "diff --git a/{path} b/moved\nsimilarity index 100%\nrename from {path}\nrename to moved\n",
    "diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n",
    "diff --git a/{path} b/{path}\nold mode 100644\nnew mode 100755\n",
    "diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+/etc\n",
    '--- "a/{path}"\n+++ "b/{path}"\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n',
    "--- a/{path}\t2020-01-01\n+++ b/../{path}\t2020-01-01\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
]


@st.composite
def patches(draw: st.DrawFn) -> tuple[str, str]:
    """A patch of one to three files and one of their paths."""
    parts = draw(st.lists(st.tuples(st.sampled_from(PATCHES), paths), min_size=1, max_size=3))
    diff = "".join(form.replace("{path}", path) for form, path in parts)
    return diff, draw(st.sampled_from([path for _, path in parts]))


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, str]:
    """A patch in which something was lost, doubled or put in."""
    diff, path = draw(patches())
    lines = diff.splitlines(keepends=True)
    at = draw(st.integers(0, len(lines)))
    put = draw(st.lists(st.sampled_from(lines) | texts, max_size=2))
    return "".join([*lines[:at], *put, *lines[at + draw(st.integers(0, 2)) :]]), path


whole = st.tuples(texts.filter(bool), paths)
proposals = patches() | broken() | whole


@pytest.mark.parametrize("era", ERAS)
def test_no_proposal_writes_outside_or_by_halves(on: Rig, era: str) -> None:
    grounds = Grounds(on.home.root / f"grounds-{era}")
    agent, ctl = on.agent(era, workspace=grounds.workspace), on.ctl()
    seen = {"applied": 0, "refused": 0}

    @examples(50)
    @given(proposals, st.booleans())
    @example((PATCHES[1].replace("{path}", "notes.txt"), "notes.txt"), False)
    @example((PATCHES[0].replace("{path}", "out/new"), "out/new"), False)
    @example((PATCHES[1].replace("{path}", "outfile"), "outfile"), True)
    @example(
        (PATCHES[1].replace("{path}", "notes.txt") + PATCHES[1].replace("{path}", "out/secret"), "notes.txt"), False
    )
    @example(("x", "dangling"), True)
    @example(("x", "src/out/secret"), True)
    def check(proposed: tuple[str, str], force: bool) -> None:
        diff, path = proposed
        grounds.lay_out()
        before, around = grounds.inside(), grounds.outside()
        answer = agent.call("check_clearance", {"title": "t", "diff": diff, "file_path": path})
        if "error" in answer or answer["result"].get("isError"):
            seen["refused"] += 1
            if "result" in answer:
                is_fair_error(answer["result"]["structuredContent"])
            assert (grounds.inside(), grounds.outside()) == (before, around)
            return
        id = answer["result"]["structuredContent"]["request_id"]
        assert grounds.inside() == before
        ctl.do("approve", id=id)
        applied = agent.does("check_diff", request_id=id, force=force)
        assert grounds.outside() == around, proposed
        after = grounds.inside()
        if applied["status"] == "error":
            is_fair_error(applied)
            assert after == before, applied
            return
        seen["applied"] += 1
        changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        written = {each["path"] for each in applied["files_written"]}
        assert not [name for name in after if ".intercom-" in name]
        # Directories come with the files in them, and the old name of what was renamed goes.
        assert {name for name in changed if name in after and not after[name].startswith("d")} <= written
        assert agent.does("check_diff", request_id=id)["error_code"] == "already_consumed"
        assert grounds.inside() == after

    check()
    assert seen["applied"] > 2, seen
    assert seen["refused"] > 2, seen
    sound(on)


def test_an_approval_is_for_the_bytes_that_were_shown(on: Rig) -> None:
    """The file changes between approval and apply, in every way a file can."""
    grounds = Grounds(on.home.root / "grounds-between")
    agent, ctl = on.agent(workspace=grounds.workspace), on.ctl()
    target = grounds.workspace / "notes.txt"

    def to_link() -> None:
        target.unlink()
        target.symlink_to("../outside/notes.txt")

    def to_directory() -> None:
        target.unlink()
        target.mkdir()

    def to_hard_link() -> None:
        target.unlink()
        target.hardlink_to(grounds.root / "outside" / "notes.txt")

    changes: list[Any] = [target.unlink, to_link, to_directory, to_hard_link, lambda: target.write_bytes(b"other\n")]
    for number, change in enumerate(changes):
        grounds.lay_out()
        around = grounds.outside()
        asked = agent.does("check_clearance", title=f"{number}", diff=f"new {number}\n", file_path="notes.txt")
        ctl.do("approve", id=asked["request_id"])
        change()
        between = grounds.inside()
        for force in (False, True):
            applied = agent.does("check_diff", request_id=asked["request_id"], force=force)
            assert grounds.outside() == around
            if applied["status"] == "applied":
                break
            if applied["status"] == "pending":
                # A person is asked about the file as it is now, and nothing is written before.
                assert force
                assert applied["request_id"] != asked["request_id"]
            else:
                is_fair_error(applied)
            assert grounds.inside() == between
