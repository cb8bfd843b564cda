"""The router: who is told of what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from actors import Actor, ChildSpec, System, ask
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.session import SessionMode
from intercom.operators.card_router import CLOSED, EARLY_SECONDS, NOTIFIED, CardRouter, recipients
from intercom.operators.router_messages import Channel, Subscribe
from tests.operators.stand_in_service import START, card

LOCAL, REMOTE, HYBRID = SessionMode.LOCAL, SessionMode.REMOTE, SessionMode.HYBRID
ALL = {"slack": Channel.SLACK, "ctl": Channel.CTL, "web": Channel.WEB, "embed": Channel.EMBED, "push": Channel.PUSH}


@pytest.mark.parametrize(
    ("mode", "shown", "state", "told"),
    [
        (REMOTE, set(), CardState.PENDING, {"slack", "embed", "push"}),
        (LOCAL, set(), CardState.PENDING, {"ctl", "web", "embed", "push"}),
        (HYBRID, set(), CardState.PENDING, set(ALL)),
        (None, set(), CardState.PENDING, set(ALL)),
        # Whoever shows it as open must hear of its end, also after the mode has changed.
        (LOCAL, {"slack"}, CardState.APPROVED, set(ALL)),
        (REMOTE, {"ctl"}, CardState.EXPIRED, {"slack", "embed", "push", "ctl"}),
        (REMOTE, {"ctl", "gone"}, CardState.PENDING, {"slack", "embed", "push", "ctl"}),
        # After a crash nobody knows who shows it.
        (LOCAL, None, CardState.APPROVED, set(ALL)),
        (LOCAL, None, CardState.PENDING, {"ctl", "web", "embed", "push"}),
    ],
)
def test_the_mode_says_who_is_told_and_whoever_showed_a_card_hears_of_its_end(
    mode: SessionMode | None, shown: set[str] | None, state: CardState, told: set[str]
) -> None:
    known = None if shown is None else frozenset(shown)
    assert recipients(card("c", state=state), mode, ALL, known) == told


@pytest.mark.parametrize("mode", SessionMode)
def test_whether_to_go_back_is_asked_on_every_channel(mode: SessionMode) -> None:
    assert recipients(card("c", CardKind.RESTORE), mode, ALL, frozenset()) == set(ALL)


@given(
    mode=st.sampled_from(SessionMode),
    shown=st.none() | st.frozensets(st.sampled_from(sorted(ALL))),
    state=st.sampled_from(CardState),
)
def test_nobody_is_left_with_a_card_that_looks_open(
    mode: SessionMode, shown: frozenset[str] | None, state: CardState
) -> None:
    told = recipients(card("c", state=state), mode, ALL, shown)
    assert (shown or frozenset()) <= told
    assert {name for name, channel in ALL.items() if channel in NOTIFIED[mode]} <= told


class Probe(Actor):
    """Keeps what it is told; falls when told so."""

    def __init__(self, told: list[Any]) -> None:
        super().__init__()
        self._told = told

    def on_receive(self, message: Any) -> None:
        if message == "fall":
            raise RuntimeError("told to fall")
        self._told.append(message)


class Stage:
    """A router, one probe for each channel, and the store it reads from."""

    def __init__(self, *cards: Card, mode: SessionMode = HYBRID, remembered: int = 100) -> None:
        self.cards = list(cards)
        self.mode = mode
        self.reads = 0
        self.found: list[Notice] = []
        self.told: dict[str, list[Any]] = {name: [] for name in ALL}
        self.specs = [
            ChildSpec("card_router", lambda: CardRouter(self._open, self._mode_of, remembered, self.found)),
            *(ChildSpec(name, partial(Probe, self.told[name])) for name in ALL),
        ]

    async def _open(self) -> Sequence[Card]:
        return [each for each in self.cards if each.state is CardState.PENDING]

    async def _mode_of(self, session_id: str) -> SessionMode | None:
        self.reads += 1
        return self.mode if session_id == "s-1" else None


async def subscribe(system: System, *names: str) -> dict[str, list[str]]:
    router = system.named("card_router")
    answers = {name: await ask(router, Subscribe(name, ALL[name]), retry=True, timeout=30) for name in names}
    return {name: [each.id for each in cards] for name, cards in answers.items()}


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


async def test_a_subscriber_is_given_the_open_cards_and_told_the_later_ones() -> None:
    stage = Stage(card("old"))
    async with System(stage.specs) as system:
        assert await subscribe(system, "ctl") == {"ctl": ["old"]}
        system.named("card_router").tell(card("new"))
        await settle()
        assert [each.id for each in stage.told["ctl"]] == ["new"]
        assert await subscribe(system, "ctl") == {"ctl": ["old", "new"]}


async def test_what_concerns_everybody_reaches_channels_that_come_up_after_it_once() -> None:
    stage = Stage(card("old"))
    stage.found = [Notice("the database was damaged", "error", START)]
    async with System(stage.specs) as system:
        system.named("card_router").tell(Notice("server restarted", "warning", START))
        system.named("card_router").tell(Notice("of one session", "info", START, session_id="s-1"))
        await subscribe(system, "slack")
        system.named("slack").tell("fall")
        await settle()
        await subscribe(system, "slack", "ctl")
        await settle()
        told = ["the database was damaged", "server restarted"]
        assert [each.text for each in stage.told["slack"]] == told
        assert [each.text for each in stage.told["ctl"]] == told
        await trio.sleep(EARLY_SECONDS + 1)
        await subscribe(system, "embed")
        await settle()
        assert stage.told["embed"] == []


async def test_a_closed_card_is_no_longer_given_out() -> None:
    stage = Stage(card("old"), card("other"))
    async with System(stage.specs) as system:
        system.named("card_router").tell(card("old", state=CardState.REJECTED))
        assert await subscribe(system, "ctl") == {"ctl": ["other"]}


async def test_a_card_whose_decision_was_taken_back_is_given_out_again() -> None:
    stage = Stage(card("other"), remembered=1000)
    async with System(stage.specs) as system:
        await subscribe(system, "ctl")
        for state in (CardState.PENDING, CardState.APPROVED, CardState.PENDING):
            system.named("card_router").tell(card("old", state=state))
        # Other cards that close do not make the router forget who shows this one.
        for number in range(CLOSED + 1):
            system.named("card_router").tell(card(f"c{number}", state=CardState.CLOSED))
        stage.mode = REMOTE
        system.named("card_router").tell(Notice("the mode changed", "info", START, session_id="s-1"))
        system.named("card_router").tell(card("old", note="the agent is away"))
        await settle()
        told = [(each.state, each.note) for each in stage.told["ctl"] if isinstance(each, Card) and each.id == "old"]
        assert told[2:] == [(CardState.PENDING, None), (CardState.PENDING, "the agent is away")]
        assert await subscribe(system, "slack") == {"slack": ["other", "old"]}


async def test_a_mode_that_changed_does_not_leave_ghosts() -> None:
    stage = Stage(mode=HYBRID)
    async with System(stage.specs) as system:
        await subscribe(system, "slack", "ctl")
        system.named("card_router").tell(card("one"))
        await settle()
        stage.mode = LOCAL
        system.named("card_router").tell(Notice("mode is local", "info", START, session_id="s-1"))
        system.named("card_router").tell(card("one", state=CardState.APPROVED))
        system.named("card_router").tell(card("two"))
        await settle()
        # That it hears no more is told to it too.
        assert [getattr(each, "id", "notice") for each in stage.told["slack"]] == ["one", "notice", "one"]
        assert [stage.told["slack"][place].state for place in (0, -1)] == [CardState.PENDING, CardState.APPROVED]
        assert [getattr(each, "id", "notice") for each in stage.told["ctl"]] == ["one", "notice", "one", "two"]


async def test_the_mode_is_read_once_and_again_with_each_notice_of_the_session() -> None:
    stage = Stage()
    async with System(stage.specs) as system:
        await subscribe(system, "ctl")
        for number in range(5):
            system.named("card_router").tell(card(f"c{number}"))
        await settle()
        assert stage.reads == 1
        system.named("card_router").tell(Notice("hello", "info", START, session_id="s-1"))
        await settle()
        assert stage.reads == 2


async def test_whom_a_new_mode_notifies_is_shown_what_is_open() -> None:
    stage = Stage(mode=REMOTE)
    async with System(stage.specs) as system:
        await subscribe(system, "slack", "ctl")
        system.named("card_router").tell(card("one"))
        system.named("card_router").tell(card("other", session_id="s-2"))
        await settle()
        stage.mode = LOCAL
        # A switch is announced; that is when the router looks.
        system.named("card_router").tell(Notice("mode is local", "info", START, session_id="s-1"))
        await settle()
        assert [getattr(each, "id", "notice") for each in stage.told["ctl"]] == ["other", "one", "notice"]
        assert [getattr(each, "id", "notice") for each in stage.told["slack"]] == ["one", "other", "notice"]
        system.named("card_router").tell(card("one", state=CardState.APPROVED))
        await settle()
        assert [stage.told[name][-1].state for name in ("ctl", "slack")] == [CardState.APPROVED] * 2


async def test_a_notice_goes_where_its_session_notifies_and_one_of_no_session_everywhere() -> None:
    stage = Stage(mode=REMOTE)
    async with System(stage.specs) as system:
        await subscribe(system, "slack", "ctl")
        system.named("card_router").tell(Notice("of a session", "info", START, session_id="s-1"))
        system.named("card_router").tell(Notice("of all", "warning", START))
        await settle()
        assert [each.text for each in stage.told["slack"]] == ["of a session", "of all"]
        assert [each.text for each in stage.told["ctl"]] == ["of all"]


async def test_a_channel_that_fell_is_forgotten_and_one_that_came_back_gets_the_open_cards() -> None:
    stage = Stage()
    dead: list[Any] = []
    async with System(stage.specs, on_event=lambda event: dead.append(event)) as system:
        await subscribe(system, "ctl", "embed")
        system.named("ctl").tell("fall")
        await settle()
        system.named("card_router").tell(card("meanwhile"))
        await settle()
        assert stage.told["ctl"] == []
        assert [each.id for each in stage.told["embed"]] == ["meanwhile"]
        assert await subscribe(system, "ctl") == {"ctl": ["meanwhile"]}


async def test_a_router_that_crashed_reads_the_open_cards_again_and_their_end_goes_to_all() -> None:
    stage = Stage(card("one"))
    async with System(stage.specs) as system:
        await subscribe(system, "slack", "ctl")
        router = system.named("card_router")
        old = router.ref
        router.tell(Subscribe(["no name"], Channel.CTL))  # type: ignore[arg-type]
        assert await subscribe(system, "slack") == {"slack": ["one"]}
        assert router.ref is not old
        stage.mode = LOCAL
        await subscribe(system, "ctl")
        router.tell(card("one", state=CardState.EXPIRED))
        await settle()
        assert [each.state for each in stage.told["slack"]] == [CardState.EXPIRED]
        assert [each.state for each in stage.told["ctl"]] == [CardState.EXPIRED]


async def test_what_is_remembered_is_bounded_and_the_newest_stay() -> None:
    stage = Stage(remembered=3)
    async with System(stage.specs) as system:
        for number in range(10):
            system.named("card_router").tell(card(f"c{number}"))
        assert await subscribe(system, "ctl") == {"ctl": ["c7", "c8", "c9"]}
