"""Matching of commands against the globs of policy rules, word by word as a shell splits them."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Sequence

from attrs import frozen
from wcmatch import fnmatch

from intercom.workspace.command_options import Globbing, harmless

#: Characters that can make a command more than one program with its words: operators, substitutions, redirections,
#: grouping, further lines. They never match, even quoted, because another shell may interpret the text again.
_ACTIVE = frozenset(";&|<>$`(){}\n\r\0")

_FLAGS = fnmatch.CASE | fnmatch.DOTMATCH | fnmatch.FORCEUNIX

#: A word with its quotes; and the empty quotes that a word may begin with.
_RAW = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_EMPTY = re.compile(r"""(?:''|"")*""")
#: The parts of a word in which a shell sees no wildcard.
_LITERAL = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*\"""")
_WILD = ("*", "?", "[")


@frozen
class Command:
    """A single plain command. For each of its `words`, `globbing` says what a shell may replace it with, and
    `harmless` whether a rule's wildcard may match it."""

    words: tuple[str, ...]
    globbing: tuple[Globbing, ...]
    harmless: tuple[bool, ...]


def read(command: str, args: Sequence[str] = ()) -> Command | None:
    """Parse `command` followed by `args`; None if that is not a single plain command."""
    found = words(command, args)
    if found is None:
        return None
    # A shell may replace a glob with a file that is named like an option. The quoting of `args` is not known.
    globbing = [*map(_globbing, _RAW.findall(command)), *map(_globbing, args)]
    if len(globbing) != len(found):
        globbing = [Globbing.FROM_START] * len(found)
    return Command(found, tuple(globbing), harmless(found, globbing))


def _globbing(raw: str) -> Globbing:
    """Return what a shell may replace a word with; `raw` still has its quotes."""
    if _EMPTY.sub("", raw, count=1).startswith(_WILD):
        return Globbing.FROM_START
    return Globbing.WITHIN if _is_glob(_LITERAL.sub("", raw)) else Globbing.NONE


def words(command: str, args: Sequence[str] = ()) -> tuple[str, ...] | None:
    """Return the words of `command` followed by `args`; None if that is not a single plain command."""
    if any(char in _ACTIVE or not char.isprintable() for part in (command, *args) for char in part):
        return None
    try:
        # A shell does not run what follows `#`, so it is safe to treat it as words.
        named = shlex.split(command, comments=False)
    except ValueError:
        return None
    return (*named, *args) if named else None


def matches(pattern: str, command: Command) -> bool:
    """Whether the words of the glob `pattern` match those of `command`, one to one.

    `*`, `?` and `[...]` stay within a word and do not leave the directory that the glob names (`bin/*` does not match
    `bin/../x`). A last word of `*` matches any number of further words. Wildcards match harmless words only; a rule
    must spell any other word exactly.
    """
    expected, given = _pattern_words(pattern), command.words
    if expected is None:
        return False
    open_ended = expected[-1] == "*"
    fixed = expected[:-1] if open_ended else expected
    if len(given) < max(len(fixed), 1) or (len(given) > len(fixed) and not open_ended):
        return False
    fits = (
        word == glob if not _is_glob(glob) else is_harmless and _fits(word, glob)
        for word, is_harmless, glob in zip(given, command.harmless, fixed, strict=False)
    )
    return all(fits) and all(command.harmless[len(fixed) :])


def _fits(word: str, glob: str) -> bool:
    if not glob.startswith(_WILD) and word.split("/").count("..") > glob.split("/").count(".."):
        return False
    return fnmatch.fnmatch(word, glob, flags=_FLAGS)


def _is_glob(word: str) -> bool:
    return any(char in word for char in _WILD)


@functools.lru_cache(maxsize=4096)
def _pattern_words(pattern: str) -> tuple[str, ...] | None:
    return words(pattern)


def allowed(allowlist: Sequence[str], given: Sequence[str]) -> bool:
    """Whether the words `given` begin with those of a command on the server's allowlist."""
    for entry in allowlist:
        listed = words(entry)
        if listed is not None and tuple(given[: len(listed)]) == listed:
            return True
    return False
