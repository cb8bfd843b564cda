"""Decisions: what holds for each holds in every channel, whichever the person used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from intercom.embedding import EmbeddedOperator
from intercom.model.card import Card, CardState
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided
from intercom.operators.slack.buttons import BY_KIND
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from tests.operators.ctl_server import Peer
from tests.operators.slack.live.embedded import Room, quick, room
from tests.slack import ALICE, BOB, buttons

CHANGE = CheckClearance("Shall I?", "new\n", "a.txt")
QUESTION = Transmit("Shall I?")
IDLE = Standby("Shall I?")

# What the agent asks, how a person decides it -> what the agent is told, what Slack's card says of it
DECISIONS: list[tuple[Any, Decision, str | None, dict[str, str], str]] = [
    (CHANGE, Decision.APPROVE, None, {"status": "approved"}, "Approved by"),
    (CHANGE, Decision.REJECT, "not this way", {"status": "rejected", "reason": "not this way"}, "Rejected by"),
    (QUESTION, Decision.CONTINUE, None, {"decision": "continue"}, "Continued by"),
    (QUESTION, Decision.REFINE, "use tabs", {"decision": "refine", "instruction": "use tabs"}, "Refined by"),
    (QUESTION, Decision.STOP, None, {"decision": "stop"}, "Stopped by"),
    (IDLE, Decision.RESUME, None, {"status": "resumed"}, "Resumed by"),
    (IDLE, Decision.RESUME, "the tests", {"status": "resumed", "instruction": "the tests"}, "Resumed by"),
    (IDLE, Decision.STOP, None, {"status": "resumed", "instruction": "stop"}, "Stopped by"),
]


class TooLate(Exception):
    """Somebody else decided first."""


#: Decides a card; `message` is how Slack shows it, or showed it once.
Decide = Callable[[Room, Card, dict[str, Any], Decision, "str | None"], Awaitable[None]]


async def on_the_terminal(at: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
    if decision in (Decision.APPROVE, Decision.REJECT):
        command, fields = decision.value, {"reason": text}
    else:
        word = decision.value if decision is not Decision.RESUME else "continue" if text is None else "refine"
        command, fields = "answer", {"decision": word, "text": text}
    async with dialled(at) as peer:
        reply = await peer.ask(command, id=card.id, **fields)
    if reply.get("error_code") == "already_decided":
        raise TooLate
    assert reply["ok"], reply


async def in_slack(at: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
    if (await at.app.service.card(card.id)).state is not CardState.PENDING:
        # Somebody's phone still shows the buttons.
        await at.slack.tap(BOB, message, next(iter(buttons(message)))).answer()
        await at.slack.told(BOB, "too late")
        raise TooLate
    with_words = [each for each in BY_KIND[card.kind] if each.decision is decision and each.form is not None]
    without = [each for each in BY_KIND[card.kind] if each.decision is decision and each.form is None]
    [button] = with_words if text else without
    await at.slack.tap(ALICE, message, button.action_id).answer()
    if text:
        [view] = at.slack.views(ALICE)
        await at.slack.submit(ALICE, view, {"text": text}).answer()


async def by_the_program(at: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
    try:
        await EmbeddedOperator(at.app, "kim").answer(card.id, decision, text)
    except AlreadyDecided:
        raise TooLate from None


CHANNELS: dict[str, Decide] = {"ctl": on_the_terminal, "slack": in_slack, "embed": by_the_program}


@asynccontextmanager
async def dialled(at: Room) -> AsyncIterator[Peer]:
    token = await trio.Path(at.app.places.token_file).read_text()
    async with await trio.open_unix_socket(at.app.places.ctl_socket) as stream:
        yield Peer(stream, token.strip())


@pytest.mark.parametrize(("asked", "decision", "text", "answer", "headline"), DECISIONS)
@pytest.mark.parametrize("channel", CHANNELS)
@quick
async def test_a_decision_reaches_the_agent_once_and_every_channel_shows_who_decided(
    tmp_path: Path,
    channel: str,
    asked: Any,
    decision: Decision,
    text: str | None,
    answer: dict[str, str],
    headline: str,
) -> None:
    async with (
        room(tmp_path, listens=frozenset({"ctl"})) as at,
        dialled(at) as terminal,
        trio.open_nursery() as nursery,
    ):
        assert (await terminal.ask("watch"))["ok"]
        told: list[dict[str, Any]] = []
        done = trio.Event()

        async def agent() -> None:
            given = attrs.asdict((await at.agent().call(asked)).answer)
            told.append({name: value for name, value in given.items() if value is not None})
            done.set()

        nursery.start_soon(agent)
        message = await at.card("Shall I?")
        [card] = await at.app.service.pending()
        await CHANNELS[channel](at, card, message, decision, text)
        await done.wait()
        assert answer.items() <= told[0].items()

        decided = (await at.app.service.card(card.id)).decided
        assert decided is not None
        assert (decided.decision, decided.channel, decided.text) == (decision, channel, text)
        closed = await at.shows(message["ts"], headline)
        assert buttons(closed) == []
        while (event := await terminal.line()) is not None:
            if event["event"] == "card" and event["data"]["status"] != "pending":
                break
        assert event is not None
        assert event["data"]["decided"]["channel"] == channel

        # Whoever comes later, by whichever channel, changes nothing and is told so.
        for late in CHANNELS.values():
            with pytest.raises(TooLate):
                await late(at, card, message, decision, "too late" if text else None)
        assert (await at.app.service.card(card.id)).decided == decided
        assert len(told) == 1
