"""A whole-file proposal is shown as what it changes."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from intercom.workspace import patching, proposal
from intercom.workspace.preview import LINES_AT_MOST, preview


def shown(root: Path, content: str, name: str = "a.txt") -> str | None:
    parsed = proposal.parse(content, name)
    return preview(root, parsed, patching.plan(root, parsed))


def test_what_goes_and_what_comes_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert shown(tmp_path, "one\nTWO\nthree\n") == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
    )


def test_a_missing_end_of_line_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    assert "-one\n\\ No newline at end of file\n+two\n" in (shown(tmp_path, "two\n") or "")


def test_nothing_is_shown_for_a_new_file_a_patch_or_what_is_no_text(tmp_path: Path) -> None:
    assert shown(tmp_path, "new\n", "new.txt") is None
    (tmp_path / "a.txt").write_text("one\n")
    assert shown(tmp_path, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n") is None
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    assert shown(tmp_path, "two\n") is None


def test_a_comparison_that_would_take_long_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n" * (LINES_AT_MOST + 1))
    assert shown(tmp_path, "y\n") is None


@given(st.text("ab\r\x0b\u2028\n", max_size=40), st.text("ab\r\x0b\u2028\n", min_size=1, max_size=40))
def test_the_diff_shown_is_the_change_made(before: str, after: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        (root / "a.txt").write_bytes(before.encode())
        diff = shown(root, after)
        if diff is None:
            assert before == after
            return
        plan = patching.plan(root, proposal.parse(diff, "a.txt"))
        assert plan.files[0].after == after.encode()
