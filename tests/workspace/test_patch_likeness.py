"""A text sent as a diff is a patch, or clearly a file; what is neither is refused, and never written as content."""

from __future__ import annotations

import html
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intercom.model.errors import DiffError, IntercomError
from intercom.model.request import ProposalForm
from intercom.workspace import proposal
from intercom.workspace.proposal import likeness

PATCH = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n"
BARE = "@@ -1 +1 @@\n-old\n+new\n"
CODEX = "*** Begin Patch\n*** Update File: f\n@@\n-old\n+new\n*** End Patch\n"
CONTEXT = "*** a/f\n--- b/f\n***************\n*** 1 ****\n! old\n--- 1 ----\n! new\n"
MODE = "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n"
MAIL = "From 0123456789abcdef0123456789abcdef01234567 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.c>\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # In a code block, as models answer.
        (f"```diff\n{PATCH}```\n", "something before it (line 4 begins a hunk)"),
        ("```diff\n-old\n+new\n```\n", "a patch in a code block (```diff)"),
        ("```diff\n-old\n+new\n", "a patch in a code block (```diff)"),
        ("~~~ patch\n-old\n+new\n~~~\n", "a patch in a code block"),
        ("\n\n``` diff\nold\n```\n", "a patch in a code block"),
        ("```\nold = 1\n```\n", "a code block with its fences, which would be written too"),
        ("```python\nold = 1\n```", "a code block with its fences, which would be written too"),
        ("Here is the change:\n\n```diff\n-old\n+new\n-b\n+c\n```\n", "a patch in a code block, with little else"),
        # Without headers.
        (BARE, "something before it (line 1 begins a hunk)"),
        ("@@ -10,7 +10,7 @@ def f():\n context\n-old\n+new\n", "line 1 begins a hunk"),
        ("@@ ... @@\n-old\n+new\n", "a hunk of a patch without the header"),
        ("@@\n-old\n+new\n", "a hunk of a patch without the header"),
        ("@@ def f():\n-old\n+new\n", "a hunk of a patch without the header"),
        ("@@@ -1,2 -1,2 +1,3 @@@\n  a\n", "a hunk of a patch without the header"),
        ("+new\n", "lines of a hunk without headers"),
        ("-old\n+new\n", "lines of a hunk without headers"),
        (" same\n-old\n+new\n\n same\n", "lines of a hunk without headers"),
        ("- old\n+ new\n", "lines of a hunk without headers"),
        ("-old\n-older\n", "lines of a hunk without headers"),
        ("+new\n\\ No newline at end of file\n", "lines of a hunk without headers"),
        # With something before the headers.
        (f"\n{PATCH}", "line 4 begins a hunk"),
        (f"\ufeff{PATCH}", "line 3 begins a hunk"),
        (f"\u200b{PATCH}", "line 3 begins a hunk"),
        (f"   \n\t\n{PATCH}", "line 5 begins a hunk"),
        (f"    {PATCH.replace(chr(10), chr(10) + '    ')}", "line 3 begins a hunk"),
        ("\n--- a/f\n+++ b/f\n@@\n-old\n+new\n", "something before its first line"),
        ("\ufeffdiff --git a/f b/f\nnew mode 100755\n", "something before its first line"),
        (" diff -u a/f b/f\n", "something before its first line"),
        ("+++ b/f\n@@\n-old\n+new\n", "a patch without the first line of its header"),
        (f"Index: f\n===================================================================\n{PATCH}", "line 5 begins"),
        ("Index: f\n===================================================================\n", "an Index line"),
        (f"Sure! Here is the patch you asked for.\n\n{PATCH}", "line 5 begins a hunk"),
        (f"# A patch\n\n{PATCH}\nThat is all.\n", "line 5 begins a hunk"),
        ("See below.\ndiff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", "line 2 begins a file"),
        ("x\ndiff --git a/f b/f\nindex 1..2\nGIT binary patch\nliteral 3\n", "line 2 begins a file"),
        # In a mail.
        (f"{MAIL}Subject: [PATCH] f\n\n---\n f | 2 +-\n\n{PATCH}", "begins a hunk"),
        (f"{MAIL}Subject: [PATCH] f\n\n---\n f | 2 +-\n", "a patch in a mail"),
        ("From: A <a@b.c>\nDate: now\nSubject: [PATCH v2 1/3] f\n\nWhy.\n", "a patch in a mail"),
        ("Subject: [RFC PATCH] f\n\nWhy.\n", "a patch in a mail"),
        # Other kinds.
        (CODEX, "a patch for apply_patch"),
        (f"\n{CODEX}", "a patch for apply_patch"),
        (f"apply_patch <<'EOF'\n{CODEX}EOF\n", "a patch for apply_patch (line 2 begins it)"),
        ("*** Update File: f\n@@\n-old\n+new\n", "a patch for apply_patch"),
        (CONTEXT, "a context diff"),
        ("*** a/f\n--- b/f\n", "a context diff"),
        ("1c1\n< old\n---\n> new\n", "a diff without context (line 1 begins a change)"),
        ("Changes:\n3a4,5\n> new\n> newer\n", "a diff without context (line 2 begins a change)"),
        ("1d\n", "an ed script"),
        ("3c\nnew\n.\n", "an ed script"),
        ("3c\nnew\n.\nw\nq\n", "an ed script"),
        ("2a\n..\n.\ns/.//\na\nnew\n.\n", "an ed script"),
        ("/^old$/c\nnew\n.\nwq\n", "an ed script"),
        ("$a\nnew\n.\ns/n/N/\n", "an ed script"),
        ("a\nnew\n.\nw\nq\n", "an ed script"),
        (",s/old/new/g\nw\nq\n", "an ed script"),
        ("Changes:\n7,9d\n3d\n", "an ed script (line 2 is a command of it)"),
        ("Changes:\n3c\nnew\n.\n1d\nw\nq\n", "an ed script (line 2 is a command of it)"),
        ("H\ng/old/s//new/g\n1,2m5\nw\n", "an ed script"),
        ("d1 2\na3 1\nnew\n", "a diff for RCS"),
        ("GIT binary patch\nliteral 3\n", "a binary patch"),
        ("Binary files a/f and b/f differ\n", "a binary patch"),
        ("<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n", "a block to search and replace"),
        ("src/f.py\n```python\n<<<<<<< SEARCH\nold\n=======\nnew\n>>>>>>> REPLACE\n```\n", "a block to search and"),
        # Wrapped.
        (html.escape("1c1\n< old\n---\n> new\n"), "a diff without context (line 1 begins a change), escaped for HTML"),
        (f"&#45;{PATCH[1:]}", "line 3 begins a hunk"),
        ("&#45;-- a/f\n&#43;++ b/f\n", "invisible"),
        ("> --- a/f\n> +++ b/f\n> @@ -1 +1 @@\n> -old\n> +new\n", "line 3 begins a hunk), quoted as in a mail"),
        (json.dumps(PATCH), "line 4 begins a hunk), as a string of JSON"),
        # With other line ends.
        (f"\n{PATCH}".replace("\n", "\r\n"), "line 4 begins a hunk"),
        (f"x\n{PATCH}".replace("\n", "\r"), "line 4 begins a hunk"),
    ],
)  # fmt: skip
def test_what_only_resembles_a_patch_is_refused_and_named(text: str, said: str) -> None:
    found = likeness(text)
    assert found is not None, text
    assert said in found or said == "invisible"
    with pytest.raises(DiffError) as refused:
        proposal.parse(text, "f")
    assert refused.value.message == (
        f"the diff looks like {found}; "
        "send a patch that begins with its --- line or with diff --git, or send the whole file as content"
    )
    assert proposal.whole(text, "f").content == text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "x\n",
        "1.2.4\n",
        "\n\n\nx = 1\n",
        "\ufeffx = 1\n",
        "x = 1\r\ny = 2\n",
        # Lists, front matter, rules.
        "- a\n- b\n",
        "- a:\n    b: 1\n- c\n",
        "---\n- a\n- b\n",
        "---\ntitle: x\n---\n\n# x\n",
        "+++\ntitle = 'x'\n+++\n",
        "* a\n+ b\n- c\n",
        "*** bold ***\n\ntext\n",
        "****************\n*** starred ***\n",
        "Index: of contents\n\n1. x\n",
        "From here on\n",
        "From: a\nSubject: lunch\n",
        "> quoted\n> text\n",
        "<div>\n> x\n",
        "3d\u00e9cor\n",
        "12a bus\n.\n",
        "3d\nmodels and textures\n",
        "Views:\n2d\n3d\nThat is all.\n",
        "5c\nis a grade\n.\nAnd 3d\n3d\nis a size.\n",
        "@decorator\ndef f(): ...\n",
        "@@global = 1\n",
        '"just a string"\n',
        '{"diff": "--- a/f"}\n',
        "&lt;html&gt;\n",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n",
        # Files that hold such text further down.
        "# Contributing\n\nWrite:\n\n```diff\n-old\n+new\n```\n\nand not otherwise.\nThis is long.\nVery long.\n",
        "# Hunks\n\n```diff\n@@ ... @@\n-old\n+new\n```\n\nA hunk.\n\nMore.\nAnd more.\n",
        "```python\nx = 1\n```\n\nThen:\n\n```python\ny = 2\n```\n",
        "```sh\nmake\n```\n\nDone.\n",
        'PATCH = "--- a/f\\n+++ b/f\\n@@ -1 +1 @@\\n-old\\n+new\\n"\n',
        "DIFF = (\n    '--- a/f\\n'\n    '+++ b/f\\n'\n    '@@ -1 +1 @@\\n'\n    '-old\\n'\n)\n",
        "git prints `diff --git a/f b/f` first.\ndiff --git is a line.\nNothing follows.\n",
        "a header: @@ -1 +1 @@ says where\n",
        "The last line is\n@@ -1 +1 @@",
        "Use `*** Begin Patch` to begin.\n*** Begin Patch\n",
        "# Conflicts\n\nGit writes\n\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main\n",
        "Patches are mailed:\n\nSubject: [PATCH] x\n",
        "1c1 is a change\n",
        "10c20\n30c40\n",
        # Scripts for sed, and what else is short.
        "s/old/new/g\n/x/d\n$d\n",
        "s/old/new/w out\nq\n",
        "/^#/!s/old/new/\n",
        "a\nb\nc\n.\n",
        "d\nj\nw\nq\n",
        "1\n2\n.\n",
        "To append:\n\n$a\nnew\n.\nw\nq\n",
    ],
)
def test_what_is_clearly_a_file_is_its_content(text: str) -> None:
    assert likeness(text) is None
    read = proposal.parse(text, "f")
    assert (read.content, read.form) == (text.encode(), ProposalForm.CONTENT)


@pytest.mark.parametrize(
    "text",
    ["", "--- a/f\n+++ b/f\n", PATCH, "diff of opinions\n", "--- # YAML\na: 1\n", "--- x", CODEX, "```diff\n-a\n"],
)
def test_content_is_taken_literally(text: str) -> None:
    assert proposal.whole(text, "f").content == text.encode()
    assert proposal.recorded(text, "f", ProposalForm.CONTENT).content == text.encode()


@pytest.mark.parametrize("text", ["diff of opinions\n", "--- # YAML\na: 1\n", "--- x", "diff -u a b\n"])
def test_a_file_that_begins_as_a_patch_does_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(DiffError, match="if it is a whole file, send it as content"):
        proposal.parse(text, "f")


@pytest.mark.parametrize(
    "text",
    [
        PATCH.replace("\n", "\r\n", 1),
        PATCH.replace("\n", "\r\n").replace("+new\r\n", "+new\n-- \n"),
        PATCH.replace("\n", "\r\n", 2),
    ],
)
def test_a_patch_that_mixes_line_ends_from_its_first_line_on_is_refused(text: str) -> None:
    with pytest.raises(DiffError, match=r"mixes line ends: line 1 ends with CRLF and line \d with LF"):
        proposal.parse(text, "f")


def test_a_header_that_alone_ends_with_a_return_names_no_file() -> None:
    with pytest.raises(IntercomError):
        proposal.parse(PATCH.replace("b/f\n", "b/f\r\n"), "f")


def test_what_is_on_record_is_read_as_it_was_read_then() -> None:
    assert proposal.recorded(PATCH, "f", ProposalForm.PATCH).is_patch
    assert proposal.recorded(PATCH, "f", None).is_patch
    assert not proposal.recorded(PATCH, "f", ProposalForm.CONTENT).is_patch


# --- no text that git or patch would apply is content ----------------------------------------------------------------

_BEFORE = st.sampled_from(["", " ", "    ", "\t", "X", "> ", "\ufeff", "# ", "\\"])
_PIECES = st.sampled_from(
    [
        "--- a/f\n", "+++ b/f\n", "--- f\n", "+++ f\n", "@@ -1 +1 @@\n", "@@ -1,2 +1,2 @@ def f\n", "@@ -1 +1@@\n",
        "@@ -0,0 +1 @@\n", "-old\n", "+new\n", " same\n", "\n", "old\n", "diff --git a/f b/f\n", "old mode 100644\n",
        "new mode 100755\n", "rename from f\n", "rename to g\n", "similarity index 100%\n", "Index: f\n", "=====\n",
        "*** f\n", "***************\n", "********\n", "*** 1 ****\n", "*** 1\n", "--- 1 ----\n", "! old\n", "! new\n",
        "1c1\n", "0a1\n", "1d0\n", "< old\n", "> new\n", "---\n", "```diff\n", "```\n", "text\n", "*** Begin Patch\n",
        "\\ No newline at end of file\n", "-- \n", "new file mode 100644\n", "deleted file mode 100644\n", "\r\n",
        "@@ -1 +1 @@\r\n", "--- a/f\r\n", "Prereq: 1\n", "1d\n", "index 1..2 100644\n", "GIT binary patch\n",
    ]
)  # fmt: skip
_LINES = st.builds(str.__add__, _BEFORE, _PIECES) | _PIECES
_TEXTS = st.lists(_LINES, min_size=1, max_size=9).map("".join) | st.builds(
    lambda prose, patch, indent, end: "".join(
        f"{indent}{line}\n" for line in [*prose, *patch.splitlines(), *end.splitlines()]
    ),
    st.lists(st.sampled_from(["text", "", "# x", "```", "-a"]), max_size=3),
    st.sampled_from([PATCH, BARE, CONTEXT, "1c1\n< old\n---\n> new\n", MODE]),
    _BEFORE,
    st.sampled_from(["", "text\n", "-- \n2.43\n"]),
)  # fmt: skip


def applied(text: str, root: Path) -> list[str]:
    """Which of the tools take the text for a patch of `f`, whose content is `old`."""
    (root / "f").write_text("old\nsame\n")
    given = text.encode()
    tools = [
        ["git", "apply", "--numstat", "-"],
        ["patch", "--dry-run", "-f", "-p1"],
        ["patch", "--dry-run", "-f", "-u", "f"],
        ["patch", "--dry-run", "-f", "-c", "f"],
        ["patch", "--dry-run", "-f", "-n", "f"],
    ]
    return [
        " ".join(tool)
        for tool in tools
        if subprocess.run(tool, cwd=root, input=given, capture_output=True, check=False).returncode == 0
    ]


@settings(max_examples=150, deadline=None)
@given(_TEXTS)
@example(f"text\n{BARE}")
@example("text\n***************\n*** 1\n! old\n--- 1\n! new\n")
@example("text\n1c1\n< old\n---\n> new\n")
def test_no_text_that_git_or_patch_would_apply_is_written_as_content(text: str) -> None:
    try:
        read = proposal.parse(text, "f")
    except IntercomError:
        return
    if read.content is not None:
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            subprocess.run(["git", "init", "-q", directory], check=True)
            assert applied(text, Path(directory)) == []


def test_the_tools_do_apply_what_is_asked_of_them(tmp_path: Path) -> None:
    """The test above can fail."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert len(applied(f"text\n{PATCH}", tmp_path)) == 3
    assert applied("1c1\n< old\n---\n> new\n", tmp_path) == ["patch --dry-run -f -n f"]
