"""Several lines in one message."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from intercom.operators.slack.draw import limits
from intercom.operators.slack.merging import merged
from intercom.operators.slack.schedule import CHARS, LINES

from .house import text

CONTEXT: dict[str, Any] = {"type": "context", "elements": [{"type": "mrkdwn", "text": "who"}]}
MARKDOWN: dict[str, Any] = {"type": "markdown", "text": "**x**"}


def test_one_message_stays_as_it_is() -> None:
    content = {**text("a"), "reply_broadcast": True}
    assert merged([content]) is content


def test_plain_sections_run_on_and_others_stand_alone() -> None:
    with_context = {"text": "b", "blocks": [*text("b")["blocks"], CONTEXT]}
    joined = merged([text("a"), with_context, text("c"), {"text": "d"}, {"text": "e", "blocks": [MARKDOWN]}])
    assert joined["text"] == "a\nb\nc\nd\ne"
    assert joined["blocks"] == [*text("a\nb")["blocks"], CONTEXT, *text("c\nd")["blocks"], MARKDOWN]


@given(st.lists(st.text(max_size=CHARS), min_size=2, max_size=LINES), st.booleans())
def test_slacks_limits_hold(lines: list[str], with_context: bool) -> None:
    more = [CONTEXT] * 3 if with_context else []
    joined = merged([{"text": line, "blocks": [*text(line)["blocks"], *more]} for line in lines])
    assert len(joined["text"]) <= limits.TEXT
    assert len(joined["blocks"]) <= limits.BLOCKS
    sections = [block["text"]["text"] for block in joined["blocks"] if block["type"] == "section"]
    assert all(len(section) <= limits.SECTION for section in sections)
    if not with_context:
        assert "\n".join(sections) == "\n".join(lines)
