"""Makes `same_as_server.json`: texts, ids, diffs and kinds, with what the server's own functions make of them.

Run it from the top directory: `PYTHONPATH=. python web/tests/support/same_as_server.py`.
"""

from __future__ import annotations

import difflib
import json
import random
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from intercom.cli.ctl_text import short
from intercom.model.card import ANSWERED, Card
from intercom.model.card_hunks import hunks_of
from intercom.model.request import ChangeKind, FileChange
from intercom.model.visible_text import visible, visible_line
from intercom.operators.web.push_sender import kind_of

_PIECES = [
    *"aZ0# \n\t\r|~é\x1b\x00\x85\xad\xa0\u0301\u0308\u200d\u200c\ufe0f\ufe0e\u20e3\u202e\u2066\u2028\u3164\u034f\u180b",
    *"👨👩❤🏽𝒳קमاक्ष‼〰ℹ\ud800\udc80\udcff\U000e0041\ue000\u0378\u1160",
    "\r\n",
]
_LINES = ["a", "-- x", "++ y", "@@ -1 +1 @@", "diff", "\\ n", " ", "", "b", "c"]
_IDS = ["abc", "0123456789abcdef0", "policy-0123456789abcdef", "restore-0123456789", "a-b", "longwordx-11111111111"]


def _is_split_pair(text: str) -> bool:
    """Whether two lone surrogates would be one character in JSON."""
    return any("\ud800" <= one <= "\udbff" and "\udc00" <= two <= "\udfff" for one, two in pairwise(text))


def _texts(chance: random.Random) -> list[list[str]]:
    made = ("".join(chance.choices(_PIECES, k=chance.randint(1, 9))) for _ in range(600))
    return [[text, visible(text), visible_line(text)] for text in made if not _is_split_pair(text)]


def _diffs(chance: random.Random) -> list[list[object]]:
    found: list[list[object]] = []
    for _ in range(30):
        parts, paths = [], []
        for number in range(chance.randint(1, 3)):
            path = f"f{number}.txt"
            old = [f"{line}\n" for line in chance.choices(_LINES, k=chance.randint(0, 30))]
            new = [line for line in old if chance.random() > 0.2]
            for _ in range(chance.randint(0, 4)):
                new.insert(chance.randint(0, len(new)), chance.choice(["q\n", "--- a/z\n", "+++ b\n"]))
            lines = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=chance.choice([0, 1, 3]))
            end = chance.choice(
                ["", "", "\\ No newline at end of file\n", "\\ 50 more lines of this diff are not shown\n"]
            )
            parts.append(f"diff --git a/{path} b/{path}\n{''.join(lines)}{end}")
            paths.append(path)
        diff = "".join(parts)
        files = [FileChange(path, ChangeKind.WRITE, "x", "y", added=1, removed=1) for path in paths]
        hunks = [[each.number, each.path, each.range, each.line, each.end] for each in hunks_of(diff, files)]
        found.append([diff, paths, hunks])
    return found


def _kinds() -> list[list[object]]:
    """What push messages call each kind of card, without and with files."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    files = (FileChange("f", ChangeKind.WRITE, "x", "y", added=1, removed=1),)
    cards = [Card("c", kind, "s", "/w", "t", at, files=each) for kind in ANSWERED for each in ((), files)]
    return [[card.kind.value, len(card.files), kind_of(card)] for card in cards]


def main() -> None:
    chance = random.Random(7)
    data = {
        "texts": _texts(chance),
        "ids": [[name, short(name)] for name in _IDS],
        "diffs": _diffs(chance),
        "kinds": _kinds(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(data, indent=0) + "\n")


if __name__ == "__main__":
    main()
