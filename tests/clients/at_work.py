"""A real coding agent at work: the program itself, its model's end a script, a server of ours, and a person."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.clients.ctl import ctl
from tests.clients.model import Call, Model, Say, Step
from tests.clients.over_http import configure_http
from tests.clients.wires import told
from tests.support.server_process import CTL, Home, Person

CHANGE = {"title": "Greet", "diff": "hello\n", "file_path": "greeting.txt"}


def project(home: Home) -> Path:
    """A workspace as the shim finds it by itself, where the entry names none and the client tells no roots."""
    root = home.workspace()
    (root / ".git").mkdir()
    return root


def stand_in(home: Home) -> None:
    """Give the home commands of its own, which clients find: relays, hooks, and servers that relays start. Installed
    ones would believe what the user who runs these tests has recorded, keys among it."""
    directory = home.root / "bin"
    directory.mkdir(exist_ok=True)
    for name, program in (("agent-intercom", home.program), ("agent-intercom-ctl", CTL[:2])):
        file = directory / name
        file.write_text(f'#!/bin/sh\nexec {shlex.join(program)} "$@"\n')
        file.chmod(0o755)
    home.environ["PATH"] = f"{directory}:{home.environ['PATH']}"


async def connect(home: Home, client: str, *words: str) -> None:
    """Let `agent-intercom init` write the client's files, with its hooks."""
    stand_in(home)
    done = await trio.to_thread.run_sync(lambda: home.command("init", "--write", "--hooks", "--client", client, *words))
    assert done.returncode == 0, done.stderr


def set_timeout(file: Path, milliseconds: int | None, table: str = "mcpServers") -> None:
    """Let this time-out stand in for what init allows a call, in the `table` of a client's JSON file."""
    if milliseconds is not None:
        entry = json.loads(file.read_text())
        entry[table]["agent-intercom"]["timeout"] = milliseconds
        file.write_text(json.dumps(entry))


def add_settings(file: Path, settings: Mapping[str, Any]) -> None:
    """Add a person's own settings to a client's JSON file, beside our entry."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


@asynccontextmanager
async def at_work(
    home: Home, root: Path, model: Model, command: Sequence[str], environ: Mapping[str, str]
) -> AsyncIterator[tuple[trio.Process, Person]]:
    """The program running in `root` beside a server of ours, and a person. The arguments are those of `running`."""
    with home.serving():
        async with home.person(root) as person, running(home, root, model, command, environ) as process:
            yield process, person


@asynccontextmanager
async def running(
    home: Home, root: Path, model: Model, command: Sequence[str], environ: Mapping[str, str]
) -> AsyncIterator[trio.Process]:
    """The program running in `root` with this on top of the user's environment. What it said is in `said(home)`, and
    printed where the test fails."""
    with _log(home).open("wb") as log:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=home.environ | environ | {"PWD": str(root)},
            cwd=root,
        )
        try:
            yield process
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            sys.stdout.write(f"{said(home)}\n{sorted(model.tools)}\n{model.answers}\n{len(model.requests)}\n")


def said(home: Home) -> str:
    """What the program wrote."""
    return _log(home).read_text()


def _log(home: Home) -> Path:
    return home.root / "agent.log"


def by_way(home: Home, over: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """What init and the program's environment need for the way "stdio" or "http"."""
    if over == "http":
        return ("--http",), {"INTERCOM_HTTP_TOKEN": configure_http(home).token}
    return (), {}


async def greet() -> AsyncGenerator[Step, str]:
    """Ask for a change, have it written, say so."""
    verdict = told((yield Call("check_clearance", CHANGE)))
    assert verdict["status"] == "approved"
    yield Call("check_diff", {"request_id": verdict["request_id"]})
    yield Say("the world is greeted")


async def say(text: str) -> AsyncGenerator[Step, str]:
    """Say this, and nothing else."""
    yield Say(text)


async def told_why() -> AsyncGenerator[Step, str]:
    """Ask for a change, and say why it was refused."""
    verdict = told((yield Call("check_clearance", CHANGE)))
    assert verdict["status"] == "rejected"
    yield Say(verdict["reason"])


async def told_comments() -> AsyncGenerator[Step, str]:
    """Ask for a change, and say what a person commented on it."""
    verdict = told((yield Call("check_clearance", CHANGE)))
    assert verdict["status"] == "rejected"
    (comment,) = verdict["comments"]
    yield Say(f"line {comment['line']}: {comment['text']}")


async def greet_late(decided: trio.Event) -> AsyncGenerator[Step, str]:
    """Ask for a change; the client cuts the call; have it written once the verdict rides on another's result."""
    cut = yield Call("check_clearance", CHANGE)
    assert "approved" not in cut
    await decided.wait()
    (late,) = told((yield Call("ping")))["late_verdicts"]
    assert late["answer"]["status"] == "approved"
    yield Call("check_diff", {"request_id": late["request_id"]})
    yield Say("late, but greeted")


async def approve(home: Home, person: Person, called: str) -> None:
    """Approve what is asked by a client that calls itself so: by this name the ladder knows it."""
    card = await person.card(kind="approval")
    assert [each["client_name"] for each in (await ctl(home, "list"))["sessions"]] == [called]
    await ctl(home, "approve", card["request_id"])


async def request_changes(home: Home, person: Person) -> None:
    """Turn down what is asked, with a comment on its first line."""
    card = await person.card(kind="approval")
    await ctl(home, "changes", card["request_id"], "--comment", "greeting.txt:1", "greet by name")


async def kill_and_approve(home: Home, person: Person) -> str:
    """Let the server die while the call waits, and the next one be told yes. Returns the request's id."""
    card = await person.card(kind="approval")
    home.kill()
    await ctl(home, "approve", card["request_id"])
    return str(card["request_id"])


async def kill_and_reject(home: Home, person: Person) -> None:
    """Let the server die while the call waits, and the next one be told no."""
    card = await person.card(kind="approval")
    home.kill()
    await ctl(home, "reject", card["request_id"], "--reason", "not today")


async def approve_late(home: Home, person: Person, decided: trio.Event) -> None:
    """Approve what is asked once the client has given the call up, so that nobody waits for the answer."""
    card = await person.card(kind="approval")
    await person.card(request_id=card["request_id"], away=True)
    await ctl(home, "approve", card["request_id"])
    decided.set()


def first_seen(model: Model) -> str:
    """What the model was given with its first turn: what the client says, the tools and the person's words. The texts
    in it are as they are in JSON."""
    return json.dumps(next(each for each in model.requests if "check_clearance" in json.dumps(each)))


def in_json(text: str) -> str:
    """How a text is in JSON, without the marks around it."""
    return json.dumps(text)[1:-1]


def is_greeted(root: Path, model: Model, step: int) -> bool:
    """Whether the answer to this call of the script says so, and the file does."""
    assert told(model.answers[step])["status"] == "applied", model.answers
    return (root / "greeting.txt").read_text() == "hello\n"
