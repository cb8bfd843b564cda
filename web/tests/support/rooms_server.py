"""A real server of rooms, for the tests of their page in a browser. Prints a JSON object a line: first where agents and
people reach it. Each line of its standard input is an order:

- `link` prints another link to the page.
- `fill ROOM COUNT` puts messages into a room, without a server, and `restart` only starts the server again: it is the
  same page then, at the same address. Both print the answer `restarted`.

It ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from intercom.local.places import places
from tests.rooms.node import Node, free_port
from tests.support.server_process import Person

TEXTS = (
    "The lexer is done, it is in `src/lex.rs`.",
    "I take the **parser**; you take the tests.\n\n- first the happy path\n- then what goes wrong\n- then the rest",
    "ok",
    '```rust\nfn main() {\n    println!("hello");\n}\n```\nThis is what I have. ' + "It goes on for a while. " * 12,
)


def say(**data: object) -> None:
    sys.stdout.write(f"{json.dumps(data)}\n")
    sys.stdout.flush()


async def link(node: Node) -> None:
    # The server has the name of its directory.
    person = Person(places(node.home.root.name, node.home.environ), None, None)  # type: ignore[arg-type]
    say(**await person.do("web"))


def fill(node: Node, room: str, count: int) -> None:
    """Put messages of two teams into a room, as if they had been posted."""
    node.stop()
    with sqlite3.connect(node.home.root / "rooms.db") as db:
        (last,) = db.execute("select last_sequence from sessions where id = ?", (room,)).fetchone()
        rows = (
            (
                *(room, last + each, f"{each:08x}-0000-4000-8000-{last:012x}", f"Team {'AB'[each // 3 % 2]}", "member"),
                json.dumps({"text": f"{TEXTS[each * 7919 % len(TEXTS)]} ({last + each})"}),
                f"2026-11-{1 + each // 10_000:02}T{each // 3600 % 24:02}:{each // 60 % 60:02}:{each % 60:02}.000000Z",
            )
            for each in range(1, count + 1)
        )
        db.executemany(
            "insert into messages (session_id, sequence, id, author, role, type, content, posted_at)"
            " values (?, ?, ?, ?, ?, 'chat', ?, ?)",
            rows,
        )
        db.execute("update sessions set last_sequence = ? where id = ?", (last + count, room))
    db.close()
    node.start()


async def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="rooms-", dir="/tmp"))
    config = "[ctl]\ntrust_agent_processes = true\n[rooms]\nloop_budget = 0\nposts_per_minute = 0\n"
    words = ("--web-port", str(free_port()))
    node = Node(root / "node", None, config, words, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    try:
        await trio.to_thread.run_sync(node.start)
        say(api=node.url)
        await link(node)
        while order := (await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)).split():
            match order:
                case ["link"]:
                    await link(node)
                case ["fill", room, count]:
                    await trio.to_thread.run_sync(partial(fill, node, room, int(count)))
                    say(answer="restarted")
                case ["restart"]:
                    await trio.to_thread.run_sync(node.stop)
                    await trio.to_thread.run_sync(node.start)
                    say(answer="restarted")
    finally:
        node.stop()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    trio.run(main)
