"""Web pages beside MCP on the same port, independent of any web framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import frozen


@frozen
class Answer:
    """The response of a page. `media_type` describes the body."""

    status: int
    media_type: str
    body: bytes


@frozen
class Page:
    """The response to GET and HEAD of `path`. `answer` takes seconds at most and raises nothing. An `open` page needs
    no token, so it must not show anything private."""

    path: str
    answer: Callable[[], Awaitable[Answer]]
    open: bool = False
