"""Is it what Slack takes, and does it do nothing that only its author wanted? Checked on what was drawn, alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from tests.slack_standin import limits
from tests.slack_standin.blocks import faults_of_message, faults_of_view, weight

#: All markup that we write ourselves: the call, and instants.
_OURS = re.compile(r"<!channel>|<!date\^\d+\^\{date_short_pretty\} \{time\}\|[0-9: UTC-]+>")
_ENTITY = re.compile(r"&(?:amp|lt|gt);")
_HIDING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\u2060]")


@frozen
class Masked:
    text: str
    kinds: tuple[str, ...] = ()


class Words:
    """Masks words that match a pattern, so that a test need not look like a secret."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def mask(self, text: str, /) -> Masked:
        masked, count = re.subn(self._pattern, "[masked: test secret]", text)
        return Masked(masked, ("test secret",) * count)


#: Masks nothing.
PLAIN = Words("(?!)")


def check_message(content: Mapping[str, Any]) -> None:
    """Raise AssertionError unless Slack takes the message, also as an update, and nothing in it pings or hides."""
    blocks = content["blocks"]
    assert faults_of_message(blocks) == []
    assert weight(blocks) <= limits.BLOCKS_TOGETHER
    assert len(json.dumps(blocks, ensure_ascii=False)) <= 11_000
    assert blocks
    assert content["text"].strip()
    assert len(content["text"]) <= limits.TEXT_OF_UPDATE
    _check_text(content["text"], markup=True)
    for kind, text in texts(blocks):
        _check_text(text, markup=kind == "mrkdwn")
        if kind == "mrkdwn":
            assert text.count("```") in (0, 2), text
            assert "```" in text or text.count("`") % 2 == 0, text
    json.dumps(content).encode()
    json.dumps(content, ensure_ascii=False).encode()


def check_view(view: Mapping[str, Any]) -> None:
    """The same for a modal."""
    assert faults_of_view(view) == []
    json.dumps(view, ensure_ascii=False).encode()


def texts(part: Any) -> Iterator[tuple[str, str]]:
    """Every text object within: its type and text."""
    if isinstance(part, Mapping):
        if part.get("type") in ("mrkdwn", "plain_text") and isinstance(part.get("text"), str):
            yield part["type"], part["text"]
            return
        for value in part.values():
            yield from texts(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from texts(value)


def shown(content: Mapping[str, Any]) -> str:
    """All that a reader sees, unescaped."""
    text = "\n".join(text for _, text in texts(content["blocks"]))
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _check_text(text: str, *, markup: bool) -> None:
    assert text.strip()
    assert not _HIDING.search(text), ascii(text)
    bare = _OURS.sub("", text) if markup else text
    assert "<" not in bare, bare
    assert ">" not in bare, bare
    assert "&" not in _ENTITY.sub("", bare), bare
