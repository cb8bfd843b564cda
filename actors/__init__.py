"""Supervised actors: OTP supervision for Pykka, on Trio."""

from actors._actor import Actor
from actors._ask import ask, tell
from actors._ref import Name, Ref
from actors._reply import Reply
from actors._supervisor import DynamicSupervisor, Supervisor
from actors._system import Info, StopReport, System
from actors._thread import BatchItem, ThreadActor
from actors.errors import (
    AlreadyStarted,
    Busy,
    Down,
    GaveUp,
    NameTaken,
    NotRunning,
    Refused,
    StartFailed,
    SystemFailed,
    TooManyChildren,
    UnknownChild,
)
from actors.events import (
    ActorCrashed,
    ActorRestarted,
    ActorStarted,
    ActorStopped,
    DeadLettered,
    Event,
    MailboxOverflowed,
    RestartDelayed,
    StepTooLong,
    StopOverran,
    SupervisorGaveUp,
)
from actors.messages import DownEvent, Request, StartChild, StopChild
from actors.spec import Backoff, ChildSpec, Restart, Strategy

__all__ = [
    "Actor",
    "ActorCrashed",
    "ActorRestarted",
    "ActorStarted",
    "ActorStopped",
    "AlreadyStarted",
    "Backoff",
    "BatchItem",
    "Busy",
    "ChildSpec",
    "DeadLettered",
    "Down",
    "DownEvent",
    "DynamicSupervisor",
    "Event",
    "GaveUp",
    "Info",
    "MailboxOverflowed",
    "Name",
    "NameTaken",
    "NotRunning",
    "Ref",
    "Refused",
    "Reply",
    "Request",
    "Restart",
    "RestartDelayed",
    "StartChild",
    "StartFailed",
    "StepTooLong",
    "StopChild",
    "StopOverran",
    "StopReport",
    "Strategy",
    "Supervisor",
    "SupervisorGaveUp",
    "System",
    "SystemFailed",
    "ThreadActor",
    "TooManyChildren",
    "UnknownChild",
    "ask",
    "tell",
]
