"""From a proposal to a plan: for every file, the bytes that are there and the bytes that shall be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from intercom.model.approval import NEW_FILE, ChangeKind, FileChange
from intercom.model.errors import PatchConflict, PathViolation
from intercom.workspace import hunks
from intercom.workspace.file_patch import FilePatch
from intercom.workspace.hashing import digest
from intercom.workspace.paths import is_link, relative
from intercom.workspace.proposal import Proposal
from intercom.workspace.reading import FileBytes, read


@frozen
class PlannedFile:
    """`before` is the hash of what is on disk now, of the old path for a rename. `after` is the content to be, None
    for a file that goes. `mode` holds the permission bits to be, None for a new file whose directory decides."""

    change: FileChange
    before: str
    after: bytes | None
    mode: int | None
    executable: bool | None = None


@frozen
class Plan:
    """`diverged` are the paths whose content is not what was expected (only ever filled with `force`); `forced` says
    that such a file may be overwritten whatever it holds."""

    files: tuple[PlannedFile, ...]
    forced: bool = False
    diverged: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return tuple(file.change for file in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that changes, canonical, both ends of a rename: what the policy judges."""
        return tuple(path for change in self.changes for path in (change.old_path, change.path) if path is not None)

    @property
    def bases(self) -> dict[str, str]:
        """The hash of each file that the plan starts from, by path: what a later `plan` takes as `expected`."""
        return {_based_on(file.change): file.before for file in self.files}


def plan(root: Path, proposal: Proposal, force: bool = False, expected: Mapping[str, str] | None = None) -> Plan:
    """Work out what `proposal` does to the workspace `root` as it is now; nothing is written.

    `expected` gives the hash ("new_file" for none) that each path had when a person approved, by canonical path, the
    old path of a rename. Where the file has changed since, PatchConflict, unless `force` and the proposal is a whole
    file: a patch on another base is not what was approved, and has to be asked for again. Also raises PatchConflict
    for hunks that do not fit and files that should or should not exist, PathViolation, and FileError.
    """
    if proposal.content is not None:
        planned = [_whole(root, proposal.file_path, proposal.content)]
    else:
        planned = list(_patched(root, proposal, expected or {}))
    diverged = tuple(_based_on(file.change) for file in planned if _diverged(file, expected or {}))
    if diverged and not (force and proposal.content is not None):
        raise _changed(diverged, forced=force)
    return Plan(tuple(planned), forced=force and proposal.content is not None, diverged=diverged)


def _based_on(change: FileChange) -> str:
    return change.old_path or change.path


def _diverged(file: PlannedFile, expected: Mapping[str, str]) -> bool:
    return expected.get(_based_on(file.change), file.before) != file.before


def _changed(paths: tuple[str, ...], forced: bool = False) -> PatchConflict:
    way = (
        "a patch can not be forced onto another base; ask for clearance again"
        if forced
        else "ask for clearance again, or force a whole file over it"
    )
    return PatchConflict(f"{', '.join(paths)} changed since the proposal was made; {way}", paths=paths)


def _whole(root: Path, file_path: str, content: bytes) -> PlannedFile:
    path = relative(root, file_path)
    base = read(root, path)
    kind = ChangeKind.CREATE if base is None else ChangeKind.WRITE
    return _planned(path, kind, base, content)


def _patched(root: Path, proposal: Proposal, expected: Mapping[str, str]) -> Iterator[PlannedFile]:
    seen: set[str] = set()
    for patch in proposal.patches:
        planned = _patch_one(root, patch, expected)
        for path in {planned.change.path, _based_on(planned.change)}:
            if path in seen:
                raise PathViolation(f"two files of the patch are {path}, through a symbolic link; name it once")
            seen.add(path)
        yield planned


def _patch_one(root: Path, patch: FilePatch, expected: Mapping[str, str]) -> PlannedFile:
    source = patch.old_path or patch.path
    if patch.kind in (ChangeKind.DELETE, ChangeKind.RENAME) and is_link(root, source):
        raise PathViolation(f"{source} is a symbolic link; removing or renaming links is not supported")
    path, old = relative(root, patch.path), relative(root, source)
    base = read(root, old)
    before = NEW_FILE if base is None else digest(base.data)
    if expected.get(old, before) != before:
        # Said before the hunks are tried: it is the reason why they do not fit.
        raise _changed((old,))
    if patch.kind is ChangeKind.CREATE or (base is None and _only_adds(patch)):
        if base is not None:
            raise PatchConflict(f"the patch makes {path}, which exists already", path=path)
        return _planned(path, ChangeKind.CREATE, None, hunks.created(path, patch.hunks), patch.executable)
    if base is None:
        raise PatchConflict(f"the patch changes {old}, which does not exist", path=old)
    after = hunks.apply(old, base.data, patch.hunks)
    if patch.kind is ChangeKind.DELETE:
        if after:
            raise PatchConflict(f"the patch removes {path}, but {len(after)} bytes would be left in it", path=path)
        return _planned(path, ChangeKind.DELETE, base, None)
    if patch.kind is ChangeKind.RENAME:
        if read(root, path) is not None:
            raise PatchConflict(f"the patch renames {old} to {path}, which exists already", path=path)
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
    before = NEW_FILE if base is None else digest(base.data)
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
    return PlannedFile(change, before, after, mode, executable)


def _mode(current: int, executable: bool | None) -> int:
    """Permission bits as git's mode lines change them: whoever may read may execute, or nobody may."""
    if executable is None or bool(current & 0o111) == executable:
        return current
    return current | (current & 0o444) >> 2 if executable else current & ~0o111


def _counts(before: bytes, after: bytes) -> tuple[int, int]:
    """Lines added and removed; a line that only moved counts as neither."""
    old, new = Counter(before.splitlines()), Counter(after.splitlines())
    return (new - old).total(), (old - new).total()
