"""Whether a policy grants more than another, and which of two is in force."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given

from intercom.model.approval import RiskLevel
from intercom.model.errors import NotFound
from intercom.model.policy import DENY_ALL, FilePatterns, WorkspacePolicy
from intercom.workspace.hashing import digest
from intercom.workspace.policy import Query, evaluate
from intercom.workspace.policy_file import Loaded, parse, render
from intercom.workspace.policy_state import PolicyState, accepted, changed, started
from intercom.workspace.widening import narrowed, widens
from tests.workspace.policies import policies, queries

BASE = WorkspacePolicy(
    enabled=True, commands=("ls",), tools=("heartbeat",), file_patterns=FilePatterns(("docs/**",), ("**",))
)
WIDER = evolve(BASE, tools=("heartbeat", "broadcast"))
NARROWER = evolve(BASE, commands=())


@pytest.mark.parametrize(
    ("new", "ways"),
    [
        (BASE, ()),
        (evolve(BASE, tools=("ping",)), ()),
        (evolve(BASE, enabled=False, commands=("*",)), ()),
        (NARROWER, ()),
        (evolve(BASE, log_auto_approved=True), ()),
        (WIDER, ('tool added: "broadcast"',)),
        (evolve(BASE, commands=("ls", "ls *")), ('command added: "ls *"',)),
        (evolve(BASE, file_patterns=FilePatterns(("docs/**", "docs/x"), ())), ('write pattern added: "docs/x"',)),
        (evolve(BASE, file_patterns=FilePatterns((), ("*",))), ('read pattern added: "*"',)),
        (evolve(BASE, risk_level_threshold=RiskLevel.HIGH), ("risk_level_threshold rises from low to high",)),
    ],
)
def test_the_ways_of_granting_more_are_named(new: WorkspacePolicy, ways: tuple[str, ...]) -> None:
    assert widens(BASE, new) == ways


def test_what_is_critical_never_passes_so_to_allow_it_is_no_widening() -> None:
    high = evolve(BASE, risk_level_threshold=RiskLevel.HIGH)
    assert widens(high, evolve(high, risk_level_threshold=RiskLevel.CRITICAL)) == ()


def test_to_hide_what_passes_counts_as_more() -> None:
    shown = evolve(BASE, log_auto_approved=True)
    assert widens(shown, BASE) == ("log_auto_approved is switched off",)
    assert widens(shown, evolve(shown, summary_interval_seconds=86400)) == ("summary_interval_seconds is raised",)
    assert widens(BASE, evolve(BASE, summary_interval_seconds=86400)) == ()


def test_switching_a_policy_on_counts_only_if_it_has_rules() -> None:
    assert widens(DENY_ALL, WorkspacePolicy(enabled=True)) == ()
    assert "the policy is switched on" in widens(DENY_ALL, BASE)


@given(policies(), policies(), queries())
def test_where_nothing_widens_nothing_passes_that_did_not_before(
    old: WorkspacePolicy, new: WorkspacePolicy, query: Query
) -> None:
    if not widens(old, new) and evaluate(new, query).auto_approved:
        assert evaluate(old, query).auto_approved
    both = narrowed(old, new)
    assert widens(old, both) == ()
    if evaluate(both, query).auto_approved:
        assert evaluate(old, query).auto_approved
        assert evaluate(new, query).auto_approved


@given(policies())
def test_no_policy_widens_itself(policy: WorkspacePolicy) -> None:
    assert widens(policy, policy) == ()


def file(policy: WorkspacePolicy) -> Loaded:
    text = render(policy)
    return Loaded(policy, digest(text.encode()), ".intercom/settings.json", text=text)


FAULT = Loaded(source=".intercom/settings.json", fault="line 1: broken", sha256="0" * 64)


def test_the_policy_found_at_start_holds() -> None:
    state = started(file(BASE), None)
    assert (state.policy, state.proposed, state.fault) == (BASE, None, None)
    assert (state.in_force.sha256, state.in_force.text) == (file(BASE).sha256, file(BASE).text)
    assert started(Loaded(), None).policy == DENY_ALL
    assert started(FAULT, None).policy == DENY_ALL


def test_what_grants_less_is_in_force_at_once_and_what_grants_more_waits_under_agents() -> None:
    state = started(file(BASE), None)
    assert changed(state, file(NARROWER), agents=True).policy == NARROWER
    held = changed(state, file(WIDER), agents=True)
    assert held.policy == BASE
    assert held.proposed is not None
    assert (held.proposed.policy, held.proposed.ways) == (WIDER, ('tool added: "broadcast"',))
    assert changed(state, file(WIDER), agents=False).policy == WIDER
    assert changed(state, file(WIDER), agents=True, trust=True).policy == WIDER


def test_of_a_change_that_does_both_the_narrowing_is_in_force_at_once() -> None:
    mixed = evolve(WIDER, commands=())
    state = changed(started(file(BASE), None), file(mixed), agents=True)
    assert state.policy == NARROWER
    assert state.proposed is not None
    assert parse(state.in_force.text) == (NARROWER, None)
    assert changed(state, file(mixed), agents=True) == state


def test_what_was_revoked_does_not_come_back_by_itself() -> None:
    state = changed(started(file(BASE), None), file(NARROWER), agents=True)
    again = changed(state, file(BASE), agents=True)
    assert again.policy == NARROWER
    assert again.proposed is not None
    gone = changed(started(file(BASE), None), Loaded(), agents=True)
    assert gone.policy == DENY_ALL
    assert changed(gone, file(BASE), agents=True).policy == DENY_ALL


def test_a_fault_grants_nothing_and_once_mended_nothing_more_than_before() -> None:
    state = changed(started(file(BASE), None), FAULT, agents=True)
    assert (state.policy, state.fault) == (DENY_ALL, "line 1: broken")
    assert changed(state, file(BASE), agents=True).policy == BASE
    assert changed(state, file(WIDER), agents=True).policy == BASE


def test_what_is_held_stays_held_when_the_agents_leave() -> None:
    held = changed(started(file(BASE), None), file(WIDER), agents=True)
    assert changed(held, file(WIDER), agents=False) == held
    assert changed(held, file(evolve(WIDER, commands=("x",))), agents=False).proposed is None


def test_what_is_held_goes_when_the_file_goes_back() -> None:
    held = changed(started(file(BASE), None), file(WIDER), agents=True)
    assert changed(held, file(BASE), agents=True) == started(file(BASE), None)


def test_only_what_waits_can_be_accepted() -> None:
    held = changed(started(file(BASE), None), file(WIDER), agents=True)
    assert held.proposed is not None
    taken = accepted(held, held.proposed.sha256)
    assert (taken.policy, taken.proposed) == (WIDER, None)
    assert changed(taken, file(WIDER), agents=True) == taken
    for state in (held, taken):
        with pytest.raises(NotFound, match="waits to be accepted"):
            accepted(state, "0" * 64)


def test_killing_the_server_does_not_launder_a_widening() -> None:
    before = started(file(BASE), None)
    kept = (before.in_force.sha256, before.in_force.text)
    after = started(file(WIDER), kept)
    assert after.policy == BASE
    assert after.proposed is not None
    assert started(file(NARROWER), kept).policy == NARROWER
    assert started(file(BASE), kept) == before
    assert started(FAULT, kept).policy == DENY_ALL
    assert started(file(WIDER), ("0" * 64, "unreadable")).policy == DENY_ALL


@given(policies(), policies(), queries())
def test_under_agents_nothing_ever_passes_that_did_not_at_start(
    old: WorkspacePolicy, new: WorkspacePolicy, query: Query
) -> None:
    state: PolicyState = changed(started(file(old), None), file(new), agents=True)
    if evaluate(state.policy, query).auto_approved:
        assert evaluate(old, query).auto_approved
