"""The board of policies: which is in force where, which wait for a person's decision, and what was decided.

The watchers find out, this remembers and tells. It lives as long as the server, so that a watcher that crashes comes
back to what was in force and not to whatever its file says by then.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

import trio
from attrs import define, evolve, field, frozen

from actors import ChildSpec, Down, Name, NotRunning, System, ask
from intercom.model import crash_points
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.config import Config
from intercom.model.errors import AlreadyDecided, Ambiguous, InvalidArguments, InvalidState, NotFound
from intercom.model.policy import DENY_ALL, PolicyDecision, WorkspacePolicy, describe
from intercom.model.verdict import Decided, Decision, Verdict, signature_data
from intercom.sessions import past_requests
from intercom.sessions.signatures import Signatures, without_keys
from intercom.store import audit, policies
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader
from intercom.workspace import paths, policy_file
from intercom.workspace.hashing import digest
from intercom.workspace.messages import Current, PolicyDecided
from intercom.workspace.policy import Limits
from intercom.workspace.policy_state import PolicyRecord, PolicyState, record_of, started
from intercom.workspace.preview import show_text
from intercom.workspace.watcher import PolicyWatcher, watcher_name

log = logging.getLogger("intercom.sessions")

#: How many cards of one workspace may close undecided, as its file changes, within how long: then no more are shown.
MOST_CLOSED = 10
CLOSED_WITHIN = timedelta(hours=1)
#: How long deciding may take, and reading what was decided before, in seconds.
_SECONDS = 30.0


def limits_of(config: Config) -> Limits:
    """What the server's configuration sets above every workspace's policy."""
    allowlist = tuple(config.commands.values()) if config.policy.require_allowlist else None
    return Limits(config.policy.max_risk_level, allowlist)


@frozen
class PolicyStatus:
    """How a workspace's policy stands, for people. `request_id` is the card's that a decision about the file's content
    answers, or would answer; None where there is nothing to decide."""

    workspace_root: str
    status: str
    source: str | None
    sha256: str | None
    grants: str
    text: str | None = None
    ways: tuple[str, ...] = ()
    trial: str | None = None
    fault: str | None = None
    accepted_sha256: str | None = None
    accepted_by: str | None = None
    accepted_channel: str | None = None
    accepted_at: datetime | None = None
    request_id: str | None = None


@define
class PolicyBoard:
    """`states` is how things stand where a watcher has looked."""

    system: System
    store: Name
    operators: Name
    reader: Reader
    now: Callable[[], datetime]
    config: Config
    signatures: Signatures = field(factory=without_keys)
    states: dict[str, PolicyState] = field(factory=dict)
    _cards: dict[str, Card] = field(factory=dict)
    #: What was decided about each content of each workspace, in order, True for accepted.
    _decisions: dict[tuple[str, str], list[bool]] = field(factory=dict)
    #: How often a card of it was closed undecided, as the file changed again.
    _closed: Counter[tuple[str, str]] = field(factory=Counter)
    _closed_at: dict[str, deque[datetime]] = field(factory=dict)
    _told: set[tuple[str, str]] = field(factory=set)
    _deciding: trio.Lock = field(factory=trio.Lock)

    def in_force(self, workspace_root: str) -> WorkspacePolicy:
        """The policy that decides now; deny-all where no watcher has looked yet."""
        state = self.states.get(workspace_root)
        return DENY_ALL if state is None else state.policy

    def watcher(self, workspace_root: str) -> ChildSpec:
        """The spec of the workspace's watcher."""

        def start() -> PolicyWatcher:
            return PolicyWatcher(
                Path(workspace_root),
                partial(self.changed, workspace_root),
                partial(self.recall, workspace_root),
                trust_changes=lambda: self.signatures.allowed().trust_changes,
                limits=limits_of(self.config),
            )

        return ChildSpec(watcher_name(Path(workspace_root)), start)

    async def recall(self, workspace_root: str) -> PolicyRecord:
        """What people have decided before about this workspace's policy."""
        work = partial(_recorded, root=workspace_root)
        found = await ask(self.store, Transact(work), timeout=_SECONDS, retry=True)
        decisions = tuple(each for each in found.decisions if self._is_signed(each))
        self._count(workspace_root, decisions)
        record, state = record_of(decisions, found.narrowing), self.states.get(workspace_root)
        if record.accepted is not None and (
            self._is_overtaken(record.accepted, found.logged) or self._is_widened(record.accepted, found)
        ):
            record = evolve(record, accepted=None, narrowing=None)
        if state is not None and state.record.accepted == record.accepted:
            # A write of it may have been lost; what this server run knows was not.
            return evolve(record, narrowing=state.narrowing)
        return record

    def _is_signed(self, decision: PolicyDecision) -> bool:
        """Whether what is on record counts; where there is an operator key, only what was signed lets anything pass."""
        if not decision.accepted:
            return True
        card = _decided_card(decision)
        fault = self.signatures.fault_of_card(decision.decided, card, Decision.ACCEPT, Decision.APPROVE)
        if fault is not None:
            self._discount(decision, fault)
        return fault is None

    def _is_overtaken(self, accepted: PolicyDecision, logged: tuple[tuple[str, bool], ...]) -> bool:
        """Whether the audit log has a later decision than the acceptance that stands in the database: a signature stays
        genuine when the rows after its own are removed. Of what is no longer in the log it says nothing."""
        if not self.signatures.required:
            return False
        last = None
        for content, is_accepted in logged:
            if is_accepted:
                last = content
            elif content == accepted.sha256:
                last = ""
        if last is None or last == accepted.sha256:
            return False
        self._discount(accepted, "the audit log has a later decision")
        return True

    def _is_widened(self, accepted: PolicyDecision, found: _Recorded) -> bool:
        """Whether what the file has taken away since the acceptance is not on record as the audit log has it. Of what
        is no longer in the log it says nothing."""
        if found.narrowing_logged is None or found.narrowing_logged == _hash_of(found.narrowing):
            return False
        self._discount(accepted, "the audit log has something else that its file took away since; accept it again")
        return True

    def _discount(self, accepted: PolicyDecision, fault: str) -> None:
        """Tell people, once, that an acceptance that is on record does not count."""
        if (accepted.id, fault) not in self._told:
            self._told.add((accepted.id, fault))
            self._tell(f"the policy of {accepted.workspace_root} that is on record as accepted does not count: {fault}")

    async def changed(self, workspace_root: str, state: PolicyState) -> None:
        """A watcher's news: remember it, keep it for after a restart, and tell people what they have to know."""
        before = self.states.get(workspace_root)
        self.states[workspace_root] = state
        if state.record.accepted is not None and (before is None or before.narrowing != state.narrowing):
            keep = partial(_narrow, root=workspace_root, state=state, at=self.now())
            self.store.tell(Transact(keep))
        if state.fault is not None and (before is None or before.fault != state.fault):
            self._tell(f"the policy of {workspace_root} is not usable, so nothing is auto-approved: {state.fault}")
        self._tell_in_force(workspace_root, state)
        await self._show(workspace_root, state)

    def cards(self) -> tuple[Card, ...]:
        """The policies that wait for a person."""
        return tuple(card for card in self._cards.values() if card.state is CardState.PENDING)

    async def find(self, prefix: str) -> Card | None:
        """The card of a policy by id or unique prefix, also one that an earlier server run decided; None when none
        fits."""
        found = [card for card in self._cards.values() if card.id.startswith(prefix)] if prefix else []
        exact = [card for card in found if card.id == prefix]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found or not prefix.startswith("policy-"):
            return None
        earlier = await self.reader.read(partial(policies.decision, id=prefix))
        return None if earlier is None else _decided_card(earlier)

    async def status(self, prefix_or_path: str) -> PolicyStatus:
        """How one policy stands, by the id of its card or by its workspace. Raises NotFound, Ambiguous,
        WorkspaceRefused."""
        root = await self._root(prefix_or_path)
        return await self._status(root, await self._look(root), whole=True)

    async def all(self) -> tuple[PolicyStatus, ...]:
        """How the policies stand of all workspaces that have a decision, or that were looked at in this server run."""
        roots = {*await self.reader.read(policies.roots), *self.states}
        return tuple([await self._status(root, await self._look(root)) for root in sorted(roots)])

    async def decide_named(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card:
        """Accept or reject the content of a policy file, by the id of its card or by its workspace, which need not have
        an agent; without a name, the only one that waits. `shown` is the hash of the content that the person was shown:
        any other is refused. Raises NotFound, Ambiguous, AlreadyDecided, InvalidState."""
        card = await self._asked_for(prefix_or_path)
        if shown is not None and card.detail != shown:
            raise InvalidState(f"the policy of {card.workspace_root} has changed since it was shown; look at it again")
        return await self.decide(card, verdict)

    async def decide(self, card: Card, verdict: Verdict) -> Card:
        """Accept the content that the card shows, or reject it. The first verdict wins; the same one again is answered
        as the first time."""
        async with self._deciding:
            # Another may have decided while this one waited.
            return await self._decide(self._cards.get(card.id, card), verdict)

    async def _decide(self, card: Card, verdict: Verdict) -> Card:
        if card.decided is not None and card.decided.verdict_id == verdict.id:
            return card
        if card.state is not CardState.PENDING:
            raise AlreadyDecided(f"the policy change {card.id} is no longer open; nothing was changed")
        is_accepted = verdict.decision in (Decision.ACCEPT, Decision.APPROVE)
        if not is_accepted and verdict.decision is not Decision.REJECT:
            raise InvalidArguments("answer a policy change with accept or reject")
        state = await self._look(card.workspace_root)
        # The news of it may have closed the card.
        if self._cards.get(card.id, card).state is not CardState.PENDING or state.proposed is None:
            raise AlreadyDecided(f"the policy change {card.id} is no longer open; nothing was changed")
        if state.proposed.sha256 != card.detail:
            raise NotFound("the policy file has changed since this was shown; look at the policy file as it is now")
        signature = self.signatures.admit(verdict, card, self.now())
        decided = Decided.of(verdict, self.now(), signature)
        decision = PolicyDecision(
            card.id, card.workspace_root, state.proposed.sha256, state.proposed.text, is_accepted, decided
        )
        # On record before it is in force: a crash in between changes nothing of what a person has decided.
        await ask(self.store, Transact(partial(_record, decision=decision)), timeout=_SECONDS, retry=True)
        crash_points.reach("verdict.recorded")
        done = evolve(card, state=CardState.APPLIED if is_accepted else CardState.REJECTED, decided=decided)
        self._cards[card.id] = done
        self._decisions.setdefault((card.workspace_root, decision.sha256), []).append(is_accepted)
        self.operators.tell(done)
        try:
            watcher = self.system.named(watcher_name(Path(card.workspace_root)))
            await ask(watcher, PolicyDecided(decision), timeout=_SECONDS)
        except (NotRunning, Down):
            # No agent has been here, or the watcher restarts: whoever watches next reads what is on record.
            if is_accepted:
                self._tell(f"the policy of {card.workspace_root} was accepted by {_who(decided)}", "info")
        return done

    # --- what is looked at -------------------------------------------------------------------------------------------

    async def _look(self, root: str) -> PolicyState:
        """How the policy of a workspace stands at this moment; its file is read again."""
        if self.system.ref(watcher_name(Path(root))) is not None:
            try:
                watcher = self.system.named(watcher_name(Path(root)))
                return await ask(watcher, Current(), timeout=_SECONDS, retry=True)
            except NotRunning:
                pass
        record = await self.recall(root)
        loaded = await trio.to_thread.run_sync(policy_file.load, Path(root))
        return started(loaded, record, self.signatures.allowed().trust_changes)

    async def _root(self, prefix_or_path: str) -> str:
        """The canonical workspace that a path names, or that the card of this id is about."""
        if "/" in prefix_or_path:
            return str(await trio.to_thread.run_sync(paths.check_workspace, prefix_or_path))
        card = await self.find(prefix_or_path)
        if card is None:
            raise NotFound(f"no policy has the id {prefix_or_path}; see policy list")
        return card.workspace_root

    async def _asked_for(self, prefix_or_path: str | None) -> Card:
        """The card of what a person decides about: the one that waits, or one made for the workspace they name."""
        waiting = self.cards()
        if prefix_or_path is not None and "/" in prefix_or_path:
            root = await self._root(prefix_or_path)
            state = await self._look(root)
            if state.fault is not None:
                raise InvalidState(f"the policy of {root} cannot be decided about: {state.fault}")
            if state.proposed is None:
                what = "has no policy file" if state.source is None else "needs no acceptance: it grants nothing more"
                raise NotFound(f"{root} {what}")
            id = self._id(root, state.proposed.sha256)
            return self._cards.get(id) or await self._new_card(id, root, state)
        if prefix_or_path is not None:
            waiting = tuple(card for card in waiting if card.id.startswith(prefix_or_path))
        if not waiting:
            earlier = None if prefix_or_path is None else await self.find(prefix_or_path)
            if earlier is not None:
                return earlier
            raise NotFound("no policy change waits for a decision")
        if len(waiting) > 1:
            raise Ambiguous(f"{len(waiting)} policy changes wait ({', '.join(c.id for c in waiting)}); name one")
        return waiting[0]

    async def _status(self, root: str, state: PolicyState, whole: bool = False) -> PolicyStatus:
        proposed, accepted = state.proposed, state.record.accepted
        is_rejected = proposed is not None and self._is_rejected(root, proposed.sha256)
        if state.fault is not None:
            status = "faulty"
        elif proposed is not None:
            status = "rejected" if is_rejected else "waiting"
        elif state.is_trusted and state.policy.grants:
            status = "trusted"
        else:
            status = "in force" if state.policy.grants else "grants nothing"
        trial = None
        if proposed is not None and whole:
            tried = await past_requests.trial(self.reader, root, proposed.policy, limits_of(self.config))
            trial = tried.sentence()
        return PolicyStatus(
            workspace_root=root,
            status=status,
            source=state.source,
            sha256=state.in_force.sha256 if proposed is None else proposed.sha256,
            grants=describe(state.policy),
            text=(state.in_force.text if proposed is None else proposed.text) if whole else None,
            ways=() if proposed is None else proposed.ways,
            trial=trial,
            fault=state.fault,
            accepted_sha256=None if accepted is None else accepted.sha256,
            accepted_by=None if accepted is None else accepted.decided.by,
            accepted_channel=None if accepted is None else accepted.decided.channel,
            accepted_at=None if accepted is None else accepted.decided.at,
            request_id=None if proposed is None else self._id(root, proposed.sha256),
        )

    # --- what people are shown ---------------------------------------------------------------------------------------

    async def _show(self, workspace_root: str, state: PolicyState) -> None:
        proposed = state.proposed
        wanted = None if proposed is None else self._id(workspace_root, proposed.sha256)
        for id, card in list(self._cards.items()):
            if id != wanted and card.workspace_root == workspace_root and card.state is CardState.PENDING:
                self._cards[id] = evolve(card, state=CardState.CLOSED, note="the policy file has changed again")
                self._closed[workspace_root, card.detail or ""] += 1
                self._closed_at.setdefault(workspace_root, deque(maxlen=MOST_CLOSED)).append(self.now())
                self.operators.tell(self._cards[id])
        if proposed is None or wanted is None or self._is_rejected(workspace_root, proposed.sha256):
            # What was rejected is not asked again.
            return
        if wanted not in self._cards and self._may_ask(workspace_root):
            self.operators.tell(await self._new_card(wanted, workspace_root, state))

    async def _new_card(self, id: str, workspace_root: str, state: PolicyState) -> Card:
        proposed, accepted = state.proposed, state.record.accepted
        assert proposed is not None, "only what waits has a card"
        tried = await past_requests.trial(self.reader, workspace_root, proposed.policy, limits_of(self.config))
        lines = [f"grants {describe(proposed.policy)}", tried.sentence()]
        if accepted is not None and accepted.sha256 == proposed.sha256:
            lines.append(f"this content was accepted by {_who(accepted.decided)}; its file has granted less since")
        above = next((root for root in self.states if root != workspace_root and _is_below(workspace_root, root)), None)
        if above is not None:
            lines.append(f"this workspace lies in {above}, which has a policy of its own")
        # Last: there may be many, and a channel may cut them.
        lines += proposed.ways
        title = "The policy file grants more than was accepted" if accepted else "Nobody has accepted this policy here"
        shown = show_text(
            state.source or policy_file.POLICY_FILE, accepted.text if accepted is not None else None, proposed.text
        )
        self._cards[id] = Card(
            id=id,
            kind=CardKind.POLICY,
            session_id="",
            workspace_root=workspace_root,
            title=title,
            created_at=self.now(),
            body="\n".join(lines),
            detail=proposed.sha256,
            diff=shown.diff,
            remarks=shown.remarks,
        )
        return self._cards[id]

    def _id(self, workspace_root: str, sha: str) -> str:
        """The id of the card that asks for this content of this workspace, until it is decided."""
        # Others may have the same file, and none may decide for them.
        times = len(self._decisions.get((workspace_root, sha), ())) + self._closed[workspace_root, sha]
        name = sha256(f"{workspace_root}\0{sha}\0{times}".encode("utf-8", "surrogateescape")).hexdigest()
        return f"policy-{name[:16]}"

    def _may_ask(self, workspace_root: str) -> bool:
        """Whether one more card may be shown for a file that has changed again and again: not without end."""
        closed = self._closed_at.get(workspace_root)
        if closed is None or len(closed) < MOST_CLOSED or self.now() - closed[0] >= CLOSED_WITHIN:
            return True
        if (workspace_root, "busy") not in self._told:
            self._told.add((workspace_root, "busy"))
            self._tell(
                f"the policy file of {workspace_root} changes again and again, so no more cards are shown for it:"
                f" agent-intercom-ctl policy show {workspace_root}"
            )
        return False

    def _is_rejected(self, workspace_root: str, sha: str) -> bool:
        return not self._decisions.get((workspace_root, sha), [True])[-1]

    def _count(self, workspace_root: str, decisions: tuple[PolicyDecision, ...]) -> None:
        for key in [key for key in self._decisions if key[0] == workspace_root]:
            del self._decisions[key]
        for each in decisions:
            self._decisions.setdefault((workspace_root, each.sha256), []).append(each.accepted)

    def _tell_in_force(self, root: str, state: PolicyState) -> None:
        """Tell, and put on record, that a policy has come into force: once a server run for each content."""
        if not state.policy.grants or (root, state.in_force.sha256) in self._told:
            return
        self._told.add((root, state.in_force.sha256))
        accepted = state.record.accepted
        if state.is_trusted:
            by = "accepted by nobody, as [policy] trust_changes says"
        else:
            assert accepted is not None, "nothing else is ever in force"
            by = f"accepted by {_who(accepted.decided)}"
            by += "" if accepted.sha256 == state.in_force.sha256 else ", narrowed by the file since"
        where = f"{root}/{state.source}" if state.source else root
        text = f"the policy {where} is in force, {by}: {describe(state.policy)}"
        self._tell(text, "info")
        data = {
            "workspace_root": root,
            "source": state.source,
            "sha256": state.in_force.sha256,
            "accepted_sha256": None if accepted is None or state.is_trusted else accepted.sha256,
        }
        kept = partial(
            audit.record, at=self.now(), kind="policy_in_force", session_id=None, who="policy", summary=text, data=data
        )
        self.store.tell(Transact(kept))

    def _tell(self, text: str, level: str = "warning") -> None:
        self.operators.tell(Notice(text, level, self.now()))


@frozen
class _Recorded:
    """What is on record about a workspace's policy. `logged` and `narrowing_logged` are the audit log's."""

    decisions: tuple[PolicyDecision, ...]
    narrowing: str | None
    logged: tuple[tuple[str, bool], ...]
    narrowing_logged: str | None


def _recorded(db: Database, root: str) -> _Recorded:
    return _Recorded(
        policies.decisions(db, root),
        policies.narrowing(db, root),
        audit.policy_decisions(db, root),
        audit.policy_narrowing(db, root),
    )


def _hash_of(narrowing: str | None) -> str:
    """The hash by which the audit log names what a policy was narrowed to; "" for not at all."""
    return "" if narrowing is None else digest(narrowing.encode("utf-8", "surrogatepass"))


def _narrow(db: Database, root: str, state: PolicyState, at: datetime) -> None:
    """Note what the file has taken away. It counts for as long as the row stands, and the audit trail tells of it."""
    policies.narrow(db, root, state.narrowing, at)
    logged, narrowing = audit.policy_narrowing(db, root), _hash_of(state.narrowing)
    if logged == narrowing or (logged is None and not narrowing):
        return
    data = {"workspace_root": root, "sha256": state.in_force.sha256, "narrowing": narrowing or None}
    if narrowing:
        kind, text = "policy_narrowed", f"the policy file of {root} grants less than was accepted"
    else:
        kind, text = "policy_widened", f"the policy file of {root} grants what was accepted, as nobody is asked"
    audit.record(db, at, kind, None, "policy", f"{text}: {describe(state.in_force.policy)}", data)


def _record(db: Database, decision: PolicyDecision) -> None:
    if not policies.record(db, decision):
        return
    decided = decision.decided
    audit.record(
        db,
        decided.at,
        "policy_accept" if decision.accepted else "policy_reject",
        None,
        decided.by,
        f"the policy of {decision.workspace_root}",
        {
            "request_id": decision.id,
            "workspace_root": decision.workspace_root,
            "sha256": decision.sha256,
            "channel": decided.channel,
            "origin": None if decided.origin is None else decided.origin.to_data(),
            "signature": signature_data(decided.signature),
        },
    )


def _decided_card(decision: PolicyDecision) -> Card:
    """The card of a decision that an earlier server run took."""
    return Card(
        id=decision.id,
        kind=CardKind.POLICY,
        session_id="",
        workspace_root=decision.workspace_root,
        title="A policy that was decided about",
        created_at=decision.decided.at,
        state=CardState.APPLIED if decision.accepted else CardState.REJECTED,
        detail=decision.sha256,
        diff=show_text(policy_file.POLICY_FILE, None, decision.text).diff,
        decided=decision.decided,
    )


def _who(decided: Decided) -> str:
    return f"{decided.by} ({decided.channel}) on {decided.at:%Y-%m-%d %H:%M} UTC"


def _is_below(path: str, root: str) -> bool:
    return Path(root) in Path(path).parents
