"""What a call is answered with, in the SDK's words, and what is said of one that failed."""

from __future__ import annotations

import json
import logging
from typing import Any

import mcp_types as types
import trio

from actors import Busy, Down, NotRunning
from intercom.agents.call import error_content
from intercom.model.errors import IntercomError

log = logging.getLogger("intercom.agents")


def answer(content: dict[str, Any], *, is_error: bool = False) -> types.CallToolResult:
    """A tool's result: once as structure, once as text for clients that know no structure."""
    text = types.TextContent(type="text", text=json.dumps(content, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=content, is_error=is_error)


def outcome(result: types.CallToolResult) -> str:
    """How a call ended, in a word: "ok", the code of its error, "task" where a task stands for its answer; "pending"
    or "paused" where it is to be made again."""
    content = result.structured_content
    if not isinstance(content, dict):
        return "task"
    if result.is_error:
        return str(content.get("error_code"))
    return str(content["status"]) if content.get("status") in ("pending", "paused") else "ok"


def failure(refused: IntercomError) -> types.CallToolResult:
    """A tool's result that says why it did nothing."""
    return answer(error_content(refused), is_error=True)


def refusal(failed: Exception, what: str) -> IntercomError:
    """What the caller is told of a call that failed; `what` names it in the log, where the fault is ours."""
    match failed:
        case IntercomError():
            return failed
        case Busy():
            return IntercomError("too many requests wait in this session; try again in a moment", code="busy")
        case Down() | NotRunning() | trio.TooSlowError():
            restarting = "a part of the server is restarting; nothing was lost, call again"
            return IntercomError(restarting, code="unavailable")
    log.error("%s failed", what, exc_info=failed)
    broken = "the server failed on this call; the fault is in its log, and nothing was changed"
    return IntercomError(broken, code="mcp")
