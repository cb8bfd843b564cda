"""The arguments of the nine tools, with the descriptions that agents read."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from attrs import field, frozen

from intercom.model import text_limits as limits
from intercom.model.approval import RiskLevel
from intercom.model.prompt import PromptType
from intercom.model.session import ProgressStatus, SessionMode

#: The limit of numbers that are clamped later; only larger ones are refused.
_ANY = 10**12


class Level(StrEnum):
    INFO = "info"
    SUCCESS = "success"
    WARNING = "warning"
    ERROR = "error"


class Operation(StrEnum):
    READ = "read"
    WRITE = "write"


def said(doc: str, default: Any = None, **limits: Any) -> Any:
    """Make a field with a default and a description."""
    return field(default=default, metadata={"doc": doc, **limits})


def needed(doc: str, **limits: Any) -> Any:
    """Make a required field with a description."""
    return field(metadata={"doc": doc, **limits})


_AGAIN = "Id of an earlier request that is still pending: wait for it again instead of asking anew."


@frozen
class CheckClearance:
    nothing_required: ClassVar[bool] = True

    title: str | None = said(
        "One line that says what the change is. Needed for a new proposal.", min_length=1, most=limits.TITLE
    )
    description: str | None = said("Why, and what a reviewer should know.", most=limits.TEXT)
    diff: str | None = said(
        "The change as a unified diff of one file or several. It begins with the --- line or with diff --git: no prose,"
        " no code block. A new proposal needs diff or content, not both."
    )
    content: str | None = said(
        "The whole new content of the file, taken literally: it may be empty, or look like a patch."
    )
    file_path: str | None = said(
        "The file it changes, relative to the workspace root; for a diff of several files, one of them."
        " Needed for a new proposal.",
        min_length=1,
    )
    risk_level: RiskLevel = said("How much harm a mistake could do.", RiskLevel.LOW)
    request_id: str | None = said(_AGAIN, min_length=1, most=limits.NAME)


@frozen
class CheckDiff:
    request_id: str = needed("The id that check_clearance gave with its approval.", min_length=1, most=limits.NAME)
    force: bool = said(
        "Where the file has changed since it was approved: ask a person whether to write the approved whole file over"
        " it, and wait. Never applies a patch to a changed file.",
        False,
    )


@frozen
class CheckContext:
    file_path: str | None = said("The file it is about, relative to the workspace root.")
    risk_level: RiskLevel = said("How much harm a mistake could do.", RiskLevel.LOW)
    operation: Operation = said("Whether the file is read or written.", Operation.WRITE)
    args: str | tuple[str, ...] | None = said(
        "The command's arguments, as one string or a list.", most=limits.COMMAND, most_items=limits.COMMAND
    )


@frozen
class AutoCheck:
    tool_name: str = needed("The tool or command you want to run.", min_length=1, most=limits.COMMAND)
    context: CheckContext | None = said("What it would be run on.", items=CheckContext)


@frozen
class Transmit:
    nothing_required: ClassVar[bool] = True

    prompt_text: str | None = said("The question, in full. Needed for a new question.", min_length=1, most=limits.TEXT)
    prompt_type: PromptType = said("What kind of question it is.", PromptType.CONTINUATION)
    elapsed_seconds: int | None = said("Seconds since a person last said something.", minimum=0, maximum=_ANY)
    actions_taken: int | None = said("How many actions you have taken since.", minimum=0, maximum=_ANY)
    request_id: str | None = said(_AGAIN, min_length=1, most=limits.NAME)


@frozen
class Broadcast:
    message: str = needed("The line to tell.", min_length=1, most=limits.TEXT)
    level: Level = said("How serious it is.", Level.INFO)
    thread_ts: str | None = said("The thread to post it in, as an earlier broadcast's ts.", most=limits.NAME)


@frozen
class Reboot:
    session_id: str | None = said(
        "The session to take up again. Left out: the one your like left in this workspace.", most=limits.NAME
    )


@frozen
class SwitchFreq:
    mode: SessionMode = needed("Who is notified: remote (chat), local (terminal and web), or hybrid (both).")


@frozen
class Standby:
    nothing_required: ClassVar[bool] = True

    message: str = said(
        "What the operator reads while you wait.", "Agent is idle and awaiting instructions.", most=limits.TEXT
    )
    timeout_seconds: int = said(
        "The longest to wait, in seconds; 0 takes the configured time. More than a week is held to a week.",
        0,
        minimum=0,
        maximum=_ANY,
    )
    request_id: str | None = said(_AGAIN, min_length=1, most=limits.NAME)


@frozen
class PermissionPrompt:
    open_to_more: ClassVar[bool] = True

    tool_name: str = needed("The tool that is to be used.", min_length=1, most=limits.NAME)
    input: dict[str, Any] = needed("What it is to be used with.", verbatim=True)
    tool_use_id: str | None = said("The client's name of this use of the tool.", most=limits.NAME)


@frozen
class Item:
    label: str = needed("What the task is.", min_length=1, most=limits.TITLE)
    status: ProgressStatus = needed("Where it stands.")


@frozen
class Ping:
    status_message: str | None = said("One line the operator is told.", most=limits.STATUS)
    progress_snapshot: tuple[Item, ...] | None = said(
        "Your task list as it stands; replaces the one before.", items=Item
    )
