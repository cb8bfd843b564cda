"""A program that embeds the library can be in Slack as a server is."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import trio

import intercom
from intercom.model.config import Config, DatabaseSettings, SlackSettings
from intercom.model.session import SessionMode
from tests.operators.slack.live.embedded import setup_for
from tests.slack_standin import ALICE, CHANNEL, serve
from tests.support.server_process import Home
from tests.support.virtual_server import Pending


@pytest.mark.real_time
async def test_an_embedded_agent_is_answered_from_slack(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, **home.environ})
    database, slack_settings = DatabaseSettings(path=home.root / "db"), SlackSettings(channel_id=CHANNEL)
    config = Config(ipc_name="embedded", database=database, slack=slack_settings)
    async with serve() as slack, trio.open_nursery() as nursery:
        workspace = str(home.workspace())
        async with intercom.open(config, workspace=workspace, ctl=False, slack=setup_for(slack)) as switchboard:
            agent, asked = switchboard.agent("release-bot"), Pending[Any]()
            nursery.start_soon(asked.run, partial(agent.transmit, "Shall I go on?"))
            card = await slack.card("Shall I go on?")
            await slack.tap(ALICE, card, "prompt_stop").answer()
            assert (await asked()).answer.decision == "stop"
            await slack.shows(card["ts"], "Delivered")
            # Where there is a chat, there is somebody to tell in mode remote.
            assert (await agent.switch_freq(SessionMode.REMOTE)).answer.previous_mode == "hybrid"
