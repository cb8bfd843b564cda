"""The resources of the MCP server: a session's own requests, and the latest messages of its chat channel.

A resource shows what the agent asked, and what it was told. No address names a session, so an agent reads its own and
no other. A decision appears once it was delivered: only the tools deliver it, after they have checked it.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from actors import Busy, Down, NotRunning, Request, ask
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.model import clock
from intercom.model.errors import IntercomError
from intercom.model.json_types import Json, JsonObject
from intercom.model.request import ApprovalRequest, ContinuationPrompt, InstructionWait
from intercom.sessions.chat_messages import channel_of
from intercom.sessions.messages import OUTBOX_WRITER, Describe, History, ReadRecent, ReadRequests
from intercom.sessions.request_kinds import Asked, headline

R = TypeVar("R")

#: Time limit of a session's answer, in seconds.
_SESSION_SECONDS: Final = 20.0


class Own(StrEnum):
    """The addresses of what a session has asked."""

    PENDING = "intercom://session/pending"
    HISTORY = "intercom://session/history"


LISTED: Final = (
    types.Resource(
        uri=Own.PENDING.value,
        name="pending-requests",
        title="Requests that wait",
        description="The requests of this session that wait for a person, oldest first, with the tool to wait with.",
        mime_type="application/json",
    ),
    types.Resource(
        uri=Own.HISTORY.value,
        name="request-history",
        title="Request history",
        description="The last 50 requests of this session and what was answered, newest first.",
        mime_type="application/json",
    ),
)
#: The most requests that the history has.
HISTORY_LIMIT: Final = 50
#: The most characters of the text that came with a decision.
_TEXT_LIMIT: Final = 400


async def read(connection: AgentConnection, caller: Caller, uri: str) -> types.ReadResourceResult:
    """Return the contents of a resource. Raises MCPError with a message that says what to do."""
    if uri not in list(Own):
        return await _read_channel(connection, caller, uri)
    found = await own_requests(connection, caller, Own(uri))
    return types.ReadResourceResult(contents=[_contents(uri, found)])


def _contents(uri: str, found: JsonObject) -> types.TextResourceContents:
    return types.TextResourceContents(uri=uri, mime_type="application/json", text=json.dumps(found, ensure_ascii=False))


# --- a session's own requests ----------------------------------------------------------------------------------------


async def own_requests(connection: AgentConnection, caller: Caller, which: Own) -> JsonObject:
    """Return the requests of the caller's own session. Raises MCPError for a client without a session of its own."""
    if connection.anonymous:
        raise MCPError(
            code=types.INVALID_PARAMS,
            message="only an agent with a key has a session of its own: put ?agent=KEY into the URL",
        )
    try:
        session_id = await connection.session(caller)
        asked = ReadRequests(pending=which is Own.PENDING, limit=HISTORY_LIMIT)
        found = await _ask(connection, session_id, asked)
    except IntercomError as refused:
        raise _refusal(refused) from None
    except (Busy, Down, NotRunning, trio.TooSlowError):
        raise MCPError(
            code=types.INTERNAL_ERROR, message="the session does not answer just now; read it again in a moment"
        ) from None
    return {"session_id": session_id, "requests": [_line(each) for each in found]}


def _line(request: Asked) -> JsonObject:
    """Return a request in the agents' format. A decision that was not delivered yet is left out."""
    line: JsonObject = {"request_id": request.id, **_subject(request), "created_at": clock.to_text(request.created_at)}
    decided, status = request.decided, request.status.value
    if status in ("pending", "interrupted") or decided is None:
        until = request.expires_at if status == "pending" else None
        return {**line, "status": status, **({} if until is None else {"expires_at": clock.to_text(until)})}
    if request.delivered_at is None:
        return {**line, "status": "answered", "next": "call the same tool again to get the answer"}
    line |= {"status": status, "decision": str(decided.decision), "decided_at": clock.to_text(decided.at)}
    return {**line, "text": headline(decided.text, _TEXT_LIMIT)} if decided.text else line


def _subject(request: Asked) -> JsonObject:
    match request:
        case ApprovalRequest(tool=None):
            files: list[Json] = [each.path for each in request.files]
            return {"type": "approval", "tool": "check_clearance", "title": headline(request.title), "files": files}
        case ApprovalRequest():
            return {"type": "permission", "tool": request.tool, "title": headline(request.title)}
        case ContinuationPrompt():
            return {"type": "prompt", "tool": "transmit", "title": headline(request.prompt_text)}
        case InstructionWait():
            return {"type": "standby", "tool": "standby", "title": headline(request.message)}


async def _ask(connection: AgentConnection, session_id: str, question: Request[R]) -> R:
    session = connection.system.named(f"session/{session_id}")
    return await ask(session, question, timeout=_SESSION_SECONDS, retry=True)


def _refusal(refused: IntercomError) -> MCPError:
    return MCPError(code=types.INTERNAL_ERROR, message=f"{refused.error_code}: {refused.message}")


# --- the latest messages of a channel --------------------------------------------------------------------------------

TEMPLATE = types.ResourceTemplate(
    uri_template="slack://channel/{id}/recent{?limit}",
    name="recent-messages",
    title="Recent channel messages",
    description="The latest messages of the Slack channel where this session is shown, newest first; limit takes 1 to"
    " 100 (20). No other channel can be read.",
    mime_type="application/json",
)
DEFAULT_LIMIT, MOST = 20, 100
#: Time limit of the chat, in seconds.
_CHAT_SECONDS = 20.0
_NOT_SET_UP = "slack: slack is not set up on this server, so there is no channel to read; ask with transmit instead"


async def _read_channel(connection: AgentConnection, caller: Caller, uri: str) -> types.ReadResourceResult:
    """Return the channel's latest messages. Raises MCPError with a message that says what to do."""
    wanted, limit = parse(uri)
    try:
        session_id = await connection.session(caller)
        session = await _ask(connection, session_id, Describe())
        channel = channel_of(connection.config, session)
        if channel is None:
            raise MCPError(code=types.INTERNAL_ERROR, message=_NOT_SET_UP)
        if wanted != channel:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"slack: this session is shown in the channel {channel}, and only that one can be read",
            )
        found = await ask(connection.system.named(OUTBOX_WRITER), ReadRecent(channel, limit), timeout=_CHAT_SECONDS)
    except IntercomError as refused:
        raise _refusal(refused) from None
    except NotRunning:
        raise MCPError(
            code=types.INTERNAL_ERROR,
            message="slack: the server is not in slack (agent-intercom doctor says why); ask with transmit instead",
        ) from None
    except (Busy, Down, trio.TooSlowError):
        raise MCPError(
            code=types.INTERNAL_ERROR,
            message="slack: the channel could not be read just now; read it again in a moment",
        ) from None
    return types.ReadResourceResult(contents=[_contents(uri, _history(found))])


def parse(uri: str) -> tuple[str, int]:
    """Return the channel and the limit (clamped to 1 to 100) of a URI. Raises MCPError for any other URI."""
    try:
        parts = urlsplit(uri)
        asked = parse_qs(parts.query, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise _not_found() from None
    steps = parts.path.split("/")
    if (parts.scheme, parts.netloc, len(steps)) != ("slack", "channel", 3) or not steps[1] or steps[2] != "recent":
        raise _not_found()
    if asked.keys() - {"limit"}:
        raise MCPError(code=types.INVALID_PARAMS, message="only limit can be asked of a channel's recent messages")
    return steps[1], _limit(asked.get("limit", [str(DEFAULT_LIMIT)])[-1])


def _history(found: History) -> JsonObject:
    """Return the history in the agents' format."""
    told = ("ts", "user", "text", "thread_ts")
    rows = [{name: getattr(each, name) for name in told if getattr(each, name) is not None} for each in found.messages]
    return {"messages": rows, "has_more": found.has_more}


def _limit(text: str) -> int:
    try:
        return min(MOST, max(1, int(text)))
    except ValueError:
        raise MCPError(code=types.INVALID_PARAMS, message=f"limit must be a whole number, 1 to {MOST}") from None


def _not_found() -> MCPError:
    return MCPError(
        code=types.INVALID_PARAMS, message="not found: no resource has this uri; list the resources and their templates"
    )
