"""The verbs of ctl about agents that people start: `start`, `clear`, `logs`."""

from __future__ import annotations

from typing import Any

from intercom.model.child import Child
from intercom.model.errors import InvalidArguments
from intercom.operators.ctl.caller import CHANNEL, Caller, act_of
from intercom.operators.ctl.wire import CtlRequest
from intercom.operators.desk import Desk
from intercom.sessions.children import LINES
from intercom.sessions.spawning.output_files import Stream

#: How many bytes of an output one reply holds.
PIECE = 128 * 1024


async def start(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Start an agent. The session has no owner, because a local user has no Slack id."""
    session = await desk.children.start(
        request.text or "",
        by=caller.name,
        channel=CHANNEL,
        workspace=request.workspace,
        label=(request.label or "").strip() or None,
        act=act_of(request.verdict_id),
    )
    return {"session_id": session.id, "status": "started", "workspace_root": session.workspace_root}


async def clear(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """End a session; if people started its agent, end the agent's processes too."""
    named = request.whose
    if named is None:
        raise InvalidArguments("clear needs a session's id; see list")
    session = await desk.end(named, caller.name, CHANNEL, "cleared with agent-intercom-ctl clear")
    return {"session_id": session.id, "status": "cleared"}


async def logs(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Return a piece of an agent's output: its end, or what follows byte `start`."""
    named = request.whose
    if named is None:
        raise InvalidArguments("logs needs a session's id; see list")
    try:
        stream = Stream(request.stream or Stream.STDOUT)
    except ValueError:
        raise InvalidArguments(f"stream takes one of {', '.join(Stream)}") from None
    found = await desk.children.output(named, stream, lines=request.limit or LINES, start=request.start, limit=PIECE)
    return {
        "session_id": found.session_id,
        "stream": found.stream.value,
        "text": found.text,
        "start": found.start,
        "end": found.end,
        "is_going": found.is_going,
        "exit": None if found.exit is None else str(found.exit),
    }


def child_entry(child: Child) -> dict[str, Any]:
    """Return the state of an agent process, for `list`."""
    return {
        "state": child.state.value,
        "pid": None if child.process is None else child.process.pid,
        "label": child.label,
        "started_by": child.started_by,
        "run": child.run,
        "exit": None if child.exit is None else str(child.exit),
    }
