"""What the signature of a decision covers, as canonical bytes. Standard library only: ctl signs, the server verifies.

A statement is one JSON object with sorted keys, ASCII, behind a version tag, so that equal statements are equal bytes
and a signature for one purpose is none for another. It names the request, the hash of what was shown (the subject),
the risk, the decision with its words, the time, the decision's own id, the key, and how the key was unlocked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DECISION = b"agent-intercom decision v1\n"
_ENROLMENT = b"agent-intercom operator key v1\n"
_SETTINGS = b"agent-intercom settings v1\n"
_CARD = b"agent-intercom card v1\n"
_ACT = b"agent-intercom command v1\n"

#: How the private key came to sign: the PIN was typed for this decision, the terminal had unlocked the key before, or
#: the server holds the key itself, for a channel.
PIN, TICKET, CHANNEL = "pin", "ticket", "channel"

#: Channels whose decisions the server signs itself, since it is the one that knows the person there.
SIGNED_HERE = ("slack", "embed")

#: What one statement names.
STATED = ("request_id", "subject", "risk", "decision", "text", "at", "decision_id", "key_id", "method")

#: Commands that change something and need no signature: they only hold an agent up, end it, or ask a question first;
#: and those about keys, which bring signatures of their own.
UNSIGNED = frozenset({"pause", "clear", "checkpoint", "restore", "key-add", "key-revoke"})
#: Commands that answer a card, and are signed over what it shows.
OF_A_CARD = frozenset({"approve", "reject", "answer", "policy-accept", "policy-reject"})

#: Commands that bring words for an agent: what was signed is kept with them, and checked again before they are told.
FOR_AN_AGENT = frozenset({"nudge", "steer", "task"})

#: Commands that a repetition would do again: a signature for one is used once.
USED_ONCE = frozenset({"mode", "unpause", "nudge", "take-back"})

#: Decisions that need the PIN itself, as critical ones do: an accepted policy decides much that nobody sees any more.
WITH_PIN = frozenset({"accept"})

#: Decisions that let pass what a card shows: nobody makes one of them about a card that they have not seen.
LETS_PASS = frozenset({"approve", "accept", "proceed", "continue"})

#: What of a card is shown and never changes while it waits. The rest (state, age, note) says how it stands.
_SHOWN = (
    "kind",
    "request_id",
    "session_id",
    "workspace_root",
    "title",
    "description",
    "detail",
    "risk_level",
    "diff",
    "diff_from_agent",
    "remarks",
    "proposal_hash",
)
#: An alert is drawn again while its agent stays quiet: only what it is about is the same.
_SHOWN_OF_ALERT = ("kind", "request_id", "session_id", "workspace_root")
#: A policy is accepted by what it holds and where: the rest of its card is about it.
_SHOWN_OF_POLICY = ("kind", "workspace_root", "detail")
_FILE = ("path", "kind", "before_hash", "after_hash", "old_path", "mode")
_LESS = {"stall": _SHOWN_OF_ALERT, "policy": _SHOWN_OF_POLICY}

#: The fields of a command that say what it does; the others carry it there.
MEANT = (
    "id",
    "session",
    "reason",
    "instruction",
    "mode",
    "decision",
    "text",
    "workspace",
    "label",
    "files",
)


def card_subject(entry: Mapping[str, Any]) -> str:
    """The hash of what a card shows, from its JSON form; the same in ctl, which drew it, and in the server.

    Raises ValueError for an entry whose diff was left out: what is not there can not be signed for.
    """
    if entry.get("diff_omitted"):
        raise ValueError("the card's diff was left out: ask for the card by its id")
    names = _LESS.get(str(entry.get("kind")), _SHOWN)
    shown: dict[str, Any] = {name: entry.get(name) for name in names}
    if names is _SHOWN:
        shown["files"] = [{name: change.get(name) for name in _FILE} for change in entry.get("files") or ()]
    return _digest(_CARD, shown)


def command_subject(command: str, fields: Mapping[str, Any]) -> str:
    """The hash of a command that is no answer to a card: its word, and the fields that say what it does."""
    meant = {name: fields[name] for name in MEANT if fields.get(name) is not None}
    return _digest(_ACT, {"command": command, **meant})


def statement(said: Mapping[str, Any]) -> bytes:
    """The bytes that are signed for one decision: all of `STATED`, by name. `at` is an instant as text, exactly as it
    is sent; `request_id` is empty for a command that is no answer to a card."""
    return _DECISION + _canonical({name: said[name] for name in STATED})


def key_statement(action: str, *, public: str, name: str, at: str, by: str) -> bytes:
    """The bytes that are signed to `add` or `revoke` an operator key; `by` is the id of the key that signs."""
    return _ENROLMENT + _canonical({"action": action, "public": public, "name": name, "at": at, "by": by})


def settings_statement(settings: Mapping[str, str | bool], *, at: str, by: str) -> bytes:
    """The bytes that are signed to let settings count; `by` is the id of the key that signs."""
    return _SETTINGS + _canonical({"settings": dict(settings), "at": at, "by": by})


def _digest(tag: bytes, value: Mapping[str, Any]) -> str:
    return hashlib.sha256(tag + _canonical(value)).hexdigest()


def _canonical(value: Mapping[str, Any]) -> bytes:
    # ASCII: an agent's text may hold half a surrogate pair, which UTF-8 can not carry.
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
