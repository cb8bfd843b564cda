"""Bounds of what is kept of envelopes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from intercom.operators.slack.socket_mode import Handling
from tests.operators.slack.wire.slack_end import envelope


class Acks(list[str]):
    async def __call__(self, answer: dict[str, Any]) -> None:
        self.append(answer["envelope_id"])


async def test_what_is_too_much_at_once_is_left_for_slack_to_send_again(caplog: pytest.LogCaptureFixture) -> None:
    go, acks, handled = trio.Event(), Acks(), 0

    async def handle(_kind: str, _payload: dict[str, Any]) -> None:
        nonlocal handled
        await go.wait()
        handled += 1

    handling = Handling(handle, at_once=2, waiting=3)
    async with trio.open_nursery() as nursery:
        for number in range(8):
            handling.take(envelope(f"e{number}"), acks, nursery)
        assert handling.in_hand == 5
        go.set()
        await handling.until_idle()
        assert sorted(acks) == ["e0", "e1", "e2", "e3", "e4"]
        handling.take(envelope("e7"), acks, nursery)
        await handling.until_idle()
    assert handled == 6
    assert caplog.text.count("left for slack to send again") == 3
