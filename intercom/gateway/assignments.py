"""Assignments: which agent has which role. Pure.

`roles.json` has a list `assignments`. Each gives a role to the agents that fit all of its conditions:

- `token`: the SHA-256 (64 hexadecimal digits) of the token with which the agent connects;
- `session`: the beginning of its session's id, at least 8 characters;
- `client`: the name of its client; `*` stands for any characters, and upper and lower case are the same.

An assignment with a token comes before one with a session, and that before one with a client only. Among equals, the
one with more conditions comes first, then one without `*`, then the longer one, then the first in the list. An agent
that none fits has the role `defaultRole`, or none: then it may call nothing.

**A client's name is a claim.** The agent's program says it, and nobody checks it. So an assignment by client alone
never gives more than the default role: a call is only allowed if both roles allow it, and a person is asked if one of
the two says so (`narrowed_by`). It does not bind an agent that lies about its name, either: that one has the default
role. So the default role must have only what any agent may do. With `trustClientNames`, a client's role replaces the
default role: do that only where every program that can connect is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from typing import Final

from attrs import field, frozen

from intercom.gateway.roles import ANY, ROLE_NAME, matcher
from intercom.model.visible_text import one_line

#: The keys of roles.json that this module reads.
KEYS: Final = ("assignments", "defaultRole", "trustClientNames")
#: The longest pattern for a client's name (characters).
CLIENT_PATTERN: Final = 200
#: The longest text of others that a message repeats (characters).
_SHOWN: Final = 60

_TOKEN: Final = re.compile(r"[0-9a-fA-F]{64}")
_SESSION: Final = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{7,35}")
_CONDITIONS: Final = ("token", "session", "client")


class Evidence(IntEnum):
    """What an assignment relies on, the strongest first. A client's name is none, but a claim."""

    TOKEN = 0
    SESSION = 1
    CLAIM = 2


@frozen
class AgentIdentity:
    """What is known of an agent when it calls. `id` names it in records. `client` is the name that its client claims.
    `token` is the SHA-256 of the token that it connected with, in lower case."""

    id: str
    client: str | None = None
    session: str | None = None
    token: str | None = field(default=None, repr=False)


@frozen
class Assignment:
    """A role for the agents that fit all conditions, of which there is at least one. None means any agent."""

    role: str
    token: str | None = field(default=None, repr=False)
    session: str | None = None
    client: str | None = None
    _is_client: Callable[[str], object] = field(init=False, eq=False, repr=False)

    @_is_client.default
    def _compile(self) -> Callable[[str], object]:
        return matcher(((self.client or ANY).lower(),))

    @property
    def evidence(self) -> Evidence:
        if self.token is not None:
            return Evidence.TOKEN
        return Evidence.CLAIM if self.session is None else Evidence.SESSION

    @property
    def conditions(self) -> tuple[str, ...]:
        return tuple(each for each in (self.token, self.session, self.client) if each is not None)

    def fits(self, agent: AgentIdentity) -> bool:
        """Whether the agent fits all conditions. What is not known of an agent fits no condition."""
        if self.token is not None and self.token != agent.token:
            return False
        if self.session is not None and not (agent.session or "").lower().startswith(self.session):
            return False
        return self.client is None or (agent.client is not None and bool(self._is_client(agent.client.lower())))


def _precedence(assignment: Assignment) -> tuple[int, int, bool, int]:
    conditions = assignment.conditions
    length = sum(len(each.replace(ANY, "")) for each in conditions)
    return assignment.evidence, -len(conditions), ANY in (assignment.client or ""), -length


def _in_order(assignments: Iterable[Assignment]) -> tuple[Assignment, ...]:
    return tuple(sorted(assignments, key=_precedence))


@frozen
class Assignments:
    """All assignments, in order of precedence whichever order they are given in, and the role of all other agents."""

    assignments: tuple[Assignment, ...] = field(default=(), converter=_in_order)
    default_role: str | None = None
    trust_client_names: bool = False

    def names_session(self, session_id: str) -> bool:
        """Whether an assignment gives this session a role."""
        return any(
            each.session is not None and session_id.lower().startswith(each.session) for each in self.assignments
        )

    def first(self, agent: AgentIdentity) -> Assignment | None:
        """Return the assignment that counts for an agent, or None if none fits."""
        for each in self.assignments:
            if each.fits(agent):
                return each
        return None


def role_of(assignments: Assignments, agent: AgentIdentity) -> tuple[str | None, str]:
    """Return the role of an agent, or None if it has none; and the reason, a clause for people.

    What the agent may do is the stricter of this role and of `narrowed_by`, if that is a role.
    """
    found, default = assignments.first(agent), assignments.default_role
    if found is not None and found.evidence is Evidence.TOKEN:
        return found.role, "its token has this role"
    if found is not None and found.evidence is Evidence.SESSION:
        return found.role, f"its session {one_line((agent.session or '')[:8])} has this role"
    if found is None:
        return (
            default,
            "it is the default role" if default is not None else "no assignment fits, and no defaultRole is set",
        )
    claim = f"its client calls itself {_quoted(agent.client or '')}"
    if assignments.trust_client_names:
        return found.role, f"{claim}, and trustClientNames is set"
    if default is None:
        return None, f"{claim}, which is a claim and gives no role without a defaultRole"
    return default, f"it is the default role; {claim}, so it may do only what the role {_quoted(found.role)} may, too"


def narrowed_by(assignments: Assignments, agent: AgentIdentity) -> str | None:
    """Return the role that an agent's claimed client narrows its role to, or None. It never gives more."""
    found = assignments.first(agent)
    if found is None or found.evidence is not Evidence.CLAIM or assignments.trust_client_names:
        return None
    return found.role


# --- reading ---------------------------------------------------------------------------------------------------------


def parse(raw: Mapping[str, object]) -> tuple[Assignments | None, tuple[str, ...]]:
    """Read the assignments of a parsed roles.json. Return None if there are faults, and all faults.

    The form is `{"defaultRole": "dev", "trustClientNames": false, "assignments": [{"role": "ci", "token": "9f86..."},
    {"role": "reader", "client": "codex*"}]}`. A fault is a sentence that names the place and the remedy. The roles must
    be among the `roles` of the same file.
    """
    faults: list[str] = []
    known = _role_names(raw.get("roles"))
    listed = raw.get("assignments", [])
    if not isinstance(listed, list):
        faults.append('assignments: must be a list, such as [{"role": "reader", "client": "codex*"}]')
        listed = []
    found: list[Assignment] = []
    for at, each in enumerate(listed):
        assignment = _read(each, f"assignments[{at}]", known, faults)
        if assignment is None:
            continue
        if any(each.conditions == assignment.conditions for each in found):
            faults.append(f"assignments[{at}]: has the conditions of an earlier one; remove one of the two")
        found.append(assignment)
    default = _read_role(raw["defaultRole"], "defaultRole", known, faults) if "defaultRole" in raw else None
    trust = raw.get("trustClientNames", False)
    if not isinstance(trust, bool):
        faults.append("trustClientNames: must be true or false, without quotes")
    return (None if faults else Assignments(found, default, trust is True)), tuple(faults)


def _role_names(raw: object) -> tuple[str, ...]:
    rows = [each.get("role") for each in raw if isinstance(each, Mapping)] if isinstance(raw, list) else []
    return tuple(each for each in rows if isinstance(each, str))


def _read(raw: object, where: str, known: Collection[str], faults: list[str]) -> Assignment | None:
    if not isinstance(raw, Mapping):
        faults.append(f'{where}: must be a table with "role" and one of {_listed(_CONDITIONS)}')
        return None
    before = len(faults)
    for key in raw:
        if key not in ("role", *_CONDITIONS):
            near = get_close_matches(str(key)[:_SHOWN], ("role", *_CONDITIONS), 1)
            hint = f" (did you mean {near[0]}?)" if near else f" (known here: role, {', '.join(_CONDITIONS)})"
            faults.append(f"{where}.{_cut(str(key))}: is not a setting{hint}")
    if not any(key in raw for key in _CONDITIONS):
        faults.append(f"{where}: has no condition; write one of {_listed(_CONDITIONS)}, or defaultRole for all agents")
    if "role" not in raw:
        faults.append(f"{where}.role: is missing; write the name of a role")
        role = None
    else:
        role = _read_role(raw["role"], f"{where}.role", known, faults)
    # No message repeats a value here: it may be the token itself.
    token, session, client = (raw.get(key) for key in _CONDITIONS)
    if "token" in raw and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        faults.append(f"{where}.token: must be the SHA-256 of a token, 64 hexadecimal digits, never the token itself")
    if "session" in raw and not (isinstance(session, str) and _SESSION.fullmatch(session)):
        faults.append(f"{where}.session: must be the beginning of a session's id, at least 8 characters")
    if "client" in raw and not _is_pattern(client):
        faults.append(
            f'{where}.client: must be the name of a client, such as "codex*", at most {CLIENT_PATTERN} characters'
        )
    if len(faults) > before or role is None:
        return None
    return Assignment(
        role,
        token.lower() if isinstance(token, str) else None,
        session.lower() if isinstance(session, str) else None,
        client if isinstance(client, str) else None,
    )


def _is_pattern(value: object) -> bool:
    return (
        isinstance(value, str) and 0 < len(value) <= CLIENT_PATTERN and value == one_line(value) and "**" not in value
    )


def _read_role(raw: object, where: str, known: Collection[str], faults: list[str]) -> str | None:
    if not isinstance(raw, str) or not raw:
        faults.append(f"{where}: must be the name of a role, as a text")
        return None
    if raw not in known:
        near = get_close_matches(raw[:ROLE_NAME], known, 1)
        hint = f"did you mean {_quoted(near[0])}?" if near else "write a role of this name, or the name of another"
        faults.append(f"{where}: {_quoted(raw)} is not among the roles of this file; {hint}")
        return None
    return raw


def _listed(names: Collection[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _quoted(text: str) -> str:
    return f'"{_cut(text)}"'
