"""What may stand in a label: a few words of ours, whatever an actor is called."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.metrics import family


@pytest.mark.parametrize(
    ("name", "sort"),
    [
        ("store", "store"),
        ("session/3f2a-1", "session"),
        ("policy//home/me/project", "policy"),
        ("link/140-3", "link"),
        ("slack/outbox", "slack/outbox"),
        ("slack/C0123", "slack"),
        ("slack/", "slack"),
        ("urn:uuid:4711", "other"),
        ("intercom.agents.transport.ShimConnection._mcp", "other"),
        ("/home/me", "other"),
        ("", "other"),
    ],
)
def test_an_actor_is_told_by_its_sort(name: str, sort: str) -> None:
    assert family(name) == sort


@given(st.text(alphabet=string.ascii_letters + string.digits + "/-_:. é", max_size=60))
def test_no_label_holds_a_path_an_id_or_an_upper_case_name(name: str) -> None:
    label = family(name)
    assert label.count("/") <= 1
    assert set(label) <= set(string.ascii_lowercase + "_/")
    assert len(label) <= 62
