"""Who hears of which resource, and what downstreams are asked for."""

from __future__ import annotations

from functools import partial

from intercom.gateway.resource_watchers import LONGEST_ADDRESS, MOST_WATCHED, ResourceWatchers
from intercom.gateway.resources_and_prompts import Place


def test_a_downstream_is_asked_for_what_anybody_watches() -> None:
    asked: list[tuple[str, list[str]]] = []
    watchers = ResourceWatchers(lambda name, addresses: asked.append((name, sorted(addresses))))
    for agent in ("kim", "lee"):
        assert watchers.watch(agent, {Place("a", "x"): lambda: None})
    watchers.watch("kim", {Place("b", "x"): lambda: None})
    assert asked[-2:] == [("a", ["x"]), ("b", ["x"])]
    watchers.unwatch("kim", Place("a", "x"))
    assert asked[-1] == ("a", ["x"])
    watchers.leave("lee")
    assert asked[-1] == ("a", [])
    watchers.leave("kim")
    assert asked[-1] == ("b", [])
    count = len(asked)
    watchers.leave("nobody")
    assert len(asked) == count


def test_only_those_hear_of_a_change_who_watch_it() -> None:
    heard: list[str] = []
    watchers = ResourceWatchers(lambda _name, _addresses: None)
    watchers.watch("kim", {Place("a", "x"): partial(heard.append, "kim")})
    watchers.watch("lee", {Place("a", "x"): partial(heard.append, "lee")})
    watchers.watch("lou", {Place("b", "x"): partial(heard.append, "lou")})
    watchers.changed("a", ["x", "y"])
    assert heard == ["kim", "lee"]
    watchers.leave("kim")
    watchers.changed("a", ["x"])
    assert heard == ["kim", "lee", "lee"]


def test_one_agent_cannot_watch_too_many_or_too_long_addresses() -> None:
    watchers = ResourceWatchers(lambda _name, _addresses: None)
    places = [Place("a", str(number)) for number in range(MOST_WATCHED + 1)]
    assert watchers.watch("kim", dict.fromkeys(places, lambda: None)) == {*places[:-1]}
    assert watchers.watch("kim", {places[0]: lambda: None}) == {places[0]}
    assert watchers.watch("lee", {places[-1]: lambda: None}) == {places[-1]}
    assert not watchers.watch("lee", {Place("a", "x" * (LONGEST_ADDRESS + 1)): lambda: None})
