"""A program that embeds the library can be in Slack as a server is."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import trio

import intercom
from intercom.model.config import Config, DatabaseSettings, SlackSettings
from intercom.model.session import SessionMode
from intercom.operators.slack.setup import SlackSetup
from intercom.operators.slack.web_api import SlackTokens
from tests.slack import ALICE, CHANNEL, buttons, serve, text_of


@pytest.mark.real_time
async def test_an_embedded_agent_is_answered_from_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="ix-", dir="/tmp") as directory:
        root = Path(directory)
        for name in ("run", "state", "config"):
            (root / name).mkdir(mode=0o700)
        monkeypatch.setattr(
            os, "environ", {**os.environ, "XDG_RUNTIME_DIR": str(root / "run"), "XDG_STATE_HOME": str(root / "state")}
        )
        workspace = root / "project"
        workspace.mkdir()
        config = Config(
            ipc_name="embedded", database=DatabaseSettings(path=root / "db"), slack=SlackSettings(channel_id=CHANNEL)
        )
        async with serve() as slack, trio.open_nursery() as nursery:
            setup = SlackSetup(
                SlackTokens(slack.app_token, slack.bot_token), CHANNEL, frozenset({ALICE}), api_url=slack.api_url
            )
            async with intercom.open(config, workspace=str(workspace), ctl=False, slack=setup) as switchboard:
                agent = switchboard.agent("release-bot")
                told: list[str] = []
                done = trio.Event()

                async def ask() -> None:
                    told.append((await agent.transmit("Shall I go on?")).answer.decision)
                    done.set()

                nursery.start_soon(ask)
                await slack.connected()
                (card,) = await slack.wait_for(
                    lambda: [one for one in slack.messages() if "Shall I go on?" in text_of(one) and buttons(one)]
                )
                await slack.tap(ALICE, card["ts"], "prompt_stop").answer()
                await slack.wait_for(lambda: "Delivered" in text_of(slack.message(card["ts"])))
                await done.wait()
                assert told == ["stop"]
                # Where there is a chat, there is somebody to tell in mode remote.
                assert (await agent.switch_freq(SessionMode.REMOTE)).answer.previous_mode == "hybrid"
