"""Tools have names that clients accept, that never collide and stay the same, and roles see what they may call."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.catalog import Catalog, catalog_of, exposed_name, named_tool
from intercom.gateway.roles import Effect, decide, parse
from intercom.model.json_types import Json

ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.mark.parametrize(
    ("downstream", "tool", "expected"),
    [
        ("github", "list_commits", "github__list_commits"),
        ("my-github", "get-file", "my-github__get-file"),
        ("a", "_b", "a___b"),
        ("a", "b__c", "a__b__c"),
        ("g" * 20, "t" * 42, "g" * 20 + "__" + "t" * 42),
        # Too long.
        ("github", "x" * 57, "github__" + "x" * 43 + "_HASH"),
        ("g" * 60, "list_commits", "g" * 20 + "__list_commits_HASH"),
        # Other characters.
        ("browser", "page.click", "browser__page_click_HASH"),
        ("browser", "öffnen", "browser___ffnen_HASH"),
        # Another reading.
        ("a_", "b", "a___b_HASH"),
        ("a__b", "c", "a__b__c_HASH"),
        # Like one with a hash.
        ("a", "b_0123456789ab", "a__b_0123456789ab_HASH"),
        ("a", "", "a___HASH"),
    ],
)
def test_names_are_plain_where_they_can_be(downstream: str, tool: str, expected: str) -> None:
    name = exposed_name(downstream, tool)
    assert re.sub(r"_[0-9a-f]{12}$", "_HASH", name) == expected
    assert ALLOWED.fullmatch(name)


def test_names_stay_the_same_between_versions() -> None:
    assert exposed_name("browser", "page.click") == "browser__page_click_37210a7b30cd"


PARTS = st.text(alphabet="ab_.-A0é", max_size=6) | st.text(alphabet="a_0", min_size=10, max_size=70)
PAIRS = st.tuples(PARTS, PARTS)


@given(st.lists(PAIRS, unique=True, max_size=30))
def test_names_never_collide(pairs: list[tuple[str, str]]) -> None:
    names = [exposed_name(*pair) for pair in pairs]
    assert len(set(names)) == len(names)
    assert all(map(ALLOWED.fullmatch, names))


@given(PAIRS)
def test_no_tool_can_be_named_like_another_ones_hash(pair: tuple[str, str]) -> None:
    name = exposed_name(*pair)
    downstream, _, tool = name.partition("__")
    assert (downstream, tool) == pair or exposed_name(downstream, tool) != name


# --- the catalog -----------------------------------------------------------------------------------------------------


def tool(name: str, **more: Json) -> dict[str, Json]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


OFFERS = {
    "github": [tool("list_commits"), tool("delete_repo"), tool("create_issue")],
    "fs": [tool("read", description="Reads."), tool("page.click")],
}


def names(catalog: Catalog) -> list[str]:
    return [entry.name for entry in catalog.entries]


def test_the_catalog_has_all_tools_in_a_stable_order() -> None:
    catalog = catalog_of(OFFERS)
    assert [(entry.downstream, entry.tool) for entry in catalog.entries] == [
        ("fs", "page.click"),
        ("fs", "read"),
        ("github", "create_issue"),
        ("github", "delete_repo"),
        ("github", "list_commits"),
    ]
    assert catalog_of({name: list(reversed(tools)) for name, tools in reversed(OFFERS.items())}) == catalog
    assert catalog.verbs == {"fs": ("page.click", "read"), "github": ("create_issue", "delete_repo", "list_commits")}


def test_every_name_leads_back_to_its_tool() -> None:
    catalog = catalog_of(OFFERS)
    for entry in catalog.entries:
        assert catalog.find(entry.name) is entry
    assert catalog.find("github__merge") is None
    assert catalog.find("list_commits") is None


def test_other_downstreams_make_no_difference_to_names() -> None:
    assert set(names(catalog_of({"fs": OFFERS["fs"]}))) <= set(names(catalog_of(OFFERS)))


def test_agents_get_pinned_fields_only() -> None:
    offered = tool("read", title="Read", description=None, icons=[], _meta={"x": 1}, annotations={"readOnlyHint": True})
    [entry] = catalog_of({"fs": [offered]}).entries
    assert entry.exposed == {
        "name": "fs__read",
        "title": "Read",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }


def test_tools_without_a_name_or_with_the_same_are_left_out() -> None:
    offered = [tool("a"), tool("a", description="Other."), tool("b"), tool("b"), {"title": "x"}, {"name": ""}]
    catalog = catalog_of({"fs": offered})
    assert names(catalog) == ["fs__b"]
    assert catalog.faults == ("fs offers different tools by the name a", "fs offers a tool without a name")


def test_a_role_sees_what_it_may_call() -> None:
    roles, _ = parse(
        {
            "roles": [
                {"role": "agent", "capabilities": ["github.*", "fs.read"], "ask": ["github.create_*"]},
                {"role": "nobody", "capabilities": []},
            ]
        }
    )
    assert roles is not None
    catalog = catalog_of(OFFERS)
    assert [(each.entry.name, each.asks) for each in catalog.visible_to(roles, "agent")] == [
        ("fs__read", False),
        ("github__create_issue", True),
        ("github__delete_repo", False),
        ("github__list_commits", False),
    ]
    assert catalog.visible_to(roles, "nobody") == catalog.visible_to(roles, "unknown") == ()


@given(st.lists(st.sampled_from(["*.*", "fs.*", "github.list_*", "*.read", "fs.page.click"])), st.booleans())
def test_what_is_visible_is_what_is_not_denied(capabilities: list[str], deny: bool) -> None:
    role: dict[str, object] = {"role": "agent", "capabilities": capabilities, "deny": ["*.delete_repo"] if deny else []}
    roles, _ = parse({"roles": [role]})
    assert roles is not None
    catalog = catalog_of(OFFERS)
    visible = {each.entry.name for each in catalog.visible_to(roles, "agent")}
    for entry in catalog.entries:
        effect = decide(roles, "agent", entry.downstream, entry.tool).effect
        assert (entry.name in visible) == (effect is not Effect.DENY)


@pytest.mark.parametrize(
    ("name", "tool", "found"),
    [
        ("everything__echo", None, ("everything", "echo")),
        ("everything.echo", None, ("everything", "echo")),
        ("everything", "echo", ("everything", "echo")),
        ("everything", "everything__echo", ("everything", "echo")),
        ("everything", "everything.echo", ("everything", "everything.echo")),
        ("everything", None, ("everything", None)),
        ("a__b__c", None, ("a__b", "c")),
        ("nothing.echo", None, ("nothing.echo", None)),
        (None, None, (None, None)),
    ],
)
def test_a_person_may_write_a_tool_as_agents_and_roles_do(
    name: str | None, tool: str | None, found: tuple[str | None, str | None]
) -> None:
    offered = {"everything": [{"name": "echo"}, {"name": "everything.echo"}]}
    assert named_tool(catalog_of(offered), ["everything", "a", "a__b"], name, tool) == found
