"""A manifest: the state of the files of a workspace at one instant, by path.

It is stored in two parts: the hashes of regular files, which other programs read too, and the remaining facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class FileState:
    """One file. `hash` is the SHA-256 of its bytes; for a symbolic link it is that of the target, which is `link`.
    `mode` holds the permission bits, or 0 for a link. `kept` means that its content can be restored."""

    hash: str
    mode: int
    link: str | None = None
    kept: bool = True

    @property
    def sign(self) -> str:
        """Kind and content as one text. States with the same sign have the same content; their modes may differ."""
        return f"{'file' if self.link is None else 'link'}:{self.hash}"


@frozen
class LeftOut:
    """A reason why files are not in a manifest, their number (at least), and some examples."""

    why: str
    count: int
    examples: tuple[str, ...] = ()


@frozen
class Manifest:
    """The files of a workspace. `files` is keyed by the path in the workspace, with `/` between names; `size` is their
    total size in bytes. `whole` is false if a limit ended the scan early. `skipped` are paths, also of directories,
    that were seen but could not be included. `unclear` are requested paths that could not be read. `root_inode` is the
    inode number of the workspace directory, if this was just made from it."""

    files: Mapping[str, FileState]
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()
    whole: bool = True
    skipped: tuple[str, ...] = ()
    unclear: frozenset[str] = field(default=frozenset(), eq=False)
    root_inode: int | None = field(default=None, eq=False)

    def hashes(self) -> dict[str, str]:
        """Return the hashes of the regular files, by path."""
        return {path: state.hash for path, state in self.files.items() if state.link is None}

    def facts(self) -> dict[str, Any]:
        """Return everything else, as JSON data. The most common mode is stored only once."""
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
    """Rebuild a manifest from its `hashes` and `facts`, which may have been stored as JSON. Without facts (a row of
    another program) it is not whole, and no content is kept."""
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
