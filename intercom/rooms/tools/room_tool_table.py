"""The table of the rooms' tools, and the protocol of the service that answers them.

To add a tool, write it beside the others of its subject, and add it here: MCP, plain HTTP, the OpenAPI document and the
instructions for agents are made from this table.
"""

from __future__ import annotations

from typing import Any, Protocol

from attrs import AttrsInstance

from intercom.rooms.export import Export
from intercom.rooms.tools import directory, document, evidence, feed, membership, metadata
from intercom.rooms.tools.directory import (
    CreateSession,
    ExportSession,
    ListSessions,
    SearchResult,
    SearchSessions,
    SessionCreated,
    SessionList,
)
from intercom.rooms.tools.document import AppendToSessionDoc, DocWritten, ReadSessionDoc, SessionDoc, UpdateSessionDoc
from intercom.rooms.tools.evidence import EvidenceRead, ReadEvidence
from intercom.rooms.tools.feed import (
    Acknowledge,
    Acknowledged,
    GetHistory,
    HistoryPage,
    NewMessages,
    Posted,
    PostMessage,
    WaitForMessages,
)
from intercom.rooms.tools.membership import Joined, JoinSession, LeaveSession, Left, ListParticipants, Participants
from intercom.rooms.tools.metadata import (
    Concluded,
    ConcludeSession,
    GetSession,
    MetadataUpdated,
    Reopened,
    ReopenSession,
    SessionInfo,
    UpdateSessionMetadata,
)
from intercom.rooms.tools.tool import RoomCaller, RoomTool

#: In the order in which an agent needs them.
TOOLS: tuple[RoomTool, ...] = (
    directory.CREATE,
    membership.JOIN,
    feed.WAIT,
    feed.POST,
    document.READ,
    document.APPEND,
    document.UPDATE,
    evidence.READ_EVIDENCE,
    membership.PARTICIPANTS,
    metadata.GET,
    feed.HISTORY,
    feed.ACK,
    metadata.UPDATE_METADATA,
    metadata.CONCLUDE,
    membership.LEAVE,
    metadata.REOPEN,
    directory.LIST,
    directory.SEARCH,
)

BY_NAME: dict[str, RoomTool] = {tool.name: tool for tool in TOOLS}

#: All that plain HTTP serves.
OVER_HTTP: tuple[RoomTool, ...] = (*TOOLS, directory.EXPORT)


class RoomCalls(Protocol):
    """The service behind the tools. Its methods raise RoomRefused, and faults of the database.

    Transports use `call`, which does what all calls have in common and lets the tool call its own method. A cancelled
    `wait` frees its place at once.
    """

    def public_url(self) -> str | None:
        """Return the address at which teams reach the rooms, without a slash at its end; None if nobody has set it."""
        ...

    async def call(self, tool: RoomTool, arguments: AttrsInstance, caller: RoomCaller) -> Any:
        """Return the tool's answer: a value of its class `result`."""
        ...

    async def create(self, asked: CreateSession, caller: RoomCaller) -> SessionCreated: ...

    async def list(self, asked: ListSessions, caller: RoomCaller) -> SessionList: ...

    async def search(self, asked: SearchSessions, caller: RoomCaller) -> SearchResult: ...

    async def export(self, asked: ExportSession, caller: RoomCaller) -> Export: ...

    async def join(self, asked: JoinSession, caller: RoomCaller) -> Joined: ...

    async def leave(self, asked: LeaveSession, caller: RoomCaller) -> Left: ...

    async def participants(self, asked: ListParticipants, caller: RoomCaller) -> Participants: ...

    async def wait(self, asked: WaitForMessages, caller: RoomCaller) -> NewMessages: ...

    async def post(self, asked: PostMessage, caller: RoomCaller) -> Posted: ...

    async def history(self, asked: GetHistory, caller: RoomCaller) -> HistoryPage: ...

    async def ack(self, asked: Acknowledge, caller: RoomCaller) -> Acknowledged: ...

    async def document(self, asked: ReadSessionDoc, caller: RoomCaller) -> SessionDoc: ...

    async def update(self, asked: UpdateSessionDoc, caller: RoomCaller) -> DocWritten: ...

    async def append(self, asked: AppendToSessionDoc, caller: RoomCaller) -> DocWritten: ...

    async def read_evidence(self, asked: ReadEvidence, caller: RoomCaller) -> EvidenceRead: ...

    async def room(self, asked: GetSession, caller: RoomCaller) -> SessionInfo: ...

    async def metadata(self, asked: UpdateSessionMetadata, caller: RoomCaller) -> MetadataUpdated: ...

    async def conclude(self, asked: ConcludeSession, caller: RoomCaller) -> Concluded: ...

    async def reopen(self, asked: ReopenSession, caller: RoomCaller) -> Reopened: ...
