"""auto_check: the agent asks whether the workspace's policy lets it do something without a person."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import trio
from attrs import field, frozen

from intercom.model import limits
from intercom.model.field_docs import doc
from intercom.model.request import RiskLevel
from intercom.model.session import SessionMode
from intercom.sessions.messages import Answered, ToolRequest
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.tools.tool import Hints, Tool
from intercom.workspace import files
from intercom.workspace.policy import Query
from intercom.workspace.policy_watcher import Evaluate

DESCRIPTION = """\
Ask whether the policy lets you do something without a person. If "auto_approved" is true, do it. Otherwise ask: with \
check_clearance for files, or transmit.
The policy is the workspace's: for a command to run, a tool to use, a file to read or write. check_clearance asks it \
by itself, so there is no need to call this before it."""


class FileAccess(StrEnum):
    READ = "read"
    WRITE = "write"


@frozen
class CheckContext:
    """What an operation is done to."""

    file_path: str | None = field(
        default=None, metadata=doc("The file that is read or written, relative to the workspace root.")
    )
    risk_level: RiskLevel = field(default=RiskLevel.LOW, metadata=doc("How much harm a mistake could do."))
    operation: FileAccess = field(default=FileAccess.WRITE, metadata=doc("Whether the file is read or written."))
    args: str | tuple[str, ...] = field(
        default=(),
        metadata=doc(
            "The command's arguments, as one string or a list.", most=limits.COMMAND, most_items=limits.COMMAND
        ),
    )


@frozen
class AutoCheck(ToolRequest[Answered["CheckAnswer"]]):
    """Ask whether the policy in force lets the agent do this alone. Refused with `path_violation` if the file is not in
    the workspace."""

    tool_name: str = field(metadata=doc("The tool or command you want to run.", min_length=1, most=limits.COMMAND))
    context: CheckContext | None = field(default=None, metadata=doc("What you want to run it on.", items=CheckContext))


@frozen
class CheckAnswer:
    auto_approved: bool = field(metadata=doc("Whether you may do it without asking a person."))
    matched_rule: str | None = field(metadata=doc("The rule of the policy that allows it; null if none.", keep=True))


async def handle(session: SessionActor, asked: AutoCheck) -> Answered[CheckAnswer]:
    """A grant is recorded, because the agent will act on it."""
    about = asked.context or CheckContext()
    config = session.deps.config
    if config.policy.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE:
        return session.answered(asked.call, CheckAnswer(False, None))
    path = about.file_path
    if path is not None:
        path = await trio.to_thread.run_sync(files.relative, Path(session.row.workspace_root), path)
    command = f"{asked.tool_name} {about.args}" if isinstance(about.args, str) else asked.tool_name
    args = () if isinstance(about.args, str) else about.args
    found = await session.judge(Evaluate(Query(command, args, path, about.risk_level, about.operation.value)))
    if found.auto_approved:
        rule = found.matched_rule or ""
        data = {"matched_rule": rule, "file_path": about.file_path}
        await session.transact(session.record, "policy", "auto_approved", asked.tool_name, **data)
        session.note_auto_approved(asked.tool_name, rule)
    session.touch("auto_check")
    return session.answered(asked.call, CheckAnswer(found.auto_approved, found.matched_rule))


TOOL = Tool(
    name="auto_check",
    legacy_name="check_auto_approve",
    title="Ask the policy",
    description=DESCRIPTION,
    takes=AutoCheck,
    result=CheckAnswer,
    hints=Hints(read_only=True, idempotent=True),
    handle=handle,
)
