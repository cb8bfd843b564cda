"""A workspace with traps in it, and around it what must never change."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

#: What stands in the workspace to begin with.
FILES = {
    "notes.txt": b"one\ntwo\nthree\n",
    "src/main.c": b"int main;\n",
    "src/deep/er.txt": b"deep\n",
    "crlf.txt": b"one\r\ntwo\r\n",
    "empty": b"",
    "bytes": bytes(range(256)),
    ".git/config": b"[core]\n",
}


class Grounds:
    """`workspace` is where agents may write; everything else below `root` is watched."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "work"
        shutil.rmtree(root, ignore_errors=True)
        outside = root / "outside"
        (outside / "sub").mkdir(parents=True)
        for name in ("secret", "notes.txt", "sub/secret", "main.c", "er.txt"):
            (outside / name).write_bytes(b"one\ntwo\nthree\n")
        self.workspace.mkdir()
        self.lay_out()

    def lay_out(self) -> None:
        """Put the workspace back to how it was."""
        for each in self.workspace.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            else:
                each.unlink()
        for name, data in FILES.items():
            file = self.workspace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        links = {
            "out": "../outside",
            "up": "..",
            "root": "/",
            "outfile": "../outside/secret",
            "in": "src",
            "loop": "loop",
        }
        links |= {"src/out": "../../outside/sub", "abs": str(self.root / "outside"), "dangling": "../outside/made"}
        for name, target in links.items():
            (self.workspace / name).symlink_to(target)
        os.mkfifo(self.workspace / "pipe")

    def inside(self) -> dict[str, str]:
        """Everything in the workspace, with what it holds."""
        return tree(self.workspace)

    def outside(self) -> dict[str, str]:
        """Everything around the workspace."""
        # The workspace is not walked: it may be changing.
        return tree(self.root / "outside") | dict.fromkeys(os.listdir(self.root), "")


def tree(root: Path) -> dict[str, str]:
    """Each name below `root`, links not followed, and a word for what is there: kind, mode, content."""
    found = {}
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                held = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    held = hashlib.sha256(file.read()).hexdigest()
            else:
                held = ""
            found[os.path.relpath(path, root)] = f"{stat.filemode(status.st_mode)} {held}"
    return found
