"""Tricks an agent's shell could try to approve its own request: each is refused and put on record.

What a process that leaves its tree and its terminal session on purpose can still do stands in
docs/explanation/security.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.live import Home, home, live
from tests.faults.hosted import ctl, hosted

PYTHON = sys.executable
CTL = f"{PYTHON} -m intercom.cli.ctl --json approve"

#: Says "approve" on the socket by hand, with the token from its file; prints the reply.
BY_HAND = """
import json, os, socket, sys
directory = os.path.join(os.environ["XDG_RUNTIME_DIR"], "agent-intercom")
token = open(os.path.join(directory, "agent-intercom.token")).read().strip()
link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
link.connect(os.path.join(directory, "agent-intercom.sock"))
{before}
link.sendall(json.dumps({{"command": "approve", "id": sys.argv[1], "auth_token": token}}).encode() + b"\\n")
reply = link.makefile().readline()
{after}
"""
PRINTED = "print(reply)"
WRITTEN = 'open(sys.argv[2], "w").write(reply)'
#: Opens the connection, then lives on as a child's child while the one that opened it is gone.
HANDED_ON = "if os.fork():\n    os._exit(0)\nos.setsid()\nif os.fork():\n    os._exit(0)"

PACKAGE = Path(__file__).resolve().parents[2] / "intercom"

#: What the shell runs; {id} is the request, {by_hand} a script, {out} where a command that is left behind writes.
TRICKS = {
    "a socket opened by hand": "{python} {by_hand} {id}",
    "with next to no environment": "env -i $(env | grep -E '^(PATH|XDG_.*)=') {ctl} {id}",
    "a copy of the program": "cp -r {package} {copy}/ && cd {copy} && PYTHONPATH={copy} {ctl} {id}",
    "through a pipe of shells": "echo '{ctl} {id}' | sh | cat",
    "from a coprocess that outlives its shell": "(sh -c '{ctl} {id} >{out}' &) ; cat {out}",
    "on a connection whose opener is gone": "{python} {handed_on} {id} {out}; cat {out}",
}


@pytest.fixture(scope="module")
def house() -> Iterator[Home]:
    with home("") as made, made.serving():
        yield made


@pytest.mark.parametrize("trick", TRICKS)
@live
async def test_a_trick_does_not_approve(house: Home, trick: str) -> None:
    root = house.workspace()
    for name, before, after in (("by_hand", "", PRINTED), ("handed_on", HANDED_ON, WRITTEN)):
        (root / f"{name}.py").write_text(BY_HAND.format(before=before, after=after))
    # A pipe: reading it waits for whoever writes, however far from here.
    out = root / "answer"
    os.mkfifo(out)
    command = TRICKS[trick].format(
        python=PYTHON,
        ctl=CTL,
        id="{id}",
        by_hand=root / "by_hand.py",
        handed_on=root / "handed_on.py",
        out=out,
        copy=root,
        package=PACKAGE,
    )
    async with hosted(house, root) as agent:
        asked = await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with house.person(root) as person:
            card = await person.card(status="pending", away=False)
        tried = await agent.shell(command.replace("{id}", card["request_id"]))
        assert json.loads(tried["out"])["error_code"] == "unauthorized", tried
        _, shown = await ctl(house, "show", card["request_id"])
        assert shown["status"] == "pending"
        _, log = await ctl(house, "log")
        assert "security" in [entry["kind"] for entry in log["entries"]]
        await ctl(house, "reject", card["request_id"])
        assert (await agent.answer(asked))["status"] == "rejected"


@live
async def test_an_agent_that_ends_its_own_shim_is_an_agent_still(house: Home) -> None:
    root = house.workspace()
    async with hosted(house, root) as agent:
        await agent.ask("check_clearance", title="t", diff="x\n", file_path="x.txt")
        async with house.person(root) as person:
            card = await person.card(status="pending", away=False)
            # Its shim is its host's one child that is not the shell.
            await agent.shell(f"kill -9 $(pgrep -P {agent.process.pid} -f program_with_faults)")
            await person.card(request_id=card["request_id"], away=True)
        tried = await agent.shell(f"{CTL} {card['request_id']}")
        assert json.loads(tried["out"])["error_code"] == "unauthorized", tried
        code, _ = await ctl(house, "approve", card["request_id"])
        assert code == 0
