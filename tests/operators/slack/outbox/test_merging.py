"""Several lines in one message."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.slack.draw import blocks
from intercom.operators.slack.sender import CHARS, LINES, merged
from tests.operators.slack.server import text

CONTEXT: dict[str, Any] = {"type": "context", "elements": [{"type": "mrkdwn", "text": "who"}]}


def test_one_message_stays_as_it_is() -> None:
    content = {**text("a"), "reply_broadcast": True}
    assert merged([content]) is content


def test_messages_follow_one_another_as_they_are() -> None:
    with_context = {"text": "b", "blocks": [*text("b")["blocks"], CONTEXT]}
    joined = merged([text("a"), with_context, {"text": "c"}])
    assert joined == {"text": "a\nb\nc", "blocks": [*text("a")["blocks"], *with_context["blocks"]]}


@given(st.lists(st.text(max_size=CHARS), min_size=2, max_size=LINES), st.booleans())
def test_slacks_limits_hold(lines: list[str], with_context: bool) -> None:
    more = [CONTEXT] * 3 if with_context else []
    joined = merged([{"text": line, "blocks": [*text(line)["blocks"], *more]} for line in lines])
    assert len(joined["text"]) <= blocks.TEXT
    assert len(joined["blocks"]) == min(blocks.BLOCKS, len(lines) * (1 + len(more)))
