"""Agents are on record: whatever started the relay, and whatever became of the server, an agent's shell decides
nothing.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.agents.shim import launch
from intercom.agents.shim.launch import Options
from intercom.local import own_files
from intercom.local.processes import examine
from tests.faults.hosted import Hosted, ctl, hosted
from tests.support.person_shell import the_person
from tests.support.server_process import Home, user_home
from tests.support.terminal import on_terminal

pytestmark = [pytest.mark.real_time, pytest.mark.home("")]

CTL = f"{sys.executable} -m intercom.cli.ctl --json"

#: How a relay can be started; {here} is a directory for scripts, what follows is the relay's command.
WRAPPERS: dict[str, list[str]] = {
    "a shell script": ["sh", "{here}/wrap.sh"],
    "a shell script that waits": ["bash", "{here}/wait.sh"],
    "a Python program": [sys.executable, "{here}/wrap.py"],
    "a Python program that passes lines on": [sys.executable, "{here}/proxy.py"],
    "timeout": ["timeout", "600"],
    "a login shell": ["bash", "--login", "-c", '"$0" "$@"; true'],
    "env and nice": ["env", "A=1", "nice", "-n", "1", "sh", "{here}/wait.sh"],
    "a session of its own": ["setsid", "-w"],
    "a shell in a session of its own": ["setsid", "-w", "sh", "{here}/wait.sh"],
}

SCRIPTS = {
    "wrap.sh": 'exec "$@"\n',
    "wait.sh": '"$@"\nexit $?\n',
    "wrap.py": "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n",
    "proxy.py": """
import subprocess, sys, threading
relay = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def back():
    for line in relay.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
threading.Thread(target=back, daemon=True).start()
for line in sys.stdin.buffer:
    relay.stdin.write(line)
relay.stdin.close()
relay.wait()
""",
}


async def asks(home: Home, agent: Hosted, root: Path) -> dict[str, Any]:
    """Have an agent ask for a change; its card."""
    await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
    async with home.person(root) as person:
        return await person.card(status="pending", away=False)


async def is_refused(home: Home, tried: dict[str, Any], card: dict[str, Any]) -> None:
    """As an agent's: it has a terminal, which its host was started in."""
    said = json.loads(tried["out"])
    assert said["error_code"] == "unauthorized", tried
    assert "an agent's own processes may not answer for it" in said["error"]
    _, shown = await ctl(home, "show", card["request_id"])
    assert (shown["status"], shown["decided"]) == ("pending", None)


@pytest.mark.parametrize("wrapper", WRAPPERS)
async def test_whatever_starts_the_relay_the_agents_shell_approves_nothing(served: Home, wrapper: str) -> None:
    root = served.workspace()
    here = served.root / f"scripts-{root.name}"
    here.mkdir()
    for name, text in SCRIPTS.items():
        (here / name).write_text(text)
    words = [word.format(here=here) if "{here}" in word else word for word in WRAPPERS[wrapper]]
    async with hosted(served, root, *words) as agent:
        card = await asks(served, agent, root)
        await is_refused(served, await agent.shell(f"{CTL} approve {card['request_id']}"), card)
        code, done = await ctl(served, "approve", card["request_id"])
        assert (code, done["status"]) == (0, "approved"), done


async def test_a_helper_beside_the_client_is_of_the_same_editor(served: Home) -> None:
    """An editor's other helpers have no relay: they descend from the editor, as the client does."""
    root = served.workspace()
    here = served.root / f"scripts-{root.name}"
    here.mkdir()
    # The client is a child of the editor, and so is the helper whose shell approves.
    (here / "client.py").write_text(SCRIPTS["proxy.py"])
    async with hosted(served, root, sys.executable, str(here / "client.py")) as editor:
        card = await asks(served, editor, root)
        helper = f'{sys.executable} -c \'import subprocess; subprocess.run(["sh", "-c", "{CTL} approve {{id}}"])\''
        await is_refused(served, await editor.shell(helper.replace("{id}", card["request_id"])), card)


async def test_a_killed_server_makes_no_agent_an_operator() -> None:
    """The shell kills the server and approves as soon as another listens, four times."""
    with user_home("") as home:
        root = home.workspace()
        async with hosted(home, root) as agent:
            card = await asks_of_started(home, agent, root)
            for _ in range(4):
                pid = home.server()
                tried = await agent.shell(f"kill -9 {pid}; {CTL} approve {card['request_id']}")
                said = json.loads(tried["out"])
                assert said["error_code"] in ("unauthorized", "ipc"), tried
                assert said["error_code"] == "ipc" or "an agent's own processes" in said["error"]
                with trio.fail_after(120):
                    # A server that is just taking its lock is known by 0.
                    while home.server() in (pid, None, 0):  # noqa: ASYNC110 - it tells nobody
                        await trio.sleep(0.02)
            _, shown = await ctl(home, "show", card["request_id"])
            assert (shown["status"], shown["decided"]) == ("pending", None)


async def asks_of_started(home: Home, agent: Hosted, root: Path) -> dict[str, Any]:
    """The same where the agent's relay has started the server, which may only just be there."""
    await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
    while True:
        code, found = await ctl(home, "pending")
        if code == 0 and found:
            card: dict[str, Any] = found[0]
            return card


async def test_agents_are_on_record_before_their_first_call_is_answered(served: Home) -> None:
    root = served.workspace()
    async with hosted(served, root) as agent:
        assert (await agent.call("ping"))["acknowledged"]
        key = examine(agent.process.pid).key
        with sqlite3.connect(f"file:{served.places.database}?mode=ro", uri=True) as db:
            found = db.execute(
                "select role from agent_process where pid = ? and started = ? and boot = ?",
                (key.pid, key.started, key.boot),
            ).fetchall()
            assert found
            # Nobody beyond the leader of the host's session: what started that is everybody's.
            beyond = examine(examine(key.pid).parent).key
            assert not db.execute("select 1 from agent_process where pid = ?", (beyond.pid,)).fetchall()


async def test_a_person_beside_the_agent_decides_after_a_restart_too(served: Home) -> None:
    with user_home("") as apart:
        root = apart.workspace()
        async with hosted(apart, root) as agent:
            card = await asks_of_started(apart, agent, root)
            apart.kill()
            code, done = await ctl(apart, "approve", card["request_id"])
            assert (code, done.get("status")) == (0, "approved"), done
            code, log = await ctl(apart, "log")
            told = [entry["summary"] for entry in log["entries"] if entry["kind"] == "security"]
            assert any("s after the server started again" in summary for summary in told), told
            assert any(f"in {the_person().device}" in summary for summary in told), told


async def test_a_flood_of_refusals_is_told_of_once(served: Home) -> None:
    root = served.workspace()
    async with hosted(served, root) as agent:
        card = await asks(served, agent, root)
        async with served.person(root) as person:
            script = served.root / "flood.py"
            script.write_text(FLOOD)
            tried = await agent.shell(f"{sys.executable} {script} {card['request_id']} 2000")
            assert tried["out"].split() == ["2000"], tried
            await person.notice(lambda notice: f"refused approve of {card['request_id']}" in notice["text"])
            told = [each for each in person.notices if "refused approve" in each["text"]]
            assert len(told) == 1
        _, log = await ctl(served, "log")
        about = [entry for entry in log["entries"] if card["request_id"] in entry["summary"]]
        assert [entry["kind"] for entry in about].count("security") == 1


@pytest.mark.parametrize("how", ["alone", "forked"])
async def test_an_agent_over_http_has_its_shell_refused(how: str) -> None:
    """Its connection's process is found, and all above it up to its terminal's leader; its other children are its. So
    they are if a child that has left for a POSIX session of its own speaks over the connection."""
    with user_home("") as apart:
        root = apart.workspace()
        apart.configure(f'http_port = 0\ndefault_workspace_root = "{root}"\n')
        with apart.serving():
            (apart.root / "http_agent.py").write_text(HTTP_AGENT)
            (apart.root / "wait.sh").write_text(SCRIPTS["wait.sh"])
            token = own_files.http_token(apart.places)
            command = [sys.executable, str(apart.root / "http_agent.py"), apart.places.http_address_file, token, how]
            async with on_terminal(["sh", str(apart.root / "wait.sh"), *command], apart.environ) as window:
                said = json.loads((await window.until("}\r\n")).strip())
                assert said["error_code"] == "unauthorized", said
                assert "an agent's own processes may not answer for it" in said["error"]


#: Asks for a change over HTTP with a short patience, then has a shell approve it.
HTTP_AGENT = """
import http.client, json, os, subprocess, sys, threading, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
address = open(sys.argv[1]).read().strip()
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"}}
arguments = {"title": "t", "diff": "x\\n", "file_path": "x.txt"}
params = {"name": "check_clearance", "arguments": arguments, "_meta": meta}
body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
headers = {"content-type": "application/json", "accept": "application/json, text/event-stream",
           "authorization": "Bearer " + sys.argv[2], "mcp-protocol-version": "2026-07-28",
           "mcp-method": "tools/call", "mcp-name": "check_clearance"}
connection = http.client.HTTPConnection(address.removeprefix("http://"))
connection.connect()
def ask():
    connection.request("POST", "/mcp?agent=one", body, headers)
    connection.getresponse().read()
if sys.argv[3] == "alone":
    threading.Thread(target=ask, daemon=True).start()
elif not os.fork():
    os.setsid()
    try:
        ask()
    finally:
        os._exit(0)
ctl = [sys.executable, "-m", "intercom.cli.ctl", "--json"]
found = []
while not found:
    done = subprocess.run([*ctl, "pending"], capture_output=True, text=True)
    found = json.loads(done.stdout) if done.returncode == 0 else []
script = " ".join([*ctl, "approve", found[0]["request_id"]])
print(subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.strip(), flush=True)
os._exit(0)
"""


async def test_the_shell_of_a_client_whose_hook_has_asked_is_refused(served: Home) -> None:
    """No relay has ever connected: the client has only its permission hook."""
    root = served.workspace()
    (root / ".git").mkdir()
    (served.root / "hooked.py").write_text(HOOKED_CLIENT)
    command = [sys.executable, str(served.root / "hooked.py"), str(root)]
    async with on_terminal(["sh", "-c", '"$0" "$@"; true', *command], served.environ) as window:
        said = json.loads((await window.until("}\r\n")).strip())
        assert said["error_code"] == "unauthorized", said
        assert "an agent's own processes may not answer for it" in said["error"]


#: Runs its permission hook as Claude Code does, then has a shell approve what that asked for.
HOOKED_CLIENT = """
import json, os, subprocess, sys
event = {"session_id": "s", "cwd": sys.argv[1], "hook_event_name": "PreToolUse", "tool_name": "Bash",
         "tool_input": {"command": "make"}, "tool_use_id": "toolu_1"}
main = [sys.executable, "-m", "intercom.cli.main"]
hook = subprocess.Popen(["sh", "-c", " ".join([*main, "hook", "claude-code"])], stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
hook.stdin.write(json.dumps(event).encode())
hook.stdin.close()
ctl = [sys.executable, "-m", "intercom.cli.ctl", "--json"]
found = []
while not found:
    done = subprocess.run([*ctl, "pending"], capture_output=True, text=True)
    listed = json.loads(done.stdout) if done.returncode == 0 else []
    found = [each for each in listed if each["workspace_root"] == sys.argv[1]]
script = " ".join([*ctl, "approve", found[0]["request_id"]])
print(subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.strip(), flush=True)
hook.kill()
"""


async def test_a_relay_that_starts_the_server_is_on_record_before_ctl_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not said a word yet, nor does it ever: this process is the relay."""
    with user_home("") as apart:
        for name, value in apart.environ.items():
            monkeypatch.setenv(name, value)
        lock = launch.claim(apart.places)
        assert lock is not None
        start = launch.start(Options(), lock)
        try:
            await trio.lowlevel.wait_readable(start.descriptor)
            assert start.ready()
        finally:
            start.close()
        me = examine(os.getpid()).key
        with sqlite3.connect(f"file:{apart.places.database}?mode=ro", uri=True) as db:
            found = db.execute("select role from agent_process where pid = ? and started = ?", (me.pid, me.started))
            assert ("client",) in found.fetchall()


#: Asks for approval again and again, and prints how often that was refused.
FLOOD = """
import json, os, socket, sys
directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")
token = open(os.path.join(directory, "agent-intercom.token")).read().strip()
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.connect(os.path.join(directory, "agent-intercom.sock"))
replies = link.makefile()
refused = 0
for _ in range(int(sys.argv[2])):
    link.sendall(json.dumps({"command": "approve", "id": sys.argv[1], "auth_token": token}).encode() + b"\\n")
    refused += json.loads(replies.readline())["error_code"] == "unauthorized"
print(refused)
"""


async def test_a_connection_that_an_operator_opened_is_of_no_use_to_an_agent(served: Home) -> None:
    """A descriptor can be handed on, as ssh and agents of keys do it; who writes counts as well as who opened."""
    root = served.workspace()
    async with hosted(served, root) as agent:
        card = await asks(served, agent, root)
        (served.root / "give.py").write_text(GIVE)
        (served.root / "take.py").write_text(TAKE)
        meeting = served.root / f"meeting-{root.name}"
        async with trio.open_nursery() as nursery:
            give = [sys.executable, str(served.root / "give.py"), str(meeting)]
            nursery.start_soon(the_person().run_async, give, served.environ)
            while not meeting.exists():  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.02)
            tried = await agent.shell(f"{sys.executable} {served.root / 'take.py'} {meeting} {card['request_id']}")
        said = json.loads(tried["out"])
        assert said["error_code"] == "unauthorized"
        assert "is used by another" in said["error"]
        _, shown = await ctl(served, "show", card["request_id"])
        assert (shown["status"], shown["decided"]) == ("pending", None)


#: Opens a connection at an operator's terminal, and hands it to whoever comes.
GIVE = """
import os, socket, sys
directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.connect(os.path.join(directory, "agent-intercom.sock"))
meeting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
meeting.bind(sys.argv[1] + ".new")
meeting.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])
other, _ = meeting.accept()
socket.send_fds(other, [b"x"], [link.fileno()])
# It stays until the other is done, so that the process that opened the connection can be examined.
other.recv(1)
"""
TAKE = """
import json, os, socket, sys
meeting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
meeting.connect(sys.argv[1])
_, descriptors, _, _ = socket.recv_fds(meeting, 1, 1)
link = socket.socket(fileno=descriptors[0])
directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")
token = open(os.path.join(directory, "agent-intercom.token")).read().strip()
link.sendall(json.dumps({"command": "approve", "id": sys.argv[2], "auth_token": token}).encode() + b"\\n")
print(link.makefile().readline())
"""
