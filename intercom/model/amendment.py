"""Amendments and comments: what a person says of a proposal besides yes and no.

An amendment is what a person changes of a proposal as they approve it: only some of its hunks, or another content of
some files. A comment is a remark on a line, with which a rejection requests changes.

What the agent is told of either is composed here, in one place. The text is the text of the decision, so an operator's
signature covers it. The structured form is stored beside it, and counts only if it composes to that text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import field, frozen

from intercom.model.errors import InvalidArguments
from intercom.model.field_docs import doc
from intercom.model.visible_text import one_line

#: How many hunks or files the text for the agent names, and how many characters of a path.
NAMED, PATH = 20, 200


@frozen
class Amendment:
    """What a person changes of a proposal as they approve it: only some `hunks`, or other contents of some files.

    `texts` are whole new contents, each with the path of a file of the proposal. Exactly one of the two is given.
    `shown` is the `proposal_hash` of the card that the person saw: of the proposal, whose hunks are numbered, or of the
    amendment itself. Numbers mean nothing without it.
    """

    shown: str
    hunks: tuple[int, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    def __attrs_post_init__(self) -> None:
        if bool(self.hunks) == bool(self.texts):
            raise InvalidArguments(
                "an amendment is the numbers of some hunks or the new text of some files: give one of the two;"
                " to approve no hunk, reject it instead"
            )


@frozen
class Change:
    """What a person changed of one file of a proposal, as they approved it."""

    path: str = field(metadata=doc("The file, relative to the workspace root."))
    left_out: tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "The parts that were not approved: their lines, before and after, and the first line that each would have"
            ' removed and added, as a JSON string (@@ -10,7 +10,8 @@ (-"old line", +"new line")).'
        ),
    )
    whole: bool | None = field(default=None, metadata=doc("true: nothing of this file was approved."))
    edited: bool | None = field(
        default=None, metadata=doc("true: the person wrote another content, which check_diff writes.")
    )


@frozen
class Comment:
    """A person's remark on a proposal. `line` is a line of the new file as the diff shows it; None for the whole
    file."""

    path: str = field(metadata=doc("The file, relative to the workspace root."))
    text: str = field(metadata=doc("What the person says about it."))
    line: int | None = field(default=None, metadata=doc("The line of the new file; absent for the whole file."))


@frozen
class DecisionDetails:
    """The structured form of a decision's text, as stored with the request: what was changed, what the person says
    besides (`note`), and the comments of a rejection."""

    changes: tuple[Change, ...] = ()
    note: str | None = None
    comments: tuple[Comment, ...] = ()

    @property
    def told(self) -> str | None:
        """The text of the decision that this is the structured form of."""
        return told_of_comments(self.comments, self.note) if self.comments else told_of_changes(self.changes, self.note)


# --- what the agent is told ------------------------------------------------------------------------------------------


def told_of_changes(changes: Sequence[Change], note: str | None) -> str | None:
    """Return the text of an approval: what was changed, and the person's note. None if there is neither."""
    if not changes:
        return note
    lines = [line for change in changes for line in _changed(change)]
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    said = "\n".join(("approved with changes:", *lines[:NAMED], *more))
    return f"{said}\n\nnote: {note}" if note else said


def _changed(change: Change) -> Iterator[str]:
    path = one_line(change.path)[:PATH]
    if change.whole:
        yield f"- {path}: not approved at all"
    if change.edited:
        yield f"- {path}: edited by the person"
    for each in change.left_out:
        yield f"- {path}: not approved: {each}"


def told_of_comments(comments: Sequence[Comment], text: str | None) -> str:
    """Return the text of a rejection that requests changes: each comment with its place, and what else is said."""
    lines = ["changes requested:"]
    for each in comments:
        place = one_line(each.path)[:PATH] + ("" if each.line is None else f":{each.line}")
        first, *rest = each.text.split("\n")
        # No line of a comment can pass for another comment's place.
        lines += [f"{place}: {first}", *(f"    {line}" for line in rest)]
    return "\n".join([*lines, "", text] if text else lines)
