"""Merging an entry into files that belong to someone else."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from intercom.cli.init_merge import Unmergeable, Wish, merge, present

ENTRY = {"command": "x", "args": ["-a"], "limit": 100}


def test_comments_and_layout_of_toml_stay() -> None:
    before = "# top\nmodel = 'x'   # which\n\n[mcp_servers.other]\ncommand = 'y'\n\n[tools]\nweb = true # yes\n"
    after = merge("toml", before, Wish("mcp_servers", "i", ENTRY))
    for line in before.splitlines():
        assert line in after
    assert tomllib.loads(after)["mcp_servers"] == {"other": {"command": "y"}, "i": ENTRY}
    assert tomllib.loads(after)["tools"] == {"web": True}


@pytest.mark.parametrize(
    "before",
    [
        "",
        "a = 1",
        "[mcp_servers]\n",
        "[mcp_servers.i]\ncommand = 'old'\n[mcp_servers.i.env]\nA = '1'\n",
        "mcp_servers = {}\n",
        "mcp_servers = { i = { command = 'old' } }\n",
        "[mcp_servers.a]\nx = 1\n[other]\ny = 1\n[mcp_servers.b]\nz = 1\n",
        "[[list]]\na = 1\n[[list]]\na = 2\n",
        "mcp_servers.a.x = 1\n[t]\n",
    ],
)
def test_toml_in_every_layout_is_merged_once(before: str) -> None:
    after = merge("toml", before, Wish("mcp_servers", "i", ENTRY))
    was = tomllib.loads(before)
    expected = {**was, "mcp_servers": {**was.get("mcp_servers", {})}}
    expected["mcp_servers"]["i"] = {**expected["mcp_servers"].get("i", {}), **ENTRY}
    assert tomllib.loads(after) == expected
    assert merge("toml", after, Wish("mcp_servers", "i", ENTRY)) == after


def test_json_keeps_its_order_its_indent_and_its_last_line() -> None:
    before = '{\n    "z": 1,\n    "servers": {\n        "b": {"é": "ü"}\n    },\n    "a": 2\n}'
    after = merge("json", before, Wish("servers", "i", ENTRY))
    assert list(json.loads(after)) == ["z", "servers", "a"]
    assert '\n    "z": 1' in after
    assert '"é": "ü"' in after
    assert not after.endswith("\n")
    assert merge("json", before + "\n", Wish("servers", "i", ENTRY)).endswith("}\n")
    assert merge("json", after, Wish("servers", "i", ENTRY)) == after


@pytest.mark.parametrize("format", ["json", "toml"])
def test_what_the_user_added_stays_and_a_raised_number_too(format: str) -> None:
    mine = {"command": "old", "limit": 500, "env": {"A": "1"}}
    before = json.dumps({"s": {"i": mine}}) if format == "json" else tomlkit.dumps({"s": {"i": mine}})
    after = merge(format, before, Wish("s", "i", ENTRY))
    read = json.loads if format == "json" else tomllib.loads
    assert read(after)["s"]["i"] == {"command": "x", "args": ["-a"], "limit": 500, "env": {"A": "1"}}


@pytest.mark.parametrize(
    ("format", "before", "why"),
    [
        ("json", "{ // c\n}", "is not plain JSON"),
        ("json", '{"a": 1,}', "trailing commas can not be kept"),
        ("json", "[]", "is not a JSON object"),
        ("json", '{"s": []}', "something other than a table at s"),
        ("json", '{"s": {"i": 1}}', "something other than a table at s.i"),
        ("json", '{"a": 1, "a": 2}', "stands twice"),
        ("json", "[" * 100_000, "is not plain JSON"),
        ("toml", "a = ", "is not TOML"),
        ("toml", "s = 1", "something other than a table at s"),
        ("toml", "[[s]]\n", "something other than a table at s"),
        ("toml", "[s]\ni = 'x'", "something other than a table at s.i"),
    ],
)
def test_a_file_that_would_be_harmed_is_refused(format: str, before: str, why: str) -> None:
    with pytest.raises(Unmergeable) as refused:
        merge(format, before, Wish("s", "i", ENTRY))
    assert why in str(refused.value)


names = st.text("abs-_. é", min_size=1, max_size=4)
values: Any = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.fixed_dictionaries(
    {}, optional={"s": st.dictionaries(names | st.just("i"), values, max_size=3)}
).flatmap(lambda fixed: st.dictionaries(names, values, max_size=3).map(lambda more: {**more, **fixed}))


@given(documents, st.sampled_from(["json", "toml"]))
def test_whatever_the_file_holds_everything_else_stays(document: dict[str, Any], format: str) -> None:
    before = json.dumps(document) if format == "json" else tomlkit.dumps(document)
    read = json.loads if format == "json" else tomllib.loads
    try:
        after = read(merge(format, before, Wish("s", "i", ENTRY)))
    except Unmergeable:
        return
    assert after["s"].pop("i").items() >= ENTRY.items()
    was = read(before)
    was.setdefault("s", {}).pop("i", None)
    assert after == was


@pytest.mark.parametrize("format", ["json", "toml"])
def test_what_the_entry_is_to_be_without_goes_and_all_else_stays(format: str) -> None:
    mine = {"command": "old", "args": [], "mine": 1, "note": {"a": 1}}
    before = json.dumps({"s": {"i": mine}, "t": 1}) if format == "json" else tomlkit.dumps({"t": 1, "s": {"i": mine}})
    read = json.loads if format == "json" else tomllib.loads
    wish = Wish("s", "i", {"url": "u", "note": {"b": 2}}, without=("command", "args", "env"))
    after = merge(format, before, wish)
    assert read(after) == {"s": {"i": {"url": "u", "mine": 1, "note": {"a": 1, "b": 2}}}, "t": 1}
    assert merge(format, after, wish) == after


def test_what_stands_beside_the_servers_is_added_once() -> None:
    wish = Wish("servers", "i", {"url": "u"}, inputs=({"id": "token", "type": "promptString"},))
    new = merge("json", "", wish)
    assert json.loads(new) == {"inputs": list(wish.inputs), "servers": {"i": {"url": "u"}}}
    assert merge("json", new, wish) == new
    mine = '{"inputs": [{"id": "mine"}], "servers": {"i": {"url": "u"}}}'
    after = json.loads(merge("json", mine, wish))
    assert [each["id"] for each in after["inputs"]] == ["mine", "token"]
    odd = '{"inputs": [{"id": []}, {"id": {}}, 7], "servers": {}}'
    assert len(json.loads(merge("json", odd, wish))["inputs"]) == 4
    with pytest.raises(Unmergeable, match="other than a list at inputs"):
        merge("json", '{"inputs": {}}', wish)


@pytest.mark.parametrize(
    ("format", "text", "found"),
    [
        ("json", "", {}),
        ("json", '{"s": {"i": {"a": 1}}}', {"a": 1}),
        ("json", '{"s": 1}', {}),
        ("json", "[", {}),
        ("json", "[]", {}),
        ("toml", "[s.i]\na = 1", {"a": 1}),
        ("toml", "s =", {}),
    ],
)
def test_the_entry_that_is_there_is_found_and_anything_else_is_none(
    format: str, text: str, found: dict[str, Any]
) -> None:
    assert present(format, text, "s", "i") == found
