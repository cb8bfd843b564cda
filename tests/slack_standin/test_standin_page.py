"""The stand-in's page drives it over HTTP, and it runs as a program of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from tests.slack_standin import ALICE, BOB, CHANNEL, OTHER_CHANNEL, serve
from tests.slack_standin.__main__ import free_port
from tests.slack_standin.app import App, app_of, button, modal, section

ROOT = Path(__file__).parents[2]


async def control(app: App, verb: str, **args: Any) -> Any:
    response = await app.http.post(f"{app.slack.url}/_control/{verb}", json=args)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_whole_approval_is_driven_over_http() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app, app.socket():
        blocks = [section(), {"type": "actions", "elements": [button()]}]
        ts = (await app.call("chat.postMessage", channel=CHANNEL, blocks=blocks))["ts"]
        tapped = await control(app, "tap", user=ALICE, message=ts, action_id="go", wait=True)
        assert tapped["payload"] is None
        trigger = app.heard[-1]["payload"]["trigger_id"]
        await app.call("views.open", trigger_id=trigger, view=modal())
        app.answer = lambda envelope: {"response_action": "errors", "errors": {"reason": "more"}}
        await control(app, "submit", user=ALICE, view="why", values={"text": "no"}, wait=True)
        assert slack.view_errors(ALICE) == {"reason": "more"}
        await control(app, "close_view", user=ALICE, view="why")
        assert slack.views(ALICE) == []
        app.answer = lambda envelope: {"text": "help"}
        await control(app, "command", user=ALICE, channel=CHANNEL, text="help", wait=True)
        assert slack.ephemerals(ALICE)[0]["text"] == "help"
        await control(app, "say", user=ALICE, channel=CHANNEL, text="hi", thread_ts=ts)
        assert len(slack.thread(CHANNEL, ts)) == 2


async def test_what_makes_no_sense_is_refused_with_a_reason() -> None:
    async with serve() as slack, app_of(slack) as app:
        for verb, args in (("tap", {"user": ALICE, "message": "1.1", "action_id": "x"}), ("dance", {}), ("say", {})):
            response = await app.http.post(f"{slack.url}/_control/{verb}", json=args)
            assert (response.status_code, list(response.json())) == (400, ["error"]), verb


async def test_the_page_is_served_with_what_it_draws() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app:
        page = await app.http.get(slack.url + "/")
        assert page.headers["content-type"].startswith("text/html")
        assert "/_page/seen" in page.text
        await app.call("chat.postMessage", channel=CHANNEL, text="hello")
        await app.call("chat.postEphemeral", channel=CHANNEL, user=ALICE, text="psst")
        seen = (await app.http.get(f"{slack.url}/_page/seen")).json()
        assert (seen["user"], seen["channel"], seen["connected"]) == (ALICE, CHANNEL, 0)
        assert [one["text"] for one in seen["messages"] + seen["ephemerals"]] == ["hello", "psst"]
        began = trio.current_time()
        again = (await app.http.get(f"{slack.url}/_page/seen?since={seen['version']}")).json()
        assert again["version"] == seen["version"]
        assert trio.current_time() - began >= 20, "it waits for a change"


async def test_the_page_keeps_the_person_that_was_chosen() -> None:
    """An answer that was asked for before the choice changed it back."""
    async with serve(echo=False) as slack, app_of(slack) as app:
        for user in (BOB, ALICE):
            seen = (await app.http.get(f"{slack.url}/_page/seen?user={user}&channel={OTHER_CHANNEL}")).json()
            assert (seen["user"], seen["channel"]) == (user, OTHER_CHANNEL)
        script = (await app.http.get(slack.url + "/")).text
        dropped = "if (me !== asked.user || place !== asked.channel) return;"
        before, found, after = script.partition(dropped)
        assert found
        # Only the person's choice, and then an answer for this person, sets it.
        assert re.findall(r"\bme = ([\w.]+)", after) == ["seen.user", "event.target.value"]
        assert re.findall(r"(?<=let )me = ([\w.]+)|(?<=; )me = ", before) == ["query.get"]


@pytest.mark.real_time
async def test_it_runs_by_itself_and_says_what_to_export() -> None:
    command = [sys.executable, "-m", "tests.slack_standin", "--port", "0"]
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
        running = await nursery.start(start)
        said = b""
        while b"The channel itself" not in said:
            said += await running.stdout.receive_some()
        exported = dict(line[7:].split("=", 1) for line in said.decode().splitlines() if line.startswith("export "))
        assert set(exported) == {"INTERCOM_SLACK_API", "SLACK_APP_TOKEN", "SLACK_BOT_TOKEN", "SLACK_MEMBER_IDS"}
        async with httpx2.AsyncClient() as http:
            token = {"authorization": f"Bearer {exported['SLACK_BOT_TOKEN']}"}
            answer = await http.post(exported["INTERCOM_SLACK_API"] + "auth.test", headers=token)
            assert answer.json()["ok"]
        running.terminate()


async def test_a_form_that_was_open_before_does_not_cover_a_new_page() -> None:
    async with serve(echo=False) as slack, app_of(slack) as app:
        script = (await app.http.get(slack.url + "/")).text
    at = [
        script.index(each)
        for each in ("earlier ??= new Set(", "seen.modals.filter(one => !earlier", "draw(); drawModal();")
    ]
    assert at == sorted(at)


async def test_without_a_port_a_free_one_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    [taken] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with taken:
        port = taken.socket.getsockname()[1]
        assert free_port(port) == 0
        assert f"port {port} is in use by another program" in capsys.readouterr().err
    assert free_port(0) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.real_time
async def test_a_port_in_use_is_told_in_one_line() -> None:
    [taken] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with taken:
        port = taken.socket.getsockname()[1]
        command = [sys.executable, "-m", "tests.slack_standin", "--port", str(port)]
        ended = await trio.run_process(command, cwd=ROOT, capture_stdout=True, capture_stderr=True, check=False)
    said = f"port {port} is in use by another program: give another one with --port (0: any free one)\n"
    assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (1, b"", said)
