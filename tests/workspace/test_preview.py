"""What people are shown of a proposal is made from the files' bytes, and says what it cannot show."""

from __future__ import annotations

import random
import re
import subprocess
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import PatchConflict
from intercom.model.request import NEW_FILE, ChangeKind, FileChange
from intercom.workspace import change_plan, proposal
from intercom.workspace.preview import (
    LONG_LINE,
    MAX_LINE,
    MAX_LINES,
    FileVersions,
    Preview,
    joined,
    over,
    preview,
    quote,
    show,
    show_text,
)
from tests.support.machine_speed import is_below


def of(before: bytes | None, after: bytes | None, path: str = "a.txt", mode: int | None = None) -> Preview:
    kind = ChangeKind.CREATE if before is None else ChangeKind.DELETE if after is None else ChangeKind.WRITE
    return show([FileVersions(FileChange(path, kind, NEW_FILE, None, mode=mode), before, after)])


def remarks(*sides: bytes | None, mode: int | None = None) -> list[str]:
    return [remark.text for remark in of(*sides, mode=mode).remarks]


def hunks(shown: Preview) -> str:
    return shown.diff.split("+++ ", 1)[1].split("\n", 1)[1]


# --- the agent's text is not shown -----------------------------------------------------------------------------------

AGENTS = [
    "@@ -1,3 +1,3 @@ def test_helper():\n",
    "@@ -1,3 +1,3 @@ only a typo in a comment\n",
    "@@ -1,3 +1,3 @@\n",
]


@pytest.mark.parametrize("header", AGENTS)
@pytest.mark.parametrize(
    "prose",
    ["", "Index: README.md\n====================\n", "diff -u README.md README.md\n"],
)
def test_the_agents_hunk_headers_and_prose_are_not_shown(tmp_path: Path, header: str, prose: str) -> None:
    (tmp_path / "auth.py").write_text("def is_admin(user):\n    return user.admin\n\n")
    diff = f"--- a/auth.py\n+++ b/auth.py\n{header} def is_admin(user):\n-    return user.admin\n+    return True\n \n"
    parsed = proposal.parse(f"diff -u x\n{prose}{diff}" if prose else diff, "auth.py")
    shown = preview(tmp_path, change_plan.plan(tmp_path, parsed))
    assert shown.diff == (
        "diff --git a/auth.py b/auth.py\n--- a/auth.py\n+++ b/auth.py\n"
        "@@ -1,3 +1,3 @@\n def is_admin(user):\n-    return user.admin\n+    return True\n \n"
    )
    assert shown.remarks == ()
    assert [(change.added, change.removed) for change in shown.changes] == [(1, 1)]


def test_context_that_the_patch_leaves_out_is_shown(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("if admin:\n    allow()\nelse:\n    deny()\n")
    parsed = proposal.parse("--- a/f\n+++ b/f\n@@ -2 +2 @@ else:\n-    allow()\n+    deny()\n", "f")
    shown = preview(tmp_path, change_plan.plan(tmp_path, parsed))
    assert hunks(shown) == "@@ -1,4 +1,4 @@\n if admin:\n-    allow()\n+    deny()\n else:\n     deny()\n"


def test_lines_that_change_places_are_counted(tmp_path: Path) -> None:
    (change,) = of(b"check()\nact()\n", b"act()\ncheck()\n").changes
    assert (change.added, change.removed) == (1, 1)


def test_a_file_that_changes_while_it_is_read_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    plan = change_plan.plan(tmp_path, proposal.parse("b\n", "f"))
    (tmp_path / "f").write_text("c\n")
    with pytest.raises(PatchConflict, match="f changed while the proposal was read"):
        preview(tmp_path, plan)


def test_many_files_come_and_go_under_headers_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x\n")
    (tmp_path / "gone").write_text("y\n")
    patch = (
        "diff --git a/old b/new\nrename from old\nrename to new\n--- a/old\n+++ b/new\n@@ -1 +1 @@ main\n-x\n+X\n"
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n"
        "diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+#!/bin/sh\n"
    )
    shown = preview(tmp_path, change_plan.plan(tmp_path, proposal.parse(patch, "new")))
    assert shown.diff == (
        "diff --git a/old b/new\nrename from old\nrename to new\n--- a/old\n+++ b/new\n@@ -1 +1 @@\n-x\n+X\n"
        "diff --git a/gone b/gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n"
        "diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+#!/bin/sh\n"
    )
    assert [(remark.path, remark.text) for remark in shown.remarks] == [("run", "becomes executable (mode 755)")]


# --- what a diff cannot show is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"a\n", b"\0\1\2", "binary: 2 bytes become 3, and none of them is shown"),
        (None, b"\x89PNG\0", "binary: 5 bytes come, and none of them is shown"),
        (b"\x89PNG\0", None, "binary: 5 bytes go, and none of them is shown"),
        (b"\0", None, "binary: 1 byte goes, and none of them is shown"),
        (b"a\n", b"a\x1b[2K\rb\n", "\\x1b (escape) is written as its code on line 1"),
        (b"a\n", "a\u202eb\n".encode(), "<U+202E> (right-to-left override) is written as its code on line 1"),
        (b"a\n", "a\u2066b\n".encode(), "<U+2066> (left-to-right isolate) is written as its code on line 1"),
        (b"a\n", "a\u200bb\n".encode(), "<U+200B> (zero width space) is written as its code on line 1"),
        (b"a\n", "a\U000e0041b\n".encode(), "<U+E0041> (tag latin capital letter a) is written as its code on line 1"),
        (b"a\n", "a\ufe01b\n".encode(), "<U+FE01> (variation selector-2) is written as its code on line 1"),
        (b"a\n", "a\U000e0100\n".encode(), "<U+E0100> (variation selector-17) is written as its code on line 1"),
        (b"a\n", "a\u2028b\n".encode(), "<U+2028> (line separator) is written as its code on line 1"),
        (b"a\n", "a\u2029b\n".encode(), "<U+2029> (paragraph separator) is written as its code on line 1"),
        (b"a\n", "a\u00a0b\n".encode(), "\\xa0 (no-break space) is written as its code on line 1"),
        (b"a\n", "a\u3164b\n".encode(), "<U+3164> (hangul filler) is written as its code on line 1"),
        (b"a\n", "a=\u0338b\n".encode(), "<U+0338> (combining long solidus overlay) is written as its code on line 1"),
        (b"a\n", b"rm -rf /\rls\n", "\\x0d (carriage return) is written as its code on line 1"),
        (b"a\x7f\n", b"a\n", "\\x7f (delete) is written as its code on line 1 of before"),
        (b"a\n\xff\n", b"b\n\xff\n\xc3\xa9\n\xc3\xa9\n", "bytes that are not UTF-8, written as \\x80 and so on"),
        (b"a\n", b"a" * (LONG_LINE + 1) + b"\n", "line 1 is 501 characters long"),
        (b"a\n", b"b" * (MAX_LINE + 9) + b"\n", "line 1 is 4,009 characters long; 4,000 of them are shown"),
        (b"a\nb\n", b"a\r\nb\r\n", "only line ends change: LF to CRLF"),
        (b"a\r\nb\r\n", b"a\r\nb\n", "only line ends change: CRLF to 1 CRLF and 1 LF"),
        (b"a\nb\n", b"a\r\nc\r\n", "line ends change: LF to CRLF"),
        (None, b"a\r\n", "its lines end in CRLF"),
        (b"a\n", b"a", "the newline at its end is removed"),
        (b"a", b"a\n", "the newline at its end is added"),
        (b"if a:\n    b\n    c\n", b"if a:\n    b\nc\n", "only white space changes"),
        (b"a\n", b"", "is emptied"),
        (None, b"", "is created as an empty file"),
        (b"", None, "an empty file is removed"),
        (b"a\n", b"a\n", "its content does not change"),
        (b"a\n", "user = p\u0430ypal\n".encode(), "mixes alphabets whose letters look alike: p<U+0430>ypal"),
        # Python takes it for `ox`.
        (b"a\n", "\uff4f\uff58(1)\n".encode(), "mixes alphabets whose letters look alike: <U+FF4F><U+FF58>"),
        (b"a\n", b"\xef\xbb\xbfa\n", "a byte order mark is added"),
        (b"a\n", "a\n".encode("utf-16"), "its encoding changes from utf-8 to utf-16-le"),
        ("\xe9t\xe9\n".encode("cp1252"), b"ete\n", "is read as windows-1252, which is a guess"),
        (b"-- a/x\n", b"++ b/x\n", "line 1 looks like the header of another file, but is not"),
    ],
)  # fmt: skip
def test_what_a_diff_cannot_show_is_said_of_the_file(before: bytes | None, after: bytes | None, said: str) -> None:
    assert any(said in remark for remark in remarks(before, after)), remarks(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\n", b"b\n"),
        (None, b"new\n"),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"\xef\xbb\xbfa\nb\n", b"\xef\xbb\xbfa\nc\n"),
        (b"a\n", "gr\u00fcn \u65e5\u672c \u05e9\u05dc\u05d5\u05dd \U0001f44d\n".encode()),
        (b"a\n", "\u26a0\ufe0f 1\ufe0f\u20e3 \U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd\n".encode()),
        (b"a\n", "e\u0301 \u043f\u0440\u0438\u0432\u0435\u0442 \u03b1\u03b2\n".encode()),
        ("\xe9 a\n".encode(), b"a\n"),
        (b"\tx\n", b"\ty\n"),
    ],
)
def test_of_an_ordinary_change_nothing_is_said(before: bytes | None, after: bytes | None) -> None:
    assert remarks(before, after) == []
    assert "<U+" not in of(before, after).diff


def test_a_mode_that_changes_is_said_in_words_and_in_the_diff() -> None:
    shown = of(b"a\n", b"a\n", mode=0o755)
    assert [each.text for each in shown.remarks] == ["becomes executable (mode 755)", "its content does not change"]
    assert shown.diff == "diff --git a/a.txt b/a.txt\nnew mode 100755\n"
    assert remarks(b"a\n", b"b\n", mode=0o644) == ["is no longer executable (mode 644)"]


def test_what_hides_comes_before_what_only_surprises() -> None:
    texts = remarks(b"a\n", "x\u202ey\r\n".encode())
    assert texts == [
        "<U+202E> (right-to-left override) is written as its code on line 1",
        "\\x0d (carriage return) is written as its code on line 1",
        "line ends change: LF to CRLF",
    ]


def test_places_are_named_and_the_rest_counted() -> None:
    (text,) = remarks(b"", "".join(f"{n}\x1b\n" for n in range(9)).encode())
    assert text == "\\x1b (escape) is written as its code on line 1, line 2, line 3 and 6 more lines"


def test_what_is_left_out_of_a_long_line_is_counted_in_words() -> None:
    line = "y" + "x" * 200 + "a" + "x" * (MAX_LINE - 201)
    shown = of(f"{line}\n".encode(), f"{line.replace('a', 'b')}\n".encode())
    assert len(line) == MAX_LINE + 1
    assert "[1 more is not shown]" in shown.diff
    # The one character is at the beginning if the difference is at the end.
    shown = of(f"{line[:-1]}c\n".encode(), f"{line[:-1]}d\n".encode())
    assert "[1 character before is not shown]" in shown.diff


def test_a_very_long_line_is_shown_where_it_differs() -> None:
    line = "x" * 50_000
    shown = of(f"{line}a{line}\n".encode(), f"{line}EVIL{line}\n".encode())
    assert "EVIL" in shown.diff
    assert "[49,800 characters before are not shown]" in shown.diff
    assert len(shown.diff) < 3 * MAX_LINE


def test_a_diff_that_is_cut_says_how_much_of_it_is_shown() -> None:
    shown = of(None, b"".join(b"%d\n" % n for n in range(MAX_LINES + 500)))
    lines = shown.diff.splitlines()
    assert len(lines) <= MAX_LINES + 3
    assert lines[-1] == "\\ 504 more lines of this diff are not shown"
    one = of(None, b"".join(b"%d\n" % n for n in range(MAX_LINES - 3)))
    assert one.diff.splitlines()[-1] == "\\ 1 more line of this diff is not shown"
    assert shown.remarks[0].text == f"{MAX_LINES} of {MAX_LINES + 504} lines of its diff are shown"
    assert shown.changes[0].added == MAX_LINES + 500


def test_a_name_that_mixes_alphabets_is_pointed_out() -> None:
    shown = of(b"a\n", b"b\n", path="src/\u0430pp.py")
    assert shown.remarks[0].text == "its name mixes alphabets whose letters look alike: <U+0430>pp"


# --- the agent's words, where the bytes are not known ----------------------------------------------------------------


def test_words_of_an_agent_stand_behind_bars_and_are_said_to_be_its() -> None:
    change = FileChange("a.py", ChangeKind.WRITE, "unread", None)
    shown = quote(change, "@@ def f @@\n-a\n+b\x1b[2J\ndiff --git a/x b/x\n", "the client gives only these lines")
    assert shown.diff == ("diff --git a/a.py b/a.py\n| @@ def f @@\n| -a\n| +b\\x1b[2J\n| diff --git a/x b/x\n")
    assert shown.remarks[0].text == (
        "the client gives only these lines: what is shown is the agent's text, not a diff made from the file"
    )
    assert joined([shown, of(b"a\n", b"b\n")]).diff.count("\ndiff --git ") == 1


# --- true to the bytes -----------------------------------------------------------------------------------------------

_SHOWN = re.compile(r"\\x([0-9a-f]{2})|<U\+([0-9A-F]{4,6})>")


def restored(text: str) -> str:
    """What a shown text stands for; only for texts that hold nothing which looks like a code."""
    return _SHOWN.sub(lambda code: chr(int(code[1] or code[2], 16)), text)


_LINES = st.text(st.sampled_from("ab \t\r\x0b\u2028\u202e\x1b\u0301\ud7ff\n\n\n"), max_size=60)


@given(_LINES, _LINES)
def test_the_diff_shown_is_the_change_made(before: str, after: str) -> None:
    import tempfile

    shown = of(before.encode(), after.encode())
    for character in shown.diff:
        assert character in "\n\t" or unicodedata.category(character)[0] not in "CZ" or character == " "
    if before == after:
        assert "@@" not in shown.diff
        return
    if before.count("\r\n") == before.count("\n") or after.count("\r\n") == after.count("\n"):
        return  # returns that all lines of both sides have are not shown
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "a.txt").write_bytes(before.encode())
        plan = change_plan.plan(root, proposal.parse(restored(shown.diff), "a.txt"))
        assert plan.files[0].after == after.encode()
        if "new" not in shown.diff:
            made = subprocess.run(
                ["git", "apply", "--unsafe-paths", "-"], cwd=root, input=restored(shown.diff).encode(), check=False
            )
            assert made.returncode == 0
            assert (root / "a.txt").read_bytes() == after.encode()


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_shown_or_said_not_to_be(before: bytes, after: bytes) -> None:
    shown = of(before, after)
    assert all(
        line.isprintable() or set(line) <= {"\t", *filter(str.isprintable, line)} for line in shown.diff.split("\n")
    )
    if before != after:
        assert "@@" in shown.diff or shown.remarks


@pytest.mark.parametrize("seed", range(4))
def test_a_large_file_is_compared_in_seconds_whatever_it_holds(seed: int) -> None:
    chance = random.Random(seed)
    lines = [chance.choice(["}\n", "\n", f"{n % 700}\n", f"line {n}\n"]) for n in range(40_000)]
    after = list(lines)
    for _ in range(400):
        at = chance.randrange(len(after))
        after[at : at + chance.randrange(3)] = [chance.choice(lines) for _ in range(chance.randrange(3))]
    began = time.process_time()
    (change,) = of("".join(lines).encode(), "".join(after).encode()).changes
    assert is_below(6, time.process_time() - began)
    assert change.added < 2_000


def test_files_made_to_be_slow_to_compare_are_not() -> None:
    before = b"".join(b"%d\n" % (n % 50) for n in range(30_000))
    after = b"".join(b"%d\n" % (n * 7 % 50) for n in range(30_000))
    began = time.process_time()
    of(before, after)
    assert is_below(6, time.process_time() - began)


def test_what_was_approved_stands_below_what_would_become_of_the_file_now() -> None:
    approved = of(b"old\n", b"new\n").diff
    shown = over(of(b"mine\n", b"new\n"), "kim", approved, ((5, "-[masked: key]"),))
    assert hunks(shown).startswith(
        "@@ -1 +1 @@\n-mine\n+new\nWhat was approved, for the file as it was then:\n| diff --git"
    )
    assert shown.diff.endswith("| @@ -1 +1 @@\n| -old\n| +new\n")
    assert shown.remarks[0].text.startswith("has changed since this was approved by kim; ")
    ((number, line),) = shown.masked
    assert (shown.diff.split("\n")[number], line) == ("| +new", "| -[masked: key]")


def test_a_text_that_is_in_no_file_is_shown_alike() -> None:
    shown = show_text(".intercom/settings.json", '{"a": 1}\n', '{"a": 2}\n')
    assert hunks(shown) == '@@ -1 +1 @@\n-{"a": 1}\n+{"a": 2}\n'


@pytest.mark.parametrize("path", ["a\nb.py", "a  b.py", "CLAUDE.md ", "a\u00a0b.py", "a\u3000b.py"])
def test_a_name_that_is_not_as_it_looks_is_said_in_full(path: str) -> None:
    shown = show([FileVersions(FileChange(path, ChangeKind.CREATE, "new_file", ""), None, b"x\n")])
    assert f"its name is not as it looks: {path!a}" in [remark.text for remark in shown.remarks]


@pytest.mark.parametrize("gap", [" " * 90, "\t" * 12, " " * 45, " \t" * 40])
def test_what_stands_behind_a_wide_gap_is_pointed_out(gap: str) -> None:
    shown = show(
        [FileVersions(FileChange("a.py", ChangeKind.WRITE, "", ""), b"x = 1\n", f"x = 1{gap}; y()\n".encode())]
    )
    assert "there is more behind a wide gap on line 1" in [remark.text for remark in shown.remarks]


def test_what_stands_far_in_from_the_start_is_pointed_out_and_code_is_not() -> None:
    change = FileChange("a.py", ChangeKind.WRITE, "", "")
    for line, is_said in (
        (" " * 300 + "evil()", True),
        ("\t" * 60 + "evil()", True),
        (" " * 80 + "long_call(1)", False),
        ("x = 1" + " " * 30 + "# why", False),
        ("x²=1, 1º", False),
        ("\u043a\u0430\u043a = 1", False),
    ):
        said = [remark.text for remark in show([FileVersions(change, b"x\n", f"{line}\n".encode())]).remarks]
        assert bool(said) is is_said, (line, said)
