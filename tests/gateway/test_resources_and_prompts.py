"""Resources and prompts of several downstreams: what agents see, and whose each is."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.gateway.messages import Offer
from intercom.gateway.resources_and_prompts import (
    Place,
    find_prompt,
    find_resource,
    find_template,
    prompts,
    resources,
    templates,
)


def of(*addresses: str, templates: tuple[str, ...] = (), prompts: tuple[str, ...] = ()) -> Offer:
    return Offer(
        resources=tuple({"uri": each, "name": each} for each in addresses),
        templates=tuple({"uriTemplate": each, "name": each} for each in templates),
        prompts=tuple({"name": each} for each in prompts),
    )


OFFERS = {
    "a": of("file:///x", "demo://one", templates=("demo://item/{id}", "demo://tree/{+path}")),
    "b": of("file:///x", "other://two", templates=("other://search{?q}",), prompts=("review", "sum up")),
    "c": of(prompts=("review",)),
}


def all_of(_name: str) -> bool:
    return True


def without(*names: str) -> Any:
    return lambda name: name not in names


def test_an_address_that_two_have_is_qualified_for_both() -> None:
    assert [each["uri"] for each in resources(OFFERS, all_of)] == [
        "gateway+a:file:///x",
        "gateway+b:file:///x",
        "demo://one",
        "other://two",
    ]
    assert [each["uri"] for each in resources(OFFERS, without("a"))] == ["file:///x", "other://two"]
    assert len(templates(OFFERS, all_of)) == 3


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("file:///x", None),
        ("gateway+a:file:///x", Place("a", "file:///x")),
        ("gateway+b:file:///x", Place("b", "file:///x")),
        ("demo://item/7", Place("a", "demo://item/7")),
        ("demo://tree/a/b/c", Place("a", "demo://tree/a/b/c")),
        ("other://search?q=x", Place("b", "other://search?q=x")),
        ("other://search", Place("b", "other://search")),
        # Only one downstream has addresses of this scheme.
        ("other://anything", Place("b", "other://anything")),
        ("gateway+nobody:file:///x", None),
        ("unknown://x", None),
        ("demo://item/7/8", Place("a", "demo://item/7/8")),
        ("", None),
    ],
)
def test_an_address_finds_its_downstream(address: str, place: Place | None) -> None:
    assert find_resource(OFFERS, address, all_of) == place


def test_a_hostile_template_takes_no_time_and_no_foreign_addresses() -> None:
    """With a regular expression, thirty `.+` in a row would take years."""
    hostile = {**OFFERS, "h": of(templates=("x://" + "{+a}" * 19 + "!", "x://" + "{a}a" * 19, "{+x}", "{+x}:{+y}"))}
    assert find_resource(hostile, "x://" + "a" * 1990, all_of) == Place("h", "x://" + "a" * 1990)
    assert find_resource(hostile, "other://two", all_of) == Place("b", "other://two")
    assert find_resource(hostile, "https://anything", all_of) is None


def test_what_an_agent_does_not_see_it_does_not_find() -> None:
    assert find_resource(OFFERS, "gateway+a:file:///x", without("a")) is None
    assert find_resource(OFFERS, "file:///x", without("a")) == Place("b", "file:///x")
    assert find_resource(OFFERS, "demo://one", without("a")) is None
    assert find_template(OFFERS, "demo://item/{id}", without("a")) is None
    assert find_template(OFFERS, "demo://item/{id}", all_of) == Place("a", "demo://item/{id}")


def test_prompts_have_names_of_their_own() -> None:
    shown = [str(each["name"]) for each in prompts(OFFERS, all_of)]
    assert shown[0] == "b__review"
    assert shown[2] == "c__review"
    # A space is in no name of a client.
    assert shown[1].startswith("b__sum_up_")
    assert [find_prompt(OFFERS, name) for name in shown] == [
        Place("b", "review"),
        Place("b", "sum up"),
        Place("c", "review"),
    ]
    assert find_prompt(OFFERS, "a__review") is None


def test_prompts_of_downstreams_without_a_prefix_keep_their_names() -> None:
    plain = ("b", "c")
    # The second downstream with the same name, and a name that clients do not accept, get one with a prefix.
    assert [each["name"] for each in prompts(OFFERS, all_of, plain)][::2] == ["review", "c__review"]
    assert find_prompt(OFFERS, "review", plain) == Place("b", "review")
    assert find_prompt(OFFERS, "c__review", plain) == Place("c", "review")
    # Who does not see the first one does not get the second one under its name.
    assert [each["name"] for each in prompts(OFFERS, without("b"), plain)] == ["c__review"]
    # A name of our own prompts is no downstream's.
    assert [each["name"] for each in prompts(OFFERS, all_of, plain, {"review"})][::2] == ["b__review", "c__review"]
    assert find_prompt(OFFERS, "review", plain, {"review"}) is None
    for name in ("review", "c__review"):
        shown = [each for each in prompts(OFFERS, all_of, plain) if each["name"] == name]
        assert len(shown) == 1
