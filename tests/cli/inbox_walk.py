"""Drive the real inbox through cards of all kinds, in tmux, at several widths, with colour and without.

    python -m tests.cli.inbox_walk [--into DIRECTORY] [--columns N,N] [--cards N]

`agent-intercom-ctl` alone runs in a terminal of tmux. It reaches a router and a local socket as the server's over a
stand-in for its service, because some cards (a room that is paused, an apply that stopped half-way) need much to come
about. For each card the screen must show its title, its risk, its files and the keys that answer it, none of them cut,
and the decision must reach the service. Then many cards wait at once, and the time from a key to the screen is
measured. Exits with 1 if anything is cut, does not arrive, or has the wrong colours. With `--into` each screen is
written there as an SVG file.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import define, evolve, field, frozen
from rich.console import Console
from rich.style import Style
from rich.text import Text

from intercom.cli.inbox.board import keys_of
from intercom.cli.inbox.pages import TWO_PANES, shown_key
from intercom.model.card import Card, CardKind
from intercom.model.decision import Verdict
from intercom.model.request import ChangeKind, FileChange, PromptType, Remark, RiskLevel
from tests.bench.inbox_bench import until_shown
from tests.cli.inbox_pictures import DROP, SHAPES, Screen
from tests.operators.ctl_server import CtlServer, ctl_server
from tests.operators.stand_in_service import StandInService, session

T = TypeVar("T")

ROWS = 30
CTL = [sys.executable, "-m", "intercom.cli.ctl"]
#: Seconds that the screen or the service may take.
PATIENCE = 60.0
#: Seconds after which a key is taken for one that was not counted.
SOON = 4.0
#: How many keys are timed.
TIMED = 100
LONG = "".join(f"+line {number}\n" for number in range(1, 201))
MANY = "@@ -{0},3 +{0},3 @@\n before\n-old\n+new\n"


def _change(path: str, kind: ChangeKind = ChangeKind.WRITE, old_path: str | None = None) -> FileChange:
    return FileChange(path, kind, "aa" * 32, "bb" * 32, added=4, removed=1, old_path=old_path)


@frozen
class Case:
    """A card, the keys that answer it, and the decision that the service must get."""

    card: Card
    keys: str
    decision: str


def _case(name: str, kind: CardKind, title: str, keys: str, decision: str, **more: Any) -> Case:
    fields = {"session_id": "3f2a91c0", "workspace_root": "/home/kim/shapes", "created_at": datetime.now(UTC)}
    return Case(Card(name, kind, title=title, **(fields | more)), keys, decision)


APPROVAL, LOW, HIGH = CardKind.APPROVAL, RiskLevel.LOW, RiskLevel.HIGH
#: Cards of all kinds, and proposals of all sorts. After a line feed in the keys stands the text that is typed.
CASES = (
    _case(
        "1-low",
        APPROVAL,
        "Refuse sides below zero",
        "a",
        "approve",
        risk=LOW,
        amendable=True,
        diff=SHAPES,
        body="An area below zero makes no sense, and two callers got one.",
        files=(_change("src/shapes.py"),),
        expires_at=datetime.now(UTC) + timedelta(hours=1),
    ),
    _case(
        "2-critical",
        APPROVAL,
        "Drop the table of old sessions",
        "a",
        "approve",
        risk=RiskLevel.CRITICAL,
        diff=DROP,
        files=(_change("migrations/0007.sql", ChangeKind.CREATE),),
    ),
    _case("3-command", APPROVAL, "Run: npm install left-pad", "r\nuse our own", "reject", risk=HIGH, body="npm i"),
    _case(
        "4-files",
        APPROVAL,
        "Move the reader of settings, and everything that belongs to it, into a package of its own",
        "a",
        "approve",
        risk=HIGH,
        amendable=True,
        diff=SHAPES,
        files=(
            _change("src/a_rather_long_package_name/settings/reader_of_the_settings.py", ChangeKind.CREATE),
            _change("src/settings/reader.py", ChangeKind.RENAME, "src/reader_with_a_name_of_some_length.py"),
            _change("docs/über die Einstellungen.md"),
            _change("old.py", ChangeKind.DELETE),
        ),
        remarks=(Remark("old.py", "it ends without a line feed"),),
    ),
    _case(
        "5-long",
        APPROVAL,
        "Add two hundred lines",
        "a",
        "approve",
        risk=LOW,
        diff=f"--- /dev/null\n+++ b/long.txt\n@@ -0,0 +1,200 @@\n{LONG}",
        files=(_change("long.txt", ChangeKind.CREATE),),
    ),
    _case("6-wide", APPROVAL, "漢字の題名" * 12, "a", "approve", risk=LOW, diff=SHAPES, files=(_change("漢字.py"),)),
    _case(
        "7-hostile",
        APPROVAL,
        "\x1b[2J\x1b[31mred\x07 \u202e [bold]x[/]",
        "r\nno",
        "reject",
        risk=LOW,
        body="\n".join(["│ kind", " LOW  Agent asks: x", "  agent-intercom-ctl approve 1"]),
        files=(_change("a\x1b[2J.py"),),
    ),
    _case(
        "8-prompt",
        CardKind.PROMPT,
        "Shall I go on?",
        "c",
        "continue",
        body="All tests pass. Shall I also write the docs?",
        prompt_type=PromptType.CONTINUATION,
    ),
    _case("9-refine", CardKind.PROMPT, "Which database?", "f\nthe second one", "refine", body="SQLite or PostgreSQL?"),
    _case("A-standby", CardKind.STANDBY, "Waits for work", "c", "resume", body="The first half is done; what is next?"),
    _case("B-stall", CardKind.STALL, "Quiet for 5 min", "d", "dismiss", detail="last tool: check_diff"),
    _case("C-policy", CardKind.POLICY, "Policy of /home/kim/shapes", "a", "accept", body="grants: docs/** (write)"),
    _case("D-apply", CardKind.APPLY, "Half applied: Refuse sides", "d", "dismiss", body="src/shapes.py was changed"),
    _case("E-restore", CardKind.RESTORE, "Go back to 'before the rewrite'", "c", "cancel", body="2 files differ"),
    _case("F-room", CardKind.ROOM, "Room 'release' is paused", "c", "resume", body="20 messages without progress"),
    _case("G-tools", CardKind.TOOLS, "Tools of github have changed", "a", "approve", body="merge_pull_request: new"),
)


class Service(StandInService):
    """A stand-in that tells the router what a decision made of a card, as sessions do."""

    tell: Callable[[Card], None]

    async def decide(self, prefix: str, verdict: Verdict) -> Card:
        after = await super().decide(prefix, verdict)
        self.tell(after)
        return after

    async def decide_policy(self, prefix_or_path: str | None, verdict: Verdict, shown: str | None = None) -> Card:
        return await self.decide(prefix_or_path or "", verdict)

    @property
    def grants(self) -> Service:
        return self

    async def listed(self, session: str | None = None, *, everything: bool = False) -> tuple[()]:
        """Return the grants, of which there are none."""
        return ()


@define
class Walk:
    """One inbox on a screen of so many columns, and what is wrong with it."""

    screen: Screen
    service: StandInService
    into: Path | None
    name: str
    faults: list[str] = field(factory=list)

    @property
    def is_narrow(self) -> bool:
        return self.screen.columns < TWO_PANES

    def pane(self, lines: Sequence[Text]) -> str:
        """Return the text of the pane with the card, without spaces and without the marks of wrapped lines."""
        left = 0 if self.is_narrow else min(70, self.screen.columns * 2 // 5) + 1
        return "".join(squeezed(line.plain[cells(line.plain, left) :].lstrip().removeprefix("↪")) for line in lines[1:])

    def until(self, is_so: Callable[[list[Text]], bool], what: str) -> list[Text]:
        """Return the screen once something holds. Raises SystemExit if it does not come to hold."""
        deadline = time.monotonic() + PATIENCE
        while not is_so(lines := self.screen.until()):
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name}: {what} never came:\n" + "\n".join(line.plain for line in lines))
            time.sleep(0.05)
        return lines

    def shows(self, card: Card, lines: list[Text]) -> bool:
        """Tell whether a card is on the screen. If the one before has closed there, the list is, and this one opens."""
        if "enter open" in lines[-1].plain:
            self.screen.press("Enter")
        return squeezed(card.title) in self.pane(lines) and not ("enter open" in lines[-1].plain and self.is_narrow)

    def picture(self, name: str, lines: list[Text]) -> None:
        if self.into is not None:
            console = Console(record=True, width=self.screen.columns, file=io.StringIO())
            for line in lines:
                console.print(line, soft_wrap=True)
            console.save_svg(str(self.into / f"{self.name}-{name}.svg"), title=self.name)

    def card(self, case: Case) -> str:
        """Look at the card, answer it, and select the next. Returns what is cut, in words; empty if nothing is."""
        lines = self.until(partial(self.shows, case.card), f"the card {case.card.id}")
        wanted = [squeezed(part) for part in self.keys(case.card)]
        # Lines that are only just drawn are counted as not seen for a moment.
        self.soon(lambda now: all(part in squeezed(now) for part in wanted))
        lines = self.screen.until()
        self.picture(case.card.id, lines)
        below = squeezed(bottom(lines))
        missing = [part for part in self.keys(case.card) if squeezed(part) not in below]
        seen = self.pane(lines)
        wanted = [squeezed(part) for part in parts(case.card)]
        # The rest of a long card is below.
        for _ in range(20):
            if all(part in seen for part in wanted):
                break
            self.screen.press("PageDown")
            time.sleep(0.2)
            seen += self.pane(self.screen.until())
        missing += [part for part in parts(case.card) if squeezed(part) not in seen]
        self.answer(case)
        self.screen.press("Down")
        return ", ".join(missing)

    def keys(self, card: Card) -> list[str]:
        return [f"{shown_key(row.key)} {row.shown}" for row in keys_of(card)] + ["? help", "q quit"]

    def answer(self, case: Case) -> None:
        """Type the keys that answer the card, until the inbox has a decision about it."""
        key, _, text = case.keys.partition("\n")
        self.until(lambda lines: "u takes" not in bottom(lines), "the sending of the decision before")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            said = bottom(self.screen.until())
            if "u takes" in said or self.is_decided(case):
                return
            if "y yes" in said:
                self.screen.press("y")
                self.soon(lambda now: "y yes" not in now)
            elif "enter done" in said:
                # What was typed before the field was there is discarded.
                self.screen.press("C-u")
                self.screen.press("-l", text)
                if self.soon(lambda now: f" {text} " in now):
                    self.screen.press("Enter")
                    self.soon(lambda now: "enter done" not in now)
            else:
                self.screen.press(key)
                self.soon(lambda now: any(each in now for each in ("u takes", "y yes", "enter done")))
        whole = "\n".join(line.plain for line in self.screen.until())
        raise SystemExit(f"{self.name}: {case.card.id} could not be answered:\n{whole}")

    def is_decided(self, case: Case) -> bool:
        return any(act[:2] == ("decide", case.card.id) for act in self.service.acts)

    def soon(self, is_so: Callable[[str], bool]) -> bool:
        """Tell whether something comes to hold of the last lines in some seconds."""
        deadline = time.monotonic() + SOON
        while not (holds := is_so(bottom(self.screen.until()))) and time.monotonic() < deadline:
            time.sleep(0.1)
        return holds

    def colours(self, lines: list[Text]) -> bool:
        """Tell whether there is a colour on the screen."""
        styles = [span.style for line in lines for span in line.spans]
        used = [each for each in styles if isinstance(each, Style)]
        return any(
            colour is not None and not colour.is_default for each in used for colour in (each.color, each.bgcolor)
        )


def bottom(lines: Sequence[Text]) -> str:
    """Return the last lines of a screen, as one."""
    return " ".join(" ".join(line.plain for line in lines[-6:]).split())


def cells(text: str, column: int) -> int:
    """Return the place in a text at which a column of the screen begins."""
    at = 0
    while at < len(text) and Text(text[:at]).cell_len < column:
        at += 1
    return at


def squeezed(text: str) -> str:
    return "".join(text.split())


def parts(card: Card) -> list[str]:
    """Return what of a card must be on the screen: its title with its risk, and its files."""
    risk = f"{card.risk.upper()} " if card.risk else ""
    asks = "Agent asks: " if card.kind is APPROVAL else ""
    found = [f"{risk}{asks}{card.title}"]
    for change in card.files:
        name = f"{change.old_path} -> {change.path}" if change.old_path else change.path
        found.append(f"{change.kind} {_visible(name)} +{change.added} -{change.removed}")
    return found


def _visible(text: str) -> str:
    return text.replace("\x1b", "\\x1b")


@contextlib.contextmanager
def inbox(environ: dict[str, str], columns: int, *, is_coloured: bool, waiting: int) -> Iterator[Screen]:
    """An inbox that shows how many cards wait."""
    more = {} if is_coloured else {"NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as directory, _screen(directory, environ | more, columns) as screen:
        screen.until(f"{waiting} waiting")
        # Its first frame takes no keys.
        screen.until("? help")
        yield screen


def _screen(directory: str, environ: dict[str, str], columns: int) -> Screen:
    return Screen(Path(directory) / "tmux", CTL, environ, ROWS, columns)


def walk(server: CtlServer, columns: int, into: Path | None, *, is_coloured: bool) -> list[str]:
    """Answer all cards at this width. Prints a row for each, and returns the faults."""
    name = f"{columns}-{'colour' if is_coloured else 'plain'}"
    with inbox(server.environ, columns, is_coloured=is_coloured, waiting=len(CASES)) as screen:
        walked = Walk(screen, server.service, into, name)
        walked.picture("list", screen.until())
        # Nothing is selected before a person does so.
        screen.press("Down")
        screen.press("Enter")
        cut = {case.card.id: "" for case in CASES}
        for case in CASES:
            cut[case.card.id] = walked.card(case)
        if walked.colours(screen.until()) is not is_coloured:
            walked.faults.append("there is no colour" if is_coloured else "there is colour")
        for key, says in (("2", "3f2a91c0 active"), ("3", "approved r-1"), ("?", "Answers to a card")):
            screen.press(key)
            walked.picture(f"tab-{key.replace('?', 'help')}", screen.until(says))
        screen.press("Escape")
        screen.press("C-d")
        screen.until_ended()
    arrived = {act[1]: act[2] for act in server.service.acts if act[0] == "decide"}
    for case in CASES:
        decision = arrived.get(case.card.id, "nothing")
        is_right = decision == case.decision
        print(
            f"{name:<12} {case.card.id:<12} {f'cut: {cut[case.card.id]}' if cut[case.card.id] else 'whole':<40}", end=""
        )
        print(f" {decision if is_right else f'{decision} arrived instead of {case.decision}'}", flush=True)
        walked.faults += [f"{case.card.id}: {cut[case.card.id]} is cut"] if cut[case.card.id] else []
        walked.faults += [] if is_right else [f"{case.card.id}: {decision} arrived instead of {case.decision}"]
    return [f"{name}: {fault}" for fault in walked.faults]


# --- many cards


@define
class Control:
    """A client of tmux in its control mode: it types keys, and reads what the terminal gets as it comes."""

    process: subprocess.Popen[bytes]
    _seen: bytes = b""

    def until(self, text: str) -> float:
        """Wait until the terminal has got this text. Returns the seconds. Raises SystemExit after `PATIENCE`."""
        assert self.process.stdout is not None
        began = time.monotonic()
        while text.encode() not in self._seen:
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more or time.monotonic() - began > PATIENCE:
                raise SystemExit(f"{text!r} never came")
            self._seen += more
        self._seen = b""
        return time.monotonic() - began

    def time(self, key: str, then: str) -> float:
        """Type a key, and wait for a text. Returns the seconds between them."""
        assert self.process.stdin is not None
        self._seen = b""
        self.process.stdin.write(f"send-keys {key}\n".encode())
        self.process.stdin.flush()
        return self.until(then)


def many(server: CtlServer) -> None:
    """Measure the start and the keys with the cards that wait, and print the figures."""
    count = len(server.service.cards)
    starts = [_start(server.environ) for _ in range(7)]
    print(f"start to the first of {count} cards: {_figures(starts)}")
    with inbox(server.environ, 120, is_coloured=True, waiting=count) as screen:
        command = ["tmux", "-S", str(screen.socket), "-C", "attach-session"]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=screen.environ)
        control = Control(client)
        try:
            time.sleep(1)
            moves = [control.time("Down", f"part_{number}.py") for number in range(TIMED)]
            print(f"a key to the next card on the screen, {count} waiting: {_figures(moves)}")
            typed = control.time("/", "list only")
            print(f"a key to the field of the filter: {typed * 1000:.0f} ms")
            time.sleep(1)
            found = control.time(f"-l {count - 1:04}", f"1 of {count}")
            print(f"the last letter of a filter to the one card that it leaves: {found * 1000:.0f} ms")
        finally:
            client.kill()
            client.wait()


def _start(environ: dict[str, str]) -> float:
    return until_shown(["env", *(f"{name}={value}" for name, value in environ.items()), *CTL], "Change number 0000")


def _figures(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds) * 1000:.0f} ms, worst {max(seconds) * 1000:.0f} ms"


# --- the program


async def serving(cards: Sequence[Card], look: Callable[[CtlServer], T]) -> T:
    """Look at a server at which these cards wait, in a thread. Returns what is seen."""
    began = datetime.now(UTC) - timedelta(minutes=5)
    waiting = [evolve(each, created_at=began + timedelta(milliseconds=at)) for at, each in enumerate(cards)]
    service = Service(*waiting, sessions=[session("3f2a91c0", client_name="codex")])
    with tempfile.TemporaryDirectory() as home:
        async with ctl_server(Path(home), service) as server:
            service.tell = server.tell
            return await trio.to_thread.run_sync(look, server)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cli.inbox_walk", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--into", metavar="DIRECTORY", type=Path, help="write each screen there, as SVG")
    parser.add_argument("--columns", metavar="N,N", default="60,100,200", help="the widths (default: %(default)s)")
    parser.add_argument("--cards", metavar="N", type=int, default=1000, help="how many wait at once in the end")
    options = parser.parse_args()
    if options.into is not None:
        options.into.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    for columns in (int(each) for each in options.columns.split(",") if each):
        for is_coloured in (True, False):
            look = partial(walk, columns=columns, into=options.into, is_coloured=is_coloured)
            faults += await serving([case.card for case in CASES], look)
    if options.cards:
        more = {"risk": LOW, "diff": SHAPES}
        await serving(
            [
                _case(
                    f"m{number:04}",
                    APPROVAL,
                    f"Change number {number:04}",
                    "a",
                    "approve",
                    files=(_change(f"src/part_{number}.py"),),
                    **more,
                ).card
                for number in range(options.cards)
            ],
            many,
        )
    print("\n".join(faults) or "nothing is cut, and every decision arrived")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(trio.run(main))
