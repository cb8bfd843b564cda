"""The tools about a session as a whole: get_session, update_session_metadata, conclude_session, reopen_session."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen

from intercom.model.field_docs import doc
from intercom.model.room import RoomStatus
from intercom.rooms.tools.evidence import LINKED, UNLINKED
from intercom.rooms.tools.feed import NOTICE
from intercom.rooms.tools.tool import (
    DESCRIPTION,
    DOCUMENT,
    REASON,
    SESSION_ID,
    TEAM_ID,
    TITLE,
    RoomTool,
    Route,
    nullable,
)

# --- get_session -----------------------------------------------------------------------------------------------------


@frozen
class GetSession:
    """Read what a session is about, and its status."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)


@frozen
class SessionInfo:
    session_id: str = field(metadata=doc("The id of the session."))
    title: str = field(metadata=doc("Its title."))
    description: str = field(metadata=doc("What the teams want to achieve."))
    status: RoomStatus = field(metadata=doc('"active", or "closed" once it is concluded.'))
    created_at: datetime = field(metadata=doc("When it was created."))
    updated_at: datetime = field(metadata=doc("When its title, description or status last changed."))
    closed_at: datetime | None = field(metadata=nullable("When it was concluded; null while it is open."))
    session_doc_version: int = field(metadata=doc("The version of the document; 0 if nothing is written yet."))
    cursor: int = field(metadata=doc("The cursor of the newest message; 0 if there is none."))
    convener: str = field(metadata=doc("The name of the team that created the session."))
    paused_by: str | None = field(
        default=None, metadata=doc("Who paused the session; absent if it is not paused. No team can post then.")
    )
    pause_reason: str | None = field(default=None, metadata=doc("Why it is paused."))
    notice: str | None = field(default=None, metadata=NOTICE)


GET = RoomTool(
    name="get_session",
    title="Look at a session",
    description="Get the title, description, status and dates of a session, and whether it is paused.",
    takes=GetSession,
    result=SessionInfo,
    route=Route("GET", "/api/sessions/{session_id}"),
    handle=lambda service, asked, caller: service.room(asked, caller),
    read_only=True,
    idempotent=True,
)

# --- update_session_metadata -----------------------------------------------------------------------------------------


@frozen
class UpdateSessionMetadata:
    """Change the title or the description."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    reason: str = field(
        metadata=doc("Why the change matters. All teams see it in the feed.", min_length=1, most=REASON)
    )
    title: str | None = field(default=None, metadata=doc("The new title. Default: it stays.", min_length=1, most=TITLE))
    description: str | None = field(
        default=None, metadata=doc("The new description. Default: it stays.", most=DESCRIPTION)
    )


@frozen
class MetadataUpdated:
    title: str = field(metadata=doc("The title as it is now."))
    description: str = field(metadata=doc("The description as it is now."))
    updated_at: datetime = field(metadata=doc("When it was changed."))


UPDATE_METADATA = RoomTool(
    name="update_session_metadata",
    title="Change title or description",
    description="""\
Change the title or description of a session, or both, with a reason that all teams see. Call it only if the scope or \
the goals have really changed, which is rare: not for typos, and not for a nicer wording.""",
    takes=UpdateSessionMetadata,
    result=MetadataUpdated,
    route=Route("POST", "/api/sessions/{session_id}/metadata"),
    handle=lambda service, asked, caller: service.metadata(asked, caller),
    destructive=True,
    idempotent=True,
)

# --- conclude_session ------------------------------------------------------------------------------------------------


@frozen
class ConcludeSession:
    """Close a session, with a conclusion in the document."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    summary_section: str = field(
        metadata=doc(
            "The conclusion, in markdown: what was achieved and decided, and where to continue. It becomes the section"
            " `## Conclusion` of the document.",
            min_length=1,
            most=DOCUMENT,
        )
    )


@frozen
class Concluded:
    session_id: str = field(metadata=doc("The id of the session."))
    status: RoomStatus = field(metadata=doc('"closed".'))
    closed_at: datetime = field(metadata=doc("When it was concluded."))
    doc_version: int = field(metadata=doc("The version of the document with the conclusion."))
    evidence: tuple[str, ...] | None = field(default=None, metadata=LINKED)
    unlinked: tuple[str, ...] | None = field(default=None, metadata=UNLINKED)


CONCLUDE = RoomTool(
    name="conclude_session",
    title="Conclude a session",
    description="""\
Conclude a session: it writes your summary into the document as the section ## Conclusion, closes the session, and \
tells all teams, which then stop waiting. Usually the convener calls it, when the work is done. First tidy up the \
document (update_session_doc), because nobody can write it afterwards. Called again, it replaces the conclusion.""",
    takes=ConcludeSession,
    result=Concluded,
    route=Route("POST", "/api/sessions/{session_id}/conclude"),
    handle=lambda service, asked, caller: service.conclude(asked, caller),
    destructive=True,
    idempotent=True,
)

# --- reopen_session --------------------------------------------------------------------------------------------------


@frozen
class ReopenSession:
    """Open a concluded session again."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    reason: str = field(metadata=doc("Why the work goes on. All teams see it in the feed.", min_length=1, most=REASON))


@frozen
class Reopened:
    session_id: str = field(metadata=doc("The id of the session."))
    status: RoomStatus = field(metadata=doc('"active".'))
    cursor: int = field(metadata=doc("The cursor of the newest message, which says that the session is open again."))


REOPEN = RoomTool(
    name="reopen_session",
    title="Reopen a session",
    description="""\
Open a concluded session again, to continue its work with its feed and document. Join it first (a closed session can \
be joined to read). The other teams have stopped waiting: tell them, or their operators, to return.""",
    takes=ReopenSession,
    result=Reopened,
    route=Route("POST", "/api/sessions/{session_id}/reopen"),
    handle=lambda service, asked, caller: service.reopen(asked, caller),
    idempotent=True,
)
