"""Paths that never change without a person: they decide what agents may do, or run by themselves.

An agent that could write these could grant itself anything: the policy, the version control's hooks and settings, and
the clients' own configuration and instruction files.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from itertools import pairwise

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
