"""Draw the pictures of the inbox for the documentation, as SVG files.

python -m tests.cli.inbox_pictures [--into docs/images]

The inbox is drawn by Textual without a terminal, with a feed that holds these cards.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from intercom.cli import ctl_draw
from intercom.cli.inbox import app as inbox_app
from intercom.cli.inbox.app import Inbox
from intercom.cli.inbox.board import Board
from intercom.cli.inbox.feed import Arrived, Feed, Link
from intercom.local.places import places
from intercom.model.card import Card, CardKind
from intercom.model.request import ChangeKind, FileChange, RiskLevel

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SHAPES = """diff --git a/src/shapes.py b/src/shapes.py
--- a/src/shapes.py
+++ b/src/shapes.py
@@ -12,9 +12,12 @@ class Shape:
     sides: int = 4
~
     def area(self) -> float:
-        return self.width * self.height
+        if self.width < 0 or self.height < 0:
+            raise ValueError("a side is shorter than nothing")
+        # Both are measured in metres.
+        return abs(self.width * self.height)
~
     def name(self) -> str:
         return "shape"
""".replace("~", " ")
DROP = """diff --git a/migrations/0007.sql b/migrations/0007.sql
--- /dev/null
+++ b/migrations/0007.sql
@@ -0,0 +1 @@
+drop table sessions_old;
"""


def _card(id: str, kind: CardKind, title: str, minutes: float, **more: Any) -> Card:
    fields = {
        "session_id": "3f2a91c0",
        "workspace_root": "/home/kim/shapes",
        "created_at": NOW - timedelta(0, minutes * 60),
    }
    return Card(id, kind, title=title, **(fields | more))


def _change(path: str, kind: ChangeKind, added: int, removed: int) -> tuple[FileChange, ...]:
    return (FileChange(path, kind, "aa" * 32, "bb" * 32, added=added, removed=removed),)


CARDS = (
    _card(
        "7c41d20b",
        CardKind.APPROVAL,
        "Refuse sides below zero",
        4,
        risk=RiskLevel.LOW,
        amendable=True,
        diff=SHAPES,
        body="An area below zero makes no sense, and two callers got one.",
        files=_change("src/shapes.py", ChangeKind.WRITE, 4, 1),
        expires_at=NOW + timedelta(minutes=56),
    ),
    _card(
        "b09e6612",
        CardKind.APPROVAL,
        "Drop the table of old sessions",
        3,
        risk=RiskLevel.CRITICAL,
        diff=DROP,
        files=_change("migrations/0007.sql", ChangeKind.CREATE, 1, 0),
        expires_at=NOW + timedelta(minutes=57),
    ),
    _card(
        "51ffa3d8",
        CardKind.APPROVAL,
        "Run: npm install left-pad",
        2,
        risk=RiskLevel.HIGH,
        body="npm install left-pad",
        expires_at=NOW + timedelta(minutes=58),
    ),
    _card("e4cf3515", CardKind.PROMPT, "Shall I go on?", 1.5, body="All tests pass. Shall I also write the docs?"),
    _card("935f8fbf", CardKind.STANDBY, "Waits for work", 1, body="The first half is done; what is next?"),
    _card("a66a90be", CardKind.STALL, "Quiet for 5 min", 0.5, detail="last tool: check_diff"),
)
#: The fonts that Textual would have a reader fetch from the network.
_FONTS = re.compile(r"@font-face \{[^}]*\}\s*")
#: By the picture's name: the columns and rows, and the keys that are typed before it is taken.
PICTURES: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "inbox": (110, 24, ("down",)),
    "inbox-narrow": (60, 22, ("down", "enter")),
    "inbox-several": (110, 16, ("down", "space", "down", "space", "a")),
    "inbox-undo": (110, 16, ("down", "a")),
}


@contextmanager
def _still() -> Iterator[None]:
    """Stop the clock that ages are counted with, and the requests to a server."""
    before = ctl_draw.now, inbox_app.request
    ctl_draw.now, inbox_app.request = lambda: NOW, lambda *_: {"required": True}
    try:
        yield
    finally:
        ctl_draw.now, inbox_app.request = before


async def picture(name: str) -> str:
    """Return a picture as SVG."""
    columns, rows, keys = PICTURES[name]
    with tempfile.TemporaryDirectory() as home, _still():
        where = places(environ={"HOME": home, "XDG_RUNTIME_DIR": home})
        feed = Feed(where)
        app = Inbox(where, feed, Board(), clock=lambda: 0.0)
        async with app.run_test(size=(columns, rows)) as pilot:
            feed._put([Arrived(Link.UP), *map(Arrived, CARDS)])
            while app.board.waiting < len(CARDS):
                await pilot.pause()
            for key in keys:
                while not app.board.counts(float("inf")):
                    await pilot.pause()
                await pilot.press(key)
            await pilot.pause(0.1)
            return _FONTS.sub("", app.export_screenshot(title="agent-intercom-ctl", simplify=True))


def main() -> None:
    line = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    line.add_argument("--into", type=Path, default=ROOT / "docs" / "images")
    into = line.parse_args().into
    for name in PICTURES:
        (into / f"{name}.svg").write_text(asyncio.run(picture(name)))


if __name__ == "__main__":
    main()
