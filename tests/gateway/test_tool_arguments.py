"""Arguments are checked against a tool's schema, whatever the schema and the arguments are."""

from __future__ import annotations

import json
import time
import urllib.request
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from intercom.gateway.tool_arguments import FAULTS, SIZE, misfits_of, parameters_of, read_arguments
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import Json, JsonObject
from tests.gateway.recorded_tools import recorded_catalog
from tests.support.machine_speed import is_below

ISSUE: JsonObject = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "state": {"enum": ["open", "closed"]},
        "number": {"type": "integer", "minimum": 1, "maximum": 9},
        "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "author": {
            "type": ["object", "null"],
            "properties": {"name": {"type": "string"}},
            "required": ["name", "mail"],
        },
        "kind": {"const": "bug"},
        "place": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["line"]}]},
    },
    "required": ["title"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ({"title": "x"}, []),
        ({"title": "x", "number": 9.0, "labels": [], "author": None, "kind": "bug", "place": "p"}, []),
        ({}, ["title: missing, and it is needed"]),
        ({"title": ""}, ["title: must not be empty"]),
        ({"title": 3}, ["title: must be a string, and is a number"]),
        ({"title": True}, ["title: must be a string, and is true or false"]),
        ({"title": None}, ["title: must be a string, and is null"]),
        ({"title": "x", "state": "secret"}, ["state: must be one of open, closed"]),
        ({"title": "x", "number": "3"}, ["number: must be a whole number, and is a string"]),
        ({"title": "x", "number": 0}, ["number: must be at least 1"]),
        ({"title": "x", "number": 1e300}, ["number: must be at most 9"]),
        ({"title": "x", "labels": ["a", 1]}, ["labels.1: must be a string, and is a number"]),
        ({"title": "x", "labels": ["a", "b", "c"]}, ["labels: must have at most 2 entries"]),
        ({"title": "x", "labels": "a"}, ["labels: must be a list, and is a string"]),
        ({"title": "x", "author": {}}, ["author.name, mail: missing, and they are needed"]),
        ({"title": "x", "author": []}, ["author: must be an object or null, and is a list"]),
        ({"title": "x", "kind": "secret"}, ["kind: must be bug"]),
        ({"title": "x", "place": {}}, ["place.line: missing, and it is needed"]),
        ({"title": "x", "titel": 1}, ["titel: no such argument (did you mean title?)"]),
        (
            {"title": "x", "zz": 1},
            ["zz: no such argument (there are: title, state, number, labels, author, kind, place)"],
        ),
    ],
)
def test_faults_are_told_in_words(arguments: JsonObject, faults: list[str]) -> None:
    assert list(misfits_of(ISSUE, arguments)) == faults
    assert "secret" not in str(misfits_of(ISSUE, arguments))


def test_only_the_first_faults_are_told() -> None:
    schema: JsonObject = {"properties": {f"p{number}": {"type": "string"} for number in range(9)}}
    told = misfits_of(schema, {f"p{number}": number for number in range(9)})
    assert len(told) == FAULTS + 1
    assert told[-1] == "and more faults"
    assert misfits_of({"additionalProperties": False}, {"a": 1}) == ("a: no such argument (it takes none)",)


@pytest.mark.parametrize(
    "uri",
    [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
        "https://example.org/own",
        None,
        7,
    ],
)
def test_the_schema_says_its_version(uri: Json) -> None:
    schema: JsonObject = {"$schema": uri, "properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {}}}
    schema["definitions"] = {"A": {"type": "string"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert misfits_of(schema, {"a": 1}) == ("a: must be a string, and is a number",)
    old: JsonObject = {"$schema": "http://json-schema.org/draft-04/schema#"}
    bound: JsonObject = {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}
    assert misfits_of({**old, **bound}, {"a": 1}) == ("a: must be at least 1",)


# --- schemas that cannot be checked ----------------------------------------------------------------------------------

LOOP: JsonObject = {"$ref": "#"}
BOMB: JsonObject = {
    "$ref": "#/$defs/d0",
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)} | {"d60": {}},
}


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        "text",
        [],
        {"type": "strnig"},
        {"type": 7},
        {"required": 7},
        {"properties": 7},
        {"properties": {"a": 7}},
        {"allOf": 7},
        {"minimum": "x"},
        {"properties": {"a": {"multipleOf": 0}}},
        LOOP,
        BOMB,
        {"$ref": "https://example.org/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nowhere"},
        {"$id": "not a: uri", "$ref": "x"},
        {"$dynamicRef": "#x"},
        {"pattern": "(", "properties": {"a": {"pattern": "^(a+)+$"}}},
        {"patternProperties": {"^(a+)+$": False}, "additionalProperties": False},
        {"unevaluatedProperties": False, "patternProperties": {"(x+x+)+y": {}}},
    ],
)
def test_what_cannot_be_checked_is_not_refused(schema: Json) -> None:
    began = time.process_time()
    assert misfits_of(schema, {"a": "a" * 5_000 + "!", "a" * 5_000 + "!": 1}) == ()
    # The regular expressions alone would take longer than the universe exists.
    assert is_below(2.0, time.process_time() - began)


def test_no_schema_is_loaded_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*request: object, **_options: object) -> None:
        loaded.append(request)
        raise OSError

    loaded: list[object] = []
    monkeypatch.setattr(urllib.request, "urlopen", load)
    # jsonschema warns when it loads a schema; as an error, the warning would prevent it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for uri in ("http://127.0.0.1:9/schema.json", "https://example.org/schema.json#/a", "file:///etc/passwd"):
            assert misfits_of({"$ref": uri}, {"a": 1}) == ()
            assert misfits_of({"$id": uri, "$ref": "other.json"}, {"a": 1}) == ()
    assert loaded == []


def test_the_work_of_a_check_is_limited() -> None:
    many: JsonObject = {"properties": {"list": {"items": {"type": "string"}}}}
    entries: list[Json] = [{"a": number} for number in range(9_000)]
    unique: JsonObject = {"properties": {"list": {"uniqueItems": True}}}
    failing: JsonObject = {"properties": {"text": {"anyOf": [{"type": "integer"}] * 100_000}}}
    began = time.process_time()
    assert misfits_of(many, {"list": entries}) == ()
    assert misfits_of(unique, {"list": [*entries[:1_800], entries[0]]}) == ()
    assert misfits_of(unique, {"list": [{}, {}]}) == ("list: does not fit uniqueItems in its schema",)
    assert misfits_of(failing, {"text": "x" * (SIZE - 100)}) == ()
    assert misfits_of(many, {"list": "x" * SIZE}) == ()
    assert misfits_of(many, {"list": 10**SIZE}) == ()
    assert is_below(2.0, time.process_time() - began)


def test_values_may_be_nested_deeply() -> None:
    deep: Json = []
    for _ in range(9_000):
        deep = [deep]
    assert misfits_of({"properties": {"a": {"type": "string"}}}, {"a": deep}) == ()


# --- against jsonschema ----------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["", "open", "bug", "x"]) | st.just(1.0),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "mail", "line"]), inner),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*ISSUE["properties"], "other"]), VALUES))  # type: ignore[misc]
def test_what_is_refused_is_what_a_validator_refuses(arguments: JsonObject) -> None:
    assert bool(misfits_of(ISSUE, arguments)) == (not Draft202012Validator(ISSUE).is_valid(arguments))


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(["path", "edits", "url", "a", "target"]), VALUES))
def test_real_schemas_can_be_checked(arguments: JsonObject) -> None:
    for entry in recorded_catalog().entries:
        schema = entry.definition["inputSchema"]
        assert isinstance(schema, dict)
        expected = not Draft202012Validator(schema).is_valid(arguments)
        assert bool(misfits_of(schema, arguments)) == expected, entry.name


SCHEMA: JsonObject = {
    "properties": {
        "timezone": {"type": "string", "description": "IANA"},
        "n": {"type": ["integer", "null"]},
        "kind": {"enum": ["a", "b"]},
        "many": {"type": "array", "items": {"type": "number"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
        "odd": True,
    },
    "required": ["timezone"],
}


def test_what_a_person_writes_becomes_arguments() -> None:
    words = ["timezone=Europe/Berlin", "n=7", "kind=a", "many=[1, 2]", "either=true", "odd=x=y"]
    written = {"timezone": "Europe/Berlin", "n": 7, "kind": "a", "many": [1, 2], "either": "true", "odd": "x=y"}
    assert read_arguments(json.dumps(words), SCHEMA) == written
    assert read_arguments("timezone=7", SCHEMA) == {"timezone": "7"}
    assert read_arguments('{"n": 7}', SCHEMA) == {"n": 7}
    assert read_arguments(None, SCHEMA) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Europe/Berlin", "not JSON .*: write timezone=Europe/Berlin, or JSON"),
        ('{"q":', "not JSON"),
        ("7", "must be one JSON object"),
        ('["a=1", "b"]', "'b' is no NAME=VALUE"),
        ('["a=1", "a=2"]', "a is written twice"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_are_no_arguments_is_refused_with_how_to_write_them(text: str, said: str) -> None:
    with pytest.raises(InvalidArguments, match=said):
        read_arguments(text, SCHEMA)


def test_the_arguments_of_a_tool_are_listed_for_people() -> None:
    assert [(each.name, each.type, each.is_required) for each in parameters_of(SCHEMA)] == [
        ("timezone", "string", True),
        ("n", "integer", False),
        ("kind", "one of a, b", False),
        ("many", "list of number", False),
        ("either", "string or boolean", False),
        ("odd", "any", False),
    ]
    hostile: list[JsonObject] = [{"properties": []}, {"properties": {"a": 7}, "required": 1}, {}]
    assert [len(parameters_of(each)) for each in hostile] == [0, 1, 0]
