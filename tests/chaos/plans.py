"""The runs: what is done to the server in each."""

from __future__ import annotations

import random

from tests.chaos.rig import Plan
from tests.support.crash_points import NAMES, SLACK_NAMES, SPAWN_NAMES

#: Every class of actor, and the supervisors by name. `crash` lets one raise in the middle of its work; `fell` ends one
#: from outside, which is the only way for those who get no messages.
ACTORS: dict[str, str] = {
    "Writer": "crash",
    "CardRouter": "crash",
    "SessionRegistry": "crash",
    "Checkpoints": "fell",
    "Housekeeper": "fell",
    "AuditWatch": "fell",
    "ClockWatch": "fell",
    "DatabaseWatch": "fell",
    "PolicyWatcher": "crash",
    "SessionActor": "crash",
    "StallDetector": "crash",
    "CtlListener": "crash",
    "WebListener": "fell",
    "PushSender": "fell",
    "ShimListener": "fell",
    "ShimConnection": "fell",
    "session_supervisor": "fell",
    "sessions": "fell",
    "policies": "fell",
    "links": "fell",
    "server": "fell",
}


#: Those that only a server that is kept as a service has.
SERVICE_ACTORS: dict[str, str] = {
    "HttpListener": "fell",
    "Spawner": "fell",
    "AgentProcessActor": "fell",
    "OpenWeb": "fell",
    "Sender": "crash",
    "OutboxWriter": "crash",
    "CommandRunner": "fell",
    "EphemeralSender": "fell",
    "SlackConnection": "fell",
    "slack": "fell",
}

#: Seconds a call may take in a long run: it may meet many kills in a row, and each start takes its time when twenty
#: agents come back at once. The longest is among the counts.
LONG_PATIENCE = 240.0


def every_fault(seed: str) -> tuple[str, ...]:
    """Every crash point and every actor once, in an order of the seed's."""
    dice = random.Random(seed)
    kills = [f"kill:{point}:{dice.randint(1, 3)}" for point in NAMES]
    # A session registry that was just started again is busy at once; else it has little to do.
    falls = [
        f"{how}:{who}:{dice.randint(1, 2) if how == 'crash' else dice.randint(5, 40)}" for who, how in ACTORS.items()
    ]
    rare = dict.fromkeys(("session.opened", "session.adopted", "instruction.recorded", "session.paused"), 1)
    kills = [f"kill:{point}:{rare[point]}" if (point := kill.split(":")[1]) in rare else kill for kill in kills]
    mixed = [*kills, *falls]
    dice.shuffle(mixed)
    return tuple(mixed)


def every_service_fault(seed: str) -> tuple[str, ...]:
    """The same for what only a service has."""
    dice = random.Random(seed)
    faults = [f"kill:{point}:{dice.randint(1, 3)}" for point in SLACK_NAMES]
    # There are few of those that people start, and each takes its time.
    faults += [f"kill:{point}:1" for point in SPAWN_NAMES]
    faults += [
        f"{how}:{who}:{dice.randint(1, 2) if how == 'crash' else dice.randint(5, 40)}"
        for who, how in SERVICE_ACTORS.items()
    ]
    dice.shuffle(faults)
    return tuple(faults)


def short_run(seed: str) -> Plan:
    """For the suite: every crash point once, a few actors, a few random kills. The long run has every actor, and
    `test_fallen_actors.py` each by itself."""
    dice = random.Random(seed)
    some = {*dice.sample(sorted(ACTORS), 3), *NAMES}
    faults = tuple(each for each in every_fault(seed) if each.split(":")[1] in some)
    return Plan(seed, agents=5, processes=2, server_kills=2, shim_kills=2, faults=faults)


def long_run(seed: str) -> Plan:
    """Twenty agents, a hundred kills at random instants, shims likewise."""
    return Plan(
        seed,
        agents=20,
        processes=4,
        server_kills=100,
        shim_kills=100,
        faults=every_fault(seed),
        patience=LONG_PATIENCE,
    )


def short_service_run(seed: str) -> Plan:
    """For the suite: everything at once, behind a service manager; every crash point on the way to Slack, and a few of
    the places where starting an agent may be cut off (`tests/sessions/spawning` has them all) and of the actors."""
    dice = random.Random(seed)
    some = {*SLACK_NAMES, *dice.sample(sorted(SPAWN_NAMES), 1), *dice.sample(sorted(SERVICE_ACTORS), 3)}
    faults = tuple(each for each in every_service_fault(seed) if each.split(":")[1] in some)
    return Plan(seed, agents=5, processes=2, server_kills=2, shim_kills=1, faults=faults, service=True)


def long_service_run(seed: str) -> Plan:
    """The same, with a hundred kills at random instants."""
    faults = every_service_fault(seed)
    return Plan(
        seed,
        agents=20,
        processes=4,
        server_kills=100,
        shim_kills=50,
        faults=faults,
        service=True,
        patience=LONG_PATIENCE,
    )


def soak_run(seed: str) -> Plan:
    """Everything at a steady pace, and nothing falls (`tests/soak`)."""
    return Plan(seed, agents=12, processes=2, server_kills=0, shim_kills=0, service=True, pause=1.0)
