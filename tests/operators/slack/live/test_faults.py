"""Everything between the server and Slack fails, and each card is one message that shows what is so, decided once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model.card import CardState
from intercom.model.decision import Decision
from tests.operators.slack.live.embedded import PATIENCE, Room, quick, room
from tests.slack_standin import ALICE, BOB, CHANNEL, buttons, text_of
from tests.slack_standin.faults import STEPS

#: How late an answer comes, or the work itself is done, in seconds: both past the time-out of a call.
LATE = dict.fromkeys(("lose", "swallow", "cut", "status"), 0.0) | {"delay": 45.0, "stall": 40.0}
POSTS = frozenset({"chat.postMessage", "chat.update"})


async def well(server: Room, cards: int) -> None:
    """Nothing is on its way any more; so many cards are as they should be, all of them decided once."""
    found = await server.settled()
    assert found.faults == []
    assert len(found.cards) == cards
    assert sum(found.verdicts.values()) == cards


def there(server: Room) -> tuple[int, int, int]:
    """How many first messages of threads, cards, and lines of applied changes there are."""
    texts = [text_of(one) for one in server.slack.messages()]
    marks = ("*Mode*", "*low* risk", "applied, ")
    roots, cards, lines = (sum(text.count(mark) for text in texts) for mark in marks)
    return roots, cards, lines


@pytest.mark.parametrize("how", ["clean", "abrupt", "freeze"])
@quick
async def test_the_socket_is_lost_at_each_step_of_an_approval(tmp_path: Path, how: str) -> None:
    lost = []

    def lose(step: str) -> bool:
        lost.append(step)
        server.slack.drop_sockets(how)
        # A connection that is not there yet can only be denied.
        return step != "connecting"

    async with room(tmp_path) as server:
        for step in sorted(STEPS):
            about: Any = (lambda call: call.method in POSTS) if "call" in step or step == "answered" else None
            server.slack.on(step, lambda _, step=step: lose(step), **({"about": about} if about else {}))
            if step in ("connecting", "connected"):
                server.slack.drop_sockets("abrupt")
            shown = await server.approval(step)
            assert "Approved by alice" in text_of(shown)
        assert sorted(lost) == sorted(STEPS)
        await well(server, len(STEPS))


@quick
async def test_acks_are_lost_and_envelopes_doubled_mixed_up_and_delivered_again(tmp_path: Path) -> None:
    async with room(tmp_path, redeliver=(0, 10, 30)) as server, trio.open_nursery() as nursery:
        answers: dict[str, str] = {}

        async def ask(number: int) -> None:
            told = await server.agent(f"agent{number}").check_clearance(f"card {number:02}", "x\n", "x.txt")
            answers[f"card {number:02}"] = told.answer.status

        for number in range(12):
            nursery.start_soon(ask, number)
        cards = [await server.card(f"card {number:02}") for number in range(12)]
        faults = server.slack.faults
        faults.double, faults.reorder, faults.deaf = 12, 3, 9
        taps = []
        for number, card in enumerate(cards):
            # Two people, of one mind about half of the cards.
            taps.append(server.slack.tap(ALICE, card, "approve_accept"))
            if number % 2:
                taps.append(server.slack.tap(BOB, card, "approve_accept"))
        await server.slack.acted_on(PATIENCE)
        faults.reorder = 0
        for tap in taps:
            await server.slack.redeliver(tap)
        await server.slack.wait_for(lambda: len(answers) == 12, PATIENCE)
        assert set(answers.values()) == {"approved"}
        assert sum(tap.missed for tap in taps) > 0
        await well(server, 12)
        assert server.slack.count("chat.postMessage", ok=True) == 24
        # Who was second hears so, once.
        assert len([one for one in server.slack.team.ephemerals if "too late" in one["text"]]) == 6


@pytest.mark.parametrize(
    "fault",
    [{"how": "limit", "seconds": 7, "times": 40}, {"how": "status", "status": 503, "times": 25, "done": True}],
    ids=lambda fault: str(fault["how"]),
)
@quick
async def test_storms_pass(tmp_path: Path, fault: dict[str, Any]) -> None:
    """Whatever is called goes wrong for a while, from the first post on."""
    async with room(tmp_path) as server:
        server.slack.plan("*", **fault)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(server.approval, f"card {number}", server.agent(f"agent{number}"))
        await well(server, 5)
        assert sum(call.fault is not None for call in server.slack.calls) == fault["times"]
        assert there(server) == (5, 5, 5)


@pytest.mark.parametrize(
    ("method", "how"),
    [
        *(("chat.postMessage", how) for how in ("lose", "swallow", "cut", "status", "delay", "stall")),
        ("chat.update", "stall"),
        ("conversations.replies", "cut"),
        ("conversations.history", "status"),
    ],
)
@quick
async def test_an_answer_is_lost_whether_or_not_the_work_was_done(tmp_path: Path, method: str, how: str) -> None:
    async with room(tmp_path) as server:
        await server.approval("before")
        server.slack.plan(method, how, times=3, seconds=LATE[how], status=502, done=True)
        if method.startswith("conversations"):
            # It is asked only where it is not known whether a message is there.
            # The card is in the channel, and the line behind it in a thread.
            server.slack.plan("chat.postMessage", "lose", times=2)
        await server.approval("after")
        await well(server, 2)
        assert there(server) == (1, 2, 2)
        assert any(call.method == method and call.fault is not None for call in server.slack.calls)


@pytest.mark.parametrize(
    ("method", "how"),
    [("files.getUploadURLExternal", "status"), ("files.completeUploadExternal", "lose"), ("files.info", "cut")],
)
@quick
async def test_a_diff_that_follows_as_a_file_is_there_once(tmp_path: Path, method: str, how: str) -> None:
    async with room(tmp_path) as server:
        server.slack.plan(method, how, times=2, status=500)
        await server.approval("long", diff="".join(f"line {number}\n" for number in range(300)))
        await well(server, 1)
        assert sum(bool(one.get("files")) for one in server.slack.messages()) == 1


@quick
async def test_a_form_whose_opening_was_not_answered_decides_once(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        told: list[Any] = []

        async def ask() -> None:
            told.append((await server.agent().check_clearance("form", "x\n", "x.txt")).answer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            card = await server.card("form")
            server.slack.plan("views.open", "lose")
            server.slack.tap(ALICE, card, "approve_reject")
            # What cannot be known to be open is asked for in the thread as well; here that is answered.
            await server.slack.wait_for(
                lambda: any("could not be opened" in text_of(one) for one in server.slack.messages()), PATIENCE
            )
            server.slack.say(ALICE, CHANNEL, "because", card["ts"])
        assert (told[0].status, told[0].reason) == ("rejected", "because")
        for view in server.slack.views(ALICE):
            server.slack.submit(ALICE, view, {"text": "late"})
        await well(server, 1)


@quick
async def test_a_while_without_network(tmp_path: Path) -> None:
    async with room(tmp_path) as server, trio.open_nursery() as nursery:
        answers: dict[str, str] = {}

        async def ask(title: str) -> None:
            told = await server.agent(title).check_clearance(title, "x\n", "x.txt")
            answers[title] = told.answer.status

        for title in ("card-open", "card-closed", "card-tapped"):
            nursery.start_soon(ask, title)
        cards = {title: await server.card(title) for title in ("card-open", "card-closed", "card-tapped")}
        ids = {card.title: card.id for card in await server.app.service.pending()}
        async with server.slack.down():
            await trio.sleep(60)
            await server.decide(ids["card-closed"], Decision.REJECT)
            nursery.start_soon(ask, "card-new")
            nursery.start_soon(ask, "card-gone")
            await trio.sleep(60)
            found = {card.title: card.id for card in await server.app.service.pending()}
            await server.decide(found["card-gone"], Decision.APPROVE)
            await trio.sleep(900)
        server.slack.tap(ALICE, cards["card-tapped"], "approve_accept")
        cards["card-new"] = await server.card("card-new")
        assert "Rejected by kim on the terminal" in text_of(await server.shows(cards["card-closed"]["ts"], "Rejected"))
        assert buttons(server.slack.message(cards["card-open"]["ts"]))
        for title in ("card-open", "card-new"):
            server.slack.tap(BOB, cards[title]["ts"], "approve_accept")
        await server.slack.wait_for(lambda: len(answers) == 5, PATIENCE)
        approved = ("card-open", "card-tapped", "card-new", "card-gone")
        assert answers == dict.fromkeys(approved, "approved") | {"card-closed": "rejected"}
        await well(server, 5)


@quick
async def test_slack_is_out_of_reach_when_the_server_starts(tmp_path: Path) -> None:
    async with room(tmp_path, up=False) as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.approval, "early")
        await trio.sleep(900)
        assert [card.state for card in await server.app.service.pending()] == [CardState.PENDING]
        await server.slack.come_up()
        await server.slack.connected(seconds=PATIENCE)
        await server.card("early")
        await server.slack.wait_for(
            lambda: any("*Applied*" in text_of(one) for one in server.slack.messages()), PATIENCE
        )
        await well(server, 1)
