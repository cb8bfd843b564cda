"""What Slack shows of each thing that agents do and people decide, in a whole server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from actors import ask
from intercom.model.card import CardKind
from intercom.model.config import SlackSettings, StallSettings
from intercom.model.request import RiskLevel
from intercom.model.session import ProgressItem, ProgressStatus, SessionMode
from intercom.operators.slack.buttons import BY_KIND
from intercom.sessions.messages import ReadRecent
from intercom.sessions.request_kinds import to_json
from intercom.sessions.tools.broadcast import Level
from intercom.sessions.tools.check_clearance import CheckClearance
from intercom.sessions.tools.standby import Standby
from intercom.sessions.tools.transmit import Transmit
from intercom.store.writer_messages import Transact
from tests.operators.slack.live.embedded import PATIENCE, Room, quick, room
from tests.slack_standin import ALICE, BOB, CHANNEL, OTHER_CHANNEL, buttons, text_of

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def of(kind: CardKind) -> list[str]:
    """The buttons of this kind of card."""
    return sorted(button.action_id for button in BY_KIND[kind])


def obey(server: Room, **policy: Any) -> None:
    """Give the agent's workspace a policy."""
    file = server.root / "agent/.intercom/settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"enabled": True, **policy}))


async def thread_of(server: Room) -> dict[str, Any]:
    """The message that the session's thread hangs from."""
    return await server.slack.first(lambda one: "*Mode*" in text_of(one), seconds=PATIENCE)


async def stalled(server: Room, seen: set[str]) -> dict[str, Any]:
    """The card of an alert that was not seen before, waited for."""
    found = await server.slack.first(
        lambda one: "stall_nudge" in buttons(one) and one["ts"] not in seen, seconds=PATIENCE
    )
    seen.add(found["ts"])
    return found


@quick
async def test_every_button_of_an_alert(tmp_path: Path) -> None:
    stall = StallSettings(inactivity_threshold_seconds=60, escalation_threshold_seconds=36000)
    async with room(tmp_path, config={"stall": stall}) as server:
        agent, seen = server.agent(), set[str]()
        await agent.ping()
        alert = await stalled(server, seen)
        assert sorted(buttons(alert)) == of(CardKind.STALL)
        assert "Quiet for" in text_of(alert)
        await server.slack.tap(ALICE, alert["ts"], "stall_nudge").answer()
        await server.shows(alert["ts"], "goes with the agent's next call")
        [told] = (await agent.ping()).instructions
        assert (told.kind, told.text) == ("nudge", stall.default_nudge_message)
        assert buttons(await server.shows(alert["ts"], "the agent is back")) == []

        alert = await stalled(server, seen)
        await server.slack.tap(ALICE, alert["ts"], "stall_nudge_instruct").answer()
        await server.slack.submit(ALICE, await server.slack.form(ALICE, "nudge"), {"text": "look at the log"}).answer()
        await server.shows(alert["ts"], "goes with the agent's next call")
        assert [told.text for told in (await agent.ping()).instructions] == ["look at the log"]

        alert = await stalled(server, seen)
        await server.slack.tap(ALICE, alert["ts"], "stall_dismiss").answer()
        assert buttons(await server.shows(alert["ts"], "dismissed")) == []

        await agent.ping()
        alert = await stalled(server, seen)
        await server.slack.tap(ALICE, alert["ts"], "stall_stop").answer()
        await server.shows(alert["ts"], "dismissed")
        await server.shows((await thread_of(server))["ts"], "ended")
        assert await server.app.service.sessions() == ()


@quick
async def test_an_alert_that_nobody_answers_calls_everybody_in_the_end(tmp_path: Path) -> None:
    stall = StallSettings(inactivity_threshold_seconds=60, escalation_threshold_seconds=60, max_retries=1)
    async with room(tmp_path, config={"stall": stall}) as server:
        await server.agent().ping()
        alert = await stalled(server, set())
        await server.shows(alert["ts"], "Still quiet after 1 nudge")
        call = await server.slack.first(lambda one: "<!channel> 📣 *escalated*" in text_of(one), seconds=PATIENCE)
        # Each is one message of the channel: a reply that is in the channel too would call everybody twice.
        assert [one["ts"] for one in (alert, call) if "thread_ts" in one] == []
        assert [told.kind for told in (await server.agent().ping()).instructions] == ["nudge"]
        await server.shows(alert["ts"], "the agent is back")


@quick
async def test_a_policy_that_grants_more_is_accepted_and_refused_and_what_it_lets_pass_is_told(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        agent = server.agent()
        grants: dict[str, Any] = {"commands": ["ls *"], "file_patterns": {"write": ["docs/**"]}}
        obey(server, **grants, log_auto_approved=True, summary_interval_seconds=1)
        assert not (await agent.auto_check("ls", args="docs")).answer.auto_approved
        card = await server.card("Nobody has accepted this policy here")
        assert sorted(buttons(card)) == of(CardKind.POLICY)
        assert "thread_ts" not in card
        assert "ls *" in text_of(card)
        await server.slack.tap(ALICE, card, "policy_accept").answer()
        assert buttons(await server.shows(card["ts"], "Accepted by alice")) == []
        assert (await agent.auto_check("ls", args="docs")).answer.auto_approved
        assert (await agent.check_clearance("Note", "x\n", "docs/a.md")).answer.status == "approved"
        told = text_of(await server.slack.first(lambda one: "the policy let pass" in text_of(one), seconds=PATIENCE))
        assert "ls (command:ls *)" in told
        assert "docs/**" in told
        assert [one for one in server.slack.messages() if buttons(one)] == []

        obey(server, commands=["ls *", "rm *"])
        assert not (await agent.auto_check("rm", args="x")).answer.auto_approved
        card = await server.card("rm *")
        # Two people at once: the first wins, the other hears who it was.
        taps = [server.slack.tap(BOB, card, "policy_reject"), server.slack.tap(ALICE, card, "policy_accept")]
        for tap in taps:
            await tap.answer()
        rejected = "Rejected by bob" in text_of(await server.shows(card["ts"], "in Slack"))
        told_late = await server.slack.told(ALICE if rejected else BOB, "too late")
        assert ("bob" if rejected else "alice") in told_late["text"]
        assert (await agent.auto_check("rm", args="x")).answer.auto_approved is not rejected


@quick
async def test_a_clearance_is_shown_with_all_that_matters(tmp_path: Path) -> None:
    diff = "--- a/app.py\n+++ b/app.py\n@@ -1 +1,2 @@\n-one\n+two & <three>\n+four\n"
    async with room(tmp_path) as server:
        server.agent()
        (tmp_path / "agent/app.py").write_text("one\n")
        asked = server.ask(
            CheckClearance("Count further", diff, "app.py", "Because one is few.", risk_level=RiskLevel.HIGH)
        )
        card = await server.card("Count further")
        for words in (
            "<!channel>",
            "*high* risk",
            "`app.py`  +2 −1",
            "Because one is few.",
            "+two &amp; &lt;three&gt;",
        ):
            assert words in text_of(card)
        assert "thread_ts" not in card
        # One message, so everybody is notified once.
        await thread_of(server)
        assert [one["ts"] for one in server.slack.messages() if "<!channel>" in text_of(one)] == [card["ts"]]
        await server.slack.tap(ALICE, card, "approve_accept").answer()
        await asked()
        shown = text_of(await server.shows(card["ts"], "*Delivered*"))
        assert "Approved by alice in Slack" in shown
        assert "<!channel>" not in shown


@quick
async def test_a_large_change_follows_as_a_file_and_its_secret_stays_on_the_machine(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        lines = "".join(f"line {number}\n" for number in range(400))
        server.ask(CheckClearance("Much", f"{lines}token = '{SECRET}'\n", "much.py"))
        card = await server.card("Much")
        assert "(405 lines) is in the thread of this message as a file" in text_of(card)
        [file] = await server.slack.wait_for(lambda: [one for one in server.slack.files if one.completed], PATIENCE)
        data = (file.data or b"").decode()
        assert "line 399\n" in data
        assert "secret masked" in data
        assert SECRET not in data
        await server.slack.wait_for(lambda: [one for one in server.slack.thread(CHANNEL, card["ts"]) if "files" in one])

        agent = server.agent("other")
        small = server.ask(CheckClearance("Little", f"token = '{SECRET}'\n", "little.py"), "other")
        little = await server.card("Little")
        assert "🔒 1 secret masked" in text_of(little)
        await server.slack.tap(ALICE, little, "approve_accept").answer()
        answer = (await small()).answer
        assert SECRET in str(await server.app.service.card(answer.request_id))
        await agent.check_diff(answer.request_id)
        assert SECRET in (tmp_path / "other/little.py").read_text()
        assert SECRET not in json.dumps(server.slack.messages())


@quick
async def test_broadcasts_and_pings_stand_in_the_thread_and_the_channel_can_be_read(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        agent = server.agent()
        for level, mark in {Level.INFO: "ℹ️", Level.SUCCESS: "✅", Level.WARNING: "⚠️", Level.ERROR: "❌"}.items():
            told = (await agent.broadcast(f"{level.value} it is, at <all>", level)).answer
            assert told.posted
            message = server.slack.message(told.ts)
            assert f"{mark} {level.value} it is, at &lt;all&gt;" in text_of(message)
            assert message["thread_ts"] == (await thread_of(server))["ts"]
        # In a thread of the agent's choice: that of a message in the channel itself.
        root = server.slack.say(ALICE, CHANNEL, "Mind the gap & <stay> right")
        told = (await agent.broadcast("I do", thread_ts=root["ts"])).answer
        assert server.slack.message(told.ts)["thread_ts"] == root["ts"]
        # One that Slack does not take yet is on its way.
        server.slack.plan("chat.postMessage", "limit", seconds=30)
        assert to_json((await agent.broadcast("late")).answer) == {"posted": False, "queued": True}
        await server.slack.first(lambda one: "late" in text_of(one), seconds=PATIENCE)
        await agent.ping("half-way there", [ProgressItem("write", ProgressStatus.IN_PROGRESS)])
        line = await server.slack.first(lambda one: "half-way there" in text_of(one), seconds=PATIENCE)
        assert line["thread_ts"] == (await thread_of(server))["ts"]
        await server.shows(line["thread_ts"], "🔄 write")
        read = await ask(server.app.system.named("slack/outbox_writer"), ReadRecent(CHANNEL, 100))
        assert "Mind the gap & <stay> right" in [each.text for each in read.messages]
        assert not read.has_more


@quick
async def test_cards_follow_the_mode(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        agent = server.agent()
        assert (await agent.broadcast("here")).answer.posted
        assert to_json((await agent.switch_freq(SessionMode.LOCAL)).answer)["previous_mode"] == "hybrid"
        asked = server.ask(Transmit("Shall I really go on?"))
        assert not (await agent.broadcast("unheard")).answer.posted
        assert [one for one in server.slack.messages() if buttons(one)] == []
        # What is open when Slack is told again, is shown there.
        await agent.switch_freq(SessionMode.REMOTE)
        shown = await server.card("Shall I really go on?")
        assert "unheard" not in "".join(text_of(one) for one in server.slack.messages())
        await server.shows((await thread_of(server))["ts"], "remote")
        # Back in local, a card that Slack shows still closes there, wherever it was decided.
        waits = server.ask(Standby("What next?"))
        standby = await server.card("What next?")
        await agent.switch_freq(SessionMode.LOCAL)
        await server.slack.tap(ALICE, shown, "prompt_continue").answer()
        assert (await asked()).answer.decision == "continue"
        assert buttons(await server.shows(shown["ts"], "Continued by")) == []
        await server.slack.tap(ALICE, standby, "wait_resume").answer()
        assert (await waits()).answer.status == "resumed"
        await server.shows(standby["ts"], "Resumed by alice")


@quick
async def test_a_workspace_has_its_channel(tmp_path: Path) -> None:
    slack = SlackSettings(channel_id=CHANNEL, workspace_channels={tmp_path / "elsewhere": OTHER_CHANNEL})
    async with room(tmp_path, config={"slack": slack}) as server:
        asked = server.ask(Transmit("In the other channel?"), "elsewhere")
        card = await server.slack.card("In the other channel?", OTHER_CHANNEL, PATIENCE)
        told = (await server.agent("elsewhere").broadcast("over here")).answer
        root = server.slack.message(server.slack.message(told.ts, OTHER_CHANNEL)["thread_ts"], OTHER_CHANNEL)
        assert "*Mode*" in text_of(root)
        assert "thread_ts" not in card
        await server.slack.tap(ALICE, card, "prompt_continue").answer()
        assert (await asked()).answer.decision == "continue"
        assert server.slack.messages(CHANNEL) == []


@quick
async def test_words_are_shown_as_queued_and_then_as_delivered(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        agent = server.agent()
        session = (await agent.ping()).answer.session_id
        assert f"queued for session {session[:8]}" in await server.typed(
            "steer mind the gap xoxb-1234567890-abcdefghij"
        )
        queued = await server.slack.first(lambda one: "mind the gap" in text_of(one) and "Queued" in text_of(one))
        assert buttons(queued) == []
        assert queued["thread_ts"] == (await thread_of(server))["ts"]
        [told] = (await agent.ping()).instructions
        assert told.text.startswith("mind the gap")
        delivered = text_of(await server.shows(queued["ts"], "the agent has it since"))
        assert "✅ Delivered" in delivered
        assert "xoxb" not in delivered

        assert "waits until an agent of this workspace" in await server.typed("task write the tests")
        left = await server.slack.first(lambda one: "write the tests" in text_of(one) and "Queued" in text_of(one))
        assert [task.text for task in (await agent.reboot()).answer.tasks] == ["write the tests"]
        await server.shows(left["ts"], "the agent has it since")

        assert f"paused session {session[:8]}" in await server.typed("session-pause")
        assert f"resumed session {session[:8]}" in await server.typed("session-resume")


@quick
async def test_a_checkpoint_is_taken_listed_and_restored_by_its_owner(tmp_path: Path) -> None:
    async with room(tmp_path) as server:
        agent, workspace = server.agent(), tmp_path / "agent"
        (workspace / "a.txt").write_text("one\n")
        await agent.ping("here")
        assert "No checkpoint yet" in await server.typed("session-checkpoints")
        assert "name a checkpoint" in await server.typed("session-restore")
        assert "no checkpoint has an id" in await server.typed("session-restore 1234")
        assert "--files takes one of" in await server.typed("session-restore 1234 --files all")
        told = await server.typed("session-checkpoint before the refactoring")
        assert "took checkpoint" in told
        assert "before the refactoring" in told
        [line] = await server.app.service.checkpoints.listed()
        listed = await server.typed("session-checkpoints")
        assert line.id[:8] in listed
        assert "before the refactoring" in listed

        (workspace / "a.txt").write_text("spoiled\n")
        (workspace / "new.txt").write_text("new\n")
        [session] = await server.app.service.sessions()
        await ask(server.app.system.named("store"), Transact(lambda db: own(db, session.id, BOB)))
        assert "alone may do that" in await server.typed(f"session-restore {line.id[:8]}")
        assert "2 files changed since" in await server.typed(f"session-restore {line.id[:8]} --files back", BOB)
        card = await server.card("Restore checkpoint")
        await server.slack.tap(ALICE, card, "restore_proceed").answer()
        await server.slack.told(ALICE, "who alone may do that")
        await server.slack.tap(BOB, card, "restore_cancel").answer()
        await server.shows(card["ts"], "Cancelled")
        assert (workspace / "a.txt").read_text() == "spoiled\n"

        await server.typed(f"session-restore {line.id[:8]} --files exact", BOB)
        card = await server.card("Restore checkpoint before the refactoring?")
        assert buttons(card) == ["restore_proceed", "restore_cancel"]
        assert "1 modified, 0 deleted, 1 added" in text_of(card)
        styles = [element.get("confirm", {}).get("style") for element in card["blocks"][-1]["elements"]]
        assert styles == ["danger", None]
        await server.slack.tap(BOB, card, "restore_proceed").answer()
        done = await server.shows(card["ts"], "*Applied*")
        assert not buttons(done)
        [live] = await server.app.service.sessions()
        assert "restored as session" in text_of(done)
        assert live.id in text_of(done)
        assert [file.name for file in workspace.iterdir()] == ["a.txt"]
        assert (workspace / "a.txt").read_text() == "one\n"


def own(db: Any, id: str, person: str) -> None:
    db.execute("update session set owner_user_id = ? where id = ?", (person, id))
