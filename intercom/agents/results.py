"""Tool results as SDK values, and the errors of failed calls."""

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
    """Return a tool's result: as structured content, and as text for clients without support for it."""
    text = types.TextContent(type="text", text=json.dumps(content, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=content, is_error=is_error)


def outcome(result: types.CallToolResult) -> str:
    """Return how a call ended: "ok", the code of its error, or "task" if a task replaces its answer. Returns "pending"
    or "paused" if the call must be repeated."""
    content = result.structured_content
    if not isinstance(content, dict):
        return "task"
    if result.is_error:
        return str(content.get("error_code"))
    return str(content["status"]) if content.get("status") in ("pending", "paused") else "ok"


def failure(refused: IntercomError) -> types.CallToolResult:
    """Return a tool's error result."""
    return answer(error_content(refused), is_error=True)


def refusal(failed: Exception, what: str) -> IntercomError:
    """Return the error for the caller of a failed call. `what` names the call in the log of internal errors."""
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
