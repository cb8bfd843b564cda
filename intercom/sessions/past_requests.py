"""A policy tried on the requests that were made before in its workspace: what would it have let pass by itself?"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from functools import partial

import cattrs
import trio
from attrs import asdict, frozen

from intercom.model.approval import RiskLevel
from intercom.model.errors import IntercomError
from intercom.model.policy import WorkspacePolicy
from intercom.store import policies
from intercom.store.policies import PastRequest
from intercom.store.reader import Reader
from intercom.workspace.messages import Evaluate, EvaluateFiles
from intercom.workspace.policy import Limits, Query, evaluate, evaluate_files

log = logging.getLogger("intercom.sessions")

#: How many requests are tried, the newest; how long that may take, in seconds; how many are named.
MOST = 200
SECONDS = 1.0
_NAMED = 5
#: How much of a title is shown, in characters.
_TITLE = 80

Question = Evaluate | EvaluateFiles


def to_text(question: Question | None) -> str | None:
    """What a policy was asked, as text to be kept."""
    match question:
        case Evaluate(query):
            return json.dumps({"query": asdict(query)})
        case EvaluateFiles(paths, risk):
            return json.dumps({"paths": paths, "risk": risk})
        case None:
            return None


@frozen
class Trial:
    """Of `tried` requests the policy would have let pass those with these titles, newest first."""

    tried: int
    passed: tuple[str, ...]

    def sentence(self) -> str:
        """What people are told of it."""
        if not self.tried:
            return "no request was made here before, so there is nothing to try it on"
        some = [_line(title) for title in self.passed[:_NAMED]]
        more = f"; and {len(self.passed) - _NAMED} more" if len(self.passed) > _NAMED else ""
        shown = f": {'; '.join(some)}{more}" if some else ""
        return f"would have let {len(self.passed)} of {self.tried} past requests pass{shown}"


def _line(title: str) -> str:
    """An agent's words as a part of ours: on one line, and not for ever."""
    plain = " ".join(title.split())
    return plain if len(plain) <= _TITLE else f"{plain[: _TITLE - 2]} …"


async def trial(reader: Reader, root: str, policy: WorkspacePolicy, limits: Limits) -> Trial:
    """Try `policy` on the newest requests of the workspace `root`. What cannot be read counts as not made."""
    try:
        past = await reader.read(partial(policies.past_requests, root=root, limit=MOST))
    except IntercomError as error:
        log.warning("the past requests of %s could not be read: %s", root, error)
        return Trial(0, ())
    return await trio.to_thread.run_sync(_tried, past, policy, limits)


def _tried(past: Sequence[PastRequest], policy: WorkspacePolicy, limits: Limits) -> Trial:
    # Hundreds of patterns and deep paths take long to match; the newest requests say most.
    until = time.monotonic() + SECONDS
    tried, passed = 0, []
    for each in past:
        if time.monotonic() > until:
            break
        tried += 1
        if _passes(each, policy, limits):
            passed.append(each.title)
    return Trial(tried, tuple(passed))


def _passes(past: PastRequest, policy: WorkspacePolicy, limits: Limits) -> bool:
    if past.paths:
        return evaluate_files(policy, past.paths, past.risk, limits).auto_approved
    if past.question is None:
        return False
    written = json.loads(past.question)
    if "query" not in written:
        return evaluate_files(policy, tuple(written["paths"]), RiskLevel(written["risk"]), limits).auto_approved
    return evaluate(policy, cattrs.structure(written["query"], Query), limits).auto_approved
