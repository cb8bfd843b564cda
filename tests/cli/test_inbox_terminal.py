"""The inbox on a real terminal, at a server: `agent-intercom-ctl` alone, and `watch`."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
import termios
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from intercom.cli.inbox import first_frame
from intercom.model.card import CardState, Notice
from intercom.model.request import RiskLevel
from tests.cli.test_ctl_watch import COMMAND, ready
from tests.operators.ctl_server import ctl_server, environ
from tests.operators.stand_in_service import START, StandInService, card
from tests.support.terminal import Terminal, on_terminal

pytestmark = pytest.mark.real_time

LOW: dict[str, Any] = {"risk": RiskLevel.LOW}
DOWN, ESCAPE = "\x1b[B", "\x1b"


async def select(screen: Terminal) -> None:
    """Select the next card, and wait until its keys count: once its lines have been on the screen."""
    screen.type(DOWN)
    await screen.until("+++ b/src/app.py")
    # Before that, the number of lines that were not stands in between.
    await screen.until("file \x1b[1m ↑↓")


@pytest.mark.parametrize("words", [(), ("watch",)])
async def test_a_key_approves_the_selected_card(tmp_path: Path, words: tuple[str, ...]) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        async with on_terminal([*COMMAND, *words], server.environ) as screen:
            await screen.until("approval one")
            await select(screen)
            screen.type("a")
            await screen.until("u takes it back")
            screen.type("q")
            assert await screen.ended() == 0
        assert [act[:3] for act in server.service.acts] == [("decide", "one", "approve")]


async def test_keys_typed_before_the_inbox_is_there_decide_nothing(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        async with on_terminal([*COMMAND], server.environ) as screen:
            screen.type(f"{DOWN}aay\n")
            await screen.until("approval one")
            # The first one does nothing if it was there before the card.
            screen.type(DOWN)
            await screen.until("+++ b/src/app.py")
            screen.type("q")
            assert await screen.ended() == 0
        assert server.service.acts == []


async def test_the_server_may_go_and_come_back_under_a_person(tmp_path: Path) -> None:
    service = StandInService(card("one", **LOW))
    async with contextlib.AsyncExitStack() as stack:
        async with ctl_server(tmp_path, service) as server:
            await ready(server)
            screen = await stack.enter_async_context(on_terminal([*COMMAND], server.environ))
            await screen.until("approval one")
            await select(screen)
        await screen.until("the server went away; waiting for it")
        screen.type("a")
        known = service.cards.pop("one")
        async with ctl_server(tmp_path, service) as server:
            await screen.until("the server is back")
            # Told only now, so that its row comes after that sentence on the screen, whoever is faster.
            service.cards["one"] = known
            server.tell(known)
            await screen.until("approval one")
            await select(screen)
            screen.type("q")
            assert await screen.ended() == 0
        assert service.acts == []


def colours_in(drawn: str) -> set[int]:
    codes = {int(code) for each in re.findall(r"\x1b\[([\d;]*)m", drawn) for code in each.split(";") if code}
    return codes & {*range(30, 39), *range(40, 49), *range(90, 98), *range(100, 108)}


def held(tmp_path: Path, code: str) -> dict[str, str]:
    """The environment in which this code stands in for Textual, so that the first frame stays while it runs."""
    package = tmp_path / "held" / "textual"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    return {"PYTHONPATH": str(package.parent)}


HELD = "import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("how", "by"),
    [
        ("\x03", signal.SIGINT),
        ("\x1c", signal.SIGQUIT),
        *((number, number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)),
    ],
)
async def test_cards_are_shown_before_textual_is_there_and_whoever_leaves_then_has_the_terminal_back(
    tmp_path: Path, how: str | signal.Signals, by: signal.Signals
) -> None:
    hostile = card("one", title="a \x1b[2Jb", body="\x1b]0;owned\x07 \u202e", **LOW)
    async with ctl_server(tmp_path, StandInService(hostile)) as server:
        await ready(server)
        environ = {**server.environ, **held(tmp_path, HELD), "NO_COLOR": "1"}
        async with on_terminal([*COMMAND], environ) as screen:
            before = termios.tcgetattr(screen._descriptor)
            drawn = await screen.raw(first_frame.STARTING)
            assert "a \\x1b[2Jb" in drawn
            assert "1 card waiting" in drawn
            for forbidden in ("\x1b[2J", "\x1b]0;", "\u202e"):
                assert forbidden not in drawn
            assert not colours_in(drawn)
            if isinstance(how, str):
                screen.type(how)
            else:
                screen.process.send_signal(how)
            assert await screen.ended() == -by
            assert first_frame.LEAVE in await screen.rest()
            assert termios.tcgetattr(screen._descriptor) == before
        assert server.service.acts == []


async def test_all_cards_are_shown_although_they_come_one_by_one(tmp_path: Path) -> None:
    cards = [card(f"number {number}", **LOW) for number in range(12)]
    async with ctl_server(tmp_path, StandInService(*cards)) as server:
        await ready(server)
        async with on_terminal([*COMMAND], {**server.environ, **held(tmp_path, HELD)}) as screen:
            await screen.raw("12 cards waiting")
            server.tell(card("late", **LOW))
            assert "approval late" in re.sub(r"\x1b\[[\d;]*m", "", await screen.raw("13 cards waiting"))


#: The most seconds from the start of the inbox to a waiting card on its screen.
FIRST_CARD = 0.5
#: How often it is started at most, until one start takes no longer.
STARTS = 10


def withheld(pid: int) -> float:
    """The seconds for which a process could have run but other processes had the CPU; 0 if the system does not say."""
    counted = Path(f"/proc/{pid}/schedstat")
    return int(counted.read_text().split()[1]) / 1e9 if counted.exists() else 0.0


async def test_a_waiting_card_is_on_the_screen_within_half_a_second_if_a_cpu_is_free(tmp_path: Path) -> None:
    """By the clock, without the seconds in which other processes, such as other tests, had the CPU."""
    taken: list[float] = []
    async with ctl_server(tmp_path, StandInService(card("one", title="Rename the column", **LOW))) as server:
        await ready(server)
        for _ in range(STARTS):
            began = time.perf_counter()
            async with on_terminal([*COMMAND], server.environ) as screen:
                await screen.raw("Rename the column")
                taken.append(time.perf_counter() - began - withheld(screen.process.pid))
            if taken[-1] <= FIRST_CARD:
                break
    assert min(taken) <= FIRST_CARD, f"seconds of each start: {taken}"


async def test_who_stops_the_program_before_textual_is_there_has_the_terminal_meanwhile(tmp_path: Path) -> None:
    """In a shell with job control, as only there somebody can make it go on."""
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        environ = {**server.environ, **held(tmp_path, HELD)}
        shell = ["bash", "--norc", "-m", "-c", f"{shlex.join(COMMAND)}; echo stopped; kill %1; fg; echo ended $?"]
        async with on_terminal(shell, environ) as screen:
            await screen.raw(first_frame.STARTING)
            screen.type("\x1a")
            assert first_frame.LEAVE in await screen.raw("stopped")
            await screen.raw("ended 143")


async def test_where_nobody_could_make_it_go_on_it_is_not_stopped(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        code = "import sys; sys.stdin.readline(); raise SystemExit(7)"
        async with on_terminal([*COMMAND], {**server.environ, **held(tmp_path, code)}) as screen:
            await screen.raw(first_frame.STARTING)
            screen.type("\x1a")
            await screen.raw(first_frame.LEAVE)
            screen.type("\n")
            assert await screen.ended() == 7


async def test_what_somebody_has_made_it_ignore_stays_ignored(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        code = "import sys; sys.stdin.readline(); raise SystemExit(7)"
        shell = ["bash", "-c", f"trap '' HUP QUIT; exec {shlex.join(COMMAND)}"]
        async with on_terminal(shell, {**server.environ, **held(tmp_path, code)}) as screen:
            await screen.raw(first_frame.STARTING)
            for number in (signal.SIGHUP, signal.SIGQUIT):
                screen.process.send_signal(number)
            screen.type("\n")
            assert await screen.ended() == 7


async def test_a_terminal_that_takes_nothing_holds_up_nothing(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        code = "import time; time.sleep(0.3); raise SystemExit(7)"
        async with on_terminal([*COMMAND], {**server.environ, **held(tmp_path, code)}) as screen:
            screen.type("\x13")
            assert await screen.ended() == 7


@pytest.mark.parametrize("line", ["{} & wait", "{} 2>{}/log"])
async def test_nothing_is_drawn_where_the_inbox_itself_draws_nothing(tmp_path: Path, line: str) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        environ = {**server.environ, **held(tmp_path, "import time; time.sleep(0.3); print('imported', flush=True)")}
        shell = ["bash", "--norc", "-m", "-c", line.format(shlex.join(COMMAND), shlex.quote(str(tmp_path)))]
        async with on_terminal(shell, environ) as screen:
            assert first_frame.ENTER not in await screen.raw("imported")


async def test_without_textual_the_terminal_is_given_back(tmp_path: Path) -> None:
    code = "import sys; sys.stdin.readline(); raise ImportError('there is no textual')"
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        async with on_terminal([*COMMAND], {**server.environ, **held(tmp_path, code)}) as screen:
            await screen.raw(first_frame.STARTING)
            screen.type("a\n")
            assert await screen.ended() == 1
            assert first_frame.LEAVE in await screen.rest()
        assert server.service.acts == []


async def test_a_person_may_open_the_inbox_before_there_is_a_server(tmp_path: Path) -> None:
    async with on_terminal([*COMMAND], environ(tmp_path)) as screen:
        await screen.until("no server runs yet; waiting for one")
        async with ctl_server(tmp_path, StandInService(card("one", **LOW))):
            await screen.until("a server runs now")


async def test_it_may_be_continued_though_it_has_not_stopped(tmp_path: Path) -> None:
    """A terminal that hangs up does that, and so does `kill -CONT`."""
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        async with on_terminal([*COMMAND], server.environ) as screen:
            await screen.until("approval one")
            threads = psutil.Process(screen.process.pid).num_threads
            before = threads()
            for _ in range(5):
                screen.process.send_signal(signal.SIGCONT)
                await screen.until("approval one")
            assert threads() <= before
            await select(screen)
            screen.type("q")
            assert await screen.ended() == 0


@pytest.mark.parametrize("fault", ["pass", "raise ValueError('a fault')"])
async def test_it_ends_whatever_still_reads_the_terminal(tmp_path: Path, fault: str) -> None:
    code = f"""
from intercom.cli.inbox.terminal import TerminalApp
class Odd(TerminalApp, inherit_bindings=False):
    def on_mount(self):
        self._driver.disable_input = lambda: None
        self.begin()
    def key_q(self):
        {fault}
        self.exit(7)
raise SystemExit(Odd().run_to_end())
"""
    async with on_terminal([sys.executable, "-c", code], environ(tmp_path)) as screen:
        await screen.raw("\x1b[?1049h")
        screen.type("q")
        assert await screen.ended() == (7 if fault == "pass" else 1)


@pytest.mark.parametrize(
    ("leave", "code"), [("\x04", 0), ("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
async def test_it_ends_quietly_and_leaves_the_terminal_as_it_was(
    tmp_path: Path, leave: str | signal.Signals, code: int
) -> None:
    async with ctl_server(tmp_path) as server, on_terminal([*COMMAND], server.environ) as screen:
        before = termios.tcgetattr(screen._descriptor)
        await screen.until("nothing waits")
        assert termios.tcgetattr(screen._descriptor) != before
        if isinstance(leave, str):
            screen.type(leave)
        else:
            screen.process.send_signal(leave)
        assert await screen.ended() == code
        assert "\x1b[?1049l" in await screen.rest()
        assert termios.tcgetattr(screen._descriptor) == before


async def test_text_of_an_agent_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    hostile = card("one", title="a \x1b[2Jb", body="\x1b]0;owned\x07 \u202e", **LOW)
    async with ctl_server(tmp_path, StandInService(hostile)) as server:
        await ready(server)
        async with on_terminal([*COMMAND], server.environ) as screen:
            drawn = await screen.until("\\x1b[2Jb")
            screen.type(DOWN)
            drawn += await screen.until("quit")
            server.tell(Notice("a \x1b[2Jnotice", "warning", START))
            drawn += await screen.until("\\x1b[2Jnotice")
            assert "\x1b[2J" not in drawn
            assert "\x1b]0;" not in drawn
            assert "\u202e" not in drawn


async def test_without_colour_no_colour_is_written(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one"))) as server:
        await ready(server)
        async with on_terminal([*COMMAND], {**server.environ, "NO_COLOR": "1"}) as screen:
            drawn = await screen.until("approval one")
            screen.type(DOWN)
            drawn += await screen.until("+++ b/src/app.py")
            drawn += await screen.until("quit")
    assert not colours_in(drawn)


async def test_plain_prints_line_by_line(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        async with on_terminal([*COMMAND, "watch", "--plain"], server.environ) as screen:
            assert "\x1b[?1049h" not in await screen.until("1 waiting, none selected; [n]ext [q]uit")


async def test_of_two_people_the_first_decides_and_the_other_is_told(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, StandInService(card("one", **LOW))) as server:
        await ready(server)
        async with on_terminal([*COMMAND], server.environ) as first, on_terminal([*COMMAND], server.environ) as second:
            for screen in (first, second):
                await screen.until("approval one")
                await select(screen)
            first.type("a")
            await first.until("u takes it back")
            second.type("a")
            await second.until("u takes it back")
            first.type("q")
            assert await first.ended() == 0
            server.tell(card("one", state=CardState.APPROVED, **LOW))
            await second.until("because the card has closed")
            second.type("q")
            assert await second.ended() == 0
        assert [act[:3] for act in server.service.acts] == [("decide", "one", "approve")]
