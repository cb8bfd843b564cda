"""A change plan: for every file of a proposal, the bytes before and the bytes after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from attrs import frozen

from intercom.model.errors import FileError, PatchConflict, PathViolation, RecordMismatch
from intercom.model.request import NEW_FILE, ChangeKind, FileChange
from intercom.workspace import patches
from intercom.workspace.files import (
    ABSENT,
    FileBytes,
    digest,
    directory_id,
    file_fingerprint,
    missing_directories,
    opened_root,
    read_beneath,
)
from intercom.workspace.patches import FilePatch
from intercom.workspace.paths import is_link, relative
from intercom.workspace.proposal import Proposal
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
        raise RecordMismatch(f"the proposal changes {len(parts)} file(s), and {len(record)} were approved; {_ANEW}")
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
        raise _changed(changed, is_patch=proposal.is_patch)
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


def _changed(paths: Sequence[str], *, is_patch: bool) -> PatchConflict:
    way = "ask for clearance again"
    if not is_patch:
        way += ", or call again with force to have a person asked whether to write over it"
    return PatchConflict(f"{', '.join(paths)} changed since the proposal was made; {way}", paths=tuple(paths))


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
    if patch.kind is ChangeKind.CREATE or (base is None and _only_adds(patch)):
        if base is not None:
            raise PatchConflict(f"the patch makes {path}, which exists already", path=path)
        return _planned(path, ChangeKind.CREATE, None, patches.created(path, patch.hunks), patch.executable)
    if base is None:
        raise PatchConflict(f"the patch changes {old}, which does not exist", path=old)
    after = patches.apply(old, base.data, patch.hunks)
    if patch.kind is ChangeKind.DELETE:
        if after:
            raise PatchConflict(f"the patch removes {path}, but {len(after)} bytes would be left in it", path=path)
        return _planned(path, ChangeKind.DELETE, base, None)
    if patch.kind is ChangeKind.RENAME:
        return _planned(path, ChangeKind.RENAME, base, after, patch.executable, old)
    return _planned(path, ChangeKind.WRITE, base, after, patch.executable)


def _only_adds(patch: FilePatch) -> bool:
    return patch.kind is ChangeKind.WRITE and len(patch.hunks) == 1 and not patch.hunks[0].source


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
    added, removed = _counts(b"" if base is None else base.data, after or b"")
    change = FileChange(
        path=path,
        kind=kind,
        before_hash=before,
        after_hash=None if after is None else digest(after),
        old_path=old_path,
        mode=mode if base is not None and mode != base.mode else 0o755 if base is None and executable else None,
        added=added,
        removed=removed,
    )
    return PlannedFile(change, after, mode)


def _mode(current: int, executable: bool | None) -> int:
    """Change permission bits as git's mode lines do: everyone with read access may execute, or nobody."""
    if executable is None or bool(current & 0o111) == executable:
        return current
    return current | (current & 0o444) >> 2 if executable else current & ~0o111


def _counts(before: bytes, after: bytes) -> tuple[int, int]:
    """Count lines added and removed. A line that only moved counts as neither."""
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    return (new - old).total(), (old - new).total()


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
        raise FileError(f"{file.change.path} cannot be made: {error.strerror}") from None
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
