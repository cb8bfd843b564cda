"""The tools that need no team: create, list and search sessions. And the export of a whole one, over HTTP."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from intercom.model.field_docs import doc
from intercom.model.room import RoomStatus
from intercom.rooms.tools.feed import NOTICE
from intercom.rooms.tools.tool import (
    DESCRIPTION,
    QUERY,
    SESSION_ID,
    TEAM_ID,
    TEAM_NAME,
    TITLE,
    TOKEN,
    RoomTool,
    Route,
    clamp_page,
    nullable,
)
from intercom.store.rooms import MOST_PLACES, MOST_WORDS

# --- create_session --------------------------------------------------------------------------------------------------


@frozen
class CreateSession:
    """Make a session, and its first team: the convener."""

    title: str = field(metadata=doc("What the session is about, in one line.", min_length=1, most=TITLE))
    description: str = field(
        metadata=doc("What the teams want to achieve, and how the work is divided, if you know it.", most=DESCRIPTION)
    )
    creator_team_name: str = field(
        metadata=doc(
            'The name of your team, as others see it, for example "Alex\'s Team".', min_length=1, most=TEAM_NAME
        )
    )
    passcode: str | None = field(
        default=None,
        metadata=doc("A word that other teams need to join. Default: anybody may join.", min_length=1, most=TOKEN),
    )
    has_concluder: bool = field(
        default=False,
        metadata=doc(
            "Whether the server starts an agent that concludes the session when all teams have left, if it can start"
            " agents."
        ),
    )


@frozen
class SessionCreated:
    session_id: str = field(metadata=doc("The id of the session. Give it to the other teams."))
    team_id: str = field(metadata=doc("Your team's token in this session. Every other call needs it. Keep it secret."))
    cursor: int = field(metadata=doc("The cursor to begin with: pass it to wait_for_messages as since_cursor."))
    title: str = field(metadata=doc("The title, as you gave it."))
    description: str = field(metadata=doc("The description, as you gave it."))
    team_name: str = field(metadata=doc("The name of your team, as others see it."))


CREATE = RoomTool(
    name="create_session",
    title="Create a session",
    description="""\
Create a session, in which two or more teams of agents work together: it has a feed of messages, a list of teams and \
one shared markdown document. Your team is its convener and has joined already. Give the session_id to the other \
teams, keep the team_id to yourself, and call wait_for_messages next.""",
    takes=CreateSession,
    result=SessionCreated,
    route=Route("POST", "/api/sessions"),
    handle=lambda service, asked, caller: service.create(asked, caller),
    needs_token=False,
)

# --- list_sessions ---------------------------------------------------------------------------------------------------


@frozen
class ListSessions:
    """List sessions, newest first."""

    status: RoomStatus | None = field(default=None, metadata=doc("Only sessions with this status. Default: all."))
    limit: int = field(
        default=100,
        converter=clamp_page,
        metadata=doc("How many sessions; at most 500, and a larger number counts as 100."),
    )
    before: str | None = field(
        default=None, metadata=doc("The next_before of the last page, to get the next one.", most=TOKEN)
    )


@frozen
class ListedSession:
    session_id: str = field(metadata=doc("The id of the session."))
    title: str = field(metadata=doc("Its title."))
    description: str = field(metadata=doc("Its description."))
    status: RoomStatus = field(metadata=doc('"active", or "closed" once it is concluded.'))
    created_at: datetime = field(metadata=doc("When it was created."))
    closed_at: datetime | None = field(metadata=nullable("When it was concluded; null while it is open."))
    needs_passcode: bool = field(metadata=doc("Whether join_session needs a passcode."))


@frozen
class SessionList:
    sessions: tuple[ListedSession, ...] = field(metadata=doc("The sessions, newest first."))
    next_before: str | None = field(
        metadata=nullable("Pass it as before to get older sessions; null if there are none.")
    )
    has_more: bool = field(metadata=doc("Whether there are older sessions."))
    notice: str | None = field(default=None, metadata=NOTICE)


LIST = RoomTool(
    name="list_sessions",
    title="List sessions",
    description="""\
List the sessions of this server, newest first, with their ids, titles and descriptions. Use it to find the session \
that you are to join.""",
    takes=ListSessions,
    result=SessionList,
    route=Route("GET", "/api/sessions"),
    handle=lambda service, asked, caller: service.list(asked, caller),
    needs_token=False,
    read_only=True,
    idempotent=True,
)

# --- search_sessions -------------------------------------------------------------------------------------------------


def _clamp_hits(limit: int) -> int:
    return min(max(1, limit), MOST_PLACES)


@frozen
class SearchSessions:
    """Search the titles, feeds and documents of all sessions."""

    query: str = field(
        metadata=doc(
            f"Words to look for; all of them must occur. The first {MOST_WORDS} different ones count.",
            min_length=1,
            most=QUERY,
        )
    )
    limit: int = field(default=20, converter=_clamp_hits, metadata=doc(f"How many places; at most {MOST_PLACES}."))


class FoundIn(StrEnum):
    FEED = "feed"
    DOCUMENT = "document"
    TITLE = "title"


@frozen
class FoundPlace:
    session_id: str = field(metadata=doc("The id of the session."))
    title: str = field(metadata=doc("Its title."))
    status: RoomStatus = field(metadata=doc('"active", or "closed" once it is concluded.'))
    where: FoundIn = field(
        metadata=doc("Where the words are: in a message, the document, or the title or description.")
    )
    excerpt: str = field(metadata=doc("The text around the words. Other teams may have written it."))
    cursor: int | None = field(default=None, metadata=doc("The cursor of the message; absent for other places."))


@frozen
class SearchResult:
    results: tuple[FoundPlace, ...] = field(
        metadata=doc("The places: titles first, then documents and messages, each the newest first.")
    )
    notice: str | None = field(default=None, metadata=NOTICE)


SEARCH = RoomTool(
    name="search_sessions",
    title="Search sessions",
    description="""\
Search all sessions, open and closed ones, for words in their titles, messages and documents. Use it to find earlier \
work on the same subject, or the session to continue.""",
    takes=SearchSessions,
    result=SearchResult,
    route=Route("GET", "/api/sessions/search"),
    handle=lambda service, asked, caller: service.search(asked, caller),
    needs_token=False,
    read_only=True,
    idempotent=True,
)

# --- the export, over HTTP only --------------------------------------------------------------------------------------


class ExportFormat(StrEnum):
    MARKDOWN = "markdown"
    JSON = "json"


@frozen
class ExportSession:
    """Write a whole session to one text or one JSON object."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    format: ExportFormat = field(
        default=ExportFormat.MARKDOWN, metadata=doc("The form: markdown for people, json for programs.")
    )


EXPORT = RoomTool(
    name="export_session",
    title="Export a session",
    description="Get a whole session as one markdown text or one JSON object: its document, teams and messages.",
    takes=ExportSession,
    result=None,
    route=Route("GET", "/api/sessions/{session_id}/export"),
    handle=lambda service, asked, caller: service.export(asked, caller),
    read_only=True,
    idempotent=True,
)
