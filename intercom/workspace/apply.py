"""The file steps of the apply journal: write all files of a plan or none, even after a crash.

The caller holds the workspace's lock and does, in this order: `prepare` and persist the steps in its journal; `stage`;
mark the journal committed; `roll_forward`; mark it done. After a crash it reads the journal. If not committed, it calls
`discard`; if committed, it calls `roll_forward` until that succeeds.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from intercom.model import crash_points
from intercom.model.approval import NEW_FILE, ChangeKind
from intercom.model.errors import ApplyStuck, FileError, PathViolation
from intercom.workspace.descriptors import WorkspaceGone, opened_parent, opened_root
from intercom.workspace.hashing import digest, file_hash
from intercom.workspace.patching import Plan, PlannedFile
from intercom.workspace.reading import read_at, read_beneath
from intercom.workspace.step import Step, Written

_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")


def prepare(root: Path, plan: Plan, tag: str) -> tuple[Step, ...]:
    """Return the steps of `plan`, to be persisted before anything is staged. Writes nothing. `tag` (the request's
    id) becomes part of the staged files' names, so that they can be found after a crash."""
    name = tag if _TAG.fullmatch(tag) else hashlib.sha256(tag.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    with opened_root(root, plan.root_inode) as top:
        return tuple(
            _step(top, file, f".intercom-{name}-{i}.tmp", plan.root_inode) for i, file in enumerate(plan.files)
        )


def _step(top: int, file: PlannedFile, temp: str, root_inode: int | None) -> Step:
    change = file.change
    missing, parent_mode = _surroundings(top, change.path)
    mode = file.mode
    if file.after is not None and mode is None:
        mode = parent_mode & 0o666 | 0o600
        if file.executable:
            mode |= (mode & 0o444) >> 2
    return Step(
        path=change.path,
        old_path=change.old_path,
        kind=change.kind.value,
        temp=None if file.after is None else temp,
        before_hash=file.before,
        after_hash=change.after_hash,
        mode=mode,
        made=missing,
        size=len(file.after or b""),
        root_inode=root_inode,
    )


def _surroundings(top: int, rel: str) -> tuple[tuple[str, ...], int]:
    """Return the missing directories above `rel`, outermost first, and the mode of the nearest existing one."""
    mode = os.fstat(top).st_mode & 0o777
    parents = [str(parent) for parent in reversed(PurePosixPath(rel).parents) if str(parent) != "."]
    for i, parent in enumerate(parents):
        try:
            with opened_parent(top, f"{parent}/x") as fd:
                mode = os.fstat(fd).st_mode & 0o777
        except FileNotFoundError:
            return tuple(parents[i:]), mode
    return (), mode


def stage(root: Path, plan: Plan, steps: Sequence[Step]) -> None:
    """Write the new contents beside the files, under the steps' temporary names; on disk on return. No file of the
    workspace changes. Raises FileError or PathViolation; then the caller discards the steps."""
    with opened_root(root, plan.root_inode) as top:
        for file, step in zip(plan.files, steps, strict=True):
            if file.after is None or step.temp is None:
                continue
            with opened_parent(top, step.path, create=True) as parent:
                try:
                    _write_new(parent, step.temp, file.after, step.mode or 0o600)
                    os.fsync(parent)
                except OSError as error:
                    raise FileError(f"{step.path} can not be written: {error.strerror}") from None
            crash_points.reach("apply.staged_one")
    crash_points.reach("apply.staged_all")


def _write_new(parent: int, name: str, data: bytes, mode: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)  # left by an earlier attempt at the same apply
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=parent)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(fd, mode)
        os.fsync(fd)


def verify(root: Path, steps: Sequence[Step]) -> None:
    """Check that every step is done or possible. Raises ApplyStuck, which names each file for which neither holds."""
    with opened_root(root, _root_inode(steps)) as top:
        _verify(top, steps)


def _verify(top: int, steps: Sequence[Step]) -> None:
    stuck = [why for step in steps if (why := _obstacle(top, step)) is not None]
    if stuck:
        paths = tuple(step.path for step in steps)
        raise ApplyStuck(
            f"the apply can not be finished: {'; '.join(stuck)}; look at these files, then apply or propose again",
            paths=paths,
            reasons=tuple(stuck),
        )


def roll_forward(root: Path, steps: Sequence[Step]) -> tuple[Written, ...]:
    """Bring every file to its final state and return what each holds. Steps already done are skipped.

    Nothing is renamed unless every step is possible. Raises ApplyStuck if a file is in neither its initial nor its
    final state. Raises FileError if the workspace is another directory. System errors raise one of them. Then the steps
    can be rolled forward again after the cause is repaired.
    """
    with opened_root(root, _root_inode(steps)) as top:
        _verify(top, steps)
        # Removals last, so that each content exists somewhere at all times.
        for step in sorted(steps, key=lambda step: step.change is ChangeKind.DELETE):
            try:
                _perform(top, step)
            except OSError as error:
                raise ApplyStuck(f"the apply stopped at {step.path}: {error.strerror}", paths=(step.path,)) from None
    crash_points.reach("apply.renamed_all")
    return tuple(Written(step.path, step.size) for step in steps)


def _root_inode(steps: Sequence[Step]) -> int | None:
    return steps[0].root_inode if steps else None


def left_to_do(root: Path, steps: Sequence[Step]) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield the steps not done yet: number, content before and content after (None for no file)."""
    with opened_root(root, _root_inode(steps)) as top:
        for number, step in enumerate(steps):
            base = read_beneath(top, step.old_path or step.path)
            staged = None if step.temp is None else read_beneath(top, _staged_path(step))
            if (NEW_FILE if base is None else digest(base.data)) != step.before_hash:
                continue
            if step.change is ChangeKind.DELETE or staged is not None:
                yield number, None if base is None else base.data, None if staged is None else staged.data


def discard(root: Path, steps: Sequence[Step]) -> None:
    """Remove staged files and the empty directories that staging created; other files are not touched. Skips what is
    missing, even the whole workspace, and what can only be reached through a link. Raises FileError."""
    try:
        with opened_root(root, _root_inode(steps)) as top:
            for step in steps:
                if step.temp is not None:
                    _remove(top, _staged_path(step), os.unlink)
            for made in sorted({made for step in steps for made in step.made}, key=lambda path: -path.count("/")):
                _remove(top, made, os.rmdir)
    except WorkspaceGone:
        return


def _remove(top: int, rel: str, remove: Callable[..., None]) -> None:
    try:
        with opened_parent(top, rel) as parent:
            remove(_name(rel), dir_fd=parent)
            os.fsync(parent)
    except (FileNotFoundError, PathViolation):
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileError(f"{rel} can not be removed: {error.strerror}") from None


def _name(rel: str) -> str:
    return rel.rsplit("/", 1)[-1]


def _staged_path(step: Step) -> str:
    return str(PurePosixPath(step.path).with_name(step.temp or ""))


def _obstacle(top: int, step: Step) -> str | None:
    """Return why a step is neither done nor possible, in words; None if it is either."""
    try:
        target = file_hash(top, step.path)
        if step.change is ChangeKind.DELETE:
            return None if target in (NEW_FILE, step.before_hash) else f"{step.path} changed while it was to be removed"
        staged = file_hash(top, _staged_path(step))
        old = file_hash(top, step.old_path) if step.old_path is not None else NEW_FILE
    except (PathViolation, FileError) as error:
        return error.message
    if old not in (step.before_hash, NEW_FILE):
        return f"{step.old_path} changed while it was to be renamed"
    if target == step.after_hash:
        return None
    before = NEW_FILE if step.old_path is not None else step.before_hash
    if target != before:
        return f"{step.path} changed in between"
    if step.old_path is not None and old == NEW_FILE:
        return f"{step.old_path} is gone, and {step.path} is not there"
    return None if staged == step.after_hash else f"the staged content of {step.path} is missing or damaged"


def _perform(top: int, step: Step) -> None:
    """Complete a step that is done or possible."""
    if step.temp is not None:
        with opened_parent(top, step.path) as parent:
            _put(parent, step, step.temp, _name(step.path))
    leaving = step.path if step.change is ChangeKind.DELETE else step.old_path
    if leaving is not None:
        with suppress(FileNotFoundError), opened_parent(top, leaving) as parent:
            # Check again in the open directory that it is removed from, because directories above may be renamed.
            if _hash_at(parent, _name(leaving), leaving) not in (step.before_hash, NEW_FILE):
                raise ApplyStuck(f"the apply stopped at {leaving}: it changed in between", paths=(leaving,))
            os.unlink(_name(leaving), dir_fd=parent)
            os.fsync(parent)
            crash_points.reach("apply.renamed_one")


def _put(parent: int, step: Step, temp: str, name: str) -> None:
    """Rename the staged file to its final name. A file that appears under that name meanwhile is not overwritten: a
    hard link fails if the name exists."""
    staged = _hash_at(parent, temp, step.path)
    if staged == NEW_FILE:
        return
    # Check again in the open directory that the file is put into, because directories above may be renamed.
    before = NEW_FILE if step.old_path is not None else step.before_hash
    current = _hash_at(parent, name, step.path)
    if current not in (before, step.after_hash) or staged != step.after_hash:
        raise ApplyStuck(f"the apply stopped at {step.path}: it changed in between", paths=(step.path,))
    there = current != NEW_FILE
    if not there:
        try:
            os.link(temp, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise
            there = True  # a file system without hard links
    if there:
        os.rename(temp, name, src_dir_fd=parent, dst_dir_fd=parent)
    with suppress(FileNotFoundError):
        # Linking keeps the name, and renaming onto another name of the same file does nothing.
        os.unlink(temp, dir_fd=parent)
    os.fsync(parent)
    crash_points.reach("apply.renamed_one")


def _hash_at(parent: int, name: str, rel: str) -> str:
    found = read_at(parent, name, rel)
    return NEW_FILE if found is None else digest(found.data)
