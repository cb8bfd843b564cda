"""An amended proposal: some hunks of a proposal, or other contents for some of its files, as a proposal of its own.

It is made from the files as they are now, and only if the card still shows what they say: then the numbers of hunks
mean what the person saw. The result is a text that agents could have sent, so it is parsed, planned, limited and
previewed as any proposal is. It changes no other path than the proposal. What is planned must be, byte for byte, what
was chosen; otherwise the amendment is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from intercom.model.amendment import PATH, Amendment, Change
from intercom.model.card_hunks import HunkOfCard, hunks_of, left_out, spans
from intercom.model.errors import (
    DiffError,
    InvalidArguments,
    InvalidState,
    PatchConflict,
    PathViolation,
    RecordMismatch,
)
from intercom.model.request import ApprovalRequest, ChangeKind, ProposalForm
from intercom.model.visible_text import one_line
from intercom.workspace import change_plan, proposal
from intercom.workspace.change_plan import Plan
from intercom.workspace.files import UTF8, Encoding, encoding_of
from intercom.workspace.preview import (
    FileVersions,
    Opcode,
    Preview,
    TextChange,
    is_on_card,
    preview,
    text_change,
    versions,
)
from intercom.workspace.proposal import FilePatch, Hunk, HunkLine, Proposal

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NO_END = "\\ No newline at end of file\n"
_INSTEAD = "approve or reject the proposal as a whole"


@frozen
class Proposed:
    """A proposal that can be amended: how it was parsed, its files' bytes before and after, and its hunks."""

    request: ApprovalRequest
    parsed: Proposal
    files: tuple[FileVersions, ...]
    hunks: tuple[HunkOfCard, ...]

    @property
    def texts(self) -> dict[str, str]:
        """The new contents that a person can edit, by path: of files that stay or become text."""
        found = ((each.change.path, self._text(each)) for each in self.files)
        return {path: text for path, text in found if text is not None}

    @property
    def lines(self) -> list[str]:
        """The lines of its diff, with secrets removed."""
        lines = (self.request.preview or "").split("\n")
        for number, line in self.request.masked:
            lines[number] = line
        return lines

    def _text(self, each: FileVersions) -> str | None:
        if each.after is None:
            return None
        encoding = self._encoding(each)
        try:
            text = encoding.decode(each.after)
            text.encode()
        except UnicodeError:
            return None
        return text if "\0" not in text and encoding.encode(text) == each.after else None

    def encoded(self, each: FileVersions, text: str) -> bytes:
        """Return an edited content as the file is written. Raises InvalidArguments if its encoding lacks a
        character."""
        encoding = self._encoding(each)
        try:
            return encoding.encode(text)
        except UnicodeEncodeError as fault:
            lacking = f"U+{ord(fault.object[fault.start]):04X}"
            path = one_line(each.change.path)[:PATH]
            raise InvalidArguments(f"{path} is written in {encoding.name}, which cannot hold {lacking}") from None

    def _encoding(self, each: FileVersions) -> Encoding:
        # A patch keeps the file's encoding; a whole content is UTF-8.
        return encoding_of(each.before) if self.parsed.is_patch and each.before is not None else UTF8


@frozen
class Amended:
    """An amended proposal: its text and form, what it does and shows, and what the person changed."""

    text: str
    form: ProposalForm
    file_path: str
    plan: Plan
    shown: Preview
    changes: tuple[Change, ...]


def read(root: Path, request: ApprovalRequest) -> Proposed:
    """Return a pending proposal as it can be amended.

    Raises InvalidState for a request that has no hunks: a permission for a client's own tool, or a question whether to
    write over a changed file. Raises PatchConflict if a file has changed since it was proposed, and RecordMismatch if
    the card does not show what the files and the record say.
    """
    if request.tool is not None:
        raise InvalidState(
            "this is a permission to use a tool, and no change of files that we apply: there is no part to choose"
        )
    if request.replaces is not None:
        raise InvalidState(
            "this asks whether to write over a changed file, all of it or not: there is no part to choose"
        )
    try:
        parsed = proposal.recorded(request.diff_content, request.file_path, request.form)
        plan = change_plan.plan_again(root, parsed, request.files, root_id=request.root_inode)
    except (DiffError, PathViolation) as fault:
        raise RecordMismatch(f"the recorded proposal is another: {fault}; reject it") from None
    except PatchConflict as conflict:
        raise PatchConflict(
            f"{_changed_since(conflict)} changed since the proposal was made, so its hunks are not those of the card;"
            " reject it, and the agent can propose it again",
            paths=conflict.details.get("paths", ()),
        ) from None
    files = tuple(versions(root, plan))
    if not is_on_card(request, preview(root, plan)):
        raise RecordMismatch("the card does not show what the files and the record say; reject it")
    return Proposed(request, parsed, files, hunks_of(request.preview or "", request.files))


def _changed_since(conflict: PatchConflict) -> str:
    paths = conflict.details.get("paths")
    return ", ".join(map(str, paths)) if isinstance(paths, tuple) else "a file"


def amend(root: Path, proposed: Proposed, amendment: Amendment) -> Amended | None:
    """Return the amended proposal; None if the amendment changes nothing of the proposal.

    Raises InvalidArguments for a hunk or a file that the proposal does not have, hunks that only apply together, and
    an amendment that would leave nothing. Raises what `change_plan.plan` does.
    """
    if amendment.hunks:
        wanted, changes = _selected(proposed, amendment.hunks)
    else:
        wanted, changes = _edited(proposed, dict(amendment.texts))
    if not changes:
        return None
    if not wanted:
        raise InvalidArguments("nothing of the proposal would be left; reject it instead")
    request = proposed.request
    if proposed.parsed.is_patch:
        patches = tuple(part for part, _ in wanted.values() if isinstance(part, FilePatch))
        named = [path for each in patches for path in each.paths]
        file_path = request.file_path if request.file_path in named else patches[0].path
        text, form = written(patches), ProposalForm.PATCH
    else:
        [(content, _)] = wanted.values()
        assert isinstance(content, bytes), "the proposal is a whole content"
        file_path, form = request.files[0].path, ProposalForm.CONTENT
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InvalidArguments(
                f"a part of {file_path} would not be UTF-8 as a whole content is; {_INSTEAD}"
            ) from None
    plan = change_plan.plan(root, proposal.recorded(text, file_path, form))
    _check(proposed, plan, {index: after for index, (_, after) in wanted.items()})
    return Amended(text, form, file_path, plan, preview(root, plan), changes)


#: For each file that is left, by its index among the proposal's: its part of the new proposal, and its bytes after.
_Wanted = dict[int, tuple[FilePatch | bytes, bytes | None]]


def _selected(proposed: Proposed, numbers: Sequence[int]) -> tuple[_Wanted, tuple[Change, ...]]:
    known, chosen = {hunk.number for hunk in proposed.hunks}, frozenset(numbers)
    unknown = sorted(chosen - known)
    if unknown:
        has = "only hunk 1" if len(known) == 1 else f"hunks 1 to {len(known)}"
        raise InvalidArguments(f"there is no hunk {spans(unknown)[:100]}; the card has {has}")
    wanted: _Wanted = {}
    for index, file in enumerate(proposed.files):
        own = [hunk for hunk in proposed.hunks if hunk.file == index]
        places = {hunk.place for hunk in own if hunk.number in chosen}
        if len(places) == len(own):
            wanted[index] = _as_proposed(proposed, index), file.after
        elif places:
            wanted[index] = _in_part(proposed, index, places)
    return wanted, left_out(proposed.hunks, chosen, proposed.lines)


def _in_part(proposed: Proposed, index: int, places: Collection[int]) -> tuple[FilePatch | bytes, bytes]:
    file = proposed.files[index]
    # A new or removed file is one hunk, so both sides are there.
    change = text_change(file.before or b"", file.after or b"")
    if change is None:
        own = spans([hunk.number for hunk in proposed.hunks if hunk.file == index])
        raise InvalidArguments(
            f"the encoding of {one_line(file.change.path)[:PATH]} changes, so its hunks ({own}) apply only together"
        )
    after = change.with_hunks(places)
    if not proposed.parsed.is_patch:
        return after, after
    chosen = [group for place, group in enumerate(change.groups) if place in places]
    return _patch(proposed, index, _hunks(change, chosen)), after


def _edited(proposed: Proposed, texts: Mapping[str, str]) -> tuple[_Wanted, tuple[Change, ...]]:
    paths = [each.change.path for each in proposed.files]
    for path in texts:
        if path not in paths:
            raise InvalidArguments(
                f"{one_line(path)[:PATH]} is no file of this proposal, and an amendment changes no other file"
            )
    editable = proposed.texts
    wanted: _Wanted = {}
    changes: list[Change] = []
    for index, file in enumerate(proposed.files):
        path, text = file.change.path, texts.get(file.change.path)
        if text is None or text == editable.get(path):
            wanted[index] = _as_proposed(proposed, index), file.after
            continue
        if path not in editable:
            raise InvalidArguments(f"{one_line(path)[:PATH]} is removed, or is no text, so it cannot be edited")
        after = proposed.encoded(file, text)
        if file.change.kind is ChangeKind.WRITE and file.change.mode is None and after == file.before:
            changes.append(Change(path, whole=True))
            continue
        wanted[index] = _rewritten(proposed, index, after), after
        changes.append(Change(path, edited=True))
    return wanted, tuple(changes)


def _rewritten(proposed: Proposed, index: int, after: bytes) -> FilePatch | bytes:
    file = proposed.files[index]
    if not proposed.parsed.is_patch:
        return after
    if not file.before:
        # There is no form of lines to keep.
        lines = tuple(HunkLine("+", line) for line in _LINE.findall(UTF8.decode(after)))
        return _patch(proposed, index, (Hunk("", 0, lines),) if lines else ())
    change = text_change(file.before, after)
    if change is None:
        path = one_line(file.change.path)[:PATH]
        raise InvalidArguments(f"{path} would change its encoding, or be no text any more; {_INSTEAD}")
    return _patch(proposed, index, _hunks(change, change.groups))


def _check(proposed: Proposed, plan: Plan, wanted: Mapping[int, bytes | None]) -> None:
    """Check that the plan does exactly what was chosen, to the paths that were proposed."""
    if len(plan.files) != len(wanted) or plan.root_id != proposed.request.root_inode:
        raise InvalidState(f"this part of the proposal cannot be applied by itself; {_INSTEAD}")
    for planned, (index, after) in zip(plan.files, wanted.items(), strict=True):
        now, then = planned.change, proposed.request.files[index]
        same = (now.path, now.old_path, now.kind, now.before_hash, now.mode) == (
            *(then.path, then.old_path, then.kind, then.before_hash, then.mode),
        )
        if not same or planned.after != after:
            path = one_line(then.path)[:PATH]
            raise InvalidState(f"this part of the change of {path} cannot be applied by itself; {_INSTEAD}")


# --- patches as text -------------------------------------------------------------------------------------------------


def _as_proposed(proposed: Proposed, index: int) -> FilePatch | bytes:
    """Return the whole change of one file, as it was proposed, under the path that was recorded."""
    if proposed.parsed.content is not None:
        return proposed.parsed.content
    return _patch(proposed, index, proposed.parsed.patches[index].hunks)


def _patch(proposed: Proposed, index: int, hunks: Iterable[Hunk]) -> FilePatch:
    """Return the patch of one file with these hunks. Its path is the canonical one: no link is followed again."""
    change = proposed.request.files[index]
    part = proposed.parsed.patches[index]
    return evolve(part, path=change.path, kind=change.kind, old_path=change.old_path, hunks=tuple(hunks))


def _hunks(change: TextChange, groups: Sequence[Sequence[Opcode]]) -> Iterator[Hunk]:
    for group in groups:
        lines: list[HunkLine] = []
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += (HunkLine(" ", line) for line in change.old[i1:i2])
                continue
            lines += (HunkLine("-", line) for line in change.old[i1:i2])
            lines += (HunkLine("+", line) for line in change.new[j1:j2])
        cut = _unsendable_context(lines)
        kept = lines[cut : len(lines) - _unsendable_context(lines[::-1])]
        first = group[0][1] + cut
        yield Hunk("", first + 1 if any(line.mark != "+" for line in kept) else first, tuple(kept))


def _unsendable_context(lines: Sequence[HunkLine]) -> int:
    """Return how many lines of the context at the beginning to leave out: up to the last with bytes that are no
    text, which no proposal can hold."""
    cut = 0
    for number, line in enumerate(lines, 1):
        if line.mark != " ":
            break
        if any("\ud800" <= character <= "\udfff" for character in line.text):
            cut = number
    return cut


def written(patches: Sequence[FilePatch]) -> str:
    """Return the text of a patch of these files, which `proposal.parse` reads as the same."""
    return "".join(line for patch in patches for line in _written(patch))


def _written(patch: FilePatch) -> Iterator[str]:
    old, new = _quoted(f"a/{patch.old_path or patch.path}"), _quoted(f"b/{patch.path}")
    yield f"diff --git {old} {new}\n"
    mode = "100755" if patch.executable else "100644"
    if patch.kind is ChangeKind.CREATE:
        yield f"new file mode {mode}\n"
    elif patch.kind is ChangeKind.DELETE:
        yield "deleted file mode 100644\n"
    elif patch.executable is not None:
        yield f"old mode {'100644' if patch.executable else '100755'}\nnew mode {mode}\n"
    if patch.kind is ChangeKind.RENAME:
        yield f"rename from {_quoted(patch.old_path or '')}\nrename to {_quoted(patch.path)}\n"
    if patch.hunks:
        yield f"--- {'/dev/null' if patch.kind is ChangeKind.CREATE else old}\n"
        yield f"+++ {'/dev/null' if patch.kind is ChangeKind.DELETE else new}\n"
    drift = 0
    for hunk in patch.hunks:
        removed = len(hunk.source)
        added = sum(line.mark != "-" for line in hunk.lines)
        start = hunk.start + drift + (not removed) - (not added)
        yield f"@@ -{hunk.start},{removed} +{max(start, 0)},{added} @@\n"
        for line in hunk.lines:
            yield f"{line.mark}{line.text}" if line.text.endswith("\n") else f"{line.mark}{line.text}\n{_NO_END}"
        drift += added - removed


def _quoted(name: str) -> str:
    """Return a name as git writes it in a header: quoted if it holds a quote, a backslash or a control character."""
    parts = [_QUOTED.get(each) or (each if " " <= each != "\x7f" else f"\\{ord(each):03o}") for each in name]
    return name if "".join(parts) == name else f'"{"".join(parts)}"'


_QUOTED = {'"': '\\"', "\\": "\\\\"}
