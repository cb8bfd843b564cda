"""Whether a policy grants more than another, and which of two is in force."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import given

from intercom.model.decision import Decided
from intercom.model.policy import DENY_ALL, FilePatterns, PolicyDecision, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace.files import digest
from intercom.workspace.policy import Query, evaluate, narrowed, widens
from intercom.workspace.policy_file import Loaded, parse, render
from intercom.workspace.policy_watcher import PolicyRecord, PolicyState, changed, decided, record_of, started
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
    assert widens(high, BASE) == ()


def test_to_hide_what_passes_counts_as_more() -> None:
    shown = evolve(BASE, log_auto_approved=True)
    assert widens(shown, BASE) == ("log_auto_approved is switched off",)
    assert widens(shown, evolve(shown, summary_interval_seconds=86400)) == ("summary_interval_seconds is raised",)
    assert widens(BASE, evolve(BASE, summary_interval_seconds=86400)) == ()


def test_only_tools_have_older_names() -> None:
    ping, heartbeat = (
        evolve(BASE, commands=(name,), file_patterns=FilePatterns((name,), (name,))) for name in ("ping", "heartbeat")
    )
    kinds = ("command", "write pattern", "read pattern")
    for old, new, rule in ((ping, heartbeat, "heartbeat"), (heartbeat, ping, "ping")):
        assert widens(old, new) == tuple(f'{kind} added: "{rule}"' for kind in kinds)


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


def said(policy: WorkspacePolicy, accepted: bool = True) -> PolicyDecision:
    """A person's decision about the file that states this policy."""
    loaded = file(policy)
    word = "accept" if accepted else "reject"
    by = Decided(f"v-{word}", word, "kim", "ctl", datetime(2026, 1, 1, tzinfo=UTC))
    return PolicyDecision("policy-1", "/ws", loaded.sha256 or "", loaded.text or "", accepted, by)


def accepted(policy: WorkspacePolicy) -> PolicyState:
    """The state in a workspace whose file states `policy`, which a person has accepted."""
    return started(file(policy), record_of([said(policy)], None))


FAULT = Loaded(source=".intercom/settings.json", fault="line 1: broken", sha256="0" * 64)
NOTHING = PolicyRecord()


def test_a_policy_that_nobody_accepted_grants_nothing_and_waits() -> None:
    state = started(file(BASE), NOTHING)
    assert state.policy == DENY_ALL
    assert (state.proposed.policy, state.proposed.sha256) == (BASE, file(BASE).sha256)
    assert "the policy is switched on" in state.proposed.ways
    assert started(Loaded(), NOTHING).proposed is None
    assert started(FAULT, NOTHING).policy == DENY_ALL


def test_an_accepted_policy_is_in_force() -> None:
    state = accepted(BASE)
    assert (state.policy, state.proposed, state.fault) == (BASE, None, None)
    assert (state.in_force.sha256, state.in_force.text) == (file(BASE).sha256, file(BASE).text)
    assert state.narrowing is None


def test_only_the_content_that_was_accepted_last_counts() -> None:
    decisions = [said(WIDER), said(BASE)]
    state = started(file(WIDER), record_of(decisions, None))
    assert state.policy == BASE
    assert state.proposed.sha256 == file(WIDER).sha256
    withdrawn = [said(BASE), said(BASE, accepted=False)]
    assert started(file(BASE), record_of(withdrawn, None)).policy == DENY_ALL
    again = [*withdrawn, said(BASE)]
    assert started(file(BASE), record_of(again, None)).policy == BASE
    other = [said(BASE), said(WIDER, accepted=False)]
    assert started(file(WIDER), record_of(other, None)).policy == BASE


def test_a_decision_whose_text_is_not_what_its_hash_says_counts_for_nothing() -> None:
    forged = evolve(said(BASE), text=render(WIDER))
    assert record_of([forged], None).accepted is None
    assert started(file(WIDER), record_of([forged], None)).policy == DENY_ALL
    assert started(file(WIDER), PolicyRecord(forged)).policy == DENY_ALL


def test_what_is_noted_as_narrowed_never_grants_more_than_was_accepted() -> None:
    record = record_of([said(BASE)], render(WIDER))
    assert started(file(WIDER), record).policy == BASE
    narrowed_to_nothing = record_of([said(BASE)], "unreadable")
    assert started(file(BASE), narrowed_to_nothing).policy == DENY_ALL


def test_what_grants_less_is_in_force_at_once_and_what_grants_more_waits() -> None:
    state = accepted(BASE)
    assert changed(state, file(NARROWER)).policy == NARROWER
    held = changed(state, file(WIDER))
    assert held.policy == BASE
    assert (held.proposed.policy, held.proposed.ways) == (WIDER, ('tool added: "broadcast"',))
    assert changed(state, file(WIDER), trust=True).policy == WIDER


def test_of_a_change_that_does_both_the_narrowing_is_in_force_at_once() -> None:
    mixed = evolve(WIDER, commands=())
    state = changed(accepted(BASE), file(mixed))
    assert state.policy == NARROWER
    assert state.proposed is not None
    assert parse(state.in_force.text) == (NARROWER, None)
    assert changed(state, file(mixed)) == state


def test_what_was_revoked_does_not_come_back_by_itself() -> None:
    state = changed(accepted(BASE), file(NARROWER))
    again = changed(state, file(BASE))
    assert again.policy == NARROWER
    assert again.proposed is not None
    gone = changed(accepted(BASE), Loaded())
    assert gone.policy == DENY_ALL
    assert changed(gone, file(BASE)).policy == DENY_ALL


def test_what_was_revoked_does_not_come_back_by_a_restart() -> None:
    for content in (file(NARROWER), Loaded()):
        state = changed(accepted(BASE), content)
        assert state.narrowing is not None
        after = started(file(BASE), record_of([said(BASE)], state.narrowing))
        assert after.policy == state.policy
        assert after.proposed is not None


def test_a_fault_grants_nothing_and_once_mended_nothing_more_than_before() -> None:
    state = changed(accepted(BASE), FAULT)
    assert (state.policy, state.fault) == (DENY_ALL, "line 1: broken")
    assert changed(state, file(BASE)).policy == BASE
    assert changed(state, file(WIDER)).policy == BASE


def test_what_is_held_goes_when_the_file_goes_back() -> None:
    held = changed(accepted(BASE), file(WIDER))
    assert changed(held, file(BASE)) == accepted(BASE)


def test_what_is_accepted_is_in_force_as_far_as_the_file_still_says_so() -> None:
    held = changed(accepted(BASE), file(WIDER))
    taken = decided(held, said(WIDER), file(WIDER))
    assert (taken.policy, taken.proposed) == (WIDER, None)
    assert changed(taken, file(WIDER)) == taken
    assert decided(held, said(WIDER), file(NARROWER)).policy == NARROWER
    assert decided(held, said(WIDER), FAULT).policy == DENY_ALL
    first = decided(started(file(BASE), NOTHING), said(BASE), file(BASE))
    assert (first.policy, first.proposed) == (BASE, None)


def test_what_is_rejected_changes_nothing_but_what_was_accepted_with_the_same_content() -> None:
    held = changed(accepted(BASE), file(WIDER))
    assert decided(held, said(WIDER, accepted=False), file(WIDER)).policy == BASE
    withdrawn = decided(accepted(BASE), said(BASE, accepted=False), file(BASE))
    assert withdrawn.policy == DENY_ALL


@given(policies(), policies(), queries())
def test_nothing_ever_passes_that_was_not_accepted(old: WorkspacePolicy, new: WorkspacePolicy, query: Query) -> None:
    unasked = started(file(new), NOTHING)
    assert not evaluate(unasked.policy, query).auto_approved
    state: PolicyState = changed(accepted(old), file(new))
    if evaluate(state.policy, query).auto_approved:
        assert evaluate(old, query).auto_approved
