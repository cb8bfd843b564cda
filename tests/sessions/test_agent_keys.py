"""Keys: no agent's can be made to be another's."""

from __future__ import annotations

import pytest

from intercom.agents.http import access_rules
from intercom.sessions import agent_keys
from intercom.web_server.http_request import Refusal


@pytest.mark.parametrize(
    ("key", "conversation", "expected"),
    [
        ("shim", "codex:1@/ws", "codex:1@/ws"),
        # A client may be called as it likes.
        ("shim", "http:one@/ws", "client/http:one@/ws"),
        ("shim", "http-call:one@/ws", "client/http-call:one@/ws"),
        ("shim", "session:one@/ws", "client/session:one@/ws"),
        ("shim", "client/http:one@/ws", "client/client/http:one@/ws"),
        ("http:one", "codex:1@/ws", "http:one#codex:1@/ws"),
        ("http-session:1", "codex:1@/ws", "http-session:1#codex:1@/ws"),
    ],
)
def test_a_conversation_has_a_key_that_nobody_else_has(key: str, conversation: str, expected: str) -> None:
    assert agent_keys.of_conversation(key, conversation) == expected


def test_a_key_in_a_url_is_never_another_agents_conversation() -> None:
    key = agent_keys.of_conversation("http:one", "codex:1@/ws").removeprefix(agent_keys.NAMED)
    with pytest.raises(Refusal):
        access_rules.read_identity(b"", [(b"x-intercom-agent", key.encode())])
    assert not agent_keys.is_its_own(agent_keys.of_conversation("shim", "http:one@/ws"))
    assert agent_keys.is_its_own(agent_keys.of_conversation("http:one", "codex:1@/ws"))
