"""The operator service as every channel calls it: the protocol `Desk`.

It is structural, so a channel can be tested against a fake. The real one is `intercom.sessions.desk.Desk`. Every method
may raise an `IntercomError`; the channel passes its code and sentence on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from intercom.local.operator_keys import PublicKey
from intercom.model.card import Card, CardKind
from intercom.model.checkpoint import CheckpointLine
from intercom.model.child import Child
from intercom.model.origin import Origin
from intercom.model.restore import Files, Restore
from intercom.model.session import Session, SessionMode
from intercom.model.steering import Instruction
from intercom.model.verdict import Signature, SignedCommand, Verdict
from intercom.sessions.checkpoint_messages import CheckpointTaken
from intercom.sessions.children import Output
from intercom.sessions.signatures import Signatures
from intercom.sessions.spawning.output_files import Stream


class Children(Protocol):
    """Agents that people start; implemented by `intercom.sessions.children.Children`."""

    async def start(
        self,
        prompt: str,
        *,
        by: str,
        channel: str,
        workspace: str | None = None,
        owner: str = "",
        mode: SessionMode | None = None,
        chat_channel: str | None = None,
        label: str | None = None,
        act: str | None = None,
    ) -> Session: ...

    async def everyone(self) -> Mapping[str, Child]: ...

    async def output(
        self,
        session: str,
        stream: Stream = ...,
        *,
        lines: int = ...,
        start: int | None = None,
        limit: int = ...,
        masked: bool = False,
    ) -> Output: ...


class Steering(Protocol):
    """Operations on working agents; implemented by `intercom.sessions.steering_desk.Steering`."""

    async def pause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session: ...

    async def unpause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session: ...

    async def steer(
        self,
        session: str | None,
        text: str,
        by: str,
        channel: str,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card: ...

    async def words(self, session: str | None = None, limit: int = ...) -> Sequence[Instruction]: ...

    async def add_task(
        self,
        text: str,
        by: str,
        channel: str,
        *,
        session: str | None = None,
        workspace: str | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card: ...

    async def workspace_of(self, directory: str) -> str: ...

    async def tasks(
        self, session: str | None = None, *, everything: bool = False, limit: int = ...
    ) -> Sequence[Instruction]: ...

    async def take_back(self, prefix: str, by: str, channel: str) -> Card: ...


class Checkpoints(Protocol):
    """Operations on checkpoints; implemented by `intercom.sessions.checkpoint_calls.CheckpointCalls`."""

    async def take(
        self, session: str | None, label: str | None, by: str, channel: str, act_id: str | None = None
    ) -> CheckpointTaken: ...

    async def listed(self, session: str | None = None) -> Sequence[CheckpointLine]: ...

    async def checkpoint(self, prefix: str) -> CheckpointLine: ...

    async def ask_restore(
        self, checkpoint: str, files: Files, by: str, channel: str, act_id: str | None = None
    ) -> Restore: ...

    async def restore(self, id: str) -> Restore: ...


class Desk(Protocol):
    """The operator service. Ids may be prefixes: raises NotFound if none matches and Ambiguous if several do."""

    @property
    def children(self) -> Children: ...

    @property
    def steering(self) -> Steering: ...

    @property
    def checkpoints(self) -> Checkpoints: ...

    async def sessions(self, *, everything: bool = False) -> Sequence[Session]: ...

    async def session_id(self, prefix: str) -> str: ...

    async def pending(self, session_id: str | None = None) -> Sequence[Card]: ...

    async def card(self, prefix: str) -> Card: ...

    async def identify(self, prefix: str) -> tuple[str, CardKind]: ...

    def seen(self, card: Card) -> None: ...

    async def decide(self, prefix: str, verdict: Verdict) -> Card: ...

    async def resume(self, session: str | None, instruction: str | None, verdict: Verdict) -> Session: ...

    async def switch_mode(
        self, session: str | None, mode: SessionMode, by: str, channel: str
    ) -> tuple[SessionMode, SessionMode]: ...

    def nudge_text(self) -> str: ...

    async def nudge(
        self,
        prefix: str,
        text: str | None,
        by: str,
        channel: str,
        origin: Origin | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card | Session: ...

    async def end(self, session: str, by: str, channel: str, why: str) -> Session: ...

    async def decide_policy(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card: ...

    async def policies(self) -> Sequence[Any]: ...

    async def policy(self, prefix_or_path: str) -> Any: ...

    async def audit(self, limit: int, session: str | None = None) -> Sequence[Any]: ...

    def tree(self) -> Any: ...

    async def chat_standing(self) -> Mapping[str, Any] | None: ...

    @property
    def signatures(self) -> Signatures: ...

    async def admit_command(
        self, command: str, act_id: str | None, subject: str, signature: Signature | None
    ) -> None: ...

    async def add_key(self, key: PublicKey, at: str, by: str, signature: str) -> bool: ...

    async def note_settings(self) -> None: ...

    async def revoke_key(self, id: str, at: str, by: str, signature: str) -> PublicKey: ...

    async def security_event(self, summary: str, data: dict[str, Any]) -> None: ...

    async def is_new_terminal(self, origin: Origin) -> bool: ...

    def version(self) -> dict[str, Any]: ...
