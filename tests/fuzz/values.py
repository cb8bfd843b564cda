"""What an outsider may send: values that fit, values that nearly fit, and none that was ever meant."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st

LONG = os.environ.get("INTERCOM_FUZZ") == "long"


def examples(few: int) -> settings:
    """So many examples; thirty times as many with INTERCOM_FUZZ=long."""
    phases = [phase for phase in Phase if LONG or phase is not Phase.shrink]
    return settings(max_examples=few * 30 if LONG else few, phases=phases)


def nested(depth: int, inner: Any = None, key: str | None = None) -> Any:
    """A value so many lists (or objects, by `key`) deep."""
    for _ in range(depth):
        inner = [inner] if key is None else {key: inner}
    return inner


#: Characters that break things, beside the usual ones.
NASTY = st.sampled_from(
    (
        *(
            "\0",
            "\ud800",
            "\udfff",
            "\u2028",
            "\u202e",
            "\x1b[2J",
            "\r\n",
            "\\",
            "../",
            "/",
            "%s%n",
            "{}",
            "'; --",
            '"',
            "~",
        ),
        *("e\u0301", "\U0010ffff", "\ufeff"),
    )
)
texts = st.text(max_size=30) | st.lists(NASTY | st.text(max_size=4), max_size=6).map("".join)
sizes = st.sampled_from([1, 255, 256, 4096, 5000, 70_000])
huge_texts = st.builds(lambda text, size: (text or "x") * size, st.text(max_size=2), sizes)
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 1e308, 0.5, 1.0])
)
scalars = st.none() | st.booleans() | numbers | texts
deep = st.builds(nested, st.sampled_from([40, 150, 250]), scalars, st.sampled_from([None, "context", "a"]))
garbage = st.recursive(
    scalars | huge_texts | deep,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema of ours admits."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_of(kind, schema) for kind in kinds])


def _of(kind: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -(10**20)), schema.get("maximum", 10**20))
        case "array":
            return st.lists(fitting(schema.get("items", {"type": "string"})), max_size=4)
        case "object":
            return objects(schema, st.nothing())
    return texts.filter(lambda text: len(text) >= schema.get("minLength", 0))


def objects(schema: dict[str, Any], wrong: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of a schema, whose fields may hold what is `wrong`."""
    fields = {name: fitting(each) | wrong for name, each in schema["properties"].items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=fields)


def arguments(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Arguments for a tool: in order, with wrong values, with unknown keys, all null, or something else altogether."""
    right, wrong = objects(schema, st.nothing()), objects(schema, garbage)
    unknown = st.builds(lambda given, more: {**more, **given}, right, st.dictionaries(texts, garbage, max_size=3))
    nulls = st.just(dict.fromkeys(schema["properties"]))
    return right | right | wrong | unknown | nulls | garbage
