"""Rules of a policy made from what an agent asks: the globs that match exactly one path, directory or command.

The texts come from an agent. A character that is a wildcard there is none in the rule.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence

from wcmatch import glob

from intercom.model.errors import InvalidArguments
from intercom.workspace import command_rules

_WILD = re.compile(r"[*?\[]")


def literal_path(path: str) -> str:
    """Return the pattern that matches this canonical path, and no other."""
    return glob.escape(path, unix=True)


def directory_patterns(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of the files that lie in the same directories as these paths. A hidden file is named itself,
    because no wildcard matches its name."""
    found: list[str] = []
    for path in paths:
        directory, name = posixpath.split(path)
        in_it = f"{literal_path(directory)}/*" if directory else "*"
        pattern = literal_path(path) if name.startswith(".") else in_it
        if pattern not in found:
            found.append(pattern)
    return tuple(found)


def literal_command(command: str) -> str:
    """Return the rule that matches this command, and no other. Raises InvalidArguments if no rule may: it is more than
    one plain command, or a shell may replace a word of it by others."""
    given = command_rules.read(command)
    if given is None:
        raise InvalidArguments(
            "it is not a single plain command (it has an operator, a redirection or a substitution), which no rule"
            " matches: answer it itself"
        )
    rule = shlex.join([_WILD.sub(lambda found: f"[{found[0]}]", word) for word in given.words])
    if not command_rules.matches(rule, given):
        raise InvalidArguments("no rule names exactly this command, because a shell may replace a word of it: give one")
    return rule
