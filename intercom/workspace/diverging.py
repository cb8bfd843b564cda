"""Differences between a workspace and a checkpoint of it. Pure, except for reading rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from intercom.model.checkpoint import Divergence, DivergenceKind
from intercom.model.manifest import FileState, Manifest
from intercom.workspace import ignoring
from intercom.workspace.ignoring import Rules

_ABSENT = FileState("", 0)


def divergences(
    then: Manifest, now: Manifest, ignored_then: Callable[[str], bool] = lambda _: False
) -> list[Divergence]:
    """Return every file that differs, sorted by path.

    A file counts as added only if it certainly did not exist then. So nothing is added if the manifest `then` is not
    whole, nor is a file that was left out then or was `ignored_then`. Files that cannot be read now are not included.
    """
    found = []
    for path, was in then.files.items():
        found_now = now.files.get(path)
        if found_now is None:
            if path not in now.unclear:
                found.append(Divergence(path, DivergenceKind.DELETED))
        elif (found_now.sign, found_now.mode) != (was.sign, was.mode):
            found.append(Divergence(path, DivergenceKind.MODIFIED))
    if then.whole:
        skipped = frozenset(then.skipped)
        found += [
            Divergence(path, DivergenceKind.ADDED)
            for path in now.files.keys() - then.files.keys()
            if not _is_below(path, skipped) and not ignored_then(path)
        ]
    return sorted(found, key=lambda each: each.path)


def digest(found: list[Divergence], now: Manifest, remarked: Iterable[str] = ()) -> str:
    """Return a hash of these divergences, the files' present content and the remarks on them. It is equal only while
    nothing changes, and in the same workspace directory."""
    sum = hashlib.sha256(f"{now.root_inode}\n".encode())
    for each in found:
        state = now.files.get(each.path, _ABSENT)
        sum.update(f"{each.kind.value}\0{each.path}\0{state.sign}\0{state.mode}\n".encode("utf-8", "surrogatepass"))
    for each_remark in remarked:
        sum.update(f"remark\0{each_remark}\n".encode("utf-8", "surrogatepass"))
    return sum.hexdigest()


def rules_of(
    then: Manifest, read: Callable[[str], bytes | None], hurry: Callable[[], None] = lambda: None
) -> Mapping[str, Rules] | None:
    """Return the .gitignore rules in force when the manifest was made, by directory.

    `read` returns contents by hash. Returns None if the content of a rules file is not available. `hurry` is called
    before each, and raises to cancel.
    """
    rules: dict[str, Rules] = {}
    for path, state in then.files.items():
        directory, _, name = path.rpartition("/")
        if name == ignoring.NAME and state.link is None:
            hurry()
            data = read(state.hash) if state.kept else None
            if data is None:
                return None
            rules[directory] = ignoring.read_rules(data)
    return rules


def _is_below(path: str, directories: frozenset[str]) -> bool:
    if not directories:
        return False
    names = path.split("/")
    return any("/".join(names[: i + 1]) in directories for i in range(len(names)))
