"""The headers of a patch: the files it names, and git's extended header lines.

Names are parsed as `git apply` does, but more strictly. If two headers of a file disagree, the patch is refused,
because a person may have read either of them.
"""

from __future__ import annotations

import re

from attrs import define, frozen

from intercom.model.approval import ChangeKind
from intercom.model.errors import DiffError
from intercom.workspace.paths import lexical

DEV_NULL = "/dev/null"

#: The first component that git adds to a name: a/, b/, the mnemonic ones, and those of `--no-index`.
_PREFIX = re.compile(r"[abciow12]/.")
_ESCAPE = re.compile(r"\\([abtnvfr\"\\]|[0-3][0-7]{2})")
_PLAIN = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_IGNORED = ("similarity index ", "dissimilarity index ")


@frozen
class Named:
    """What the headers of one file say."""

    path: str
    kind: ChangeKind
    old_path: str | None = None
    executable: bool | None = None


@define
class _Git:
    first: str
    old: str | None = None
    new: str | None = None
    rename_from: str | None = None
    rename_to: str | None = None
    executable: bool | None = None
    created: bool = False
    deleted: bool = False


def read_git(lines: list[str], at: int) -> Named:
    """Parse the header lines of a block, beginning with `diff --git`. `at` is the number of the first line.

    Raises DiffError for unknown lines, contradictory names, and unsupported changes (binary patches, copies, symbolic
    links, submodules). Raises PathViolation for unusable paths.
    """
    git = _Git(lines[0].removeprefix("diff --git ").rstrip("\n"))
    for number, line in enumerate(lines[1:], at + 1):
        _read_line(git, line.rstrip("\n"), number)
    if (git.rename_from is None) != (git.rename_to is None):
        raise DiffError(f"the patch names only one end of a rename, near line {at}")
    if git.rename_from is not None and git.rename_to is not None:
        return _renamed(git, git.rename_from, git.rename_to, at)
    if git.old is None and git.new is None:
        git.old, git.new = _halves(git.first, at)
    elif git.old is None or git.new is None:
        raise DiffError(f"the patch has only one of the --- and +++ lines, near line {at}")
    else:
        _check_agreement(git, at)
    # --- or +++ may say /dev/null, but the first line always names the file twice.
    path = strip(*_halves(git.first, at), at)[1]
    created, deleted = git.created or git.old == DEV_NULL, git.deleted or git.new == DEV_NULL
    return Named(lexical(path), _kind(created, deleted, at), None, git.executable)


def read_plain(old: str, new: str, at: int, file_path: str, gone: bool = False) -> Named:
    """Parse a file's `---` and `+++` names. `gone`: the new file's time stamp says that there is no file."""
    if old == DEV_NULL or new == DEV_NULL:
        path = _one(unquote(new if old == DEV_NULL else old, at), file_path)
    else:
        path = strip(unquote(old, at), unquote(new, at), at)[1]
    return Named(lexical(path), _kind(old == DEV_NULL, new == DEV_NULL or gone, at))


def unquote(name: str, at: int) -> str:
    """Return a name from a header without git's quotes and escapes."""
    if not name.startswith('"'):
        return name
    if len(name) < 2 or not name.endswith('"'):
        raise DiffError(f"a file name is quoted only half, near line {at} of the patch")
    out, rest = bytearray(), name[1:-1]
    while rest:
        head, slash, tail = rest.partition("\\")
        out += head.encode("utf-8", "surrogatepass")
        if not slash:
            break
        escape = _ESCAPE.match(slash + tail)
        if escape is None:
            raise DiffError(f"a file name holds an escape that means nothing, near line {at} of the patch")
        code = escape[1]
        out.append(_PLAIN[code] if code in _PLAIN else int(code, 8))
        rest = tail[len(code) :]
    try:
        return out.decode()
    except UnicodeDecodeError:
        raise DiffError(
            f"a file name is not UTF-8, near line {at} of the patch; such names are not supported"
        ) from None


def strip(old: str, new: str, at: int) -> tuple[str, str]:
    """Return both names without the first component that distinguishes them (a/ and b/, or another pair)."""
    if old == new:
        return old, new
    old_rest, new_rest = old.partition("/")[2], new.partition("/")[2]
    if old_rest and old_rest == new_rest:
        return old_rest, new_rest
    raise DiffError(
        f"the headers near line {at} name two files, {old!a} and {new!a}; "
        "a rename needs git's `rename from` and `rename to` lines"
    )


def _one(name: str, file_path: str) -> str:
    """Return the single name of a created or deleted file, without its prefix unless the request includes that."""
    return name[2:] if _PREFIX.match(name) and name != file_path else name


def _read_line(git: _Git, line: str, number: int) -> None:
    if line.startswith("--- "):
        git.old = unquote(line[4:].split("\t")[0], number)
    elif line.startswith("+++ "):
        git.new = unquote(line[4:].split("\t")[0], number)
    elif line.startswith("rename from "):
        git.rename_from = unquote(line[12:], number)
    elif line.startswith("rename to "):
        git.rename_to = unquote(line[10:], number)
    elif line.startswith(("copy from ", "copy to ")):
        raise DiffError(f"line {number} copies a file, which is not supported; send the copy as a new file")
    elif line.startswith(("Binary files ", "GIT binary patch")):
        raise DiffError(f"line {number} begins a binary patch, which is not supported; only text can be patched")
    elif line.startswith("new file mode "):
        git.created, git.executable = True, _executable(line, number)
    elif line.startswith("deleted file mode "):
        git.deleted = _executable(line, number) is not None
    elif line.startswith("new mode "):
        git.executable = _executable(line, number)
    elif line.startswith("old mode ") or (line.startswith("index ") and line.count(" ") > 1):
        _executable(line, number)
    elif line.strip() and not line.startswith((*_IGNORED, "index ")):
        raise DiffError(f"line {number} of the patch belongs to no header: {line[:80]!a}")


def _executable(line: str, number: int) -> bool:
    try:
        mode = int(line.rsplit(" ", 1)[1], 8)
    except ValueError:
        raise DiffError(f"line {number} of the patch states no file mode") from None
    if mode & 0o170000 != 0o100000:
        raise DiffError(f"line {number} makes or changes a symbolic link or a submodule, which is not supported")
    return bool(mode & 0o111)


def _kind(created: bool, deleted: bool, at: int) -> ChangeKind:
    if created and deleted:
        raise DiffError(f"the patch both makes and removes the file named near line {at}")
    return ChangeKind.CREATE if created else ChangeKind.DELETE if deleted else ChangeKind.WRITE


def _renamed(git: _Git, old: str, new: str, at: int) -> Named:
    for name, stated in ((git.old, old), (git.new, new)):
        if name is not None and name != stated and name.partition("/")[2] != stated:
            raise DiffError(f"the headers near line {at} disagree about the names of a renamed file")
    if '"' not in git.first and not (git.first.endswith(new) and f"{old} " in git.first):
        raise DiffError(f"the headers near line {at} disagree about the names of a renamed file")
    if git.created or git.deleted or lexical(old) == lexical(new):
        raise DiffError(f"the headers near line {at} disagree about what becomes of a renamed file")
    return Named(lexical(new), ChangeKind.RENAME, lexical(old), git.executable)


def _check_agreement(git: _Git, at: int) -> None:
    first, second = _halves(git.first, at)
    if git.old not in (first, DEV_NULL) or git.new not in (second, DEV_NULL):
        raise DiffError(f"the headers near line {at} name different files; the first line says {git.first!a}")


def _halves(rest: str, at: int) -> tuple[str, str]:
    """Split the two names of a `diff --git` line. Unquoted names may hold spaces, so split where the halves agree."""
    quoted = re.fullmatch(r'("(?:[^"\\]|\\.)*"|[^"]+) ("(?:[^"\\]|\\.)*"|[^"]+)', rest)
    if '"' in rest and quoted:
        return unquote(quoted[1], at), unquote(quoted[2], at)
    middle = len(rest) // 2
    if rest[middle : middle + 1] == " ":
        return rest[:middle], rest[middle + 1 :]
    raise DiffError(f"the names on line {at} of the patch can not be told apart: {rest[:120]!a}")
