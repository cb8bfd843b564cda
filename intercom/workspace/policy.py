"""What a policy grants: a pure decision over one operation, or over the files of one proposal.

Protected paths never change without a person, also under another name. An agent that could write these could grant
itself anything: the policy, the version control's hooks and settings, and the clients' own configuration and
instruction files.

Examples: `CLAUDE.md -> docs/agents.md`, `.git/hooks/pre-commit -> ../../scripts/check`, `core.hooksPath = tools/hooks`,
`include.path = ../tools/gitconfig`. An agent that can write the target can write instructions for a client, or code
that runs by itself. The same holds for `tests/fixture/config` beside a HEAD: a later `git status` starts what it names.
A policy cannot grant these paths either.
"""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Literal

from attrs import frozen
from wcmatch import glob

from intercom.model.errors import IntercomError, PathViolation
from intercom.model.policy import FilePatterns, PolicyAnswer, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace import command_rules
from intercom.workspace.command_rules import Globbing
from intercom.workspace.files import (
    directories_above,
    lexical,
    located,
    name_of,
    names,
    open_regular,
    opened_directory,
    opened_root,
)

OLDER_NAMES = {
    "ask_approval": "check_clearance",
    "accept_diff": "check_diff",
    "check_auto_approve": "auto_check",
    "forward_prompt": "transmit",
    "remote_log": "broadcast",
    "recover_state": "reboot",
    "set_operational_mode": "switch_freq",
    "wait_for_instruction": "standby",
    "heartbeat": "ping",
}


def canonical(name: str) -> str:
    """Return the present name of a tool; any other name unchanged."""
    return OLDER_NAMES.get(name, name)


Operation = Literal["write", "read"]

#: Case-sensitive; wildcards do not match a leading dot; no braces, no negation, no `!(...)`.
_FLAGS = glob.GLOBSTAR | glob.CASE | glob.FORCEUNIX

#: Matching time grows with the path's length to the power of the number of `**`, and there may be hundreds of patterns.
#: So the number of `**` is limited, and a path's depth in directories and length in characters.
MAX_GLOBSTARS = 2
MAX_DEPTH = 64
MAX_LENGTH = 1024


@frozen
class Query:
    """An operation to evaluate. `args` are the words after `tool_name` if it is a command. `file_path` is relative
    to the workspace. Pass the canonical path (`paths.relative`), so that a link cannot use the rule of another path."""

    tool_name: str
    args: tuple[str, ...] = ()
    file_path: str | None = None
    risk: RiskLevel = RiskLevel.LOW
    operation: Operation = "write"


@frozen
class Limits:
    """The limits that the server's configuration sets for every workspace. `max_risk_level` is the highest risk that
    any policy may allow. `allowlist` lists the permitted commands, or is None if all are permitted."""

    max_risk_level: RiskLevel = RiskLevel.CRITICAL
    allowlist: tuple[str, ...] | None = None


NO_LIMITS = Limits()


def evaluate(policy: WorkspacePolicy, query: Query, limits: Limits = NO_LIMITS) -> PolicyAnswer:
    """Return whether `policy` allows `query` without a person, and by which rule.

    Checks, in this order: a policy that is off, the risk, protected paths; then commands, tools and file patterns, of
    which the first match counts. Never raises; `why` is the reason for a refusal.
    """
    refusal = _refusal(policy, query.risk, limits)
    if refusal is not None:
        return PolicyAnswer(False, why=refusal)
    path: str | None = None
    if query.file_path is not None:
        try:
            path = lexical(query.file_path)
        except PathViolation as error:
            return PolicyAnswer(False, why=error.message)
        if is_protected(path) or (makes_repository(path) and query.operation == "write"):
            return PolicyAnswer(False, why=f"{path} is protected: changing or reading it always needs a person")
    rule = _command_rule(policy, query, limits) or _tool_rule(policy, query)
    if rule is None and path is not None:
        rule = _file_rule(policy, path, query.operation)
    if rule is None:
        return PolicyAnswer(False, why="no rule of the workspace policy fits")
    return PolicyAnswer(True, matched_rule=rule)


def evaluate_files(
    policy: WorkspacePolicy, paths: Sequence[str], risk: RiskLevel, limits: Limits = NO_LIMITS
) -> PolicyAnswer:
    """Return whether a proposal that changes all of `paths` is allowed without a person. `paths` are canonical, with
    both ends of a rename. A write pattern must grant each; the rule returned is the first path's."""
    refusal = _refusal(policy, risk, limits)
    if refusal is not None:
        return PolicyAnswer(False, why=refusal)
    rules: list[str] = []
    for path in paths:
        guarded = is_protected(path) or makes_repository(path)
        try:
            rule = None if guarded else _file_rule(policy, lexical(path), "write")
        except PathViolation as error:
            return PolicyAnswer(False, why=error.message)
        if rule is None:
            what = "is protected" if guarded else "fits no write pattern of the workspace policy"
            return PolicyAnswer(False, why=f"{path} {what}")
        rules.append(rule)
    if not rules:
        return PolicyAnswer(False, why="the proposal names no file")
    return PolicyAnswer(True, matched_rule=rules[0])


def _refusal(policy: WorkspacePolicy, risk: RiskLevel, limits: Limits) -> str | None:
    if not policy.enabled:
        return "the workspace policy is off"
    if risk is RiskLevel.CRITICAL:
        return "a critical risk always needs a person"
    if risk.rank > policy.risk_level_threshold.rank:
        return f"the risk is {risk}, and the workspace policy lets pass up to {policy.risk_level_threshold}"
    if risk.rank > limits.max_risk_level.rank:
        return f"the risk is {risk}, and this server lets pass up to {limits.max_risk_level}"
    return None


def _command_rule(policy: WorkspacePolicy, query: Query, limits: Limits) -> str | None:
    given = command_rules.read(query.tool_name, query.args)
    if given is None:
        return None
    is_glob = (globbing is not Globbing.NONE for globbing in given.globbing)
    if any(map(mentions_protected, given.words, is_glob)):
        return None
    if os.path.basename(given.words[0]) != "git" and any(map(makes_repository, given.words[1:])):
        # For git itself, HEAD is a commit, not a file.
        return None
    if limits.allowlist is not None and not command_rules.allowed(limits.allowlist, given.words):
        return None
    return next((f"command:{rule}" for rule in policy.commands if command_rules.matches(rule, given)), None)


def _tool_rule(policy: WorkspacePolicy, query: Query) -> str | None:
    name = canonical(query.tool_name)
    return next((f"tool:{rule}" for rule in policy.tools if canonical(rule) == name), None)


def _file_rule(policy: WorkspacePolicy, path: str, operation: Operation) -> str | None:
    patterns = policy.file_patterns.read if operation == "read" else policy.file_patterns.write
    return next((f"file_pattern:{operation}:{rule}" for rule in patterns if _matches(path, rule)), None)


def _matches(path: str, pattern: str) -> bool:
    if pattern.count("**") > MAX_GLOBSTARS or path.count("/") >= MAX_DEPTH or len(path) > MAX_LENGTH:
        return False
    return _compiled(pattern).match(path)


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> glob.WcMatcher[str]:
    return glob.compile(pattern.removeprefix("./"), flags=_FLAGS)


# --- what grants more ------------------------------------------------------------------------------------------------


def widens(old: WorkspacePolicy, new: WorkspacePolicy) -> tuple[str, ...]:
    """Return the ways in which `new` grants more than `old`, in words; none if `old` allows all that `new` allows.

    Rules are compared as spelled: a new one counts even if an old one covers it. Showing people less of what was
    allowed, or showing it later, counts too.
    """
    if not new.grants:
        return ()
    ways = [] if old.enabled else ["the policy is switched on"]
    # What is critical never passes.
    before, after = (min(each.risk_level_threshold.rank, RiskLevel.HIGH.rank) for each in (old, new))
    if after > before:
        ways.append(f"risk_level_threshold rises from {old.risk_level_threshold} to {new.risk_level_threshold}")
    for kind, had, has in (
        ("command", old.commands, new.commands),
        ("tool", old.tools, new.tools),
        ("write pattern", old.file_patterns.write, new.file_patterns.write),
        ("read pattern", old.file_patterns.read, new.file_patterns.read),
    ):
        known = {canonical(name) for name in had} if kind == "tool" else had
        # Quoted, so that nothing in a rule looks like another line or like other characters.
        ways += [
            f"{kind} added: {json.dumps(rule)}"
            for rule in has
            if (canonical(rule) if kind == "tool" else rule) not in known
        ]
    if old.enabled and old.log_auto_approved:
        if not new.log_auto_approved:
            ways.append("log_auto_approved is switched off")
        elif new.summary_interval_seconds > old.summary_interval_seconds:
            ways.append("summary_interval_seconds is raised")
    return tuple(ways)


def narrowed(old: WorkspacePolicy, new: WorkspacePolicy) -> WorkspacePolicy:
    """Return what both grant: `new` without the ways in which it grants more, so `widens(old, it)` is empty."""
    tools = {canonical(name) for name in old.tools}
    return WorkspacePolicy(
        enabled=old.enabled and new.enabled,
        commands=_both(old.commands, new.commands),
        tools=tuple(name for name in new.tools if canonical(name) in tools),
        file_patterns=FilePatterns(
            _both(old.file_patterns.write, new.file_patterns.write),
            _both(old.file_patterns.read, new.file_patterns.read),
        ),
        risk_level_threshold=min(old.risk_level_threshold, new.risk_level_threshold, key=lambda risk: risk.rank),
        log_auto_approved=old.log_auto_approved or new.log_auto_approved,
        summary_interval_seconds=min(old.summary_interval_seconds, new.summary_interval_seconds),
    )


def _both(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(rule for rule in new if rule in old)


# --- protected paths -------------------------------------------------------------------------------------------------

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
                for directory in ("", *directories_above(path)):
                    if _is_repository(top, directory):
                        return f"{path} lies in {directory or '.'}, which has a HEAD: to git it is a repository"
            for link, target in _led_to(top, root, {each for path in paths for each in ("", *directories_above(path))}):
                for path in paths:
                    if path == target or path.startswith(f"{target}/"):
                        return f"{path} is what {link} leads to, which is protected"
    except _TooMany:
        return "there are too many protected files to look for links among them"
    except (IntercomError, OSError, ValueError) as error:
        return f"the protected files cannot be looked at ({error})"
    return None


def has_other_name(root: Path, path: str) -> bool:
    """Whether the file has a second name (a hard link), which may be a protected one. A change in place changes
    both. An apply is safe, because it puts a new file under one name."""
    try:
        with opened_root(root) as top, opened_directory(top, names(path)[:-1]) as parent:
            status = os.lstat(name_of(path), dir_fd=parent)
    except (IntercomError, OSError):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink > 1


def _is_repository(top: int, directory: str) -> bool:
    """Whether git may treat a directory as a repository: it has a HEAD. git needs more, which may be created later."""
    try:
        with opened_directory(top, names(directory)) as fd:
            os.lstat("HEAD", dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _led_to(top: int, root: Path, directories: set[str]) -> Iterator[tuple[str, str]]:
    """Yield every protected link in these directories, with the canonical path of its target in the workspace."""
    left = [MAX_ENTRIES]
    for directory in sorted(directories):
        for link in _links(top, directory, left, inside=False):
            if (target := located(root, link)) is not None:
                yield link, target
        for setting, path in _of_git(top, directory):
            if (target := located(root, directory, path)) is not None:
                yield f"{setting} of git", target


def _links(top: int, directory: str, left: list[int], *, inside: bool) -> Iterator[str]:
    """Yield the protected links in a directory, and in the protected directories inside it."""
    below: list[str] = []
    try:
        with opened_directory(top, names(directory)) as fd, os.scandir(fd) as entries:
            for entry in entries:
                path = f"{directory}/{entry.name}" if directory else entry.name
                is_ours = is_protected(path)
                if inside or is_ours:
                    # Unprotected entries are cheap, so they do not count towards the limit.
                    left[0] -= 1
                    if left[0] < 0:
                        raise _TooMany
                if entry.is_symlink() and is_ours:
                    yield path
                elif entry.is_dir(follow_symlinks=False) and (is_ours or entry.name == ".github"):
                    below.append(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in below:
        if name_of(directory) not in _OF_VERSION_CONTROL or name_of(path) == "hooks":
            yield from _links(top, path, left, inside=True)


def _of_git(top: int, directory: str) -> Iterator[tuple[str, str]]:
    """Yield the paths of hooks and included files in the configuration of a directory's repository. Each comes with
    the name of its setting and is relative to the directory. An included file can set the same."""
    try:
        with (
            opened_directory(top, [*names(directory), ".git"]) as fd,
            os.fdopen(open_regular(fd, "config"), "rb") as file,
        ):
            text = file.read(_MAX_CONFIG)
    except OSError:
        return
    for found in _HOOKS_PATH.findall(text)[-1:]:
        yield "core.hooksPath", os.fsdecode(found).strip()
    for found in _INCLUDED.findall(text):
        yield "include.path", os.path.join(".git", os.fsdecode(found).strip())
