"""The table of crash points and the table of actors that crash are complete."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import actors
import intercom
from tests.chaos.plans import ACTORS, SERVICE_ACTORS, every_fault, every_service_fault
from tests.support.crash_points import (
    CHECKPOINT_NAMES,
    HOOK_NAMES,
    NAMES,
    POLICY_NAMES,
    SLACK_NAMES,
    SPAWN_NAMES,
    TAKE_BACK_NAMES,
)

SOURCE = Path(intercom.__file__).parent


def test_every_crash_point_in_the_source_is_in_the_table_and_the_other_way_round() -> None:
    reached = set()
    for file in SOURCE.rglob("*.py"):
        reached |= set(re.findall(r"\breach\(\s*\"([a-z_.]+)\"", file.read_text()))
    tables = (NAMES, SLACK_NAMES, SPAWN_NAMES, CHECKPOINT_NAMES, HOOK_NAMES, POLICY_NAMES, TAKE_BACK_NAMES)
    assert reached == {name for table in tables for name in table}


def test_every_class_of_actor_crashes_in_the_runs() -> None:
    for module in pkgutil.walk_packages(intercom.__path__, "intercom."):
        if "__main__" not in module.name:
            importlib.import_module(module.name)
    ours = {cls.__name__ for cls in _below(actors.Actor) if cls.__module__.startswith("intercom.")}
    assert ours - BASES - EMBEDDED - OF_ROOMS - OF_GATEWAY == {
        name for name in (*ACTORS, *SERVICE_ACTORS) if name[0].isupper()
    }


def test_a_run_meets_every_crash_point_and_every_actor() -> None:
    faults = every_fault("1")
    assert {fault.split(":")[1] for fault in faults} == {*NAMES, *ACTORS}
    faults = every_service_fault("1")
    assert {fault.split(":")[1] for fault in faults} == {*SLACK_NAMES, *SPAWN_NAMES, *SERVICE_ACTORS}


#: Classes of which there are only subclasses.
BASES = {"ChannelActor"}
#: Actors of a program that embeds Intercom: there is none in a server.
EMBEDDED = {"_Feed"}
#: Actors of the gateway, which the runs do not have. `tests.gateway` crashes them.
OF_GATEWAY = {"DownstreamActor", "GatewayActor", "InvocationRecorder"}
#: Actors of rooms, which die with their nodes in the runs of `test_rooms`.
OF_ROOMS = {"RoomActor", "RoomDirectory", "ConcluderActor", "Database", "Listener", "Notifier"}


def _below(cls: type) -> set[type]:
    found = set(cls.__subclasses__())
    return found.union(*(_below(each) for each in found)) if found else found
