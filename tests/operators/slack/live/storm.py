"""A seeded storm: agents ask, people tap, and everything between the server and Slack fails at random.

The server runs in the test's own loop, on a clock that runs fast, over real sockets and a real database; it is taken
down without a word and started anew, again and again. Afterwards what Slack shows is compared with what the store
knows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
import trio.testing
from attrs import define, field

from actors import Busy, Down, NotRunning
from intercom.app import App
from intercom.embedding import EmbeddedAgent
from intercom.local.places import places
from intercom.model.card import CardKind
from intercom.model.config import Config, DatabaseSettings, SlackSettings, StallSettings, TimeoutSettings
from intercom.model.errors import AlreadyConsumed, IntercomError
from intercom.operators.slack.buttons import BY_ACTION
from intercom.sessions.messages import Answered
from intercom.sessions.request_kinds import to_json
from intercom.store import outbox
from tests.operators.slack.live.embedded import setup_for
from tests.operators.slack.live.truth import is_by_words, look
from tests.slack_standin import ALICE, BOB, CHANNEL, CannotDo, Standin, Unanswered, buttons
from tests.support.faults import InjectedCrash

T = TypeVar("T")

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
#: Virtual seconds after which whatever is not over never will be.
PATIENCE = 4 * 3600.0

#: What goes wrong, each about as often as any other.
_STRIKES = (
    "socket dropped",
    "socket refreshed",
    "answer lost",
    "server error",
    "limited",
    "late",
    "envelopes doubled",
    "envelopes mixed up",
    "acks lost",
    "connects denied",
    "out of reach",
    "actor crashed",
)
#: What agents ask for in it.
ASKED = (CardKind.APPROVAL, CardKind.PROMPT, CardKind.STANDBY)
_METHODS = ("chat.postMessage", "chat.update", "views.open", "conversations.replies", "conversations.history", "*")
_ACTORS = (
    "slack/outbox_writer",
    "slack/outbox",
    "slack/connection",
    "slack/commands",
    "slack/ephemeral",
    "slack/web",
    "card_router",
    "registry",
)


@define
class Storm:
    """`wanted` cards are asked for by `agents` agents; `counts` tells afterwards what came to pass."""

    slack: Standin
    root: Path
    clock: trio.testing.MockClock
    seed: int
    wanted: int
    agents: int = 40
    counts: Counter[str] = field(factory=Counter)
    answers: dict[str, dict[str, Any]] = field(factory=dict)
    faults: list[str] = field(factory=list)
    acked: list[str] = field(factory=list)
    wishes: dict[str, list[str]] = field(factory=dict)
    app: App | None = None
    dice: random.Random = field(init=False)
    _left: int = field(init=False)
    _up: trio.Event = field(factory=trio.Event)
    _quiet: bool = False
    _tapped: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self._left = self.wanted

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.clock.current_time())

    async def run(self) -> None:
        """Let it blow until every card is answered, then until Slack is quiet; the server is down afterwards."""
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as world:
                world.start_soon(self._serve)
                world.start_soon(self._people, world)
                world.start_soon(self._weather)
                async with trio.open_nursery() as agents:
                    for number in range(self.agents):
                        agents.start_soon(self._agent, number)
                self._quiet = True
                self.slack.faults.clear()
                await self._settle()
                await self._judge()
                world.cancel_scope.cancel()

    # --- the server --------------------------------------------------------------------------------------------------

    def _build(self) -> App:
        config = Config(
            ipc_name="storm",
            database=DatabaseSettings(path=self.root / "storm.db"),
            slack=SlackSettings(channel_id=CHANNEL, reconnect_backoff_max_seconds=20),
            timeouts=TimeoutSettings(approval_seconds=86400, prompt_seconds=86400),
            stall=StallSettings(enabled=False),
        )
        return App(
            config, places("storm"), self.root / "storm.db", frozenset(), slack=setup_for(self.slack), now=self.now
        )

    async def _serve(self) -> None:
        """Run the server; each life ends without a word, in the middle of whatever it does."""
        while True:
            self.app = self._build()
            with trio.CancelScope() as life:
                async with self.app.system:
                    self._up.set()
                    if self._quiet:
                        await trio.sleep_forever()
                    await trio.sleep(self.dice.uniform(30, 150))
                    life.cancel()
            self._up = trio.Event()
            self.counts["server lives ended"] += 1

    async def _weather(self) -> None:
        """Something goes wrong every few seconds."""
        while not self._quiet:
            await trio.sleep(self.dice.expovariate(1 / 4))
            if self._quiet:
                return
            await self._strike(self.dice.choice(_STRIKES))

    async def _strike(self, what: str) -> None:
        slack, faults, dice = self.slack, self.slack.faults, self.dice
        self.counts[what] += 1
        if dice.random() < 0.5:
            # What is planned and was met by no call yet would pile up, until nothing worked at all.
            faults.clear()
        match what:
            case "socket dropped":
                slack.drop_sockets(dice.choice(("clean", "abrupt", "freeze")))
            case "socket refreshed":
                slack.refresh(warned=dice.uniform(0, 10))
            case "answer lost":
                slack.plan(dice.choice(_METHODS), dice.choice(("lose", "swallow")), times=dice.randint(1, 4))
            case "server error":
                slack.plan(
                    "*",
                    "status",
                    status=dice.choice((500, 502, 503)),
                    times=dice.randint(1, 10),
                    done=dice.random() < 0.3,
                )
            case "limited":
                slack.plan(dice.choice(_METHODS), "limit", seconds=dice.randint(1, 30), times=dice.randint(1, 20))
            case "late":
                slack.plan(
                    "*", dice.choice(("delay", "stall")), seconds=dice.uniform(0.5, 15), times=dice.randint(1, 5)
                )
            case "envelopes doubled":
                faults.double = dice.randint(1, 10)
            case "envelopes mixed up":
                faults.reorder = dice.choice((0, 3, 5))
            case "acks lost":
                faults.deaf = dice.randint(1, 5)
            case "connects denied":
                faults.deny_connects = dice.randint(1, 4)
            case "out of reach":
                async with slack.down():
                    await trio.sleep(dice.uniform(1, 90))
            case "actor crashed":
                app = self.app
                assert app is not None
                name = dice.choice(_ACTORS)
                ref = app.system.ref(name)
                if ref is not None:
                    ref._crash(InjectedCrash(what))

    # --- the agents --------------------------------------------------------------------------------------------------

    async def _agent(self, number: int) -> None:
        workspace = self.root / f"agent{number}"
        workspace.mkdir()
        while self._left > 0:
            self._left -= 1
            await self._ask(number, self._left, str(workspace))
            await trio.sleep(self.dice.uniform(0, 2))

    async def _ask(self, number: int, card: int, workspace: str) -> None:
        """Ask one thing until it is answered, and do what was approved, whatever becomes of the server meanwhile."""
        kind = self.dice.choice(("clearance", "clearance", "prompt", "standby"))
        title = f"card {card:04}"
        told = await self._insist(number, workspace, partial(self._once, kind=kind, title=title))
        self.counts[f"{kind} answered"] += 1
        self.answers[title] = told
        if told.get("status") == "approved" and self.dice.random() < 0.5:
            await self._insist(number, workspace, partial(self._apply, request_id=str(told["request_id"])))
            self.counts["applied"] += 1

    async def _insist(self, number: int, workspace: str, do: Callable[[EmbeddedAgent, bool], Awaitable[T]]) -> T:
        """Do it, and again where the server was taken down or a part of it fell; `do` is told whether it is again."""
        again = False
        while True:
            await self._up.wait()
            assert self.app is not None
            try:
                return await do(EmbeddedAgent(self.app, f"agent{number}", workspace), again)
            except (Busy, Down, NotRunning, trio.TooSlowError, IntercomError, RuntimeError) as failed:
                self.counts[f"agent asked again after {type(failed).__name__}"] += 1
                await trio.sleep(1)
                again = True

    async def _once(self, agent: EmbeddedAgent, again: bool, *, kind: str, title: str) -> dict[str, Any]:
        """What the agent is told in the end. Where its call died it looks, as agents do, at what it left behind: that
        may be answered by now, wait still, or never have been put on record."""
        request_id = None
        if again:
            left = await agent.reboot()
            for late in left.late_verdicts:
                if late.title == title:
                    self.counts["verdicts told late"] += 1
                    return late.answer
            request_id = next((one.request_id for one in left.answer.pending_requests if one.title == title), None)
        answered: Answered[Any]
        match kind:
            case "clearance":
                # Finds what it asked before by what it says.
                answered = await agent.check_clearance(title, f"{title}\n", "file.txt")
            case "prompt":
                answered = await agent.transmit(title, request_id=request_id)
            case _:
                answered = await agent.standby(title, request_id=request_id)
        return to_json(answered.answer)

    async def _apply(self, agent: EmbeddedAgent, again: bool, *, request_id: str) -> None:
        try:
            await agent.check_diff(request_id)
        except AlreadyConsumed:
            # It was written by the call before, whose answer was lost.
            if not again:
                self.faults.append(f"{request_id} was written before its agent asked for it")

    # --- the people --------------------------------------------------------------------------------------------------

    async def _people(self, world: trio.Nursery) -> None:
        """Answer each message that has buttons; look again now and then, should the first try have come to nothing."""
        while True:
            for message in self._open():
                if message["ts"] not in self._tapped:
                    self._tapped.add(message["ts"])
                    world.start_soon(self._person, message["ts"])
            await trio.sleep(2)

    async def _person(self, ts: str) -> None:
        try:
            await trio.sleep(self.dice.uniform(0, 5))
            await self._try_to_answer(ts)
        finally:
            self._tapped.discard(ts)

    async def _try_to_answer(self, ts: str) -> None:
        message = self.slack.message(ts)
        offered = [each for each in buttons(message) if each in BY_ACTION and BY_ACTION[each].dialog is None]
        wanted = [each for each in offered if BY_ACTION[each].kind in ASKED]
        if not wanted:
            return
        card_id = value_of(message)
        acts = [(self.dice.choice((ALICE, BOB)), self.dice.choice(wanted))]
        if self.dice.random() < 0.1:
            acts.append((self.dice.choice((ALICE, BOB)), self.dice.choice(wanted)))
        async with trio.open_nursery() as at_once:
            for user, action in acts:
                at_once.start_soon(self._act, card_id, message, user, action)

    async def _act(self, card_id: str, message: dict[str, Any], user: str, action: str) -> None:
        self.counts["taps"] += 1
        self.wishes.setdefault(card_id, []).append(BY_ACTION[action].decision.value)
        try:
            await self.slack.tap(user, message, action).answer()
        except (Unanswered, CannotDo) as failed:
            self.counts[f"taps: {type(failed).__name__}"] += 1
            return
        form = BY_ACTION[action].form
        if form is None:
            self.acked.append(card_id)
            return
        with trio.move_on_after(5):
            view = await self.slack.wait_for(lambda: self._view(user, card_id, form.name))
            try:
                envelope = self.slack.submit(user, view, {"text": f"words for {card_id}"})
                await envelope.answer()
            except (Unanswered, CannotDo) as failed:
                self.counts[f"forms: {type(failed).__name__}"] += 1
                return
            self.counts["forms sent"] += 1
            self.acked.append(card_id)
            return
        self.counts["forms that did not open"] += 1

    def _view(self, user: str, card_id: str, form: str) -> dict[str, Any] | None:
        fits = [
            view
            for view in self.slack.views(user)
            if view["callback_id"] == f"intercom_{form}" and card_id in view["private_metadata"]
        ]
        return fits[-1] if fits else None

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Wait until nothing is on its way any more."""
        while True:
            await trio.sleep(10)
            await self._up.wait()
            assert self.app is not None
            try:
                waiting = await self.app.reader.read(outbox.counts)
            except IntercomError:
                continue
            if not waiting.updates and not sum(waiting.posts.values()) and not self._open():
                return

    async def _judge(self) -> None:
        """Compare what Slack shows with what the store knows; every fault is a sentence in `faults`."""
        assert self.app is not None
        found = await look(self.app.reader, self.slack)
        self.faults += found.faults
        for card in found.cards:
            decided = card.decided.decision if card.decided else None
            if is_by_words(card):
                self.counts["standbys ended by a decision"] += 1
            elif decided not in self.wishes.get(card.id, []):
                self.faults.append(f"{card.id} was decided {decided}, and people wanted {self.wishes.get(card.id)}")
        decided_ids = {card.id for card in found.cards if card.decided is not None}
        self.faults += [f"a verdict on {id} was acknowledged and is lost" for id in self.acked if id not in decided_ids]
        self.faults += [
            f"the agent of {title} was told {told}, and on record is {found.answers.get(title)}"
            for title, told in self.answers.items()
            if [told] != found.answers.get(title)
        ]
        self.counts["cards"] = len(found.cards)
        self.counts["verdicts acknowledged"] = len(self.acked)
        self.counts["messages"] = len(self.slack.messages())
        self.counts["calls of the Web API"] = len(self.slack.calls)

    def _open(self) -> list[dict[str, Any]]:
        # As they are kept: to copy them all each time would be most of the test's work.
        return [message for message in self.slack.team.channels[CHANNEL].messages.values() if buttons(message)]


def value_of(message: dict[str, Any]) -> str:
    """The card a message's buttons are about."""
    values = [
        element["value"] for block in message["blocks"] if block["type"] == "actions" for element in block["elements"]
    ]
    return str(values[0])
