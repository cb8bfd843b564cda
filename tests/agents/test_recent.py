"""The channel's recent messages, as a resource: only the session's own channel, and only with a chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from actors import Actor
from intercom.agents import resources
from intercom.agents.agent_connection import AgentConnection, Caller
from intercom.agents.shim_connection import Hello
from intercom.cli import main
from intercom.model.config import Config, SlackSettings
from intercom.model.errors import SlackError
from intercom.sessions.messages import OUTBOX_WRITER, History, Message, ReadRecent
from tests.support.virtual_server import VirtualServer, virtual_server

Clock = trio.testing.MockClock
CONFIG = Config(slack=SlackSettings(channel_id="C0123"))


class Channel(Actor):
    """A chat channel that answers with what it has, or does not answer."""

    refusals = (SlackError,)

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.asked: list[Any] = []
        self._answer = answer

    def on_receive(self, message: Any) -> Any:
        assert isinstance(message, ReadRecent)
        self.asked.append((message.channel_id, message.limit))
        if isinstance(self._answer, SlackError):
            raise self._answer
        return self._answer


async def no_roots() -> list[str]:
    return []


CALLER = Caller("client", None, None, no_roots, None)


def connection(server: VirtualServer, root: Path, channel: str | None = None) -> AgentConnection:
    return AgentConnection(
        server.app.system, server.app.config, server.app.connected_agents, "shim", str(root), None, channel
    )


async def refusal(to: AgentConnection, uri: str) -> str:
    with pytest.raises(MCPError) as refused:
        await resources.read(to, CALLER, uri)
    return refused.value.error.message


@pytest.mark.server(CONFIG)
async def test_the_channels_messages_are_read_as_json(server: VirtualServer, root: Path) -> None:
    channel = Channel(History((Message("2.0", "U1", "do it"), Message("1.0", "U2", "ok", "0.5")), has_more=True))
    server.app.system.adopt(channel, OUTBOX_WRITER)
    (found,) = (await resources.read(connection(server, root), CALLER, "slack://channel/C0123/recent")).contents
    assert json.loads(found.text) == {  # type: ignore[union-attr]
        "messages": [
            {"ts": "2.0", "user": "U1", "text": "do it"},
            {"ts": "1.0", "user": "U2", "text": "ok", "thread_ts": "0.5"},
        ],
        "has_more": True,
    }
    assert found.mime_type == "application/json"
    for asked in (7, 0, -3, 10**6):
        await resources.read(connection(server, root), CALLER, f"slack://channel/C0123/recent?limit={asked}")
    assert channel.asked == [("C0123", limit) for limit in (20, 7, 1, 1, 100)]


@pytest.mark.server(CONFIG)
async def test_an_empty_channel_has_no_messages(server: VirtualServer, root: Path) -> None:
    server.app.system.adopt(Channel(History((), has_more=False)), OUTBOX_WRITER)
    (found,) = (await resources.read(connection(server, root), CALLER, "slack://channel/C0123/recent")).contents
    assert json.loads(found.text) == {"messages": [], "has_more": False}  # type: ignore[union-attr]


@pytest.mark.server(CONFIG)
async def test_only_the_sessions_own_channel_can_be_read(server: VirtualServer, root: Path) -> None:
    channel = Channel(History((), has_more=False))
    server.app.system.adopt(channel, OUTBOX_WRITER)
    own = connection(server, root, "C0777")
    assert "C0777" in await refusal(own, "slack://channel/C0123/recent")
    assert channel.asked == []
    await resources.read(own, CALLER, "slack://channel/C0777/recent")
    assert channel.asked == [("C0777", 20)]


async def test_what_is_wrong_is_said_in_words(clock: Clock, root: Path) -> None:
    async with virtual_server(root.parent, clock) as server:
        assert "not set up" in await refusal(connection(server, root), "slack://channel/C0123/recent")
    async with virtual_server(root.parent, clock, CONFIG) as server:
        assert "doctor" in await refusal(connection(server, root), "slack://channel/C0123/recent")
        server.app.system.adopt(Channel(SlackError("the app is not in the channel")), OUTBOX_WRITER)
        assert (
            await refusal(connection(server, root), "slack://channel/C0123/recent")
            == "slack: the app is not in the channel"
        )
        assert "whole number" in await refusal(connection(server, root), "slack://channel/C0123/recent?limit=many")


def test_a_channel_that_is_none_is_refused_where_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.parser().parse_args(["--channel", "C0123"]).channel == "C0123"
    with pytest.raises(SystemExit):
        main.parser().parse_args(["--channel", "#general"])
    assert "must be a channel id like C0123456789" in capsys.readouterr().err
    refused = ("#general", "", "C" * 1000, 5, ["C0123"])
    for channel in ("C0123", None, *refused):
        assert (Hello.read({"wire": 1, "shim": "one", "channel": channel}) is None) is (channel in refused)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///etc/passwd",
        "slack://channel/C0123",
        "slack://channel//recent",
        "slack://channel/C0123/recent/more",
        "slack://user/C0123/recent",
        "slack://[channel/C0123/recent",
    ],
)
def test_a_uri_of_no_resource_is_said_to_be_none(uri: str) -> None:
    with pytest.raises(MCPError, match="no resource has this uri"):
        resources.parse(uri)


@given(st.text() | st.text().map("slack://channel/C0123/recent?{}".format))
def test_any_uri_is_read_or_refused(uri: str) -> None:
    try:
        channel, limit = resources.parse(uri)
    except MCPError:
        return
    assert channel
    assert 1 <= limit <= 100
