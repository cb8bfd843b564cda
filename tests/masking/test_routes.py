"""No route leads around the masker: whatever an agent may write, Slack gets none of its secrets."""

from __future__ import annotations

import ast
import json
import logging
import random
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

import intercom
from intercom.agents import tool_call
from intercom.cli import serve
from intercom.model.config import LogLevel
from intercom.operators.slack.socket_mode import Socket, SocketLimits
from intercom.operators.slack.web_api import LITERAL, SlackTokens, WebApi
from tests.masking.corpus import KINDS
from tests.operators.slack.live.server import at_work
from tests.operators.slack.wire.http_end import Asked, http_end, reply
from tests.slack_standin import ALICE, CHANNEL, text_of

pytestmark = pytest.mark.real_time

PACKAGE = Path(intercom.__file__).parent


class Canaries:
    """Secrets of many kinds, a new one each time; `seen_in` tells which of them stand in what was sent."""

    def __init__(self) -> None:
        self._chance = random.Random(11)
        self._kinds = [kind for kind in KINDS if "the value § was used" in kind.spellings]
        self.made: list[str] = []

    def __call__(self) -> str:
        self.made.append(self._kinds[len(self.made) % len(self._kinds)].make(self._chance))
        return self.made[-1]

    def seen_in(self, sent: str) -> list[str]:
        return [each for each in self.made if each[:24] in sent or each[-12:] in sent]


async def test_every_way_to_slack_masks_all_that_it_carries() -> None:
    canary = Canaries()

    def text() -> dict[str, str]:
        return {"type": "mrkdwn", "text": f"it is `{canary()}` here"}

    blocks = [
        {
            "type": "section",
            "text": text(),
            "fields": [text(), text()],
            "accessory": {"type": "button", "text": text()},
        },
        {"type": "context", "elements": [text()]},
        {"type": "image", "alt_text": canary(), "image_url": f"https://x.example/?token={canary()}", "title": text()},
    ]
    asked: list[Asked] = []

    def answer(request: Asked) -> bytes:
        asked.append(request)
        return reply(ok=True, ts="1.1")

    async with http_end(answer) as end, WebApi(SlackTokens("xapp-1", "xoxb-1"), base_url=end.base) as web:
        await web.call("chat.postMessage", channel="C1", text=f"a {canary()}", blocks=blocks, metadata={"x": canary()})
        await web.call("views.open", trigger_id="1.2", view={"title": text(), "blocks": blocks, "close": text()})
        await web.call("files.getUploadURLExternal", filename=canary(), length=3)
        await web.call(
            "files.completeUploadExternal", files=[{"id": "F1", "title": canary()}], initial_comment=canary()
        )
        await web.upload(f"{end.base}upload", f"a = '{canary()}'\n".encode() * 500, "x")
        await web.respond(f"{end.base}respond", {"text": canary(), "blocks": blocks, canary(): 1})
    sent = [unquote_plus(request.body.decode()) for request in asked]
    assert len(sent) == 6
    assert canary.seen_in("\n".join(sent)) == []
    assert all("[masked: " in body for body in sent)


async def test_what_answers_over_the_socket_is_masked() -> None:
    canary = Canaries()

    class Stream:
        sent = b""

        async def write(self, data: bytes) -> None:
            self.sent += data

    stream = Stream()
    socket: Any = Socket(stream, SocketLimits())  # type: ignore[arg-type]
    frames: list[str] = []
    written = socket._write

    async def write(event: Any) -> None:
        frames.append(event.data)
        await written(event)

    socket._write = write
    await socket.send(
        {
            "envelope_id": "e-1",
            "payload": {"text": canary(), "response_action": "errors", "errors": {"words": canary()}},
        }
    )
    assert stream.sent
    [frame] = frames
    assert canary.seen_in(frame) == []
    assert json.loads(frame)["envelope_id"] == "e-1"


def test_only_two_modules_send_to_slack_and_both_mask() -> None:
    """Requests are built, and frames written, where everything is masked: no other module of the channel can."""
    senders = {"build_request": {"web_api.py"}, "TextMessage": {"socket_mode.py"}, "httpx2": {"web_api.py"}}
    for word, allowed in senders.items():
        using = {
            path.name
            for path in (PACKAGE / "operators").rglob("*.py")
            if any(
                word in (getattr(node, "id", None), getattr(node, "attr", None), getattr(node, "name", None))
                for node in ast.walk(ast.parse(path.read_text()))
            )
        }
        assert using <= allowed, (word, using)
        assert using & allowed
    web = ast.parse((PACKAGE / "operators/slack/web_api.py").read_text())
    builders = [
        function
        for function in ast.walk(web)
        if isinstance(function, ast.AsyncFunctionDef)
        and any(getattr(node, "attr", "") in ("build_request", "_request") for node in ast.walk(function))
    ]
    # The WebSocket's handshake carries nothing but its own key.
    assert {function.name for function in builders} == {"call", "upload", "respond", "upgraded"}
    for function in builders:
        masks = any(getattr(node, "id", "") == "masked" for node in ast.walk(function))
        assert masks is (function.name != "upgraded")


def test_nobody_but_the_masker_knows_other_ways_out() -> None:
    """Other clients of the network are imported nowhere in the product."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = ".".join(name.split(".")[:2])
                assert root not in ("requests", "aiohttp", "smtplib", "ftplib", "slack_sdk.web", "slack_sdk.webhook"), (
                    path
                )


@pytest.mark.parametrize("style", ["text", "json"])
def test_log_lines_are_masked_with_the_errors_below_them(style: str, tmp_path: Path) -> None:
    canary = Canaries()
    root = logging.getLogger()
    before = root.handlers[:]
    levels = [(each, each.level) for each in map(logging.getLogger, ("", "mcp", "httpx2", "httpcore2", "wsproto"))]
    try:
        serve.set_up_log(LogLevel.INFO, style, tmp_path / "log" / "x.log")
        try:
            raise ValueError(f"no such {canary()}")
        except ValueError:
            logging.getLogger("intercom.x").exception("it failed for %s", canary())
        logging.getLogger("intercom.x").info("Authorization: Bearer %s", canary())
        root.handlers[0].flush()
    finally:
        root.handlers[0].close()
        root.handlers[:] = before
        for logger, level in levels:
            logger.setLevel(level)
    said = (tmp_path / "log" / "x.log").read_text()
    assert canary.seen_in(said) == []
    assert said.count("[masked: ") >= 3


def test_attributes_of_spans_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    canary = Canaries()
    noted: dict[str, str] = {}

    class Span:
        def is_recording(self) -> bool:
            return True

        def set_attribute(self, name: str, value: str) -> None:
            noted[name] = value

    monkeypatch.setattr(tool_call, "get_current_span", Span)
    tool_call.note(session_id=f"s {canary()}", request_id=f"r {canary()}")
    assert len(noted) == 2
    assert canary.seen_in(str(noted)) == []


async def test_an_agent_that_writes_a_secret_into_every_field_tells_slack_none() -> None:
    canary = Canaries()

    def said(words: str) -> str:
        return f"{words} {canary()} end"

    async with at_work() as work:
        name = canary().replace("/", "_")[:60]
        (work.workspace / f"{name}.txt").write_text(f"x = '{canary()}'\n" * 50)
        diff = f"token = '{canary()}'\n" * 3
        proposals = [
            work.ask(
                "check_clearance", title=said("Small"), description=said("why"), diff=diff, file_path=f"a/{name}.py"
            ),
            work.ask("check_clearance", title=said("Large"), diff=diff * 200, file_path="large.py"),
        ]
        small, large = await work.slack.card("Small"), await work.slack.card("Large")
        await work.call("broadcast", message=said("Broadcast"), level="warning")
        await work.call(
            "ping", status_message=said("Status"), progress_snapshot=[{"label": said("Step"), "status": "done"}]
        )
        question = work.ask("transmit", prompt_text=said("Question"))
        asked = await work.slack.card("Question")
        await work.fill(asked, "prompt_refine", said("A person's words"))
        await question()
        await work.fill(small, "approve_reject", said("A person's reason"))
        await work.tap(large, "approve_accept")
        for proposal in proposals:
            await proposal()
        waiting = work.ask("standby", message=said("Standing by"))
        await work.slack.card("Standing by")
        for command in (
            "list-files",
            f"show-file {name}.txt --lines 3:8",
            f"show-file {name}.txt",
            "sessions",
            said("nothing"),
        ):
            await work.slack.command(ALICE, CHANNEL, command).answer()
        await work.slack.first(lambda one: "lines 3–8" in text_of(one))
        await work.slack.wait_for(lambda: [one for one in work.slack.files if one.completed])
        sent = json.dumps([[call.method, call.args] for call in work.slack.calls], default=str)
        sent += json.dumps([work.slack.messages(), work.slack.ephemerals(ALICE), work.slack.views(ALICE)], default=str)
        sent += "".join((one.data or b"").decode() + json.dumps(one.file) for one in work.slack.files)
        sent += json.dumps([envelope.acks for envelope in work.slack.envelopes], default=str)
        del waiting
    assert canary.seen_in(sent) == []
    assert sent.count("[masked: ") > len(canary.made)


def test_ids_that_slack_must_get_back_are_the_only_exception() -> None:
    """Nobody who adds a field that people read adds it here."""
    readable = {
        "text",
        "title",
        "blocks",
        "elements",
        "fields",
        "alt_text",
        "filename",
        "initial_value",
        "view",
        "files",
    }
    assert not LITERAL & readable
