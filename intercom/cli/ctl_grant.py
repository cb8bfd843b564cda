"""`grant`: shows what a grant would cover, asks the person, and makes it.

What is signed is what the preview says, so the server cannot make a wider grant of it. The module starts on the
standard library alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from intercom.cli.ctl_text import agreed, at_words, count, one_line, short

if TYPE_CHECKING:
    from intercom.local.places import Places
    from intercom.model.json_types import Json, JsonObject

#: The command, and the fields of it that its preview takes.
GRANT = "grant"
_PREVIEWED = ("id", "duration", "uses", "pattern", "risk")
_PROGRAM = "agent-intercom-ctl"


def preview_fields(fields: Mapping[str, Json]) -> JsonObject:
    """Return the fields of the preview of a grant."""
    return {name: fields[name] for name in _PREVIEWED if fields.get(name) is not None}


def granted_fields(shown: Mapping[str, Json], fields: Mapping[str, Json]) -> JsonObject:
    """Return the fields of the grant that a preview shows: whole ids, its scope, its duration and its uses. Raises
    IntercomError if another scope was shown before."""
    if fields.get("scope") not in (None, shown["scope"]):
        from intercom.model.errors import IntercomError

        raise IntercomError("the card has changed since it was shown, and nothing was signed; look at it again")
    return {
        "id": str(shown["request_id"]),
        "session": str(shown["session_id"]),
        "scope": str(shown["scope"]),
        "duration": f"{shown['seconds']}s",
        "uses": str(shown["uses"]),
    }


def grant(where: Places, fields: JsonObject, *, yes: bool, as_json: bool) -> int:
    """Make a grant. Returns 0 if it was made, 1 if the person declined. Raises what `request` raises."""
    from intercom.cli.ctl_sign import Sender
    from intercom.operators.ctl.client import request

    shown: Mapping[str, Json] = request(where, "grant-preview", preview_fields(fields))
    is_asked = not (yes or as_json) and sys.stdin.isatty()
    card = request(where, "show", {"id": shown["request_id"]}) if is_asked else None
    if card is not None:
        # What a person permits follows from it, and the signature of an approval says that it was shown.
        _show(card)
    if not as_json:
        print("\n".join(preview_lines(shown)))
        if fields.keys() <= {"id"}:
            print(f"  other limits: {_PROGRAM} grant {short(str(shown['request_id']))} --for 1h --uses 20")
    if is_asked and not agreed(f"grant this to session {short(str(shown['session_id']))}?"):
        print("nothing was changed")
        return 1
    if card is not None and not (_waits_itself(shown) and agreed("and approve this card too?")):
        card = None
    # One PIN signs both.
    sender = Sender(where, "" if card is None else f"grant {short(str(card['request_id']))} and approve it")
    # The card may change meanwhile: what was shown is what is granted. The preview is taken again if it is signed.
    done = sender.send(GRANT, {**granted_fields(shown, {}), **_pattern_of(fields)})
    if as_json:
        print(json.dumps(done))
        return 0
    name = short(str(done["grant_id"]))
    print(f"granted {name}\nend it: {_PROGRAM} revoke {name}\nits uses: {_PROGRAM} grants")
    if card is not None:
        approved = sender.send("approve", {"id": str(card["request_id"])}, card=card)
        print(one_line(f"{approved['status']} {short(str(card['request_id']))}: {card['title']}"))
        shown = {**shown, "waiting": [each for each in _waiting(shown) if each != card["request_id"]]}
    say_waiting(shown, str(done["request_id"]))
    return 0


def _waiting(shown: Mapping[str, Json]) -> list[str]:
    """Return the ids of the open cards that a grant or a rule is for."""
    waiting = shown.get("waiting")
    return [str(each) for each in waiting] if isinstance(waiting, list) else []


def _waits_itself(shown: Mapping[str, Json]) -> bool:
    return str(shown["request_id"]) in _waiting(shown)


def _show(card: JsonObject) -> None:
    from intercom.cli.ctl_draw import console, now, print_card
    from intercom.model.card import Card
    from intercom.operators.commands.json_forms import read

    print_card(console(), read(Card, card), now(), hints=False)


def say_waiting(shown: Mapping[str, Json], card: str) -> None:
    """Print which cards go on waiting, of those that a grant or a rule is for. `shown` is its preview from `card`."""
    ids = _waiting(shown)
    if not ids:
        return
    if ids == [card]:
        what = "the card itself still waits for your answer"
    else:
        what = "1 card like it still waits" if len(ids) == 1 else f"{count(len(ids), 'card')} of this kind still wait"
        what += " for your answer"
    print(at_words(f"{what}: {_PROGRAM} approve {' '.join(short(each) for each in ids)}, or reject"))


def _pattern_of(fields: Mapping[str, Json]) -> JsonObject:
    return {name: fields[name] for name in ("pattern", "risk") if fields.get(name) is not None}


def preview_lines(shown: Mapping[str, Json]) -> list[str]:
    """Return what a person is shown before they grant."""
    minutes, seconds = divmod(int(str(shown["seconds"])), 60)
    lasts = count(minutes, "minute") if not seconds else count(int(str(shown["seconds"])), "second")
    return [
        at_words(f"from now on this passes without you, in session {shown['session_id']}:"),
        at_words(str(shown["covers"]), "  "),
        at_words(f"for {lasts} or {count(int(str(shown['uses'])), 'use')}, whichever ends first", "  "),
        at_words(f"it {shown['trial']}", "  "),
        *(_agent_gone(str(shown["request_id"])) if shown.get("is_agent_gone") else ()),
    ]


def _agent_gone(card: str) -> list[str]:
    return [
        at_words(
            "the session's agent is not connected: this counts only if it comes back to this session in that time", "  "
        ),
        at_words(f"for every agent of the workspace, and without end: {_PROGRAM} allow {short(card)}", "  "),
    ]
