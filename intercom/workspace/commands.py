"""Commands and the globs that grant them, compared word by word as a shell would part them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Sequence

from wcmatch import fnmatch

#: What makes a command more than one program with its words: operators, substitutions, redirections, grouping, further
#: lines. None of it ever matches, quoted or not: how a shell, or the next one it starts, will read it is not known.
_ACTIVE = frozenset(";&|<>$`(){}\n\r\0")

_FLAGS = fnmatch.CASE | fnmatch.DOTMATCH | fnmatch.FORCEUNIX


def words(command: str, args: Sequence[str] = ()) -> tuple[str, ...] | None:
    """The words of `command` followed by `args`; None where it is no single plain command."""
    if any(char in _ACTIVE or not char.isprintable() for part in (command, *args) for char in part):
        return None
    try:
        # What follows a comment sign is not run, whatever a pattern makes of it.
        named = shlex.split(command, comments=False)
    except ValueError:
        return None
    return (*named, *args) if named else None


def matches(pattern: str, given: Sequence[str]) -> bool:
    """Whether the words of the glob `pattern` fit the words `given`, one to one. `*`, `?` and `[...]` stay within a
    word; a last word of `*` fits any further words, or none."""
    expected = _pattern_words(pattern)
    if expected is None:
        return False
    open_ended = expected[-1] == "*"
    fixed = expected[:-1] if open_ended else expected
    if len(given) < max(len(fixed), 1) or (len(given) > len(fixed) and not open_ended):
        return False
    return all(fnmatch.fnmatch(word, glob, flags=_FLAGS) for word, glob in zip(given, fixed, strict=False))


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
