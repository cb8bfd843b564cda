"""The file transaction: all files of a plan change or none, also if the process dies on the way.

Applies and restores change files through it. The caller holds the workspace's lock and does, in this order: `prepare`,
and persist the steps in its journal; `stage`; mark the journal committed; `roll_forward`; mark it done. After a crash
it reads the journal. If not committed, it calls `discard`; if committed, it calls `roll_forward` until that succeeds.

New contents are staged in the nearest existing directory above each file, so on the same file system. Nothing is ever
opened through a link.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
from attrs import evolve, frozen

from intercom.model import crash_points
from intercom.model.errors import ApplyStuck, FileError, PathViolation
from intercom.workspace.files import (
    ABSENT,
    DIRECTORY,
    STAGED,
    WorkspaceGone,
    directories_above,
    directory_of,
    file_fingerprint,
    fingerprint,
    fingerprint_at,
    first_blocked,
    missing_directories,
    name_of,
    names,
    opened_directory,
    opened_parent,
    opened_root,
    will_be_empty,
)

_TAG = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: How many obstacles a message names.
_NAMED = 5


@frozen
class Step:
    """The change of one file, as a journal stores it.

    `before` and `after` are the fingerprints of its present and its new state, ABSENT for no file. `mode` holds the new
    permission bits, `link` the target of a new link, `size` the new content's size in bytes. `moved_from` is the path
    from which the file is renamed; another step removes it there.

    `strict`: the file must still be as `before` says, and no directory is removed. Otherwise the file may also be gone
    or an empty directory, because what it held is stored elsewhere; and directories that become empty are removed.

    `prepare` adds the rest. `staged` is the path of the staged file, None for a removal. `made` are the directories
    that do not exist yet, outermost first. `root_id` identifies the workspace directory, None if unknown.
    """

    path: str
    before: str
    after: str
    mode: int = 0
    link: str | None = None
    size: int = 0
    moved_from: str | None = None
    strict: bool = True
    staged: str | None = None
    made: tuple[str, ...] = ()
    root_id: int | None = None

    @property
    def act(self) -> tuple[object, ...]:
        """What the step does, without how."""
        return (self.path, self.before, self.after, self.link, self.moved_from, self.strict)

    def accepts(self, current: str) -> bool:
        """Whether a file with the fingerprint `current` may be replaced, or is in place already."""
        return current in (self.before, self.after) or (not self.strict and current in (ABSENT, DIRECTORY))


def _opened(root: Path, steps: Sequence[Step]) -> AbstractContextManager[int]:
    return opened_root(root, steps[0].root_id if steps else None)


def prepare(root: Path, tag: str, steps: Sequence[Step], root_id: int | None) -> tuple[Step, ...]:
    """Complete the steps of a plan, to be persisted before anything is staged. Writes nothing. `tag`, the id of the
    request or restore, becomes part of the staged files' names. Raises FileError."""
    name = tag if _TAG.fullmatch(tag) else hashlib.sha256(tag.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    missing: dict[str, tuple[str, ...]] = {}
    try:
        with opened_root(root, root_id) as top:
            for step in steps:
                directory = directory_of(step.path)
                if step.after != ABSENT and directory not in missing:
                    missing[directory], _ = missing_directories(top, step.path)
    except OSError as error:
        raise FileError(f"the files cannot be staged in {root}: {error.strerror}") from None
    prepared = []
    for number, step in enumerate(steps):
        if step.after == ABSENT:
            prepared.append(evolve(step, root_id=root_id))
        else:
            made = missing[directory_of(step.path)]
            beside = PurePosixPath(made[0] if made else step.path)
            staged = str(beside.with_name(f".intercom-{name}-{number}.tmp"))
            prepared.append(evolve(step, staged=staged, made=made, root_id=root_id))
    return tuple(prepared)


def stage(root: Path, steps: Sequence[Step], read: Callable[[str], bytes | None]) -> None:
    """Write the new contents under the steps' staged names, then check that every step is possible.

    What is staged is on disk on return, and no file of the workspace has changed. `read` returns contents by SHA-256.
    Raises ApplyStuck if a file has changed, FileError and PathViolation. Then the caller discards the steps.
    """
    touched, path = set(), ""
    with _opened(root, steps) as top:
        try:
            for step in steps:
                if step.staged is not None:
                    path = step.path
                    with opened_parent(top, step.staged) as parent:
                        _write_staged(parent, name_of(step.staged), step, read)
                    touched.add(directory_of(step.staged))
            _sync(top, touched)
        except OSError as error:
            raise FileError(f"{path} cannot be written: {error.strerror}") from None
        crash_points.reach("files.staged")
        _verify(top, steps)


def _write_staged(parent: int, name: str, step: Step, read: Callable[[str], bytes | None]) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)  # left by an earlier attempt
    if step.link is not None:
        os.symlink(step.link, name, dir_fd=parent)
        return
    data = read(step.after.partition(":")[2])
    if data is None:
        raise FileError(f"the content of {step.path} is no longer stored")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=parent)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(fd, step.mode)
        os.fsync(fd)


def roll_forward(root: Path, steps: Sequence[Step]) -> None:
    """Bring every file to its new state. Steps already done are skipped.

    No file changes unless every step is possible. Raises ApplyStuck if a file is in neither its old nor its new state,
    and on system errors; FileError if the workspace is another directory. Then the steps can be rolled forward again
    after the cause is repaired.
    """
    with _opened(root, steps) as top:
        _verify(top, steps)
        removals = [step for step in steps if step.staged is None]
        placed = [step for step in steps if step.staged is not None]
        first = _in_the_way(removals, placed)
        # Other removals come last, so that a renamed file's content is always in one of its two places.
        _carry_out(top, [step for step in removals if step.path in first], _make_room)
        _carry_out(top, placed, _place)
        _carry_out(top, [step for step in removals if step.path not in first], _remove)
    discard(root, steps)


def _carry_out(top: int, steps: Iterable[Step], act: Callable[[int, Step, set[str]], None]) -> None:
    """Do these steps; they are on disk on return."""
    touched: set[str] = set()
    path = ""
    try:
        for step in steps:
            path = step.path
            act(top, step, touched)
        _sync(top, touched)
    except OSError as error:
        raise ApplyStuck(f"stopped at {path}: {error.strerror}", paths=(path,)) from None


def _in_the_way(removals: Sequence[Step], placed: Sequence[Step]) -> set[str]:
    """Return the paths of the removals that make room for other steps: a file where a directory comes, and the files
    of a directory that a file replaces."""
    places = {step.path for step in placed}
    directories = {above for step in placed for above in directories_above(step.path)}
    return {
        step.path
        for step in removals
        if step.path in directories or not places.isdisjoint(directories_above(step.path))
    }


def discard(root: Path, steps: Sequence[Step]) -> None:
    """Remove staged files, and the directories of `made` that are empty. Other files are not touched. Skips what is
    missing, even the whole workspace, and what can only be reached through a link. Raises FileError."""
    staged = [step.staged for step in steps if step.staged is not None and _is_staged(step.staged)]
    made = sorted({made for step in steps for made in step.made}, key=lambda path: -path.count("/"))
    try:
        with _opened(root, steps) as top:
            for path in staged:
                _clear_away(top, path, os.unlink)
            for path in made:
                _clear_away(top, path, os.rmdir)
            _sync(top, {directory_of(path) for path in (*staged, *made)})
    except WorkspaceGone:
        return
    except OSError as error:
        raise FileError(f"what was staged in {root} cannot be removed: {error.strerror}") from None


def _clear_away(top: int, path: str, remove: Callable[..., None]) -> None:
    try:
        with opened_parent(top, path) as parent:
            remove(name_of(path), dir_fd=parent)
    except (FileNotFoundError, PathViolation):
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileError(f"{path} cannot be removed: {error.strerror}") from None


# --- is a step done or possible? -------------------------------------------------------------------------------------


def _verify(top: int, steps: Sequence[Step]) -> None:
    placed = {step.path for step in steps if step.staged is not None}
    removed = {step.path for step in steps if step.staged is None}
    found = [why for step in steps if (why := _obstacle(top, step, placed, removed)) is not None]
    if found:
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise ApplyStuck(
            f"the files cannot be changed: {'; '.join(found[:_NAMED])}{more}",
            paths=tuple(step.path for step in steps),
            reasons=tuple(found),
        )


def _obstacle(top: int, step: Step, placed: set[str], removed: set[str]) -> str | None:
    """Return why a step is neither done nor possible, in words; None if it is either."""
    try:
        if step.staged is None:
            return _obstacle_to_removal(top, step, _fingerprint(top, step.path, placed))
        return _obstacle_to_placing(top, step, step.staged, _fingerprint(top, step.path, removed), removed)
    except NotADirectoryError:
        return f"{first_blocked(top, step.path)} is a symbolic link or not a directory"
    except OSError as error:
        return f"{step.path} cannot be looked at: {(error.strerror or 'unknown').lower()}"


def _fingerprint(top: int, path: str, others: set[str]) -> str:
    """Do as `fingerprint`. A file or link above `path` is no error if its path is one of `others`: a step replaces a
    directory by it, or removes it where a directory comes."""
    try:
        return fingerprint(top, path)
    except NotADirectoryError:
        if others.isdisjoint(directories_above(path)):
            raise
        return ABSENT


def _obstacle_to_removal(top: int, step: Step, current: str) -> str | None:
    if not step.accepts(current):
        return _changed(step, current)
    missing, _ = missing_directories(top, step.path)
    with opened_directory(top, names(directory_of(missing[0] if missing else step.path))) as nearest:
        may_write = current != step.before or os.access(".", os.W_OK | os.X_OK, dir_fd=nearest)
    return None if may_write else f"the directory of {step.path} cannot be written to"


def _obstacle_to_placing(top: int, step: Step, staged: str, current: str, removed: set[str]) -> str | None:
    content = _fingerprint(top, staged, {directory_of(staged)}) if _is_staged(staged) else ABSENT
    if current == step.after and content in (ABSENT, step.after):
        return None
    if not step.accepts(current):
        return _changed(step, current)
    if current == DIRECTORY and not will_be_empty(top, step.path, removed):
        return f"{step.path} is a directory with files in it"
    if step.moved_from is not None and fingerprint(top, step.moved_from) == ABSENT:
        return f"{step.moved_from} is gone, and {step.path} is not there"
    return None if content == step.after else f"what is staged for {step.path} is missing or damaged"


def _changed(step: Step, current: str) -> str:
    is_link = current.startswith("link:") and not step.before.startswith("link:")
    return f"{step.path} {'is a symbolic link now' if is_link else 'changed in between'}"


def _is_staged(path: str) -> bool:
    """Whether a path, which a journal names, is one of a staged file. Only those are renamed and removed."""
    parts = path.split("/")
    return not {"", ".", ".."}.intersection(parts) and any(map(STAGED.fullmatch, parts))


# --- doing a step ----------------------------------------------------------------------------------------------------


def _remove(top: int, step: Step, touched: set[str]) -> None:
    """Remove a file and, unless the step is strict, the directories that this leaves empty."""
    *above, name = names(step.path)
    try:
        with opened_directory(top, above) as parent:
            current = fingerprint_at(parent, name)
            if not step.accepts(current):
                raise _stopped(step)
            if current == step.before:
                os.unlink(name, dir_fd=parent)
                touched.add("/".join(above))
                crash_points.reach("files.placed_one")
    except FileNotFoundError:
        pass
    while above and not step.strict:
        *above, name = above
        try:
            with opened_directory(top, above) as parent:
                os.rmdir(name, dir_fd=parent)
            touched.add("/".join(above))
        except FileNotFoundError:
            continue  # an earlier attempt removed it
        except OSError:
            return


def _make_room(top: int, step: Step, touched: set[str]) -> None:
    """Remove what is in the way, unless an earlier attempt did and something else is there already."""
    with suppress(NotADirectoryError):
        _remove(top, step, touched)


def _place(top: int, step: Step, touched: set[str]) -> None:
    """Give the staged file its final name.

    The last check is in the open directory that the file goes into, because directories above may have been renamed. A
    file that appears there meanwhile is not overwritten: a hard link fails if the name exists. The staged name remains
    beside a link until everything is on disk.
    """
    if step.staged is None or not _is_staged(step.staged):
        return
    *above, name = names(step.path)
    with ExitStack() as stack:
        try:
            staging = stack.enter_context(opened_directory(top, names(step.staged)[:-1]))
        except FileNotFoundError:
            return  # an earlier attempt finished
        staged = fingerprint_at(staging, name_of(step.staged))
        if staged == ABSENT:
            return
        parent = stack.enter_context(opened_directory(top, above, create=True))
        current = fingerprint_at(parent, name)
        if staged != step.after or not step.accepts(current):
            raise _stopped(step)
        if current == DIRECTORY:
            _clear(parent, name)
        _link_or_rename(staging, name_of(step.staged), parent, name, is_new=current in (ABSENT, DIRECTORY))
    touched.update({directory_of(step.staged), "/".join(above)})
    crash_points.reach("files.placed_one")


def _link_or_rename(staging: int, staged: str, parent: int, name: str, *, is_new: bool) -> None:
    if is_new:
        try:
            os.link(staged, name, src_dir_fd=staging, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise
        else:
            return
        # The file system has no hard links.
    os.rename(staged, name, src_dir_fd=staging, dst_dir_fd=parent)


def _clear(parent: int, name: str) -> None:
    """Remove a directory that contains only empty directories."""
    with opened_directory(parent, [name]) as fd:
        for below in os.listdir(fd):
            _clear(fd, below)
    os.rmdir(name, dir_fd=parent)


def _stopped(step: Step) -> ApplyStuck:
    return ApplyStuck(f"stopped at {step.path}: it changed in between", paths=(step.path,))


def _sync(top: int, directories: Iterable[str]) -> None:
    for directory in directories:
        with suppress(FileNotFoundError, NotADirectoryError), opened_directory(top, names(directory)) as fd:
            os.fsync(fd)


# --- the journal's text ----------------------------------------------------------------------------------------------


def to_text(steps: Iterable[Step]) -> str:
    """Return the steps as a JSON array, without fields that have their default. There may be many steps, so call it in
    a worker thread."""
    objects = (attrs.asdict(step, filter=_is_recorded) for step in steps)
    return f"[{','.join(json.dumps(each, separators=(',', ':')) for each in objects)}]"


def _is_recorded(attribute: attrs.Attribute[Any], value: object) -> bool:
    return attribute.name == "strict" or value != attribute.default


def from_text(text: str, tag: str) -> tuple[Step, ...]:
    """Return the steps in the journal of `tag`. Reads those of older servers too."""
    return tuple(step for each in json.loads(text) for step in _read(each, tag))


def _read(data: Mapping[str, Any], tag: str) -> Iterator[Step]:
    if "kind" in data:
        yield from _read_older_apply(data)
    elif "strict" not in data:
        yield _read_older_restore(data, tag)
    else:
        known = {name: data[name] for name in attrs.fields_dict(Step) if name in data}
        yield Step(**{**known, "made": tuple(data.get("made", ()))})


def _read_older_apply(data: Mapping[str, Any]) -> Iterator[Step]:
    """Read a step of an older server, which is one for both ends of a rename, and is staged beside its target."""
    path, old_path, root_id = data["path"], data["old_path"], data.get("root_inode")
    before = file_fingerprint(data["before_hash"])
    if data["temp"] is None:
        yield Step(path, before, ABSENT, root_id=root_id)
        return
    yield Step(
        path=path,
        before=before if old_path is None else ABSENT,
        after=file_fingerprint(data["after_hash"]),
        mode=data["mode"] or 0,
        size=data.get("size", 0),
        moved_from=old_path,
        staged=str(PurePosixPath(path).with_name(data["temp"])),
        made=tuple(data["made"]),
        root_id=root_id,
    )
    if old_path is not None:
        yield Step(old_path, before, ABSENT, root_id=root_id)


def _read_older_restore(data: Mapping[str, Any], tag: str) -> Step:
    """Read a step of an older server, which is staged in a directory at the top of the workspace."""
    staging = f".intercom-restore-{tag}"
    is_removal = data["staged"] is None
    return Step(
        path=data["path"],
        before=data["before"],
        after=data["after"],
        mode=data["mode"],
        link=data["link"],
        strict=False,
        staged=None if is_removal else f"{staging}/{data['staged']}",
        made=() if is_removal else (staging,),
        root_id=data.get("root_inode"),
    )
