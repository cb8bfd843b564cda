"""Intercom inside a Trio program: one task proposes, another approves what is harmless, people decide the rest.

    python examples/embed_in_trio.py ~/projects/mine 1.2.4

A bump of the version alone is approved by this program. Anything else waits for a person, who sees it with
`agent-intercom-ctl --ipc-name release-bot watch`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

import intercom
from intercom.model.card import Card, CardKind, CardState
from intercom.model.config import Config, DatabaseSettings

#: Its own name and database: this program is separate from the user's server.
CONFIG = Config(ipc_name="release-bot", database=DatabaseSettings(Path("data/release-bot.db")))


async def main(workspace: str, version: str) -> int:
    async with intercom.open(CONFIG, workspace=workspace) as switchboard, trio.open_nursery() as nursery:
        nursery.start_soon(review, switchboard.operator("release-bot"))
        agent = switchboard.agent("bumper")
        content = f"{version}\n"
        asked = (await agent.check_clearance("Bump the version", content=content, file_path="VERSION")).answer
        if asked.status == "approved":
            applied = (await agent.check_diff(asked.request_id)).answer
            print(*(f"wrote {file.path}, {file.bytes} bytes" for file in applied.files_written), sep="\n")
        else:
            print(f"{asked.status}: {asked.reason or 'no reason given'}")
        nursery.cancel_scope.cancel()
    return 0 if asked.status == "approved" else 1


async def review(operator: intercom.EmbeddedOperator) -> None:
    async with operator.watch() as coming:
        async for item in coming:
            if isinstance(item, Card) and is_harmless(item):
                await operator.approve(item.id)


def is_harmless(card: Card) -> bool:
    """Whether a card asks for one line of the file VERSION, and nothing else."""
    return (
        card.kind is CardKind.APPROVAL
        and card.state is CardState.PENDING
        and [file.path for file in card.files] == ["VERSION"]
        and card.files[0].added == 1
    )


if __name__ == "__main__":
    sys.exit(trio.run(main, sys.argv[1], sys.argv[2]))
