"""A fault of Slack's part stays in Slack's part: the server runs, and answers whom it can."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from actors import Actor, ChildSpec, Down, NotRunning, System, ask
from intercom.app import App
from intercom.app import _supervisor as supervisor
from intercom.embedding import EmbeddedAgent
from intercom.local.places import places
from intercom.model.chat_status import ConnectionState
from intercom.model.config import Config, DatabaseSettings, SlackSettings
from intercom.operators.commands.json_forms import plain
from intercom.operators.slack.settings import SlackSetup
from intercom.operators.slack.slack_messages import Health
from intercom.operators.slack.web_api import SlackTokens, Unreachable, WebApi
from intercom.store.store_and_reader import Reader
from tests.operators.slack.live.embedded import setup_for
from tests.proxy import certificate
from tests.slack_standin import CHANNEL as IN_SLACK
from tests.slack_standin import serve, text_of

CHANNEL = "C0123456789"
TOKENS = SlackTokens("xapp-1-A0-1-abc", "xoxb-1-abc")


def an_app(root: Path, channel: str = CHANNEL, setup: SlackSetup | None = None) -> App:
    file = root / "intercom.db"
    config = Config(database=DatabaseSettings(path=file), slack=SlackSettings(channel_id=channel))
    return App(config, places("supervision"), file, frozenset(), slack=setup or SlackSetup(TOKENS, channel))


@pytest.mark.parametrize(
    ("variable", "value"), [("SSL_CERT_FILE", "/nowhere/certificates.pem"), ("HTTPS_PROXY", "gopher://127.0.0.1:1")]
)
@pytest.mark.real_time
async def test_an_environment_that_no_client_can_be_made_in_keeps_no_server_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    app = an_app(tmp_path)
    async with app.system:
        assert await app.service.pending() == ()
        standing = await ask(app.system.named("slack/connection"), Health(), timeout=30)
        assert standing.state is not ConnectionState.UP


async def test_a_call_says_what_is_wrong_with_the_certificates_until_they_are_put_right(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates.pem"
    async with WebApi(TOKENS, base_url="http://127.0.0.1:9/api/", ca_file=certificates) as web:
        with pytest.raises(Unreachable, match="certificates or the proxy") as caught:
            await web.call("auth.test")
        assert not caught.value.maybe_done
        certificate.make(tmp_path, "proxy")[0].rename(certificates)
        with pytest.raises(Unreachable, match="could not be reached"):
            await web.call("auth.test")


async def test_who_may_answer_is_not_in_the_status_that_agents_can_read(tmp_path: Path) -> None:
    setup = SlackSetup(TOKENS, CHANNEL, frozenset({"U045EF6GH", "U012AB3CD"}))
    app = an_app(tmp_path, setup=setup)
    async with app.system:
        assert "U012AB3CD" not in json.dumps(plain(await app.service.chat_status()))
        assert app.service.chat_people == ("U012AB3CD", "U045EF6GH")


class Falls(Actor):
    """Comes up, and falls at once."""

    def on_start(self) -> None:
        self.actor_ref.tell("fall")

    def on_receive(self, message: object) -> None:
        raise RuntimeError(f"asked to {message}")


async def test_parts_of_slack_that_fall_for_ever_take_nobody_else_along() -> None:
    kept: dict[str, int] = {}

    class Local(Actor):
        def on_start(self) -> None:
            kept["starts"] = kept.get("starts", 0) + 1

    parts = [
        ChildSpec(f"slack/{name}", Falls) for name in ("web", "outbox", "outbox_writer", "commands", "ephemeral", "x")
    ]
    tree = [ChildSpec("slack", lambda: supervisor(parts), shutdown=None), ChildSpec("ctl", Local)]
    async with System([ChildSpec("server", lambda: supervisor(tree), shutdown=None)]):
        await trio.sleep(3600)
    assert kept == {"starts": 1}


@pytest.mark.real_time
async def test_a_server_that_stops_says_so_in_slack_and_one_that_comes_back_what_waits(tmp_path: Path) -> None:
    async with serve() as slack:

        def app() -> App:
            return an_app(tmp_path, IN_SLACK, setup_for(slack))

        def says(words: str) -> bool:
            return any(words in text_of(message) for message in slack.messages(IN_SLACK))

        first = app()
        async with first.system, trio.open_nursery() as nursery:
            await slack.connected()
            agent = EmbeddedAgent(first, "agent", str(tmp_path))

            async def ask_on() -> None:
                with suppress(NotRunning, Down):
                    await agent.transmit("shall I go on?")

            nursery.start_soon(ask_on)
            await slack.wait_for(lambda: says("shall I go on?"))
            await first.system.stop()
            assert says("Intercom stops. 1 request stays open")
            nursery.cancel_scope.cancel()
        second = app()
        async with second.system:
            await slack.wait_for(lambda: says("server restarted"))


@pytest.mark.real_time
async def test_a_server_that_is_not_in_slack_stops_without_a_word(tmp_path: Path) -> None:
    app = an_app(tmp_path)
    async with app.system:
        pass
    assert not await Reader(tmp_path / "intercom.db").read(lambda db: list(db.query("select key from outbox")))
