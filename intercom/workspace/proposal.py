"""The proposal of an agent: a file's whole content, or a unified diff of one or many files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TypeVar

from attrs import frozen
from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as ParsedHunk
from unidiff.patch import PatchSet

from intercom.model.approval import ChangeKind, ProposalForm
from intercom.model.errors import DiffError
from intercom.workspace.file_patch import FilePatch, Hunk, HunkLine
from intercom.workspace.headers import Named, read_git, read_plain
from intercom.workspace.patch_likeness import BEGINNINGS, likeness
from intercom.workspace.paths import lexical
from intercom.workspace.stamps import says_gone

#: The limits of one proposal, because a person has to read it.
MAX_DIFF_BYTES = 4 * 1024 * 1024
MAX_FILES = 500

_GIT = "diff --git "
_T = TypeVar("_T")


@frozen
class Proposal:
    """A parsed proposal. `content` is a file's whole new content, None for a patch. `patches` are the files of a
    patch, in its order. `file_path` is the path that the request names, in lexical form."""

    file_path: str
    content: bytes | None = None
    patches: tuple[FilePatch, ...] = ()

    @property
    def is_patch(self) -> bool:
        return self.content is None

    @property
    def form(self) -> ProposalForm:
        """How the text was parsed, to be stored with it."""
        return ProposalForm.PATCH if self.is_patch else ProposalForm.CONTENT

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that would change, both ends of a rename."""
        if self.content is not None:
            return (self.file_path,)
        return tuple(path for patch in self.patches for path in _ends(patch))


def parse(diff: str, file_path: str) -> Proposal:
    """Parse the `diff` that an agent sends for `file_path`.

    Text that begins with "--- " or "diff " is a unified diff, with or without git's extended headers, and must name
    `file_path`. Text that is clearly not a patch is the file's whole content, as in `whole`.

    Raises DiffError if the text is neither, is too large, names a file twice, or needs something unsupported (binary
    patches, copies, symbolic links). Raises PathViolation for a path that cannot be inside a workspace.
    """
    wanted = lexical(file_path)
    data = _encoded(diff)
    if not data:
        raise DiffError(f"the diff is empty; {_WAYS} (to make the file empty, content is an empty text)")
    if not diff.startswith(BEGINNINGS):
        found = likeness(diff)
        if found is not None:
            raise DiffError(f"the diff looks like {found}; {_WAYS}")
        return Proposal(wanted, content=data)
    try:
        patches = tuple(_patches(_lines(diff), wanted))
        _check_names(patches, wanted)
    except DiffError as fault:
        if "\n@@ " in diff:
            raise
        # Without a hunk, it may be a text that only begins like a patch.
        raise DiffError(f"{fault.message}; if it is a whole file, send it as content") from None
    return Proposal(wanted, patches=patches)


def whole(content: str, file_path: str) -> Proposal:
    """Take `content` literally as the new content of `file_path`, in UTF-8, whatever it looks like. Raises DiffError
    if it is too large or not valid text; PathViolation as `parse`."""
    return Proposal(lexical(file_path), content=_encoded(content))


def recorded(text: str, file_path: str, form: ProposalForm | None) -> Proposal:
    """Parse a stored proposal; `form` says how its text was parsed. If it is None, today's rules apply. Raises as
    `parse`."""
    return whole(text, file_path) if form is ProposalForm.CONTENT else parse(text, file_path)


_WAYS = "send a patch that begins with its --- line or with diff --git, or send the whole file as content"


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise DiffError("the proposal holds half a surrogate pair, which is no character; send valid text") from None
    if len(data) > MAX_DIFF_BYTES:
        raise DiffError(f"the proposal is {len(data)} bytes long; the most is {MAX_DIFF_BYTES}, so send it in parts")
    return data


def _lines(diff: str) -> list[str]:
    lines = [line + "\n" for line in diff.removesuffix("\n").split("\n")]
    if lines[0].endswith("\r\n"):
        # The whole patch was sent with CRLF line ends, because headers have no CR of their own.
        other = next((i for i, line in enumerate(lines[:-1], 1) if not line.endswith("\r\n")), None)
        if other is not None:
            raise DiffError(
                f"the patch mixes line ends: line 1 ends with CRLF and line {other} with LF, "
                "so what belongs to the file is not certain; send its headers with LF"
            )
        lines = [line[:-2] + "\n" if line.endswith("\r\n") else line for line in lines]
    # The text of the marker depends on the locale in which the patch was made.
    return ["\\ No newline at end of file\n" if line.startswith("\\ ") else line for line in lines]


def _patches(lines: list[str], file_path: str) -> Iterator[FilePatch]:
    # No line of a hunk can begin like this, whatever the files contain.
    starts = [i for i, line in enumerate(lines) if line.startswith(_GIT)]
    yield from _unified(lines[: starts[0] if starts else None], 1, file_path, None)
    for start, end in pairwise([*starts, len(lines)]):
        block = lines[start:end]
        head = next((i for i, line in enumerate(block) if line.startswith(("@@ ", "-- \n"))), len(block))
        named = read_git(block[:head], start + 1)
        body = block[head:]
        if any(line.startswith("@@ ") for line in body):
            if not any(line.startswith("+++ ") for line in block[:head]):
                raise DiffError(f"the file named on line {start + 1} has hunks but no --- and +++ lines before them")
            yield from _unified(["--- a\n", "+++ b\n", *body], start + head - 1, file_path, named)
        else:
            _check_all_read(body, start + head + 1, PatchSet([]))
            yield FilePatch(named.path, named.kind, (), named.old_path, named.executable)


def _unified(lines: list[str], at: int, file_path: str, first: Named | None) -> Iterator[FilePatch]:
    """Yield the files of plain unified diffs. `first` is what git's headers say of the first; `at` numbers line one."""
    counted = _Counted(lines)
    try:
        files = PatchSet(counted)
    except (UnidiffParseError, ValueError) as error:
        raise DiffError(f"the patch can not be read near line {at + counted.taken - 1}: {_said(error)}") from None
    if not all(hunk for file in files for hunk in file):
        raise DiffError(f"a hunk near line {at + counted.taken - 1} of the patch is empty")
    _check_all_read(lines, at, files)
    for i, file in enumerate(files):
        where = at + (file.diff_line_no or 1) - 1
        gone = says_gone(file.target_timestamp)
        named = first if first and i == 0 else read_plain(file.source_file, file.target_file, where, file_path, gone)
        hunks = tuple(_hunk(hunk, lines, where) for hunk in file)
        yield FilePatch(named.path, named.kind, hunks, named.old_path, named.executable)


class _Counted(list[str]):
    """Lines that count how many were taken, to report where a parser stopped."""

    taken = 0

    def __iter__(self) -> Iterator[str]:
        for line in super().__iter__():
            self.taken += 1
            yield line


def _said(error: Exception) -> str:
    words = str(error).strip().splitlines()[0][:120]
    return words[:1].lower() + words[1:]


def _check_all_read(lines: list[str], at: int, files: PatchSet) -> None:
    """Check that lines outside hunks are headers: the parser skips them, but people read them as changes."""
    held = {line.diff_line_no for file in files for hunk in file for line in hunk}
    headers = {min(line.diff_line_no for line in hunk if line.diff_line_no) - 1 for file in files for hunk in file}
    for number, line in enumerate(lines, 1):
        if number in held or number in headers or not line.strip("\r\n") or line.startswith("\\ "):
            continue
        if line == "-- \n" and not any(rest.startswith((" ", "+", "-")) for rest in lines[number:]):
            return  # the signature below a mailed patch
        if not _is_header(lines, number - 1):
            raise DiffError(
                f"line {at + number - 1} of the patch is in no hunk: {line.rstrip()[:80]!a}; "
                "do the numbers of lines in the hunk headers fit?"
            )


def _is_header(lines: list[str], i: int) -> bool:
    """Whether a line outside all hunks is a header; `---` and `+++` are one only as a pair before a hunk."""
    if lines[i].startswith("--- "):
        return [line[:3] for line in lines[i + 1 : i + 3]] == ["+++", "@@ "]
    if lines[i].startswith("+++ "):
        return i > 0 and lines[i - 1].startswith("--- ")
    return lines[i].startswith(("diff ", "Index: ", "====="))


def _hunk(parsed: ParsedHunk, lines: list[str], where: int) -> Hunk:
    out: list[HunkLine] = []
    for line in parsed:
        if line.line_type == "\\":
            if not out:
                raise DiffError(f"a hunk near line {where} begins with the marker for a missing newline")
            out[-1] = HunkLine(out[-1].mark, out[-1].text.removesuffix("\n"))
        elif line.line_type:
            out.append(HunkLine(line.line_type, line.value))
    begins = parsed[0].diff_line_no or 2
    return Hunk(lines[begins - 2].rstrip("\r\n"), parsed.source_start, tuple(out))


def _check_names(patches: tuple[FilePatch, ...], file_path: str) -> None:
    if not patches:
        raise DiffError("the patch names no file; it needs --- and +++ lines and at least one hunk")
    if len(patches) > MAX_FILES:
        raise DiffError(f"the patch changes {len(patches)} files; the most is {MAX_FILES}, so send it in parts")
    names = [path for patch in patches for path in _ends(patch)]
    twice = _first_twice(names)
    if twice is not None:
        raise DiffError(f"the patch names {twice} twice; put all its changes under one header")
    known = set(names)
    for name in names:
        for parent in PurePosixPath(name).parents:
            if str(parent) in known:
                raise DiffError(f"the patch names {parent} both as a file and as the directory of {name}")
    if file_path not in known:
        raise DiffError(f"file_path is {file_path}, but the patch names {', '.join(names[:5])}; they must agree")


def _ends(patch: FilePatch) -> tuple[str, ...]:
    return (patch.old_path, patch.path) if patch.kind is ChangeKind.RENAME and patch.old_path else (patch.path,)


def _first_twice(names: list[_T]) -> _T | None:
    seen: set[_T] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
