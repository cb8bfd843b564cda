"""Protected paths: they never change without a person, also under another name.

An agent that could write these could grant itself anything: the policy, the version control's hooks and settings, and
the clients' own configuration and instruction files.

Examples: `CLAUDE.md -> docs/agents.md`, `.git/hooks/pre-commit -> ../../scripts/check`, `core.hooksPath = tools/hooks`,
`include.path = ../tools/gitconfig`. An agent that can write the target can write instructions for a client, or code
that runs by itself. The same holds for `tests/fixture/config` beside a HEAD: a later `git status` starts what it names.
A policy cannot grant these paths either.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path, PurePosixPath

from intercom.model.errors import IntercomError
from intercom.workspace.files import open_regular, opened_directory, opened_root

#: Names of files and directories that are protected in every directory, in lower case.
PROTECTED_NAMES = frozenset(
    {
        ".intercom", ".monocoque",
        ".git", ".gitmodules", ".gitattributes", ".hg", ".svn", ".jj", ".husky", ".pre-commit-config.yaml",
        ".claude", ".claude.json", ".mcp.json", "mcp.json", ".cursor", ".cursorrules", ".codex", ".copilot", ".vscode",
        ".idea", ".zed", ".gemini", ".windsurf", ".windsurfrules", ".aider.conf.yml", ".continue", ".agents",
        ".devcontainer", ".devcontainer.json", ".envrc", ".gitconfig", ".githooks",
        ".lefthook.yml", "lefthook.yml", ".lefthook.yaml", "lefthook.yaml", ".lefthook", ".overcommit.yml",
        ".aider.conf.yaml", ".claude-plugin", ".clinerules", ".roo", ".roorules", ".roomodes", ".kilocode", ".kiro",
        ".trae", ".amazonq", ".junie", ".augment", ".augment-guidelines", ".opencode", "opencode.json",
        "opencode.jsonc", ".goose", ".goosehints", ".qwen", ".crush", ".crush.json", "crush.json", ".codeium",
        "claude.md", "claude.local.md", "agents.md", "agent.md", "agents.override.md", "gemini.md", "qwen.md",
        "crush.md", "warp.md",
    }
)  # fmt: skip

#: Protected suffixes: files with the same settings and tasks as `.vscode`.
_ENDINGS = (".code-workspace",)

#: Protected names below `.github`, by their beginning: what Copilot reads, and what runs.
_GITHUB = ("copilot", "instructions", "prompts", "agents", "chatmodes", "skills", "hooks", "workflows", "mcp")

#: The short form of a long name on Windows file systems: up to six of its letters, a number, and a suffix.
_SHORT = re.compile(r"([a-z0-9_-]{1,6})~[0-9]+(?:\.[a-z0-9]{0,3})?")

_SEPARATORS = re.compile(r"[/\\]+")
_PARTS = re.compile(r"[=:,@]")
_WILDCARDS = ("*", "?", "[")
_WILD = re.compile(r"[*?[]")
_BRACKETS = re.compile(r"\[.*")
_QUOTES = str.maketrans("", "", "\\'\"")


def is_protected(path: str) -> bool:
    """Whether a relative path names something protected, or something below it.

    Letter case, trailing dots and spaces, and invisible characters do not count, because some file systems ignore them.
    FAT and NTFS also know each name by a short one.
    """
    shown = path if path.isascii() else "".join(char for char in path if unicodedata.category(char) != "Cf")
    # On Windows, a colon begins the name of a stream of the same file.
    names = [name.partition(":")[0].casefold().rstrip(". ") for name in _SEPARATORS.split(shown)]
    if any(name in PROTECTED_NAMES or name.endswith(_ENDINGS) or _is_short_name(name) for name in names):
        return True
    return any(name == ".github" and following.startswith(_GITHUB) for name, following in pairwise(names))


def makes_repository(path: str) -> bool:
    """Whether a file makes its directory, whatever its name, a git repository: that requires a HEAD. git treats such
    a directory as a repository if a command runs in it, and starts what its config names."""
    return _SEPARATORS.split(path)[-1].casefold() == "head"


def _is_short_name(name: str) -> bool:
    """Whether a name could be a protected one as FAT and NTFS shorten it: `git~1` for `.git`."""
    found = _SHORT.fullmatch(name)
    return found is not None and any(each.lstrip(".").startswith(found[1]) for each in (*PROTECTED_NAMES, ".github"))


def mentions_protected(word: str, is_glob: bool = False) -> bool:
    """Whether a word of a command could name something protected.

    The name may follow an option's equals sign, have quotes that another shell removes, or result from a glob.
    `is_glob` says that this shell expands the word. A glob of a hidden name is checked in any case.
    """
    plain = word.translate(_QUOTES)
    # The value of a short option may follow its letter directly.
    attached = (plain[2:],) if plain.startswith("-") and not plain.startswith("--") else ()
    return any(is_protected(part) or _may_expand(part, is_glob) for part in (plain, *attached, *_PARTS.split(plain)))


def _may_expand(part: str, is_glob: bool) -> bool:
    """Whether a shell could expand a glob to a protected name. Wildcards do not match a leading dot."""
    # Shells differ in how they interpret brackets.
    names = [_BRACKETS.sub("*", name.casefold()) for name in part.split("/")]
    globs = [name for name in names if _WILD.search(name) and (is_glob or name.startswith("."))]
    if any(_may_be(name, glob) for glob in globs for name in PROTECTED_NAMES):
        return True
    if any("." in glob and _may_be(end[1:], glob.rpartition(".")[2]) for glob in globs for end in _ENDINGS):
        return True
    return any(
        _may_be(".github", name) and any(_may_be(start, _start(following)) for start in _GITHUB)
        for name, following in pairwise(names)
    )


def _may_be(name: str, glob: str) -> bool:
    return fnmatchcase(name, glob) and (not glob.startswith(_WILDCARDS) or not name.startswith("."))


def _start(glob: str) -> str:
    """Return a glob of everything with the same literal beginning."""
    found = _WILD.search(glob)
    return glob if found is None else f"{glob[: found.start()]}*"


#: How many entries of protected directories are examined. If there are more, a person decides.
MAX_ENTRIES = 20_000

#: Of these directories only the hooks are searched: the rest is thousands of files that are never run.
_OF_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".jj"})
_HOOKS_PATH = re.compile(rb"^[ \t]*hooksPath[ \t]*=[ \t]*\"?([^\"#;\r\n]+)", re.IGNORECASE | re.MULTILINE)
_INCLUDED = re.compile(
    rb"^[ \t]*(?:\[include[^\]\r\n]*\][ \t]*)?path[ \t]*=[ \t]*\"?([^\"#;\r\n]+)", re.IGNORECASE | re.MULTILINE
)
_MAX_CONFIG = 256 * 1024


class _TooMany(Exception):
    """There are more than MAX_ENTRIES entries to examine."""


def why_protected(root: Path, paths: Sequence[str]) -> str | None:
    """Return why one of these canonical paths of the workspace `root` is protected despite its name, or None.

    Links are searched in the workspace directory, in the directories above each path, and in the protected directories
    there. Never raises: if something cannot be examined, that is the reason returned.
    """
    try:
        with opened_root(root) as top:
            for path in paths:
                for parent in PurePosixPath(path).parents:
                    if _is_repository(top, parent):
                        return f"{path} lies in {parent}, which has a HEAD: to git it is a repository"
            for link, target in _led_to(top, root, paths):
                for path in paths:
                    if path == target or path.startswith(f"{target}/"):
                        return f"{path} is what {link} leads to, which is protected"
    except _TooMany:
        return "there are too many protected files to look for links among them"
    except (IntercomError, OSError) as error:
        return f"the protected files cannot be looked at ({error})"
    return None


def has_other_name(root: Path, path: str) -> bool:
    """Whether the file has a second name (a hard link), which may be a protected one. A change in place changes
    both. An apply is safe, because it puts a new file under one name."""
    try:
        with opened_root(root) as top, opened_directory(top, path.split("/")[:-1]) as parent:
            status = os.stat(path.rsplit("/", 1)[-1], dir_fd=parent, follow_symlinks=False)
    except (IntercomError, OSError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _is_repository(top: int, directory: PurePosixPath) -> bool:
    """Whether git may treat a directory as a repository: it has a HEAD. git needs more, which may be created later."""
    try:
        with opened_directory(top, directory.parts) as fd:
            os.stat("HEAD", dir_fd=fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _led_to(top: int, root: Path, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield every protected link, with the canonical path of its target in the workspace."""
    above = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    left = [MAX_ENTRIES]
    for directory in sorted(above):
        names = [] if directory == "." else directory.split("/")
        for link in _links(top, names, left, inside=False):
            target = _within(root, os.path.join(root, link))
            if target is not None:
                yield link, target
        for setting, path in _of_git(top, names):
            target = _within(root, os.path.join(root, *names, path))
            if target is not None:
                yield f"{setting} of git", target


def _links(top: int, names: list[str], left: list[int], *, inside: bool) -> Iterator[str]:
    """Yield the protected links in a directory, and in the protected directories inside it."""
    below: list[str] = []
    try:
        with opened_directory(top, names) as fd, os.scandir(fd) as entries:
            for entry in entries:
                path = "/".join((*names, entry.name))
                is_ours = is_protected(path)
                if inside or is_ours:
                    # Unprotected entries are cheap, so they do not count towards the limit.
                    left[0] -= 1
                    if left[0] < 0:
                        raise _TooMany
                if entry.is_symlink() and is_ours:
                    yield path
                elif entry.is_dir(follow_symlinks=False) and (is_ours or entry.name == ".github"):
                    below.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in below:
        if names and names[-1] in _OF_VERSION_CONTROL and name != "hooks":
            continue
        yield from _links(top, [*names, name], left, inside=True)


def _of_git(top: int, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the paths of hooks and included files in the configuration of a directory's repository. Each comes with
    the name of its setting and is relative to the directory. An included file can set the same."""
    try:
        with opened_directory(top, [*names, ".git"]) as fd, os.fdopen(open_regular(fd, "config"), "rb") as file:
            text = file.read(_MAX_CONFIG)
    except OSError:
        return
    for found in _HOOKS_PATH.findall(text)[-1:]:
        yield "core.hooksPath", os.fsdecode(found).strip()
    for found in _INCLUDED.findall(text):
        yield "include.path", os.path.join(".git", os.fsdecode(found).strip())


def _within(root: Path, path: str) -> str | None:
    """Return the canonical path of a file in the workspace; None if it is elsewhere."""
    real = os.path.realpath(path)
    return os.path.relpath(real, root) if real.startswith(f"{root}/") else None
