"""The quick check of arguments accepts what the validator accepts, as JSON comes, and nothing that it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from intercom.agents import argument_schemas
from intercom.model.field_docs import doc
from intercom.model.room import RoomStatus
from intercom.rooms.tools.room_tool_table import OVER_HTTP
from intercom.sessions.tools.tool_table import TOOLS

TAKEN: dict[str, Any] = {tool.name: tool.takes for tool in (*OVER_HTTP, *TOOLS)}


@frozen
class Inner:
    text: str = field(metadata=doc("", min_length=2))
    more: int | None = field(default=None, metadata=doc("", minimum=0, maximum=3))


@frozen
class Everything:
    """An argument class with all that a schema may say."""

    name: str = field(metadata=doc("", min_length=1))
    status: RoomStatus | None = None
    count: int = field(default=1, metadata=doc("", minimum=1))
    share: float | None = field(default=None, metadata=doc("", minimum=0.5, maximum=2.5))
    flag: bool = False
    inner: Inner | str | None = None
    many: tuple[Inner, ...] = ()
    free: dict[str, Any] = field(factory=dict)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that fit a schema, or nearly."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 4),
        st.sampled_from([0.5, 1.0, 2.6, -1.0, 1e300, float("inf")]),
        st.sampled_from(["", "a", "ab", "active", "closed", *schema.get("enum", [])]),
        st.just([]),
        st.just({}),
    )
    kinds: list[st.SearchStrategy[Any]] = [leaves]
    if "items" in schema:
        kinds.append(st.lists(values(schema["items"]), max_size=3))
    if properties := schema.get("properties"):
        fitting = {name: values(each) for name, each in properties.items()}
        known = st.fixed_dictionaries({}, optional=fitting)
        kinds += [known, known, st.builds(lambda a, b: {**a, **b}, known, st.just({"other": 1}))]
    return st.one_of(kinds)


@given(values(argument_schemas.of(Everything)))
def test_it_accepts_what_the_validator_accepts(value: Any) -> None:
    schema = argument_schemas.of(Everything)
    accepted, valid = argument_schemas.quick_check(schema)(value), Draft202012Validator(schema).is_valid(value)
    # It leaves whole numbers that are written as floats to the validator.
    assert accepted == valid or (valid and "1.0" in repr(value)) or (valid and "1e+300" in repr(value))


@given(values(argument_schemas.of(Everything)))
def test_what_the_validator_refuses_has_a_fault_and_nothing_else(value: Any) -> None:
    schema = argument_schemas.of(Everything)
    has_none = next(argument_schemas._faults(schema, value, ""), None) is None
    assert has_none == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("name", TAKEN)
@settings(max_examples=30)
@given(data=st.data())
def test_it_accepts_nothing_that_the_validator_refuses(name: str, data: st.DataObject) -> None:
    schema = argument_schemas.of(TAKEN[name])
    value = data.draw(values(schema))
    if argument_schemas.quick_check(schema)(value):
        assert Draft202012Validator(schema).is_valid(value)
