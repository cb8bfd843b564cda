"""The diff of a proposal that people see, made by us from the bytes before and after only.

Agents control the hunk headers, context, file headers and escape sequences of their own diffs. So none of their text is
shown as a diff. Our hunk headers carry only line numbers, and invisible characters are shown as their codes. A `Remark`
per file says what a diff cannot show, or shows badly.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from attrs import define, evolve, field, frozen

from intercom.masking import masked_lines
from intercom.model.errors import PatchConflict
from intercom.model.request import ApprovalRequest, ChangeKind, FileChange, Remark
from intercom.model.visible_text import code_of, count, name_of, one_line, visible_line
from intercom.workspace.change_plan import Plan
from intercom.workspace.files import BOM, UTF8, Encoding, digest, encoding_of, is_binary, read, split_text

#: The most that is shown of one file's diff, in lines and characters, and of one line, in characters as shown.
MAX_LINES, MAX_CHARACTERS, MAX_LINE = 50_000, 4 * 1024 * 1024, 4_000
#: How many characters of one file's diff are masked. No channel that leaves the machine shows more.
MAX_MASKED = 1024 * 1024
#: Longer lines are pointed out, because people rarely read them to the end.
LONG_LINE = 500

#: The line above a diff that was approved before. No line of a file's part begins with it.
_APPROVED_BEFORE = "What was approved, for the file as it was then:\n"
#: The beginning of the first remark on such a diff.
_CHANGED_SINCE = "has changed since this was approved by"
_CONTEXT = 3
#: How many pairs of lines the standard library compares at once; larger texts are divided at lines that occur once.
_PAIRS = 250_000
_DEPTH = 12
#: Binary content without a NUL is shown up to this size, in bytes.
_LITTLE = 512
#: How many of the lines of one kind a remark names.
_NAMED = 3
#: Stands for every byte that is no text.
_BYTES = "\udc80"
_WORD = re.compile(r"\w+")
#: White space that may move text out of sight, and the columns from which it does: inside a line, and at its start.
_GAP = re.compile(r"[ \t]{5,}(?=\S)")
_WIDE, _WIDE_INDENTATION = 40, 120
_TAB = 8
#: Latin letters in a styled form, which programs read as plain ones.
_STYLED = ("FULLWIDTH LATIN", "MATHEMATICAL", "LATIN SMALL LIGATURE")
#: Alphabets with letters that look like Latin ones.
_LOOK_ALIKE = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "LISU", "FULLWIDTH", "MATHEMATICAL", "COPTIC")


#: One step from the old lines to the new ones: what happens, and the ranges on both sides.
Opcode = tuple[str, int, int, int, int]


@frozen
class FileVersions:
    """A file's bytes before and after a change; None if there is no file."""

    change: FileChange
    before: bytes | None
    after: bytes | None


@frozen
class Preview:
    """A diff with its remarks.

    `changes` are the given files, with lines counted as in the diff. `remarks` come most important first. `masked` are
    the lines of `diff` that contain a secret, by number from 0, with the secret removed: a hunk may begin inside a key.
    """

    diff: str
    remarks: tuple[Remark, ...]
    changes: tuple[FileChange, ...]
    masked: tuple[tuple[int, str], ...] = ()


def preview(root: Path, plan: Plan) -> Preview:
    """Return the preview of `plan`, which was just made for the workspace `root`. Raises PatchConflict if a file has
    changed since, and what reading it raises."""
    return show(versions(root, plan))


def versions(root: Path, plan: Plan) -> Iterator[FileVersions]:
    """Yield the bytes of the files of `plan`, which was just made. Raises as `preview`."""
    for file in plan.files:
        path = file.change.old_path or file.change.path
        base = None if file.change.kind is ChangeKind.CREATE else read(root, path)
        if base is not None and digest(base.data) != file.change.before_hash:
            raise PatchConflict(f"{path} changed while the proposal was read; send it again", path=path)
        yield FileVersions(file.change, None if base is None else base.data, file.after)


def show(files: Iterable[FileVersions]) -> Preview:
    """Return the preview of `files`, in their order."""
    parts = [_Section(versions) for versions in files]
    for part in parts:
        part.write()
    masked: list[tuple[int, str]] = []
    at = 0
    for part in parts:
        masked += [(at + number, line) for number, line in part.masked()]
        at += sum(line.count("\n") for line in part.lines)
    ranked = sorted(((rank, remark) for part in parts for rank, remark in part.remarks), key=lambda each: each[0])
    return Preview(
        "".join(line for part in parts for line in part.lines),
        tuple(remark for _, remark in ranked),
        tuple(part.counted for part in parts),
        tuple(masked),
    )


def show_text(path: str, before: str | None, after: str) -> Preview:
    """Return the preview of a text not read from the workspace; `before` is None if it is new."""
    change = FileChange(path, ChangeKind.CREATE if before is None else ChangeKind.WRITE, "", "")
    old = None if before is None else before.encode("utf-8", "surrogatepass")
    return show([FileVersions(change, old, after.encode("utf-8", "surrogatepass"))])


def over(shown: Preview, by: str, approved: str | None, masked: Sequence[tuple[int, str]] = ()) -> Preview:
    """Return the preview of an approved change to a file that has changed since the approval. It shows what would
    become of the present file and, below it behind bars, the `approved` diff and its `masked` lines."""
    path = shown.changes[0].path
    remark = Remark(path, f"{_CHANGED_SINCE} {by}; the diff begins with what would become of it")
    remarks = (remark, *shown.remarks)
    if not approved:
        return evolve(shown, remarks=remarks)
    before = "".join(f"| {line}\n" for line in approved.removesuffix("\n").split("\n"))
    at = shown.diff.count("\n") + 1
    return evolve(
        shown,
        diff=f"{shown.diff}{_APPROVED_BEFORE}{before}",
        remarks=remarks,
        masked=(*shown.masked, *((at + number, f"| {line}") for number, line in masked)),
    )


def is_on_card(request: ApprovalRequest, made: Preview) -> bool:
    """Whether the card of `request` shows `made`, the preview of its files.

    The request's hash does not prove that: it covers what is written, but the preview is stored separately. Without a
    preview the card shows the agent's own text, which is never a change that can be written.
    """
    if request.preview is None:
        return False
    diff, remarks, masked = request.preview, request.remarks, request.masked
    if request.replaces is not None:
        diff, _, before = request.preview.partition(_APPROVED_BEFORE)
        length = diff.count("\n")
        quoted = [*before.removesuffix("\n").split("\n"), *(line for number, line in masked if number >= length)]
        if before and not all(line.startswith("| ") for line in quoted):
            return False
        if not remarks or not remarks[0].text.startswith(_CHANGED_SINCE):
            return False
        remarks, masked = remarks[1:], tuple(each for each in masked if each[0] < length)
    return (diff, remarks, masked, request.files) == (made.diff, made.remarks, made.masked, made.changes)


def is_part_of_card(request: ApprovalRequest, versions: Mapping[int, FileVersions]) -> bool:
    """Do as `is_on_card` for some of the files, by number, when the others have changed since."""
    if request.preview is None:
        return False
    diff = request.preview.partition(_APPROVED_BEFORE)[0]
    parts = re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)[1:]
    return len(parts) == len(request.files) and all(
        show([each]).diff == parts[number] for number, each in versions.items()
    )


def quote(change: FileChange, text: str, why: str) -> Preview:
    """Show an agent's text about a file whose bytes are unknown: each line behind a bar, and `why` in a remark."""
    lines = text.removesuffix("\n").split("\n") if text else []
    shown = "".join(f"| {visible_line(line.removesuffix(chr(13)))}\n" for line in lines)
    remark = Remark(change.path, f"{why}: what is shown is the agent's text, not a diff made from the file")
    added, removed = (sum(line.startswith(mark) for line in lines) for mark in "+-")
    return Preview(f"{_head(change)}\n{shown}", (remark,), (evolve(change, added=added, removed=removed),))


def joined(previews: Sequence[Preview]) -> Preview:
    """Join several previews into one."""
    begins = accumulate((each.diff.count("\n") for each in previews), initial=0)
    return Preview(
        "".join(each.diff for each in previews),
        tuple(remark for each in previews for remark in each.remarks),
        tuple(change for each in previews for change in each.changes),
        tuple((at + number, line) for at, each in zip(begins, previews, strict=False) for number, line in each.masked),
    )


def _head(change: FileChange) -> str:
    # No line of a hunk can begin like this, whatever the files contain.
    return f"diff --git a/{one_line(change.old_path or change.path)} b/{one_line(change.path)}"


@define
class _Text:
    """One side of a file as text. `lines` keep their ends, except CRs that every line of both sides has."""

    lines: list[str]
    encoding: Encoding
    has_mark: bool

    @staticmethod
    def of(data: bytes, encoding: Encoding) -> _Text:
        text = encoding.decode(data)
        return _Text(split_text(text), encoding, text.startswith(BOM))

    @property
    def ends(self) -> Counter[str]:
        return Counter("CRLF" if line.endswith("\r\n") else "LF" for line in self.lines if line.endswith("\n"))

    @property
    def said_ends(self) -> str:
        ends = sorted(self.ends.items())
        return " and ".join(f"{number} {end}" if len(ends) > 1 else end for end, number in ends) or "none"


@define
class _Section:
    """The part of a diff for one file, under construction."""

    versions: FileVersions
    lines: list[str] = field(factory=list)
    remarks: list[tuple[int, Remark]] = field(factory=list)
    counted: FileChange = field(init=False)
    _hidden: dict[str, list[str]] = field(factory=dict)
    _long: dict[int, int] = field(factory=dict)
    _mixed: dict[int, str] = field(factory=dict)
    _gaps: list[int] = field(factory=list)
    _size: int = 0
    _cut: int = 0
    #: The lines of the two sides; and for each one shown: its index in `lines`, its side and its number.
    _sides: dict[str, list[str]] = field(factory=dict)
    _shown: list[tuple[int, str, int]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.counted = self.versions.change

    def write(self) -> None:
        """Fill `lines`, `remarks` and `counted`."""
        change, before, after = self.versions.change, self.versions.before or b"", self.versions.after or b""
        self._headers(change)
        self._about_file(change, before, after)
        if _hides_bytes(before) or _hides_bytes(after):
            self._binary(before, after)
            return
        old, new = _texts(before, after)
        self._about_text(old, new)
        _drop_shared(old, new)
        self._sides = {"-": old.lines, "+": new.lines}
        self._hunks(old.lines, new.lines)
        self._about_lines()

    def masked(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of this part that contain a secret, by number from 0, with the secret removed. Each side
        of the file is masked with as much context as a secret may extend over."""
        found: dict[str, dict[int, str]] = {
            side: masked_lines(lines, [number for _, mark, number in self._shown if mark == side])
            for side, lines in self._sides.items()
        }
        if not any(found.values()):
            return
        begins = [0, *accumulate(line.count("\n") for line in self.lines)]
        for at, mark, number in self._shown:
            if (line := found[mark].get(number)) is not None:
                yield begins[at], f"{self.lines[at][:1]}{visible_line(line.removesuffix(chr(10)))[:MAX_LINE]}"

    def say(self, rank: int, text: str) -> None:
        """Add a remark. Lower ranks come first."""
        self.remarks.append((rank, Remark(self.versions.change.path, text)))

    def _headers(self, change: FileChange) -> None:
        self.lines.append(f"{_head(change)}\n")
        if change.old_path is not None:
            self.lines.append(f"rename from {one_line(change.old_path)}\nrename to {one_line(change.path)}\n")
        if change.mode is not None:
            kind = "new file mode" if change.kind is ChangeKind.CREATE else "new mode"
            self.lines.append(f"{kind} 100{change.mode:o}\n")

    def _about_file(self, change: FileChange, before: bytes, after: bytes) -> None:
        if change.mode is not None:
            runs = bool(change.mode & 0o111)
            self.say(2, f"{'becomes' if runs else 'is no longer'} executable (mode {change.mode:o})")
        if change.kind is ChangeKind.CREATE and not after:
            self.say(5, "is created as an empty file")
        elif change.kind is ChangeKind.DELETE:
            if not before:
                self.say(5, "an empty file is removed")
        elif before == after and change.kind is not ChangeKind.CREATE:
            self.say(5, "its content does not change")
        elif not after:
            self.say(4, "is emptied")
        for path in filter(None, (change.path, change.old_path)):
            if one_line(path) != path:
                self.say(0, f"its name is not as it looks: {path!a}")
            if word := _mixed_word(path):
                self.say(1, f"its name mixes alphabets whose letters look alike: {word}")

    def _binary(self, before: bytes, after: bytes) -> None:
        what = {
            ChangeKind.CREATE: f"{_bytes(after)} {'comes' if len(after) == 1 else 'come'}",
            ChangeKind.DELETE: f"{_bytes(before)} {'goes' if len(before) == 1 else 'go'}",
        }.get(
            self.versions.change.kind,
            f"{_bytes(before)} {'becomes' if len(before) == 1 else 'become'} {len(after)}",
        )
        self.lines.append(f"Binary content: {what}, not shown\n")
        self.say(0, f"binary: {what}, and none of them is shown")

    def _about_text(self, old: _Text, new: _Text) -> None:
        kind = self.versions.change.kind
        sides = [each for each, there in ((old, self.versions.before), (new, self.versions.after)) if there]
        if len(sides) == 2:
            self._about_both(old, new)
        elif kind is ChangeKind.CREATE and new.ends["CRLF"]:
            self.say(5, f"its lines end in CRLF{'' if not new.ends['LF'] else ' and LF, mixed'}")
        for encoding in {side.encoding.name: side.encoding for side in sides}.values():
            if encoding is not UTF8:
                guess = "" if "utf" in encoding.name else "read as "
                self.say(4, f"is {guess}{encoding.name}{', which is a guess' if guess else ''}")

    def _about_both(self, old: _Text, new: _Text) -> None:
        if old.encoding.codec != new.encoding.codec:
            self.say(2, f"its encoding changes from {old.encoding.name} to {new.encoding.name}")
        if old.has_mark != new.has_mark:
            self.say(3, f"a byte order mark is {'added' if new.has_mark else 'removed'}")
        if old.lines == new.lines:
            return
        bare_old, bare_new = ([line.rstrip("\r\n") for line in side.lines] for side in (old, new))
        if bare_old == bare_new:
            if old.ends != new.ends:
                self.say(2, f"only line ends change: {old.said_ends} to {new.said_ends}")
            if old.lines[-1].endswith("\n") != new.lines[-1].endswith("\n"):
                self.say(3, f"the newline at its end is {'added' if new.lines[-1].endswith(chr(10)) else 'removed'}")
            return
        if set(old.ends) != set(new.ends) and old.ends and new.ends:
            self.say(2, f"line ends change: {old.said_ends} to {new.said_ends}")
        words_old, words_new = ([word for line in side.lines for word in line.split()] for side in (old, new))
        if words_old == words_new:
            self.say(4, "only white space changes")

    def _hunks(self, old: list[str], new: list[str]) -> None:
        change = self.versions.change
        groups = _grouped(old, new)
        if groups:
            name, target = one_line(change.old_path or change.path), one_line(change.path)
            self.lines.append(f"--- {'/dev/null' if change.kind is ChangeKind.CREATE else f'a/{name}'}\n")
            self.lines.append(f"+++ {'/dev/null' if change.kind is ChangeKind.DELETE else f'b/{target}'}\n")
        added = removed = 0
        for group in groups:
            self._line(f"@@ -{_range(group[0][1], group[-1][2])} +{_range(group[0][3], group[-1][4])} @@\n")
            for tag, i1, i2, j1, j2 in group:
                if tag == "equal":
                    for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                        self._content(" ", new[j], j + 1, old[i])
                    continue
                if "".join(old[i2 - 1 : i2]).startswith("-- ") and "".join(new[j1 : j1 + 1]).startswith("++ "):
                    self.say(1, f"line {j1 + 1} looks like the header of another file, but is not")
                for i in range(i1, i2):
                    self._content("-", old[i], i + 1, new[j1 + i - i1] if i - i1 < j2 - j1 else "")
                for j in range(j1, j2):
                    self._content("+", new[j], j + 1, old[i1 + j - j1] if j - j1 < i2 - i1 else "")
                removed, added = removed + i2 - i1, added + j2 - j1
        self.counted = evolve(change, added=added, removed=removed)

    def _content(self, mark: str, line: str, number: int, other: str) -> None:
        has_end = line.endswith("\n")
        text = line.removesuffix("\n")
        where = f"line {number}" if mark != "-" else f"line {number} of before"
        shown = visible_line(text, lambda character: self._found(character, where))
        if len(text) > LONG_LINE and mark != " ":
            self._long[number] = max(len(text), self._long.get(number, 0))
        if mark == "+" and _has_gap(text):
            self._gaps.append(number)
        if mark == "+" and not text.isascii() and (word := _mixed_word(text)):
            self._mixed.setdefault(number, word)
        if len(shown) > MAX_LINE:
            shown = _window(shown, visible_line(other.removesuffix("\n")))
        at = len(self.lines)
        self._line(f"{mark}{shown}\n" if has_end else f"{mark}{shown}\n\\ No newline at end of file\n")
        if len(self.lines) > at and self._size <= MAX_MASKED:
            self._shown.append((at, "-" if mark == "-" else "+", number - 1))

    def _line(self, line: str) -> None:
        if self._cut or len(self.lines) >= MAX_LINES or self._size + len(line) > MAX_CHARACTERS:
            self._cut += 1
            return
        self._size += len(line)
        self.lines.append(line)

    def _found(self, character: str, where: str) -> None:
        places = self._hidden.setdefault(_BYTES if "\udc80" <= character <= "\udcff" else character, [])
        if where not in places[-1:]:
            places.append(where)

    def _about_lines(self) -> None:
        if self._cut:
            shown = len(self.lines)
            are = "is" if self._cut == 1 else "are"
            self.lines.append(f"\\ {count(self._cut, 'more line')} of this diff {are} not shown\n")
            self.say(0, f"{shown} of {shown + self._cut} lines of its diff are shown")
        for character, places in self._hidden.items():
            if character == _BYTES:
                what = "bytes that are not UTF-8, written as \\x80 and so on,"
            else:
                what = f"{code_of(character)} ({name_of(character)})"
            named = f"{', '.join(places[:_NAMED])}{_rest(' and', places, _NAMED)}"
            self.say(0 if character != "\ufeff" else 3, f"{what} is written as its code on {named}")
        if self._mixed:
            number, word = next(iter(self._mixed.items()))
            rest = _rest(", and", self._mixed)
            self.say(1, f"line {number} mixes alphabets whose letters look alike: {word}{rest}")
        if self._gaps:
            self.say(1, f"there is more behind a wide gap on line {self._gaps[0]}{_rest(' and', self._gaps)}")
        if self._long:
            number, size = max(self._long.items(), key=lambda each: each[1])
            cut = f"; {MAX_LINE:,} of them are shown" if size > MAX_LINE else ""
            rest = _rest(", and", self._long, what=f"more are over {LONG_LINE}")
            self.say(1, f"line {number} is {size:,} characters long{cut}{rest}")


@frozen
class TextChange:
    """A change of a text file as its diff shows it: the lines of both sides, and their `groups`, one for each hunk.

    `old` and `new` lack what every line of both sides shares, CRs and a byte order mark; `has_returns` and `has_mark`
    say so. Both sides have the same encoding.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    groups: tuple[tuple[Opcode, ...], ...]
    encoding: Encoding
    has_returns: bool
    has_mark: bool

    def with_hunks(self, places: Collection[int]) -> bytes:
        """Return the file's bytes with only these hunks applied; `places` count them from 0. Raises
        UnicodeEncodeError if the encoding lacks a character."""
        lines: list[str] = []
        at = 0
        for place, group in enumerate(self.groups):
            first, last = group[0], group[-1]
            lines += self.old[at : first[1]]
            lines += self.new[first[3] : last[4]] if place in places else self.old[first[1] : last[2]]
            at = last[2]
        lines += self.old[at:]
        text = "".join(lines)
        if self.has_returns:
            text = text.replace("\n", "\r\n")
        return self.encoding.encode(f"{BOM}{text}" if self.has_mark and lines else text)


def text_change(before: bytes, after: bytes) -> TextChange | None:
    """Return a change of a file that stays a text of one encoding, with the hunks that its diff shows; None for any
    other change, which cannot be divided."""
    if _hides_bytes(before) or _hides_bytes(after):
        return None
    old, new = _texts(before, after)
    if old.encoding.codec != new.encoding.codec:
        return None
    has_mark, has_returns = _drop_shared(old, new)
    groups = tuple(map(tuple, _grouped(old.lines, new.lines)))
    return TextChange(tuple(old.lines), tuple(new.lines), groups, old.encoding, has_returns, has_mark)


def _grouped(old: Sequence[str], new: Sequence[str]) -> list[list[Opcode]]:
    return [*_Matcher(old, new).get_grouped_opcodes(_CONTEXT)]


def _rest(joint: str, found: Collection[object], named: int = 1, what: str = "more lines") -> str:
    return f"{joint} {len(found) - named} {what}" if len(found) > named else ""


def _hides_bytes(data: bytes) -> bool:
    """Whether only the size is shown: binary content, unless it is short enough to show as codes."""
    return is_binary(data) and (b"\0" in data or len(data) > _LITTLE)


def _texts(before: bytes, after: bytes) -> tuple[_Text, _Text]:
    first, second = encoding_of(before), encoding_of(after)
    # ASCII is the same in every narrow encoding, so that side does not reveal the file's encoding.
    if first is UTF8 and before.isascii() and not second.codec.startswith("utf"):
        first = second
    if second is UTF8 and after.isascii() and not first.codec.startswith("utf"):
        second = first
    return _Text.of(before, first), _Text.of(after, second)


def _drop_shared(old: _Text, new: _Text) -> tuple[bool, bool]:
    """Drop a CR that every line of both sides has, and a byte order mark of both: they show no change. Returns whether
    a mark and CRs were dropped."""
    sides = [side for side in (old, new) if side.lines]
    has_mark = bool(sides) and all(side.has_mark for side in sides)
    if has_mark:
        for side in sides:
            side.lines[0] = side.lines[0].removeprefix(BOM)
    has_returns = bool(sides) and all(set(side.ends) == {"CRLF"} for side in sides)
    if has_returns:
        for side in sides:
            side.lines = [line[:-2] + "\n" if line.endswith("\r\n") else line for line in side.lines]
    return has_mark, has_returns


def _range(start: int, stop: int) -> str:
    count = stop - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"


def _window(line: str, other: str) -> str:
    """Return the part of a very long line where it differs from its counterpart."""
    pairs = enumerate(zip(line, other, strict=False))
    same = next((i for i, (here, there) in pairs if here != there), min(len(line), len(other)))
    start = 0 if same < MAX_LINE // 2 else min(same - 200, len(line) - MAX_LINE)
    said = "character before is" if start == 1 else "characters before are"
    before = f"[{start:,} {said} not shown] " if start else ""
    rest = len(line) - start - MAX_LINE
    after = f" [{rest:,} more {'is' if rest == 1 else 'are'} not shown]" if rest > 0 else ""
    return f"{before}{line[start : start + MAX_LINE]}{after}"


def _has_gap(line: str) -> bool:
    return any(
        match.group().count(" ") + match.group().count("\t") * _TAB >= (_WIDE if match.start() else _WIDE_INDENTATION)
        for match in _GAP.finditer(line)
    )


def _mixed_word(text: str) -> str | None:
    """Return a word with misleading letters, which are written as their codes, or None.

    Such a word mixes Latin letters with look-alikes of another alphabet. Or it has Latin letters in a styled form,
    which programs read as plain ones (`ｅｖａｌ` is `eval` to Python).
    """
    if text.isascii():
        return None
    for word in _WORD.findall(text):
        if word.isascii():
            continue
        if any(unicodedata.name(letter, "").startswith(_STYLED) for letter in word):
            return "".join(letter if letter.isascii() else code_of(letter) for letter in word[:60])
        if not re.search("[A-Za-z]", word):
            continue
        strange = {each for each in word if not each.isascii() and unicodedata.name(each, "").startswith(_LOOK_ALIKE)}
        if strange:
            return "".join(code_of(letter) if letter in strange else letter for letter in word[:60])
    return None


class _Matcher(difflib.SequenceMatcher[str]):
    """The standard library's comparison, divided at lines that occur once on both sides. Without that, its time
    grows with the square of the number of lines, or faster for crafted files."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new)
        self._old, self._new = old, new

    def get_matching_blocks(self) -> list[difflib.Match]:
        blocks: list[difflib.Match] = []
        for i, j, size in sorted(_matches(self._old, self._new)):
            if blocks and (blocks[-1].a + blocks[-1].size, blocks[-1].b + blocks[-1].size) == (i, j):
                size += blocks[-1].size
                i, j, _ = blocks.pop()
            blocks.append(difflib.Match(i, j, size))
        return [*blocks, difflib.Match(len(self._old), len(self._new), 0)]


def _matches(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    todo = [(0, len(a), 0, len(b), 0)]
    while todo:
        alo, ahi, blo, bhi, depth = todo.pop()
        same = 0
        while alo + same < ahi and blo + same < bhi and a[alo + same] == b[blo + same]:
            same += 1
        if same:
            yield alo, blo, same
        alo, blo, same = alo + same, blo + same, 0
        while ahi - same > alo and bhi - same > blo and a[ahi - same - 1] == b[bhi - same - 1]:
            same += 1
        if same:
            yield ahi - same, bhi - same, same
        ahi, bhi = ahi - same, bhi - same
        if alo == ahi or blo == bhi:
            continue
        if (ahi - alo) * (bhi - blo) <= _PAIRS:
            for i, j, size in difflib.SequenceMatcher(None, a[alo:ahi], b[blo:bhi]).get_matching_blocks():
                if size:
                    yield alo + i, blo + j, size
            continue
        anchors = _anchors(a, b, alo, ahi, blo, bhi) if depth < _DEPTH else []
        for i, j in anchors:
            todo.append((alo, i, blo, j, depth + 1))
            alo, blo = i, j
        if anchors:
            todo.append((alo, ahi, blo, bhi, depth + 1))


def _anchors(a: Sequence[str], b: Sequence[str], alo: int, ahi: int, blo: int, bhi: int) -> list[tuple[int, int]]:
    """Return the longest row of lines that occur once on each side and are in the same order on both."""
    here, there = Counter(a[alo:ahi]), Counter(b[blo:bhi])
    where = {b[j]: j for j in range(blo, bhi) if there[b[j]] == 1}
    pairs = [(i, where[a[i]]) for i in range(alo, ahi) if here[a[i]] == 1 and a[i] in where]
    ends: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for index, (_, j) in enumerate(pairs):
        at = bisect_left(ends, j)
        before.append(last[at - 1] if at else None)
        ends[at : at + 1] = [j]
        last[at : at + 1] = [index]
    row: list[tuple[int, int]] = []
    index_or_none = last[-1] if last else None
    while index_or_none is not None:
        row.append(pairs[index_or_none])
        index_or_none = before[index_or_none]
    return row[::-1]


def _bytes(data: bytes) -> str:
    return count(len(data), "byte")
