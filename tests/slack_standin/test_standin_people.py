"""People at the stand-in: their modals, commands and messages, and what an app may do with what they gave it."""

from __future__ import annotations

import pytest
import trio

from tests.slack_standin import ALICE, BOB, CHANNEL, CannotDo, serve
from tests.slack_standin.app import App, app_of, button, modal, section
from tests.slack_standin.team import Json


async def tapped(app: App) -> Json:
    actions = {"type": "actions", "elements": [button()]}
    posted = await app.call("chat.postMessage", channel=CHANNEL, blocks=[section(), actions])
    act = app.slack.tap(ALICE, posted["ts"], "go")
    await act.answer()
    return act.payload


async def test_a_trigger_is_good_once_and_for_three_seconds() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        first, second = await tapped(app), await tapped(app)
        assert (await app.call("views.open", trigger_id=first["trigger_id"], view=modal()))["ok"]
        again = await app.call("views.open", trigger_id=first["trigger_id"], view=modal())
        assert again["error"] == "exchanged_trigger_id"
        await trio.sleep(3.1)
        late = await app.call("views.open", trigger_id=second["trigger_id"], view=modal())
        assert late["error"] == "expired_trigger_id"
        assert len(slack.views(ALICE)) == 1
        assert slack.views(BOB) == []


async def test_what_an_app_answers_to_a_modal_is_done() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        opened = await app.call("views.open", trigger_id=(await tapped(app))["trigger_id"], view=modal())
        app.answer = lambda envelope: {"response_action": "errors", "errors": {"reason": "say more"}}
        await slack.submit(ALICE, "why", {"text": "no"}).answer()
        assert slack.view_errors(ALICE) == {"reason": "say more"}
        app.answer = lambda envelope: {"response_action": "errors", "errors": {"elsewhere": "?"}}
        await slack.submit(ALICE, "why", {"text": "no"}).answer()
        assert "trouble" in slack.view_errors(ALICE)[""]
        app.answer = lambda envelope: {"response_action": "update", "view": modal(callback_id="other")}
        await slack.submit(ALICE, "why", {"text": "no"}).answer()
        assert [view["callback_id"] for view in slack.views(ALICE)] == ["other"]
        assert slack.views(ALICE)[0]["id"] == opened["view"]["id"]


async def test_what_is_written_reaches_the_app_as_slack_writes_it() -> None:
    async with serve() as slack, app_of(slack) as app, app.socket():
        root = await app.call("chat.postMessage", channel=CHANNEL, text="root")
        slack.say(BOB, CHANNEL, "see <b> & https://example.org/x", thread_ts=root["ts"])
        await slack.acted_on()
        own, said = (one["payload"]["event"] for one in app.heard if one["type"] == "events_api")
        assert (own["bot_id"], own["text"]) == (slack.team.bot_id, "root"), "an app hears itself"
        assert said["text"] == "see &lt;b&gt; &amp; <https://example.org/x>"
        assert (said["user"], said["thread_ts"], said["channel_type"]) == (BOB, root["ts"], "channel")
        slack.team.bot_scopes -= {"channels:history"}
        slack.say(BOB, CHANNEL, "unheard")
        assert len(slack.envelopes) == 2


async def test_only_what_is_shown_can_be_pressed_but_a_stale_screen_shows_old_buttons() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        payload = await tapped(app)
        ts = payload["message"]["ts"]
        before = slack.message(ts)
        await app.call("chat.update", channel=CHANNEL, ts=ts, text="decided", blocks=[section("decided")])
        with pytest.raises(CannotDo, match="shows no go"):
            slack.tap(BOB, ts, "go")
        act = slack.tap(BOB, before, "go")
        await act.answer()
        assert app.heard[-1]["payload"]["message"]["blocks"][0]["text"]["text"] == "decided"
