"""A manifest: what the files of a workspace were at one instant, by path.

It is kept in two parts: the hashes of regular files, as other programs read them, and the facts that go with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class FileState:
    """One file. `hash` is the SHA-256 of its bytes, of a symbolic link's target for a link, whose target is `link`;
    `mode` holds permission bits, 0 for a link. `kept` says that its content can be had again."""

    hash: str
    mode: int
    link: str | None = None
    kept: bool = True

    @property
    def sign(self) -> str:
        """Kind and content in one word: two states with the same sign hold the same, whatever their modes."""
        return f"{'file' if self.link is None else 'link'}:{self.hash}"


@frozen
class LeftOut:
    """Why some files are not in a manifest, how many (at least), and a few of them."""

    why: str
    count: int
    examples: tuple[str, ...] = ()


@frozen
class Manifest:
    """`files` by path relative to the workspace, with `/` between names. `size` is their bytes together. `whole` is
    false when a limit ended the look before everything was seen; `skipped` are paths (of directories too) that were
    seen and could not be taken in; `unclear` those that were asked about and could not be read. `root_inode` is the
    inode number of the workspace directory, where this was just made of it."""

    files: Mapping[str, FileState]
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()
    whole: bool = True
    skipped: tuple[str, ...] = ()
    unclear: frozenset[str] = field(default=frozenset(), eq=False)
    root_inode: int | None = field(default=None, eq=False)

    def hashes(self) -> dict[str, str]:
        """The regular files' hashes by path."""
        return {path: state.hash for path, state in self.files.items() if state.link is None}

    def facts(self) -> dict[str, Any]:
        """Everything else, as JSON holds it; what most files have in common is said once."""
        regular = {path: state for path, state in self.files.items() if state.link is None}
        common = Counter(state.mode for state in regular.values()).most_common(1)
        mode = common[0][0] if common else 0o644
        return {
            "mode": mode,
            "modes": {path: state.mode for path, state in regular.items() if state.mode != mode},
            "links": {path: [state.hash, state.link] for path, state in self.files.items() if state.link is not None},
            "not_kept": [path for path, state in regular.items() if not state.kept],
            "size": self.size,
            "whole": self.whole,
            "skipped": list(self.skipped),
            "left_out": [[each.why, each.count, list(each.examples)] for each in self.left_out],
        }


def manifest_of(hashes: Mapping[str, str], facts: Mapping[str, Any]) -> Manifest:
    """What `hashes` and `facts` gave, also after a journey through JSON. Without facts (a row of another program) it is
    not whole, and no content is kept."""
    mode, modes = facts.get("mode", 0o644), facts.get("modes", {})
    not_kept = set(facts.get("not_kept", ())) if facts else set(hashes)
    files = {path: FileState(hash, modes.get(path, mode), None, path not in not_kept) for path, hash in hashes.items()}
    files |= {path: FileState(hash, 0, target) for path, (hash, target) in facts.get("links", {}).items()}
    return Manifest(
        files=files,
        size=facts.get("size", 0),
        left_out=tuple(LeftOut(why, count, tuple(some)) for why, count, some in facts.get("left_out", ())),
        whole=facts.get("whole", False),
        skipped=tuple(facts.get("skipped", ())),
    )
