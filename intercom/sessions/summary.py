"""The summary: if a workspace's policy asks for it, people are told from time to time what the policy approved.

Each approval is recorded at once. A crash may lose a summary, but no record.
"""

from __future__ import annotations

from attrs import frozen

from intercom.sessions.actor import SessionActor
from intercom.sessions.outcomes import headline

#: How many actions a summary names.
_NAMED = 10


@frozen
class Summarize:
    """A timer: the interval is over."""


def let_pass(session: SessionActor, what: str, rule: str) -> None:
    """Note what the policy approved, for the next summary. The first such action starts the interval."""
    policy = session.context.policy(session.row.workspace_root)
    if not policy.log_auto_approved:
        return
    session.let_pass.append(f"{headline(what)} ({rule})")
    if len(session.let_pass) == 1:
        session.set_timer(Summarize(), policy.summary_interval_seconds, Summarize())


async def summarize(session: SessionActor, _due: Summarize) -> None:
    """Tell people what was approved since the interval began."""
    passed, session.let_pass = session.let_pass, []
    if passed:
        more = f"; and {len(passed) - _NAMED} more" if len(passed) > _NAMED else ""
        session.notify(f"the policy let pass: {'; '.join(passed[:_NAMED])}{more}")
