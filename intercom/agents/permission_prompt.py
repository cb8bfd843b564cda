"""The tool for Claude Code's `--permission-prompt-tool`, which the client calls itself, not its model.

It is not one of the nine tools. `[mcp] permission_prompt_tool` enables it. It asks the session what a permission hook
asks, so it belongs to the agents' side.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import field, frozen

from intercom.agents.call import Call
from intercom.agents.clients import tools
from intercom.agents.clients.question import INNER, OTHER, OWN
from intercom.agents.hook_server import hook_answer, operation_of
from intercom.model import limits
from intercom.model.field_docs import doc
from intercom.sessions.kinds import PermissionAnswer
from intercom.sessions.messages import Answered, AskPermission, Delivery, Withdraw
from intercom.sessions.tools.tool import Hints, Tool

DESCRIPTION = """\
For Claude Code's --permission-prompt-tool, not for you: may this tool be used with this input? The workspace's policy \
answers, or a person."""

_CLIENT = "claude-code"


@frozen
class PermissionPrompt:
    open_to_more: ClassVar[bool] = True

    tool_name: str = field(metadata=doc("The tool that is to be used.", min_length=1, most=limits.NAME))
    input: dict[str, Any] = field(metadata=doc("What it is to be used with.", verbatim=True))
    tool_use_id: str | None = field(
        default=None, metadata=doc("The client's name of this use of the tool.", most=limits.NAME)
    )


@frozen
class PermissionVerdict:
    """The decision in Claude Code's format."""

    behavior: str = field(metadata=doc('"allow" or "deny".'))
    updatedInput: dict[str, Any] | None = field(  # noqa: N815 - the client's spelling
        default=None, metadata=doc("The input to use: the one that was asked about.")
    )
    message: str | None = field(default=None, metadata=doc("Why not, for the model."))


PERMISSION_PROMPT = Tool(
    name="permission_prompt",
    title="Ask permission for a tool",
    description=DESCRIPTION,
    takes=PermissionPrompt,
    result=PermissionVerdict,
    hints=Hints(open_world=True),
)


async def permission_prompt(call: Call) -> Answered[PermissionVerdict]:
    """Answer in Claude Code's format."""
    given: PermissionPrompt = call.given
    allowed = Answered(PermissionVerdict("allow", given.input))
    found = tools.operation(given.tool_name, given.input)
    if found.kind == OWN:
        return allowed
    if found.kind == INNER:
        # The client has asked, so a person decides even about its inner tools.
        found = tools.other(OTHER, given.tool_name, given.input)
    answer = await decided(call, AskPermission(call.name, _CLIENT, operation_of(found), f"{_CLIENT}/permission-prompt"))
    if answer.request_id and answer.status not in ("allowed", "pending"):
        call.delivery = Delivery(call.name, (answer.request_id,))
    said = hook_answer(answer)
    return allowed if said.behavior == "allow" else Answered(PermissionVerdict("deny", message=said.message))


async def decided(call: Call, asked: AskPermission) -> PermissionAnswer:
    """Ask for a permission, and wait for a person until the poll interval ends; then the answer is "pending"."""

    def after_decision(_asked: AskPermission, answered: Answered[PermissionAnswer]) -> AskPermission | Answered[Any]:
        # A person's approval is used up by asking again.
        return asked if answered.answer.status == "approved" else answered

    answered, request_id = await call.ask_and_wait(asked, after_decision)
    if answered is not None:
        answer: PermissionAnswer = answered.answer
        return answer
    assert request_id is not None, "what is pending has an id"
    call.session.tell(Withdraw(call.name, request_id, call.ticket))
    return PermissionAnswer("pending", request_id)
