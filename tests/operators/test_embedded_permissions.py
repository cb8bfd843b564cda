"""A program that embeds Intercom permits requests in advance, as a person does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from intercom.embedding import EmbeddedOperator
from intercom.model.errors import InvalidState
from intercom.model.request import RiskLevel
from tests.support.virtual_server import AgentClient, VirtualServer


async def test_a_grant_is_made_listed_and_revoked(server: VirtualServer, agent: AgentClient) -> None:
    kim = EmbeddedOperator(server.app, "kim")
    id = (await agent.propose()).request_id
    made = await kim.grant(id, duration="1h", uses=3, pattern="*.txt", risk=RiskLevel.HIGH, act="one")
    assert (await kim.grant(id, duration="1h", uses=3, pattern="*.txt", risk=RiskLevel.HIGH, act="one")) == made
    assert (made.grant.by, made.grant.channel, made.grant.seconds, made.grant.uses) == ("kim", "embed", 3600, 3)
    assert (await agent.propose("b.txt", risk=RiskLevel.HIGH)).answered is not None
    (line,) = await kim.grants(agent.session_id)
    assert line.used == 1
    await kim.revoke(line.grant.id)
    assert await kim.grants() == ()
    assert (await agent.propose("c.txt")).answered is None


async def test_a_rule_is_previewed_and_written(server: VirtualServer, agent: AgentClient, root: Path) -> None:
    kim = EmbeddedOperator(server.app, "kim")
    id = (await agent.propose()).request_id
    shown = await kim.rule_preview(id, pattern="*.txt")
    with pytest.raises(InvalidState, match="has changed since this was shown"):
        await kim.allow(id, pattern="*", sha256=shown.sha256)
    assert (await kim.allow(id, pattern="*.txt", sha256=shown.sha256)).status == "in force"
    assert json.loads((root / ".intercom" / "settings.json").read_text())["file_patterns"] == {"write": ["*.txt"]}
    assert (await agent.propose("b.txt")).answered is not None
