"""What is called a leak, and what is not."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.soak.sample import Sample
from tests.soak.verdict import AGENT, AGENT_KINDS, WATCH, WATCH_KINDS, Kept, Line, Verdict, idled, stayed, verdict

IDLE = Sample(at=0, rss=10**8, pss=10**8, actors=10, tasks=30, threads=5, descriptors=20, children=0)


def test_growth_is_a_share_of_the_beginning() -> None:
    assert Line.through([0, 10, 20], [100, 101, 102]).growth == pytest.approx(0.02)
    assert Line.through([0, 10, 20], [100, 130, 100]).growth == pytest.approx(0)
    assert Line.through([0, 1], [0, 0]).growth == 0


def judged(last: Sample, after: Sample = IDLE) -> Verdict:
    """The verdict on a load under which everything goes straight from an idle server to `last`."""
    names = ("rss", "pss", "actors", "tasks", "threads", "descriptors", "children")
    samples = []
    for step in range(11):
        between = {
            name: getattr(IDLE, name) + (getattr(last, name) - getattr(IDLE, name)) * max(0, step - 5) / 5
            for name in names
        }
        samples.append(evolve(IDLE, at=step * 10.0, **between))
    return verdict(IDLE, samples, after, warm=50, kept=Kept(watches=1))


def test_a_server_that_stays_as_it_is_has_no_fault() -> None:
    assert judged(IDLE).faults == ()
    assert judged(evolve(IDLE, rss=int(1.015e8), pss=int(0.9e8))).faults == ()


def test_memory_that_grows_by_more_than_two_percent_is_a_fault() -> None:
    (fault,) = judged(evolve(IDLE, rss=int(1.03e8))).faults
    assert fault == "rss grew by 3.00 % at constant load, and may by 2 %"


def test_growth_before_it_is_warm_does_not_count() -> None:
    samples = [evolve(IDLE, at=float(at), rss=IDLE.rss + max(0, 50 - at) * 10**6) for at in range(0, 110, 10)]
    assert verdict(IDLE, samples, IDLE, warm=50, kept=Kept(watches=1)).faults == ()


def test_counts_that_rise_at_constant_load_are_a_fault() -> None:
    (fault,) = judged(evolve(IDLE, tasks=60)).faults
    assert fault == "tasks rose by 30.0 at constant load, from 30.0"


def test_what_stays_when_all_have_left_is_a_fault() -> None:
    watching = evolve(IDLE, actors=11, tasks=35, threads=13, descriptors=37)
    assert judged(IDLE, watching).faults == (), "a watch of the workspace's policy stays"
    for name in ("actors", "tasks", "threads", "descriptors"):
        (fault,) = judged(IDLE, evolve(watching, **{name: getattr(watching, name) + 1})).faults
        assert fault.startswith(f"{name} leaked")
    (actors,) = judged(IDLE, evolve(IDLE, actors=12)).faults
    assert actors == "actors leaked: 10 before anybody came and 12 when all had left"
    (child,) = judged(IDLE, evolve(IDLE, children=1)).faults
    assert child.startswith("children leaked")


def test_a_guest_may_stay_with_a_session_and_neither_threads_nor_descriptors() -> None:
    may, none = Kept(agents=2), Kept()
    for name, count in (("actors", 6), ("threads", 0), ("descriptors", 0)):
        assert may.of(name) == count
        assert none.of(name) == 0


def test_what_stays_is_judged_by_what_it_is() -> None:
    before, kept = {"Writer": 1, "Supervisor": 4}, Kept(watches=2, agents=1)
    after = {"Writer": 1, "Supervisor": 5, "PolicyWatcher": 2, "SessionActor": 1, "StallDetector": 1}
    assert stayed(before, after, kept) == []
    # As many in all, and one that should have gone.
    (fault,) = stayed(before, {**after, "PolicyWatcher": 1, "SessionActor": 2}, kept)
    assert fault == "SessionActor leaked: 0 before anybody came and 2 when all had left; 1 may stay"
    (link,) = stayed(before, {**after, "Link": 1}, kept)
    assert link.startswith("Link leaked")


def test_the_actors_that_may_stay_are_counted_alike_by_number_and_by_class() -> None:
    assert sum(WATCH_KINDS.values()) == WATCH["actors"]
    assert sum(AGENT_KINDS.values()) == AGENT["actors"]


def test_a_load_that_is_none_says_nothing() -> None:
    counts = {"verdicts delivered": 1000, "agents started by people": 30, "verdicts by taps in Slack": 100}
    assert idled(counts, 5) == []
    del counts["agents started by people"]
    (fault,) = idled(counts, 5)
    assert fault == "there was next to no load: 0 agents started by people in 5 min, and less than 2 a minute"
