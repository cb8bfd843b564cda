"""From the inbox a person approves a part, an edited text, or requests changes: a real server, agent and terminal."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.cli.test_ctl_amend import CTL_AT_HOME, editor, second_proposal
from tests.cli.test_ctl_signed import PIN, Scene, ctl, make_key, scene
from tests.sessions.test_amendments import DIFF, OLD, ONE_AND_THREE
from tests.support.terminal import Terminal, on_terminal

pytestmark = pytest.mark.real_time

DOWN = "\x1b[B"
_NOT_SEEN = re.compile(r"(\d+) of (\d+) lines not seen")


@contextlib.asynccontextmanager
async def inbox(at: Scene, **environ: str) -> AsyncIterator[Terminal]:
    """An inbox in which the agent's proposal is selected, and its keys count."""
    async with on_terminal(CTL_AT_HOME, at.env | environ) as screen:
        await screen.until("Add a line")
        await screen.press(DOWN, "+++ b/notes.txt")
        # Its keys count once some of its lines have been on the screen.
        while (found := _NOT_SEEN.search(await screen.until("↑↓"))) and found[1] == found[2]:
            pass
        yield screen


async def enter_hunks(screen: Terminal, numbers: str) -> None:
    """Ask for some hunks in the field, once it takes keys: commas more or less change nothing there."""
    await screen.press("h", "by number")
    await screen.press(",,,,", ",,,,", again=0.5)
    screen.type(numbers)
    await screen.until(numbers)


async def test_some_hunks_are_approved_after_they_were_shown(tmp_path: Path) -> None:
    async with scene(tmp_path, OLD, DIFF.replace("a.txt", "notes.txt")) as at, inbox(at) as screen:
        await enter_hunks(screen, "1-1,3")
        shown = await screen.press("\r", "[y/N] ")
        assert "+LINE 28" in shown
        assert "+LINE 15" not in shown.partition("the agent is told:")[0]
        screen.type("y\n")
        await screen.until("press enter")
        screen.type("\n")
        assert "\x1b[?1049h" in await screen.until(": done")
        told = await anext(at.agent)
        left_out = ['@@ -12,7 +12,7 @@ (-"line 15", +"LINE 15")']
        assert told["answer"]["changes"] == [{"path": "notes.txt", "left_out": left_out}]
        assert at.file.read_text() == ONE_AND_THREE


@pytest.mark.parametrize(("answer", "says"), [("n\n", "nothing was decided"), ("\x03", "left undone")])
async def test_an_edit_that_is_not_agreed_to_leaves_the_card_open(tmp_path: Path, answer: str, says: str) -> None:
    program = editor(tmp_path, "printf 'three\\n' >> \"$1\"")
    async with scene(tmp_path) as at, inbox(at, EDITOR=program, TMPDIR=str(tmp_path)) as screen:
        await screen.press("e", "+three")
        await screen.until("[y/N] ")
        back = ""
        while not back:
            # A ^C between the question and its reading is lost, as in any program that uses `input`.
            screen.type(answer)
            if answer == "n\n":
                await screen.until("press enter")
                screen.type("\n")
            with trio.move_on_after(5):
                back = await screen.until("\x1b[?1049h")
        await screen.until(says)
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["status"] == "pending"
        assert at.file.read_text() == "one\n"


async def test_changes_are_requested_by_line(tmp_path: Path) -> None:
    program = editor(tmp_path, "echo 'notes.txt:2: why?' >> \"$1\"")
    async with scene(tmp_path) as at, inbox(at, EDITOR=program, TMPDIR=str(tmp_path)) as screen:
        assert "notes.txt:2: why?" in await screen.press("c", "[y/N] ")
        screen.type("y\n")
        await screen.until("changes requested")
        await screen.until("press enter")
        screen.type("\n")
        await screen.until(": done")
        told = await anext(at.agent)
        assert told["answer"]["comments"] == [{"path": "notes.txt", "text": "why?", "line": 2}]


async def test_more_requests_are_permitted_and_the_card_stays(tmp_path: Path) -> None:
    async with scene(tmp_path) as at, inbox(at) as screen:
        # What earlier steps left on the plain terminal is gone.
        await screen.press("p", "\x1b[H\x1b[J")
        await screen.until("from now on this passes without you")
        await screen.until("[y/N] ")
        screen.type("y\n")
        await screen.until("and approve this card too? [y/N] ")
        screen.type("n\n")
        await screen.until("press enter")
        screen.type("\n")
        await screen.until(": done")
        _, listed = await ctl(at.env, "grants")
        assert [each["used"] for each in listed["grants"]] == [0]
        _, entry = await ctl(at.env, "show", at.id)
        assert entry["status"] == "pending"


async def test_what_the_server_refuses_is_read_before_the_inbox_covers_it(tmp_path: Path) -> None:
    async with scene(tmp_path, OLD, DIFF.replace("a.txt", "notes.txt")) as at, inbox(at) as screen:
        await enter_hunks(screen, "1-7")
        await screen.press("\r", "there is no hunk 4")
        await screen.until("press enter")
        screen.type("\n")
        assert "\x1b[?1049h" in await screen.until("there is no hunk 4")


async def test_one_pin_signs_several_decisions_after_all_of_them_were_said(tmp_path: Path) -> None:
    key = make_key(tmp_path)
    async with scene(tmp_path) as at, second_proposal(at, "low") as other:
        async with on_terminal(CTL_AT_HOME, at.env) as screen:
            await screen.until("2 waiting")
            for line, marked in (("+two", "1 marked"), ("+second", "2 marked")):
                screen.type(DOWN)
                await screen.until(line)
                screen.type(" ")
                await screen.until(marked)
            shown = ""
            for key_typed, then in (("a", "type y"), ("y", "PIN of key")):
                while then not in shown:
                    # A key from before its question was on the screen is dropped.
                    screen.type(key_typed)
                    with trio.move_on_after(1):
                        shown = await screen.until(then)
            for id in (at.id, other):
                assert f"approve {id[:8]} [LOW]" in shown.partition("you sign these 2 decisions:")[2]
            await screen.until(f" {key}, to send 2 decisions (esc to leave): ")
            screen.type(f"{PIN}\n")
            assert "PIN of key" not in await screen.until("2 decisions sent")
            screen.type("q")
            await screen.rest()
        for id in (at.id, other):
            assert (await ctl(at.env, "show", id))[1]["decided"]["signature"]["key_id"] == key
