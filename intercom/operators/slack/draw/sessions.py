"""Sessions, notices and help as messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from intercom.model.card import Notice
from intercom.model.checkpoint import CheckpointLine
from intercom.model.session import ProgressItem, ProgressStatus, Session, SessionStatus
from intercom.operators.slack.draw.blocks import (
    Block,
    Drawn,
    Mask,
    Masking,
    amount,
    code,
    context,
    divider,
    drawn_to_fit,
    fields,
    fitted,
    header,
    joined,
    moment,
    mrkdwn,
    plain,
    section,
    short,
)

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


#: The title of each category, in display order.
CATEGORIES: Final = {
    "files": "📁 Files",
    "session": "🔄 Sessions",
    "checkpoint": "📌 Checkpoints",
    "custom": "⚙️ Custom commands",
    "help": "💡 Help",
}
_COMMAND = "/intercom"
_ROOM = 1_500


class Described(Protocol):
    """The properties of a command that help shows."""

    @property
    def name(self) -> str: ...
    @property
    def args(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def example(self) -> str: ...


def command_help(commands: Sequence[Described], category: str | None = None) -> Drawn:
    """List the commands by category; with a `category`, only its commands, each with an example. An empty or unknown
    category lists all commands."""
    groups: dict[str, list[Described]] = {name: [] for name in CATEGORIES}
    for command in commands:
        groups.setdefault(command.category, []).append(command)
    groups = {name: entries for name, entries in groups.items() if entries}
    wanted = {category: groups[category]} if category in groups else groups
    blocks: list[Block] = [header("📖 Commands")]
    for name, entries in list(wanted.items())[:8]:
        if len(blocks) > 1:
            blocks.append(divider())
        room = 2_800 if category in groups else _ROOM
        lines, rest = joined((_line(entry, category in groups) for entry in entries), room // (1 + len(wanted) // 4))
        more = f"\nand {rest} more: `{_COMMAND} help {_words(name, 40)}`" if rest else ""
        title = CATEGORIES.get(name, _words(name, 60))
        blocks.append(section(mrkdwn(f"*{title}*\n{lines}{more}")))
    names = ", ".join(code(name, 40) for name in list(groups)[:12])
    blocks.append(context(mrkdwn(f"💡 `{_COMMAND} help CATEGORY` shows examples. Categories: {names or 'none'}")))
    return Drawn("Commands", tuple(blocks))


def _line(command: Described, long: bool) -> str:
    usage = f"{_COMMAND} {command.name} {command.args}".strip()
    line = f"{code(usage, 160)} {_words(command.summary, 200)}"
    return f"{line}\n      for example {code(command.example, 160)}" if long and command.example else line


def _words(text: str, limit: int) -> str:
    """Escape text of a configuration: a backtick in it must not open a code span."""
    return fitted(text, limit, flat=True).replace("`", "ˋ")


LEVELS: Final = {"info": "ℹ️", "success": "✅", "warning": "⚠️", "error": "❌"}

_LINE = 2_800


def notice(notice: Notice, masker: Mask) -> Drawn:
    """Draw a notice as one line, with the icon of its level."""
    masking = Masking(masker)
    words = f"{LEVELS.get(notice.level, LEVELS['info'])} {masking(notice.text, _LINE)}"
    return Drawn(fitted(words, 300, flat=True), (section(plain(words, _LINE)), *masking.line()))


def shutdown(pending: int) -> Drawn:
    """Return the shutdown notice. It says that pending requests stay open."""
    words = "🌙 Intercom stops."
    if pending:
        stay = "stays" if pending == 1 else "stay"
        words += f" {amount(pending, 'request')} {stay} open and can be answered once it is back."
    return Drawn(fitted(words, 300), (context(plain(words)),))
