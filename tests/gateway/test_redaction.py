"""Secrets in results are masked, whatever field they are in; everything else stays as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.redaction import lines_of, redact
from intercom.masking import Masker
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import Json, JsonObject

#: Put together, so that no tool takes it for a real one.
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
MASKER = Masker()


def redacted(result: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    return redact(MASKER, result, "\n".join(lines_of(result)))


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [{"type": "text", "text": f"use {TOKEN}"}]}, "use [masked: GitHub token]"),
        ({"structuredContent": {"deep": [{"x": [TOKEN]}]}}, "[masked: GitHub token]"),
        ({"structuredContent": {"password": "correct-horse-9"}}, "[masked: password or key]"),
        ({"contents": [{"uri": "file:///x", "text": f"TOKEN={TOKEN}"}]}, "[masked: GitHub token]"),
        ({"structuredContent": {TOKEN: 1}}, "[masked: GitHub token]"),
        ({"_meta": {"note": TOKEN}}, "[masked: GitHub token]"),
        # Results of APIs have these names, too, and a downstream may put anything under them.
        ({"structuredContent": {"data": {"token": TOKEN}}}, "[masked: GitHub token]"),
        ({"structuredContent": {"blob": TOKEN}}, "[masked: GitHub token]"),
        ({"content": [{"type": "image", "data": TOKEN}]}, "[masked: GitHub token]"),
        ({"content": [{"type": "text", "data": TOKEN}]}, "[masked: GitHub token]"),
    ],
)
def test_a_secret_is_masked_in_every_field(result: JsonObject, expected: str) -> None:
    found, kinds = redacted(result)
    assert expected in str(found)
    assert TOKEN not in str(found)
    assert kinds


def test_bytes_are_not_searched() -> None:
    """A mask in base64 would damage an image, and no rule finds a secret in it."""
    # A key of AWS is base64, too.
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    assert MASKER.mask(key).kinds
    image: JsonObject = {"content": [{"type": "image", "data": key, "mimeType": "image/png"}]}
    blob: JsonObject = {"contents": [{"uri": "file:///x", "blob": key}]}
    assert redacted(image) == (image, ())
    assert redacted(blob) == (blob, ())


def test_a_result_without_secrets_is_passed_on_as_it_is() -> None:
    result: JsonObject = {"content": [{"type": "text", "text": "hello"}], "n": [1, None, True, 1.5]}
    found, kinds = redacted(result)
    assert found is result
    assert kinds == ()


def test_a_result_that_is_nested_too_deeply_is_refused() -> None:
    deep: Json = "x"
    for _ in range(300):
        deep = [deep]
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        lines_of({"a": deep})


VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), st.lists(st.text(max_size=5), max_size=3))
def test_wherever_a_secret_is_it_does_not_get_through(result: JsonObject, way: list[str]) -> None:
    inner: Json = f"see {TOKEN} there"
    for step in way:
        inner = {step: inner}
    found, kinds = redacted({**result, "hidden": inner})
    assert TOKEN not in str(found)
    assert "GitHub token" in kinds
