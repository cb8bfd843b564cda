"""Sessions: the root message of a session's thread, the session list, and the checkpoint list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from intercom.model.checkpoint import CheckpointLine
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionStatus
from intercom.operators.slack.draw.blocks import Block, context, divider, fields, header, mrkdwn, plain, section
from intercom.operators.slack.draw.drawn import Drawn, drawn_to_fit
from intercom.operators.slack.draw.masks import Mask, Masking
from intercom.operators.slack.draw.text import amount, code, fitted, moment, short

STATUSES: Final = {
    SessionStatus.CREATED: ("⚪", "starting"),
    SessionStatus.ACTIVE: ("🟢", "active"),
    SessionStatus.PAUSED: ("⏸️", "paused"),
    SessionStatus.INTERRUPTED: ("🔌", "interrupted"),
    SessionStatus.TERMINATED: ("⚫", "ended"),
}
_PROGRESS: Final = {ProgressStatus.DONE: "✅", ProgressStatus.IN_PROGRESS: "🔄", ProgressStatus.PENDING: "▫️"}
_STEPS = 12
_PROMPT = 1_000
_LISTED = 20


def thread_root(session: Session, masker: Mask) -> Drawn:
    """Return the root message of a session's thread: the agent, its workspace, the mode, and the session's status. It
    shows nothing that changes with every call, so it is rarely redrawn."""
    return drawn_to_fit(lambda scale: _root(session, masker, scale))


def session_list(sessions: Sequence[Session], masker: Mask, *, now: datetime) -> Drawn:
    """Return the sessions, as many as fit; `now` is the time of the list."""
    return drawn_to_fit(lambda scale: _list(sessions, masker, now, scale))


def checkpoint_list(checkpoints: Sequence[CheckpointLine], masker: Mask) -> Drawn:
    """Return the checkpoints in the given order, as many as fit."""
    return drawn_to_fit(lambda scale: _checkpoints(checkpoints, masker, scale))


def agent_of(session: Session) -> str:
    """Return the display name of the session's agent."""
    return session.client_name or "agent"


def _root(session: Session, masker: Mask, scale: float) -> Drawn:
    masking = Masking(masker)
    icon, status = STATUSES[session.status]
    agent = masking(agent_of(session), 100)
    root = masking(session.workspace_root, 300)
    place = root.replace("\\", "/").rstrip("/").rpartition("/")[2] or root
    title = f"{icon} {agent} in {place}"
    blocks = [
        header(title),
        fields(
            [
                mrkdwn(f"*State*\n{status}"),
                mrkdwn(f"*Mode*\n{session.mode.value}"),
                mrkdwn(f"*Workspace*\n{code(root, 300)}"),
                mrkdwn(f"*Session*\n{code(short(session.id), 80)}"),
            ]
        ),
    ]
    if session.prompt and session.prompt.strip():
        blocks.append(section(plain(f"📋 {masking(session.prompt, _PROMPT)}", int(_PROMPT * scale))))
    if session.progress_snapshot:
        blocks.append(section(plain(_progress(session.progress_snapshot, masking), int(1_200 * scale))))
    times = f"started {moment(session.created_at)}"
    if session.terminated_at is not None:
        times += f" · ended {moment(session.terminated_at)}"
    blocks.append(context(mrkdwn(f"🕑 {times}")))
    blocks += masking.line()
    return Drawn(fitted(f"{title}: {status}", 300, flat=True), tuple(blocks))


def _progress(items: Sequence[ProgressItem], masking: Masking) -> str:
    lines = [f"{_PROGRESS[item.status]} {masking(item.label, 120)[:120]}" for item in items[:_STEPS]]
    if len(items) > _STEPS:
        lines.append(f"and {len(items) - _STEPS} more")
    return "\n".join(lines)


def _list(sessions: Sequence[Session], masker: Mask, now: datetime, scale: float) -> Drawn:
    masking = Masking(masker)
    blocks: list[Block] = [header("📋 Sessions")]
    shown = sessions[: int(_LISTED * scale)]
    for session in shown:
        icon, status = STATUSES[session.status]
        name = code(masking(agent_of(session), 60), 60)
        lines = [
            f"{icon} {code(short(session.id), 80)} {status} · {session.mode.value} · {name}",
            code(masking(session.workspace_root, 120), 120),
            f"last tool {code(masking(session.last_tool or '-', 60), 60)} · active {moment(session.updated_at)}",
        ]
        blocks.append(section(mrkdwn("\n".join(lines))))
    if not sessions:
        blocks.append(section(plain("No session: none of your agents is connected.")))
    rest = len(sessions) - len(shown)
    foot = f"{amount(len(sessions), 'session')} at {moment(now)}" + (f"; {rest} not shown" if rest else "")
    blocks.append(context(mrkdwn(foot)))
    blocks += masking.line()
    return Drawn(amount(len(sessions), "session"), tuple(blocks))


def _checkpoints(checkpoints: Sequence[CheckpointLine], masker: Mask, scale: float) -> Drawn:
    masking = Masking(masker)
    blocks: list[Block] = [header("📌 Checkpoints")]
    shown = checkpoints[: int(_LISTED * scale)]
    for checkpoint in shown:
        label = code(masking(checkpoint.label or "(no label)", 120), 120)
        line = f"{code(short(checkpoint.id), 80)} {label}"
        facts = [f"session {code(short(checkpoint.session_id), 80)}", moment(checkpoint.created_at)]
        facts.append(amount(checkpoint.files, "file"))
        blocks.append(section(mrkdwn(f"{line}\n{' · '.join(facts)}")))
    if not checkpoints:
        blocks.append(section(plain("No checkpoint yet.")))
    if len(checkpoints) > len(shown):
        blocks += [divider(), context(plain(f"and {len(checkpoints) - len(shown)} more"))]
    blocks += masking.line()
    return Drawn(amount(len(checkpoints), "checkpoint"), tuple(blocks))
