"""The stand-in for Slack in a process of its own, spoken to in lines: what it costs is not paid by who measures.

Each line of the input is one wish, an object with a single key:
    {"card": words}   answered with the ts of the message with buttons in which the words stand, once there is one
    {"tap": ts}       a person accepts; not answered, so that nothing but the envelope is under way
    {"over": ts}      answered once the message says that the answer has arrived, with when the envelope left and its
                      ack came, by the machine's monotonic clock in seconds; null where nobody tapped
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from tests.slack_standin import ALICE, CHANNEL, Standin, buttons, serve, text_of
from tests.slack_standin.sockets import Socket

Send = Callable[[bytes], Awaitable[None]]


class Watched:
    """When the last tap left for the server, and when its ack was back."""

    def __init__(self, slack: Standin) -> None:
        self.left: float | None = None
        self.acked: float | None = None
        slack.on("connected", self._watch, times=float("inf"))
        slack.on("ack", self._ack, times=float("inf"))

    def _watch(self, socket: Socket) -> None:
        socket.wire.send_all = partial(self._send, socket.wire.send_all)  # type: ignore[method-assign]

    async def _send(self, send: Send, data: bytes) -> None:
        # Here and not where the tap begins: Slack's own work is none of ours.
        if b"block_actions" in data:
            self.left = time.monotonic()
        await send(data)

    def _ack(self, envelope: Any) -> None:
        if envelope.payload.get("type") == "block_actions":
            self.acked = time.monotonic()


async def main() -> None:
    async with serve() as slack:
        watched = Watched(slack)
        environ = {
            "INTERCOM_SLACK_API": slack.api_url,
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_MEMBER_IDS": ALICE,
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }
        say({"environ": environ, "channel": CHANNEL})
        rest = b""
        async for chunk in trio.lowlevel.FdStream(0):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await answer(slack, watched, **json.loads(line))


async def answer(
    slack: Standin, watched: Watched, card: str | None = None, tap: str | None = None, over: str | None = None
) -> None:
    if card is not None:
        say(await slack.wait_for(lambda: newest(slack, card)))
    if tap is not None:
        slack.tap(ALICE, tap, "approve_accept")
    if over is not None:
        await slack.wait_for(lambda: "*Delivered*" in text_of(slack.message(over)))
        say({"left": watched.left, "acked": watched.acked})
        watched.left = watched.acked = None


def newest(slack: Standin, words: str) -> str | None:
    """The ts of the message that waits for an answer, looked for from the end: there are many."""
    kept = slack.team.channels[CHANNEL].messages.values()
    return next((str(one["ts"]) for one in reversed(kept) if words in text_of(one) and buttons(one)), None)


def say(told: object) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    trio.run(main)
