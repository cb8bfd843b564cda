"""Evidence says where its data comes from; the cache gives results again, for a while, and is bounded."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.call_journal import Invocation
from intercom.gateway.evidence_records import Cache, cache_key, export, from_stored, normalize, to_stored
from intercom.model.json_types import JsonObject
from intercom.store import gateway
from tests.store.cases import database

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CALL = Invocation("call 1", AT, "s1", "claude 1", "reader", "github", "list_commits", "ab" * 32)


def test_evidence_is_exported_as_a_finding_refers_to_it() -> None:
    evidence = normalize(
        CALL, {"commits": [1, None]}, redacted=True, description="commits", confidence=0.5, tags=("a",)
    )
    exported = json.loads(json.dumps(export(evidence)))
    assert exported == {
        "id": evidence.id,
        "type": "tool_result",
        "description": "commits",
        "timestamp": "2026-03-01T12:00:00.000000+00:00",
        "source_type": "mcp",
        "mcp_tool_name": "github",
        "mcp_method": "list_commits",
        "mcp_invocation_id": "call 1",
        "run_id": "s1",
        "data": {"commits": [1, None]},
        "metadata": {"redacted": True, "cache_key": f"github:list_commits:{'ab' * 32}"},
        "confidence": 0.5,
        "tags": ["a"],
    }


@pytest.mark.parametrize("changes", [{"tool": ""}, {"method": ""}])
def test_evidence_without_its_source_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="names its downstream and its tool"):
        normalize(evolve(CALL, **changes), None, redacted=False)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan")])
def test_confidence_is_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        normalize(CALL, None, redacted=False, confidence=confidence)


def test_kept_evidence_is_the_same_when_it_is_read() -> None:
    evidence = normalize(CALL, [{"é": 1.5}, "\ud800"], redacted=True, description="d", tags=("a", "b"), cached_from="c")
    with database() as db:
        gateway.evidence.insert(db, to_stored(evidence))
        kept = gateway.evidence.get(db, evidence.id)
    assert kept is not None
    assert from_stored(kept) == evidence
    with pytest.raises(ValueError, match="is incomplete"):
        from_stored(evolve(kept, metadata={"redacted": True}))


# --- the cache -------------------------------------------------------------------------------------------------------

KEY = cache_key("github", "list_commits", "ab" * 32)


def test_a_result_is_given_again_until_its_time_is_over() -> None:
    cache = Cache()
    result: JsonObject = {"found": [1]}
    assert cache.get(KEY, 0.0) is None
    assert cache.put(KEY, result, 0.0, 10.0)
    assert cache.get(KEY, 9.9) == result
    assert cache.get(KEY, 10.0) is None
    assert (cache.counts.hits, cache.counts.misses, cache.counts.entries, cache.counts.size) == (1, 2, 0, 0)


def test_nobody_changes_what_others_get() -> None:
    cache = Cache()
    result: JsonObject = {"found": [1]}
    cache.put(KEY, result, 0.0, 10.0)
    result["found"] = None
    first = cache.get(KEY, 1.0)
    assert first is not None
    first.clear()
    assert cache.get(KEY, 1.0) == {"found": [1]}


def test_a_result_too_large_or_not_json_replaces_nothing_and_removes_the_old_one() -> None:
    for bad in ({"x": "a" * 200}, {"x": object()}, {"x": float}):
        cache = Cache(most=1_000, largest=200)
        cache.put(KEY, {}, 0.0, 10.0)
        assert not cache.put(KEY, bad, 0.0, 10.0)  # type: ignore[arg-type]
        assert cache.get(KEY, 0.0) is None
    assert not cache.put(KEY, {}, 0.0, 0.0)


def test_a_downstreams_results_are_forgotten_alone() -> None:
    cache = Cache()
    keys = [cache_key(tool, method, "ab") for tool in ("git", "github", "hub") for method in ("git", "list")]
    for key in (*keys, *(f"{key}:agent 1" for key in keys)):
        cache.put(key, {}, 0.0, 10.0)
    cache.forget("git")
    left = [key for key in keys if cache.get(key, 0.0) is not None]
    assert left == keys[2:]
    assert cache.get("git:list:ab:agent 1", 0.0) is None
    assert cache.get("github:git:ab:agent 1", 0.0) is not None
    assert [cache.generation(tool) for tool in ("git", "github")] == [1, 0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"), st.integers(0, 60), st.sampled_from([0.0, 1.0, 5.0]), st.sampled_from("pgf")
        )
    )
)
def test_the_cache_never_holds_more_than_it_may(steps: list[tuple[str, int, float, str]]) -> None:
    cache = Cache(most=200, largest=70)
    truth: dict[str, tuple[JsonObject, float]] = {}
    for now, (name, length, seconds, what) in enumerate(steps):
        key = cache_key(name, "m", "h")
        if what == "p":
            result: JsonObject = {"x": "y" * length}
            if cache.put(key, result, now, seconds):
                truth[key] = result, now + seconds
            else:
                truth.pop(key, None)
        elif what == "g":
            found = cache.get(key, now)
            assert found is None or found == truth[key][0]
            assert found is None or now < truth[key][1]
        else:
            cache.forget(name)
            truth.pop(key, None)
        assert 0 <= cache.counts.size <= 200
        assert cache.counts.entries <= len(truth)
