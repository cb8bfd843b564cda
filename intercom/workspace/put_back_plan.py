"""The plan of a restore, file by file, and the files that cannot be restored. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from intercom.model.checkpoint import Divergence, DivergenceKind
from intercom.model.manifest import FileState, Manifest

#: The sign of a missing file.
NOTHING = "nothing"
#: Why a file is blocked if a directory has its name.
IN_THE_WAY = "a directory that is not empty stands there now"


@frozen
class PutBack:
    """One file's step, as a journal stores it.

    `before` and `after` are the signs of its present and its restored state, NOTHING for no file. `mode` and `link` are
    those of the restored file. `staged` is the name of the staged file, None for a removal. `root_inode` is the inode
    number of the workspace directory, None if unknown.
    """

    path: str
    before: str
    after: str
    mode: int = 0
    link: str | None = None
    staged: str | None = None
    root_inode: int | None = None

    @property
    def hash(self) -> str:
        """The hash of the restored content."""
        return self.after.partition(":")[2]

    def to_json(self) -> dict[str, Any]:
        """Return the step as a JSON object."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> PutBack:
        """Return the step of a `to_json` object."""
        return PutBack(**data)


@frozen
class Blocked:
    """A file that cannot be restored, and why."""

    path: str
    why: str


@frozen
class PutBackPlan:
    steps: tuple[PutBack, ...]
    blocked: tuple[Blocked, ...]


def plan(
    then: Manifest, now: Manifest, found: Sequence[Divergence], missing: Collection[str], *, exact: bool
) -> PutBackPlan:
    """Return how to undo `found`, the divergences between the two manifests. `missing` are the hashes whose content
    is not available. With `exact`, files added since are removed."""
    going = {each.path for each in found if each.kind is DivergenceKind.ADDED} if exact else set()
    staying = now.files.keys() - going
    directories = _directories(staying)
    steps = [PutBack(path, now.files[path].sign, NOTHING, root_inode=now.root_inode) for path in sorted(going)]
    blocked = []
    for each in found:
        if each.kind is DivergenceKind.ADDED:
            continue
        state = then.files[each.path]
        why = _obstacle(each.path, state, staying, directories, missing)
        if why is not None:
            blocked.append(Blocked(each.path, why))
            continue
        current = now.files.get(each.path)
        before = NOTHING if current is None else current.sign
        steps.append(PutBack(each.path, before, state.sign, state.mode, state.link, str(len(steps)), now.root_inode))
    return PutBackPlan(tuple(steps), tuple(blocked))


def _obstacle(
    path: str, state: FileState, staying: Collection[str], directories: Collection[str], missing: Collection[str]
) -> str | None:
    if state.link is None and (not state.kept or state.hash in missing):
        return "its content was not kept"
    if path in directories:
        return IN_THE_WAY
    names = path.split("/")
    for i in range(1, len(names)):
        above = "/".join(names[:i])
        if above in staying:
            return f"{above} is a file or link now"
    return None


def _directories(paths: Collection[str]) -> set[str]:
    """Return every directory above one of the paths."""
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found
