"""People in Slack who tap what they are shown: the stand-in for Slack, and their fingers, in a thread of their own."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from intercom.store import outbox
from intercom.store.store_and_reader import Reader
from tests.operators.slack.live.truth import Found, look
from tests.slack_standin import ALICE, BOB, CHANNEL, CannotDo, Standin, Unanswered, buttons, serve, text_of

#: The buttons that need no form, with the words their verdicts are stored as.
MEANING = {
    "approve_accept": "approve",
    "prompt_continue": "continue",
    "prompt_stop": "stop",
    "wait_resume": "resume",
    "wait_stop": "stop",
}
#: How many messages somebody looks back through.
NEWEST = 300
#: Seconds in which what has been recorded has to be shown.
SHOWN_SECONDS = 60.0


@define
class Tap:
    """One tap: the card, the id of the verdict it makes, its word, when Slack was told that this is on record (None
    where it was not), and when it was made."""

    card_id: str
    verdict_id: str
    word: str
    acknowledged: float | None = None
    made: float | None = None


@define
class SlackPeople:
    """`share` of the cards that wait are tapped at each look. A server is told where Slack is by `environment`."""

    seed: str
    share: float = 0.5
    taps: list[Tap] = field(factory=list)
    environment: dict[str, str] = field(factory=dict)
    calls: int = 0
    _slack: Standin = field(init=False)
    _token: trio.lowlevel.TrioToken = field(init=False)
    _thread: threading.Thread = field(init=False)
    _ready: threading.Event = field(factory=threading.Event)
    _over: trio.Event = field(factory=trio.Event)

    def start(self) -> None:
        """Open the stand-in; what servers need to know of it stands in `environment` when this returns."""
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="slack")
        self._thread.start()
        if not self._ready.wait(30):
            raise TimeoutError("the stand-in for Slack did not start within 30 s")

    def stop(self) -> None:
        """Close it, whether it is open or not."""
        if self._ready.is_set():
            try:
                self._token.run_sync_soon(self._over.set)
            except trio.RunFinishedError:
                pass
            self._thread.join(30)

    def compare(self, database: Path) -> Found:
        """What Slack shows against what the store knows, once nothing is on its way any more. A server must be up."""
        return trio.from_thread.run(self._compare, database, trio_token=self._token)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with serve(redeliver=(0, 0.5, 2, 5)) as slack, trio.open_nursery() as nursery:
            self._slack = slack
            self.environment = {
                "INTERCOM_SLACK_API": slack.api_url,
                "SLACK_APP_TOKEN": slack.app_token,
                "SLACK_BOT_TOKEN": slack.bot_token,
                "SLACK_MEMBER_IDS": f"{ALICE},{BOB}",
                # No keychain of the machine's own is asked.
                "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            }
            nursery.start_soon(self._people, nursery)
            self._ready.set()
            await self._over.wait()
            nursery.cancel_scope.cancel()

    async def _people(self, nursery: trio.Nursery) -> None:
        dice = random.Random(f"{self.seed}/slack")
        while True:
            await trio.sleep(dice.uniform(0.05, 0.3))
            # As they are kept, and the newest: to copy or read all of them each time would be most of the work.
            newest = islice(reversed(self._slack.team.channels[CHANNEL].messages.values()), NEWEST)
            for message in list(newest):
                wanted = [each for each in buttons(message) if each in MEANING]
                if wanted and "brief" not in text_of(message) and dice.random() < self.share:
                    nursery.start_soon(self._tap, message, dice.choice((ALICE, BOB)), dice.choice(wanted))

    async def _tap(self, message: dict[str, Any], user: str, action: str) -> None:
        try:
            envelope = self._slack.tap(user, message, action)
        except CannotDo:
            return
        (pressed,) = envelope.payload["actions"]
        tap = Tap(pressed["value"], f"slack/{user}/{pressed['action_ts']}", MEANING[action], made=time.time())
        self.taps.append(tap)
        try:
            await envelope.answer()
        except Unanswered:
            return
        tap.acknowledged = time.time()

    async def _compare(self, database: Path) -> Found:
        reader = Reader(database)
        try:
            await self._settled(reader)
            self.calls = len(self._slack.calls)
            return await look(reader, self._slack, decided_here=False)
        finally:
            reader.close()

    async def _settled(self, reader: Reader) -> None:
        quiet = 0
        with trio.move_on_after(SHOWN_SECONDS):
            while quiet < 3:
                waiting = await reader.read(partial(outbox.counts))
                busy = waiting.updates or sum(waiting.posts.values()) or self._slack.socket_mode.pending
                quiet = 0 if busy else quiet + 1
                await trio.sleep(0.3)
