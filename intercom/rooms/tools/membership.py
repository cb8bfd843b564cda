"""The tools about who is in a session: join_session, leave_session and list_participants."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen
from attrs.converters import optional

from intercom.model.field_docs import doc
from intercom.model.room import Presence, TeamRole
from intercom.rooms.tools.feed import NOTICE
from intercom.rooms.tools.tool import SESSION_ID, TEAM_ID, TEAM_NAME, TOKEN, RoomTool, Route, clamp_cursor


@frozen
class Participant:
    """A team as the roster shows it."""

    team_id: str = field(metadata=doc("The public id of the team. It is no token, and gives no access."))
    team_name: str = field(metadata=doc("The name of the team."))
    role: TeamRole = field(
        metadata=doc(
            '"member"; "reader" for a team that joined the closed session; "operator" for a person; "concluder" for the'
            " agent that the server started to conclude the session."
        )
    )
    joined_at: datetime = field(metadata=doc("When the team joined."))
    last_seen_at: datetime = field(metadata=doc("When the team last waited for messages."))
    status: Presence = field(
        metadata=doc('"active", "idle" or "disconnected", by the time since the team last waited for messages.')
    )
    cursor: int = field(metadata=doc("How far the team has read: the cursor of the last message that it got."))
    unread: int = field(metadata=doc("How many messages it has not got yet."))
    is_convener: bool = field(metadata=doc("Whether the team created the session."))
    is_you: bool = field(metadata=doc("Whether this is your team."))
    left_at: datetime | None = field(default=None, metadata=doc("When the team left; absent if it has not."))


# --- join_session ----------------------------------------------------------------------------------------------------


def _text_or_none(text: str | None) -> str | None:
    return text or None


@frozen
class JoinSession:
    """Join a session as a new team, or as the team of `team_id` again."""

    session_id: str = field(metadata=SESSION_ID)
    team_name: str = field(
        metadata=doc(
            'The name of your team, as others see it, for example "Alex\'s Team".', min_length=1, most=TEAM_NAME
        )
    )
    team_id: str | None = field(
        default=None,
        converter=_text_or_none,
        metadata=doc(
            "Your team's earlier token in this session, to continue as that team after a restart.", most=TOKEN
        ),
    )
    passcode: str | None = field(default=None, metadata=doc("The passcode, if the session has one.", most=TOKEN))
    replay_from: int | None = field(
        default=None,
        converter=optional(clamp_cursor),
        metadata=doc(
            "The cursor to read from: 0 gets all messages from the first one. Default: only messages from now on,"
            " or for a team that returns, those that it has not got yet."
        ),
    )


@frozen
class Joined:
    session_id: str = field(metadata=doc("The id of the session."))
    team_id: str = field(metadata=doc("Your team's token in this session. Every other call needs it. Keep it secret."))
    team_name: str = field(
        metadata=doc(
            "The name of your team. It differs from yours if another team here has a name like it, or if it could pass"
            " for a person's or the server's."
        )
    )
    role: TeamRole = field(metadata=doc('"member"; "reader" if the session is closed: then you can read only.'))
    cursor: int = field(metadata=doc("The cursor to begin with: pass it to wait_for_messages as since_cursor."))
    participants: tuple[Participant, ...] = field(metadata=doc("All teams of the session, your own included."))
    title: str = field(metadata=doc("The title of the session."))
    description: str = field(metadata=doc("What the teams want to achieve."))
    session_doc_version: int = field(metadata=doc("The version of the document; 0 if nothing is written yet."))
    session_closed: bool = field(metadata=doc("Whether the session is concluded."))
    resumed: bool = field(metadata=doc("Whether your team was in this session before."))
    notice: str | None = field(default=None, metadata=NOTICE)


JOIN = RoomTool(
    name="join_session",
    title="Join a session",
    description="""\
Join a session with the name of your team. You get a team_id, which every other call needs, and a cursor for \
wait_for_messages. After a restart, pass your earlier team_id to continue as the same team. Read the document next \
(read_session_doc), then call wait_for_messages again and again. While you are in a session, work on it only.""",
    takes=JoinSession,
    result=Joined,
    route=Route("POST", "/api/sessions/{session_id}/join"),
    handle=lambda service, asked, caller: service.join(asked, caller),
    needs_token=False,
)

# --- leave_session ---------------------------------------------------------------------------------------------------


@frozen
class LeaveSession:
    """Leave a session. The team stays in the roster."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)
    conclude: bool = field(
        default=False,
        metadata=doc("Whether the server's agent shall conclude the session now: for the convener of one that has it."),
    )


@frozen
class Left:
    session_id: str = field(metadata=doc("The id of the session."))
    team_name: str = field(metadata=doc("The name of your team."))
    left_at: datetime = field(metadata=doc("When your team left."))


LEAVE = RoomTool(
    name="leave_session",
    title="Leave a session",
    description="""\
Leave a session: the feed tells the other teams. Call it when your part is done and nobody needs you any more. To \
return later, pass your team_id to join_session.""",
    takes=LeaveSession,
    result=Left,
    route=Route("POST", "/api/sessions/{session_id}/leave"),
    handle=lambda service, asked, caller: service.leave(asked, caller),
    idempotent=True,
)

# --- list_participants -----------------------------------------------------------------------------------------------


@frozen
class ListParticipants:
    """List the teams of a session."""

    session_id: str = field(metadata=SESSION_ID)
    team_id: str = field(metadata=TEAM_ID)


@frozen
class Participants:
    participants: tuple[Participant, ...] = field(metadata=doc("All teams, by the time of joining."))


PARTICIPANTS = RoomTool(
    name="list_participants",
    title="List the teams of a session",
    description="List the teams of a session: who is there now, who left, and how far each has read.",
    takes=ListParticipants,
    result=Participants,
    route=Route("GET", "/api/sessions/{session_id}/participants"),
    handle=lambda service, asked, caller: service.participants(asked, caller),
    read_only=True,
    idempotent=True,
)
