"""The policies of all workspaces: which is in force, which wait for a person, and what each would have let pass.

The watchers read the files; the registry keeps the state and tells people. It lives as long as the server, so a watcher
that crashed continues with the policy in force, not with the file's current content.
"""

from __future__ import annotations

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
from intercom.model.card import Card, CardKind, CardState, Notice, end_of
from intercom.model.config import Config
from intercom.model.decision import Decided, Decision, Verdict, signature_data
from intercom.model.errors import AlreadyDecided, Ambiguous, InvalidState, NotFound
from intercom.model.policy import DENY_ALL, POLICY_FILE, PolicyDecision, PolicyStatus, WorkspacePolicy, describe
from intercom.sessions.policy_trial import limits_of, try_policy
from intercom.sessions.signatures import Signatures, without_keys
from intercom.store import audit
from intercom.store.store_and_reader import Reader, Store
from intercom.store.trust import policies
from intercom.store.writer_messages import Database
from intercom.workspace import files, policy_file
from intercom.workspace.files import digest
from intercom.workspace.policy_watcher import (
    Current,
    PolicyDecided,
    PolicyRecord,
    PolicyState,
    PolicyWatcher,
    record_of,
    started,
    watcher_name,
)
from intercom.workspace.preview import show_text

#: How many cards of one workspace may close undecided, and within what time, before no more are shown.
MOST_CLOSED = 10
CLOSED_WITHIN = timedelta(hours=1)
#: Time limit of a decision, and of reading earlier ones, in seconds.
_SECONDS = 30.0


@define
class PolicyRegistry:
    """`states` holds the policy state of each workspace that a watcher has read."""

    system: System
    store: Store
    card_router: Name
    reader: Reader
    now: Callable[[], datetime]
    config: Config
    signatures: Signatures = field(factory=without_keys)
    states: dict[str, PolicyState] = field(factory=dict)
    _cards: dict[str, Card] = field(factory=dict)
    #: The decisions about each content of each workspace, in order. True is accepted.
    _decisions: dict[tuple[str, str], list[bool]] = field(factory=dict)
    #: How often a card of this content closed undecided because the file changed again.
    _closed: Counter[tuple[str, str]] = field(factory=Counter)
    _closed_at: dict[str, deque[datetime]] = field(factory=dict)
    _told: set[tuple[str, str]] = field(factory=set)
    _deciding: trio.Lock = field(factory=trio.Lock)

    def in_force(self, workspace_root: str) -> WorkspacePolicy:
        """Return the policy in force; deny-all if no watcher has read it yet."""
        state = self.states.get(workspace_root)
        return DENY_ALL if state is None else state.policy

    def watcher(self, workspace_root: str) -> ChildSpec:
        """Return the spec of the workspace's watcher."""

        def start() -> PolicyWatcher:
            return PolicyWatcher(
                Path(workspace_root),
                partial(self.changed, workspace_root),
                partial(self.recall, workspace_root),
                trust_changes=lambda: self.signatures.keyring.allowed().trust_changes,
                limits=limits_of(self.config),
            )

        return ChildSpec(watcher_name(Path(workspace_root)), start)

    async def recall(self, workspace_root: str) -> PolicyRecord:
        """Return people's earlier decisions about this workspace's policy."""
        work = partial(_recorded, root=workspace_root)
        found = await self.store.transact(work)
        decisions = tuple(each for each in found.decisions if self._is_signed(each))
        self._count(workspace_root, decisions)
        record, state = record_of(decisions, found.narrowing), self.states.get(workspace_root)
        if record.accepted is not None and (
            self._is_overtaken(record.accepted, found.logged) or self._is_widened(record.accepted, found)
        ):
            record = evolve(record, accepted=None, narrowing=None)
        if state is not None and state.record.accepted == record.accepted:
            # Its write may have been lost; the state of this server run is complete.
            return evolve(record, narrowing=state.narrowing)
        return record

    def _is_signed(self, decision: PolicyDecision) -> bool:
        """Return whether a recorded decision counts. If an operator key exists, an unsigned acceptance does not."""
        if not decision.accepted:
            return True
        fault = self._fault_of(decision)
        if fault is not None:
            self._discount(decision, fault)
        return fault is None

    def unsigned_notice(self) -> str | None:
        """Return what to tell people about policies that are in force and were accepted without a signature, before
        there was an operator key. The next server does not count such an acceptance. Returns None if there are none."""
        roots = [
            root
            for root, state in sorted(self.states.items())
            if (accepted := state.record.accepted) is not None and self._fault_of(accepted) is not None
        ]
        if not roots:
            return None
        named = f"the policy of {roots[0]} was" if len(roots) == 1 else f"the policies of {' and '.join(roots)} were"
        it = "it" if len(roots) == 1 else "them"
        return f"{named} accepted without a signature: the next server asks you to accept {it} again, with your key"

    def _fault_of(self, accepted: PolicyDecision) -> str | None:
        card = _decided_card(accepted)
        return self.signatures.fault_of_card(accepted.decided, card, Decision.ACCEPT, Decision.APPROVE)

    def _is_overtaken(self, accepted: PolicyDecision, logged: tuple[tuple[str, bool], ...]) -> bool:
        """Return whether the audit log has a later decision than the stored acceptance. A signature stays genuine if
        the later rows are deleted. Entries that are gone from the log cannot be checked."""
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
        """Return whether the stored narrowing of the policy differs from the audit log's. Entries that are gone from
        the log cannot be checked."""
        if found.narrowing_logged is None or found.narrowing_logged == _hash_of(found.narrowing):
            return False
        self._discount(accepted, "the audit log records that its file removed something else since; accept it again")
        return True

    def _discount(self, accepted: PolicyDecision, fault: str) -> None:
        """Tell people, once, that a recorded acceptance does not count."""
        if (accepted.id, fault) not in self._told:
            self._told.add((accepted.id, fault))
            self._tell(f"the policy of {accepted.workspace_root} that is recorded as accepted does not count: {fault}")

    async def changed(self, workspace_root: str, state: PolicyState) -> None:
        """Handle a watcher's news: store the state, persist it for a restart, and tell people."""
        before = self.states.get(workspace_root)
        self.states[workspace_root] = state
        if state.record.accepted is not None and (before is None or before.narrowing != state.narrowing):
            keep = partial(_narrow, root=workspace_root, state=state, at=self.now())
            self.store.transact_soon(keep)
        if state.fault is not None and (before is None or before.fault != state.fault):
            self._tell(f"the policy of {workspace_root} is not usable, so nothing is auto-approved: {state.fault}")
        self._tell_in_force(workspace_root, state)
        await self._show(workspace_root, state)

    def cards(self) -> tuple[Card, ...]:
        """Return the cards of policies that wait for a person."""
        return tuple(card for card in self._cards.values() if card.state is CardState.PENDING)

    async def find(self, prefix: str) -> Card | None:
        """Return a policy's card by id or unique prefix, also one that an earlier server run decided; None if none
        matches."""
        found = [card for card in self._cards.values() if card.id.startswith(prefix)] if prefix else []
        exact = [card for card in found if card.id == prefix]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found or not prefix.startswith("policy-"):
            return None
        earlier = await self.reader.read(partial(policies.get, id=prefix))
        return None if earlier is None else _decided_card(earlier)

    async def status(self, prefix_or_path: str) -> PolicyStatus:
        """Return the status of one policy, by its card's id or its workspace. Raises NotFound, Ambiguous,
        WorkspaceRefused."""
        root = await self._root(prefix_or_path)
        return await self._status(root, await self.look(root), whole=True)

    async def all(self) -> tuple[PolicyStatus, ...]:
        """Return the status of all policies that have a decision, or that were read in this server run."""
        roots = {*await self.reader.read(policies.roots), *self.states}
        return tuple([await self._status(root, await self.look(root)) for root in sorted(roots)])

    async def decide_named(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card:
        """Accept or reject the content of a policy file, by its card's id or its workspace; without a name, the only
        one that waits. The workspace needs no agent. `shown` is the hash of the content that the person was shown; any
        other is refused. Raises NotFound, Ambiguous, AlreadyDecided, InvalidState."""
        card = await self._asked_for(prefix_or_path)
        if shown is not None and card.detail != shown:
            raise InvalidState(f"the policy of {card.workspace_root} has changed since it was shown; look at it again")
        return await self.decide(card, verdict)

    async def decide(self, card: Card, verdict: Verdict) -> Card:
        """Accept the content that the card shows, or reject it. The first verdict wins; the same one again is answered
        like the first time. Raises AlreadyDecided, InvalidArguments, NotFound."""
        async with self._deciding:
            # Another verdict may have won while this one waited.
            return await self._decide(self._cards.get(card.id, card), verdict)

    async def _decide(self, card: Card, verdict: Verdict) -> Card:
        if card.decided is not None and card.decided.verdict_id == verdict.id:
            return card
        if card.state is not CardState.PENDING:
            raise AlreadyDecided(f"the policy change {card.id} is no longer open; nothing was changed")
        is_accepted = end_of(CardKind.POLICY, verdict.decision) is CardState.APPLIED
        state = await self.look(card.workspace_root)
        # Reading the file may have closed the card.
        if self._cards.get(card.id, card).state is not CardState.PENDING or state.proposed is None:
            raise AlreadyDecided(f"the policy change {card.id} is no longer open; nothing was changed")
        if state.proposed.sha256 != card.detail:
            raise NotFound("the policy file has changed since this was shown; look at the policy file as it is now")
        signature = self.signatures.admit(verdict, card, self.now())
        decided = Decided.of(verdict, self.now(), signature)
        decision = PolicyDecision(
            card.id, card.workspace_root, state.proposed.sha256, state.proposed.text, is_accepted, decided
        )
        # Recorded before it is in force: a crash in between loses no decision.
        await self.store.transact(partial(_record, decision=decision))
        crash_points.reach("verdict.recorded")
        done = evolve(card, state=CardState.APPLIED if is_accepted else CardState.REJECTED, decided=decided)
        self._cards[card.id] = done
        self._decisions.setdefault((card.workspace_root, decision.sha256), []).append(is_accepted)
        self.card_router.tell(done)
        try:
            watcher = self.system.named(watcher_name(Path(card.workspace_root)))
            await ask(watcher, PolicyDecided(decision), timeout=_SECONDS)
        except (NotRunning, Down):
            # No agent has been here, or the watcher restarts. The next watcher reads the record.
            if is_accepted:
                self._tell(f"the policy of {card.workspace_root} was accepted by {_who(decided)}", "info")
        return done

    # --- reading -----------------------------------------------------------------------------------------------------

    async def look(self, root: str) -> PolicyState:
        """Read the policy file again, and return the policy's current state."""
        if self.system.ref(watcher_name(Path(root))) is not None:
            try:
                watcher = self.system.named(watcher_name(Path(root)))
                return await ask(watcher, Current(), timeout=_SECONDS, retry=True)
            except NotRunning:
                pass
        record = await self.recall(root)
        loaded = await trio.to_thread.run_sync(policy_file.load, Path(root))
        return started(loaded, record, self.signatures.keyring.allowed().trust_changes)

    async def _root(self, prefix_or_path: str) -> str:
        """Return the canonical workspace that a path names, or that the card of this id is about."""
        if "/" in prefix_or_path:
            return str(await trio.to_thread.run_sync(files.check_workspace, prefix_or_path))
        card = await self.find(prefix_or_path)
        if card is None:
            raise NotFound(f"no policy has the id {prefix_or_path}; see policy list")
        return card.workspace_root

    async def _asked_for(self, prefix_or_path: str | None) -> Card:
        """Return the card that a person decides about: the waiting one, or a new one for the workspace they name."""
        waiting = self.cards()
        if prefix_or_path is not None and "/" in prefix_or_path:
            root = await self._root(prefix_or_path)
            state = await self.look(root)
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
            tried = await try_policy(self.reader, root, proposed.policy, limits_of(self.config))
            trial = tried.sentence()
        return PolicyStatus(
            workspace_root=root,
            status=status,
            source=state.source,
            sha256=(proposed or state.in_force).sha256,
            grants=describe(state.policy),
            text=(proposed or state.in_force).text if whole else None,
            ways=(proposed or state.in_force).ways,
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
                self.card_router.tell(self._cards[id])
        if proposed is None or wanted is None or self._is_rejected(workspace_root, proposed.sha256):
            # A rejected content is not proposed again.
            return
        if wanted not in self._cards and self._may_ask(workspace_root):
            self.card_router.tell(await self._new_card(wanted, workspace_root, state))

    async def _new_card(self, id: str, workspace_root: str, state: PolicyState) -> Card:
        proposed, accepted = state.proposed, state.record.accepted
        assert proposed is not None, "only what waits has a card"
        tried = await try_policy(self.reader, workspace_root, proposed.policy, limits_of(self.config))
        lines = [f"grants {describe(proposed.policy)}", tried.sentence()]
        if accepted is not None and accepted.sha256 == proposed.sha256:
            lines.append(f"this content was accepted by {_who(accepted.decided)}; its file has granted less since")
        above = next(
            (root for root in self.states if root != workspace_root and Path(root) in Path(workspace_root).parents),
            None,
        )
        if above is not None:
            lines.append(f"this workspace lies in {above}, which has a policy of its own")
        # Last: there may be many, and a channel may cut them off.
        lines += proposed.ways
        title = "The policy file grants more than was accepted" if accepted else "Nobody has accepted this policy here"
        shown = show_text(state.source or POLICY_FILE, accepted.text if accepted is not None else None, proposed.text)
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
        """Return the id of the card for this content of this workspace, until it is decided."""
        # The workspace is part of it: another workspace may have the same file, and must be decided by itself.
        times = len(self._decisions.get((workspace_root, sha), ())) + self._closed[workspace_root, sha]
        name = sha256(f"{workspace_root}\0{sha}\0{times}".encode("utf-8", "surrogateescape")).hexdigest()
        return f"policy-{name[:16]}"

    def _may_ask(self, workspace_root: str) -> bool:
        """Return whether one more card may be shown for a file that changes again and again."""
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
        """Report and record that a policy has come into force, once per content and server run."""
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
        self.store.transact_soon(kept)

    def _tell(self, text: str, level: str = "warning") -> None:
        self.card_router.tell(Notice(text, level, self.now()))


@frozen
class _Recorded:
    """The records about a workspace's policy. `logged` and `narrowing_logged` come from the audit log."""

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
    """Return the hash of a narrowing in the audit log; "" if the policy was not narrowed."""
    return "" if narrowing is None else digest(narrowing.encode("utf-8", "surrogatepass"))


def _narrow(db: Database, root: str, state: PolicyState, at: datetime) -> None:
    """Record what the file has taken away, in its row and in the audit log. It counts while the row exists."""
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
    """Return the card of a decision that an earlier server run recorded."""
    return Card(
        id=decision.id,
        kind=CardKind.POLICY,
        session_id="",
        workspace_root=decision.workspace_root,
        title="A policy that was decided about",
        created_at=decision.decided.at,
        state=CardState.APPLIED if decision.accepted else CardState.REJECTED,
        detail=decision.sha256,
        diff=show_text(POLICY_FILE, None, decision.text).diff,
        decided=decision.decided,
    )


def _who(decided: Decided) -> str:
    return f"{decided.by} ({decided.channel}) on {decided.at:%Y-%m-%d %H:%M} UTC"
