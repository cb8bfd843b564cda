"""The forms for a part of a proposal: which hunks to approve, and which changes to request.

To approve a part takes two steps. The first form shows the hunks with check boxes. The second shows the proposal as it
would be approved, and what the agent would be told. All that the second step needs comes back with it: the hunks, and
the hash of the card that it showed. So it survives a restart, and nothing else than what was shown is approved.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from intercom.model.amendment import Amendment
from intercom.model.card import Card, CardKind, CardState
from intercom.model.card_hunks import HunkOfCard, checked_comments, comments_in, how_to_comment, new_line_numbers
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.request import without_secrets
from intercom.model.visible_text import one_line
from intercom.operators.slack.button_actions import ActionDeps, draw_notice, give, turned_by
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
)
from intercom.operators.slack.web_api import Json, SlackRefused
from intercom.sessions.amendments import AmendedCard

log = logging.getLogger(__name__)

#: How long the look at the files, and then the opening of a form, may take, in seconds. The trigger expires after 3.
_LOOK_SECONDS, _OPEN_SECONDS = 1.0, 1.8
#: Slack's error if this trigger has opened a form already.
_OPENED = "exchanged_trigger_id"

#: How many hunks a form shows, and how many check boxes Slack allows in a group.
_MOST_HUNKS, _GROUP = 80, 10
#: How much of the hunks a form shows: characters of one at most and at least, and of all together.
_HUNK, _HUNK_LEAST, _HUNKS_ROOM = 2_500, 200, 40_000
#: How much of a diff a form shows: characters of a block, and blocks.
_PIECE, _PIECES = 2_500, 16
#: How text in a fence ends if it was cut.
_CUT = f"{blocks.CUT}\n```"
_TITLE, _PATH, _TOLD = 300, 120, 2_000


async def open_form(deps: ActionDeps, pressed: ButtonAction) -> None:
    """Open the form of a button. If that is not possible, the person is told why, and what to do. Raises
    NotRecorded."""
    dialog = pressed.button.dialog
    command = "changes" if dialog is Dialog.CHANGES else "approve --hunks"
    instead = f"press it again, or use {code(f'agent-intercom-ctl {command}')}"
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
    return draw_hunks(found, form_metadata(found.card.id, pressed.channel, pressed.thread, shown=shown), deps.mask)


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
            amendment = Amendment(act.shown, act.hunks)
            turned = await give(
                deps,
                act.act_id,
                act.person,
                act.card_id,
                Decision.APPROVE,
                note,
                kind=CardKind.APPROVAL,
                amendment=amendment,
            )
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
    card = found.card
    masking = Masking(mask)
    drawn = [
        *_head(card, masking),
        section(mrkdwn("*This is what will be approved:*" if found.text else "*All of it will be approved:*")),
        *cards.files(card, masking),
        *cards.remarks(card, masking),
        *_diff(card, masking),
    ]
    if found.text:
        drawn.append(section(plain(f"The agent is told: {masking(found.text, _TOLD)}", _TOLD)))
    drawn += masking.line(card.id)
    drawn.append(_input(NOTE, "Note", "What else should the agent know?"))
    return _modal(Step.APPROVE, "Approve this?", "Approve", metadata, drawn)


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
