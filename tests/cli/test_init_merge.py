"""Merging an entry into files that belong to somebody else."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.clients.client import SERVER_NAME, Client, Entry, Location
from intercom.cli.init_clients import EntryFile, entry_of, put_into
from intercom.cli.init_files import Unmergeable

ENTRY = {"command": "x", "args": ["-a"], "limit": 100}
READ = {"json": json.loads, "toml": tomllib.loads}
DUMP = {"json": json.dumps, "toml": tomlkit.dumps}


def client(format: str) -> Client:
    """A client whose servers are in the table `s`."""
    entry = Entry(Location(f"file.{format}"), "s", lambda _start: dict(ENTRY), lambda _url, _token: {}, "")
    return Client("c", {}, entry)


def merge(format: str, text: str, entry: dict[str, Any] = ENTRY, **more: Any) -> str:
    file = EntryFile(client(format), Path(), entry, **more)
    after = put_into(file, text)
    assert put_into(file, after) == after
    return after


def test_comments_and_layout_of_toml_stay() -> None:
    before = "# top\nmodel = 'x'   # which\n\n[s.other]\ncommand = 'y'\n\n[tools]\nweb = true # yes\n"
    after = merge("toml", before)
    for line in before.splitlines():
        assert line in after
    assert tomllib.loads(after)["s"] == {"other": {"command": "y"}, SERVER_NAME: ENTRY}
    assert tomllib.loads(after)["tools"] == {"web": True}


@pytest.mark.parametrize(
    "before",
    [
        "",
        "a = 1",
        "[s]\n",
        "[s.agent-intercom]\ncommand = 'old'\n[s.agent-intercom.env]\nA = '1'\n",
        "s = {}\n",
        "s = { agent-intercom = { command = 'old' } }\n",
        "[s.a]\nx = 1\n[other]\ny = 1\n[s.b]\nz = 1\n",
        "[[list]]\na = 1\n[[list]]\na = 2\n",
        "s.a.x = 1\n[t]\n",
    ],
)
def test_toml_in_every_layout_is_merged(before: str) -> None:
    was = tomllib.loads(before)
    servers = was.get("s", {})
    expected = {**was, "s": {**servers, SERVER_NAME: {**servers.get(SERVER_NAME, {}), **ENTRY}}}
    assert tomllib.loads(merge("toml", before)) == expected


def test_json_keeps_its_order_its_indent_and_its_last_line() -> None:
    before = '{\n    "z": 1,\n    "s": {\n        "b": {"é": "ü"}\n    },\n    "a": 2\n}'
    after = merge("json", before)
    assert list(json.loads(after)) == ["z", "s", "a"]
    assert '\n    "z": 1' in after
    assert '"é": "ü"' in after
    assert not after.endswith("\n")
    assert merge("json", before + "\n").endswith("}\n")


@pytest.mark.parametrize("format", READ)
def test_what_the_user_added_stays_and_a_raised_number_too(format: str) -> None:
    mine = {"command": "old", "limit": 500, "env": {"A": "1"}}
    after = READ[format](merge(format, DUMP[format]({"s": {SERVER_NAME: mine}})))
    assert after["s"][SERVER_NAME] == {"command": "x", "args": ["-a"], "limit": 500, "env": {"A": "1"}}


@pytest.mark.parametrize(
    ("format", "before", "why"),
    [
        ("json", "{ // c\n}", "is not plain JSON"),
        ("json", '{"a": 1,}', "trailing commas cannot be kept"),
        ("json", "[]", "is not a JSON object"),
        ("json", '{"s": []}', "something other than a table at s"),
        ("json", '{"s": {"agent-intercom": 1}}', "something other than a table at s.agent-intercom"),
        ("json", '{"a": 1, "a": 2}', "occurs twice"),
        ("json", "[" * 100_000, "is not plain JSON"),
        ("toml", "a = ", "is not TOML"),
        ("toml", "s = 1", "something other than a table at s"),
        ("toml", "[[s]]\n", "something other than a table at s"),
        ("toml", "[s]\nagent-intercom = 'x'", "something other than a table at s.agent-intercom"),
    ],
)
def test_a_file_that_would_be_harmed_is_refused(format: str, before: str, why: str) -> None:
    with pytest.raises(Unmergeable) as refused:
        merge(format, before)
    assert why in str(refused.value)


names = st.text("abs-_. é", min_size=1, max_size=4)
values: Any = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.fixed_dictionaries(
    {}, optional={"s": st.dictionaries(names | st.just(SERVER_NAME), values, max_size=3)}
).flatmap(lambda fixed: st.dictionaries(names, values, max_size=3).map(lambda more: {**more, **fixed}))


@given(documents, st.sampled_from([*READ]))
def test_whatever_the_file_holds_everything_else_stays(document: dict[str, Any], format: str) -> None:
    before = DUMP[format](document)
    was = READ[format](before)
    try:
        after = READ[format](merge(format, before))
    except Unmergeable:
        return
    assert after["s"].pop(SERVER_NAME).items() >= ENTRY.items()
    was.setdefault("s", {}).pop(SERVER_NAME, None)
    assert after == was


@pytest.mark.parametrize("format", READ)
def test_what_the_entry_is_to_be_without_goes_and_all_else_stays(format: str) -> None:
    mine = {"command": "old", "args": [], "mine": 1, "note": {"a": 1}}
    new = {"url": "u", "note": {"b": 2}}
    after = merge(format, DUMP[format]({"t": 1, "s": {SERVER_NAME: mine}}), new, without={"command", "args", "env"})
    assert READ[format](after) == {"s": {SERVER_NAME: {"url": "u", "mine": 1, "note": {"a": 1, "b": 2}}}, "t": 1}


def test_what_stands_beside_the_servers_is_added_once() -> None:
    entry, inputs = {"url": "u"}, ({"id": "token", "type": "promptString"},)
    new = merge("json", "", entry, inputs=inputs)
    assert json.loads(new) == {"inputs": list(inputs), "s": {SERVER_NAME: entry}}
    mine = json.dumps({"inputs": [{"id": "mine"}], "s": {SERVER_NAME: entry}})
    after = json.loads(merge("json", mine, entry, inputs=inputs))
    assert [each["id"] for each in after["inputs"]] == ["mine", "token"]
    odd = '{"inputs": [{"id": []}, {"id": {}}, 7], "s": {}}'
    assert len(json.loads(merge("json", odd, entry, inputs=inputs))["inputs"]) == 4
    with pytest.raises(Unmergeable, match="other than a list at inputs"):
        merge("json", '{"inputs": {}}', entry, inputs=inputs)


@pytest.mark.parametrize(
    ("format", "text", "found"),
    [
        ("json", "", {}),
        ("json", '{"s": {"agent-intercom": {"a": 1}}}', {"a": 1}),
        ("json", '{"s": 1}', {}),
        ("json", "[", {}),
        ("json", "[]", {}),
        ("toml", "[s.agent-intercom]\na = 1", {"a": 1}),
        ("toml", "s =", {}),
    ],
)
def test_the_entry_that_is_there_is_found_and_anything_else_is_none(
    tmp_path: Path, format: str, text: str, found: dict[str, Any]
) -> None:
    (tmp_path / f"file.{format}").write_text(text)
    assert entry_of(client(format), tmp_path) == found
