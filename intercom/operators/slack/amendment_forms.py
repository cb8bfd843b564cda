"""The forms for a proposal with changes: which hunks to approve, another text to approve, and which changes to request.

To approve a part, or an edited proposal, takes two steps. The first form shows the hunks with check boxes, or the files
as fields. The second shows the proposal as it would be approved, and what the agent would be told. All that the second
step needs comes back with it: the hunks or the edited texts, and the hash of the card that it showed. So it survives a
restart, and nothing else than what was shown is approved. Texts can still be changed in the second form; it is then
shown again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from unicodedata import category

import trio

from intercom.model.amendment import Amendment
from intercom.model.card import Card, CardKind, CardState
from intercom.model.card_hunks import HunkOfCard, checked_comments, comments_in, how_to_comment, new_line_numbers
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.request import without_secrets
from intercom.model.visible_text import one_line
from intercom.operators.slack.button_actions import ActionDeps, Turned, draw_notice, give, turned_by
from intercom.operators.slack.buttons import LONGEST, Dialog
from intercom.operators.slack.draw import blocks, cards
from intercom.operators.slack.draw.blocks import (
    Block,
    Mask,
    Masking,
    code,
    context,
    fence,
    label,
    mrkdwn,
    plain,
    section,
    short,
)
from intercom.operators.slack.envelope_parser import (
    COMMENTS,
    FORM,
    HUNKS,
    NOTE,
    AmendmentSubmission,
    ButtonAction,
    Step,
    form_metadata,
    text_block,
)
from intercom.operators.slack.web_api import Json, SlackRefused
from intercom.sessions.amendments import AmendedCard

log = logging.getLogger(__name__)

#: How long the look at the files, and then the opening of a form, may take, in seconds. The trigger expires after 3.
_LOOK_SECONDS, _OPEN_SECONDS = 1.0, 1.8
#: Slack's error if this trigger has opened a form already.
_OPENED = "exchanged_trigger_id"

#: What does the same in a terminal.
_COMMANDS = {Dialog.HUNKS: "approve --hunks", Dialog.EDIT: "approve --edit", Dialog.CHANGES: "changes", None: "show"}

#: How many hunks a form shows, and how many check boxes Slack allows in a group.
_MOST_HUNKS, _GROUP = 80, 10
#: How much of the hunks a form shows: characters of one at most and at least, and of all together.
_HUNK, _HUNK_LEAST, _HUNKS_ROOM = 2_500, 200, 40_000
#: How much of a diff a form shows: characters of a block, and blocks.
_PIECE, _PIECES = 2_500, 16
#: How text in a fence ends if it was cut.
_CUT = f"{blocks.CUT}\n```"
_TITLE, _PATH, _TOLD = 300, 120, 2_000
#: How many files a form has as fields.
_MOST_TEXTS = 10
#: How a person, and Slack, write an emoji.
_EMOJI = re.compile(r":[a-z0-9_+-]+:")


async def open_form(deps: ActionDeps, pressed: ButtonAction) -> None:
    """Open the form of a button. If that is not possible, the person is told why, and what to do. Raises
    NotRecorded."""
    instead = f"press it again, or use {code(f'agent-intercom-ctl {_COMMANDS[pressed.button.dialog]}')}"
    try:
        with trio.fail_after(_LOOK_SECONDS):
            view = await _first_view(deps, pressed)
    except trio.TooSlowError:
        deps.tell_person(pressed, f"the files could not be looked at in time: {instead}")
        return
    except Exception as fault:
        turned = turned_by(fault, "a form was not opened")
        deps.redraw(pressed.card_id)
        deps.tell_person(pressed, f"{turned.why}; nothing was changed")
        return
    try:
        with trio.fail_after(_OPEN_SECONDS):
            await deps.web.call("views.open", timeout=_OPEN_SECONDS, trigger_id=pressed.trigger, view=view)
    except Exception as fault:
        if isinstance(fault, SlackRefused) and fault.error == _OPENED:
            return
        log.info("a form could not be opened: %s", fault)
        deps.tell_person(pressed, f"the form could not be opened: {instead}")


async def _first_view(deps: ActionDeps, pressed: ButtonAction) -> Block:
    if pressed.button.dialog is Dialog.CHANGES:
        card = await deps.service.card(pressed.card_id)
        if card.id != pressed.card_id or not card.amendable:
            raise InvalidState("this card has no diff of files to comment on")
        if card.state is not CardState.PENDING:
            raise InvalidState(f"too late: this is {card.state.value}")
        return draw_changes(card, form_metadata(card.id, pressed.channel, pressed.thread), deps.mask)
    found = await deps.service.amended_card(pressed.card_id, None)
    if found.card.id != pressed.card_id:
        raise InvalidState("this is not the whole id of a card")
    shown = found.card.proposal_hash or ""
    metadata = form_metadata(found.card.id, pressed.channel, pressed.thread, shown=shown)
    if pressed.button.dialog is Dialog.EDIT:
        return draw_edit(found, metadata, deps.mask)
    return draw_hunks(found, metadata, deps.mask)


async def submit(deps: ActionDeps, act: AmendmentSubmission) -> Json | None:
    """Carry out a submitted form; return the payload of the acknowledgement. None means that the decision is recorded.
    Otherwise it is the next form, an error about an input, or a view that says why nothing was changed. Raises
    NotRecorded."""
    if len(act.note) > LONGEST:
        return _complaint(NOTE, f"at most {LONGEST} characters, please")
    note = act.note.strip() or None
    match act.step:
        case Step.HUNKS:
            return await _confirm(deps, act)
        case Step.APPROVE:
            turned = await _approve(deps, act, note, Amendment(act.shown, act.hunks))
        case Step.APPROVE_EDIT if act.is_as_shown:
            turned = await _approve(deps, act, note, Amendment(act.shown, texts=act.texts))
        case Step.EDIT | Step.APPROVE_EDIT:
            return await _confirm_edit(deps, act)
        case Step.CHANGES:
            try:
                card = await deps.service.card(act.card_id)
                read = comments_in(act.comments, [change.path for change in card.files])
                comments = checked_comments(read, card.diff or "", card.files)
            except InvalidArguments as fault:
                return _complaint(COMMENTS, fault.message)
            except Exception as fault:
                return _notice(turned_by(fault, "the changes were not requested").why)
            if not comments:
                how = how_to_comment([change.path for change in card.files])
                return _complaint(COMMENTS, f"write at least one comment, as {how}")
            turned = await give(
                deps,
                act.act_id,
                act.person,
                act.card_id,
                Decision.REJECT,
                note,
                kind=CardKind.APPROVAL,
                comments=comments,
            )
    return None if turned is None else _notice(turned.why, late=turned.late)


async def _approve(deps: ActionDeps, act: AmendmentSubmission, note: str | None, amendment: Amendment) -> Turned | None:
    approve, kind = Decision.APPROVE, CardKind.APPROVAL
    return await give(deps, act.act_id, act.person, act.card_id, approve, note, kind=kind, amendment=amendment)


async def _confirm(deps: ActionDeps, act: AmendmentSubmission) -> Json:
    if not act.hunks:
        return _complaint(f"{HUNKS}0", "choose at least one hunk; to approve none of them, reject the proposal")
    try:
        found = await deps.service.amended_card(act.card_id, Amendment(act.shown, act.hunks))
    except Exception as fault:
        return _notice(turned_by(fault, "a form was not shown").why)
    card = found.card
    metadata = form_metadata(card.id, act.channel, "", shown=card.proposal_hash or "", hunks=act.hunks)
    return {"response_action": "update", "view": draw_confirmation(found, metadata, deps.mask)}


async def _confirm_edit(deps: ActionDeps, act: AmendmentSubmission) -> Json:
    if not act.texts:
        return _notice("the form came back without a text: press the button again")
    proposed = act.proposed or act.shown
    try:
        found = await deps.service.amended_card(act.card_id, Amendment(proposed, texts=act.texts))
    except Exception as fault:
        return _notice(turned_by(fault, "a form was not shown").why)
    card = found.card
    texts = [(path, text) for path, text in act.texts if found.contents.get(path) != text]
    if not texts:
        first = text_block(act.texts[0][0], found.contents[act.texts[0][0]])
        return _complaint(first, "this is what the agent proposed: change it, or close this and press Approve")
    shown = card.proposal_hash or ""
    metadata = form_metadata(card.id, act.channel, "", shown=shown, proposed=proposed, texts=texts)
    return {"response_action": "update", "view": draw_edited(found, texts, metadata, deps.mask)}


def _complaint(block: str, text: str) -> Json:
    return {"response_action": "errors", "errors": {block: text}}


def _notice(why: str, *, late: bool = False) -> Json:
    return {"response_action": "update", "view": draw_notice("Too late" if late else "Nothing was changed", why)}


# --- what the forms show ---------------------------------------------------------------------------------------------


def draw_hunks(found: AmendedCard, metadata: str, mask: Mask) -> Block:
    """Return the form with the hunks of a proposal, all of them chosen. Raises InvalidState if there are too many."""
    card, hunks = found.card, found.hunks
    if len(hunks) > _MOST_HUNKS:
        raise InvalidState(
            f"this has {len(hunks)} hunks, more than a form can show: agent-intercom-ctl approve {short(card.id)}"
            " --hunks"
        )
    masking = Masking(mask)
    lines = _outgoing(card)
    room = max(_HUNK_LEAST, min(_HUNK, _HUNKS_ROOM // len(hunks)))
    drawn = _head(card, masking)
    cut = False
    for first in range(0, len(hunks), _GROUP):
        group = hunks[first : first + _GROUP]
        for hunk in group:
            path = masking(one_line(hunk.path), _PATH)
            body = fence(masking("\n".join(lines[hunk.line : hunk.end]), room), room)
            cut = cut or body.endswith(_CUT)
            drawn.append(section(mrkdwn(f"*{hunk.number}* {code(path, _PATH)}\n{body}")))
        drawn.append(_boxes(f"{HUNKS}{first // _GROUP}", group, masking))
    return _modal(Step.HUNKS, "Approve a part", "Look at it", metadata, [*drawn, *masking.line(card.id, cut=cut)])


def _boxes(block: str, hunks: Sequence[HunkOfCard], masking: Masking) -> Block:
    options: list[Block] = []
    for hunk in hunks:
        place = masking(one_line(hunk.path), _PATH) if hunk.range is None else hunk.range
        options.append(
            {
                "text": plain(f"{hunk.number}: {place}", blocks.OPTION),
                "description": plain(f"+{hunk.added} −{hunk.removed}", blocks.OPTION),
                "value": str(hunk.number),
            }
        )
    return {
        "type": "input",
        "block_id": block,
        "label": label("Approve these hunks", blocks.LABEL),
        "optional": True,
        "element": {"type": "checkboxes", "action_id": HUNKS, "options": options, "initial_options": options},
    }


def draw_confirmation(found: AmendedCard, metadata: str, mask: Mask) -> Block:
    """Return the form that shows the proposal as it would be approved, and asks for a note."""
    drawn = _as_approved(found, Masking(mask))
    drawn.append(_input(NOTE, "Note", "What else should the agent know?"))
    return _modal(Step.APPROVE, "Approve this?", "Approve", metadata, drawn)


def _as_approved(found: AmendedCard, masking: Masking) -> list[Block]:
    card = found.card
    drawn = [
        *_head(card, masking),
        section(mrkdwn("*This is what will be approved:*" if found.text else "*All of it will be approved:*")),
        *cards.files(card, masking),
        *cards.remarks(card, masking),
        *_diff(card, masking),
    ]
    if found.text:
        drawn.append(section(plain(f"The agent is told: {masking(found.text, _TOLD)}", _TOLD)))
    return drawn + masking.line(card.id)


def draw_edit(found: AmendedCard, metadata: str, mask: Mask) -> Block:
    """Return the form with the files of a proposal as the agent would write them, as fields. Raises InvalidState if
    none of them can be edited in a form."""
    card = found.card
    masking = Masking(mask)
    why_not = {path: _why_not_editable(found, path, mask) for path in found.contents}
    paths = [path for path, why in why_not.items() if why is None][:_MOST_TEXTS]
    there = f"agent-intercom-ctl approve {short(card.id)} --edit"
    if not paths:
        whys = [f"{masking(one_line(path), _PATH)}: {why}" for path, why in why_not.items()]
        raise InvalidState(f"nothing of this can be edited in Slack ({'; '.join(whys[:3]) or 'no text'}): {there}")
    drawn = [*_head(card, masking), *(_text_field(path, found.contents[path], masking) for path in paths)]
    if left := [code(masking(one_line(path), _PATH), _PATH) for path in found.contents if path not in paths]:
        more = f" and {len(left) - 10} more" if len(left) > 10 else ""
        drawn.append(context(mrkdwn(f"not here: {', '.join(left[:10])}{more}; {code(there)} edits all of them")))
    return _modal(Step.EDIT, "Edit and approve", "Look at it", metadata, [*drawn, *masking.line(card.id)])


def draw_edited(found: AmendedCard, texts: Sequence[tuple[str, str]], metadata: str, mask: Mask) -> Block:
    """Return the form that shows the proposal as it was edited. The fields bring the edited texts back."""
    masking = Masking(mask)
    drawn = _as_approved(found, masking)
    drawn += [_text_field(path, text, masking, of=found.contents[path]) for path, text in texts]
    drawn.append(_input(NOTE, "Note", "What else should the agent know?"))
    return _modal(Step.APPROVE_EDIT, "Approve this?", "Approve", metadata, drawn)


def _text_field(path: str, text: str, masking: Masking, *, of: str | None = None) -> Block:
    """Return the field with the text of a file. `of` is what the agent proposed, if the text is another one."""
    field = _input(text_block(path, text if of is None else of), masking(one_line(path), _PATH), "(an empty file)")
    if body := text.rstrip("\n"):
        field["element"]["initial_value"] = body
    field["hint"] = label("The whole file, as it will be written.", blocks.LABEL)
    return field


def _why_not_editable(found: AmendedCard, path: str, mask: Mask) -> str | None:
    """Return why a field of Slack may not show a file, or would not give it back as it is; None if it can."""
    text = found.contents[path]
    if len(path) > _PATH:
        return "its path is too long"
    if blocks.size(text) > blocks.INPUT:
        return f"longer than {blocks.INPUT:,} characters"
    secret = {number for number, _ in found.card.masked}
    hunks = [hunk for hunk in found.hunks if hunk.path == path]
    is_secret = any(hunk.line <= number < hunk.end for hunk in hunks for number in secret)
    if is_secret or any(mask.mask(each).text != each for each in (path, text)):
        return "it contains a secret"
    # Slack replaces some characters: line ends of Windows, spaces of other kinds, and emoji by their names.
    changes = _EMOJI.search(text) or any(
        not (each.isprintable() or each in "\n\t") or category(each) in ("So", "Sk")
        for each in text
        if each > "~" or each < " "
    )
    if changes or len(text) - len(text.rstrip("\n")) > 9:
        return "it contains characters that Slack may change"
    return None


def draw_changes(card: Card, metadata: str, mask: Mask) -> Block:
    """Return the form for comments by line."""
    masking = Masking(mask)
    is_one = len(card.files) == 1
    example = "12: use the constant" if is_one else "src/app.py:12: use the constant"
    asked = _input(COMMENTS, "Comments", example, optional=False)
    how = how_to_comment([change.path for change in card.files])
    asked["hint"] = label(
        f"A line each: {how} with a line of the new file, or FILE: TEXT. Indented lines continue a comment.",
        blocks.LABEL,
    )
    note = _input(NOTE, "Note to the agent", "What else should the agent know?")
    drawn = [*_head(card, masking), *_diff(card, masking, numbered=True), *masking.line(card.id), asked, note]
    return _modal(Step.CHANGES, "Request changes", "Request changes", metadata, drawn)


def _head(card: Card, masking: Masking) -> list[Block]:
    facts = f"{card.kind.value} {code(short(card.id), 80)} · session {code(short(card.session_id), 80)}"
    return [section(plain(masking(card.title, _TITLE), _TITLE)), context(mrkdwn(facts))]


def _outgoing(card: Card) -> list[str]:
    """Return the lines of the diff as they may leave the machine."""
    return without_secrets((card.diff or "").removesuffix("\n"), card.masked).split("\n")


def _diff(card: Card, masking: Masking, *, numbered: bool = False) -> list[Block]:
    """Return the diff, in blocks that end at line ends; with `numbered`, with the new files' line numbers."""
    whole = "\n".join(_outgoing(card))
    shown = masking(whole, _PIECE * _PIECES)
    lines = shown.split("\n")
    # Where a secret was masked, a line may be gone: then no number is better than a wrong one.
    if numbered and whole.startswith(shown.removesuffix(blocks.CUT)):
        numbers = ["" if number is None else str(number) for number in new_line_numbers(card.diff or "")]
        width = max(map(len, numbers), default=0)
        lines = [f"{number:>{width}} {line}" for number, line in zip(numbers, lines, strict=False)]
    pieces: list[str] = []
    at = 0
    while at < len(lines) and len(pieces) < _PIECES:
        end, used = at + 1, _size(lines[at])
        while end < len(lines) and used + _size(lines[end]) <= _PIECE // 2:
            used += _size(lines[end])
            end += 1
        pieces.append(fence("\n".join(lines[at:end]), _PIECE))
        at = end
    drawn = [section(mrkdwn(piece)) for piece in pieces]
    if at < len(lines) or any(piece.endswith(_CUT) for piece in pieces):
        whole = code(f"agent-intercom-ctl show {short(card.id)}")
        drawn.append(context(mrkdwn(f"✂️ shortened; {whole} shows all of the proposal")))
    return drawn


def _size(line: str) -> int:
    return blocks.size(blocks.escaped(line)) + 1


def _input(block: str, title: str, placeholder: str, *, optional: bool = True) -> Block:
    return {
        "type": "input",
        "block_id": block,
        "label": label(title, blocks.LABEL),
        "optional": optional,
        "element": {
            "type": "plain_text_input",
            "action_id": block,
            "multiline": True,
            "max_length": blocks.INPUT,
            "placeholder": label(placeholder, blocks.PLACEHOLDER),
        },
    }


def _modal(step: Step, title: str, submit: str, metadata: str, drawn: list[Block]) -> Block:
    return {
        "type": "modal",
        "callback_id": FORM + step.value,
        "private_metadata": metadata,
        "title": label(title, blocks.MODAL_TITLE),
        "submit": label(submit, blocks.MODAL_BUTTON),
        "close": label("Cancel", blocks.MODAL_BUTTON),
        "blocks": drawn,
    }
