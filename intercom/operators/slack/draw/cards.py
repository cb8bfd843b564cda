"""A card as a message: the request, its risk, and its status."""

from __future__ import annotations

from functools import partial
from typing import Final

from intercom.model.approval import RiskLevel
from intercom.model.card import AGENTS, Card, CardKind, CardState
from intercom.operators.slack.draw import limits
from intercom.operators.slack.draw.blocks import Block, context, header, mrkdwn, plain, section
from intercom.operators.slack.draw.buttons import buttons
from intercom.operators.slack.draw.diffs import change, diff_file, files, paths, remarks
from intercom.operators.slack.draw.drawn import Drawn, drawn_to_fit
from intercom.operators.slack.draw.life import headline, life, outcome
from intercom.operators.slack.draw.masks import Mask, Masking
from intercom.operators.slack.draw.text import code, fitted, is_cut, moment, short

KINDS: Final = {
    CardKind.APPROVAL: "📝",
    CardKind.PROMPT: "🔄",
    CardKind.STANDBY: "⏸️",
    CardKind.STALL: "🐌",
    CardKind.POLICY: "🛡️",
    CardKind.APPLY: "🚧",
    CardKind.STEER: "🧭",
    CardKind.TASK: "📥",
    CardKind.RESTORE: "♻️",
}
RISKS: Final = {RiskLevel.LOW: "🟢", RiskLevel.HIGH: "🟡", RiskLevel.CRITICAL: "🔴"}

#: Notifies everyone in the channel. Only Intercom can write it, because foreign text is escaped.
CALL = "<!channel>"

__all__ = ["CALL", "KINDS", "RISKS", "card", "diff_file", "escalation", "is_urgent"]

_BODY, _DETAIL, _NOTE, _TITLE = 1_800, 300, 400, 120


def card(card: Card, masker: Mask, *, first: bool = False) -> Drawn:
    """Return the message that shows the card. `first` means that it is posted, not updated; then an urgent card also
    notifies the channel."""
    return drawn_to_fit(partial(_draw, card, masker, first))


def is_urgent(card: Card) -> bool:
    """Return whether the card notifies everyone: a pending approval of high or critical risk, or an escalated alert."""
    if card.state is not CardState.PENDING:
        return False
    if card.kind is CardKind.STALL:
        return card.escalated
    return card.kind is CardKind.APPROVAL and card.risk in (RiskLevel.HIGH, RiskLevel.CRITICAL)


def escalation(card: Card, masker: Mask) -> Drawn:
    """Return the line that notifies everyone of an escalated alert: an update of its card would notify nobody."""
    title = Masking(masker)(card.title, _TITLE)
    text = f"{CALL} 📣 {fitted(title, _TITLE, flat=True)}"
    call = f"{CALL} 📣 *escalated*: the agent does not react; session {code(short(card.session_id))}"
    return Drawn(text, (section(mrkdwn(call)), section(plain(title, 2 * _TITLE))))


def _draw(card: Card, masker: Mask, first: bool, scale: float) -> Drawn:
    masking = Masking(masker)
    call = first and is_urgent(card)
    title = masking(card.title, limits.HEADER).strip() or card.kind.value
    title = f"Agent asks: {title}" if card.kind is CardKind.APPROVAL else title
    body = masking(card.body, _BODY) if card.body and card.body.strip() else ""
    body = _agents(body) if body and card.kind in AGENTS else body
    room = int(_BODY * scale)
    blocks: list[Block] = []
    if call:
        blocks.append(section(mrkdwn(f"{CALL} {_call(card)}")))
    blocks += [header(f"{KINDS[card.kind]} {title}"), _facts(card, masking, scale)]
    if body:
        blocks.append(section(plain(body, room)))
    if _has_detail(card):
        blocks.append(context(plain(masking(card.detail or "", _DETAIL), int(_DETAIL * scale))))
    blocks += files(card, masking, scale)
    blocks += remarks(card, masking, scale)
    blocks += change(card, masking)
    if card.note and card.note.strip():
        blocks.append(context(plain(f"ℹ️ {masking(card.note, _NOTE)}", int(_NOTE * scale))))
    if card.away:
        blocks.append(
            context(mrkdwn("💤 agent away: it does not wait any more; your answer reaches it when it is back"))
        )
    blocks += outcome(card, masking, scale)
    blocks += masking.line(card.id, cut=bool(body) and is_cut(body, room))
    blocks += life(card)
    blocks += buttons(card)
    return Drawn(_text(card, title, call), tuple(blocks))


def _agents(words: str) -> str:
    """Mark an agent's text, so that no line of it looks like Intercom's own."""
    lines = words.strip("\n").split("\n")
    return f"From the agent: {lines[0]}" if len(lines) == 1 else "\n│ ".join(["From the agent:", *lines])


def _facts(card: Card, masking: Masking, scale: float) -> Block:
    facts = [f"{RISKS[card.risk]} *{card.risk.value}* risk"] if card.risk else []
    facts.append(f"{card.kind.value} {code(short(card.id), 80)}")
    if card.session_id:
        facts.append(f"session {code(short(card.session_id), 80)}")
    facts.append(code(masking(card.workspace_root, 200), int(200 * scale)))
    if card.expires_at is not None and card.state is CardState.PENDING:
        facts.append(f"⌛ expires {moment(card.expires_at)}")
    return context(mrkdwn(" · ".join(facts)))


def _call(card: Card) -> str:
    if card.kind is CardKind.STALL:
        return "📣 *escalated*: the agent does not react"
    return f"a change of *{card.risk.value}* risk waits" if card.risk else ""


def _has_detail(card: Card) -> bool:
    """Return whether the detail says more: an approval's is a listed path, a policy's is a hash."""
    detail = (card.detail or "").strip()
    return bool(detail) and detail not in paths(card) and card.kind is not CardKind.POLICY


def _text(card: Card, title: str, call: bool) -> str:
    state = "" if card.state is CardState.PENDING else f"{headline(card)}: "
    badge = f"{RISKS[card.risk]} " if card.risk else ""
    words = f"{state}{badge}{card.kind.value}: {title}"
    return f"{CALL} {fitted(words, 300, flat=True)}" if call else fitted(words, 300, flat=True)
