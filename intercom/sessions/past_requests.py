"""Tries a policy on past requests of its workspace, to show which of them it would have approved."""

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

#: How many of the newest requests are tried; how long that may take, in seconds; how many are named.
MOST = 200
SECONDS = 1.0
_NAMED = 5
#: The longest part of a title that is shown, in characters.
_TITLE = 80

Question = Evaluate | EvaluateFiles


def to_text(question: Question | None) -> str | None:
    """Return a policy question as text for storage."""
    match question:
        case Evaluate(query):
            return json.dumps({"query": asdict(query)})
        case EvaluateFiles(paths, risk):
            return json.dumps({"paths": paths, "risk": risk})
        case None:
            return None


@frozen
class Trial:
    """The result of a trial: `passed` are the titles of approved requests among `tried` ones, newest first."""

    tried: int
    passed: tuple[str, ...]

    def sentence(self) -> str:
        """Describe the result to people."""
        if not self.tried:
            return "no request was made here before, so there is nothing to try it on"
        some = [_line(title) for title in self.passed[:_NAMED]]
        more = f"; and {len(self.passed) - _NAMED} more" if len(self.passed) > _NAMED else ""
        shown = f": {'; '.join(some)}{more}" if some else ""
        return f"would have let {len(self.passed)} of {self.tried} past requests pass{shown}"


def _line(title: str) -> str:
    """Return an agent's text as part of our line: on one line, with limited length."""
    plain = " ".join(title.split())
    return plain if len(plain) <= _TITLE else f"{plain[: _TITLE - 2]} …"


async def trial(reader: Reader, root: str, policy: WorkspacePolicy, limits: Limits) -> Trial:
    """Try `policy` on the newest requests of the workspace `root`. If they cannot be read, none count."""
    try:
        past = await reader.read(partial(policies.past_requests, root=root, limit=MOST))
    except IntercomError as error:
        log.warning("the past requests of %s could not be read: %s", root, error)
        return Trial(0, ())
    return await trio.to_thread.run_sync(_tried, past, policy, limits)


def _tried(past: Sequence[PastRequest], policy: WorkspacePolicy, limits: Limits) -> Trial:
    # Hundreds of patterns and deep paths match slowly; the newest requests matter most.
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
