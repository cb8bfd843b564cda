"""The board of policies: which is in force where, and which wait for an operator's word.

The watchers find out, this remembers and tells. It lives as long as the server, so that a watcher that falls comes back
to what was in force and not to whatever its file says by then.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path

import trio
from attrs import define, evolve, field

from actors import ChildSpec, Name, System, ask
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.config import Config
from intercom.model.errors import AlreadyDecided, Ambiguous, InvalidArguments, NotFound
from intercom.model.policy import DENY_ALL, WorkspacePolicy
from intercom.model.verdict import Decided, Decision, Verdict
from intercom.store import audit, policies
from intercom.store.messages import Database, Transact
from intercom.workspace.messages import Accept, AgentsConnected
from intercom.workspace.policy import Limits
from intercom.workspace.policy_state import PolicyState
from intercom.workspace.watcher import PolicyWatcher, watcher_name

#: How long accepting may take, in seconds.
_ACCEPT_SECONDS = 10.0


def limits_of(config: Config) -> Limits:
    """What the server's configuration sets above every workspace's policy."""
    allowlist = tuple(config.commands.values()) if config.policy.require_allowlist else None
    return Limits(config.policy.max_risk_level, allowlist)


@define
class PolicyBoard:
    """`kept` is what was in force before a restart, by workspace root (hash and text); `states` is how things stand."""

    system: System
    store: Name
    operators: Name
    now: Callable[[], datetime]
    config: Config
    agents_in: Callable[[str], int]
    kept: dict[str, tuple[str, str]] = field(factory=dict)
    states: dict[str, PolicyState] = field(factory=dict)
    _cards: dict[str, Card] = field(factory=dict)
    _accepting: str | None = None
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
                on_change=partial(self.changed, workspace_root),
                in_force=self._last(workspace_root),
                trust_changes=self.config.policy.trust_changes,
                agents=self.agents_in(workspace_root),
                limits=limits_of(self.config),
            )

        return ChildSpec(watcher_name(Path(workspace_root)), start)

    def connected(self, workspace_root: str, count: int) -> None:
        """So many agents work in this workspace now."""
        self.system.named(watcher_name(Path(workspace_root))).tell(AgentsConnected(count))

    def changed(self, workspace_root: str, state: PolicyState) -> None:
        """A watcher's news: remember it, keep it for after a restart, and tell people what they have to know."""
        before = self.states.get(workspace_root)
        self.states[workspace_root] = state
        self.store.tell(Transact(partial(_keep, root=workspace_root, state=state, at=self.now())))
        if state.fault is not None and (before is None or before.fault != state.fault):
            self._tell(f"the policy of {workspace_root} is not usable, so nothing is auto-approved: {state.fault}")
        self._show(workspace_root, state)

    def cards(self) -> tuple[Card, ...]:
        """The changes that wait for an operator."""
        return tuple(card for card in self._cards.values() if card.state is CardState.PENDING)

    def find(self, prefix: str) -> Card | None:
        """The card of a held-back change by id or unique prefix; None when none fits."""
        found = [card for card in self._cards.values() if card.id.startswith(prefix)] if prefix else []
        exact = [card for card in found if card.id == prefix]
        return (exact or found)[0] if len(exact or found) == 1 else None

    def named(self, prefix_or_path: str | None) -> Card:
        """The waiting change of this id, prefix or workspace, or the only one; raises NotFound or Ambiguous."""
        waiting = self.cards()
        if prefix_or_path is not None:
            waiting = tuple(
                card for card in waiting if card.id.startswith(prefix_or_path) or card.workspace_root == prefix_or_path
            )
        if not waiting:
            raise NotFound("no policy change waits to be accepted")
        if len(waiting) > 1:
            raise Ambiguous(f"{len(waiting)} policy changes wait ({', '.join(c.id for c in waiting)}); name one")
        return waiting[0]

    async def decide(self, card: Card, verdict: Verdict) -> Card:
        """Accept the change, or leave the policy as it is. The first verdict wins; the same one again is answered as
        the first time."""
        async with self._deciding:
            # Another may have decided while this one waited.
            return await self._decide(self._cards.get(card.id, card), verdict)

    async def _decide(self, card: Card, verdict: Verdict) -> Card:
        if card.decided is not None and card.decided.verdict_id == verdict.id:
            return card
        if card.state is not CardState.PENDING:
            raise AlreadyDecided(f"the policy change {card.id} is no longer open; nothing was changed")
        if verdict.decision is Decision.ACCEPT or verdict.decision is Decision.APPROVE:
            await self._accept(card, verdict)
        elif verdict.decision is not Decision.REJECT:
            raise InvalidArguments("answer a policy change with accept or reject")
        decided = Decided(verdict.id, verdict.decision.value, verdict.by, verdict.channel, self.now(), verdict.text)
        state = CardState.REJECTED if verdict.decision is Decision.REJECT else CardState.APPLIED
        done = evolve(card, state=state, decided=decided)
        self._cards[card.id] = done
        self.operators.tell(done)
        self.store.tell(Transact(partial(_decided, card=done, verdict=verdict, at=self.now())))
        return done

    async def _accept(self, card: Card, verdict: Verdict) -> None:
        watcher = self.system.named(watcher_name(Path(card.workspace_root)))
        # The watcher's news of it comes before its answer, and does not mean that the file has changed again.
        self._accepting = card.id
        try:
            await ask(watcher, Accept(card.detail or "", verdict.by), timeout=_ACCEPT_SECONDS, retry=True)
        except BaseException:
            self._accepting = None
            self._show(card.workspace_root, self.states[card.workspace_root])
            raise
        self._accepting = None

    def _last(self, workspace_root: str) -> tuple[str, str] | None:
        state = self.states.get(workspace_root)
        if state is not None:
            return state.in_force.sha256, state.in_force.text
        return self.kept.get(workspace_root)

    def _show(self, workspace_root: str, state: PolicyState) -> None:
        wanted = None if state.proposed is None else self._asked(workspace_root, state.proposed.sha256)
        for id, card in list(self._cards.items()):
            if id in (wanted, self._accepting):
                continue
            if card.workspace_root == workspace_root and card.state is CardState.PENDING:
                self._cards[id] = evolve(card, state=CardState.CLOSED, note="the policy file has changed again")
                self.operators.tell(self._cards[id])
        if state.proposed is None or wanted is None or wanted in self._cards:
            return
        self._cards[wanted] = Card(
            id=wanted,
            kind=CardKind.POLICY,
            session_id="",
            workspace_root=workspace_root,
            title="The policy file grants more than before",
            created_at=self.now(),
            body="\n".join(state.proposed.ways),
            detail=state.proposed.sha256,
            diff=state.proposed.text,
        )
        self.operators.tell(self._cards[wanted])

    def _asked(self, workspace_root: str, sha: str) -> str:
        """The id of the card that asks for this content: the one there is, while it waits or has been refused; else
        another than before, since content that was accepted, or taken back, may come anew."""
        same = [card for card in self._cards.values() if (card.workspace_root, card.detail) == (workspace_root, sha)]
        if same and same[-1].state in (CardState.PENDING, CardState.REJECTED):
            return same[-1].id
        # Others may have the same file, and none may decide for them.
        name = sha256(f"{workspace_root}\0{sha}\0{len(same)}".encode()).hexdigest()
        return f"policy-{name[:16]}"

    def _tell(self, text: str) -> None:
        self.operators.tell(Notice(text, "warning", self.now()))


def _keep(db: Database, root: str, state: PolicyState, at: datetime) -> None:
    policies.put(db, root, state.in_force.sha256, state.in_force.text, "watcher", at)


def _decided(db: Database, card: Card, verdict: Verdict, at: datetime) -> None:
    audit.record(
        db,
        at,
        f"policy_{verdict.decision.value}",
        None,
        verdict.by,
        card.title,
        {"workspace_root": card.workspace_root, "sha256": card.detail, "channel": verdict.channel},
    )
