"""Pages: what is served beside MCP on the same port, in no web framework's terms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import frozen


@frozen
class Answer:
    """What a page says. `media_type` is that of the body."""

    status: int
    media_type: str
    body: bytes


@frozen
class Page:
    """What GET and HEAD of `path` answer; `answer` takes seconds at most and raises nothing. `open` pages are answered
    without the token, so they say nothing that another user may not know."""

    path: str
    answer: Callable[[], Awaitable[Answer]]
    open: bool = False
