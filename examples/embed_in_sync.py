"""Intercom inside a program without an event loop: each call of an agent or operator goes through `run`.

    python examples/embed_in_sync.py ~/projects/mine

It proposes a file, and waits until you answer here, or elsewhere with
`agent-intercom-ctl --ipc-name notes approve ID`, whichever is first.
"""

from __future__ import annotations

import getpass
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import intercom
from intercom.model.config import Config, DatabaseSettings
from intercom.model.errors import AlreadyDecided

CONFIG = Config(ipc_name="notes", database=DatabaseSettings(Path("data/notes.db")))


def main(workspace: str) -> int:
    with intercom.start(CONFIG, workspace=workspace) as switchboard, ThreadPoolExecutor(1) as pool:
        agent = switchboard.agent("note-taker")
        # The call waits for a person, so it runs in its own thread.
        asked = pool.submit(switchboard.run, agent.check_clearance, "Leave a note", "Back at noon.\n", "NOTE.md")
        ask_here(switchboard, asked)
        answer = asked.result().answer
        if answer.status != "approved":
            print(f"{answer.status}: {answer.reason or 'no reason given'}")
            return 1
        for file in switchboard.run(agent.check_diff, answer.request_id).answer.files_written:
            print(f"wrote {file.path}, {file.bytes} bytes")
    return 0


def ask_here(switchboard: intercom.SyncSwitchboard, asked: Future[Any]) -> None:
    me = switchboard.operator(getpass.getuser())
    while not (cards := switchboard.run(me.pending)) and not asked.done():
        time.sleep(0.05)
    for card in cards:
        word = input(f"{card.title}, {', '.join(file.path for file in card.files)}? [y/n] ")
        try:
            if word.lower().startswith("y"):
                switchboard.run(me.approve, card.id)
            else:
                switchboard.run(me.reject, card.id, "not now")
        except AlreadyDecided as late:
            print(late)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
