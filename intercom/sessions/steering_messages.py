"""What operators ask of a session besides verdicts: to pause it, to let it go on, to tell its agent something."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.card import Card
from intercom.model.session import Session
from intercom.model.steering import Instruction, Kind
from intercom.model.verdict import SignedCommand


@frozen
class Pause(Request[Session]):
    """Let no call of the agent do anything, and no verdict reach it, until `Unpause`; a session that is paused stays
    so. Refused (`invalid_state`) for a session that has ended, or not begun."""

    by: str
    channel: str


@frozen
class Unpause(Request[Session]):
    """Let a paused session go on. `id` names the act: the same again is answered as the first time. Refused
    (`invalid_state`) for a session that is not paused."""

    id: str
    by: str
    channel: str


@frozen
class Steer(Request[Card]):
    """Queue words for the agent: they ride on its next result, or end its standby. `id` names the act, `signed` is the
    command that a person signed. Refused (`steer_queue_full`) when too much waits already, (`invalid_state`) once the
    session has ended, and where there is an operator key (`signature_required`) for what is not signed."""

    id: str
    kind: Kind
    text: str
    by: str
    channel: str
    signed: SignedCommand | None = None


@frozen
class TasksLeft:
    """A person has left a task that the agent of this session may take; an agent that stands by takes it now."""

    by: str
    channel: str


@frozen
class TakeBack(Request[Card]):
    """Let words that have not reached the agent never do so. Refused (`already_decided`) when they have, or may be on
    their way."""

    id: str
    by: str
    channel: str


@frozen
class Told:
    """These words reached the agent by a result of another session: they were given to this one meanwhile."""

    words: tuple[Instruction, ...]
