"""A grant: a person's permission in advance for one kind of request of one session, limited in time and in uses.

A grant is judged as a policy with a single rule (`GrantScope.policy`), so it obeys everything that a policy obeys:
protected paths and critical risks always need a person.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import frozen

from intercom.model.decision import SignedCommand
from intercom.model.errors import InvalidArguments
from intercom.model.policy import FilePatterns, WorkspacePolicy
from intercom.model.request import RiskLevel

#: The default and the longest duration of a grant, in seconds; the default and the largest number of its uses.
DURATION, LONGEST = 20 * 60, 24 * 60 * 60
USES, MOST_USES = 10, 1000
#: How many grants of one session may be in force at a time.
MOST_GRANTS = 50
#: How many patterns a grant may have.
MOST_PATTERNS = 20

#: The name of the command that makes a grant. A signature of it is for nothing else.
GRANT = "grant"
#: What the rule of an approval begins with if a grant let it pass. The rest is the grant's id.
RULE = "grant/"

_UNITS = {"s": 1, "m": 60, "h": 60 * 60}
_DURATION = re.compile(r"([0-9]{1,6})([smh])")


class GrantKind(StrEnum):
    """What a grant is for. A change is proposed to the server, which applies it. The others are uses of a client's own
    tool, which the client carries out itself: it writes files, runs a command, reads a file, or does anything else. A
    call of a tool behind the gateway is of the last kind."""

    CHANGE = "change"
    WRITE = "write"
    COMMAND = "command"
    READ = "read"
    TOOL = "tool"


@frozen
class GrantScope:
    """What a grant covers: requests of this kind and tool, all of whose paths match one of `patterns`, up to `risk`.

    `tool` is None for a proposed change. For a command, `patterns` are rules for commands; for `TOOL` there are none.
    """

    kind: GrantKind
    tool: str | None = None
    patterns: tuple[str, ...] = ()
    risk: RiskLevel = RiskLevel.LOW

    @property
    def policy(self) -> WorkspacePolicy:
        """The policy with this single rule."""
        is_write = self.kind in (GrantKind.CHANGE, GrantKind.WRITE)
        return WorkspacePolicy(
            enabled=True,
            commands=self.patterns if self.kind is GrantKind.COMMAND else (),
            tools=(self.tool or "",) if self.kind is GrantKind.TOOL else (),
            file_patterns=FilePatterns(
                self.patterns if is_write else (), self.patterns if self.kind is GrantKind.READ else ()
            ),
            risk_level_threshold=self.risk,
        )

    def to_text(self) -> str:
        """Return the scope as canonical JSON: equal scopes give equal texts, and a person signs this text."""
        data = {"kind": self.kind, "tool": self.tool, "patterns": self.patterns, "risk": self.risk}
        return json.dumps(data, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> GrantScope:
        """Return the scope that `to_text` wrote. Raises InvalidArguments for any other text."""
        try:
            data = json.loads(text)
            scope = GrantScope(GrantKind(data["kind"]), data["tool"], tuple(data["patterns"]), RiskLevel(data["risk"]))
            is_text = all(isinstance(each, str) for each in (scope.tool or "", *scope.patterns))
            if is_text and scope.risk is not RiskLevel.CRITICAL and scope.to_text() == text:
                return scope
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise InvalidArguments("the scope of the grant cannot be read: leave it out, and it is made from the card")

    def sentence(self) -> str:
        """Say in one line what is covered. Texts that an agent chose are quoted."""
        named = ", ".join(json.dumps(each) for each in self.patterns)
        if self.kind is GrantKind.CHANGE and self.patterns == ("*",):
            named += " (files of the workspace's top directory)"
        by = "" if self.tool is None else f" by {json.dumps(self.tool)}"
        what = {
            GrantKind.CHANGE: f"proposed changes of {named}",
            GrantKind.WRITE: f"changes of {named}{by}",
            GrantKind.COMMAND: f"commands like {named}{by}",
            GrantKind.READ: f"reads of {named}{by}",
            GrantKind.TOOL: f"every use of {json.dumps(self.tool)}, with any arguments",
        }[self.kind]
        return f"{what}, up to risk {self.risk}"


@frozen
class Grant:
    """A row of `grant`. `request_id` and `title` are those of the card that it was made from. `at` is when it begins;
    with an operator key, when it was signed. `signed` is the signed command that made it."""

    id: str
    session_id: str
    scope: GrantScope
    seconds: int
    uses: int
    at: datetime
    by: str
    channel: str
    request_id: str
    title: str
    signed: SignedCommand | None = None
    revoked_at: datetime | None = None
    revoked_by: str | None = None

    @property
    def until(self) -> datetime:
        # Another program may have changed the row to what no grant has.
        try:
            return self.at + timedelta(seconds=min(max(self.seconds, 0), LONGEST))
        except OverflowError:
            return self.at

    @property
    def rule(self) -> str:
        """The rule that is recorded with what it lets pass."""
        return f"{RULE}{self.id}"


@frozen
class GrantLine:
    """A grant as people see it. `used` counts its uses. `over` says why it lets nothing pass any more; None if it is in
    force. With `is_away` its session has no agent now."""

    grant: Grant
    used: int
    over: str | None = None
    is_away: bool = False


@frozen
class GrantEntry:
    """A grant as it is listed: `covers` says it in words, and `over` why it lets nothing pass any more. `is_away` says
    that its session has no agent now."""

    grant_id: str
    session_id: str
    covers: str
    kind: str
    tool: str | None
    patterns: tuple[str, ...]
    risk_level: str
    uses: int
    used: int
    created_at: datetime
    until: datetime
    granted_by: str
    channel: str
    request_id: str
    title: str
    over: str | None
    is_away: bool = False

    @property
    def state(self) -> str:
        """Whether it lets anything pass now, in words."""
        return self.over or ("in force, its agent is away" if self.is_away else "in force")

    @staticmethod
    def of(line: GrantLine) -> GrantEntry:
        grant, scope = line.grant, line.grant.scope
        return GrantEntry(
            grant_id=grant.id,
            session_id=grant.session_id,
            covers=scope.sentence(),
            kind=scope.kind.value,
            tool=scope.tool,
            patterns=scope.patterns,
            risk_level=scope.risk.value,
            uses=grant.uses,
            used=line.used,
            created_at=grant.at,
            until=grant.until,
            granted_by=grant.by,
            channel=grant.channel,
            request_id=grant.request_id,
            title=grant.title,
            over=line.over,
            is_away=line.is_away,
        )


@frozen
class GrantPreview:
    """What a grant would cover, before it is made. `scope` is the text that is signed. `trial` says what it would have
    let through of the requests that are recorded. `waiting` are the cards that it is for and that go on waiting,
    because a grant answers none. With `is_agent_gone` it counts only if the session's agent comes back."""

    request_id: str
    session_id: str
    title: str
    scope: str
    covers: str
    seconds: int
    uses: int
    trial: str
    waiting: tuple[str, ...] = ()
    is_agent_gone: bool = False


def grant_of_rule(rule: str | None) -> str | None:
    """Return the id of the grant that a rule names; None for a rule of a policy."""
    return rule.removeprefix(RULE) if rule is not None and rule.startswith(RULE) else None


def risk_of(text: str | None) -> RiskLevel | None:
    """Return the risk up to which something is to pass; None for none. Raises InvalidArguments for any other text, and
    for a critical risk, which never passes without a person."""
    if text is None:
        return None
    if text not in (RiskLevel.LOW, RiskLevel.HIGH):
        raise InvalidArguments(f"{text[:20]!r} is no risk that can be permitted in advance: write low or high")
    return RiskLevel(text)


def seconds_of(text: str | None) -> int:
    """Return a duration such as `20m`, `2h` or `90s` in seconds; None is the default. Raises InvalidArguments."""
    if text is None:
        return DURATION
    found = _DURATION.fullmatch(text)
    seconds = 0 if found is None else int(found[1]) * _UNITS[found[2]]
    if not 0 < seconds <= LONGEST:
        raise InvalidArguments(f"{text[:20]!r} is no duration up to 24h: write 20m, 2h or 90s")
    return seconds


def uses_of(text: str | None) -> int:
    """Return a number of uses; None is the default. Raises InvalidArguments."""
    if text is None:
        return USES
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:6]) <= MOST_USES or len(text) > len("1000"):
        raise InvalidArguments(f"{text[:20]!r} is no number of uses: give one from 1 to {MOST_USES}")
    return int(text)
