"""Each of the nine tools, by a real agent, and what Slack shows of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.operators.slack.live.server import CONFIG, Work, at_work
from tests.slack import ALICE, CHANNEL, OTHER_CHANNEL, buttons, text_of

pytestmark = pytest.mark.real_time

SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
POLICY = {
    "enabled": True,
    "commands": ["ls *"],
    "file_patterns": {"write": ["docs/**"]},
    "log_auto_approved": True,
    "summary_interval_seconds": 1,
}


def obey(work: Work, policy: dict[str, Any]) -> None:
    """Give the workspace a policy."""
    file = work.workspace / ".intercom" / "settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(policy))


async def thread_of(work: Work) -> dict[str, Any]:
    """The message that the session's thread hangs from."""
    return await work.slack.first(lambda one: str(work.workspace) in text_of(one) and "*Mode*" in text_of(one))


async def a_clearance_is_shown_with_all_that_matters_and_follows_its_change(work: Work) -> None:
    (work.workspace / "app.py").write_text("one\n")
    diff = "--- a/app.py\n+++ b/app.py\n@@ -1 +1,2 @@\n-one\n+two & <three>\n+four\n"
    asked, card = await work.propose(
        "Count further", diff=diff, file_path="app.py", description="Because one is few.", risk_level="high"
    )
    shown = text_of(card)
    assert "<!channel>" in shown
    assert "*high* risk" in shown
    assert "`app.py`  +2 −1" in shown
    assert "Because one is few." in shown
    assert "+two &amp; &lt;three&gt;" in shown
    assert card["thread_ts"] == (await thread_of(work))["ts"]
    assert card["subtype"] == "thread_broadcast"
    await work.tap(card, "approve_accept")
    answer = await asked()
    delivered = await work.slack.shows(card["ts"], "*Delivered*")
    assert "Approved by alice in Slack" in text_of(delivered)
    assert "<!channel>" not in text_of(delivered)
    done = await work.call("check_diff", request_id=answer["request_id"])
    assert done["status"] == "applied"
    assert (work.workspace / "app.py").read_text() == "two & <three>\nfour\n"
    await work.slack.shows(card["ts"], "*Applied*")


async def test_a_large_change_follows_as_a_file_and_its_secret_stays_on_the_machine() -> None:
    async with at_work() as work, work.server.home.person(work.workspace) as person:
        content = "".join(f"line {number}\n" for number in range(400)) + f"token = '{SECRET}'\n"
        asked, card = await work.propose("Much", diff=content, file_path="much.py")
        assert "(405 lines) is in the thread as a file" in text_of(card)
        [file] = await work.slack.wait_for(lambda: [one for one in work.slack.files if one.completed])
        data = (file.data or b"").decode()
        assert "line 399\n" in data
        assert SECRET not in data
        assert "secret masked" in data
        await work.slack.wait_for(
            lambda: [one for one in work.slack.thread(CHANNEL, card["thread_ts"]) if one.get("files")]
        )

        small, little = await work.propose("Little", diff=f"token = '{SECRET}'\n", file_path="little.py")
        assert SECRET not in text_of(little)
        assert "🔒 1 secret masked" in text_of(little)
        await work.tap(little, "approve_accept")
        answer = await small()
        whole = await person.do("show", id=answer["request_id"])
        assert SECRET in json.dumps(whole)
        await work.call("check_diff", request_id=answer["request_id"])
        assert SECRET in (work.workspace / "little.py").read_text()
        assert SECRET not in json.dumps(work.slack.messages())
        await work.tap(card, "approve_accept")
        await asked()


async def test_what_the_policy_lets_pass_is_told_in_one_line_and_asked_of_nobody() -> None:
    async with at_work() as work:
        obey(work, POLICY)
        await work.call("ping")
        card = await work.slack.card("Nobody has accepted this policy here")
        await work.tap(card, "policy_accept")
        await work.slack.shows(card["ts"], "Accepted by alice")
        passed = await work.call("auto_check", tool_name="ls", context={"args": ["docs"]})
        assert passed["auto_approved"] is True
        cleared = await work.call("check_clearance", title="Note", diff="x\n", file_path="docs/a.md")
        assert cleared["status"] == "approved"
        told = await work.slack.first(lambda one: "the policy let pass" in text_of(one))
        assert "ls (command:ls *)" in text_of(told)
        assert "docs/**" in text_of(told)
        assert not (await work.call("auto_check", tool_name="rm", context={"args": ["-r", "docs"]}))["auto_approved"]
        assert [one for one in work.slack.messages() if buttons(one)] == []


async def a_broadcast_stands_in_the_thread_by_the_time_it_is_answered(work: Work) -> None:
    marks = {"info": "ℹ️", "success": "✅", "warning": "⚠️", "error": "❌"}
    for level, mark in marks.items():
        told = await work.call("broadcast", message=f"{level} it is, at <all>", level=level)
        assert told["posted"] is True
        message = work.slack.message(told["ts"])
        assert f"{mark} {level} it is, at <all>" in text_of(message).replace("&lt;", "<").replace("&gt;", ">")
        assert message["thread_ts"] == (await thread_of(work))["ts"]
    # In a thread of the agent's choice: that of a message in the channel itself.
    root = work.slack.say(ALICE, CHANNEL, "What about the tests?")
    told = await work.call("broadcast", message="they pass", thread_ts=root["ts"])
    assert work.slack.message(told["ts"])["thread_ts"] == root["ts"]
    refused = await work.call("broadcast", message="x", thread_ts="yesterday")
    assert refused["error_code"] == "invalid_arguments"


async def a_broadcast_that_slack_does_not_take_yet_is_on_its_way(work: Work) -> None:
    await work.call("broadcast", message="first")
    work.slack.plan("chat.postMessage", "limit", seconds=3)
    told = await work.call("broadcast", message="second")
    assert told == {"posted": False, "queued": True}
    await work.slack.first(lambda one: "second" in text_of(one))


async def pings_tell_a_line_and_keep_the_list_of_tasks(work: Work) -> None:
    snapshot = [{"label": "read", "status": "done"}, {"label": "write", "status": "in_progress"}]
    answer = await work.call("ping", status_message="half-way there", progress_snapshot=snapshot)
    assert answer["acknowledged"] is True
    line = await work.slack.first(lambda one: "half-way there" in text_of(one))
    assert line["thread_ts"] == (await thread_of(work))["ts"]


async def test_cards_follow_the_mode() -> None:
    async with at_work() as work, work.server.home.person(work.workspace) as person:
        assert (await work.call("broadcast", message="here"))["posted"] is True
        assert (await work.call("switch_freq", mode="local")) == {"previous_mode": "hybrid", "current_mode": "local"}
        asked = work.ask("transmit", prompt_text="Shall I really go on?")
        card = await person.card(kind="prompt")
        assert (await work.call("broadcast", message="unheard"))["posted"] is False
        assert [one for one in work.slack.messages() if buttons(one)] == []
        # What is open when Slack is told again, is shown there.
        assert (await work.call("switch_freq", mode="remote"))["current_mode"] == "remote"
        shown = await work.slack.card("Shall I really go on?")
        assert "unheard" not in "".join(text_of(one) for one in work.slack.messages())
        await work.slack.shows((await thread_of(work))["ts"], "remote")
        # Who is told never says who may answer; and who has shown a card hears how it ends.
        await person.do("answer", id=card["request_id"], decision="continue")
        assert (await asked())["decision"] == "continue"
        ended = await work.slack.shows(shown["ts"], "Continued by")
        assert buttons(ended) == []
        # Back in local, a card that Slack shows still closes there.
        waits, standby = await work.asked("standby", "What next?", message="What next?")
        await work.call("switch_freq", mode="local")
        await work.tap(standby, "wait_resume")
        assert (await waits())["status"] == "resumed"
        await work.slack.shows(standby["ts"], "Resumed by alice")


async def test_who_takes_up_a_session_goes_on_in_its_thread() -> None:
    async with at_work() as work:
        first = work.server.home.workspace()
        async with work.server.home.agent(first) as crashed:
            later = work.ask("ping")
            await later()
            work.nursery.start_soon(_abandoned, crashed)
            card = await work.slack.card("Before the crash")
        async with work.server.home.agent(first) as agent:
            back = Work(work.server, agent, first, work.nursery)
            found = await back.call("reboot")
            assert found["status"] == "recovered"
            [pending] = found["pending_requests"]
            asked = back.ask("transmit", request_id=pending["request_id"])
            await back.tap(card, "prompt_stop")
            assert (await asked())["decision"] == "stop"
            told = await back.call("broadcast", message="on again")
            assert back.slack.message(told["ts"])["thread_ts"] == card["thread_ts"]
            assert (await back.call("reboot"))["status"] == "clean"


async def _abandoned(agent: Any) -> None:
    try:
        await agent.call_tool("transmit", {"prompt_text": "Before the crash"})
    except Exception:
        return


async def an_agent_reads_its_own_channel_and_no_other(work: Work) -> None:
    work.slack.say(ALICE, CHANNEL, "Mind the gap & <stay> right")
    await work.call("broadcast", message="I do")
    read = await work.agent.read_resource(f"slack://channel/{CHANNEL}/recent?limit=10")
    found = json.loads(read.contents[0].text)
    assert "Mind the gap & <stay> right" in [one["text"] for one in found["messages"]]
    assert found["has_more"] is False
    with pytest.raises(MCPError, match="only that one can be read"):
        await work.agent.read_resource(f"slack://channel/{OTHER_CHANNEL}/recent")


async def test_each_workspace_and_each_connection_has_its_channel() -> None:
    async with at_work(CONFIG) as work:
        elsewhere = work.server.home.workspace()
        async with work.server.home.agent(elsewhere, "--channel", OTHER_CHANNEL) as agent:
            other = Work(work.server, agent, elsewhere, work.nursery)
            asked = other.ask("transmit", prompt_text="In the other channel?")
            card = await work.slack.card("In the other channel?", OTHER_CHANNEL)
            told = await other.call("broadcast", message="over here")
            assert work.slack.message(told["ts"], OTHER_CHANNEL)["thread_ts"] == card["thread_ts"]
            await other.tap(card, "prompt_continue")
            assert (await asked())["decision"] == "continue"
            assert "over here" not in "".join(text_of(one) for one in work.slack.messages())
            read = await agent.read_resource(f"slack://channel/{OTHER_CHANNEL}/recent")
            assert elsewhere.name in read.contents[0].text


async def test_what_an_agent_does_is_shown() -> None:
    async with at_work() as work:
        for step in (
            a_clearance_is_shown_with_all_that_matters_and_follows_its_change,
            a_broadcast_stands_in_the_thread_by_the_time_it_is_answered,
            a_broadcast_that_slack_does_not_take_yet_is_on_its_way,
            pings_tell_a_line_and_keep_the_list_of_tasks,
            an_agent_reads_its_own_channel_and_no_other,
        ):
            await step(work)
