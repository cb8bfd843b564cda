"""What Slack shows, compared with what the store knows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field

from intercom.masking import Masker
from intercom.model.card import Card, CardState
from intercom.model.request import ApprovalRequest, ContinuationPrompt, InstructionWait
from intercom.operators.slack.outbox_writer import Drawing
from intercom.sessions import request_kinds
from intercom.sessions.session import steering
from intercom.store import audit, outbox, requests
from intercom.store.outbox import Row
from intercom.store.store_and_reader import Reader
from intercom.store.writer_messages import Database
from tests.slack_standin import Standin, buttons, text_of


@define
class Found:
    """`faults` are sentences, none when all is well; `verdicts` counts what people decided and did not take back, by
    card; `answers` are those on record to each question, by its words."""

    cards: list[Card] = field(factory=list)
    verdicts: Counter[str] = field(factory=Counter)
    faults: list[str] = field(factory=list)
    answers: dict[str, list[dict[str, Any] | None]] = field(factory=dict)


async def look(reader: Reader, slack: Standin, *, decided_here: bool = True) -> Found:
    """Compare every card with its message: exactly one, showing what is so, with buttons only while it is open.

    Where people decide elsewhere, too (not `decided_here`), a card may be closed before Slack is told of it, and then
    is never shown there.
    """
    rows, found = await reader.read(_everything)
    messages = [message for channel in slack.team.channels for message in slack.messages(channel)]
    named = [name for message in messages if (name := client_id(message))]
    known = {row.client_id: row for row in rows.values()}
    found.faults += [f"{count} messages of {known.get(name)}" for name, count in Counter(named).items() if count > 1]
    # The last word of a server that stops is forgotten where it cannot be said at once: nobody looks for it.
    found.faults += [
        f"a message that nobody knows: {text_of(one)[:60]}"
        for one in messages
        if client_id(one) not in ("", *known) and "Intercom stops" not in text_of(one)
    ]
    shown = {client_id(message): message for message in messages}
    drawing = Drawing(Masker())
    for card in found.cards:
        row = rows.get(f"card/{card.id}")
        by_words = is_by_words(card)
        # A standby may end before Slack is told of it: what was to be told waited already.
        if row is None and card.state is not CardState.PENDING and (by_words or not decided_here):
            continue
        message = None if row is None else shown.get(row.client_id)
        if message is None:
            found.faults.append(f"{card.title} ({card.state}) is not in Slack")
            continue
        wanted = text_of(dict(drawing.card(card).message))
        if text_of(message) != wanted:
            found.faults.append(f"{card.title} is {card.state}, and Slack shows {text_of(message)!r}, not {wanted!r}")
        if bool(buttons(message)) is not (card.state is CardState.PENDING):
            found.faults.append(f"{card.title} is {card.state} and has the buttons {buttons(message)}")
        # Words that end a standby are on record as what they are.
        if card.decided is not None and found.verdicts[card.id] != (0 if by_words else 1):
            found.faults.append(f"{card.title} was decided {found.verdicts[card.id]} times")
    return found


def is_by_words(card: Card) -> bool:
    """Whether a standby was ended by words for the agent, or by a decision about another request."""
    return card.decided is not None and card.decided.verdict_id.startswith(f"{steering.CHANNEL}/")


def client_id(message: dict[str, Any]) -> str:
    """The name that the message was posted under."""
    payload = (message.get("metadata") or {}).get("event_payload") or {}
    return str(payload.get("client_id", ""))


def _everything(db: Database) -> tuple[dict[str, Row], Found]:
    found = Found()
    keys = [row["key"] for row in db.query("select key from outbox")]
    for session in db.query("select id, workspace_root from session"):
        for table in ("approval_request", "continuation_prompt", "wait"):
            for each in db.query(f"select id from {table} where session_id = ?", [session["id"]]):
                request = requests.find(db, each["id"])
                assert request is not None
                # A request that ended with its session has no answer.
                is_over = request.status.value == "interrupted"
                answer = None if is_over else request_kinds.answer(request)
                told = None if answer is None else request_kinds.to_json(answer)
                found.answers.setdefault(_words(request), []).append(told)
                found.cards.append(request_kinds.card_of(request, session["workspace_root"]))
    entries = audit.recent(db, 100_000)
    found.verdicts.update(entry.data["request_id"] for entry in entries if entry.kind == "decided")
    found.verdicts.subtract(entry.data["request_id"] for entry in entries if entry.kind == "decision_taken_back")
    return {key: row for key in keys if (row := outbox.by_key(db, key)) is not None}, found


def _words(request: request_kinds.Asked) -> str:
    match request:
        case ApprovalRequest():
            return request.title
        case ContinuationPrompt():
            return request.prompt_text
        case InstructionWait():
            return request.message
