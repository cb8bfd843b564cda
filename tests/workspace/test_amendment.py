"""Amended proposals: any selection of hunks does what it says, to the byte, and nothing else."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import assume, given
from hypothesis import strategies as st

from intercom.model.amendment import Amendment, Change, Comment, told_of_changes
from intercom.model.card_hunks import comments_in, new_line_numbers, numbers_in, spans
from intercom.model.clock import from_text
from intercom.model.errors import (
    FileError,
    InvalidArguments,
    InvalidState,
    PatchConflict,
    PathViolation,
    RecordMismatch,
)
from intercom.model.request import ApprovalRequest, ApprovalStatus, ChangeKind, RiskLevel
from intercom.workspace import amendment, change_plan, proposal
from intercom.workspace.amendment import Amended, amend, read
from intercom.workspace.preview import is_on_card, preview
from intercom.workspace.proposal import FilePatch, Hunk, HunkLine

AT = from_text("2026-11-25T12:00:00.000000+00:00")
TEN = "".join(f"line {n}\n" for n in range(1, 31))


def requested(root: Path, text: str, path: str, *, whole: bool = False) -> ApprovalRequest:
    """The request that check_clearance records for a proposal."""
    parsed = proposal.whole(text, path) if whole else proposal.parse(text, path)
    plan = change_plan.plan(root, parsed)
    shown = preview(root, plan)
    request = ApprovalRequest(
        id="r", session_id="s", title="t", diff_content=text, file_path=path, risk_level=RiskLevel.LOW,
        status=ApprovalStatus.PENDING, original_hash="", created_at=AT, key="k", files=shown.changes,
        form=parsed.form, root_inode=plan.root_id, preview=shown.diff, remarks=shown.remarks, masked=shown.masked,
    )  # fmt: skip
    return evolve(request, proposal_hash=request.hash_of_record(str(root)))


def selected(root: Path, request: ApprovalRequest, numbers: Iterable[int]) -> Amended | None:
    return amend(root, read(root, request), Amendment(request.proposal_hash, tuple(numbers)))


def edited(root: Path, request: ApprovalRequest, **texts: str) -> Amended | None:
    return amend(root, read(root, request), Amendment(request.proposal_hash, texts=tuple(texts.items())))


def after(amended: Amended) -> dict[str, bytes | None]:
    return {file.change.path: file.after for file in amended.plan.files}


def put(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def diff_of(path: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}", n=3
    )
    return "".join(lines)


def checked_again(root: Path, request: ApprovalRequest, amended: Amended) -> None:
    """What check_diff checks of an approved record, of the amended one."""
    shown = amended.shown
    record = evolve(
        request, diff_content=amended.text, form=amended.form, file_path=amended.file_path, files=shown.changes,
        preview=shown.diff, remarks=shown.remarks, masked=shown.masked,
    )  # fmt: skip
    parsed = proposal.recorded(record.diff_content, record.file_path, record.form)
    plan = change_plan.plan_again(root, parsed, record.files, root_id=record.root_inode)
    assert is_on_card(record, preview(root, plan))


# --- selections ------------------------------------------------------------------------------------------------------

CHANGED = TEN.replace("line 2\n", "LINE 2\n").replace("line 15\n", "").replace("line 28\n", "line 28\nand more\n")


@pytest.mark.parametrize("whole", [False, True])
def test_some_hunks_of_a_file_are_applied_and_the_others_are_not(tmp_path: Path, whole: bool) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    text = CHANGED if whole else diff_of("a.txt", TEN, CHANGED)
    request = requested(tmp_path, text, "a.txt", whole=whole)
    amended = selected(tmp_path, request, [1, 3])
    assert amended is not None
    assert after(amended) == {"a.txt": CHANGED.replace("line 14\n", "line 14\nline 15\n").encode()}
    [change] = amended.changes
    assert change == Change("a.txt", ('@@ -12,7 +12,6 @@ (-"line 15")',))
    checked_again(tmp_path, request, amended)


MANY = """\
diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
-line 1
+LINE 1
 line 2
@@ -29,2 +29,2 @@
 line 29
-line 30
+LINE 30
diff --git a/new.txt b/new.txt
new file mode 100755
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+new
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/old name.txt b/moved "it".txt
rename from old name.txt
rename to "moved \\"it\\".txt"
diff --git a/run.sh b/run.sh
old mode 100644
new mode 100755
diff --git a/empty b/empty
new file mode 100644
"""
FILES = {"a.txt": TEN.encode(), "gone.txt": b"gone\n", "old name.txt": b"same\n", "run.sh": b"true\n"}


@given(st.sets(st.integers(1, 7), min_size=1))
def test_files_without_hunks_are_one_hunk_each(tmp_path_factory: pytest.TempPathFactory, numbers: set[int]) -> None:
    root = tmp_path_factory.mktemp("ws")
    put(root, FILES)
    request = requested(
        root,
        MANY.replace('b/moved "it"', 'b/moved \\"it\\"').replace(
            'diff --git a/old name.txt b/moved \\"it\\".txt', 'diff --git "a/old name.txt" "b/moved \\"it\\".txt"'
        ),
        "a.txt",
    )
    hunks = read(root, request).hunks
    assert [(each.number, each.path) for each in hunks] == [
        (1, "a.txt"), (2, "a.txt"), (3, "new.txt"), (4, "gone.txt"), (5, 'moved "it".txt'), (6, "run.sh"), (7, "empty"),
    ]  # fmt: skip
    amended = selected(root, request, numbers)
    if len(numbers) == 7:
        assert amended is None
        return
    assert amended is not None
    found = after(amended)
    assert set(found) == {each.path for each in hunks if each.number in numbers}
    lines = TEN.splitlines(keepends=True)
    expected = [line.upper() if n in numbers else line for n, line in ((1, lines[0]), (2, lines[-1]))]
    if {1, 2} & numbers:
        assert found["a.txt"] == "".join([expected[0], *lines[1:-1], expected[1]]).encode()
    by_path = {file.change.path: file.change for file in amended.plan.files}
    if 5 in numbers:
        assert by_path['moved "it".txt'].old_path == "old name.txt"
    if 6 in numbers:
        assert by_path["run.sh"].mode is not None
    if 3 in numbers:
        assert by_path["new.txt"].mode == 0o755
    checked_again(root, request, amended)


LINES = st.sampled_from(
    ["a", "b", "c", "-- a", "++ b", "@@ -1 +1 @@", "", "\\ x", "diff --git a/x b/x", "é", "a\x0cb\u2028"]
)
ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def sides(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Two versions of a file, with line ends, marks and encodings of all kinds."""
    end = draw(st.one_of(ENDS, st.none()))
    old = [line + (end or draw(ENDS)) for line in draw(st.lists(LINES, min_size=1, max_size=40))]
    new = list(old)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(new)))
        new[at : at + draw(st.integers(0, 3))] = [
            line + (end or draw(ENDS)) for line in draw(st.lists(LINES, max_size=3))
        ]
    both = [old, new]
    for side in both:
        if side and draw(st.booleans()):
            side[-1] = side[-1].rstrip("\r\n") or "z"
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    codec = draw(st.sampled_from(["utf-8", "utf-8", "utf-16-le"]))
    if codec == "utf-16-le":
        mark = "\ufeff"
    before, changed = ((mark + "".join(side)).encode(codec) for side in both)
    return before, changed


def as_patch(before: bytes, changed: bytes) -> str:
    """A patch of the agent's from one to the other, without context, so that its hunks are not those of the card."""
    codec = "utf-16" if before.startswith("\ufeff".encode("utf-16-le")) else "utf-8"
    old, new = (proposal_lines(data.decode(codec)) for data in (before, changed))
    out = ["--- a/f\n", "+++ b/f\n"]
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        a, b = max(i1 - 1, 0), min(i2 + 1, len(old))
        if out[-1].startswith("@"):
            continue
        out.append(f"@@ -{a + 1 if b - a else a},{b - a} +1,{b - a - (i2 - i1) + (j2 - j1)} @@\n")
        lines = [f" {each}" for each in old[a:i1]] + [f"-{each}" for each in old[i1:i2]]
        lines += [f"+{each}" for each in new[j1:j2]] + [f" {each}" for each in old[i2:b]]
        out += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(out)


def proposal_lines(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def model(before: bytes, changed: bytes, ranges: list[str | None], numbers: set[int]) -> bytes:
    """The chosen ranges of lines from the new file, everything else from the old one; a mark of both stays first."""
    codec = "utf-16-le" if before.startswith(b"\xff\xfe") else "utf-8"
    old, new = (data.decode(codec) for data in (before, changed))
    mark = "\ufeff" if old.startswith("\ufeff") and new.startswith("\ufeff") else ""
    old_lines, new_lines = (proposal_lines(text.removeprefix(mark)) for text in (old, new))
    out: list[str] = []
    at = 0
    for number, each in enumerate(ranges, 1):
        found = RANGE.fullmatch(each or "")
        assert found is not None
        a, b, c, d = (int(part) if part is not None else 1 for part in found.groups())
        begin, first = (a - 1 if b else a), (c - 1 if d else c)
        out += old_lines[at:begin]
        out += new_lines[first : first + d] if number in numbers else old_lines[begin : begin + b]
        at = begin + b
    return (mark + "".join([*out, *old_lines[at:]])).encode(codec)


@given(sides(), st.data())
def test_a_selection_is_what_the_hunks_say_and_all_of_them_are_the_proposal(
    tmp_path_factory: pytest.TempPathFactory, both: tuple[bytes, bytes], data: st.DataObject
) -> None:
    before, changed = both
    root = tmp_path_factory.mktemp("ws")
    put(root, {"f": before})
    codec_is_wide = before.startswith(b"\xff\xfe")
    whole = not codec_is_wide and data.draw(st.booleans())
    try:
        text = changed.decode() if whole else as_patch(before, changed)
        request = requested(root, text, "f", whole=whole)
    except (PatchConflict, proposal.DiffError):
        return
    proposed = read(root, request)
    changed = proposed.files[0].after or b""
    count = len(proposed.hunks)
    numbers = data.draw(st.sets(st.integers(1, count), min_size=1))
    amended = selected(root, request, numbers)
    if len(numbers) == count:
        assert amended is None
        return
    assert amended is not None
    checked_again(root, request, amended)
    ranges = [each.range for each in proposed.hunks]
    partly = after(amended)["f"] or b""
    assert partly == model(before, changed, ranges, numbers)
    # The rest is another amendment, and what the two of them do adds up to the proposal.
    rest = set(range(1, count + 1)) - numbers
    other = selected(root, request, rest)
    assert other is not None
    assert len(partly) + len(after(other)["f"] or b"") - len(before) == len(changed)


def test_a_file_that_changed_since_has_no_hunks(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    request = requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt")
    put(tmp_path, {"a.txt": f"x\n{TEN}".encode()})
    with pytest.raises(PatchConflict, match=r"a\.txt changed since the proposal was made, so its hunks"):
        read(tmp_path, request)


def test_a_card_that_was_edited_in_the_database_has_no_hunks(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    request = requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt")
    for edited_record in (
        evolve(request, preview=(request.preview or "").replace("LINE 2", "line 2 ")),
        evolve(request, diff_content=request.diff_content.replace("LINE 2", "rm -rf")),
        evolve(request, files=(evolve(request.files[0], after_hash="0" * 64),)),
    ):
        with pytest.raises(RecordMismatch):
            read(tmp_path, edited_record)


def test_a_number_that_is_not_on_the_card_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    request = requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt")
    with pytest.raises(InvalidArguments, match="there is no hunk 4, 9; the card has hunks 1 to 3"):
        selected(tmp_path, request, [1, 4, 9])
    one = requested(tmp_path, diff_of("a.txt", TEN, TEN.replace("line 2\n", "LINE 2\n")), "a.txt")
    with pytest.raises(InvalidArguments, match="there is no hunk 2; the card has only hunk 1"):
        selected(tmp_path, one, [2])
    with pytest.raises(InvalidArguments, match="reject it instead"):
        Amendment(request.proposal_hash)


@pytest.mark.parametrize("more", [{"tool": "Bash"}, {"replaces": "earlier"}])
def test_what_has_no_parts_cannot_be_amended(tmp_path: Path, more: dict[str, str]) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    request = evolve(requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt"), **more)
    with pytest.raises(InvalidState, match="there is no part to choose"):
        read(tmp_path, request)


def test_what_is_quoted_of_a_hunk_is_one_short_line_without_secrets(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    secret = "ghp_" + "x9Kq2LmZ7vTbN4wR8sYd" + "P1cJ6fHgA3uE0oXi"
    forged = f'\tx"), @@ -9,1 +9,1 @@ (-\x1b[2J\r- b.txt: not\u2028note: all of it {"y" * 80}'
    changed = TEN.replace("line 2\n", f"\n{forged}\n").replace("line 15\n", f"token = {secret}\n")
    request = requested(tmp_path, changed.replace("line 28\n", "line 28\n\n"), "a.txt", whole=True)
    amended = selected(tmp_path, request, [3])
    assert amended is not None
    [change] = amended.changes
    first, second = change.left_out
    quoted = r'"x\"), @@ -9,1 +9,1 @@ (-\\x1b[2J\\x0d- b.txt: not<U+2028>note:…"'
    assert first == f'@@ -1,5 +1,6 @@ (-"line 2", +{quoted})'
    assert second.startswith('@@ -12,7 +13,7 @@ (-"line 15", +"token = ')
    assert secret[:12] not in second
    assert told_of_changes(amended.changes, "why") == (
        f"approved with changes:\n- a.txt: not approved: {first}\n- a.txt: not approved: {second}\n\nnote: why"
    )
    # A hunk of blank lines has nothing to quote.
    assert selected(tmp_path, request, [1, 2]).changes == (Change("a.txt", ("@@ -26,5 +27,6 @@",)),)  # type: ignore[union-attr]


def test_hunks_of_a_file_whose_encoding_changes_apply_only_together(tmp_path: Path) -> None:
    old = TEN.replace("line 7\n", "lin\xe9 7\n")
    put(tmp_path, {"a.txt": old.encode("cp1252")})
    request = requested(tmp_path, old.replace("line 2\n", "2\n").replace("line 28\n", "28\n"), "a.txt", whole=True)
    assert len(read(tmp_path, request).hunks) == 2
    with pytest.raises(InvalidArguments, match=r"the encoding of a\.txt changes, so its hunks \(1-2\) apply only"):
        selected(tmp_path, request, [2])


def test_a_file_is_read_through_no_link_that_came_later(tmp_path: Path) -> None:
    put(tmp_path, {"d/a.txt": TEN.encode(), "other/a.txt": TEN.encode()})
    request = requested(tmp_path, diff_of("d/a.txt", TEN, CHANGED), "d/a.txt")
    (tmp_path / "d").rename(tmp_path / "was")
    (tmp_path / "d").symlink_to("other")
    with pytest.raises((RecordMismatch, PathViolation, FileError)):
        selected(tmp_path, request, [1])


def test_ten_thousand_hunks_are_chosen_from(tmp_path: Path) -> None:
    lines = [f"{n}\n" for n in range(100_000)]
    changed = [f"changed {n}\n" if n % 10 == 5 else line for n, line in enumerate(lines)]
    hunks = "".join(
        f"@@ -{n},3 +{n},3 @@\n {lines[n - 1]}-{lines[n]}+{changed[n]} {lines[n + 1]}" for n in range(5, 100_000, 10)
    )
    put(tmp_path, {"a.txt": "".join(lines).encode()})
    whole = requested(tmp_path, f"--- a/a.txt\n+++ b/a.txt\n{hunks}", "a.txt")
    # Nobody chooses among hunks that the card does not show.
    assert "are not shown" in (whole.preview or "")
    assert [each.range for each in read(tmp_path, whole).hunks] == [None]
    # Below the limit of the card, each can be chosen.
    put(tmp_path, {"a.txt": "".join(lines[:10_000]).encode()})
    first = "".join(hunks.splitlines(keepends=True)[:5_000])
    part = requested(tmp_path, f"--- a/a.txt\n+++ b/a.txt\n{first}", "a.txt")
    assert len(read(tmp_path, part).hunks) == 1_000
    amended = selected(tmp_path, part, range(2, 1_001, 2))
    assert amended is not None
    expected = [changed[n] if n % 20 == 15 else line for n, line in enumerate(lines[:10_000])]
    assert after(amended)["a.txt"] == "".join(expected).encode()


# --- edits -----------------------------------------------------------------------------------------------------------


def test_a_person_s_own_text_becomes_the_proposal(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    request = requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt")
    amended = edited(tmp_path, request, **{"a.txt": CHANGED.replace("LINE 2", "Line Two")})
    assert amended is not None
    assert after(amended) == {"a.txt": CHANGED.replace("LINE 2", "Line Two").encode()}
    assert amended.changes == (Change("a.txt", edited=True),)
    checked_again(tmp_path, request, amended)


EDITS = {
    "no newline at the end": (TEN.encode(), "one\ntwo"),
    "emptied": (TEN.encode(), ""),
    "crlf file": (TEN.replace("\n", "\r\n").encode(), "one\r\nline 2\r\n"),
    "lf into a crlf file": (TEN.replace("\n", "\r\n").encode(), "one\nline 2\r\nline 3\n"),
    "mark kept": (b"\xef\xbb\xbf" + TEN.encode(), "\ufeffone\n"),
    "mark dropped": (b"\xef\xbb\xbf" + TEN.encode(), "one\n"),
    "windows-1252": (TEN.replace("line 9", "lin\xe9 9").encode("cp1252"), TEN.replace("line 9", "l\xefn\xe9 9")),
    "looks like a patch": (TEN.encode(), "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"),
    "control characters": (TEN.encode(), "\x1b[2J\u202egnp.exe\n"),
}


@pytest.mark.parametrize("case", EDITS)
@pytest.mark.parametrize("whole", [False, True])
def test_an_edited_text_is_written_in_the_file_s_own_form(tmp_path: Path, case: str, whole: bool) -> None:
    before, text = EDITS[case]
    put(tmp_path, {"a.txt": before})
    encoding = "cp1252" if case == "windows-1252" and not whole else "utf-8"
    now = before.decode("cp1252" if case == "windows-1252" else "utf-8")
    proposed = now.replace("line 2", "LINE 2")
    request = requested(tmp_path, proposed if whole else diff_of("a.txt", now, proposed), "a.txt", whole=whole)
    amended = edited(tmp_path, request, **{"a.txt": text})
    assert amended is not None
    assert after(amended) == {"a.txt": text.encode(encoding)}
    checked_again(tmp_path, request, amended)


#: Lines that mean something in a patch, and others.
HOSTILE = st.sampled_from(
    ["--- a/x", "+++ b/.git/config", "@@ -1 +1 @@", "diff --git a/x b/x", "deleted file mode 100644",
     "rename to .git/x", "\\ No newline at end of file", "-", "+", " ", "", "new", "line 2", "\x0c", "\u2028",
     "\ufeff", "-- ", "```"]
)  # fmt: skip
TEXTS = st.builds(
    lambda lines, end: "\n".join(lines) + end, st.lists(HOSTILE, max_size=12), st.sampled_from(["", "\n", "\r\n", "\r"])
)


@given(TEXTS, TEXTS, st.sets(st.sampled_from(["a.txt", "new.txt", "moved.txt"]), min_size=1), st.booleans())
def test_any_text_of_any_files_of_a_proposal_is_written_as_it_is_or_refused(
    tmp_path_factory: pytest.TempPathFactory, one: str, other: str, edited_paths: set[str], is_marked: bool
) -> None:
    root = tmp_path_factory.mktemp("ws")
    put(
        root,
        {"a.txt": (b"\xef\xbb\xbf" if is_marked else b"") + TEN.encode(), "old.txt": b"1\n2\n", "gone.txt": b"x\n"},
    )
    old = ("\ufeff" if is_marked else "") + TEN
    request = requested(
        root,
        "diff --git a/a.txt b/a.txt\n"
        + diff_of("a.txt", old, old.replace("line 2\n", "LINE 2\n"))
        + "diff --git a/new.txt b/new.txt\nnew file mode 100755\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
        + "diff --git a/old.txt b/moved.txt\nsimilarity index 90%\nrename from old.txt\nrename to moved.txt\n"
        + "--- a/old.txt\n+++ b/moved.txt\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
        + "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n"
        + "--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "a.txt",
    )
    texts = dict(zip(sorted(edited_paths), (one, other, one + other), strict=False))
    proposed = after_of(root, request)
    try:
        amended = edited(root, request, **texts)
    except (InvalidArguments, InvalidState, proposal.DiffError):
        return
    if amended is None:
        assert all(proposed[path] == text.encode() for path, text in texts.items())
        return
    checked_again(root, request, amended)
    expected = {**proposed, **{path: text.encode() for path, text in texts.items()}}
    if expected["a.txt"] == old.encode():
        del expected["a.txt"]
    assert after(amended) == expected
    kinds = {file.change.path: (file.change.kind, file.change.mode) for file in amended.plan.files}
    assert kinds.items() <= {each.path: (each.kind, each.mode) for each in request.files}.items()


def after_of(root: Path, request: ApprovalRequest) -> dict[str, bytes | None]:
    return {file.change.path: file.after for file in read(root, request).files}


def test_an_edit_changes_no_other_file(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode(), ".git/config": b"[core]\n"})
    request = requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt")
    for path in (".git/config", "new.txt", "../x", "a.txt/../b", "./a.txt", ""):
        with pytest.raises(InvalidArguments, match="is no file of this proposal"):
            edited(tmp_path, request, **{path: "x\n"})


def test_an_edit_that_leaves_nothing_is_no_approval(tmp_path: Path) -> None:
    put(tmp_path, {"a.txt": TEN.encode()})
    request = requested(tmp_path, diff_of("a.txt", TEN, CHANGED), "a.txt")
    with pytest.raises(InvalidArguments, match="reject it instead"):
        edited(tmp_path, request, **{"a.txt": TEN})
    assert edited(tmp_path, request, **{"a.txt": CHANGED}) is None


def test_a_character_that_the_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    old = TEN.replace("line 9", "lin\xe9 9")
    put(tmp_path, {"a.txt": old.encode("cp1252")})
    request = requested(tmp_path, diff_of("a.txt", old, old.replace("line 2", "LINE 2")), "a.txt")
    with pytest.raises(InvalidArguments, match=r"a\.txt is written in windows-1252, which cannot hold U\+2603"):
        edited(tmp_path, request, **{"a.txt": "\u2603\n"})


# --- patches as text -------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and name.strip() == name
)


@given(NAMES, NAMES)
def test_names_survive_the_way_through_a_patch(one: str, other: str) -> None:
    assume(one != other)
    made = tuple(
        FilePatch(path, kind, hunks, old, executable)
        for path, kind, hunks, old, executable in (
            (f"d/{one}", ChangeKind.WRITE, (Hunk("", 1, (HunkLine("-", "a\n"), HunkLine("+", "b"))),), None, None),
            (f"e/{other}", ChangeKind.RENAME, (), f"f/{one}", True),
            (f"g/{one}", ChangeKind.CREATE, (), None, False),
        )
    )
    try:
        read_back = proposal.parse(amendment.written(made), made[0].path).patches
    except PathViolation:
        return
    assert [(each.path, each.old_path, each.kind, each.executable) for each in read_back] == [
        (each.path, each.old_path, each.kind, each.executable) for each in made
    ]
    assert read_back[0].hunks[0].lines == made[0].hunks[0].lines


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "0", "x", "1-", "3-1", "-1", "1;2", "1.5", "1-9999999999", "\u0661"])
def test_what_is_no_number_of_a_hunk_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments):
        numbers_in(text)


def test_a_text_of_many_wide_ranges_is_read_in_one_pass() -> None:
    assert numbers_in("1-900000," * 50_000) == tuple(range(1, 900_001))
    with pytest.raises(InvalidArguments, match="no card has"):
        numbers_in("5,1-1000001")


@given(st.sets(st.integers(1, 60), min_size=1))
def test_numbers_are_read_as_they_are_written(numbers: set[int]) -> None:
    assert set(numbers_in(spans(sorted(numbers)))) == numbers


def test_each_line_of_a_diff_has_its_number_in_the_new_file() -> None:
    diff = (
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        "@@ -9 +9,2 @@\n-+++ b/x\n+nine\n+ten\n\\ No newline at end of file\n"
        "diff --git a/b b/b\n--- a/b\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"
    )
    numbered = [*zip(new_line_numbers(diff), diff.splitlines(), strict=True)]
    shown = [(number, line) for number, line in numbered if number is not None]
    assert shown == [(1, " one"), (2, "+2"), (9, "+nine"), (10, "+ten"), (1, "+b")]


@pytest.mark.parametrize(
    ("text", "paths", "place"),
    [
        ("31: why?", ["a.py"], ("a.py", 31)),
        ("a.py:31: why?", ["a.py"], ("a.py", 31)),
        ("a.py: why?", ["a.py"], ("a.py", None)),
        ("31: why?", ["31"], ("31", None)),
        ("31:2: why?", ["31"], ("31", 2)),
        ("31: why?", ["31", "a.py"], ("31", None)),
    ],
)
def test_a_line_alone_is_one_of_the_only_file(text: str, paths: list[str], place: tuple[str, int | None]) -> None:
    assert comments_in(text, paths) == (Comment(place[0], "why?", place[1]),)


def test_a_line_alone_says_too_little_if_there_are_two_files() -> None:
    with pytest.raises(InvalidArguments, match="write FILE:LINE: TEXT"):
        comments_in("31: why?", ["a.py", "b.py"])
    with pytest.raises(InvalidArguments, match="write LINE: TEXT or FILE:LINE: TEXT"):
        comments_in("why?", ["a.py"])
