"""Decisions made at once in Slack, on the page and in the terminal: the first wins, and all three show who.

The long run (`tox -e chaos`) has 1,000 rounds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
from attrs import define, field

from intercom.model.card import Card
from intercom.model.decision import PAST, Decision
from intercom.sessions.tools.check_clearance import CheckClearance
from tests.contract.test_decisions import command_for, dialled
from tests.operators.ctl_server import Peer
from tests.operators.slack.live.embedded import Room, quick, room
from tests.operators.web.page_server import Browser, Stream
from tests.slack_standin import ALICE, CannotDo, buttons, text_of

LONG = os.environ.get("INTERCOM_CHAOS") == "long"
SEEDS, ROUNDS = (range(20), 50) if LONG else (range(1), 6)

#: How long before its act each channel waits, in virtual seconds: mostly not at all.
_PAUSES = (0.0, 0.0, 0.0, 0.001, 0.01)


@define
class Race:
    """A server with a person in each channel. `told` is what each of them was told about the card of this round, and
    `read` how many messages Slack had shown to its person alone before."""

    server: Room
    terminal: Peer
    watch: Peer
    browser: Browser
    stream: Stream
    told: dict[str, str] = field(factory=dict)
    read: int = 0

    async def on_the_terminal(self, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
        command, fields = command_for(decision, text)
        self.told["ctl"] = str(await self.terminal.ask(command, id=card.id, **fields))

    async def in_the_browser(self, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
        command, fields = command_for(decision, text)
        self.told["web"] = str((await self.browser.command(command, id=card.id, **fields)).json())

    async def in_slack(self, card: Card, message: dict[str, Any], decision: Decision, text: str | None) -> None:
        slack, before = self.server.slack, self.read
        try:
            await slack.tap(ALICE, message["ts"], f"approve_{'accept' if text is None else 'reject'}").answer()
        except CannotDo:
            # The message has no buttons any more, and shows who decided, as is checked for all.
            return
        self.told["slack"] = ""
        if text is not None:
            await slack.wait_for(lambda: slack.views(ALICE) or slack.ephemerals(ALICE)[before:])
            for view in slack.views(ALICE):
                await slack.submit(ALICE, view, {"text": text}).answer()
            late = slack.views(ALICE)
            self.told["slack"] = " ".join(map(text_of, late))
            for view in late:
                slack.close_view(ALICE, view)

    async def shows_who(self, name: str, by: str) -> None:
        """Return once a channel has told its person by whom this was decided. Slack may do so a little later."""
        if name != "slack":
            assert by in self.told[name]
        elif by not in self.told.get("slack", by):
            slack = self.server.slack
            await slack.wait_for(lambda: any(by in each["text"] for each in slack.ephemerals(ALICE)[self.read :]))


@asynccontextmanager
async def race(root: Path) -> AsyncIterator[Race]:
    async with (
        room(root, listens=frozenset({"ctl"})) as server,
        dialled(server) as terminal,
        dialled(server) as watch,
    ):
        web = server.app.service.web
        assert web is not None
        link = urlsplit((await web.sign_in_link("kim")).url)
        browser = Browser(link.port or 0)
        await browser.sign_in(link.fragment.partition("=")[2])
        assert (await watch.ask("watch"))["ok"]
        async with browser.events() as stream:
            await stream.until_ready()
            yield Race(server, terminal, watch, browser, stream)


async def closed_on(stream: Stream | Peer, card: Card) -> dict[str, Any]:
    """What a channel that follows all cards shows of one, once it is decided."""
    while True:
        if isinstance(stream, Stream):
            name, data, _ = await stream.next()
        else:
            event = await stream.line()
            assert event is not None
            name, data = event["event"], event["data"]
        if name == "card" and data["request_id"] == card.id and data["status"] != "pending":
            decided: dict[str, Any] = data["decided"]
            return decided


@pytest.mark.parametrize("seed", SEEDS)
@quick
async def test_of_decisions_made_at_once_in_three_channels_the_first_wins_and_all_show_who(
    tmp_path: Path, seed: int
) -> None:
    pick = random.Random(seed)
    winners: Counter[str] = Counter()
    async with race(tmp_path) as at:
        channels = {"ctl": at.on_the_terminal, "web": at.in_the_browser, "slack": at.in_slack}
        for number in range(ROUNDS):
            at.told.clear()
            title = f"change {number}"
            asking = at.server.ask(CheckClearance(title, f"{number}\n", f"{number}.txt"))
            message = await at.server.card(title)
            [card] = await at.server.app.service.pending()
            wanted = {name: pick.choice((Decision.APPROVE, Decision.REJECT)) for name in channels}
            pauses = {name: pick.choice(_PAUSES) for name in channels}

            async def act(name: str, wanted: Any, pauses: Any, card: Any, message: Any) -> None:
                if pauses[name]:
                    await trio.sleep(pauses[name])
                text = None if wanted[name] is Decision.APPROVE else f"no: {name}"
                await channels[name](card, message, wanted[name], text)

            async with trio.open_nursery() as nursery:
                for name in pick.sample(sorted(channels), len(channels)):
                    nursery.start_soon(act, name, wanted, pauses, card, message)
            answer = (await asking()).answer
            decided = (await at.server.app.service.card(card.id)).decided
            assert decided is not None
            winners[decided.channel] += 1
            assert (decided.decision, decided.text) == (
                wanted[decided.channel],
                None if wanted[decided.channel] is Decision.APPROVE else f"no: {decided.channel}",
            )
            assert (answer.status, answer.reason) == (PAST[decided.decision], decided.text)
            for follows in (at.watch, at.stream):
                shown = await closed_on(follows, card)
                assert (shown["by"], shown["channel"]) == (decided.by, decided.channel)
            # Slack shows a person of its own by name, without the id.
            name = decided.by.partition(" (")[0]
            headline = f"{PAST[decided.decision].capitalize()} by {name}"
            assert buttons(await at.server.shows(message["ts"], headline)) == []
            for late in set(channels) - {decided.channel}:
                await at.shows_who(late, name)
            at.read = len(at.server.slack.ephemerals(ALICE))
        found = await at.server.settled()
        assert found.faults == []
        assert sorted(found.verdicts.values()) == [1] * ROUNDS
    print(f"seed {seed}: {dict(winners)}")
