"""Intercom inside an asyncio program: one task asks before it acts, another shows the question to you.

    python examples/embed_in_asyncio.py ~/projects/mine

It proposes a file, and waits until you answer here, or elsewhere with
`agent-intercom-ctl --ipc-name asyncio-notes approve ID`, whichever is first.
"""

from __future__ import annotations

import asyncio
import getpass
import sys
from pathlib import Path

import intercom
from intercom.model.card import Card, CardState
from intercom.model.config import Config, DatabaseSettings
from intercom.model.errors import AlreadyDecided

#: Its own name and database: this program is separate from the user's server.
CONFIG = Config(ipc_name="asyncio-notes", database=DatabaseSettings(Path("data/asyncio-notes.db")))


async def main(workspace: str) -> int:
    async with intercom.open(CONFIG, workspace=workspace) as switchboard:
        agent = switchboard.agent("note-taker")
        asking = asyncio.create_task(ask_here(switchboard.operator(getpass.getuser())))
        answer = (await agent.check_clearance("Leave a note", content="Back at noon.\n", file_path="NOTE.md")).answer
        asking.cancel()
        if answer.status != "approved":
            print(f"{answer.status}: {answer.reason or 'no reason given'}")
            return 1
        for file in (await agent.check_diff(answer.request_id)).answer.files_written:
            print(f"wrote {file.path}, {file.bytes} bytes")
    return 0


async def ask_here(me: intercom.EmbeddedOperator) -> None:
    async with me.watch() as coming:
        async for item in coming:
            if isinstance(item, Card) and item.state is CardState.PENDING:
                question = f"{item.title}, {', '.join(file.path for file in item.files)}? [y/n] "
                word = await asyncio.to_thread(input, question)
                try:
                    if word.lower().startswith("y"):
                        await me.approve(item.id)
                    else:
                        await me.reject(item.id, "not now")
                except AlreadyDecided as late:
                    print(late)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
