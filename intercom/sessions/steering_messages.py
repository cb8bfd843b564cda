"""What operators ask of a session besides decisions: to pause and unpause it, and to send its agent messages."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.card import Card
from intercom.model.session import Session
from intercom.model.steering import Instruction, Kind
from intercom.model.verdict import SignedCommand


@frozen
class Pause(Request[Session]):
    """Pause the session: until `Unpause`, no call of the agent does anything and no decision is delivered. A paused
    session stays so. Refused with `invalid_state` for a session that has ended, or not begun."""

    by: str
    channel: str


@frozen
class Unpause(Request[Session]):
    """Unpause the session. `id` names the action: a repetition is answered like the first time. Refused with
    `invalid_state` if the session is not paused."""

    id: str
    by: str
    channel: str


@frozen
class Steer(Request[Card]):
    """Queue a message for the agent: its next result carries it, or it ends the agent's standby. `id` names the action,
    `signed` is the command that a person signed. Refused with `steer_queue_full` if too much waits, `invalid_state`
    once the session has ended, and `signature_required` if a required signature is missing."""

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
    """Cancel an instruction. Refused with `already_decided` if it has reached the agent, or may be on its way."""

    id: str
    by: str
    channel: str


@frozen
class Told:
    """These instructions reached the agent by a result of another session. They had moved to this session meanwhile."""

    words: tuple[Instruction, ...]
