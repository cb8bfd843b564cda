"""Paths that never change without a person: what decides what agents may do, and what runs by itself.

An agent that could write these unasked could grant itself anything: the policy, the version control's hooks and
settings, and the clients' own configuration and standing instructions.
"""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from itertools import pairwise

#: Names of files and directories that are protected wherever they stand, in small letters.
PROTECTED_NAMES = frozenset(
    {
        ".intercom", ".monocoque",
        ".git", ".gitmodules", ".gitattributes", ".hg", ".svn", ".jj", ".husky", ".pre-commit-config.yaml",
        ".claude", ".claude.json", ".mcp.json", "mcp.json", ".cursor", ".cursorrules", ".codex", ".copilot", ".vscode",
        ".idea", ".zed", ".gemini", ".windsurf", ".windsurfrules", ".aider.conf.yml", ".continue", ".agents",
        ".devcontainer", ".envrc",
        "claude.md", "claude.local.md", "agents.md", "agents.override.md", "gemini.md",
    }
)  # fmt: skip

#: What is protected below `.github`: what Copilot reads, and what runs.
_GITHUB = ("copilot", "instructions", "prompts", "agents", "chatmodes", "skills", "hooks", "workflows", "mcp")

_SEPARATORS = re.compile(r"[/\\]+")
_PARTS = re.compile(r"[=:,@]")
_WILD = re.compile(r"[*?[]")
_QUOTES = str.maketrans("", "", "\\'\"")


def is_protected(path: str) -> bool:
    """Whether a relative path names something protected, or something below it. Letter case does not count, nor do
    dots and spaces at a name's end, nor characters that do not show: some file systems ignore them."""
    shown = path if path.isascii() else "".join(char for char in path if unicodedata.category(char) != "Cf")
    names = [name.casefold().rstrip(". ") for name in _SEPARATORS.split(shown)]
    if any(name in PROTECTED_NAMES for name in names):
        return True
    return any(name == ".github" and following.startswith(_GITHUB) for name, following in pairwise(names))


def mentions_protected(word: str) -> bool:
    """Whether a word of a command could name something protected: also behind an option's equals sign, with quotes that
    another shell would take away, or as a glob that it would expand."""
    plain = word.translate(_QUOTES)
    return any(is_protected(part) or _may_expand(part) for part in (plain, *_PARTS.split(plain)))


def _may_expand(part: str) -> bool:
    """Whether a shell would make a protected name of a glob; its wildcards do not match a leading dot."""
    globs = [name.casefold() for name in part.split("/") if name.startswith(".") and _WILD.search(name)]
    return any(fnmatchcase(name, glob) for glob in globs for name in PROTECTED_NAMES)
