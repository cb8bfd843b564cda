"""The tool for Claude Code's `--permission-prompt-tool`, which the client calls itself, not its model.

It is not one of the nine tools. `[mcp] permission_prompt_tool` enables it.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from intercom.agents.call import Call
from intercom.agents.hook import tools
from intercom.agents.hook.question import INNER, OTHER, OWN
from intercom.agents.leave import operation_of, verdict
from intercom.agents.tools import inputs
from intercom.agents.tools.tool import Hints, Tool
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import Delivery, Withdraw
from intercom.sessions.permission_messages import AskPermission, AwaitPermission

DESCRIPTION = """\
For Claude Code's --permission-prompt-tool, not for you: may this tool be used with this input? The workspace's policy \
answers, else a person."""

_CLIENT = "claude-code"


@frozen
class PermissionVerdict:
    """The decision in Claude Code's format. `behavior` is allow or deny."""

    behavior: str
    updatedInput: dict[str, Any] | None = None  # noqa: N815 - the client's spelling
    message: str | None = None


async def permission_prompt(call: Call, given: inputs.PermissionPrompt) -> dict[str, Any]:
    """Answer in Claude Code's format."""
    found = tools.operation(given.tool_name, given.input)
    if found.kind == OWN:
        return {"behavior": "allow", "updatedInput": given.input}
    if found.kind == INNER:
        # The client has asked, so a person decides even about its inner tools.
        found = tools.other(OTHER, given.tool_name, given.input)
    asked = AskPermission(call.name, _CLIENT, operation_of(found), f"{_CLIENT}/permission-prompt")
    answer = await decided(call, asked)
    if answer.request_id and answer.status not in ("allowed", "pending"):
        call.delivery = Delivery(call.name, (answer.request_id,))
    said = verdict(answer)
    if said["behavior"] == "allow":
        return {"behavior": "allow", "updatedInput": given.input}
    return {"behavior": "deny", "message": said["message"]}


async def decided(call: Call, asked: AskPermission) -> PermissionAnswer:
    """Ask for a permission, and wait for a person until the poll interval ends; then the answer is "pending"."""
    while True:
        opened = await call.ask(asked)
        if opened.answered is not None:
            return opened.answered.answer
        waited = await call.wait(AwaitPermission(call.name, opened.request_id, call.ticket), opened.request_id)
        if waited is None:
            call.session.tell(Withdraw(call.name, opened.request_id, call.ticket))
            return PermissionAnswer("pending", opened.request_id)
        answer: PermissionAnswer = waited.answer
        if answer.status != "approved":
            return answer


PERMISSION_PROMPT = Tool(
    "permission_prompt",
    "permission_prompt",
    "Ask leave for a tool",
    DESCRIPTION,
    inputs.PermissionPrompt,
    PermissionVerdict,
    Hints(open_world=True),
    permission_prompt,
)
