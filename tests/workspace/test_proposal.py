"""Reading what an agent proposes: which files, what becomes of them, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import DiffError, IntercomError, PathViolation
from intercom.model.request import ChangeKind
from intercom.workspace import proposal
from intercom.workspace.proposal import HunkLine

HUNK = "@@ -1 +1 @@\n-old\n+new\n"


def test_what_does_not_begin_as_a_patch_is_the_whole_file_as_given() -> None:
    read = proposal.parse("---\ntitle: x\r\n---\nbody é", "./docs/a.md")
    assert not read.is_patch
    assert read.content == "---\ntitle: x\r\n---\nbody é".encode()
    assert read.paths == ("docs/a.md",)


@pytest.mark.parametrize(
    ("headers", "paths"),
    [
        ("--- a/x/f\n+++ b/x/f\n", ("x/f",)),
        ("--- x/f\n+++ x/f\n", ("x/f",)),
        ("--- a/x/f\t2026-01-01 10:00:00.000000000 +0100\n+++ b/x/f\t2026-01-02 10:00:00 +0100\n", ("x/f",)),
        ("--- old/x/f\n+++ new/x/f\n", ("x/f",)),
        ("--- i/x/f\n+++ w/x/f\n", ("x/f",)),
        ('--- "a/x/\\303\\251"\n+++ "b/x/\\303\\251"\n', ("x/é",)),
        ("diff -u a/x/f b/x/f\nIndex: x/f\n=====\n--- a/x/f\n+++ b/x/f\n", ("x/f",)),
        ("diff --git a/x/f b/x/f\nindex 123..456 100644\n--- a/x/f\n+++ b/x/f\n", ("x/f",)),
        ("diff --git x/f x/f\n--- x/f\n+++ x/f\n", ("x/f",)),
        ("diff --git a/a b b/a b\n--- a/a b\t\n+++ b/a b\t\n", ("a b",)),
        ("diff --git a/a b/c b/a b/c\n--- a/a b/c\t\n+++ b/a b/c\t\n", ("a b/c",)),
        ('diff --git "a/\\303\\251" "b/\\303\\251"\n--- "a/\\303\\251"\n+++ "b/\\303\\251"\n', ("é",)),
        ("diff --git a/b/x b/b/x\n--- a/b/x\n+++ b/b/x\n", ("b/x",)),
    ],
)
def test_names_are_read_as_git_writes_them(headers: str, paths: tuple[str, ...]) -> None:
    read = proposal.parse(headers + HUNK, paths[-1])
    assert read.paths == paths
    assert read.patches[0].hunks[0].lines == (HunkLine("-", "old\n"), HunkLine("+", "new\n"))
    assert read.patches[0].hunks[0].header == "@@ -1 +1 @@"


@pytest.mark.parametrize(
    ("diff", "kind", "path", "old", "executable"),
    [
        ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+new\n", ChangeKind.CREATE, "f", None, None),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n", ChangeKind.DELETE, "f", None, None),
        (
            "--- f\t2026-01-01 00:00:00.5 +0000\n+++ f\t1970-01-01 01:00:00.000000000 +0100\n@@ -1 +0,0 @@\n-old\n",
            ChangeKind.DELETE, "f", None, None,
        ),
        (
            "diff --git a/f b/f\nnew file mode 100755\nindex 0000000..e69de29\n",
            ChangeKind.CREATE, "f", None, True,
        ),
        ("diff --git a/f b/f\ndeleted file mode 100644\nindex e69de29..0000000\n", ChangeKind.DELETE, "f", None, None),
        ("diff --git a/f b/f\nold mode 100755\nnew mode 100644\n", ChangeKind.WRITE, "f", None, False),
        (
            "diff --git a/o b/d/f\nsimilarity index 100%\nrename from o\nrename to d/f\n",
            ChangeKind.RENAME, "d/f", "o", None,
        ),
        (
            "diff --git a/o b/f\nsimilarity index 90%\nrename from o\nrename to f\n--- a/o\n+++ b/f\n" + HUNK,
            ChangeKind.RENAME, "f", "o", None,
        ),
        ("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+new\n-- \n2.43.0\n\n", ChangeKind.CREATE, "f", None, None),
    ],
)  # fmt: skip
def test_what_becomes_of_a_file(
    diff: str, kind: ChangeKind, path: str, old: str | None, executable: bool | None
) -> None:
    (patch,) = proposal.parse(diff, old or path).patches
    assert (patch.kind, patch.path, patch.old_path, patch.executable) == (kind, path, old, executable)


def test_a_name_with_a_prefix_of_its_own_is_kept_where_the_request_says_so() -> None:
    diff = "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+new\n"
    assert proposal.parse(diff, "b/f").paths == ("b/f",)
    assert proposal.parse(diff, "f").paths == ("f",)


def test_many_files_in_one_patch_plain_and_git_mixed() -> None:
    diff = (
        "--- a/one\n+++ b/one\n" + HUNK + "diff --git a/two b/two\n--- a/two\n+++ b/two\n" + HUNK
        + "--- a/three\n+++ b/three\n" + HUNK + "diff --git a/four b/four\nnew file mode 100644\n"
    )  # fmt: skip
    assert proposal.parse(diff, "three").paths == ("one", "two", "three", "four")


def test_lines_that_look_like_headers_inside_a_hunk_are_content() -> None:
    diff = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n--- a/x\n+++ b/y\n @@ -1 +1 @@\n diff --git a/x b/x\n"
    (patch,) = proposal.parse(diff, "f").patches
    assert [line.mark + line.text for line in patch.hunks[0].lines] == [
        "--- a/x\n", "+++ b/y\n", " @@ -1 +1 @@\n", " diff --git a/x b/x\n",
    ]  # fmt: skip


def test_a_missing_newline_at_the_end_is_understood_in_any_language() -> None:
    for words in ("No newline at end of file", "Kein Zeilenumbruch am Dateiende."):
        (patch,) = proposal.parse(f"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n\\ {words}\n+new\n\\ {words}\n", "f").patches
        assert patch.hunks[0].lines == (HunkLine("-", "old"), HunkLine("+", "new"))


def test_a_patch_carried_with_other_line_ends_is_read_without_them() -> None:
    (patch,) = proposal.parse(("--- a/f\n+++ b/f\n" + HUNK).replace("\n", "\r\n"), "f").patches
    assert patch.hunks[0].lines == (HunkLine("-", "old\n"), HunkLine("+", "new\n"))


def test_a_patch_whose_last_newline_was_lost_is_read_with_it() -> None:
    (patch,) = proposal.parse(("--- a/f\n+++ b/f\n" + HUNK).rstrip("\n"), "f").patches
    assert patch.hunks[0].lines[-1] == HunkLine("+", "new\n")


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("", "empty"),
        ("half \ud800", "surrogate"),
        ("x" * (proposal.MAX_DIFF_BYTES + 1), "send it in parts"),
        ("--- a/f\n", "no file|line 1"),
        ("--- just a title\nand text", "line 1"),
        ("diff of opinions", "names no file"),
        ("--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-old\n+new\n", "shorter"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n+more\n", "line 6 .*in no hunk"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n--- more\n", "line 6 .*in no hunk"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n context\n", "line 6 .*in no hunk"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n-- \n+hidden\n", "line 6 .*in no hunk"),
        ("--- a/f\n+++ b/f\n@@ -1,0 +1,0 @@\n", "hunk near line 3 of the patch is empty"),
        ("--- a/f\n+++ b/f\n@@ ... @@\n-old\n+new\n", "in no hunk|no hunks"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\nold\n", "line 4"),
        (f"--- a/f\n+++ b/f\n@@ -{'9' * 5000} +1 @@\n-old\n+new\n", "cannot be read"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n\\ No newline\n-old\n+new\n", "begins with the marker"),
        ("--- a/f\n+++ b/g\n" + HUNK, "name two files"),
        ("--- a/g\n+++ b/g\n" + HUNK, "file_path is f, but the patch names g"),
        ("--- a/f\n+++ b/f\n" + HUNK + "--- a/f\n+++ b/f\n" + HUNK, "names f twice"),
        ("--- a/f\n+++ b/f\n" + HUNK + "--- /dev/null\n+++ b/f/g\n@@ -0,0 +1 @@\n+x\n", "both as a file and"),
        ("diff --git a/f b/f\n--- a/g\n+++ b/g\n" + HUNK, "name different files"),
        ("diff --git a/f b/f\n" + HUNK, "no --- and \\+\\+\\+"),
        ("diff --git a/f b/f\n--- a/f\n" + HUNK, "only one of"),
        ("diff --git a/f b/f\nnew file mode 100644\ndeleted file mode 100644\n", "both makes and removes"),
        ("diff --git a/f b/f\nnew file mode 120000\n", "symbolic link"),
        ("diff --git a/f b/f\nindex 1..2 160000\n--- a/f\n+++ b/f\n" + HUNK, "submodule"),
        ("diff --git a/f b/f\nnew file mode what\n", "no file mode"),
        ("diff --git a/f b/g\nsimilarity index 90%\ncopy from f\ncopy to g\n", "copies"),
        ("diff --git a/f b/f\nindex 1..2\nBinary files a/f and b/f differ\n", "binary"),
        ("diff --git a/f b/f\nindex 1..2\nGIT binary patch\nliteral 3\n", "binary"),
        ("diff --git a/f b/f\nfrobnicate\n", "belongs to no header"),
        ("diff --git a/f b/g\nrename from f\n", "only one end"),
        ("diff --git a/f b/g\nrename from f\nrename to h\n", "disagree"),
        ("diff --git a/f b/g\nrename from f\nrename to g\n--- a/x\n+++ b/g\n" + HUNK, "disagree"),
        ("diff --git a/f b/f\nrename from f\nrename to f\n", "disagree"),
        ("diff --git a/f b/longer\n", "told apart"),
        ('--- "a/f\n+++ "b/f\n' + HUNK, "quoted only half"),
        ('--- "a/\\q"\n+++ "b/\\q"\n' + HUNK, "escape"),
        ('--- "a/\\t"\n+++ "b/\\t"\n' + HUNK, "U\\+0009"),
        ('--- "a/\\377"\n+++ "b/\\377"\n' + HUNK, "not UTF-8"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n-- \n+x\n", "in no hunk"),
    ],
)
def test_what_can_not_be_read_is_refused_with_the_line_or_the_reason(diff: str, said: str) -> None:
    with pytest.raises((DiffError, PathViolation), match=said) as refused:
        proposal.parse(diff, "f")
    assert not refused.value.message.endswith(".")


def test_a_patch_of_more_files_than_a_person_would_read_is_refused() -> None:
    diff = "".join(f"--- a/{n}\n+++ b/{n}\n{HUNK}" for n in range(proposal.MAX_FILES + 1))
    with pytest.raises(DiffError, match="changes 501 files; the most is 500"):
        proposal.parse(diff, "1")


@pytest.mark.parametrize("name", ["../f", "/etc/passwd", "a/../../f", "f\0", "a\\f"])
def test_paths_that_lead_outside_are_refused_in_headers_and_arguments(name: str) -> None:
    with pytest.raises(IntercomError):
        proposal.parse("content", name)
    with pytest.raises(IntercomError):
        proposal.parse(f"--- a/f\n+++ b/f\n{HUNK}--- a/{name}\n+++ b/{name}\n{HUNK}", "f")


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "--- a/f\n", "+++ b/f\n", "@@ -1 +1 @@\n", "@@ -1,2 +1,3 @@ def f():\n", "-old\n", "+new\n", " same\n",
            "\n", "\\ No newline\n", "diff --git a/f b/f\n", "new file mode 100644\n", "rename from f\n",
            "rename to g\n", "--- /dev/null\n", "-- \n", "\r\n", "index 1..2 100644\n",
            "Binary files a/f and b/f differ\n", "GIT binary patch\n", "--- \n", "+++ \n", "@@", '--- "a/f"\n',
        ]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@given(
    FRAGMENTS
    | st.text(max_size=200)
    | st.text(max_size=50).map("--- ".__add__)
    | st.text(max_size=50).map("diff --git ".__add__)
)
def test_any_text_is_read_or_refused_and_nothing_else(diff: str) -> None:
    try:
        read = proposal.parse(diff, "f")
    except IntercomError:
        return
    assert "f" in read.paths
