"""Restoring files: put back all files of a plan or none, even after a crash.

The caller holds the workspace's lock and does, in this order: persist the steps in its journal; `stage`; `verify`; mark
the journal committed; `roll_forward`; mark it done. After a crash it reads the journal. If not committed, it calls
`discard`; if committed, it calls `roll_forward` until that succeeds.

The staging directory is at the top of the workspace, on the same file system as the files to replace.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from intercom.model import crash_points
from intercom.model.errors import ApplyStuck, FileError
from intercom.workspace.descriptors import WorkspaceGone, opened_directory, opened_root
from intercom.workspace.put_back_plan import IN_THE_WAY, NOTHING, Blocked, PutBack, PutBackPlan
from intercom.workspace.standing import DIRECTORY, is_taken, names, sign, sign_at, will_be_empty

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def possible(root: Path, plan: PutBackPlan) -> PutBackPlan:
    """Return the plan with those files blocked whose place is taken by a directory that will not be empty. Such a
    directory may hold files that .gitignore hides from the manifest. Raises FileError."""
    going = {step.path for step in plan.steps if step.after == NOTHING}
    with opened_root(root, _root_inode(plan.steps)) as top:
        blocked = {step.path for step in plan.steps if step.staged is not None and is_taken(top, step.path, going)}
    steps = tuple(step for step in plan.steps if step.path not in blocked)
    return PutBackPlan(steps, (*plan.blocked, *(Blocked(path, IN_THE_WAY) for path in sorted(blocked))))


def stage(root: Path, tag: str, steps: Sequence[PutBack], read: Callable[[str], bytes | None]) -> None:
    """Write the new contents into the staging directory; on disk on return.

    `tag` is the restore's id, and `read` returns contents by hash. No file of the workspace changes. Raises FileError
    if a content is missing, and on system errors; then the caller discards the tag.
    """
    discard(root, tag, steps)
    if not steps:
        return
    try:
        with opened_root(root, _root_inode(steps)) as top:
            os.mkdir(_staging(tag), 0o700, dir_fd=top)
            with opened_directory(top, [_staging(tag)]) as there:
                for step in steps:
                    if step.staged is not None:
                        _stage_one(there, step, step.staged, read)
                        crash_points.reach("restore.staged_one")
                os.fsync(there)
            os.fsync(top)
    except OSError as error:
        raise FileError(f"the files can not be staged in {root}: {error.strerror}") from None
    crash_points.reach("restore.staged_all")


def _stage_one(there: int, step: PutBack, name: str, read: Callable[[str], bytes | None]) -> None:
    if step.link is not None:
        os.symlink(step.link, name, dir_fd=there)
        return
    data = read(step.hash)
    if data is None:
        raise FileError(f"the content of {step.path} is not kept any more")
    fd = os.open(name, _WRITE, 0o600, dir_fd=there)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(fd, step.mode)
        os.fsync(fd)


def verify(root: Path, tag: str, steps: Sequence[PutBack]) -> None:
    """Check that every step is done or possible. Raises ApplyStuck, which names the files for which neither holds."""
    with opened_root(root, _root_inode(steps)) as top:
        _verify(top, tag, steps)


def _verify(top: int, tag: str, steps: Sequence[PutBack]) -> None:
    going = {step.path for step in steps if step.after == NOTHING}
    stuck = [why for step in steps if (why := _obstacle(top, tag, step, going)) is not None]
    if stuck:
        more = f" and {len(stuck) - 5} more" if len(stuck) > 5 else ""
        raise ApplyStuck(f"the files can not be put back: {'; '.join(stuck[:5])}{more}", reasons=tuple(stuck))


def roll_forward(root: Path, tag: str, steps: Sequence[PutBack]) -> None:
    """Bring every file to its final state. Steps already done are skipped.

    Nothing is removed or renamed unless every step is possible. Raises ApplyStuck if a file is in neither its initial
    nor its final state, and on system errors. Then the steps can be rolled forward again after the cause is repaired.
    """
    touched: set[str] = set()
    removals = sorted((step for step in steps if step.after == NOTHING), key=lambda step: -step.path.count("/"))
    try:
        with opened_root(root, _root_inode(steps)) as top:
            _verify(top, tag, steps)
            # Removals first, because a file may be in the place of a new directory, or the other way round.
            for step in removals:
                _remove(top, step, touched)
            # If the staging directory is gone, an earlier attempt put everything in place before it crashed.
            if sign(top, _staging(tag)) == DIRECTORY:
                with opened_directory(top, [_staging(tag)]) as there:
                    for step in steps:
                        if step.staged is not None and sign_at(there, step.staged) != NOTHING:
                            _place(top, there, step, step.staged)
                            touched.add(step.path.rpartition("/")[0])
            for directory in touched:
                with suppress(FileNotFoundError, NotADirectoryError), opened_directory(top, names(directory)) as fd:
                    os.fsync(fd)
            crash_points.reach("restore.placed_all")
    except OSError as error:
        raise ApplyStuck(f"putting files back stopped: {error.strerror} ({error.filename})") from None
    discard(root, tag, steps)


def discard(root: Path, tag: str, steps: Sequence[PutBack] = ()) -> None:
    """Remove the staging directory, if there is one; with `steps`, only in their workspace directory. Raises
    FileError on system errors."""
    try:
        with opened_root(root, _root_inode(steps)) as top:
            with suppress(FileNotFoundError), opened_directory(top, [_staging(tag)]) as there:
                for name in os.listdir(there):
                    os.unlink(name, dir_fd=there)
            with suppress(FileNotFoundError):
                os.rmdir(_staging(tag), dir_fd=top)
            os.fsync(top)
    except WorkspaceGone:
        return
    except OSError as error:
        raise FileError(f"{_staging(tag)} can not be removed from {root}: {error.strerror}") from None


def _obstacle(top: int, tag: str, step: PutBack, going: set[str]) -> str | None:
    """Return why a step is neither done nor possible, in words; None if it is either."""
    try:
        current = sign(top, step.path)
        if step.staged is None:
            # A directory in its place: an earlier attempt removed the file and restored others below that name.
            known = current in (step.before, NOTHING, DIRECTORY)
            return None if known and _may_change(top, step.path) else _changed(step, current)
        with suppress(FileNotFoundError), opened_directory(top, [_staging(tag)]) as there:
            if sign_at(there, step.staged) != step.after:
                return None if current == step.after else f"what is staged for {step.path} is missing or damaged"
            if current == DIRECTORY:
                return None if will_be_empty(top, step.path, going) else f"{step.path} is a directory with files in it"
            known = current in (step.before, step.after, NOTHING)
            return None if known and _may_change(top, step.path) else _changed(step, current)
        return None if current == step.after else f"what is staged for {step.path} is missing or damaged"
    except OSError as error:
        return f"{step.path} can not be looked at ({(error.strerror or 'unknown').lower()})"


def _changed(step: PutBack, current: str) -> str:
    if current in (step.before, step.after, NOTHING):
        return f"the directory of {step.path} can not be written to"
    return f"{step.path} changed in between"


def _may_change(top: int, path: str) -> bool:
    """Whether the nearest existing directory above `path` is writable."""
    above = names(path)[:-1]
    while True:
        try:
            with opened_directory(top, above) as fd:
                return os.access(".", os.W_OK | os.X_OK, dir_fd=fd)
        except (FileNotFoundError, NotADirectoryError):
            above = above[:-1]


def _remove(top: int, step: PutBack, touched: set[str]) -> None:
    """Remove a file, and the directories above it that become empty."""
    *above, name = names(step.path)
    try:
        with opened_directory(top, above) as parent:
            current = sign_at(parent, name)
            if current == step.before:
                os.unlink(name, dir_fd=parent)
                crash_points.reach("restore.placed_one")
            elif current not in (NOTHING, DIRECTORY):
                raise _changed_late(step)
    except (FileNotFoundError, NotADirectoryError):
        return
    touched.add("/".join(above))
    while above:
        *above, name = above
        try:
            with opened_directory(top, above) as parent:
                os.rmdir(name, dir_fd=parent)
        except OSError:
            return
        touched.add("/".join(above))


def _place(top: int, there: int, step: PutBack, staged: str) -> None:
    """Move a staged file to its final name.

    A file that changed or appeared there since the check is not overwritten, because no checkpoint holds it. If there
    was no file, a hard link is used, which fails if one exists; a rename would overwrite it.
    """
    *above, name = names(step.path)
    with opened_directory(top, above, create=True) as parent:
        current = sign_at(parent, name)
        if current not in (step.before, step.after, NOTHING, DIRECTORY):
            raise _changed_late(step)
        if current == DIRECTORY:
            _clear(parent, name)
            current = NOTHING
        if current == NOTHING:
            try:
                os.link(staged, name, src_dir_fd=there, dst_dir_fd=parent, follow_symlinks=False)
                os.unlink(staged, dir_fd=there)
            except OSError as error:
                if error.errno == errno.EEXIST:
                    raise
                os.rename(staged, name, src_dir_fd=there, dst_dir_fd=parent)  # a file system without hard links
        else:
            os.rename(staged, name, src_dir_fd=there, dst_dir_fd=parent)
            with suppress(FileNotFoundError):
                # Renaming onto another name of the same file does nothing.
                os.unlink(staged, dir_fd=there)
        crash_points.reach("restore.placed_one")


def _changed_late(step: PutBack) -> ApplyStuck:
    return ApplyStuck(f"putting files back stopped: {step.path} changed in between", reasons=(step.path,))


def _clear(parent: int, name: str) -> None:
    """Remove a directory that contains only empty directories."""
    with opened_directory(parent, [name]) as fd:
        for below in os.listdir(fd):
            _clear(fd, below)
    os.rmdir(name, dir_fd=parent)


def _root_inode(steps: Sequence[PutBack]) -> int | None:
    return steps[0].root_inode if steps else None


def _staging(tag: str) -> str:
    return f".intercom-restore-{tag}"
