"""The commands with which people permit things in advance: grants, and rules of a workspace's policy.

Both show first what would pass, and do nothing yet. The same command with the hash of what it showed carries it out.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence

from intercom.model.errors import InvalidArguments
from intercom.model.grant import GrantEntry, GrantLine, GrantPreview
from intercom.operators.commands import grant_handlers
from intercom.operators.slack.commands.command_call import CommandCall
from intercom.operators.slack.commands.slash_command_table import SLASH, Category, Option, of_command
from intercom.operators.slack.draw.blocks import amount

#: How much of an id is shown, and of a hash: enough to type it.
_ID, _HASH = 8, 12
#: How many grants a list shows.
_LISTED = 20


def _card(call: CommandCall) -> str:
    if call.first_word is None:
        raise InvalidArguments(f"name a card by the beginning of its id: {call.entry.usage}")
    return call.first_word


async def grant(call: CommandCall) -> str:
    """Permit requests like a card's in advance; without the hash of what was shown, say what would pass."""
    id, given = _card(call), call.arguments.options
    pattern, risk, seen = given.get("--pattern"), given.get("--risk"), given.get("--sha")
    grants = call.deps.service.grants
    shown = await grants.preview(id, pattern=pattern, risk=risk, duration=given.get("--for"), uses=given.get("--uses"))
    duration, uses = f"{shown.seconds}s", str(shown.uses)
    minutes, seconds = divmod(shown.seconds, 60)
    lasts = amount(shown.seconds, "second") if seconds else amount(minutes, "minute")
    if seen is None:
        often = amount(shown.uses, "use")
        return (
            f"without you this would pass in session {shown.session_id[:_ID]}, for {lasts} or {often}:\n"
            f"  {shown.covers}\nit {shown.trial}\n{_agent_gone(shown)}"
            f"to grant it: {_again(call, shown.request_id, _hash_of(shown))}"
        )
    _require_same(_hash_of(shown), seen)

    async def act() -> str:
        line = await grant_handlers.grant(
            call.deps.service,
            call.caller,
            shown.request_id,
            duration=duration,
            uses=uses,
            session=shown.session_id,
            scope=shown.scope,
        )
        return f"granted {_line(line)}\n{SLASH} revoke {line.grant.id[:_ID]} ends it{_waiting(shown.waiting)}"

    return await call.once(act, shown.session_id)


async def grants(call: CommandCall) -> str:
    """List the grants that are in force."""
    found = await call.deps.service.grants.listed()
    if not found:
        return "no grant is in force"
    rest = f"\n{len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return "\n".join(_line(each) for each in found[-_LISTED:]) + rest


async def revoke(call: CommandCall) -> str:
    """End a grant."""
    if call.first_word is None:
        raise InvalidArguments(f"name a grant by the beginning of its id: {call.entry.usage}")
    id = call.first_word

    async def act() -> str:
        return f"revoked {_line(await grant_handlers.revoke(call.deps.service, call.caller, id))}"

    return await call.once(act, None)


async def allow(call: CommandCall) -> str:
    """Add a rule to a policy and accept it; without the hash of what was shown, say what it would let pass."""
    id, given = _card(call), call.arguments.options
    pattern, risk, seen = given.get("--pattern"), given.get("--risk"), given.get("--sha")
    shown = await call.deps.service.rules.preview(id, pattern=pattern, risk=risk)
    ways = "\n".join(f"  {way}" for way in shown.ways)
    if seen is None:
        return (
            f"{shown.workspace_root}/{shown.source} would grant more, for every agent there and without end:\n{ways}\n"
            f"it {shown.trial}\nto write and accept it: {_again(call, shown.request_id, shown.sha256)}"
        )
    _require_same(shown.sha256, seen)

    async def act() -> str:
        done = await grant_handlers.allow(
            call.deps.service, call.caller, shown.request_id, pattern=pattern, risk=risk, sha256=shown.sha256
        )
        return f"{done.status} for {done.workspace_root}:\n{ways}{_waiting(shown.waiting)}"

    return await call.once(act, None)


def _again(call: CommandCall, request_id: str, shown: str) -> str:
    """Return the same command as it carries out what was shown."""
    given = "".join(f" {name} {shlex.quote(value)}" for name, value in call.arguments.options.items())
    return f"{SLASH} {call.entry.name} {request_id[:_ID]}{given} --sha {shown[:_HASH]}"


def _agent_gone(shown: GrantPreview) -> str:
    if not shown.is_agent_gone:
        return ""
    return (
        "its agent is not connected: this counts only if it comes back to this session in that time;"
        f" {SLASH} allow {shown.request_id[:_ID]} is for every agent of the workspace\n"
    )


def _waiting(ids: Sequence[str]) -> str:
    """Say that the cards which a grant or a rule is for still wait; empty if there are none."""
    if not ids:
        return ""
    what = f"{amount(len(ids), 'card')} of this kind still {'waits' if len(ids) == 1 else 'wait'} for an answer"
    return f"\n{what} ({', '.join(each[:_ID] for each in ids)}): press a button there, or reply to it"


def _hash_of(shown: GrantPreview) -> str:
    """Return the hash of everything that a grant would let pass."""
    said = (shown.request_id, shown.session_id, shown.scope, str(shown.seconds), str(shown.uses))
    return hashlib.sha256("\0".join(said).encode()).hexdigest()


def _require_same(shown: str, seen: str) -> None:
    """Raise InvalidArguments unless `seen` is the beginning of the hash of what is shown now."""
    if len(seen) < _HASH or not shown.startswith(seen):
        raise InvalidArguments("the policy, or the card, is not as it was shown: look at it again, without --sha")


def _line(line: GrantLine) -> str:
    each = GrantEntry.of(line)
    left = f"{each.used} of {each.uses} used, until {each.until:%Y-%m-%d %H:%M} UTC"
    over = f"; over: {each.over}" if each.over else f"; {each.state}" if each.is_away else ""
    return (
        f"{each.grant_id[:_ID]} for session {each.session_id[:_ID]}: {each.covers} ({left}, by {each.granted_by}){over}"
    )


_PATTERN = Option("--pattern", "GLOB", "which files or commands, if not those like the card's")
_SHA = Option("--sha", "HASH", "what was shown, which you agree to")
_RISK = Option("--risk", "LEVEL", "up to which risk: low or high")

ENTRIES = (
    of_command(
        "grant",
        "grant",
        Category.PERMISSIONS,
        grant,
        details=(
            "Permits requests like this card's in advance: the same kind, in the same session. Without --sha it only"
            " says what would pass; --sha is the hash that it shows. Protected files and critical risks always need a"
            " person."
        ),
        example="grant 1a2b3c4d --for 20m --uses 10",
        options=(
            Option("--for", "TIME", "for how long: 20m, 2h or 90s (default: 20m)"),
            Option("--uses", "N", "for how many uses (default: 10)"),
            _PATTERN,
            _RISK,
            _SHA,
        ),
    ),
    of_command(
        "grants",
        "grants",
        Category.PERMISSIONS,
        grants,
        details="Lists the grants that are in force, with their uses.",
        example="grants",
    ),
    of_command(
        "revoke",
        "revoke",
        Category.PERMISSIONS,
        revoke,
        details="Ends a grant at once. What it let pass and is not applied yet is not applied any more.",
        example="revoke 1a2b3c4d",
    ),
    of_command(
        "allow",
        "allow",
        Category.PERMISSIONS,
        allow,
        details=(
            "Adds a rule to the workspace's policy, so that what this card asks passes from now on, for every agent"
            " there. Without --sha it only says what the rule would have let pass; --sha is the hash that it shows."
        ),
        example="allow 1a2b3c4d",
        options=(_PATTERN, _RISK, _SHA),
    ),
)
