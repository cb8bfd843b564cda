"""The server is killed on its way to Slack and back, as a power failure would, and nobody notices but its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.store.store_and_reader import Reader
from tests.operators.slack.live.server import ServerInSlack, Work, server_in_slack
from tests.operators.slack.live.truth import look
from tests.slack_standin import ALICE, BOB, buttons, text_of

pytestmark = pytest.mark.real_time

#: What Slack does when nobody answers, only faster: a second for an ack, and soon once more.
QUICK: dict[str, Any] = {"ack_within": 1.0, "redeliver": (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)}


class Served:
    """A server that is started again whenever it has ended, with the faults of a list still to come."""

    def __init__(self, here: ServerInSlack, faults: tuple[str, ...]) -> None:
        self.lives = 0
        self._here = here
        self._faults = here.home.root / "faults"
        self._faults.write_text("".join(f"{fault}\n" for fault in faults))
        self.up = trio.Event()

    async def run(self) -> None:
        while True:
            left = self.left
            self.lives += 1
            try:
                with self._here.serving(INTERCOM_FAULT=f"queue:{self._faults}") as process:
                    self.up.set()
                    await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
            except AssertionError:
                # It may fall before it says that it is ready, if that was asked for.
                if self.left == left:
                    raise

    @property
    def left(self) -> list[str]:
        """The faults that have not happened yet."""
        return self._faults.read_text().splitlines()


@asynccontextmanager
async def served(*faults: str) -> AsyncIterator[tuple[Work, Served]]:
    """An agent at work with a server that falls at these points, one after the other."""
    async with server_in_slack(**QUICK) as here, trio.open_nursery() as nursery:
        with here.alone():
            server = Served(here, faults)
            nursery.start_soon(server.run)
            await server.up.wait()
            workspace = here.home.workspace()
            async with here.home.agent(workspace) as agent:
                await here.slack.connected()
                try:
                    yield Work(here, agent, workspace, nursery), server
                finally:
                    nursery.cancel_scope.cancel()


async def well(work: Work, cards: int) -> None:
    """So many cards, each one message that shows what is so, each decided once."""
    # What is posted after all that waits has been posted shows that nothing waits any more.
    await work.call("ping", status_message="the last word")
    await work.slack.first(lambda one: "the last word" in text_of(one))
    reader = Reader(Path(work.server.home.places.database))
    try:
        found = await look(reader, work.slack)
    finally:
        reader.close()
    assert found.faults == []
    assert len(found.cards) == cards
    assert sum(found.verdicts.values()) == cards


async def approval(work: Work, title: str) -> dict[str, Any]:
    """One change from the question to the disk; its card."""
    file = f"{title.replace(' ', '-')}.txt"
    asked = work.ask("check_clearance", title=title, diff=f"{title}\n", file_path=file)
    card = await work.slack.card(title)
    tap = work.slack.tap(ALICE, card["ts"], "approve_accept")
    answer = await asked()
    assert answer["status"] == "approved"
    applied = await work.call("check_diff", request_id=answer["request_id"])
    assert applied["status"] == "applied"
    await work.slack.shows(card["ts"], "*Applied*")
    await work.slack.wait_for(lambda: tap.over.is_set())
    assert (work.workspace / file).read_text() == f"{title}\n"
    return card


async def test_it_is_killed_at_every_point_on_the_way_to_slack() -> None:
    """Before a message is posted, and when Slack has it and the store does not know: of the message that a session's
    thread hangs from, and of a card."""
    points = ("after_post", "before_post", "after_post")
    async with served(*(f"kill:outbox.{point}:1" for point in points)) as (work, server):
        await approval(work, "the card")
        assert server.left == []
        assert server.lives == len(points) + 1
        await well(work, 1)


async def test_it_is_killed_between_the_tap_and_the_ack() -> None:
    """When the decision is on record and nobody knows, when the agent's call has it, and when that is on record."""
    points = ("verdict.recorded", "answer.left", "delivery.recorded")
    async with served(*(f"kill:{point}:1" for point in points)) as (work, server):
        for number in range(len(points)):
            await approval(work, f"change {number}")
        assert server.left == []
        assert server.lives == len(points) + 1
        await well(work, len(points))


async def test_it_is_killed_while_cards_are_open() -> None:
    """They stay live under the next server; what was decided elsewhere while Slack was out of reach closes."""
    async with served() as (work, server), work.server.home.person(work.workspace) as person:
        asked = [
            work.ask("check_clearance", title=f"card {number}", diff="x\n", file_path=f"{number}.txt")
            for number in range(3)
        ]
        cards = [await work.slack.card(f"card {number}") for number in range(3)]
        ids = [(await person.card(title=f"card {number}"))["request_id"] for number in range(3)]
        work.slack.go_down()
        await person.do("reject", id=ids[1], reason="meanwhile")
        assert (await asked[1]())["status"] == "rejected"
        server.up = trio.Event()
        work.server.home.kill()
        await server.up.wait()
        await work.slack.come_up()
        closed = await work.slack.shows(cards[1]["ts"], "meanwhile")
        assert buttons(closed) == []
        for number in (0, 2):
            assert buttons(work.slack.message(cards[number]["ts"])) == buttons(cards[number])
        await work.slack.connected()
        # A tap that comes while there is no server waits for the next one.
        work.server.home.kill()
        tap = work.slack.tap(BOB, cards[0]["ts"], "approve_accept")
        assert (await asked[0]())["status"] == "approved"
        await tap.answer()
        await work.tap(cards[2], "approve_accept")
        assert (await asked[2]())["status"] == "approved"
        for number in (0, 2):
            await work.slack.shows(cards[number]["ts"], "*Delivered*")
        assert server.lives == 3
        await well(work, 3)
        assert len([one for one in work.slack.messages() if "card " in text_of(one)]) == 3


async def test_an_apply_that_stopped_half_way_is_given_up_in_slack() -> None:
    async with server_in_slack() as server, trio.open_nursery() as nursery:
        with server.alone():
            workspace = server.home.workspace()
            (workspace / "a.txt").write_text("old\n")
            with server.serving(INTERCOM_FAULT="kill:journal.committed:1") as process:
                async with server.home.agent(workspace) as agent:
                    work = Work(server, agent, workspace, nursery)
                    asked = work.ask("check_clearance", title="Renew", diff="new\n", file_path="a.txt")
                    await work.tap(await server.slack.card("Renew"), "approve_accept")
                    applied = work.ask("check_diff", request_id=(await asked())["request_id"])
                    await trio.to_thread.run_sync(process.wait)
                    (workspace / "a.txt").write_text("neither\n")
                    with server.serving():
                        # The agent's call comes again, and the card is closed and opened for it once more.
                        assert (await applied())["error_code"] == "apply_stuck"
                        stuck = await server.slack.card("Stopped half-way: Renew")
                        assert buttons(stuck) == ["apply_dismiss"]
                        await work.tap(stuck, "apply_dismiss")
                        assert buttons(await server.slack.shows(stuck["ts"], "Closed")) == []
                        assert (workspace / "a.txt").read_text() == "neither\n"
                        assert len([one for one in server.slack.messages() if "Stopped half-way" in text_of(one)]) == 1
                        nursery.cancel_scope.cancel()
