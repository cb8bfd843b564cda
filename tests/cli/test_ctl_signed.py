"""Decisions signed with a PIN, as a person makes them: a real server, a real terminal, a real key."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import frozen

from intercom.cli import ctl_sign
from intercom.local.places import places
from intercom.operators.ctl.client import Refusal
from tests.cli.test_ctl_end_to_end import DIFF
from tests.operators.ctl_server import environ
from tests.support import server_forks
from tests.support.keys import make_key_file
from tests.support.terminal import Terminal, on_terminal

pytestmark = pytest.mark.real_time

CTL = [sys.executable, str(Path(__file__).parents[1] / "support" / "ctl_at_home.py")]
PIN = "correct horse"
AT = "2026-11-23T08:00:00.000000+00:00"

#: An agent's host that asks for clearance and applies; its JSON-RPC is written by hand, as a client takes long to load.
AGENT = """
import json, subprocess, sys

command = [sys.executable, "-m", "intercom.cli.main", "--workspace", sys.argv[1]]
relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

def send(method, **more):
    relay.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\\n")

def answer(id, method, **params):
    send(method, id=id, params=params)
    for line in relay.stdout:
        if (said := json.loads(line)).get("id") == id:
            return said["result"]

def call(id, tool, **arguments):
    return answer(id, "tools/call", name=tool, arguments=arguments)["structuredContent"]

client = {"name": "claude-code", "version": "1"}
answer(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
send("notifications/initialized")
proposal = {"title": "Add a line", "diff": sys.argv[2], "file_path": "notes.txt", "risk_level": "low"}
answered = call(2, "check_clearance", **proposal)
applied = call(3, "check_diff", request_id=answered["request_id"])
print(json.dumps({"answer": answered, "applied": applied}), flush=True)
# Until its end, which ends the relay too.
relay.wait()
"""


@frozen
class Scene:
    """A server, and an agent whose proposal waits; `agent` tells what it was answered."""

    home: Path
    env: dict[str, str]
    card: dict[str, Any]
    agent: AsyncIterator[Any]

    @property
    def id(self) -> str:
        return str(self.card["request_id"])

    @property
    def file(self) -> Path:
        return self.home / "work" / "notes.txt"


async def json_lines(process: trio.Process) -> AsyncIterator[Any]:
    assert process.stdout is not None
    rest = b""
    async for chunk in process.stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


@contextlib.asynccontextmanager
async def running(command: list[str], env: dict[str, str], **options: Any) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(command, env=env, start_new_session=True, **options)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


def make_key(home: Path) -> str:
    """A key, made while no server runs."""
    return make_key_file(places(environ=environ(home)), PIN, "kim", AT).key.id


async def ctl(env: dict[str, str], *words: str) -> tuple[int, Any]:
    """ctl without a terminal."""
    command = [*CTL, "--json", *words]
    done = await trio.run_process(
        command, env=env, capture_stdout=True, check=False, stdin=subprocess.DEVNULL, start_new_session=True
    )
    return done.returncode, json.loads(done.stdout)


@contextlib.asynccontextmanager
async def scene(home: Path, old: str = "one\n", diff: str = DIFF) -> AsyncIterator[Scene]:
    """A server, and an agent that proposes `diff` for notes.txt, which is `old`."""
    workspace = trio.Path(home, "work")
    await workspace.mkdir()
    await (workspace / "notes.txt").write_text(old)
    env = environ(home)
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    async with (
        serving(env),
        running([*CTL, "--json", "watch"], env, stdout=subprocess.PIPE) as watch,
        running([sys.executable, "-c", AGENT, str(workspace), diff], env, **piped) as agent,
    ):
        async for event in json_lines(watch):
            if event["event"] == "card" and event["data"]["kind"] == "approval":
                yield Scene(home, env, event["data"], json_lines(agent))
                return


@contextlib.asynccontextmanager
async def serving(env: dict[str, str]) -> AsyncIterator[None]:
    """A server that is ready."""
    hear, tell = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    server = server_forks.shared().start(["serve", "--ready-fd", str(tell)], env, keep=[tell], stderr=null)
    os.close(null)
    os.close(tell)
    try:
        async with trio.lowlevel.FdStream(hear) as news:
            assert b'"ready": true' in await news.receive_some()
        yield
    finally:
        server.kill()
        server.wait()


def typing(at: Scene, *words: str) -> contextlib.AbstractAsyncContextManager[Terminal]:
    return on_terminal([*CTL, *words], at.env)


async def with_pin(at: Scene, *words: str) -> str:
    """Run ctl in a terminal, and type the PIN that it asks for; what it printed."""
    async with typing(at, *words) as screen:
        shown = await screen.until("PIN of key")
        screen.type(f"{PIN}\n")
        said = await screen.rest()
    assert PIN not in said
    return shown + said


async def press(screen: Terminal, key: str, question: str) -> None:
    """Press a key of the card that has it, until the watch asks this. A card may come later than the watch, and only
    the person selects; what is typed while another card comes is for the question before, and is dropped."""
    while question not in (drawn := await screen.until("[q]uit ", question)):
        screen.type(key[1] if key in drawn else "n")


async def test_only_a_pin_that_is_typed_approves_and_the_change_is_written(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    async with scene(tmp_path) as at:
        code, refused = await ctl(at.env, "approve", at.id)
        assert code == 1
        assert "the PIN is read from a terminal, and there is none here" in refused["error"]
        # One that knows nothing of keys, or pretends so.
        keys = tmp_path / ".config/agent-intercom/keys"
        keys.rename(tmp_path / "elsewhere")
        code, refused = await ctl(at.env, "approve", at.id)
        assert (code, refused["error_code"]) in ((1, "signature_required"), (1, "unauthorized"))
        (tmp_path / "elsewhere").rename(keys)
        async with typing(at, "approve", at.id) as screen:
            await screen.until("PIN of key")
            # What an arrow key sends begins with Esc, too.
            screen.type("abc\x1b[A")
            assert "no PIN was given; nothing was changed" in await screen.rest()
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["decided"] is None
        assert at.file.read_text() == "one\n"

        async with typing(at, "approve", at.id[:8]) as screen:
            shown = await screen.until(f"PIN of key {key}, to approve {at.id[:8]} (esc to leave): ")
            assert f"approve {at.id[:8]} [LOW]: Add a line" in shown
            assert "write  notes.txt  +1 -0" in shown
            # What is signed is on the screen, whatever another command showed before.
            assert "+two" in shown
            screen.type("not this one\n")
            await screen.until("That PIN does not open the key; try again: ")
            screen.type(f"{PIN}\n")
            said = await screen.rest()
            assert f"approved {at.id}" in said
            assert PIN not in said
        assert (await anext(at.agent))["applied"]["status"] == "applied"
        assert at.file.read_text() == "one\ntwo\n"
        _, entry = await ctl(at.env, "show", at.id)
        assert (entry["decided"]["signature"]["key_id"], entry["decided"]["signature"]["method"]) == (key, "pin")
        async with typing(at, "show", at.id) as screen:
            assert f"signed with key {key}, with its PIN" in await screen.rest()


def test_a_pin_that_was_declined_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_key(tmp_path)
    asked = []

    class Signed:
        def send(self, verb: str, *_: Any) -> Any:
            asked.append(verb)
            raise KeyboardInterrupt

    monkeypatch.setattr(ctl_sign, "_signer", lambda *_: Signed())
    sender = ctl_sign.Sender(places(environ=environ(tmp_path)))
    for verb in ("approve", "reject"):
        with pytest.raises(Refusal, match="no PIN was given; nothing was changed"):
            sender.send(verb, {"id": "a"})
    assert asked == ["approve"]


async def test_a_row_flipped_by_sql_writes_nothing(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        database = places(environ=at.env).database
        with contextlib.closing(sqlite3.connect(database)) as db:
            db.execute("update approval_request set status = 'approved', verdict = 'approve', verdict_id = 'x'")
            db.commit()
        async with running([*CTL, "--json", "watch"], at.env, stdout=subprocess.PIPE) as watch:
            code, refused = await ctl(at.env, "approve", at.id)
            assert code == 1
            assert refused["error_code"] != "ipc"
            assert watch.returncode is None
        assert at.file.read_text() == "one\n"


async def test_a_key_created_while_the_server_runs_counts_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as at:
        async with typing(at, "key", "create") as screen:
            for question in ("Choose a PIN for the new key: ", "The same again: "):
                await screen.until(question)
                screen.type(f"{PIN}\n")
            assert "it counts from now on" in await screen.rest()
        _, keys = await ctl(at.env, "key", "list")
        (key,) = keys["keys"]
        assert key["counts"]
        async with typing(at, "key", "list") as screen:
            assert re.search(r"private half here, made \d+ s ago +counts", await screen.rest())
        said = await with_pin(at, "reject", at.id, "--reason", "not now")
        assert "the agent is told:" in said
        assert "not now" in said.partition("PIN of key")[0]
        assert f"rejected {at.id}" in said
        said = await with_pin(at, "key", "revoke", key["key_id"])
        assert f"revoked operator key {key['key_id']} ({key['name']})" in said
        assert "decisions are not signed any more" in said
        _, keys = await ctl(at.env, "key", "list")
        assert keys["keys"] == []


async def test_watch_asks_for_the_pin_after_its_key(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        async with typing(at, "watch", "--plain") as screen:
            await press(screen, "[a]pprove", "PIN of key")
            screen.type(f"{PIN}\n")
            await screen.until(f"approved {at.id[:8]}")
            screen.type("q")
        assert (await anext(at.agent))["applied"]["status"] == "applied"


async def test_a_policy_is_accepted_and_rejected_with_the_pin_from_the_command_line_and_in_watch(
    tmp_path: Path,
) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        root = at.file.parent
        (root / ".intercom").mkdir()
        for tool, words, says in (
            ("transmit", ("policy", "reject", str(root), "--reason", "too much"), "rejected"),
            ("standby", ("policy", "accept", "{id}", "--yes"), "in force"),
            ("ping", ("policy", "accept", str(root), "--yes"), "in force"),
            ("reboot", ("watch",), "in force"),
        ):
            (root / ".intercom/settings.json").write_text(json.dumps({"enabled": True, "tools": [tool]}))
            _, shown = await ctl(at.env, "policy", "show", str(root))
            assert shown["status"] == "waiting"
            if words == ("watch",):
                async with typing(at, "watch", "--plain") as screen:
                    await press(screen, "[a]ccept", "type y ")
                    screen.type("y")
                    await screen.until("PIN of key")
                    screen.type(f"{PIN}\n")
                    await screen.until("accepted policy-")
                    screen.type("q")
            else:
                await with_pin(at, *(each.format(id=shown["request_id"]) for each in words))
            _, after = await ctl(at.env, "policy", "show", str(root))
            assert after["status"] == says
            assert (after["accepted_sha256"] == shown["sha256"]) is (says == "in force")


async def test_commands_to_agents_are_signed_too(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        session = at.card["session_id"]
        code, refused = await ctl(at.env, "steer", session, "leave it")
        assert (code, refused["error_code"]) == (1, "unauthorized")
        # Each is signed for its agent, however it was named: what was signed is checked again before it is told.
        workspace = str(at.home / "work")
        (at.home / "work" / "sub").mkdir()
        for words, reads in (
            (("steer", session[:8], "take care"), ""),
            # Also what the server says for a person: it is read before it is signed.
            (("nudge", session[:8]), "Continue working on the current task"),
            (("task", "sweep", "--workspace", f"{workspace}/sub"), f"task {workspace} sweep"),
            (("--session", session[:8], "task", "sweep here"), ""),
        ):
            said = await with_pin(at, *words)
            assert reads in said.partition("PIN of key")[0]
            assert "queued" in said or "nudged" in said, said
        async with typing(at, "steer", "nobody", "take care") as screen:
            assert "no session is called nobody" in await screen.rest()
        # Holding an agent up needs no key: it is what one does in a hurry.
        async with typing(at, "pause", session) as screen:
            assert "paused" in await screen.rest()
        assert (await with_pin(at, "unpause", session)).count("PIN") == 1
        _, entry = await ctl(at.env, "list")
        assert [each["paused_by"] for each in entry["sessions"]] == [None]


async def test_a_false_server_can_not_have_another_policy_signed_than_it_showed(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        root = trio.Path(at.home, "work")
        policy = root / ".intercom" / "settings.json"
        await policy.parent.mkdir()
        await policy.write_text('{"enabled": true, "file_patterns": {"write": ["**/*"]}}')
        harmless = json.dumps({"enabled": False})
        looks = 0

        def ask(request: dict[str, Any]) -> dict[str, Any]:
            request.pop("sha256", None)
            return request

        def answer(request: dict[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
            nonlocal looks
            looks += request["command"] == "policy-show"
            if request["command"] == "policy-show" and looks == 1:
                reply["data"] |= {"text": harmless, "sha256": hashlib.sha256(harmless.encode()).hexdigest()}
            return reply

        words = ("policy", "accept", str(root))
        async with between(at, ask, answer) as env, on_terminal([*CTL, *words], env) as screen:
            await screen.until("[y/N]")
            screen.type("y\n")
            await screen.until("PIN of key")
            screen.type(f"{PIN}\n")
            assert "accepted" not in await screen.rest()
        _, after = await ctl(at.env, "policy", "show", str(root))
        assert after["status"] == "waiting"


@contextlib.asynccontextmanager
async def between(
    at: Scene,
    ask: Callable[[dict[str, Any]], dict[str, Any]],
    answer: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
) -> AsyncIterator[dict[str, str]]:
    """A false server, which changes what is asked and what is answered; yields the environment that leads to it."""
    env = {**at.env, "XDG_RUNTIME_DIR": str(at.home / "false")}
    await trio.Path(at.home, "false").mkdir(mode=0o700)
    real, false = places(environ=at.env), places(environ=env)
    await trio.Path(false.runtime_dir).mkdir(mode=0o700)
    await trio.Path(false.token_file).write_text(await trio.Path(real.token_file).read_text())
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(false.ctl_socket)
    listener.listen()

    async def serve(ours: trio.SocketStream) -> None:
        theirs = await trio.open_unix_socket(real.ctl_socket)
        async with ours, theirs:
            while line := await _line(ours):
                request = ask(json.loads(line))
                await theirs.send_all(json.dumps(request).encode() + b"\n")
                reply = answer(request, json.loads(await _line(theirs)))
                await ours.send_all(json.dumps(reply).encode() + b"\n")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listener)])
        yield env
        nursery.cancel_scope.cancel()


async def _line(stream: trio.SocketStream) -> bytes:
    read = b""
    while not read.endswith(b"\n") and (some := await stream.receive_some()):
        read += some
    return read


async def test_the_inbox_gives_the_screen_to_the_terminal_for_the_pin(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        async with typing(at) as screen:
            await screen.until("Add a line")
            screen.type("\x1b[B")
            await screen.until("+++ b/notes.txt")
            # All of it has been on the screen.
            await screen.until("file \x1b[1m ↑↓")
            screen.type("a")
            left = await screen.until("PIN of key")
            assert "\x1b[?1049l" in left
            # What is typed before the inbox is back is not for it.
            screen.type(f"{PIN}\nrq")
            assert "\x1b[?1049h" in await screen.until(f"approved {at.id[:8]}")
            screen.type("q")
            assert PIN not in await screen.rest()
        assert (await anext(at.agent))["applied"]["status"] == "applied"


async def test_a_pin_that_is_not_given_leaves_the_card_open_in_the_inbox(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        async with typing(at) as screen:
            await screen.until("Add a line")
            screen.type("\x1b[B")
            await screen.until("+++ b/notes.txt")
            # All of it has been on the screen.
            await screen.until("file \x1b[1m ↑↓")
            screen.type("a")
            await screen.until("PIN of key")
            screen.type("\x03")
            await screen.until("no PIN was given; nothing was changed")
            screen.type("q")
            await screen.rest()
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["decided"] is None
