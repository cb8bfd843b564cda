"""Random workspaces, as a model that can be written to disk and read back."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from attrs import frozen
from hypothesis import strategies as st


@frozen
class Thing:
    """A file with its bytes and mode, or a link (`mode` 0) with its target."""

    data: bytes
    mode: int


Tree = dict[str, Thing]

names = st.sampled_from(["a", "b", "c.txt", "D", "é", "x y", "-", "new\nline", "b\\c"])
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
files = st.builds(
    Thing,
    st.sampled_from([b"", b"one\n", b"two\r\n", b"\x00\xff" * 40, b"long " * 999]),
    st.sampled_from([0o644, 0o600, 0o755, 0o440]),
)
links = st.builds(Thing, st.sampled_from([b"a", b"../outside", b"nowhere/at all", b"/etc/passwd"]), st.just(0))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    made: Tree = {}
    for path, thing in draw(st.dictionaries(paths, st.one_of(files, files, files, links), max_size=8)).items():
        above = [path[:at] for at, char in enumerate(path) if char == "/"]
        if not any(each in made for each in above) and not any(each.startswith(f"{path}/") for each in made):
            made[path] = thing
    return made


@st.composite
def changed(draw: st.DrawFn, before: Tree) -> Tree:
    """A tree that some of another's files are still in."""
    after = draw(trees())
    for path, thing in before.items():
        above = [path[:at] for at, char in enumerate(path) if char == "/"]
        free = not any(each in after for each in above) and not any(each.startswith(f"{path}/") for each in after)
        if free and draw(st.integers(0, 3)):
            after[path] = thing
    return after


def put(root: Path, tree: Tree) -> None:
    """Make the workspace hold exactly this."""
    if root.exists():
        shutil.rmtree(root)
    root.mkdir(mode=0o755)
    for path, thing in tree.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if thing.mode == 0:
            os.symlink(os.fsdecode(thing.data), file)
        else:
            file.write_bytes(thing.data)
            file.chmod(thing.mode)


def found(root: Path) -> Tree:
    """What the workspace holds."""
    tree: Tree = {}
    for directory, below, here in os.walk(root):
        for name in [*here, *(each for each in below if (Path(directory) / each).is_symlink())]:
            file = Path(directory) / name
            path = str(file.relative_to(root))
            if file.is_symlink():
                tree[path] = Thing(os.fsencode(os.readlink(file)), 0)
            else:
                tree[path] = Thing(file.read_bytes(), file.stat().st_mode & 0o777)
    return tree
