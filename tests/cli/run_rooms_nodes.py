"""Two nodes of `agent-intercom rooms` on one PostgreSQL, behind Caddy as the example sets it up."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from intercom.local.places import Places
from tests.cli.test_rooms_server import NEW, configure, get
from tests.docs.generated import ROOT
from tests.support.postgres import database, database_url, postgres

__all__ = ["database", "database_url", "postgres"]

pytestmark = pytest.mark.real_time
PUBLIC = "https://rooms.example.org"


@frozen
class Nodes:
    """Two nodes and what is in front of them. `base` is the address of the proxy."""

    base: str
    processes: tuple[subprocess.Popen[str], ...]
    bases: tuple[str, ...]


@contextmanager
def node(directory: Path, url: str, name: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A node, and its port."""
    words = ["rooms", "--ipc-name", name, "--port", "0", "--public-url", PUBLIC]
    process = subprocess.Popen(
        [sys.executable, "-m", "intercom.cli.main", *words],
        env={**os.environ, "DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=(directory / f"{name}.log").open("ab"),
        text=True,
    )
    assert process.stdout is not None
    try:
        found = re.search(r"port (\d+), and stored in postgresql://", process.stdout.readline())
        assert found is not None, (directory / f"{name}.log").read_text()
        yield process, int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def caddy(directory: Path, ports: list[int]) -> Iterator[str]:
    """Caddy with the example's file, but for its address and those of the nodes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = (ROOT / "examples/rooms-deployment/Caddyfile").read_text()
    for number, behind in enumerate(ports, 1):
        text = text.replace(f"node{number}:7423", f"127.0.0.1:{behind}")
    text = text.replace("{$ROOMS_HOST} {", f"http://127.0.0.1:{port} {{")
    file = directory / "Caddyfile"
    file.write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{text}")
    command = ["caddy", "run", "--config", str(file), "--adapter", "caddyfile"]
    environ = {"HOME": str(directory), "PATH": os.environ["PATH"]}
    with (directory / "caddy.log").open("ab") as log, subprocess.Popen(command, stderr=log, env=environ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.fixture
def nodes(where: Places, database_url: str) -> Iterator[Nodes]:
    # ctl recognises a person by the terminal, and these tests have none.
    configure(where, "[ctl]\ntrust_agent_processes = true\n")
    directory = Path(where.state_dir).parent
    with ExitStack() as running:
        made = [running.enter_context(node(directory, database_url, name)) for name in ("node1", "node2")]
        base = running.enter_context(caddy(directory, [port for _, port in made]))
        # Until Caddy listens, and has asked the nodes for their health.
        until = time.monotonic() + 30
        while not _is_up(base) and time.monotonic() < until:
            time.sleep(0.1)
        yield Nodes(base, tuple(each for each, _ in made), tuple(f"http://127.0.0.1:{port}" for _, port in made))


def _is_up(base: str) -> bool:
    try:
        return get(f"{base}/agents.md")[0] == 200
    except OSError:
        return False


def ask(url: str, body: dict[str, Any] | None = None, token: str | None = None) -> dict[str, Any]:
    headers = {} if token is None else {"X_Team_ID": token}
    status, text = get(url, body, **headers)
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def test_teams_on_two_nodes_talk_through_the_proxy(nodes: Nodes) -> None:
    made = ask(f"{nodes.base}/api/sessions", NEW)
    room = f"/api/sessions/{made['session_id']}"
    joined = ask(f"{nodes.bases[1]}{room}/join", {"team_name": "Kim"})
    assert f"{PUBLIC}/api" in get(f"{nodes.base}/agents.md")[1]
    assert get(f"{nodes.base}/healthz")[0] == 404

    # A call that waits at either node is woken by a post on the other.
    for waits, posts in ((nodes.base, nodes.bases[0]), (nodes.base, nodes.bases[1])):
        answers: list[dict[str, Any]] = []

        def wait(waits: str = waits, answers: list[dict[str, Any]] = answers) -> None:
            answers.append(ask(f"{waits}{room}/messages/wait?timeout=20", None, joined["team_id"]))

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.5)
        ask(f"{posts}{room}/messages", {"content": "hello"}, made["team_id"])
        waiting.join(20)
        assert [each["content"]["text"] for each in answers[0]["messages"]] == ["hello"]


def test_a_stream_of_events_is_passed_on_at_once(nodes: Nodes) -> None:
    made = ask(f"{nodes.base}/api/sessions", NEW)
    room = f"/api/sessions/{made['session_id']}"
    connection = http.client.HTTPConnection(nodes.base.removeprefix("http://"), timeout=20)
    headers = {"X-Team-ID": made["team_id"], "Accept": "text/event-stream"}
    connection.request("GET", f"{room}/messages/wait?timeout=20", headers=headers)
    began = time.monotonic()
    reply = connection.getresponse()
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    # The stream begins long before there is a message.
    assert time.monotonic() - began < 5
    ask(f"{nodes.bases[1]}{room}/messages", {"content": "hello"}, made["team_id"])
    data = next(line for line in reply if line.startswith(b"data: "))
    assert json.loads(data[6:])["messages"][-1]["content"] == {"text": "hello"}
    connection.close()


def say(nodes: Nodes, room: str, text: str, token: str) -> None:
    """Post as an agent does that does not know whether its call arrived: again, with the same key."""
    until = time.monotonic() + 20
    while get(f"{nodes.base}{room}/messages", {"content": text, "key": text}, X_Team_ID=token)[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize("killed", [0, 1])
def test_teams_go_on_when_a_node_is_killed(nodes: Nodes, killed: int) -> None:
    made = ask(f"{nodes.base}/api/sessions", NEW)
    room = f"/api/sessions/{made['session_id']}"
    for number in range(5):
        ask(f"{nodes.base}{room}/messages", {"content": f"before {number}"}, made["team_id"])
    nodes.processes[killed].send_signal(signal.SIGKILL)
    for number in range(5):
        say(nodes, room, f"after {number}", made["team_id"])
    page = ask(f"{nodes.base}{room}/messages", None, made["team_id"])
    texts = [each["content"]["text"] for each in page["messages"] if each["type"] == "chat"]
    assert texts == [f"{when} {number}" for when in ("before", "after") for number in range(5)]


def test_an_address_that_is_changed_at_one_node_is_soon_that_of_all(nodes: Nodes) -> None:
    ctl = [sys.executable, "-m", "intercom.cli.ctl", "--ipc-name", "node1", "rooms", "url", "https://new.example.org"]
    done = subprocess.run(ctl, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    until = time.monotonic() + 20
    while not all("https://new.example.org" in get(f"{base}/agents.md")[1] for base in nodes.bases):
        assert time.monotonic() < until
        time.sleep(0.2)


def test_caddy_reads_its_file(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "ROOMS_HOST": "rooms.example.org"}
    command = [
        "caddy",
        "adapt",
        "--config",
        str(ROOT / "examples/rooms-deployment/Caddyfile"),
        "--adapter",
        "caddyfile",
    ]
    said = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr
    assert "node2:7423" in said.stdout
