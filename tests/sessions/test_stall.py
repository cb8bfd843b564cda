"""When silence is a stall: the rules by table, and a machine that compares them with a model told in plain words."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from intercom.sessions.messages import Activity, Escalated, NudgeDue, PersonNudged, Recovered, Stalled, Watch
from intercom.sessions.session import stall
from intercom.sessions.session.stall import Effect, Event, Phase, Rules, StallState, Ticked

RULES = Rules(threshold=300, interval=120, retries=3)
AWAKE, ASLEEP, NO_ROAD = Watch(False, True), Watch(True, True), Watch(False, False)

# What happens, with the second it happens in -> what is done, with its second
LIVES: dict[str, tuple[list[tuple[float, Event]], list[tuple[float, Effect]]]] = {
    "silence below the threshold is none": ([(0, AWAKE), (299, Ticked())], []),
    "silence at the threshold is a stall": ([(0, AWAKE), (300, Ticked())], [(300, Stalled(300))]),
    "nothing is due before it is told how things stand": ([(1000, Ticked())], []),
    "activity starts the clock anew": (
        [(0, AWAKE), (200, Activity()), (300, Ticked()), (499, Ticked()), (500, Ticked())],
        [(500, Stalled(300))],
    ),
    "nudges come at their interval, then it escalates once": (
        [(0, AWAKE), (300, Ticked()), (419, Ticked()), *((t, Ticked()) for t in (420, 540, 660, 780, 900, 1020))],
        [
            (300, Stalled(300)),
            (420, NudgeDue(1)),
            (540, NudgeDue(2)),
            (660, NudgeDue(3)),
            (780, Escalated(3, delivered=True)),
        ],
    ),
    "activity ends it at any point": (
        [(0, AWAKE), (300, Ticked()), (420, Ticked()), (430, Activity()), (500, Ticked()), (730, Ticked())],
        [(300, Stalled(300)), (420, NudgeDue(1)), (430, Recovered()), (730, Stalled(300))],
    ),
    "it rests while the agent waits for a person": (
        [(0, AWAKE), (100, ASLEEP), (5000, Ticked()), (5001, AWAKE), (5300, Ticked()), (5301, Ticked())],
        [(5301, Stalled(300))],
    ),
    "being told twice that it is awake starts no clock anew": (
        [(0, AWAKE), (200, AWAKE), (300, Ticked())],
        [(300, Stalled(300))],
    ),
    "a person's nudge gives it time, and the automatic ones begin again": (
        [
            (0, AWAKE),
            *((t, Ticked()) for t in (300, 420, 540)),
            (550, PersonNudged()),
            *((t, Ticked()) for t in (660, 849, 850, 970, 1090, 1210)),
        ],
        [
            (300, Stalled(300)),
            (420, NudgeDue(1)),
            (540, NudgeDue(2)),
            (850, NudgeDue(1)),
            (970, NudgeDue(2)),
            (1090, NudgeDue(3)),
            (1210, Escalated(3, delivered=True)),
        ],
    ),
    "a person's nudge after the escalation does so too": (
        [(0, AWAKE), *((t, Ticked()) for t in (300, 420, 540, 660, 780)), (800, PersonNudged()), (1100, Ticked())],
        [
            (300, Stalled(300)),
            (420, NudgeDue(1)),
            (540, NudgeDue(2)),
            (660, NudgeDue(3)),
            (780, Escalated(3, delivered=True)),
            (1100, NudgeDue(1)),
        ],
    ),
    "a person's words before a stall put it off": (
        [(0, AWAKE), (200, PersonNudged()), (300, Ticked()), (500, Ticked())],
        [(500, Stalled(300))],
    ),
    "a person's words to an agent that nothing reaches wait": (
        [(0, NO_ROAD), (300, Ticked()), (310, PersonNudged()), (1000, Ticked())],
        [(300, Stalled(300)), (300, Escalated(0, delivered=False))],
    ),
    "if the agent cannot be reached, a person is told at once": (
        [(0, NO_ROAD), (300, Ticked()), (1000, Ticked())],
        [(300, Stalled(300)), (300, Escalated(0, delivered=False))],
    ),
    "an agent that cannot be reached any more ends the nudging": (
        [(0, AWAKE), (300, Ticked()), (420, Ticked()), (430, NO_ROAD), (540, Ticked())],
        [(300, Stalled(300)), (420, NudgeDue(1)), (540, Escalated(1, delivered=False))],
    ),
}


@pytest.mark.parametrize("life", LIVES)
def test_a_life(life: str) -> None:
    events, expected = LIVES[life]
    state, done = stall.begin(0), []
    for now, event in events:
        state, effects = stall.step(state, event, now, RULES)
        done += [(now, effect) for effect in effects]
    assert done == expected


class Detector(RuleBasedStateMachine):
    """The model: an agent is quiet since `since`, and so it is clear what must have been said by now."""

    @initialize(
        threshold=st.integers(1, 50), interval=st.integers(1, 50), retries=st.integers(0, 4), reachable=st.booleans()
    )
    def begin(self, threshold: int, interval: int, retries: int, reachable: bool) -> None:
        self.rules = Rules(threshold, interval, retries)
        self.now = 0
        self.state: StallState = stall.begin(0)
        self.since = 0
        self.awake = False
        self.reachable = reachable
        self.said: list[Effect] = []
        self.wake()

    def step(self, event: Event) -> tuple[Effect, ...]:
        self.state, effects = stall.step(self.state, event, self.now, self.rules)
        return effects

    def wake(self) -> None:
        effects = self.step(Watch(False, self.reachable))
        assert effects == ()
        if not self.awake:
            self.awake, self.since, self.said = True, self.now, []

    @rule(seconds=st.integers(1, 120))
    def time_passes_and_the_timer_fires_when_due(self, seconds: int) -> None:
        until = self.now + seconds
        while self.state.due is not None and self.state.due <= until:
            self.now = max(self.now, int(self.state.due))
            self.said += self.step(Ticked())
        self.now = until
        assert self.step(Ticked()) == (), "a tick with nothing due says nothing"

    @rule()
    def the_agent_acts(self) -> None:
        effects = self.step(Activity())
        assert effects == ((Recovered(),) if self.said else ())
        self.since, self.said = self.now, []

    @precondition(lambda self: self.awake)
    @rule()
    def it_waits_for_a_person(self) -> None:
        assert self.step(Watch(True, self.reachable)) == ()
        self.awake = False

    @rule()
    def it_is_at_work(self) -> None:
        self.wake()

    @invariant()
    def what_was_said_is_what_silence_of_this_length_says(self) -> None:
        if not self.awake:
            assert self.state.due is None
            return
        quiet = self.now - self.since
        rules = self.rules
        expected: list[Effect] = []
        if quiet >= rules.threshold:
            expected.append(Stalled(int(rules.threshold)))
            over = int((quiet - rules.threshold) // rules.interval)
            if not self.reachable:
                expected.append(Escalated(0, delivered=False))
            else:
                expected += [NudgeDue(n) for n in range(1, min(over, rules.retries) + 1)]
                if over > rules.retries:
                    expected.append(Escalated(rules.retries, delivered=True))
        assert self.said == expected
        escalated = any(isinstance(effect, Escalated) for effect in expected)
        assert (self.state.phase is Phase.ESCALATED) is escalated
        assert (self.state.phase is Phase.WATCHING) is (not expected)


TestDetector = Detector.TestCase
