"""Hunks meet files: line ends, encodings, marks, places, and what is said where they do not fit."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.model.errors import PatchConflict
from intercom.workspace import change_plan, proposal


def patched(base: bytes, body: str) -> bytes:
    (patch,) = proposal.parse(f"--- a/f\n+++ b/f\n{body}", "f").patches
    return change_plan.apply_hunks("f", base, patch.hunks)


LATIN = "latin-1"
SWAP = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


MARKED = "\ufeffa\nb\n".encode()
#: By what is special about it: a file, a hunk, and the file after it.
FITTING: dict[str, tuple[bytes, str, bytes]] = {
    "lf": (b"a\nb\nc\n", SWAP, b"a\nB\nc\n"),
    "crlf file, lf patch": (b"a\r\nb\r\nc\r\n", SWAP, b"a\r\nB\r\nc\r\n"),
    "crlf both": (
        b"a\r\nb\r\nc\r\n", SWAP.replace("\n", "\r\n").replace("@@\r", "@@"), b"a\r\nB\r\nc\r\n",
    ),
    "lf file, crlf patch": (
        b"a\nb\nc\n", SWAP.replace("b\n", "b\r\n").replace("B\n", "B\r\n"), b"a\nB\nc\n",
    ),
    "mixed ends: the replaced line's": (b"a\nb\r\nc\n", SWAP, b"a\nB\r\nc\n"),
    "mixed ends: the replaced line's, lf": (b"a\r\nb\nc\r\n", SWAP, b"a\r\nB\nc\r\n"),
    "an end changed on purpose": (
        b"a\r\nb\r\nc\r\n", "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\n c\r\n", b"a\r\nB\nc\r\n",
    ),
    "no context in a crlf file": (b"a\r\nb\r\n", "@@ -1,0 +2 @@\n+x\n", b"a\r\nx\r\nb\r\n"),
    "newline gained at the end": (b"a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No\n+B\n", b"a\nB\n"),
    "newline lost at the end": (b"a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+B\n\\ No\n", b"a\nB"),
    "no newline kept": (b"a\nb", "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ No\n", b"A\nb"),
    "bom kept": (MARKED, "@@ -1,2 +1,2 @@\n-a\n+A\n b\n", "\ufeffA\nb\n".encode()),
    "bom stays first": (MARKED, "@@ -1,2 +1,3 @@\n+x\n a\n b\n", "\ufeffx\na\nb\n".encode()),
    "bom stays when line 1 goes": (MARKED, "@@ -1,2 +1 @@\n-a\n b\n", "\ufeffb\n".encode()),
    "bom removed on purpose": (MARKED, "@@ -1,2 +1,2 @@\n-\ufeffa\n+a\n b\n", b"a\nb\n"),
    "bom in context": (MARKED, "@@ -1,2 +1,2 @@\n a\n-b\n+B\n", "\ufeffa\nB\n".encode()),
    "latin-1": ("ä\nb\nö\n".encode(LATIN), "@@ -1,3 +1,3 @@\n ä\n-b\n+ü\n ö\n", "ä\nü\nö\n".encode(LATIN)),
    "latin-1, ascii context": ("ä\nb\n".encode(LATIN), "@@ -2 +2 @@\n-b\n+ü\n", "ä\nü\n".encode(LATIN)),
    "windows-1252": ("“q”\nb\n".encode("cp1252"), "@@ -1,2 +1,2 @@\n “q”\n-b\n+€\n", "“q”\n€\n".encode("cp1252")),
    "bytes windows-1252 has not": (b"\x81\nb\n", "@@ -1,2 +1,2 @@\n \x81\n-b\n+\xe4\n", b"\x81\n\xe4\n"),
    "utf-8 with a stray byte": (
        "é\né\n".encode() + b"\xff\nb\n", "@@ -4 +4 @@\n-b\n+ü\n", "é\né\n".encode() + b"\xff\n" + "ü\n".encode(),
    ),
    "utf-16": ("a\nb\nc\n".encode("utf-16"), SWAP, "a\nB\nc\n".encode("utf-16")),
    "utf-16-be, crlf": (
        "\ufeffa\r\nb\r\nc\r\n".encode("utf-16-be"), SWAP, "\ufeffa\r\nB\r\nc\r\n".encode("utf-16-be"),
    ),
    "utf-32": ("a\nb\nc\n".encode("utf-32"), SWAP, "a\nB\nc\n".encode("utf-32")),
    "odd separators are no line ends": (
        b"a\x0cb\x85c\x1cd\rx\nb\n", "@@ -1,2 +1,2 @@\n a\x0cb\u2026c\x1cd\rx\n-b\n+B\n", b"a\x0cb\x85c\x1cd\rx\nB\n",
    ),
    "shifted down": (b"x\na\nb\nc\n", SWAP, b"x\na\nB\nc\n"),
    "shifted up": (b"a\nb\nc\n", SWAP.replace("-1,3", "-7,3"), b"a\nB\nc\n"),
    "the nearer of two": (
        b"a\nb\nc\nx\ny\na\nb\nc\n", SWAP.replace("-1,3", "-5,3"), b"a\nb\nc\nx\ny\na\nB\nc\n",
    ),
    "a later hunk shifts along": (
        b"x\na\nb\nc\n" + b"-\n" * 9 + b"a\nb\nc\n",
        SWAP + "@@ -13,3 +13,3 @@\n a\n-b\n+Z\n c\n",
        b"x\na\nB\nc\n" + b"-\n" * 9 + b"a\nZ\nc\n",
    ),
    "a last line without end in a crlf file": (
        b"a\r\nz", "@@ -1,2 +1,2 @@\n a\n-z\n\\ No\n+x\n", b"a\r\nx\r\n",
    ),
    "newline lost in a crlf file, lf patch": (
        b"a\r\nz\r\n", "@@ -1,2 +1,2 @@\n a\n-z\n+x\n\\ No\n", b"a\r\nx",
    ),
    "no utf-16 after all": (
        b"\xff\xfex\n\xe9\nbb\n", "@@ -3 +3 @@\n-bb\n+\xe9\n", b"\xff\xfex\n\xe9\n\xe9\n",
    ),
    "into an empty file": (b"", "@@ -0,0 +1 @@\n+a\n", b"a\n"),
    "all removed": (b"a\n", "@@ -1 +0,0 @@\n-a\n", b""),
}  # fmt: skip


@pytest.mark.parametrize(("base", "body", "result"), FITTING.values(), ids=FITTING)
def test_a_hunk_that_fits(base: bytes, body: str, result: bytes) -> None:
    assert patched(base, body) == result


@pytest.mark.parametrize(
    ("base", "body", "said"),
    [
        (b"a\nX\nc\n", SWAP, r'hunk 1 \(@@ -1,3 \+1,3 @@\): line 2 should be "b", but is "X"'),
        (b"a\n", SWAP, r'hunk 1 .*line 2 should be "b", but the file ends at line 1'),
        (b"a\nb\nc", SWAP, r'line 3 should be "c", but is "c" \(without a newline'),
        (b"a\nb\nc\n", SWAP + "\\ No newline at end of file\n", r'should be "c" \(without a newline'),
        (b"a\nb\nc\n-\na\nb\nc\n", SWAP.replace("-1,3", "-3,3"), "fits equally well at lines 1 and 5"),
        (b"a\nb\nc\n", SWAP + SWAP.replace("+B", "+Z"), r"hunk 2 .*earlier hunk|hunk 2 .*but"),
        (b"a\n", "@@ -9,0 +10 @@\n+x\n", "adds lines after line 9, but the file has 1 line"),
        (b"a\nb\nc\n", SWAP.replace("-1,3", f"-{10**15},3").replace(" a", " z"), "the file ends at line 3"),
        (b"a\nb", "@@ -2,0 +3 @@\n+c\n", "line 2 of f would have no newline"),
        ("ä\nb\n".encode("latin-1"), "@@ -2 +2 @@\n-b\n+\u4e2d\n", "windows-1252, which cannot hold"),
        (b"\xc3\xa9 " + b"\xff\n", "@@ -1 +1 @@\n-\u00e9 \ufffd\n+x\n", "should be"),
        (b"a b\n", "@@ -1 +1 @@\n-a  b\n+x\n", "should be"),
        (b"a \n", "@@ -1 +1 @@\n-a\n+x\n", "should be"),
    ],
)
def test_a_hunk_that_does_not_fit_is_named(base: bytes, body: str, said: str) -> None:
    with pytest.raises(PatchConflict, match=said):
        patched(base, body)


def test_all_hunks_that_fail_are_named_with_what_programs_want() -> None:
    body = "".join(f"@@ -{n} +{n} @@\n-gone{n}\n+new\n" for n in range(1, 8))
    with pytest.raises(PatchConflict, match=r"hunk 1 .*hunk 5 .*and 2 more") as refused:
        patched(b"x\n" * 10, body)
    named = refused.value.details["hunks"]
    assert isinstance(named, tuple)
    assert [hunk["number"] for hunk in named] == [1, 2, 3, 4, 5, 6, 7]


def test_a_patch_that_would_keep_us_busy_for_long_is_refused_soon() -> None:
    size = 4000
    body = f"@@ -1,{size} +1,{size} @@\n" + "-a\n" * (size - 1) + "-b\n" + "+a\n" * size
    with pytest.raises(PatchConflict, match="takes too long to find"):
        patched(b"b\n" + b"a\n" * size * 3, body)


def test_a_line_that_stands_nowhere_in_the_file_is_not_looked_for_at_every_place() -> None:
    body = "".join(f"@@ -{n} +{n} @@\n-not there {n}\n+x\n" for n in range(1, 300))
    with pytest.raises(PatchConflict, match='line 1 should be "not there 1", but is "a"'):
        # Found at every place, it would be "takes too long".
        patched(b"a\n" * 50_000, body)


def test_a_new_file_takes_only_added_lines() -> None:
    (patch,) = proposal.parse("--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+é\n\\ No newline\n", "f").patches
    assert change_plan.created("f", patch.hunks) == "a\né".encode()
    (patch,) = proposal.parse("--- /dev/null\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", "f").patches
    with pytest.raises(PatchConflict, match="that is to be new"):
        change_plan.created("f", patch.hunks)


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "é", "--- x"]), max_size=30)


@settings(deadline=None)
@given(
    LINES, LINES, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["utf-8", "latin-1", "utf-16"]), st.integers(1, 4)
)
def test_a_patch_made_by_difflib_of_text_fits_the_file_in_any_encoding_and_line_end(
    old: list[str], new: list[str], end: str, encoding: str, context: int
) -> None:
    lines = difflib.unified_diff([f"{x}\n" for x in old], [f"{x}\n" for x in new], "a/f", "b/f", n=context)
    diff = "".join(lines)
    if not diff or not old:
        return
    # A patch of plain text, as an agent would write it that never saw the file's bytes.
    base = "".join(x + end for x in old).encode(encoding)
    # Every letter of a Latin-1 file in the patch is in the file's encoding only if the file has any such letter.
    if encoding == "latin-1" and not any("é" in x for x in old):
        return
    assert patched(base, diff.split("\n", 2)[2]) == (
        "".join(x + end for x in new).encode(encoding) if new or encoding != "utf-16" else b""
    )


@given(st.binary(max_size=200), st.integers(0, 20))
def test_lines_a_patch_does_not_touch_stay_byte_for_byte(tail: bytes, blank: int) -> None:
    base = b"first\n" + b"\n" * blank + tail
    assert patched(base, "@@ -1 +1 @@\n-first\n+FIRST\n") == b"FIRST\n" + b"\n" * blank + tail
