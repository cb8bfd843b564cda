"""Which agent has which role."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway import roles
from intercom.gateway.assignments import (
    AgentIdentity,
    Assignment,
    Assignments,
    Evidence,
    narrowed_by,
    parse,
    role_of,
)

TOKEN = hashlib.sha256(b"secret").hexdigest()
SESSION = "3f2a9c1e-5b7d-4e8f-9a0b-1c2d3e4f5a6b"
ROLES: list[dict[str, Any]] = [{"role": name, "capabilities": []} for name in ("dev", "reader", "ci", "admin")]


def parsed(*rows: Mapping[str, Any], default: str | None = "dev", trust: bool = False) -> Assignments:
    raw: dict[str, Any] = {"roles": ROLES, "assignments": list(rows), "trustClientNames": trust}
    found, faults = parse(raw if default is None else {**raw, "defaultRole": default})
    assert faults == ()
    assert found is not None
    return found


def agent(**known: str) -> AgentIdentity:
    return AgentIdentity("agent-1", **known)


BY_CLIENT = {"role": "reader", "client": "Codex*"}
BY_SESSION = {"role": "admin", "session": SESSION[:8]}
BY_TOKEN = {"role": "ci", "token": TOKEN.upper()}


@pytest.mark.parametrize(
    ("known", "role", "narrowed"),
    [
        ({}, "dev", None),
        ({"client": "claude-code"}, "dev", None),
        ({"client": "codex-mcp-client"}, "dev", "reader"),
        ({"client": "codex", "session": SESSION}, "admin", None),
        ({"client": "codex", "session": SESSION, "token": TOKEN}, "ci", None),
        ({"token": TOKEN[:-1] + "0"}, "dev", None),
        ({"session": SESSION[1:]}, "dev", None),
    ],
)
def test_the_strongest_evidence_counts(known: dict[str, str], role: str, narrowed: str | None) -> None:
    found = parsed(BY_CLIENT, BY_SESSION, BY_TOKEN)
    assert role_of(found, agent(**known))[0] == role
    assert narrowed_by(found, agent(**known)) == narrowed


def test_a_client_that_is_trusted_has_its_own_role() -> None:
    found = parsed(BY_CLIENT, trust=True)
    assert role_of(found, agent(client="codex")) == (
        "reader",
        'its client calls itself "codex", and trustClientNames is set',
    )
    assert narrowed_by(found, agent(client="codex")) is None


def test_without_a_default_role_a_claimed_name_gives_nothing() -> None:
    found = parsed(BY_CLIENT, default=None)
    role, reason = role_of(found, agent(client="codex"))
    assert role is None
    assert "is a claim and gives no role" in reason
    assert role_of(found, agent()) == (None, "no assignment fits, and no defaultRole is set")


def test_more_conditions_and_longer_ones_come_first() -> None:
    found = parsed(
        {"role": "dev", "client": "*"},
        {"role": "reader", "client": "codex*"},
        {"role": "admin", "session": SESSION[:8]},
        {"role": "ci", "session": SESSION[:13]},
        {"role": "reader", "session": SESSION[:8], "client": "codex"},
        trust=True,
    )
    assert [role_of(found, each)[0] for each in (agent(client="codex-2"), agent(client="x"))] == ["reader", "dev"]
    assert role_of(found, agent(session=SESSION))[0] == "ci"
    assert role_of(found, agent(session=SESSION, client="codex"))[0] == "reader"


def test_a_reason_shows_a_hostile_name_on_one_line_and_cut() -> None:
    reason = role_of(parsed({"role": "reader", "client": "*"}), agent(client="x\n\u202e" + "y" * 500))[1]
    assert "\n" not in reason
    assert "\u202e" not in reason
    assert len(reason) < 300


def test_all_faults_are_told_at_once_and_without_values() -> None:
    secret = "ghp_S3cr3tT0k3n9"
    raw = {
        "roles": ROLES,
        "defaultRole": "redaer",
        "trustClientNames": "yes",
        "assignments": [
            7,
            {"role": "ci", "token": secret},
            {"role": "ci", "session": "3f2a", "clent": "x"},
            {"role": "nobody", "client": ""},
            {"client": "codex"},
            {"role": "ci"},
            {"role": "ci", "client": "a"},
            {"role": "dev", "client": "a"},
        ],
    }
    found, faults = parse(raw)
    assert found is None
    assert secret not in "".join(faults)
    expected = [
        "assignments[0]: must be a table",
        "assignments[1].token: must be the SHA-256",
        "assignments[2].clent: is not a setting (did you mean client?)",
        "assignments[2].session: must be the beginning",
        'assignments[3].role: "nobody" is not among the roles',
        "assignments[3].client: must be the name",
        "assignments[4].role: is missing",
        "assignments[5]: has no condition",
        "assignments[7]: has the conditions of an earlier one",
        'defaultRole: "redaer" is not among the roles of this file; did you mean "reader"?',
        "trustClientNames: must be true or false",
    ]
    assert len(faults) == len(expected)
    for fault, start in zip(faults, expected, strict=True):
        assert fault.startswith(start)


def test_the_same_file_is_read_for_roles_and_assignments() -> None:
    raw = {"roles": ROLES, "defaultRole": "dev", "trustClientNames": False, "assignments": [BY_CLIENT]}
    assert roles.parse(raw)[1] == ()
    assert parse({}) == (Assignments(), ())


def test_a_token_is_in_no_repr() -> None:
    assert TOKEN not in repr(parsed(BY_TOKEN)) + repr(agent(token=TOKEN))


NAMES = st.sampled_from(["codex", "claude-code", "cursor", "*", "c*", None])
TOKENS = st.sampled_from([TOKEN, TOKEN[::-1], None])
SESSIONS = st.sampled_from([SESSION[:8], SESSION[:20], SESSION[::-1], None])
ROWS = st.builds(Assignment, st.sampled_from(["dev", "reader", "ci"]), TOKENS, SESSIONS, NAMES).filter(
    lambda each: bool(each.conditions)
)


@given(st.lists(ROWS), st.sampled_from(["dev", None]), TOKENS, SESSIONS, NAMES)
def test_no_claimed_name_gives_a_role_that_is_not_the_default(
    rows: list[Assignment], default: str | None, token: str | None, session: str | None, client: str | None
) -> None:
    found = Assignments(rows, default)
    given_agent = AgentIdentity("a", client, session, token)
    role, reason = role_of(found, given_agent)
    proved = {each.role for each in rows if each.evidence is not Evidence.CLAIM and each.fits(given_agent)}
    assert role in proved | {default}
    assert reason
    if narrowed_by(found, given_agent) is not None:
        assert role == default


@given(st.permutations([Assignment("dev", None, None, name) for name in ("a*", "a*b", "ab", "*")]))
def test_the_order_in_the_file_does_not_matter(rows: list[Assignment]) -> None:
    found = Assignments(rows).first(AgentIdentity("x", "ab"))
    assert found is not None
    assert found.client == "ab"


def test_a_session_with_a_role_is_known_by_any_beginning_of_its_id() -> None:
    found, faults = parse({"roles": [{"role": "ci"}], "assignments": [{"role": "ci", "session": "ABCDEF12"}]})
    assert found is not None, faults
    assert found.names_session("abcdef12-3456-4000-8000-000000000000")
    assert not found.names_session("abcdef13-3456-4000-8000-000000000000")
