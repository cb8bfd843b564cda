"""The resource `slack://channel/{id}/recent`: the latest messages in the channel of an agent's session."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
import trio
from mcp.shared.exceptions import MCPError

from actors import Busy, Down, NotRunning, ask
from intercom.agents.door import Caller, Door
from intercom.model.errors import IntercomError
from intercom.sessions.chat import CHANNEL_ACTOR, History, Message, ReadRecent, channel_of
from intercom.sessions.messages import Describe

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
_SECONDS = 20.0
_NOT_SET_UP = "slack: slack is not set up on this server, so there is no channel to read; ask with transmit instead"


async def read(door: Door, caller: Caller, uri: str) -> types.ReadResourceResult:
    """Return the channel's latest messages. Raises MCPError with a message that says what to do."""
    wanted, limit = parse(uri)
    try:
        session_id = await door.session(caller)
        session = await ask(door.system.named(f"session/{session_id}"), Describe(), timeout=_SECONDS, retry=True)
        channel = channel_of(door.config, session)
        if channel is None:
            raise MCPError(code=types.INTERNAL_ERROR, message=_NOT_SET_UP)
        if wanted != channel:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"slack: this session is shown in the channel {channel}, and only that one can be read",
            )
        found = await ask(door.system.named(CHANNEL_ACTOR), ReadRecent(channel, limit), timeout=_SECONDS)
    except IntercomError as refused:
        raise MCPError(code=types.INTERNAL_ERROR, message=f"{refused.error_code}: {refused.message}") from None
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
    text = json.dumps(as_json(found), ensure_ascii=False)
    contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    return types.ReadResourceResult(contents=[contents])


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


def as_json(found: History) -> dict[str, Any]:
    """Return the history in the agents' format."""
    return {"messages": [_message(each) for each in found.messages], "has_more": found.has_more}


def _message(message: Message) -> dict[str, str]:
    said = {"ts": message.ts, "user": message.user, "text": message.text}
    return said if message.thread_ts is None else {**said, "thread_ts": message.thread_ts}


def _limit(text: str) -> int:
    try:
        return min(MOST, max(1, int(text)))
    except ValueError:
        raise MCPError(code=types.INVALID_PARAMS, message=f"limit must be a whole number, 1 to {MOST}") from None


def _not_found() -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message="not found: no resource has this uri; see the templates")
