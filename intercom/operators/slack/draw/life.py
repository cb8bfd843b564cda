"""The status of a card: who decided what and when, and whether the answer has arrived."""

from __future__ import annotations

import re
from typing import Final

from intercom.model.card import Card, CardKind, CardState
from intercom.model.verdict import Decided
from intercom.operators.slack.draw.blocks import Block, context, mrkdwn, plain, section
from intercom.operators.slack.draw.masks import Masking
from intercom.operators.slack.draw.text import moment

DECISIONS: Final = {
    "approve": "✅ Approved",
    "accept": "✅ Accepted",
    "reject": "❌ Rejected",
    "continue": "▶️ Continued",
    "refine": "✏️ Refined",
    "stop": "🛑 Stopped",
    "resume": "▶️ Resumed",
    "nudge": "👉 Nudged",
    "dismiss": "☑️ Dismissed",
    "proceed": "♻️ Told to proceed",
    "cancel": "✖️ Cancelled",
}
_STATES: Final = {
    CardState.QUEUED: "⏳ Queued",
    CardState.APPROVED: "✅ Approved",
    CardState.REJECTED: "❌ Rejected",
    CardState.ANSWERED: "✅ Answered",
    CardState.DELIVERED: "✅ Delivered",
    CardState.APPLIED: "✅ Applied",
    CardState.EXPIRED: "⌛ Expired",
    CardState.INTERRUPTED: "🔌 Interrupted: the session ended first",
    CardState.CLOSED: "☑️ Closed",
}
#: The states that determine how a card ended, even after a decision.
_OVER: Final = frozenset({CardState.EXPIRED, CardState.INTERRUPTED})
#: How the operator service stores a Slack user: `Ann (U0123)`.
_IN_SLACK = re.compile(r"(?P<name>.+) \((?P<id>[A-Z0-9]+)\)", re.DOTALL)
_CHANNELS: Final = {"ctl": "on the terminal", "slack": "in Slack", "web": "on the web page", "embed": "in a program"}

_APPROVAL_LIFE: Final[tuple[CardState, ...]] = (
    CardState.PENDING,
    CardState.APPROVED,
    CardState.DELIVERED,
    CardState.APPLIED,
)
_ANSWER_LIFE: Final[tuple[CardState, ...]] = (CardState.PENDING, CardState.ANSWERED, CardState.DELIVERED)
_WORDS_LIFE: Final[tuple[CardState, ...]] = (CardState.QUEUED, CardState.DELIVERED)
_RESTORE_LIFE: Final[tuple[CardState, ...]] = (CardState.PENDING, CardState.APPROVED, CardState.APPLIED)
_REASON = 800


def headline(card: Card) -> str:
    """Return the state in a word or two, without any foreign text."""
    if card.decided is not None and card.state not in _OVER:
        return DECISIONS.get(card.decided.decision, _STATES.get(card.state, "✅ Answered"))
    return _STATES.get(card.state, "⏳ Pending")


def outcome(card: Card, masking: Masking, scale: float = 1.0) -> list[Block]:
    """Return the decision, by whom, when and why; no blocks while the card is pending."""
    if card.state is CardState.PENDING:
        return []
    words = headline(card)
    decided = card.decided
    if decided is None:
        return [section(plain(words))]
    if card.state in _OVER and decided.channel != "timeout":
        # The person who approved did not end the card: its end came later.
        said = DECISIONS.get(decided.decision, "✅ Answered")
        blocks = [section(plain(words)), section(plain(f"{said}{_who(decided, masking)}"))]
    else:
        blocks = [section(plain(f"{words}{_who(decided, masking)}"))]
    if decided.text:
        room = int(_REASON * scale)
        blocks.append(section(plain(f"“{masking(decided.text, room).strip()}”", room)))
    known = _known(decided)
    by_id = f" · {known['id'][:40]}" if known else ""
    blocks.append(context(mrkdwn(f"🕑 {moment(decided.at)}{by_id}")))
    return blocks


def life(card: Card) -> list[Block]:
    """Return the steps of the card, with the current one in bold."""
    steps: tuple[CardState, ...]
    if card.kind is CardKind.APPROVAL:
        steps = _APPROVAL_LIFE
    elif card.kind in (CardKind.PROMPT, CardKind.STANDBY):
        steps = _ANSWER_LIFE
    elif card.kind in (CardKind.STEER, CardKind.TASK):
        steps = _WORDS_LIFE
    elif card.kind is CardKind.RESTORE:
        steps = _RESTORE_LIFE
    else:
        return []
    if card.state not in steps:
        steps = (steps[0], card.state)
    words = [f"*{step.value.capitalize()}*" if step is card.state else step.value.capitalize() for step in steps]
    return [context(mrkdwn(" → ".join(words)))]


def _who(decided: Decided, masking: Masking) -> str:
    if decided.channel == "timeout":
        return " by itself: nobody answered in time"
    if decided.channel == "policy":
        return " by the workspace's policy"
    known = _known(decided)
    by = masking(known["name"] if known else decided.by, 200).strip()[:200] or "someone"
    return f" by {by} {_CHANNELS.get(decided.channel, '')}".rstrip()


def _known(decided: Decided) -> re.Match[str] | None:
    """Match the name and id of a Slack user; None for anybody else."""
    return _IN_SLACK.fullmatch(decided.by) if decided.channel == "slack" else None
