"""A terminal that keeps a key unlocked: for whom it signs, what, and until when. Real shells on real terminals."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.cli import key_agent
from intercom.cli.key_agent import YOUNG, Holder
from intercom.local.places import places
from intercom.model import signing
from tests.cli.test_ctl_signed import PIN, Scene, ctl, make_key, scene
from tests.support.keys import Key
from tests.support.terminal import Terminal, on_terminal

pytestmark = pytest.mark.real_time

SHELL = ["bash", "--norc", "--noprofile", "-i"]
COMMAND = f"{sys.executable} -m intercom.cli.ctl"


@contextlib.asynccontextmanager
async def shell(at: Scene, **more: str) -> AsyncIterator[Terminal]:
    """A person's shell."""
    async with on_terminal(SHELL, {**at.env, "PS1": "$ ", **more}) as screen:
        yield screen


async def unlock(screen: Terminal) -> None:
    screen.type(f"{COMMAND} key unlock\n")
    await screen.until("PIN of key")
    screen.type(f"{PIN}\n")
    await screen.until("unlocked key")


def until_gone(path: str) -> None:
    """Until nobody listens there any more: each connection is held until it is answered or its holder ends."""
    while True:
        with socket.socket(socket.AF_UNIX) as asked:
            try:
                asked.connect(path)
                asked.recv(1)
            except (FileNotFoundError, ConnectionError):
                return


async def test_the_pin_is_asked_for_once_in_a_terminal(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at, shell(at) as screen:
        screen.type(f"{COMMAND} steer {at.card['session_id']} one\n")
        await screen.until("PIN of key")
        screen.type(f"{PIN}\n")
        await screen.until("this terminal keeps the key unlocked until it is not used for 15 min")
        screen.type(f"{COMMAND} show {at.id}; {COMMAND} approve {at.id}; echo ov''er\n")
        said = await screen.until("over\r\n")
        assert "PIN" not in said
        assert f"approved {at.id}" in said
        assert (await anext(at.agent))["applied"]["status"] == "applied"
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["decided"]["signature"]["method"] == "ticket"
        assert len(await holders(at)) == 1
        screen.type(f"{COMMAND} key lock\n")
        await screen.until("locked the key in 1 terminal")


async def test_what_was_not_shown_in_the_terminal_is_shown_and_needs_the_pin(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at, shell(at) as screen:
        # The first decision lets the key count, and unlocks it here.
        screen.type(f"{COMMAND} steer {at.card['session_id']} one\n")
        await screen.until("PIN of key")
        screen.type(f"{PIN}\n")
        await screen.until("this terminal keeps the key unlocked")
        screen.type(f"{COMMAND} approve {at.id}\n")
        shown = await screen.until("PIN of key")
        assert "+two" in shown
        screen.type("\x03")
        await screen.until("no PIN was given")
        # Nobody has to look at what they reject.
        screen.type(f"{COMMAND} reject {at.id}; echo ov''er\n")
        said = await screen.until("over\r\n")
        assert "PIN" not in said
        assert f"rejected {at.id}" in said
        screen.type(f"{COMMAND} key lock\n")
        await screen.until("locked the key")


async def holders(at: Scene) -> list[str]:
    return [name for name in os.listdir(places(environ=at.env).runtime_dir) if name.startswith("key-")]


#: What an agent in the same terminal does, whatever it is called and however it hides.
AGENTS = (
    "sh -c '{command} --json approve {id}; true'",
    "timeout --foreground 20 {command} --json approve {id}",
    "({command} --json approve {id}; true)",
    "setsid -w {command} --json approve {id}",
    "python3 -c 'import os; os.system(\"{command} --json approve {id}\")'",
)


async def test_what_an_agent_starts_in_the_same_terminal_is_asked_for_the_pin(tmp_path: Path) -> None:
    make_key(tmp_path)
    async with scene(tmp_path) as at:
        for agent in AGENTS:
            async with shell(at) as screen:
                await unlock(screen)
                # Without a terminal to ask at it is refused; with one it is asked.
                screen.type(agent.format(command=COMMAND, id=at.id) + "\n")
                await screen.until("PIN of key" if "setsid" not in agent else "the PIN is read from a terminal")
                screen.type("\x03")
                _, entry = await ctl(at.env, "show", at.id)
                assert entry["decided"] is None
                assert at.file.read_text() == "one\n"
                screen.type(f"{COMMAND} key lock\n")
                await screen.until("locked the key")


async def test_the_key_is_kept_for_one_shell_and_forgotten_with_it(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    async with scene(tmp_path) as at:
        # Where others can type, none is kept.
        for name in ("TMUX", "STY", "ZELLIJ", "VSCODE_INJECTION", "KITTY_LISTEN_ON"):
            async with shell(at, **{name: "1"}) as screen:
                screen.type(f"unset {name}; {COMMAND} key unlock\n")
                await screen.until(f"other programs can type into this terminal ({name} is set)")
                screen.type(f"{COMMAND} steer {at.card['session_id']} one; echo ov''er\n")
                await screen.until("PIN of key")
                screen.type(f"{PIN}\n")
                await screen.until("over\r\n")
                assert await holders(at) == []

        # A critical decision asks for the PIN all the same.
        async with shell(at) as screen:
            await unlock(screen)
            screen.type(f"{COMMAND} --json policy accept {at.home / 'work'}\n")
            await screen.until("has no policy file")
            # Words that nobody has typed here are read first.
            screen.type(f"{COMMAND} nudge {at.card['session_id']}\n")
            assert "Continue working on the current task" in await screen.until("PIN of key")
            screen.type("\x03")
            await screen.until("no PIN was given")
            stated = {**dict.fromkeys(signing.STATED, ""), "key_id": key, "method": "ticket"}
            for risk, decision in (("critical", "approve"), (None, "accept")):
                asked = json.dumps({**stated, "risk": risk, "decision": decision})
                (at.home / "ask.py").write_text(ASK.format(asked=asked))
                screen.type(f"{sys.executable} {at.home / 'ask.py'}\n")
                await screen.until("signed None")
            screen.type(f"{COMMAND} key lock\n")
            await screen.until("locked the key")
        async with shell(at) as screen:
            await unlock(screen)
            (name,) = await holders(at)
            screen.type("exit\n")
            await screen.ended()
        await trio.to_thread.run_sync(until_gone, os.path.join(places(environ=at.env).runtime_dir, name))
        assert await holders(at) == []
        # Nor has a shell it that becomes another program.
        async with shell(at) as screen:
            await unlock(screen)
            screen.type(f"exec {sys.executable} -ic 'import os; os.system(\"exec {COMMAND} approve {at.id}\")'\n")
            await screen.until("PIN of key")
            screen.type("\x03")
            _, entry = await ctl(at.env, "show", at.id)
            assert entry["decided"] is None


# --- the holder by itself --------------------------------------------------------------------------------------------

ASK = """
import json
from intercom.cli.key_agent import sign
from intercom.local.places import places
print("signed", sign(places(), json.loads({asked!r})))
"""

KEY = Key()
HERE = key_agent.Terminal(1, 1, (1, 1), 1)


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def holder(monkeypatch: pytest.MonkeyPatch) -> Holder:
    """One whose every peer is of the terminal."""
    monkeypatch.setattr(Holder, "_is_of_here", lambda self, pid: True)
    clock = Clock()
    made = Holder(HERE, "key", KEY.private, 900.0, clock=clock)
    made.clock = clock  # type: ignore[attr-defined]
    return made


@contextlib.contextmanager
def asking(holder: Holder, line: bytes) -> Iterator[tuple[bool, Any]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        going: list[bool] = []
        worker = threading.Thread(target=lambda: going.append(holder.answer(theirs)))
        ours.sendall(line)
        ours.shutdown(socket.SHUT_WR)
        worker.start()
        worker.join(10)
        theirs.close()
        told = ours.makefile().read()
        yield going[0], json.loads(told) if told else None


def stated(**changes: Any) -> bytes:
    said: dict[str, Any] = {**dict.fromkeys(signing.STATED, "x"), "risk": "high", "key_id": "key", "method": "ticket"}
    return json.dumps({"sign": {**said, **changes}}).encode() + b"\n"


def test_a_statement_is_signed(holder: Holder) -> None:
    with asking(holder, stated()) as (goes_on, told):
        assert goes_on
    said = json.loads(stated())["sign"]
    KEY.private.public_key().verify(bytes.fromhex(told["value"]), signing.statement(said))


@pytest.mark.parametrize(
    "line",
    [
        stated(method="pin"),
        stated(method="channel"),
        stated(risk="critical"),
        stated(decision="accept"),
        stated(key_id="another"),
        stated(text=["x"]),
        stated(more="x"),
        b'{"sign": {}}\n',
        b'{"sign": "x"}\n',
        b"[]\n",
        b"{}\n",
    ],
)
def test_what_needs_the_pin_or_is_no_statement_is_not_signed(holder: Holder, line: bytes) -> None:
    with asking(holder, line) as (goes_on, told):
        assert goes_on
        assert told is None or "value" not in told


def test_only_what_was_shown_here_is_let_pass(holder: Holder) -> None:
    for decision in sorted(signing.LETS_PASS - signing.WITH_PIN):
        with asking(holder, stated(decision=decision, subject="other")) as (_, told):
            assert "value" not in told
    with asking(holder, b'{"shown": ["other", 1]}\n') as (goes_on, told):
        assert goes_on
    for subject, signed in (("other", True), ("x", False)):
        with asking(holder, stated(decision="approve", subject=subject)) as (_, told):
            assert ("value" in told) is signed


def test_a_signature_keeps_it_open_and_time_closes_it(holder: Holder) -> None:
    clock: Clock = holder.clock  # type: ignore[attr-defined]
    clock.at += 899
    with asking(holder, stated()) as (goes_on, told):
        assert goes_on
        assert "value" in told
    clock.at += 899
    with asking(holder, b'{"key": true}\n') as (goes_on, told):
        assert told == {"key_id": "key"}
    clock.at += 2
    # Also where the machine has slept over it, and nobody woke the holder.
    with asking(holder, stated()) as (goes_on, told):
        assert not goes_on
        assert told is None


def test_a_process_that_runs_for_long_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that the shell started is its child too."""
    monkeypatch.setattr(key_agent, "terminal_of", lambda pid: HERE)
    monkeypatch.setattr(Holder, "_is_same_leader", lambda self: True)
    started = key_agent.stat_of(os.getpid())
    assert started is not None
    clock = Clock()
    clock.at = started.started / os.sysconf("SC_CLK_TCK") + YOUNG + 1
    old, young, creator = (Holder(HERE, "key", KEY.private, 900.0, pid, clock) for pid in (0, 0, os.getpid()))
    with asking(old, stated()) as (_, told):
        assert set(told) == {"refused"}
    with asking(creator, stated()) as (_, told):
        assert set(told) == {"value"}
    clock.at -= 2
    with asking(young, b'{"key": true}\n') as (_, told):
        assert set(told) == {"key_id"}
    # A watch that has asked when it was young may go on.
    clock.at += 100
    with asking(young, stated()) as (_, told):
        assert set(told) == {"value"}


def test_a_peer_of_elsewhere_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder(HERE, "key", KEY.private, 900.0)
    for line in (stated(), b'{"key": true}\n'):
        with asking(holder, line) as (goes_on, told):
            assert goes_on
            assert set(told) == {"refused"}
    # Locking is for everybody: it only ever takes away.
    with asking(holder, b'{"lock": true}\n') as (goes_on, told):
        assert not goes_on


def test_ctl_starts_on_the_standard_library_alone() -> None:
    heavy = "{'attrs', 'attr', 'cryptography', 'trio', 'rich'}"
    code = f"import intercom.cli.ctl_sign, intercom.cli.key_agent, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
