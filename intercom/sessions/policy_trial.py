"""Policy questions as they are recorded with requests, and trials: what a policy would have let through in the past.

A trial looks at names alone. Links that lead to protected files are looked at when a policy is asked in earnest.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import cattrs
import trio
from attrs import asdict, frozen

from intercom.model.config import Config
from intercom.model.errors import IntercomError
from intercom.model.policy import WorkspacePolicy
from intercom.model.request import FileChange, RiskLevel
from intercom.store.store_and_reader import Reader
from intercom.store.trust import PastRequest, policies
from intercom.workspace.policy import Limits, Query, evaluate, evaluate_files
from intercom.workspace.policy_watcher import Evaluate, EvaluateFiles

log = logging.getLogger("intercom.sessions")

#: How many of the newest requests are tried; how long that may take, in seconds; how many are named.
MOST = 200
SECONDS = 1.0
_NAMED_REQUESTS = 5
#: The longest part of a title that is shown, in characters.
_TITLE = 80
_NOTHING_BEFORE = "has nothing to be tried on: this is the first request in this workspace"

Question = Evaluate | EvaluateFiles

#: The arguments in a question about a tool that is no command. With an operator among them no command rule matches: a
#: rule for a program is none for a tool.
NO_COMMAND = (";",)


def is_command(question: Question) -> bool:
    """Whether an operation is a command. A rule for a tool of this name is not a rule for a program of this name."""
    return isinstance(question, Evaluate) and question.query.args != NO_COMMAND


def to_text(question: Question | None) -> str | None:
    """Return a policy question as text for storage."""
    match question:
        case Evaluate(query):
            return json.dumps({"query": asdict(query)})
        case EvaluateFiles(paths, risk):
            return json.dumps({"paths": paths, "risk": risk})
        case None:
            return None


def question_of(files: Sequence[FileChange], risk: RiskLevel) -> EvaluateFiles:
    """Return the question about a proposed change of these files: both ends of a rename count."""
    return EvaluateFiles(tuple(path for file in files for path in file.paths), risk)


def from_text(text: str | None) -> Question | None:
    """Return the policy question that `to_text` wrote; None for none, and for what this version cannot read."""
    if text is None:
        return None
    try:
        written = json.loads(text)
        if "query" in written:
            return Evaluate(cattrs.structure(written["query"], Query))
        return EvaluateFiles(tuple(written["paths"]), RiskLevel(written["risk"]))
    except (ValueError, TypeError, KeyError, RecursionError, cattrs.BaseValidationError):
        return None


@frozen
class Trial:
    """The result of a trial: `passed` are the titles of approved requests among `tried` ones, newest first."""

    tried: int
    passed: tuple[str, ...]

    def sentence(self) -> str:
        """Describe the result to people."""
        if not self.tried:
            return _NOTHING_BEFORE
        some = [_line(title) for title in self.passed[:_NAMED_REQUESTS]]
        more = f"; and {len(self.passed) - _NAMED_REQUESTS} more" if len(self.passed) > _NAMED_REQUESTS else ""
        shown = f": {'; '.join(some)}{more}" if some else ""
        return f"would have let {len(self.passed)} of {self.tried} past requests pass{shown}"


def _line(title: str) -> str:
    """Return an agent's text as part of our line: on one line, with limited length."""
    plain = " ".join(title.split())
    return plain if len(plain) <= _TITLE else f"{plain[: _TITLE - 2]} …"


@frozen
class Comparison:
    """What another policy would change. Of `tried` past requests, the present policy lets `already` pass, and the other
    one also `newly`. A person is asked about `asked` either way. `newly` and `asked` are titles, newest first."""

    tried: int
    already: int
    newly: tuple[str, ...]
    asked: tuple[str, ...]

    def sentence(self) -> str:
        """Describe the result to people."""
        if not self.tried:
            return _NOTHING_BEFORE
        some = "; ".join(_line(title) for title in self.newly[:_NAMED_REQUESTS])
        more = f"; and {len(self.newly) - _NAMED_REQUESTS} more" if len(self.newly) > _NAMED_REQUESTS else ""
        shown = f": {some}{more}" if some else ""
        rest = f"{self.already} pass by the present policy, {len(self.asked)} would still be asked"
        return f"would have let {len(self.newly)} more of {self.tried} past requests pass{shown} ({rest})"


async def try_policy(
    reader: Reader,
    root: str,
    policy: WorkspacePolicy,
    limits: Limits,
    counts: Callable[[PastRequest], bool] = lambda _past: True,
) -> Trial:
    """Try `policy` on the newest requests of the workspace `root` that count. If they cannot be read, none do."""
    past = [each for each in await _past_requests(reader, root) if counts(each)]
    return await trio.to_thread.run_sync(_tried, past, policy, limits)


async def compare(
    reader: Reader, root: str, present: WorkspacePolicy, other: WorkspacePolicy, limits: Limits, *, shown: str
) -> Comparison:
    """Try two policies on the newest requests of the workspace `root` besides `shown`, the one that a person looks
    at."""
    past = [each for each in await _past_requests(reader, root) if each.id != shown]
    return await trio.to_thread.run_sync(_compared, past, present, other, limits)


async def _past_requests(reader: Reader, root: str) -> Sequence[PastRequest]:
    try:
        return await reader.read(partial(policies.past_requests, root=root, limit=MOST))
    except IntercomError as error:
        log.warning("the past requests of %s could not be read: %s", root, error)
        return ()


def _in_time(past: Sequence[PastRequest]) -> Iterator[PastRequest]:
    # Hundreds of patterns and deep paths match slowly; the newest requests matter most.
    until = time.monotonic() + SECONDS
    return itertools.takewhile(lambda _: time.monotonic() <= until, past)


def _tried(past: Sequence[PastRequest], policy: WorkspacePolicy, limits: Limits) -> Trial:
    tried, passed = 0, []
    for each in _in_time(past):
        tried += 1
        if passes(each, policy, limits):
            passed.append(each.title)
    return Trial(tried, tuple(passed))


def _compared(
    past: Sequence[PastRequest], present: WorkspacePolicy, other: WorkspacePolicy, limits: Limits
) -> Comparison:
    already, newly, asked = 0, [], []
    for each in _in_time(past):
        if passes(each, present, limits):
            already += 1
        elif passes(each, other, limits):
            newly.append(each.title)
        else:
            asked.append(each.title)
    return Comparison(already + len(newly) + len(asked), already, tuple(newly), tuple(asked))


def past_question(past: PastRequest) -> Question | None:
    """Return what a policy is asked about a past request; None if no policy may allow it."""
    return EvaluateFiles(past.paths, past.risk) if past.paths else from_text(past.question)


def passes(past: PastRequest, policy: WorkspacePolicy, limits: Limits) -> bool:
    """Return whether a policy would have let a past request pass."""
    question = past_question(past)
    match question:
        case EvaluateFiles(paths, risk):
            return evaluate_files(policy, paths, risk, limits).auto_approved
        case Evaluate(query):
            rule = evaluate(policy, query, limits).matched_rule or ""
            return rule.startswith("command:") if is_command(question) else bool(rule)
        case None:
            return False


def limits_of(config: Config) -> Limits:
    """Return the limits that the server's configuration sets for every workspace's policy."""
    allowlist = tuple(config.commands.values()) if config.policy.require_allowlist else None
    return Limits(config.policy.max_risk_level, allowlist)
