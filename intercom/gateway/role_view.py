"""What a role may do, for people: for one tool with the reason, or for all tools that are known. Pure.

It is the same with a server and without one. Without, the tools are those that were allowed when one ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from intercom.gateway.config_directory_check import roles_fault
from intercom.gateway.roles import Decision, Roles, decide, explain
from intercom.model.errors import InvalidState, NotFound
from intercom.model.gateway_view import RoleExplanation, ToolDecision
from intercom.model.visible_text import one_line

#: The most names in a message.
_NAMED: Final = 20


def explain_role(
    roles: Roles,
    faults: Sequence[str],
    role: str,
    tools: Iterable[tuple[str, str]],
    name: str | None = None,
    tool: str | None = None,
    notes: Sequence[str] = (),
) -> RoleExplanation:
    """Explain what a role may do with the tool `tool` of the downstream `name`; without `tool`, with each of `tools`,
    which are pairs of these. `notes` are sentences about that one tool. `faults` are those of the files.

    Raises InvalidState if no role counts because of a fault, and NotFound for an unknown role, if no tool is named.
    """
    if role not in roles.roles and (fault := roles_fault(faults)) is not None:
        raise InvalidState(f"no role counts now, because of a fault: {one_line(fault)}")
    if name is not None and tool is not None:
        found = explain(roles, role, name, tool)
        return RoleExplanation(role, (_cell(name, tool, found.decision),), "\n".join([*notes, found.text]))
    if role not in roles.roles:
        there = ", ".join(sorted(roles.roles)[:_NAMED]) or "none"
        near = get_close_matches(role[:80], roles.roles, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise NotFound(one_line(f"no role is called {role[:80]!r}; {hint}there are: {there}"))
    return RoleExplanation(role, tuple(_cell(each, verb, decide(roles, role, each, verb)) for each, verb in tools))


def _cell(name: str, tool: str, decided: Decision) -> ToolDecision:
    return ToolDecision(name, tool, decided.effect.value, None if decided.rule is None else str(decided.rule))
