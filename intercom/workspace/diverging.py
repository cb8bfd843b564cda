"""How a workspace differs from a checkpoint of it. Pure, but for the reading of rules."""

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
    """Every file that is not as it was, sorted by path.

    A file is added only if it is certain not to have been there: where the manifest of then is not whole nothing is,
    nor is what could not be taken in then, or was `ignored_then`. What could not be read now is not among them.
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
    """What names these divergences, what the files hold now and what else is `remarked` of them: the same again only
    while nothing changed, and in the same workspace directory."""
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
    """The .gitignore rules that held when the manifest was made, by directory; `read` gives contents by hash. None
    where one of them can not be had any more. `hurry` is called before each, and raises what is to end this."""
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
