"""The archive: what taking and restoring checkpoints needs, and how a session is written into a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio
from attrs import field, frozen

from actors import ask
from intercom.model import clock
from intercom.model.approval import ApprovalRequest
from intercom.model.config import CheckpointSettings
from intercom.model.prompt import ContinuationPrompt
from intercom.model.session import Session
from intercom.sessions import outcomes
from intercom.sessions.context import Context
from intercom.sessions.outcomes import Asked
from intercom.store.contents import Contents
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader
from intercom.workspace.walking import Limits

T = TypeVar("T")

#: Time limit of one store transaction, in seconds.
STORE_SECONDS = 60.0


@frozen
class Archive:
    """The dependencies of checkpoint work. The lock `work` serialises reading whole workspaces and writing contents."""

    context: Context
    reader: Reader
    contents: Contents
    work: trio.Lock = field(factory=trio.Lock)

    @property
    def settings(self) -> CheckpointSettings:
        return self.context.config.checkpoint

    @property
    def limits(self) -> Limits:
        found = self.settings
        return Limits(found.max_files, found.max_bytes, found.max_file_bytes, found.max_seconds)

    async def transact(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the store, in one transaction, which is committed when this returns."""
        return await ask(self.context.store, Transact(work), timeout=STORE_SECONDS, retry=True)

    async def read(self, work: Callable[[Database], T]) -> T:
        """Run `work` in a worker thread, on committed data."""
        return await self.reader.read(work)


def written(session: Session, pending: Sequence[Asked]) -> dict[str, Any]:
    """Return a session and its pending requests as a checkpoint stores them."""
    return {
        "status": session.status.value,
        "mode": session.mode.value,
        "prompt": session.prompt,
        "owner_user_id": session.owner_user_id,
        "client_name": session.client_name,
        "channel_id": session.channel_id,
        "paused_by": session.paused_by if session.is_paused else None,
        "last_tool": session.last_tool,
        "updated_at": clock.to_text(session.updated_at),
        "pending": [_written_request(request) for request in pending],
    }


def _written_request(request: Asked) -> dict[str, Any]:
    common = {"request_id": request.id, "created_at": clock.to_text(request.created_at)}
    match request:
        case ApprovalRequest():
            return {
                **common,
                "kind": "approval",
                "title": request.title,
                "risk_level": request.risk_level.value,
                "file_path": request.file_path,
                "paths": [change.path for change in request.files],
                "diff": request.diff_content,
            }
        case ContinuationPrompt():
            kind, title = "prompt", outcomes.headline(request.prompt_text)
            return {**common, "kind": kind, "title": title, "type": request.prompt_type.value}
        case _:
            return {**common, "kind": "standby", "title": outcomes.headline(request.message)}
