"""Makes `signed_cases.json`: what is signed, as Python and the page in the browser must both compute it.

Run it from the top directory: `python -m tests.support.make_signed_cases`. `tests/local/test_signed_cases.py` and
`web/tests/signing.test.ts` compare.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

from intercom.local import passkeys
from intercom.model import signing
from intercom.model.amendment import Comment, told_of_comments
from intercom.model.json_types import Json, JsonObject
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_execution import _DEFAULT_REASONS
from intercom.operators.commands.command_table import ANSWERS, COMMANDS, HOW_TO_ANSWER, decision_about
from intercom.operators.router_messages import Channel
from tests.support.passkeys import ORIGIN

SIGNED = (Access.SIGNED, Access.SIGNED_CARD)
FILE = Path(__file__).with_name("signed_cases.json")

#: Texts that JSON writers write in more than one way.
_TEXTS = [
    "",
    "plain",
    'quote " and \\ and / and </script>',
    "a\nb\r\tc\b\f\0\x1b\x7f\x80\xa0",
    "é ü 漢字 \u2028\u2029 \ufeff \u202e",
    "🏽👩‍👩‍👧 \U0010ffff",
    "half \ud800 a pair \udfff",
    "__proto__",
]


def _card(**more: object) -> JsonObject:
    entry = {
        "kind": "approval",
        "request_id": "4be1f0a2-8c1f-4f39-9d0c-5f6f2f0a7d11",
        "session_id": "s-1",
        "workspace_root": "/work",
        "title": "Fix the login",
        "description": None,
        "detail": None,
        "risk_level": "high",
        "diff": "--- a\n+++ b\n",
        "diff_from_agent": False,
        "remarks": [],
        "proposal_hash": "ab" * 32,
        "files": [
            {"path": "a.py", "kind": "write", "before_hash": None, "after_hash": "cd" * 32, "mode": 0o755, "added": 3},
            {"path": "b.py", "kind": "move", "before_hash": "x", "after_hash": "x", "old_path": "c.py", "mode": None},
        ],
        # What is no part of the subject.
        "status": "pending",
        "created_at": "2026-11-26T08:00:00.000000+00:00",
        "note": "n",
        "choices": ["approve", "reject"],
    }
    return {**entry, **more}  # type: ignore[dict-item]


def cards() -> list[JsonObject]:
    kinds = [_card(kind=kind) for kind in ("prompt", "standby", "stall", "policy", "restore", "apply", "room", "tools")]
    texts = [_card(title=text, description=text, diff=text, remarks=[{"text": text, "path": text}]) for text in _TEXTS]
    bare: JsonObject = {"kind": "approval", "request_id": "r"}
    return [_card(), _card(diff=None, files=[], diff_from_agent=True), bare, {**bare, "files": None}, *kinds, *texts]


def commands() -> list[tuple[str, JsonObject]]:
    steers: list[tuple[str, JsonObject]] = [("steer", {"session": "s-1", "text": text}) for text in _TEXTS]
    return [
        *steers,
        ("unpause", {"id": "s-1", "limit": 5, "verdict_id": "v"}),
        ("nudge", {"id": "alert-1", "session": "s-1", "text": None}),
        ("grant", {"id": "r", "scope": "{}", "duration": "20m", "uses": "2", "session": "s"}),
        ("task", {"session": "s-1", "text": "é"}),
        ("take-back", {"id": "r"}),
        ("take-back", {"id": "r", "decision_id": "v-1"}),
        ("start", {"text": "do", "workspace": "/work", "label": "é"}),
        ("gateway-enable", {"id": "docs"}),
    ]


def statements() -> list[JsonObject]:
    said: JsonObject = {
        "request_id": "r-1",
        "subject": "ab" * 32,
        "risk": None,
        "decision": "approve",
        "text": None,
        "at": "2026-11-26T08:00:00.000000+00:00",
        "decision_id": "v-1",
        "key_id": "0123456789abcdef",
        "method": "passkey",
    }
    others: list[JsonObject] = [{**said, "risk": "high", "decision": "reject", "text": text} for text in _TEXTS]
    return [said, *others]


def told() -> list[Json]:
    """Comments, the note with them, and what the agent is told of both."""
    places = [("a.py", 3), ("b c.py", None), ("é" * 300, 1), ("x\u202e\ty", None)]
    many: list[list[Comment]] = [
        [],
        [Comment(path, text, line) for (path, line), text in product(places, _TEXTS)],
        [Comment("a.py", "first\nsecond\r\n\nlast", 7)],
    ]
    return [
        [[[each.path, each.line, each.text] for each in comments], note, told_of_comments(comments, note)]
        for comments in many
        for note in (None, "", "and a note\nof two lines")
    ]


def made() -> JsonObject:
    spki = passkeys.to_base64url(bytes(range(91)))
    public = f"{ORIGIN},AQID,{spki}"
    return {
        "cards": [[entry, signing.card_subject(entry)] for entry in cards()],
        "commands": [[name, fields, signing.command_subject(name, fields)] for name, fields in commands()],
        "statements": [
            [said, signing.statement(said).decode("ascii"), passkeys.challenge(signing.statement(said))]
            for said in statements()
        ],
        "decisions": [[kind, word, decision_about(kind, word)] for kind in HOW_TO_ANSWER for word in ANSWERS],
        "told": told(),
        "signed_commands": [[row.name, row.access.value] for row in COMMANDS.values() if row.access in SIGNED],
        "lets_pass": sorted(signing.LETS_PASS),
        "no_reason": _DEFAULT_REASONS[Channel.WEB],
        "passkeys": [[ORIGIN, "AQID", spki, _id(public)]],
    }


def _id(public: str) -> str:
    from intercom.local.operator_keys import PublicKey

    return PublicKey(public).id


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1) + "\n")
