"""Commands about sessions and the agents that people start: list, start, resume, end, and read their output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from intercom.model import signing
from intercom.model.decision import Decision
from intercom.model.errors import SignatureRefused
from intercom.model.process import AgentProcess
from intercom.model.session import Session, SessionMode
from intercom.operators.commands.entries import process_entry, session_done, session_entry
from intercom.operators.commands.handler import Caller, handles, stripped
from intercom.operators.messages import Channel
from intercom.sessions.agent_processes import LINES, Output
from intercom.sessions.operator_service import OperatorService
from intercom.sessions.processes.output_files import Stream

#: How many bytes of an output one reply holds.
PIECE = 128 * 1024

#: Why a session was ended, by channel; the audit log records it.
_WHY = {
    Channel.CTL: "cleared with agent-intercom-ctl clear",
    Channel.SLACK: "cleared with /intercom session-clear",
    Channel.EMBED: "ended by the program",
    Channel.WEB: "ended on the web page",
}


@frozen
class ListSessions:
    everything: bool = False


@frozen
class Listed:
    """Sessions, and the process of each whose agent people started."""

    sessions: Sequence[Session]
    processes: Mapping[str, AgentProcess]


def _listed_entry(listed: Listed) -> dict[str, Any]:
    found = [(each, listed.processes.get(each.id)) for each in listed.sessions]
    entries = [{**session_entry(each), "process": process and process_entry(process)} for each, process in found]
    return {"sessions": entries}


@handles("list", ListSessions, _listed_entry)
async def list_sessions(service: OperatorService, caller: Caller, asked: ListSessions) -> Listed:
    found = await service.sessions(everything=asked.everything)
    # Ended sessions are kept for days, and most lists leave them out.
    named = None if asked.everything else [each.id for each in found]
    return Listed(found, await service.children.everyone(named))


@frozen
class Resume:
    instruction: str | None = field(default=None, converter=stripped)
    session: str | None = None


@handles("resume", Resume, session_done("resumed"))
async def resume(service: OperatorService, caller: Caller, asked: Resume) -> Session:
    """Answer an agent's standby, or end its pause; default: the only agent that waits."""
    if service.signatures.required and caller.channel not in signing.SIGNED_HERE:
        raise SignatureRefused(
            "with an operator key each thing is signed by itself: use answer for an agent that stands by, and unpause"
            " for a session that is paused"
        )
    verdict = caller.verdict(Decision.RESUME, asked.instruction)
    return await service.resume(asked.session, asked.instruction, verdict)


@frozen
class ChangeMode:
    mode: SessionMode = field(converter=SessionMode)
    session: str | None = None


@frozen
class ModeChanged:
    previous_mode: SessionMode
    current_mode: SessionMode


def _mode_entry(changed: ModeChanged) -> dict[str, Any]:
    return {"previous_mode": changed.previous_mode.value, "current_mode": changed.current_mode.value}


@handles("mode", ChangeMode, _mode_entry)
async def mode(service: OperatorService, caller: Caller, asked: ChangeMode) -> ModeChanged:
    return ModeChanged(*await service.switch_mode(asked.session, asked.mode, caller.name, caller.channel.value))


@frozen
class Start:
    text: str = ""
    workspace: str | None = None
    label: str | None = field(default=None, converter=stripped)


def _started_entry(session: Session) -> dict[str, Any]:
    return {"session_id": session.id, "status": "started", "workspace_root": session.workspace_root}


@handles("start", Start, _started_entry)
async def start(service: OperatorService, caller: Caller, asked: Start) -> Session:
    """Start an agent. A local user has no chat id, so the session has no owner then."""
    return await service.children.start(
        asked.text,
        by=caller.name,
        channel=caller.channel.value,
        workspace=asked.workspace,
        owner=caller.owner,
        mode=None if caller.chat_channel is None else SessionMode.REMOTE,
        chat_channel=caller.chat_channel,
        label=asked.label,
        act=caller.act,
    )


@frozen
class Clear:
    session: str


@handles("clear", Clear, session_done("cleared"))
async def clear(service: OperatorService, caller: Caller, asked: Clear) -> Session:
    """End a session; if people started its agent, end the agent's processes too."""
    return await service.end(asked.session, caller.name, caller.channel.value, _WHY[caller.channel])


@frozen
class ReadOutput:
    """A piece of an agent's output: the last `limit` lines, or what follows byte `start`."""

    session: str
    stream: Stream = field(default=Stream.STDOUT, converter=Stream)
    limit: int = LINES
    start: int | None = None


def _output_entry(found: Output) -> dict[str, Any]:
    return {
        "session_id": found.session_id,
        "stream": found.stream.value,
        "text": found.text,
        "start": found.start,
        "end": found.end,
        "is_going": found.is_going,
        "exit": None if found.exit is None else str(found.exit),
    }


@handles("logs", ReadOutput, _output_entry)
async def logs(service: OperatorService, caller: Caller, asked: ReadOutput) -> Output:
    """Return a piece of an agent's output. Secrets are masked for a chat."""
    return await service.children.output(
        asked.session,
        asked.stream,
        lines=asked.limit,
        start=asked.start,
        limit=PIECE,
        masked=caller.channel is Channel.SLACK,
    )
