"""A change plan: for every file of a proposal, the bytes before and the bytes after.

A patch and its file may differ only in two ways. A patch with LF line ends fits a file with CRLF, and its added lines
take the file's ends. The patch may omit the file's byte order mark. Lines are kept as bytes, so what a patch does not
touch cannot change. They are decoded only for comparison.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile, zip_longest
from pathlib import Path

from attrs import define, field, frozen

from intercom.model.errors import FileError, PatchConflict, PathViolation, RecordMismatch
from intercom.model.request import NEW_FILE, ChangeKind, FileChange
from intercom.model.visible_text import count
from intercom.workspace.files import (
    ABSENT,
    BOM,
    UTF8,
    Encoding,
    FileBytes,
    digest,
    directory_id,
    encoding_of,
    file_fingerprint,
    is_link,
    missing_directories,
    opened_root,
    read_beneath,
    relative,
    split_text,
)
from intercom.workspace.proposal import FilePatch, Hunk, HunkLine, Proposal
from intercom.workspace.transaction import Step


@frozen
class PlannedFile:
    """The plan for one file.

    `after` is the new content, None for a deletion. `mode` holds the new permission bits, None if a new file takes them
    from its directory.
    """

    change: FileChange
    after: bytes | None
    mode: int | None


@frozen
class Plan:
    """The plan for a proposal. `root_id` identifies the workspace directory."""

    files: tuple[PlannedFile, ...]
    root_id: int | None = None

    @property
    def contents(self) -> dict[str, bytes]:
        """The new contents, by SHA-256."""
        return {digest(file.after): file.after for file in self.files if file.after is not None}

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(file.change for file in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that changes, canonical, both ends of a rename: what the policy evaluates."""
        return tuple(path for change in self.changes for path in change.paths)


def plan(root: Path, proposal: Proposal) -> Plan:
    """Return what `proposal` does to the workspace `root` as it is now. Writes nothing.

    Every path is resolved here, and never again. Raises PatchConflict if a hunk does not fit, or a file exists or is
    missing against expectation; PathViolation; and FileError.
    """
    with opened_root(root) as top:
        if proposal.content is None:
            planned = list(_each_patched(root, top, proposal.patches))
        else:
            path = relative(root, proposal.file_path)
            planned = [_whole(path, read_beneath(top, path), proposal.content)]
        return Plan(tuple(planned), directory_id(top))


def plan_again(
    root: Path,
    proposal: Proposal,
    record: Sequence[FileChange],
    *,
    root_id: int | None = None,
    diverged: bool = False,
) -> Plan:
    """Return the plan for an approved proposal in the present workspace: exactly what was approved, or an error.

    `record` are the approved files. Their recorded paths are opened without following links; the paths in the
    proposal's text no longer matter.

    Raises PatchConflict if a file has changed since, unless `diverged` permits that and the proposal is a whole file.
    Raises RecordMismatch if the result would differ from what was approved. Raises PathViolation and FileError too.
    """
    parts: Sequence[FilePatch | bytes] = proposal.patches if proposal.content is None else (proposal.content,)
    if len(parts) != len(record):
        changes = count(len(parts), "file")
        raise RecordMismatch(f"the proposal changes {changes}, and {len(record)} were approved; {_ANEW}")
    planned: list[PlannedFile] = []
    changed: list[str] = []
    with opened_root(root, root_id) as top:
        for part, approved in zip(parts, record, strict=True):
            base = read_beneath(top, approved.base_path)
            if _hash(base) != approved.before_hash:
                changed.append(approved.base_path)
            elif approved.old_path is not None and read_beneath(top, approved.path) is not None:
                changed.append(approved.path)
            if approved.base_path not in changed or (diverged and isinstance(part, bytes)):
                planned.append(_plan_approved(part, base, approved, is_other_base=bool(changed)))
    if changed and not (diverged and proposal.content is not None):
        way = "ask for clearance again"
        if not proposal.is_patch:
            way += ", or call again with force to have a person asked whether to write over it"
        raise PatchConflict(f"{', '.join(changed)} changed since the proposal was made; {way}", paths=tuple(changed))
    return Plan(tuple(planned), root_id)


def _plan_approved(
    part: FilePatch | bytes, base: FileBytes | None, approved: FileChange, *, is_other_base: bool
) -> PlannedFile:
    """Plan a file and compare the result with what was approved."""
    try:
        if isinstance(part, bytes):
            planned = _whole(approved.path, base, part)
        else:
            planned = _patched(part, base, approved.path, approved.base_path)
    except PatchConflict as fault:
        # The patch fitted the same content when it was proposed.
        raise RecordMismatch(f"what was approved of {approved.path} is another patch ({fault}); {_ANEW}") from None
    now = planned.change
    differs = [
        what
        for what, one, other in (
            ("path", now.path, approved.path),
            ("old path", now.old_path, approved.old_path),
            ("content after", now.after_hash, approved.after_hash),
            # If the file has changed, a whole file may be another kind of change, and it keeps the present mode.
            ("kind of change", is_other_base or now.kind, is_other_base or approved.kind),
            ("mode", is_other_base or now.mode, is_other_base or approved.mode),
        )
        if one != other
    ]
    if differs:
        raise RecordMismatch(
            f"{approved.path} would not become what was approved: its {differs[0]} differs; {_ANEW}", path=approved.path
        )
    return planned


_ANEW = "nothing was written, propose the change again"


def _hash(base: FileBytes | None) -> str:
    return NEW_FILE if base is None else digest(base.data)


def _whole(path: str, base: FileBytes | None, content: bytes) -> PlannedFile:
    return _planned(path, ChangeKind.CREATE if base is None else ChangeKind.WRITE, base, content)


def _each_patched(root: Path, top: int, patches: Sequence[FilePatch]) -> Iterator[PlannedFile]:
    seen: set[str] = set()
    for patch in patches:
        source = patch.old_path or patch.path
        if patch.kind in (ChangeKind.DELETE, ChangeKind.RENAME) and is_link(root, source):
            raise PathViolation(f"{source} is a symbolic link; removing or renaming links is not supported")
        path, old = relative(root, patch.path), relative(root, source)
        planned = _patched(patch, read_beneath(top, old), path, old)
        if planned.change.kind is ChangeKind.RENAME and read_beneath(top, path) is not None:
            raise PatchConflict(f"the patch renames {old} to {path}, which exists already", path=path)
        for each in set(planned.change.paths):
            if each in seen:
                raise PathViolation(f"two files of the patch are {each}, through a symbolic link; name it once")
            seen.add(each)
        yield planned


def _patched(patch: FilePatch, base: FileBytes | None, path: str, old: str) -> PlannedFile:
    """Apply a file's patch to `base`, the content of `old`. `path` differs from `old` only for a rename."""
    only_adds = patch.kind is ChangeKind.WRITE and len(patch.hunks) == 1 and not patch.hunks[0].source
    if patch.kind is ChangeKind.CREATE or (base is None and only_adds):
        if base is not None:
            raise PatchConflict(f"the patch creates {path}, which exists already", path=path)
        return _planned(path, ChangeKind.CREATE, None, created(path, patch.hunks), patch.executable)
    if base is None:
        raise PatchConflict(f"the patch changes {old}, which does not exist", path=old)
    after = apply_hunks(old, base.data, patch.hunks)
    if patch.kind is ChangeKind.DELETE:
        if after:
            raise PatchConflict(
                f"the patch removes {path}, but {count(len(after), 'byte')} would be left in it", path=path
            )
        return _planned(path, ChangeKind.DELETE, base, None)
    old_path = old if patch.kind is ChangeKind.RENAME else None
    return _planned(path, patch.kind, base, after, patch.executable, old_path)


def _planned(
    path: str,
    kind: ChangeKind,
    base: FileBytes | None,
    after: bytes | None,
    executable: bool | None = None,
    old_path: str | None = None,
) -> PlannedFile:
    before = _hash(base)
    mode = None if base is None or after is None else _mode(base.mode, executable)
    # A line that only moved counts as neither.
    old, new = (Counter(data.splitlines()) for data in (b"" if base is None else base.data, after or b""))
    change = FileChange(
        path=path,
        kind=kind,
        before_hash=before,
        after_hash=None if after is None else digest(after),
        old_path=old_path,
        mode=mode if base is not None and mode != base.mode else 0o755 if base is None and executable else None,
        added=(new - old).total(),
        removed=(old - new).total(),
    )
    return PlannedFile(change, after, mode)


def _mode(current: int, executable: bool | None) -> int:
    """Change permission bits as git's mode lines do: everyone with read access may execute, or nobody."""
    if executable is None or bool(current & 0o111) == executable:
        return current
    return current | (current & 0o444) >> 2 if executable else current & ~0o111


def steps(root: Path, plan: Plan) -> tuple[Step, ...]:
    """Return the steps of a file transaction that carry out `plan`. Raises FileError."""
    with opened_root(root, plan.root_id) as top:
        return tuple(step for file in plan.files for step in _steps(file.change, _new_mode(top, file), file.after))


def _steps(change: FileChange, mode: int, after: bytes | None) -> Iterator[Step]:
    before = file_fingerprint(change.before_hash)
    if change.after_hash is None:
        yield Step(change.path, before, ABSENT)
        return
    yield Step(
        path=change.path,
        before=before if change.old_path is None else ABSENT,
        after=file_fingerprint(change.after_hash),
        mode=mode,
        size=len(after or b""),
        moved_from=change.old_path,
    )
    if change.old_path is not None:
        yield Step(change.old_path, before, ABSENT)


def _new_mode(top: int, file: PlannedFile) -> int:
    if file.mode is not None or file.after is None:
        return file.mode or 0
    try:
        _, parent = missing_directories(top, file.change.path)
    except OSError as error:
        raise FileError(f"{file.change.path} cannot be created: {error.strerror}") from None
    return _mode(parent & 0o666 | 0o600, executable=file.change.mode is not None)


def difference(steps: Sequence[Step], approved: Sequence[FileChange]) -> str | None:
    """Return the path of a step or file that makes the steps another change than the approved one; None if they
    make exactly that."""
    wanted = [step for change in approved for step in _steps(change, 0, None)]
    for step, expected in zip_longest(steps, wanted):
        if step is None or expected is None or step.act != expected.act:
            return str((step or expected).path)
    return None


def unfinished(
    root: Path, steps: Sequence[Step], approved: Sequence[FileChange]
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield the approved files that are not changed yet: number, content before and content after (None for no
    file). `steps` are theirs, and staged."""
    staged = {step.path: step.staged for step in steps if step.staged is not None}
    with opened_root(root, steps[0].root_id if steps else None) as top:
        for number, change in enumerate(approved):
            base, path = read_beneath(top, change.base_path), staged.get(change.path)
            after = None if path is None else read_beneath(top, path)
            if _hash(base) == change.before_hash and (change.after_hash is None or after is not None):
                yield number, None if base is None else base.data, None if after is None else after.data


# --- hunks and a file's bytes ----------------------------------------------------------------------------------------

#: The most line comparisons, to find where the hunks of one file fit; they take some seconds. A patch states the place
#: of its hunks, so one that needs more is far off, or crafted to waste time.
MAX_COMPARISONS = 5_000_000


def apply_hunks(path: str, base: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Apply `hunks`, in the order of the file, to `base` and return the result.

    Raises PatchConflict with every hunk that does not fit: its number and header, what it expects and what the file
    holds there. Raises it also if the file's encoding lacks a character of an added line.
    """
    file = _File(path, base)
    ends = [line.endswith("\r\n") for line in file.text if line.endswith("\n")]
    # If no line can be compared: in a file with CRLF throughout, a patch without CRs is assumed to mean CRLF.
    bare = bool(ends) and all(ends) and not any("\r" in line.text for hunk in hunks for line in hunk.lines)
    out: list[bytes] = []
    failures: list[tuple[int, Hunk, str]] = []
    at, drift, hidden = 0, 0, False
    for number, hunk in enumerate(hunks, 1):
        place = file.find(hunk, at, drift)
        if isinstance(place, str):
            failures.append((number, hunk, place))
            continue
        out += file.raw[at:place]
        out += file.changed(hunk, place, bare=bare)
        hidden = hidden or file.hides_mark(hunk, place)
        drift = place - _stated(hunk)
        at = place + len(hunk.source)
    if failures:
        raise _conflict(path, failures)
    out += file.raw[at:]
    mark = file.encoding.encode(BOM) if hidden else b""
    if out and not out[0].startswith(mark):
        out[0] = mark + out[0]
    _check_ends(path, out, file.encoding)
    return b"".join(out)


def created(path: str, hunks: Sequence[Hunk]) -> bytes:
    """Return the content of a new file: the added lines of its hunks. Raises PatchConflict for any other line."""
    for number, hunk in enumerate(hunks, 1):
        if hunk.source or number > 1:
            raise _conflict(path, [(number, hunk, "it expects lines of a file that is to be new")])
    lines = [line.text.encode(UTF8.codec) for hunk in hunks for line in hunk.lines]
    _check_ends(path, lines, UTF8)
    return b"".join(lines)


@define
class _File:
    """A file to patch: its lines with their ends, as bytes and as text. `known` are all lines, without CRs."""

    path: str
    base: bytes
    encoding: Encoding = field(init=False)
    text: list[str] = field(init=False)
    raw: list[bytes] = field(init=False)
    known: frozenset[str] = field(init=False)
    _left: int = MAX_COMPARISONS

    def __attrs_post_init__(self) -> None:
        self.encoding = encoding_of(self.base)
        if len(self.encoding.encode("\n")) == 1:
            lines = [line + b"\n" for line in self.base.split(b"\n")]
            lines[-1] = lines[-1][:-1]
            self.raw = lines if lines[-1] else lines[:-1]
            self.text = [self.encoding.decode(line) for line in self.raw]
        else:
            self.text = split_text(self.encoding.decode(self.base))
            self.raw = [self.encoding.encode(line) for line in self.text]
        first = [line.removeprefix(BOM) for line in self.text[:1]]
        self.known = frozenset(map(_without_return, [*self.text, *first]))

    def find(self, hunk: Hunk, least: int, drift: int) -> int | str:
        """Return the index of the line nearest to the stated one where the hunk fits; else why there is none."""
        source = hunk.source
        stated = _stated(hunk) + drift
        last = len(self.text) - len(source)
        if not source:
            # There is nothing to compare, so only the stated place is possible.
            ok = least <= stated <= last
            size = count(len(self.text), "line")
            return stated if ok else f"it adds lines after line {hunk.start}, but the file has {size}"
        # A line that the file does not contain fits at no place.
        if all(_without_return(line.text) in self.known for line in source):
            farthest = max(stated - least, last - stated)
            for distance in range(max(stated - last, least - stated, 0), farthest + 1):
                places = sorted({stated - distance, stated + distance})
                fits = [i for i in places if least <= i <= last and self._fits(source, i)]
                if len(fits) > 1:
                    return f"it fits equally well at lines {fits[0] + 1} and {fits[1] + 1}"
                if fits:
                    return fits[0]
        return self._mismatch(source, max(stated, least))

    def _fits(self, source: Sequence[HunkLine], at: int) -> bool:
        equal = sum(1 for _ in takewhile(lambda i: self._same(source[i], at + i), range(len(source))))
        self._left -= equal + 1
        if self._left < 0:
            why = "takes too long to find; state the line of each hunk as it is in the file"
            raise PatchConflict(f"where the patch fits {self.path} {why}", path=self.path)
        return equal == len(source)

    def _same(self, line: HunkLine, index: int) -> bool:
        there, here = self.text[index], line.text
        if index == 0 and there.startswith(BOM) and not here.startswith(BOM):
            there = there[1:]
        return there == here or _without_return(there) == _without_return(here)

    def _mismatch(self, source: Sequence[HunkLine], begin: int) -> str:
        size = len(self.text)
        index, line = next((i, line) for i, line in enumerate(source, begin) if i >= size or not self._same(line, i))
        there = f"is {_quoted(self.text[index])}" if index < size else f"the file ends at line {size}"
        return f"line {index + 1} should be {_quoted(line.text)}, but {there}"

    def changed(self, hunk: Hunk, place: int, *, bare: bool) -> Iterator[bytes]:
        """Yield the lines that replace those of the hunk."""
        seen = [(line.text, self.text[place + i]) for i, line in enumerate(hunk.source)]
        # If the line ends of the patch agree with the file's exactly, added lines are kept as they are.
        exact = [line.endswith("\r\n") == there.endswith("\r\n") for line, there in seen if there.endswith("\n")]
        convert = not all(exact) or (not exact and bare)
        index, first = place, True
        for line in hunk.lines:
            if line.mark == "+":
                yield self._encoded(self._ended(line.text, index) if convert else line.text)
                first = False
            elif line.mark == "-":
                index += 1
            else:
                moved = not first and index == 0 and self.hides_mark(hunk, place)
                yield self.encoding.encode(self.text[0][1:]) if moved else self.raw[index]
                index, first = index + 1, False

    def hides_mark(self, hunk: Hunk, place: int) -> bool:
        """Whether the hunk covers the file's byte order mark without showing it. The mark then stays."""
        source = hunk.source
        return place == 0 and bool(source) and self.text[0].startswith(BOM) and not source[0].text.startswith(BOM)

    def _ended(self, text: str, index: int) -> str:
        """Return an added line with the line end of the nearest line before its place, or else after it."""
        if not text.endswith("\n"):
            return text
        near = chain(range(index - 1, -1, -1), range(index, len(self.text)))
        ended = next(self.text[i] for i in near if self.text[i].endswith("\n"))
        return text.removesuffix("\n").removesuffix("\r") + ("\r\n" if ended.endswith("\r\n") else "\n")

    def _encoded(self, text: str) -> bytes:
        try:
            return self.encoding.encode(text)
        except UnicodeEncodeError:
            raise PatchConflict(
                f"{self.path} is written in {self.encoding.name}, which cannot hold the added line {_quoted(text)}; "
                "propose the whole file to change its encoding"
            ) from None


def _stated(hunk: Hunk) -> int:
    return hunk.start if not hunk.source else max(hunk.start - 1, 0)


def _without_return(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line


def _quoted(line: str) -> str:
    shown = line.removesuffix("\n").removesuffix("\r")
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return f'"{shown}"' + ("" if line.endswith("\n") else " (without a newline at the end of the file)")


def _check_ends(path: str, lines: list[bytes], encoding: Encoding) -> None:
    end = encoding.encode("\n")
    for number, line in enumerate(lines[:-1], 1):
        if not line.endswith(end):
            raise PatchConflict(
                f"after the patch, line {number} of {path} would have no newline though lines follow it; "
                "the patch must show the missing newline with `\\ No newline at end of file`"
            )


def _conflict(path: str, failures: list[tuple[int, Hunk, str]]) -> PatchConflict:
    named = "; ".join(f"hunk {number} ({hunk.header}): {why}" for number, hunk, why in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return PatchConflict(
        f"the patch does not fit {path}: {named}{more}",
        path=path,
        hunks=tuple({"number": number, "header": hunk.header, "why": why} for number, hunk, why in failures[:50]),
    )
