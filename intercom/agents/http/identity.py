"""The identity in a request over HTTP, from the query of its URL or from equivalent headers. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl

from attrs import frozen

from intercom.model.channel_id import is_channel_id

Headers = Iterable[tuple[bytes, bytes]]

_HEADERS = {
    b"x-intercom-session-id": "session_id",
    b"x-intercom-agent": "agent",
    b"x-intercom-channel-id": "channel_id",
    b"x-intercom-workspace": "workspace",
}
_NAMES = frozenset(_HEADERS.values())
#: A stable agent key: characters that need no escaping, and those in host names and paths.
_KEY = re.compile(r"[A-Za-z0-9._~:@/+=-]{1,200}")
_SESSION = re.compile(r"[A-Za-z0-9-]{1,64}")
_LONGEST_PATH = 4096


@frozen
class Identity:
    """What one connection says of itself. `session_id` claims that session and takes precedence over `agent`, the
    stable key of an agent. An anonymous client has neither, and can only use the ids it was given."""

    session_id: str | None = None
    agent: str | None = None
    channel_id: str | None = None
    workspace: str | None = None

    @property
    def is_named(self) -> bool:
        return self.session_id is not None or self.agent is not None


NOBODY = Identity()


class Unclear(Exception):
    """What a request says of itself is unusable; the message says why, and what to do."""


def read(query: bytes, headers: Headers) -> Identity:
    """Return the identity in a request's query string and headers. Raises Unclear."""
    said: dict[str, str] = {}
    if query:
        for name, value in _query(query):
            if name in _NAMES:
                _note(said, name, value)
    for header, text in headers:
        known = _HEADERS.get(header)
        if known is not None:
            _note(said, known, _text(text))
    return _checked(said) if said else NOBODY


def _query(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:
        raise Unclear("the query of the URL can not be read: at most 50 names, percent-encoded UTF-8") from None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Unclear("an X-Intercom header is not UTF-8") from None


def _note(said: dict[str, str], name: str, value: str) -> None:
    if said.setdefault(name, value) != value:
        raise Unclear(f"{name} is given twice and not alike: give it once, in the URL or in its X-Intercom header")


def _checked(said: dict[str, str]) -> Identity:
    session_id, agent = said.get("session_id"), said.get("agent")
    channel_id, workspace = said.get("channel_id"), said.get("workspace")
    if session_id is not None and not _SESSION.fullmatch(session_id):
        raise Unclear("session_id is no session's id: letters, digits and dashes, 64 at most")
    if agent is not None and not _KEY.fullmatch(agent):
        raise Unclear("agent is no key: 1 to 200 of letters, digits and . _ ~ : @ / + = -")
    if channel_id is not None and not is_channel_id(channel_id):
        raise Unclear("channel_id is no Slack channel's id: it looks like C0123456789")
    if workspace is not None and not _is_path(workspace):
        raise Unclear("workspace is no directory's absolute path")
    return Identity(session_id, agent, channel_id, workspace)


def _is_path(text: str) -> bool:
    return text.startswith("/") and len(text) <= _LONGEST_PATH and "\0" not in text
