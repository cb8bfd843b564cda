"""The content of a decision's signature, as canonical bytes. Standard library only: ctl signs, the server verifies.

A statement is one JSON object in ASCII with sorted keys, after a version tag. Equal statements are equal bytes, and a
signature is valid for one purpose only. It holds the request, the hash of what was shown (the subject), the risk, and
the decision with its text, time and id. It also holds the key, and how that was unlocked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from intercom.model.json_types import Json

_DECISION = b"agent-intercom decision v1\n"
_ENROLMENT = b"agent-intercom operator key v1\n"
_SETTINGS = b"agent-intercom settings v1\n"
_CARD = b"agent-intercom card v1\n"
_ACT = b"agent-intercom command v1\n"

#: How the private key was unlocked: the PIN was entered for this decision, the terminal had unlocked it before, the
#: server itself holds the key, for a channel, or the browser's authenticator verified the person for this decision.
PIN, TICKET, CHANNEL, PASSKEY = "pin", "ticket", "channel", "passkey"

#: The methods for which the person acts once for each signature: by typing the PIN, or on the authenticator.
EACH_TIME = frozenset({PIN, PASSKEY})

#: Channels whose decisions the server signs itself, because only the server can identify the person there.
SIGNED_HERE = ("slack", "embed")
#: The channel of the page in the browser, whose decisions are signed with passkeys.
_BROWSER = "web"

#: The fields of a statement.
STATED = ("request_id", "subject", "risk", "decision", "text", "at", "decision_id", "key_id", "method")

#: Decisions that need the PIN, as critical ones do: an accepted policy and a grant approve much that no person sees.
WITH_PIN = frozenset({"accept", "grant"})

#: Decisions that approve what a card shows. A person must have seen the card.
LETS_PASS = frozenset({"approve", "accept", "proceed", "continue"})

#: The fields of a card that are shown and never change while it waits. The others (state, age, note) are its status.
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
#: An alert is updated while its agent stays quiet; only these fields stay the same.
_SHOWN_OF_ALERT = ("kind", "request_id", "session_id", "workspace_root")
#: A policy is identified by its content and place. The rest of its card only describes it.
_SHOWN_OF_POLICY = ("kind", "workspace_root", "detail")
_FILE = ("path", "kind", "before_hash", "after_hash", "old_path", "mode")
_LESS = {"stall": _SHOWN_OF_ALERT, "policy": _SHOWN_OF_POLICY}

#: The fields of a command that define its effect. The others serve its transport.
EFFECT_FIELDS = (
    *("id", "session", "reason", "instruction", "mode", "decision", "text", "workspace", "label", "files"),
    *("tool", "pattern", "risk", "scope", "duration", "uses", "decision_id"),
)


def card_subject(entry: Mapping[str, Any]) -> str:
    """Return the hash of what a card shows, from its JSON form. ctl and the server compute the same hash.

    Raises ValueError if the diff was left out of the entry, because it would not be covered.
    """
    if entry.get("diff_omitted"):
        raise ValueError("the card's diff was left out: ask for the card by its id")
    names = _LESS.get(str(entry.get("kind")), _SHOWN)
    shown = {name: entry.get(name) for name in names}
    if names is _SHOWN:
        shown["files"] = [{name: change.get(name) for name in _FILE} for change in entry.get("files") or ()]
    return _digest(_CARD, shown)


def command_subject(command: str, fields: Mapping[str, Json]) -> str:
    """Return the hash of a command that does not answer a card: its name and the fields that define its effect."""
    effect = {name: fields[name] for name in EFFECT_FIELDS if fields.get(name) is not None}
    return _digest(_ACT, {"command": command, **effect})


def statement(said: Mapping[str, Json]) -> bytes:
    """Return the bytes to sign for one decision: all fields of `STATED`. `at` is an instant as text, exactly as sent.
    `request_id` is empty for a command that does not answer a card."""
    return _DECISION + _canonical({name: said[name] for name in STATED})


def key_statement(action: str, *, public: str, name: str, at: str, by: str) -> bytes:
    """Return the bytes to sign to `add` or `revoke` an operator key. `by` is the id of the signing key."""
    return _ENROLMENT + _canonical({"action": action, "public": public, "name": name, "at": at, "by": by})


def settings_statement(settings: Mapping[str, str | bool], *, at: str, by: str) -> bytes:
    """Return the bytes to sign to put settings into effect. `by` is the id of the signing key."""
    return _SETTINGS + _canonical({"settings": dict(settings), "at": at, "by": by})


def is_of_channel(method: str, channel: str) -> bool:
    """Whether decisions on this channel are signed by this method. So what was signed for one channel cannot be sent
    again on another, where it would be another act."""
    return (method == CHANNEL, method == PASSKEY) == (channel in SIGNED_HERE, channel == _BROWSER)


def _digest(tag: bytes, value: Mapping[str, Json]) -> str:
    return hashlib.sha256(tag + _canonical(value)).hexdigest()


def _canonical(value: Mapping[str, Json]) -> bytes:
    # ASCII, because an agent's text may hold half a surrogate pair, which UTF-8 cannot encode.
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
