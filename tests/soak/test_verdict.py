"""What is called a leak, and what is not."""

from __future__ import annotations

from attrs import evolve

from tests.soak.sample import Sample
from tests.soak.verdict import Verdict, verdict

IDLE = Sample(at=0, rss=10**8, pss=10**8, actors=10, tasks=30, threads=5, descriptors=20, children=0)


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
    return verdict(IDLE, samples, after, warm=50, kept=1)


def test_a_server_that_stays_as_it_is_has_no_fault() -> None:
    assert judged(IDLE).faults == ()
    assert judged(evolve(IDLE, rss=int(1.015e8), pss=int(0.9e8))).faults == ()


def test_memory_that_grows_by_more_than_two_percent_is_a_fault() -> None:
    (fault,) = judged(evolve(IDLE, rss=int(1.03e8))).faults
    assert fault == "rss grew by 3.00 % at constant load, and may by 2 %"


def test_growth_before_it_is_warm_does_not_count() -> None:
    samples = [evolve(IDLE, at=float(at), rss=IDLE.rss + max(0, 50 - at) * 10**6) for at in range(0, 110, 10)]
    assert verdict(IDLE, samples, IDLE, warm=50, kept=1).faults == ()


def test_counts_that_rise_at_constant_load_are_a_fault() -> None:
    (fault,) = judged(evolve(IDLE, tasks=60)).faults
    assert fault == "tasks rose by 30.0 at constant load, from 30.0"


def test_what_stays_when_all_have_left_is_a_fault() -> None:
    assert judged(IDLE, evolve(IDLE, actors=13)).faults == (), "a watch of the workspace's policy stays"
    (actors,) = judged(IDLE, evolve(IDLE, actors=14)).faults
    assert actors == "actors leaked: 10 before anybody came and 14 when all had left"
    (child,) = judged(IDLE, evolve(IDLE, children=1)).faults
    assert child.startswith("children leaked")
