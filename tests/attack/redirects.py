"""Ways to have approved bytes written elsewhere than at the path that was shown, as a table.

Each has a proposal (`path`, and `diff` or a whole text), what the tree is made of before, and what an attacker does
between approval and apply. Nothing but the recorded path may change, and that only to the approved bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

TEXT = "approved\n"


def patch(path: str, before: str = "old", after: str = "approved") -> str:
    return f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{before}\n+{after}\n"


@frozen
class Redirect:
    """`attack` is given the workspace and a directory outside of it."""

    name: str
    attack: Callable[[Path, Path], object]
    path: str = "docs/pre-commit"
    diff: str = TEXT


def prepare(root: Path, outside: Path) -> None:
    """What every workspace holds before the proposal."""
    for directory in (".git/hooks", ".intercom", "docs", "src/deep", "bin"):
        (root / directory).mkdir(parents=True)
    (root / "docs/guide.md").write_text("old\n")
    (root / "src/deep/a.txt").write_text("old\n")
    (root / "bin/run.sh").write_text("old\n")
    (root / "CLAUDE.md").write_text("old\n")
    (root / ".git/config").write_text("[core]\n")
    (outside / "hooks").mkdir()
    (outside / "guide.md").write_text("old\n")
    (outside / "a.txt").write_text("old\n")


def _link_directory(target: str) -> Callable[[Path, Path], None]:
    def attack(root: Path, outside: Path) -> None:
        shutil.rmtree(root / "docs")
        (root / "docs").symlink_to(target.format(outside=outside))

    return attack


def _link_file(path: str, target: str) -> Callable[[Path, Path], None]:
    def attack(root: Path, outside: Path) -> None:
        (root / path).unlink(missing_ok=True)
        (root / path).symlink_to(target.format(outside=outside, root=root))

    return attack


def _hard_link(path: str, target: str) -> Callable[[Path, Path], None]:
    def attack(root: Path, outside: Path) -> None:
        (root / path).unlink(missing_ok=True)
        os.link(target.format(outside=outside, root=root), root / path)

    return attack


def _replace_root(root: Path, outside: Path) -> None:
    root.rename(root.with_name(root.name + ".moved"))
    root.symlink_to(outside)
    (outside / "docs").mkdir()


def _other_root(root: Path, outside: Path) -> None:
    root.rename(root.with_name(root.name + ".moved"))
    shutil.copytree(root.with_name(root.name + ".moved"), root, symlinks=True)


def _exchange_parents(root: Path, outside: Path) -> None:
    (root / "src/deep").rename(root / "src/was")
    (root / "src/deep").symlink_to(outside)


def _fifo(root: Path, outside: Path) -> None:
    (root / "docs/guide.md").unlink()
    os.mkfifo(root / "docs/guide.md")


def _directory_for_file(root: Path, outside: Path) -> None:
    (root / "docs/guide.md").unlink()
    (root / "docs/guide.md").mkdir()


def _file_for_directory(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "docs")
    (root / "docs").write_text("a file\n")


def _moved_directory(root: Path, outside: Path) -> None:
    (root / "docs").rename(outside / "docs")
    (root / "docs").symlink_to(outside / "docs")


def _chain(root: Path, outside: Path) -> None:
    (root / "one").symlink_to(outside)
    shutil.rmtree(root / "docs")
    (root / "docs").symlink_to("one")


def _proc(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "docs")
    (root / "docs").symlink_to(f"/proc/{os.getpid()}/cwd")


def _edited(root: Path, outside: Path) -> None:
    (root / "docs/guide.md").write_text("a person's later edit\n")


def _appeared(root: Path, outside: Path) -> None:
    (root / "docs/pre-commit").write_text("a person's own file\n")


def _link_to_protected_with_equal_bytes(root: Path, outside: Path) -> None:
    (root / "docs/guide.md").unlink()
    (root / "docs/guide.md").symlink_to("../CLAUDE.md")


REDIRECTS: tuple[Redirect, ...] = (
    Redirect("the directory becomes a link to git's hooks", _link_directory(".git/hooks")),
    Redirect("the directory becomes a link to the policy's", _link_directory(".intercom"), "docs/settings.json"),
    Redirect("the directory becomes an absolute link outside", _link_directory("{outside}/hooks")),
    Redirect("the directory becomes a relative link outside", _link_directory("../../../../../../{outside}/hooks")),
    Redirect("the directory becomes a link to the workspace itself", _link_directory("."), "docs/CLAUDE.md"),
    Redirect("a chain of links leads outside", _chain),
    Redirect("a link through /proc", _proc),
    Redirect("the directory is moved outside and linked", _moved_directory),
    Redirect("a new file's place becomes a link", _link_file("docs/pre-commit", "../.git/hooks/pre-commit")),
    Redirect("a new file's place becomes a link to nowhere outside", _link_file("docs/pre-commit", "{outside}/new")),
    Redirect(
        "a patched file becomes a link to one alike",
        _link_file("docs/guide.md", "{outside}/guide.md"),
        "docs/guide.md",
        patch("docs/guide.md"),
    ),
    Redirect(
        "a patched file becomes a link to a protected one alike",
        _link_to_protected_with_equal_bytes,
        "docs/guide.md",
        patch("docs/guide.md"),
    ),
    Redirect(
        "a patched file becomes a hard link to a protected one",
        _hard_link("docs/guide.md", "{root}/CLAUDE.md"),
        "docs/guide.md",
        patch("docs/guide.md"),
    ),
    Redirect(
        "a patched file becomes a hard link outside",
        _hard_link("docs/guide.md", "{outside}/guide.md"),
        "docs/guide.md",
        patch("docs/guide.md"),
    ),
    Redirect("a patched file's parent becomes a link", _exchange_parents, "src/deep/a.txt", patch("src/deep/a.txt")),
    Redirect("the workspace becomes a link", _replace_root),
    Redirect("the workspace is replaced by a copy", _other_root, "docs/guide.md", patch("docs/guide.md")),
    Redirect("a patched file becomes a FIFO", _fifo, "docs/guide.md", patch("docs/guide.md")),
    Redirect("a patched file becomes a directory", _directory_for_file, "docs/guide.md", patch("docs/guide.md")),
    Redirect("the directory becomes a file", _file_for_directory),
    Redirect("a person edits the patched file", _edited, "docs/guide.md", patch("docs/guide.md")),
    Redirect("a person makes the new file first", _appeared),
)
