"""Unified diffs: their headers and hunks, read and applied to a file's bytes.

Patch and file may differ only in two ways. A patch with LF line ends fits a file with CRLF, and its added lines take
the file's ends. The patch may omit the file's byte order mark.

Names are parsed as `git apply` does, but more strictly. If two headers of a file disagree, the patch is refused,
because a person may have read either of them.

Lines are kept as bytes, so what a patch does not touch cannot change. They are decoded only for comparison.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, takewhile

from attrs import define, frozen

from intercom.model.errors import DiffError, PatchConflict
from intercom.model.request import ChangeKind
from intercom.workspace.paths import lexical


@frozen
class HunkLine:
    """One line of a hunk. `mark` is " ", "-" or "+". `text` includes the line end, if the file has one there."""

    mark: str
    text: str


@frozen
class Hunk:
    """One hunk. `header` is the line as a person reads it. `start` is the stated line of the old file, counted from
    1; if the hunk only adds lines, they follow line `start`, which may be 0."""

    header: str
    start: int
    lines: tuple[HunkLine, ...]

    @property
    def source(self) -> tuple[HunkLine, ...]:
        return tuple(line for line in self.lines if line.mark != "+")


@frozen
class FilePatch:
    """The changes of one file. `kind` is what the headers say; planning turns a write to a missing file into a
    creation. `executable` is what git's mode lines request, None if they are absent."""

    path: str
    kind: ChangeKind
    hunks: tuple[Hunk, ...] = ()
    old_path: str | None = None
    executable: bool | None = None


BOM = "\ufeff"

#: UTF-32 comes first, because its little-endian mark begins with that of UTF-16.
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@frozen
class Encoding:
    """How a file's bytes are decoded, with a name for people."""

    codec: str
    errors: str
    name: str

    def decode(self, data: bytes) -> str:
        return data.decode(self.codec, self.errors)

    def encode(self, text: str) -> bytes:
        """Encode text. Raises UnicodeEncodeError if the encoding lacks a character."""
        return text.encode(self.codec, self.errors)


UTF8 = Encoding("utf-8", "surrogateescape", "utf-8")


def encoding_of(data: bytes) -> Encoding:
    """Guess the encoding of a file.

    A byte order mark decides. Else it is UTF-8 if all or most of the non-ASCII lines are valid UTF-8. Else it is
    Windows-1252 if the bytes are valid in that, else Latin-1, in which every byte is a character.
    """
    for mark, codec in _WIDE:
        if data.startswith(mark):
            encoding = Encoding(codec, "surrogatepass", codec)
            if _survives(data, encoding):
                return encoding
    odd = [line for line in data.split(b"\n") if not line.isascii()]
    valid = sum(_decodes(line, "utf-8") for line in odd)
    if valid == len(odd) or valid > len(odd) - valid:
        return UTF8
    if _decodes(data, "cp1252"):
        return Encoding("cp1252", "strict", "windows-1252")
    return Encoding("latin-1", "strict", "latin-1")


def split(data: bytes, encoding: Encoding) -> list[bytes]:
    """Return the lines of a file with their line ends (the last may have none). Joined, they equal `data`."""
    end = encoding.encode("\n")
    if len(end) == 1:
        lines = [line + b"\n" for line in data.split(b"\n")]
        lines[-1] = lines[-1][:-1]
        return lines if lines[-1] else lines[:-1]
    text = encoding.decode(data)
    return [encoding.encode(line) for line in split_text(text)]


def split_text(text: str) -> list[str]:
    """Return the lines of a text with their line ends, of which the last may have none."""
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _decodes(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True


def _survives(data: bytes, encoding: Encoding) -> bool:
    try:
        return encoding.encode(encoding.decode(data)) == data
    except UnicodeError:
        return False


#: The most line comparisons, to find where the hunks of one file fit; they take some seconds. A patch states the place
#: of its hunks, so one that needs more is far off, or crafted to waste time.
MAX_COMPARISONS = 5_000_000


@define
class _Effort:
    left: int

    def spend(self, lines: int, path: str) -> None:
        self.left -= lines
        if self.left < 0:
            raise PatchConflict(
                f"where the patch fits {path} takes too long to find; state the line of each hunk as it is in the file",
                path=path,
            )


@frozen
class _File:
    path: str
    encoding: Encoding
    raw: list[bytes]
    text: list[str]
    bare: bool
    effort: _Effort
    known: frozenset[str]


def apply(path: str, base: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Apply `hunks`, in the order of the file, to `base` and return the result.

    Raises PatchConflict with every hunk that does not fit: its number and header, what it expects and what the file
    holds there. Raises it also if the file's encoding lacks a character of an added line.
    """
    encoding = encoding_of(base)
    raw = split(base, encoding)
    text = [encoding.decode(line) for line in raw]
    ends = [line.endswith("\r\n") for line in text if line.endswith("\n")]
    # If no line can be compared: in a file with CRLF throughout, a patch without CRs is assumed to mean CRLF.
    bare = bool(ends) and all(ends) and not any("\r" in line.text for hunk in hunks for line in hunk.lines)
    known = frozenset(_without_return(line) for line in [*text, *(line.removeprefix(BOM) for line in text[:1])])
    file = _File(path, encoding, raw, text, bare, _Effort(MAX_COMPARISONS), known)
    out: list[bytes] = []
    failures: list[tuple[int, Hunk, str]] = []
    at, drift, hidden = 0, 0, False
    for number, hunk in enumerate(hunks, 1):
        place = _find(file, hunk, at, drift)
        if isinstance(place, str):
            failures.append((number, hunk, place))
            continue
        out += raw[at:place]
        out += _changed(file, hunk, place)
        hidden = hidden or _hides_mark(file, hunk, place)
        drift = place - _stated(hunk)
        at = place + len(hunk.source)
    if failures:
        raise _conflict(path, failures)
    out += raw[at:]
    mark = encoding.encode(BOM) if hidden else b""
    if out and not out[0].startswith(mark):
        out[0] = mark + out[0]
    _check_ends(path, out, encoding)
    return b"".join(out)


def _stated(hunk: Hunk) -> int:
    return hunk.start if not hunk.source else max(hunk.start - 1, 0)


def _find(file: _File, hunk: Hunk, least: int, drift: int) -> int | str:
    """Return the index of the line nearest to the stated one where the hunk fits; else why there is none."""
    source = hunk.source
    stated = _stated(hunk) + drift
    last = len(file.text) - len(source)
    if not source:
        # There is nothing to compare, so only the stated place is possible.
        ok = least <= stated <= last
        return stated if ok else f"it adds lines after line {hunk.start}, but the file has {len(file.text)} lines"
    if any(_without_return(line.text) not in file.known for line in source):
        # A line that the file does not contain fits at no place.
        return _mismatch(file, source, stated, least)
    for distance in range(max(stated - last, least - stated, 0), max(stated - least, last - stated) + 1):
        fits = [i for i in {stated - distance, stated + distance} if least <= i <= last and _fits(file, source, i)]
        if len(fits) > 1:
            a, b = sorted(i + 1 for i in fits)
            return f"it fits equally well at lines {a} and {b}"
        if fits:
            return fits[0]
    return _mismatch(file, source, stated, least)


def _fits(file: _File, source: Sequence[HunkLine], at: int) -> bool:
    equal = sum(1 for _ in takewhile(lambda i: _same(file, source[i], at + i), range(len(source))))
    file.effort.spend(equal + 1, file.path)
    return equal == len(source)


def _same(file: _File, line: HunkLine, index: int) -> bool:
    there, here = file.text[index], line.text
    if index == 0 and there.startswith(BOM) and not here.startswith(BOM):
        there = there[1:]
    return there == here or _without_return(there) == _without_return(here)


def _without_return(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line


def _mismatch(file: _File, source: Sequence[HunkLine], stated: int, least: int) -> str:
    begin = max(stated, least)
    index, line = next(
        (begin + i, line)
        for i, line in enumerate(source)
        if begin + i >= len(file.text) or not _same(file, line, begin + i)
    )
    there = f"is {_quoted(file.text[index])}" if index < len(file.text) else f"the file ends at line {len(file.text)}"
    return f"line {index + 1} should be {_quoted(line.text)}, but {there}"


def _quoted(line: str) -> str:
    shown = line.removesuffix("\n").removesuffix("\r")
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return f'"{shown}"' + ("" if line.endswith("\n") else " (without a newline at the end of the file)")


def _changed(file: _File, hunk: Hunk, place: int) -> Iterator[bytes]:
    source = hunk.source
    seen = [(line.text, file.text[place + i]) for i, line in enumerate(source)]
    # If the line ends of the patch agree with the file's exactly, added lines are kept as they are.
    exact = [line.endswith("\r\n") == there.endswith("\r\n") for line, there in seen if there.endswith("\n")]
    convert = not all(exact) or (not exact and file.bare)
    index, first = place, True
    for line in hunk.lines:
        if line.mark == "+":
            text = _ended_as(line.text, _ends_near(file, index)) if convert else line.text
            yield _encoded(file, text)
            first = False
        elif line.mark == "-":
            index += 1
        else:
            moved = not first and index == 0 and _hides_mark(file, hunk, place)
            yield file.encoding.encode(file.text[0][1:]) if moved else file.raw[index]
            index, first = index + 1, False


def _hides_mark(file: _File, hunk: Hunk, place: int) -> bool:
    """Whether the hunk covers the file's byte order mark without showing it. The mark then stays."""
    source = hunk.source
    return place == 0 and bool(source) and file.text[0].startswith(BOM) and not source[0].text.startswith(BOM)


def _ends_near(file: _File, index: int) -> str:
    """Return the line end of the nearest line before the place of an added line, or else after it."""
    near = chain(range(index - 1, -1, -1), range(index, len(file.text)))
    ended = next(file.text[i] for i in near if file.text[i].endswith("\n"))
    return "\r\n" if ended.endswith("\r\n") else "\n"


def _ended_as(text: str, end: str) -> str:
    if not text.endswith("\n"):
        return text
    return text.removesuffix("\n").removesuffix("\r") + end


def _encoded(file: _File, text: str) -> bytes:
    try:
        return file.encoding.encode(text)
    except UnicodeEncodeError:
        raise PatchConflict(
            f"{file.path} is written in {file.encoding.name}, which cannot hold the added line {_quoted(text)}; "
            "propose the whole file to change its encoding"
        ) from None


def _check_ends(path: str, lines: list[bytes], encoding: Encoding) -> None:
    end = encoding.encode("\n")
    for number, line in enumerate(lines[:-1], 1):
        if not line.endswith(end):
            raise PatchConflict(
                f"after the patch, line {number} of {path} would have no newline though lines follow it; "
                "the patch must show the missing newline with `\\ No newline at end of file`"
            )


def _conflict(path: str, failures: list[tuple[int, Hunk, str]]) -> PatchConflict:
    named = "; ".join(f"hunk {number} ({hunk.header}): {why}" for number, hunk, why in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return PatchConflict(
        f"the patch does not fit {path}: {named}{more}",
        path=path,
        hunks=tuple({"number": number, "header": hunk.header, "why": why} for number, hunk, why in failures[:50]),
    )


def created(path: str, hunks: Sequence[Hunk]) -> bytes:
    """Return the content of a new file: the added lines of its hunks. Raises PatchConflict for any other line."""
    for number, hunk in enumerate(hunks, 1):
        if hunk.source or number > 1:
            raise _conflict(path, [(number, hunk, "it expects lines of a file that is to be new")])
    lines = [line.text.encode(UTF8.codec) for hunk in hunks for line in hunk.lines]
    _check_ends(path, lines, UTF8)
    return b"".join(lines)


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
    raise DiffError(f"the names on line {at} of the patch cannot be told apart: {rest[:120]!a}")


_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4})")


def says_gone(stamp: str | None) -> bool:
    """Whether a file's time stamp is the epoch, with which `diff -N` marks a missing file."""
    found = _STAMP.match(stamp or "")
    if found is None:
        return False
    return datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S %z") == datetime(1970, 1, 1, tzinfo=UTC)
