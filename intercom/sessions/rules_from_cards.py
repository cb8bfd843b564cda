"""Rules of a workspace's policy made from a card: what they would have let through is shown before they are written.

A rule is written into the policy file, and nothing more: it counts as soon as a person accepts the file's new content,
as with any other change of a policy. So a crash in between leaves a proposed policy that waits.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from intercom.local.own_files import replace
from intercom.local.places import private_directory
from intercom.model import crash_points
from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.grant import GrantKind, risk_of
from intercom.model.policy import (
    POLICY_FILE,
    PolicyAnswer,
    PolicyRule,
    RuleKind,
    RulePreview,
    RuleWritten,
    WorkspacePolicy,
    rules_of,
    with_rules,
)
from intercom.model.request import ApprovalRequest, RiskLevel
from intercom.sessions.grant_operations import card_of_request, still_waiting
from intercom.sessions.grants import kind_of, question_of
from intercom.sessions.policies import PolicyRegistry
from intercom.sessions.policy_trial import Question, compare, is_command, limits_of
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, requests, sessions
from intercom.store.requests import AnyRequest
from intercom.store.store_and_reader import Reader
from intercom.store.writer_messages import Database
from intercom.workspace import policy_edit, policy_file
from intercom.workspace.policy import widens
from intercom.workspace.policy_file import Loaded
from intercom.workspace.policy_rules import literal_command, literal_path
from intercom.workspace.policy_watcher import Evaluate, EvaluateFiles, PolicyState, answer_of
from intercom.workspace.preview import show_text

_SHORT = 12


@frozen
class RuleCalls:
    """The calls that make rules of a policy."""

    deps: SessionDeps
    reader: Reader
    registry: PolicyRegistry

    async def preview(self, prefix: str, *, pattern: str | None = None, risk: str | None = None) -> RulePreview:
        """Return the policy with rules that let what this card asks pass, and what they would have let through of the
        recorded requests. Without `pattern` they name exactly the card's files, command or tool. `risk` raises the
        policy's threshold, for all of its rules.

        Raises NotFound, Ambiguous and InvalidArguments, and InvalidState if a rule cannot let it pass, or if the file
        has a fault or other changes that wait.
        """
        request, session = await self.reader.read(partial(card_of_request, prefix=prefix))
        root = session.workspace_root
        question = question_of(request)
        loaded, state = await self._present(root)
        rules = tuple(
            rule for rule in rules_for(request, pattern) if rule.text not in rules_of(loaded.policy, rule.kind)
        )
        threshold = _threshold(loaded.policy, question, request.risk_level, risk_of(risk))
        wanted = with_rules(loaded.policy, rules, threshold)
        if wanted == loaded.policy:
            raise InvalidState("the policy has this rule already; look at it with policy show")
        await self._require_passing(root, wanted, question)
        waiting = await self._waiting(root, wanted)
        text = policy_edit.edited(loaded.text, rules, threshold)
        source = loaded.source or POLICY_FILE
        limits = limits_of(self.deps.config)
        trial = await compare(self.reader, root, state.policy, wanted, limits, shown=request.id)
        return RulePreview(
            request_id=request.id,
            workspace_root=root,
            source=source,
            rules=tuple(rule.sentence() for rule in rules),
            ways=widens(state.in_force.policy, wanted),
            trial=trial.sentence(),
            diff=show_text(source, loaded.text, text).diff or "",
            text=text,
            sha256=_hash(text),
            base_sha256=loaded.sha256,
            waiting=waiting,
        )

    async def write(
        self, prefix: str, by: str, *, pattern: str | None = None, risk: str | None = None, shown: str | None = None
    ) -> RuleWritten:
        """Write the rules into the policy file. `shown` is the hash of the file that the person was shown: any other is
        not written, and one that is written already is left. The earlier content is kept outside of the workspace.
        Raises as `preview`, and FileError."""
        _, session = await self.reader.read(partial(card_of_request, prefix=prefix))
        root = session.workspace_root
        async with self.deps.locks.hold(root):
            loaded = await trio.to_thread.run_sync(policy_file.load, Path(root))
            wanted, backup = shown, None
            if wanted is None or loaded.sha256 != wanted:
                found = await self.preview(prefix, pattern=pattern, risk=risk)
                if wanted not in (None, found.sha256):
                    raise InvalidState(
                        f"the policy file of {root} has changed since this was shown, and nothing was written; look at"
                        " it again"
                    )
                wanted = found.sha256
                backup = await trio.to_thread.run_sync(self._write, found)
                await self.deps.store.transact(partial(_record, found=found, by=by, backup=backup, at=self.deps.now()))
        crash_points.reach("policy.written")
        status = await self.registry.status(root)
        if status.sha256 != wanted:
            # Another program was faster. Nobody has seen what it wrote, so it must not be accepted for this.
            raise InvalidState(f"the policy file of {root} was changed just now, and nothing was accepted; look at it")
        return RuleWritten(
            workspace_root=root,
            source=status.source or POLICY_FILE,
            sha256=wanted,
            status="in force" if status.request_id is None else "waiting",
            policy_id=status.request_id,
            backup=backup,
        )

    async def _present(self, root: str) -> tuple[Loaded, PolicyState]:
        """Return the policy file, and the state of the policy. Raises InvalidState if no rule may be added now."""
        state = await self.registry.look(root)
        loaded = await trio.to_thread.run_sync(policy_file.load, Path(root))
        if loaded.fault is not None:
            raise InvalidState(f"the policy file has a fault, so nothing is added to it: {loaded.fault}")
        if state.proposed is not None:
            # Otherwise a person would accept those changes with this one.
            raise InvalidState(
                f"the policy file of {root} has other changes, which nobody has accepted: accept them first, or take"
                " them out (policy show)"
            )
        has_rules = any(rules_of(loaded.policy, kind) for kind in RuleKind)
        if has_rules and not loaded.policy.enabled:
            raise InvalidState(
                "the policy is switched off, and its other rules would count again: switch it on in the file yourself"
            )
        return loaded, state

    async def _require_passing(self, root: str, wanted: WorkspacePolicy, question: Question) -> None:
        limits = limits_of(self.deps.config)
        answer = await trio.to_thread.run_sync(answer_of, Path(root), wanted, question, limits)
        if not _passes(answer, question):
            raise InvalidState(f"no such rule lets this card itself pass: {answer.why or 'the rule is for a tool'}")

    async def _waiting(self, root: str, wanted: WorkspacePolicy) -> tuple[str, ...]:
        def fits(_request: ApprovalRequest, question: Question) -> bool:
            return _passes(answer_of(Path(root), wanted, question, limits_of(self.deps.config)), question)

        found = await self.reader.read(partial(_pending_in, root=root))
        return await trio.to_thread.run_sync(still_waiting, found, fits)

    def _write(self, found: RulePreview) -> str | None:
        """Write the file, and return where its earlier content is kept."""
        root = Path(found.workspace_root)
        earlier = policy_file.load(root)
        if earlier.sha256 != found.base_sha256:
            raise InvalidState("the policy file has changed just now, and nothing was written; look at it again")
        backup = None if earlier.text is None else self._keep(found.workspace_root, earlier.text, self.deps.now())
        policy_edit.write(root, found.source, found.base_sha256, found.text)
        return backup

    def _keep(self, root: str, text: str, at: datetime) -> str:
        """Keep a policy file's content in the state directory, and return the path."""
        state = self.deps.signatures.keyring.places.state_dir
        directory = Path(private_directory(f"{state}/policy-backups"), _hash(root)[:_SHORT])
        private_directory(str(directory))
        backup = directory / f"{at:%Y%m%dT%H%M%SZ}-{_hash(text)[:_SHORT]}.json"
        replace(backup, text.encode("utf-8", "surrogatepass"))
        return str(backup)


def _passes(answer: PolicyAnswer, question: Question) -> bool:
    is_matched = not is_command(question) or (answer.matched_rule or "").startswith("command:")
    return answer.auto_approved and is_matched


def _pending_in(db: Database, root: str) -> tuple[AnyRequest, ...]:
    here = {each.id for each in sessions.live(db) if each.workspace_root == root}
    return tuple(each for each in requests.pending(db) if each.session_id in here)


def _record(db: Database, found: RulePreview, by: str, backup: str | None, at: datetime) -> None:
    data = {
        "workspace_root": found.workspace_root,
        "source": found.source,
        "rules": list(found.rules),
        "request_id": found.request_id,
        "sha256": found.sha256,
        "backup": backup,
    }
    summary = f"added to the policy file of {found.workspace_root}: {', '.join(found.rules) or 'a higher threshold'}"
    audit.record(db, at, "policy_rule", None, by, summary, data)


def rules_for(request: ApprovalRequest, pattern: str | None) -> tuple[PolicyRule, ...]:
    """Return the rules that let pass what a card asks: of its files, its command or its tool, and of nothing else.
    `pattern` stands in their place. Raises InvalidState and InvalidArguments."""
    question = question_of(request)
    kind = _KINDS[kind_of(question, request.tool)]
    if pattern is not None:
        if kind is RuleKind.TOOL:
            raise InvalidArguments("a pattern is for files and commands; this is a use of a tool")
        return (PolicyRule(kind, pattern),)
    match question:
        case EvaluateFiles(paths):
            return tuple(PolicyRule(kind, literal_path(path)) for path in dict.fromkeys(paths))
        case Evaluate(query) if kind is RuleKind.COMMAND:
            return (PolicyRule(kind, literal_command(query.tool_name)),)
        case Evaluate(query):
            return (PolicyRule(kind, query.tool_name if query.file_path is None else literal_path(query.file_path)),)


_KINDS = {
    GrantKind.CHANGE: RuleKind.WRITE,
    GrantKind.WRITE: RuleKind.WRITE,
    GrantKind.COMMAND: RuleKind.COMMAND,
    GrantKind.READ: RuleKind.READ,
    GrantKind.TOOL: RuleKind.TOOL,
}


def _threshold(policy: WorkspacePolicy, question: Question, card: RiskLevel, given: RiskLevel | None) -> RiskLevel:
    """Return the threshold of the new policy. Raises InvalidState if the card's risk is above it."""
    asked = question.risk if isinstance(question, EvaluateFiles) else question.query.risk
    present = policy.risk_level_threshold
    chosen = present if given is None or given.rank < present.rank else given
    highest = max(asked, card, key=lambda risk: risk.rank)
    if highest is RiskLevel.CRITICAL:
        raise InvalidState("a critical risk always needs a person")
    if highest.rank > chosen.rank:
        raise InvalidState(
            f"the card's risk is {highest}, and the policy lets pass up to {chosen}: add --risk {highest} to raise that"
            " for all of its rules"
        )
    return chosen


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
