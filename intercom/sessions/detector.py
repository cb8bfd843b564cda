"""The stall detector: an actor that runs the timer of one session and reports stalls."""

from __future__ import annotations

import trio

from actors import Actor, Name
from intercom.sessions import stall
from intercom.sessions.stall import Rules, StallState
from intercom.sessions.stall_messages import (
    Activity,
    DetectorStarted,
    Escalated,
    NudgeDue,
    Prodded,
    Recovered,
    Stalled,
    Watch,
)

_TICK = "tick"


class StallDetector(Actor):
    """Agent connections tell it of activity, its session of idle periods; it tells the session of stalls.

    After a restart it rests until the session has told it the agent's status, and then starts from now.
    """

    def __init__(self, session: Name, rules: Rules) -> None:
        super().__init__()
        self._session = session
        self._rules = rules
        self._state: StallState

    def on_start(self) -> None:
        self._state = stall.begin(trio.current_time())
        self._session.tell(DetectorStarted())

    def on_receive(self, message: object) -> None:
        event: stall.Event
        match message:
            case Activity():
                event = stall.Heard()
            case Prodded():
                event = stall.Prodded()
            case Watch(resting, road):
                event = stall.Set(resting, road)
            case _:
                event = stall.Ticked()
        now = trio.current_time()
        watching = self._state.phase is stall.Phase.WATCHING
        self._state, effects = stall.step(self._state, event, now, self._rules)
        for effect in effects:
            self._session.tell(_told(effect))
        # Activity only moves the deadline; the running timer finds that out when it fires. Setting a timer per call
        # would cost more than the call. But a nudge's timer may fire too late, and after an escalation no timer runs.
        if not (isinstance(event, stall.Heard) and watching):
            self._arm()

    def _arm(self) -> None:
        if self._state.due is not None:
            self.set_timer("due", max(0.0, self._state.due - trio.current_time()), _TICK)


def _told(effect: stall.Effect) -> object:
    match effect:
        case stall.RaiseStall(idle):
            return Stalled(idle)
        case stall.Nudge(count):
            return NudgeDue(count)
        case stall.Escalate(count, delivered):
            return Escalated(count, delivered)
        case stall.Recover():
            return Recovered()
