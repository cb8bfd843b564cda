"""Decisions: what holds for each holds in every channel, whichever the person used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from intercom.embedding import EmbeddedOperator
from intercom.model.card import Card, CardState
from intercom.model.decision import Decision
from intercom.model.errors import AlreadyDecided
from intercom.model.web_role import WebRole
from intercom.operators.slack.buttons import BY_KIND
from intercom.sessions.request_kinds import APPROVED, PERSON_ANSWERED, to_json
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from tests.operators.ctl_server import Peer
from tests.operators.slack.live.embedded import Room, quick, room
from tests.operators.web.page_server import Browser
from tests.operators.web.test_tokens import Program
from tests.slack_standin import ALICE, BOB, buttons

CHANGE = CheckClearance("Shall I?", "new\n", "a.txt")
QUESTION = Transmit("Shall I?")
IDLE = Standby("Shall I?")


def answered(decision: str, **told: str) -> dict[str, str]:
    return {"decision": decision, "message": PERSON_ANSWERED[decision], **told}


# What the agent asks, how a person decides it -> what the agent is told, what Slack's card says of it
DECISIONS: list[tuple[Any, Decision, str | None, dict[str, str], str]] = [
    (CHANGE, Decision.APPROVE, None, {"status": "approved", "message": APPROVED}, "Approved by"),
    (CHANGE, Decision.REJECT, "not this way", {"status": "rejected", "reason": "not this way"}, "Rejected by"),
    (QUESTION, Decision.CONTINUE, None, answered("continue"), "Continued by"),
    (QUESTION, Decision.REFINE, "use tabs", answered("refine", instruction="use tabs"), "Refined by"),
    (QUESTION, Decision.STOP, None, answered("stop"), "Stopped by"),
    (IDLE, Decision.RESUME, None, {"status": "resumed"}, "Resumed by"),
    (IDLE, Decision.RESUME, "the tests", {"status": "resumed", "instruction": "the tests"}, "Resumed by"),
    (IDLE, Decision.STOP, None, {"status": "resumed", "instruction": "stop"}, "Stopped by"),
]


class TooLate(Exception):
    """Somebody else decided first."""


#: Decides a card; `message` is how Slack shows it, or showed it once.
Decide = Callable[[Room, Card, dict[str, Any], Decision, "str | None"], Awaitable[None]]


def command_for(decision: Decision, text: str | None) -> tuple[str, dict[str, str | None]]:
    """The command that makes this decision, and its fields."""
    if decision in (Decision.APPROVE, Decision.REJECT):
        return decision.value, {"reason": text}
    word = decision.value if decision is not Decision.RESUME else "continue" if text is None else "refine"
    return "answer", {"decision": word, "text": text}


async def on_the_terminal(
    server: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None
) -> None:
    command, fields = command_for(decision, text)
    async with dialled(server) as peer:
        reply = await peer.ask(command, id=card.id, **fields)
    if reply.get("error_code") == "already_decided":
        raise TooLate
    assert reply["ok"], reply


async def in_the_browser(
    server: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None
) -> None:
    web = server.app.service.web
    assert web is not None
    link = urlsplit((await web.sign_in_link("kim")).url)
    browser = Browser(link.port or 0)
    await browser.sign_in(link.fragment.partition("=")[2])
    command, fields = command_for(decision, text)
    answer = await browser.command(command, id=card.id, **fields)
    if answer.status == 409:
        raise TooLate
    assert answer.status == 200, answer


async def in_slack(server: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
    if (await server.app.service.card(card.id)).state is not CardState.PENDING:
        # Somebody's phone still shows the buttons.
        await server.slack.tap(BOB, message, next(iter(buttons(message)))).answer()
        await server.slack.told(BOB, "too late")
        raise TooLate
    offered = [each for each in BY_KIND[card.kind] if each.decision is decision and each.dialog is None]
    with_words = [each for each in offered if each.form is not None]
    without = [each for each in offered if each.form is None]
    [button] = with_words if text else without
    await server.slack.tap(ALICE, message, button.action_id).answer()
    if text:
        [view] = server.slack.views(ALICE)
        await server.slack.submit(ALICE, view, {"text": text}).answer()


async def by_the_program(
    server: Room, card: Card, message: dict[str, Any], decision: Decision, text: str | None
) -> None:
    try:
        await EmbeddedOperator(server.app, "kim").answer(card.id, decision, text)
    except AlreadyDecided:
        raise TooLate from None


CHANNELS: dict[str, Decide] = {
    "ctl": on_the_terminal,
    "web": in_the_browser,
    "slack": in_slack,
    "embed": by_the_program,
}


#: Every decision in every channel. The page sends ctl's commands: one of each kind of request is enough there.
CASES = [
    (channel, *case) for channel in CHANNELS for at, case in enumerate(DECISIONS) if channel != "web" or at in (0, 3, 6)
]


@asynccontextmanager
async def dialled(server: Room) -> AsyncIterator[Peer]:
    token = await trio.Path(server.app.places.token_file).read_text()
    async with await trio.open_unix_socket(server.app.places.ctl_socket) as stream:
        yield Peer(stream, token.strip())


@pytest.mark.parametrize(("channel", "asked", "decision", "text", "answer", "headline"), CASES)
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
    async with room(tmp_path, listens=frozenset({"ctl"})) as server, dialled(server) as terminal:
        assert (await terminal.ask("watch"))["ok"]
        asking = server.ask(asked)
        message = await server.card("Shall I?")
        [card] = await server.app.service.pending()
        await CHANNELS[channel](server, card, message, decision, text)
        assert answer.items() <= to_json((await asking()).answer).items()

        decided = (await server.app.service.card(card.id)).decided
        assert decided is not None
        assert (decided.decision, decided.channel, decided.text) == (decision, channel, text)
        closed = await server.shows(message["ts"], headline)
        assert buttons(closed) == []
        while (event := await terminal.line()) is not None:
            if event["event"] == "card" and event["data"]["status"] != "pending":
                break
        assert event is not None
        assert event["data"]["decided"]["channel"] == channel

        # Whoever comes later, by whichever channel, changes nothing and is told so.
        for late in CHANNELS.values():
            with pytest.raises(TooLate):
                await late(server, card, message, decision, "too late" if text else None)
        assert (await server.app.service.card(card.id)).decided == decided


@pytest.mark.parametrize("is_program", [False, True])
@quick
async def test_whose_link_or_token_it_was_stands_in_slack_in_the_terminal_and_on_record(
    tmp_path: Path, is_program: bool
) -> None:
    async with room(tmp_path, listens=frozenset({"ctl"})) as server, dialled(server) as terminal:
        asking = server.ask(CHANGE)
        message = await server.card("Shall I?")
        [card] = await server.app.service.pending()
        web = server.app.service.web
        assert web is not None
        if is_program:
            made = await web.add_token("nightly", WebRole.OPERATOR, None, "alex")
            port = urlsplit(made.url).port or 0
            answer = await Program(port, token=made.text).command("approve", id=card.id)
            name = "token nightly"
        else:
            link = urlsplit((await web.sign_in_link("Zoe", role=WebRole.OPERATOR, by="alex")).url)
            browser = Browser(link.port or 0)
            await browser.sign_in(link.fragment.partition("=")[2])
            answer = await browser.command("approve", id=card.id)
            name = "Zoe"
        assert answer.status == 200, answer
        assert to_json((await asking()).answer)["status"] == "approved"
        await server.shows(message["ts"], f"Approved by {name}")
        shown = await terminal.ask("show", id=card.id)
        assert (shown["data"]["decided"]["by"], shown["data"]["decided"]["channel"]) == (name, "web")
        logged = (await terminal.ask("log"))["data"]["entries"]
        assert [each["who"] for each in logged if each["kind"] == "decided"] == [name]
        # Checked as it comes, like all that a terminal is answered.
        assert (await terminal.ask("slack"))["data"]["slack"]["connection"]["state"] == "up"
