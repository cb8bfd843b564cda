"""What an agent proposes: a file's whole content, or a unified diff of one or many files.

`git apply` and `patch` skip text before a patch, and accept an indented one. So they would apply a text that holds a
hunk anywhere, and it cannot be told from a file about patches. It is refused; such a file has to be sent as `content`.

Weaker signs are a code block marked `diff`, lines that begin with plus and minus, or an `Index:` line. They count only
if the text begins with them or consists of them, so documentation with such a block further down is a file. The first
line such as `3d` counts if only commands of ed follow it. Other ed commands count only if the text consists of them, so
most sed scripts are files.

Names are parsed as `git apply` does, but more strictly. If two headers of a file disagree, the patch is refused,
because a person may have read either of them.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from attrs import evolve, frozen
from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as ParsedHunk
from unidiff.patch import PatchSet

from intercom.model.errors import DiffError
from intercom.model.request import ChangeKind, ProposalForm
from intercom.workspace.files import directories_above, lexical

#: The limits of one proposal, because a person has to read it.
MAX_DIFF_BYTES = 4 * 1024 * 1024
MAX_FILES = 500

#: The beginnings of a text that is parsed as a patch.
BEGINNINGS = ("--- ", "diff ")
DEV_NULL = "/dev/null"
_GIT = "diff --git "


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

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that change, both ends of a rename."""
        return (self.old_path, self.path) if self.kind is ChangeKind.RENAME and self.old_path else (self.path,)


@frozen
class Proposal:
    """A parsed proposal. `content` is a file's whole new content, None for a patch. `patches` are the files of a
    patch, in its order. `file_path` is the path that the request names, in lexical form."""

    file_path: str
    content: bytes | None = None
    patches: tuple[FilePatch, ...] = ()

    @property
    def is_patch(self) -> bool:
        return self.content is None

    @property
    def form(self) -> ProposalForm:
        """How the text was parsed, to be stored with it."""
        return ProposalForm.PATCH if self.is_patch else ProposalForm.CONTENT

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that would change, both ends of a rename."""
        patched = tuple(path for each in self.patches for path in each.paths)
        return patched if self.is_patch else (self.file_path,)


def parse(diff: str, file_path: str) -> Proposal:
    """Parse the `diff` that an agent sends for `file_path`.

    Text that begins with "--- " or "diff " is a unified diff, with or without git's extended headers, and must name
    `file_path`. Text that is clearly not a patch is the file's whole content, as in `whole`.

    Raises DiffError if the text is neither, is too large, names a file twice, or needs something unsupported (binary
    patches, copies, symbolic links). Raises PathViolation for a path that cannot be inside a workspace.
    """
    wanted = lexical(file_path)
    data = _encoded(diff)
    if not data:
        raise DiffError(f"the diff is empty; {_WAYS} (to make the file empty, content is an empty text)")
    if not diff.startswith(BEGINNINGS):
        found = likeness(diff)
        if found is not None:
            raise DiffError(f"the diff looks like {found}; {_WAYS}")
        return Proposal(wanted, content=data)
    try:
        patches = tuple(_patches(_lines(diff), wanted))
        _check_names(patches, wanted)
    except DiffError as fault:
        if "\n@@ " in diff:
            raise
        # Without a hunk, it may be a text that only begins like a patch.
        raise DiffError(f"{fault.message}; if it is a whole file, send it as content") from None
    return Proposal(wanted, patches=patches)


def whole(content: str, file_path: str) -> Proposal:
    """Take `content` literally as the new content of `file_path`, in UTF-8, whatever it looks like. Raises DiffError
    if it is too large or not valid text; PathViolation as `parse`."""
    return Proposal(lexical(file_path), content=_encoded(content))


def recorded(text: str, file_path: str, form: ProposalForm | None) -> Proposal:
    """Parse a stored proposal; `form` says how its text was parsed. If it is None, today's rules apply. Raises as
    `parse`."""
    return whole(text, file_path) if form is ProposalForm.CONTENT else parse(text, file_path)


_WAYS = "send a patch that begins with its --- line or with diff --git, or send the whole file as content"


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise DiffError("the proposal holds half a surrogate pair, which is no character; send valid text") from None
    if len(data) > MAX_DIFF_BYTES:
        raise DiffError(f"the proposal is {len(data)} bytes long; the most is {MAX_DIFF_BYTES}, so send it in parts")
    return data


def _lines(diff: str) -> list[str]:
    lines = [line + "\n" for line in diff.removesuffix("\n").split("\n")]
    if lines[0].endswith("\r\n"):
        # The whole patch was sent with CRLF line ends, because headers have no CR of their own.
        other = next((i for i, line in enumerate(lines[:-1], 1) if not line.endswith("\r\n")), None)
        if other is not None:
            raise DiffError(
                f"the patch mixes line ends: line 1 ends with CRLF and line {other} with LF, "
                "so what belongs to the file is not certain; send its headers with LF"
            )
        lines = [line[:-2] + "\n" if line.endswith("\r\n") else line for line in lines]
    # The text of the marker depends on the locale in which the patch was made.
    return ["\\ No newline at end of file\n" if line.startswith("\\ ") else line for line in lines]


# --- unified diffs ---------------------------------------------------------------------------------------------------


def _patches(lines: list[str], file_path: str) -> Iterator[FilePatch]:
    # No line of a hunk can begin like this, whatever the files contain.
    starts = [i for i, line in enumerate(lines) if line.startswith(_GIT)]
    yield from _unified(lines[: starts[0] if starts else None], 1, file_path, None)
    for start, end in pairwise([*starts, len(lines)]):
        block = lines[start:end]
        head = next((i for i, line in enumerate(block) if line.startswith(("@@ ", "-- \n"))), len(block))
        named = _read_git(block[:head], start + 1)
        body = block[head:]
        if any(line.startswith("@@ ") for line in body):
            if not any(line.startswith("+++ ") for line in block[:head]):
                raise DiffError(f"the file named on line {start + 1} has hunks but no --- and +++ lines before them")
            yield from _unified(["--- a\n", "+++ b\n", *body], start + head - 1, file_path, named)
        else:
            _check_all_read(body, start + head + 1, PatchSet([]))
            yield named


def _unified(lines: list[str], at: int, file_path: str, first: FilePatch | None) -> Iterator[FilePatch]:
    """Yield the files of plain unified diffs. `first` is what git's headers say of the first; `at` numbers line one."""
    counted = _Counted(lines)
    try:
        files = PatchSet(counted)
    except (UnidiffParseError, ValueError) as error:
        said = str(error).strip().splitlines()[0][:120]
        said = said[:1].lower() + said[1:]
        raise DiffError(f"the patch cannot be read near line {at + counted.taken - 1}: {said}") from None
    if not all(hunk for file in files for hunk in file):
        raise DiffError(f"a hunk near line {at + counted.taken - 1} of the patch is empty")
    _check_all_read(lines, at, files)
    for i, file in enumerate(files):
        where = at + (file.diff_line_no or 1) - 1
        gone = _says_gone(file.target_timestamp)
        named = first if first and i == 0 else _read_plain(file.source_file, file.target_file, where, file_path, gone)
        yield evolve(named, hunks=tuple(_hunk(hunk, lines, where) for hunk in file))


class _Counted(list[str]):
    """Lines that count how many were taken, to report where a parser stopped."""

    taken = 0

    def __iter__(self) -> Iterator[str]:
        for line in super().__iter__():
            self.taken += 1
            yield line


def _check_all_read(lines: list[str], at: int, files: PatchSet) -> None:
    """Check that lines outside hunks are headers: the parser skips them, but people read them as changes."""
    held = {line.diff_line_no for file in files for hunk in file for line in hunk}
    headers = {min(line.diff_line_no for line in hunk if line.diff_line_no) - 1 for file in files for hunk in file}
    for number, line in enumerate(lines, 1):
        if number in held or number in headers or not line.strip("\r\n") or line.startswith("\\ "):
            continue
        if line == "-- \n" and not any(rest.startswith((" ", "+", "-")) for rest in lines[number:]):
            return  # the signature below a mailed patch
        if not _is_header(lines, number - 1):
            raise DiffError(
                f"line {at + number - 1} of the patch is in no hunk: {line.rstrip()[:80]!a}; "
                "do the numbers of lines in the hunk headers fit?"
            )


def _is_header(lines: list[str], i: int) -> bool:
    """Whether a line outside all hunks is a header; `---` and `+++` are one only as a pair before a hunk."""
    if lines[i].startswith("--- "):
        return [line[:3] for line in lines[i + 1 : i + 3]] == ["+++", "@@ "]
    if lines[i].startswith("+++ "):
        return i > 0 and lines[i - 1].startswith("--- ")
    return lines[i].startswith(("diff ", "Index: ", "====="))


def _hunk(parsed: ParsedHunk, lines: list[str], where: int) -> Hunk:
    out: list[HunkLine] = []
    for line in parsed:
        if line.line_type == "\\":
            if not out:
                raise DiffError(f"a hunk near line {where} begins with the marker for a missing newline")
            out[-1] = HunkLine(out[-1].mark, out[-1].text.removesuffix("\n"))
        elif line.line_type:
            out.append(HunkLine(line.line_type, line.value))
    begins = parsed[0].diff_line_no or 2
    return Hunk(lines[begins - 2].rstrip("\r\n"), parsed.source_start, tuple(out))


def _check_names(patches: Sequence[FilePatch], file_path: str) -> None:
    if not patches:
        raise DiffError("the patch names no file; it needs --- and +++ lines and at least one hunk")
    if len(patches) > MAX_FILES:
        raise DiffError(f"the patch changes {len(patches)} files; the most is {MAX_FILES}, so send it in parts")
    named: dict[str, None] = {}
    for name in (path for patch in patches for path in patch.paths):
        if name in named:
            raise DiffError(f"the patch names {name} twice; put all its changes under one header")
        named[name] = None
    for name in named:
        for directory in directories_above(name):
            if directory in named:
                raise DiffError(f"the patch names {directory} both as a file and as the directory of {name}")
    if file_path not in named:
        raise DiffError(f"file_path is {file_path}, but the patch names {', '.join([*named][:5])}; they must agree")


# --- the headers of a file -------------------------------------------------------------------------------------------

#: The first component that git adds to a name: a/, b/, the mnemonic ones, and those of `--no-index`.
_PREFIX = re.compile(r"[abciow12]/.")
_ESCAPE = re.compile(r"\\([abtnvfr\"\\]|[0-3][0-7]{2})")
_PLAIN = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)? ([+-]\d{4})")
#: The headers that git writes, by their beginning: names, modes, and the others.
_NAMES = ("--- ", "+++ ", "rename from ", "rename to ")
_NEW_MODES = ("new file mode ", "new mode ")
_MODES = (*_NEW_MODES, "deleted file mode ", "old mode ")
_OTHERS = ("index ", "similarity index ", "dissimilarity index ")


def _read_git(lines: list[str], at: int) -> FilePatch:
    """Parse the header lines of a block, beginning with `diff --git`. `at` is the number of the first line.

    Raises DiffError for unknown lines, contradictory names, and unsupported changes (binary patches, copies, symbolic
    links, submodules). Raises PathViolation for unusable paths.
    """
    names: dict[str, str] = {}
    modes: dict[str, bool] = {}
    executable: bool | None = None
    for number, line in enumerate((line.rstrip("\n") for line in lines[1:]), at + 1):
        header = next((each for each in (*_NAMES, *_MODES, *_OTHERS) if line.startswith(each)), "")
        if header in _NAMES:
            name = line.removeprefix(header)
            names[header] = _unquote(name if header.startswith("rename") else name.split("\t")[0], number)
        elif header in _MODES or (header == "index " and line.count(" ") > 1):
            modes[header] = _executable(line, number)
            executable = modes[header] if header in _NEW_MODES else executable
        elif line.startswith(("copy from ", "copy to ")):
            raise DiffError(f"line {number} copies a file, which is not supported; send the copy as a new file")
        elif line.startswith(("Binary files ", "GIT binary patch")):
            raise DiffError(f"line {number} begins a binary patch, which is not supported; only text can be patched")
        elif line.strip() and not header:
            raise DiffError(f"line {number} of the patch belongs to no header: {line[:80]!a}")
    first = lines[0].removeprefix(_GIT).rstrip("\n")
    old, new, source, target = (names.get(header) for header in _NAMES)
    created, deleted = "new file mode " in modes, "deleted file mode " in modes
    if (source is None) != (target is None):
        raise DiffError(f"the patch names only one end of a rename, near line {at}")
    if source is not None and target is not None:
        for named, stated in ((old, source), (new, target)):
            if named is not None and named != stated and named.partition("/")[2] != stated:
                raise DiffError(f"the headers near line {at} disagree about the names of a renamed file")
        if '"' not in first and not (first.endswith(target) and f"{source} " in first):
            raise DiffError(f"the headers near line {at} disagree about the names of a renamed file")
        if created or deleted or lexical(source) == lexical(target):
            raise DiffError(f"the headers near line {at} disagree about what becomes of a renamed file")
        return FilePatch(lexical(target), ChangeKind.RENAME, (), lexical(source), executable)
    if (old is None) != (new is None):
        raise DiffError(f"the patch has only one of the --- and +++ lines, near line {at}")
    halves = _halves(first, at)
    if old not in (None, halves[0], DEV_NULL) or new not in (None, halves[1], DEV_NULL):
        raise DiffError(f"the headers near line {at} name different files; the first line says {first!a}")
    # --- or +++ may say /dev/null, but the first line always names the file twice.
    path = _strip(*halves, at)
    kind = _kind(created or DEV_NULL in (old, halves[0]), deleted or DEV_NULL in (new, halves[1]), at)
    return FilePatch(lexical(path), kind, (), None, executable)


def _read_plain(old: str, new: str, at: int, file_path: str, gone: bool) -> FilePatch:
    """Parse a file's `---` and `+++` names. `gone`: the new file's time stamp says that there is no file."""
    if DEV_NULL in (old, new):
        # The single name loses its prefix unless the request includes that.
        name = _unquote(new if old == DEV_NULL else old, at)
        path = name[2:] if _PREFIX.match(name) and name != file_path else name
    else:
        path = _strip(_unquote(old, at), _unquote(new, at), at)
    return FilePatch(lexical(path), _kind(old == DEV_NULL, new == DEV_NULL or gone, at))


def _unquote(name: str, at: int) -> str:
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


def _strip(old: str, new: str, at: int) -> str:
    """Return the one name of both, without the first component that distinguishes them (a/ and b/, or another pair)."""
    if old == new:
        return new
    old_rest, new_rest = old.partition("/")[2], new.partition("/")[2]
    if old_rest and old_rest == new_rest:
        return new_rest
    raise DiffError(
        f"the headers near line {at} name two files, {old!a} and {new!a}; "
        "a rename needs git's `rename from` and `rename to` lines"
    )


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


def _halves(rest: str, at: int) -> tuple[str, str]:
    """Split the two names of a `diff --git` line. Unquoted names may hold spaces, so split where the halves agree."""
    quoted = re.fullmatch(r'("(?:[^"\\]|\\.)*"|[^"]+) ("(?:[^"\\]|\\.)*"|[^"]+)', rest)
    if '"' in rest and quoted:
        return _unquote(quoted[1], at), _unquote(quoted[2], at)
    middle = len(rest) // 2
    if rest[middle : middle + 1] == " ":
        return rest[:middle], rest[middle + 1 :]
    raise DiffError(f"the names on line {at} of the patch cannot be told apart: {rest[:120]!a}")


def _says_gone(stamp: str | None) -> bool:
    """Whether a file's time stamp is the epoch, with which `diff -N` marks a missing file."""
    found = _STAMP.match(stamp or "")
    if found is None:
        return False
    return datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S %z") == datetime(1970, 1, 1, tzinfo=UTC)


# --- what only looks like a patch ------------------------------------------------------------------------------------

#: Invisible marks and spaces, skipped before the first line.
_UNSEEN = "\ufeff\u200b\u200e\u200f\u2060"
#: `patch` accepts these as indentation, even the letter.
_INDENTATION = " \tX"
_HUNK = re.compile(r"@@ -\d+(,\d+)? \+\d")
_NUMBERED = re.compile(r"\*\*\* \d")
_NORMAL = re.compile(r"\d+(,\d+)?[acd]\d+(,\d+)?$")
_SIDE = re.compile(r"[<>] ")
_ED = re.compile(r"\d+(,\d+)?[acdi][ \t]*$")
#: An address of ed: a line number, `.`, `$`, a mark or a pattern, and an offset.
_ED_ADDRESS = r"(?:\d+|[.$]|'[a-z]|/(?:[^/\\]|\\.)*/|\?(?:[^?\\]|\\.)*\?)?(?:[+-]\d*)*"
_ED_COMMAND = re.compile(
    rf"(?P<range>%|{_ED_ADDRESS}(?:[,;]{_ED_ADDRESS})?)"
    rf"(?:(?P<input>[aci])|(?P<change>[dj]|[mt]{_ED_ADDRESS})[lnp]*"
    r"|(?P<inner>s(?P<mark>[^\s\w\\]).*(?P=mark).*|[gv](?P<fence>[^\s\w\\]).*(?P=fence).*)"
    r"|(?P<save>wq?)|k[a-z]|[lnp=uHPqQ]?)[ \t]*$"
)
_EXTENDED = re.compile(
    r"(old|new) mode |(new|deleted) file mode |(similarity|dissimilarity) index |(rename|copy) (from|to) "
    r"|index [0-9a-f]|--- |\+\+\+ |@@ -|Binary files |GIT binary patch"
)
_MAIL_FIELD = re.compile(r"(Message-Id|Received|From|To|Cc|Date|Subject|X-[\w-]+|MIME-Version): ", re.IGNORECASE)
_MAIL_SUBJECT = re.compile(r"Subject: .*\[[^\]]*PATCH", re.IGNORECASE)
_MAIL_FIELDS = 40
_FENCE = re.compile(r"(`{3,}|~{3,})\s*([\w+.-]*)")
_FENCED_PATCH = ("diff", "patch", "udiff", "gitdiff", "git-diff", "apply_patch")
_CODEX_BEGIN = "*** Begin Patch"
_CODEX_FILE = re.compile(r"\*\*\* (Update|Add|Delete) File: ")
_CONFLICT = tuple(re.compile(rf"{mark}{{5,9}}( |$)") for mark in "<=>")
#: How far from the first line a search-and-replace block may begin: clients write the file name above it.
_NEAR = 3
_HIDDEN = "a patch with something before its first line, blank lines or marks that nobody sees"
#: What a text is whose first line and second line begin like this.
_FIRST_LINES = tuple(
    (re.compile(first), re.compile(second), what)
    for first, second, what in (
        (r"--- ", r"\+\+\+ ", _HIDDEN),
        (r"diff -", r"", _HIDDEN),
        (r"\+\+\+ ", r"--- |@@", "a patch without the first line of its header"),
        (r"@@([ @]|$)", r"", "a hunk of a patch without the header that names its file"),
        (r"Index: ", r"=====", "a patch with an Index line before its header"),
        (r"Binary files |GIT binary patch", r"", "a binary patch"),
        (r"\*\*\* (Begin Patch|(Update|Add|Delete) File: )", r"", "a patch for apply_patch"),
        (r"\*\*\* \S", r"--- ", "a context diff"),
        (r"[ad]\d+ \d+$", r"", "a diff for RCS"),
        (r"From [0-9a-f]{7,64} ", r"", "a patch in a mail"),
    )
)


def likeness(text: str) -> str | None:
    """Return what `text` looks like, as the end of "it looks like ..."; None if it is clearly a file's content."""
    for how, form in _forms(text):
        found = _anywhere(form) or _at_first(form) or _throughout(form) or _ed_script(form)
        if found is not None:
            return f"{found}{how}"
    return None


def _forms(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of a text as they are, and without possible wrappings, each with a name for the wrapping."""
    yield "", _plain_lines(text)
    if "&" in text and (plain := html.unescape(text)) != text:
        yield ", escaped for HTML", _plain_lines(plain)
    lines = [line for line in _plain_lines(text) if line.strip()]
    if lines and all(line.startswith(">") for line in lines):
        yield ", quoted as in a mail", [line.removeprefix(">").removeprefix(" ") for line in lines]
    if text.lstrip(_UNSEEN + " \r\n\t").startswith('"'):
        try:
            inner = json.loads(text)
        except ValueError:
            return
        if isinstance(inner, str):
            yield ", as a string of JSON", ["", *_plain_lines(inner)]


def _plain_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _anywhere(lines: Sequence[str]) -> str | None:
    """Recognise what git or patch would apply, wherever it is in the text."""
    has_codex_file = any(_CODEX_FILE.match(line.strip()) for line in lines)
    last_side, last_extended = _last(lines, _SIDE), _last(lines, _EXTENDED)
    first_ed = next((number for number, line in enumerate(lines, 1) if _ED.match(_unindented(line))), 0)
    for number, line in enumerate(lines, 1):
        here = _unindented(line)
        if not here or not (here[0].isdigit() or here[0] in "@d*"):
            continue
        below = _unindented(lines[number]) if number < len(lines) else ""
        if _HUNK.match(here) and number < len(lines):
            return f"a patch with something before it (line {number} begins a hunk)"
        if here.startswith("diff --git ") and number <= last_extended:
            return f"a patch with something before it (line {number} begins a file)"
        if here.startswith("********") and _NUMBERED.match(below):
            return f"a context diff (line {number} begins a hunk)"
        if _NORMAL.match(here) and number <= last_side:
            return f"a diff without context (line {number} begins a change)"
        if number == first_ed and _ed_commands(map(_unindented, lines[number - 1 :])) is not None:
            return f"an ed script (line {number} is a command of it)"
        if here.startswith(_CODEX_BEGIN) and has_codex_file:
            return f"a patch for apply_patch (line {number} begins it)"
    return None


def _unindented(line: str) -> str:
    return line.lstrip(_INDENTATION)


def _ed_script(lines: Sequence[str]) -> str | None:
    """Recognise an ed script without anything else. A sed script has no input that ends with a dot, and names the
    file that it writes, so it is not recognised here."""
    commands = _ed_commands(lines) or []
    changes = any(each["input"] or each["inner"] or (each["change"] and each["range"]) for each in commands)
    closes = any(each["save"] or (each["input"] and each["range"]) for each in commands)
    return "an ed script (every line is a command of it, or its input)" if changes and closes else None


def _ed_commands(lines: Iterable[str]) -> list[re.Match[str]] | None:
    """Return the commands of ed that lines consist of, apart from their input; None if there is anything else."""
    commands = []
    rest = iter(lines)
    for line in rest:
        command = _ED_COMMAND.match(line)
        if command is None or (command["input"] and "." not in rest):
            return None
        commands.append(command)
    return commands


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> int:
    """Return the index of the last line that matches; -1 if none does."""
    found = (i for i in range(len(lines) - 1, -1, -1) if pattern.match(_unindented(lines[i])))
    return next(found, -1)


def _at_first(lines: Sequence[str]) -> str | None:
    """Recognise a form by the first line that is not blank."""
    rows = [row for line in lines if (row := line.strip(_UNSEEN).strip())]
    if not rows:
        return None
    second = rows[1] if len(rows) > 1 else ""
    found = (what for one, other, what in _FIRST_LINES if one.match(rows[0]) and other.match(second))
    if (what := next(found, None)) is not None:
        return what
    if _MAIL_FIELD.match(rows[0]) and any(map(_MAIL_SUBJECT.match, rows[:_MAIL_FIELDS])):
        return "a patch in a mail"
    return _fenced(rows) or _conflicting(rows)


def _fenced(rows: Sequence[str]) -> str | None:
    """Recognise a text that begins with a fenced patch, is one fenced block, or is mostly fenced patches."""
    first = _FENCE.match(rows[0])
    if first is not None:
        if first[2].lower() in _FENCED_PATCH:
            return f"a patch in a code block ({rows[0][:20]})"
        closing = [i for i, row in enumerate(rows) if i and row.startswith(first[1]) and not row.strip(first[1][0])]
        if closing[:1] == [len(rows) - 1]:
            return "a code block with its fences, which would be written too"
    inside = outside = 0
    fence = ""
    for row in rows:
        found = _FENCE.match(row)
        if fence:
            fence = "" if row.startswith(fence) and not row.strip(fence[0]) else fence
            inside += bool(fence)
        elif found is not None and found[2].lower() in _FENCED_PATCH:
            fence = found[1]
        else:
            outside += 1
    return "a patch in a code block, with little else around it" if inside > outside else None


def _conflicting(rows: Sequence[str]) -> str | None:
    begin, middle, end = (next((i for i, row in enumerate(rows) if pattern.match(row)), None) for pattern in _CONFLICT)
    if begin is None or middle is None or end is None or not begin < middle < end:
        return None
    if begin >= _NEAR or any(" " in row for row in rows[:begin]):
        return None  # prose stands before it
    return "a block to search and replace, or a file with conflict markers"


def _throughout(lines: Sequence[str]) -> str | None:
    """Recognise a text in which every line begins like a line of a hunk, unless it is a list."""
    rows = [line for line in lines if line.strip()]
    if not rows or not all(row.startswith(("+", "-", " ", "\\ ")) for row in rows):
        return None
    added = [row for row in rows if row.startswith("+")]
    removed = [row for row in rows if row.startswith("-")]
    if not added and not removed:
        return None
    if not added and all(row in ("-", "---") or row.startswith("- ") for row in removed) and rows[0].startswith("-"):
        return None  # a list, as in YAML or Markdown
    return "lines of a hunk without headers (every line begins with a plus, a minus or a space)"
