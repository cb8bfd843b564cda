"""Draw the pictures of the inbox for the documentation, as SVG files.

python -m tests.cli.inbox_pictures [--into docs/images] [NAME ...]

The still pictures are drawn by Textual without a terminal, with a feed that holds these cards. The moving one is
recorded: a real server, a scripted agent that speaks MCP through the real relay, and the real inbox, each in a terminal
of tmux, whose contents become the frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from difflib import unified_diff
from html import escape
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from rich.ansi import AnsiDecoder
from rich.color import Color, blend_rgb
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from intercom.cli import ctl_draw
from intercom.cli.inbox import app as inbox_app
from intercom.cli.inbox.app import Inbox
from intercom.cli.inbox.board import Board
from intercom.cli.inbox.feed import Arrived, Feed, Link
from intercom.local.places import places
from intercom.model.card import Card, CardKind
from intercom.model.request import ChangeKind, FileChange, RiskLevel
from tests.support.server_process import COMMAND, user_home

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SHAPES = """diff --git a/src/shapes.py b/src/shapes.py
--- a/src/shapes.py
+++ b/src/shapes.py
@@ -12,9 +12,12 @@ class Shape:
     sides: int = 4
~
     def area(self) -> float:
-        return self.width * self.height
+        if self.width < 0 or self.height < 0:
+            raise ValueError("a side is shorter than nothing")
+        # Both are measured in metres.
+        return abs(self.width * self.height)
~
     def name(self) -> str:
         return "shape"
""".replace("~", " ")
DROP = """diff --git a/migrations/0007.sql b/migrations/0007.sql
--- /dev/null
+++ b/migrations/0007.sql
@@ -0,0 +1 @@
+drop table sessions_old;
"""


def _card(id: str, kind: CardKind, title: str, minutes: float, **more: Any) -> Card:
    fields = {
        "session_id": "3f2a91c0",
        "workspace_root": "/home/kim/shapes",
        "created_at": NOW - timedelta(0, minutes * 60),
    }
    return Card(id, kind, title=title, **(fields | more))


def _change(path: str, kind: ChangeKind, added: int, removed: int) -> tuple[FileChange, ...]:
    return (FileChange(path, kind, "aa" * 32, "bb" * 32, added=added, removed=removed),)


CARDS = (
    _card(
        "7c41d20b",
        CardKind.APPROVAL,
        "Refuse sides below zero",
        4,
        risk=RiskLevel.LOW,
        amendable=True,
        diff=SHAPES,
        body="An area below zero makes no sense, and two callers got one.",
        files=_change("src/shapes.py", ChangeKind.WRITE, 4, 1),
        expires_at=NOW + timedelta(minutes=56),
    ),
    _card(
        "b09e6612",
        CardKind.APPROVAL,
        "Drop the table of old sessions",
        3,
        risk=RiskLevel.CRITICAL,
        diff=DROP,
        files=_change("migrations/0007.sql", ChangeKind.CREATE, 1, 0),
        expires_at=NOW + timedelta(minutes=57),
    ),
    _card(
        "51ffa3d8",
        CardKind.APPROVAL,
        "Run: npm install left-pad",
        2,
        risk=RiskLevel.HIGH,
        body="npm install left-pad",
        expires_at=NOW + timedelta(minutes=58),
    ),
    _card("e4cf3515", CardKind.PROMPT, "Shall I go on?", 1.5, body="All tests pass. Shall I also write the docs?"),
    _card("935f8fbf", CardKind.STANDBY, "Waits for work", 1, body="The first half is done; what is next?"),
    _card("a66a90be", CardKind.STALL, "Quiet for 5 min", 0.5, detail="last tool: check_diff"),
)
#: The fonts that Textual would have a reader fetch from the network.
_FONTS = re.compile(r"@font-face \{[^}]*\}\s*")
#: By the picture's name: the columns and rows, and the keys that are typed before it is taken.
PICTURES: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "inbox": (110, 24, ("down",)),
    "inbox-narrow": (60, 22, ("down", "enter")),
    "inbox-several": (110, 16, ("down", "space", "down", "space", "a")),
    "inbox-undo": (110, 16, ("down", "a")),
}


@contextmanager
def _still() -> Iterator[None]:
    """Stop the clock that ages are counted with, and the requests to a server."""
    before = ctl_draw.now, inbox_app.request
    ctl_draw.now, inbox_app.request = lambda: NOW, lambda *_: {"required": True}
    try:
        yield
    finally:
        ctl_draw.now, inbox_app.request = before


async def picture(name: str) -> str:
    """Return a picture as SVG."""
    columns, rows, keys = PICTURES[name]
    with tempfile.TemporaryDirectory() as home, _still():
        where = places(environ={"HOME": home, "XDG_RUNTIME_DIR": home})
        feed = Feed(where)
        app = Inbox(where, feed, Board(), clock=lambda: 0.0)
        async with app.run_test(size=(columns, rows)) as pilot:
            feed._put([Arrived(Link.UP), *map(Arrived, CARDS)])
            while app.board.waiting < len(CARDS):
                await pilot.pause()
            for key in keys:
                while not app.board.counts(float("inf")):
                    await pilot.pause()
                await pilot.press(key)
            await pilot.pause(0.1)
            return _FONTS.sub("", app.export_screenshot(title="agent-intercom-ctl", simplify=True))


# --- the moving picture ----------------------------------------------------------------------------------------------

#: Its name, and the columns and rows of its two terminals.
MOVING = "inbox-moving"
_COLUMNS, _AGENT_ROWS, _INBOX_ROWS = 100, 8, 27
_CTL = [sys.executable, str(ROOT / "tests" / "support" / "ctl_at_home.py")]
#: Seconds that a terminal may take to show what is expected of it.
_PATIENCE = 60.0
_BEFORE = '''\
"""Rectangles and their areas."""

from attrs import frozen


@frozen
class Rectangle:
    width: float
    height: float

    def area(self) -> float:
        return self.width * self.height

    def scaled(self, factor: float) -> "Rectangle":
        return Rectangle(self.width * factor, self.height * factor)

    def is_square(self) -> bool:
        return self.width == self.height


def total(shapes: list[Rectangle]) -> float:
    return sum(shape.area() for shape in shapes)
'''
_AFTER = _BEFORE.replace(
    "        return self.width * self.height\n",
    """        if self.width < 0 or self.height < 0:
            raise ValueError("a side is negative")
        return self.width * self.height
""",
).replace(
    "    return sum(shape.area() for shape in shapes)\n", "    return round(sum(shape.area() for shape in shapes))\n"
)
_FILE = "shapes.py"


def agent(workspace: str) -> None:
    """Be the agent: propose a change, wait for the decision, apply what was approved. Its JSON-RPC is written by hand,
    so that what it prints is what was sent and answered."""
    command = [*COMMAND, "--workspace", workspace]
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert relay.stdin is not None
    assert relay.stdout is not None

    def send(method: str, **more: object) -> None:
        relay.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\n")

    def answer(id: int, method: str, **params: object) -> Any:
        send(method, id=id, params=params)
        for line in relay.stdout:
            if (said := json.loads(line)).get("id") == id:
                return said["result"]
        raise SystemExit("the relay ended")

    def call(id: int, tool: str, **arguments: object) -> Any:
        return answer(id, "tools/call", name=tool, arguments=arguments)["structuredContent"]

    client = {"name": "claude-code", "version": "1"}
    answer(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    send("notifications/initialized")
    # The Enter that lets it go on is not echoed.
    subprocess.run(["stty", "-echo"], check=True)
    print("\x1b[32m●\x1b[m An area must not be negative. I change \x1b[1mshapes.py\x1b[m.", flush=True)
    sys.stdin.readline()
    lines = (text.splitlines(keepends=True) for text in (_BEFORE, _AFTER))
    diff = "".join(unified_diff(*lines, f"a/{_FILE}", f"b/{_FILE}"))
    print('\x1b[36m→\x1b[m check_clearance \x1b[2m"No negative sides"\x1b[m', flush=True)
    about = {"title": "No negative sides", "description": "Two callers got an area below zero."}
    answered = call(2, "check_clearance", **about, diff=diff, file_path=_FILE, risk_level="low")
    left_out = answered["changes"][0]["left_out"]
    print(f"\x1b[36m←\x1b[m {answered['status']}; left out: {', '.join(left_out)}", flush=True)
    time.sleep(0.5)
    print("\x1b[36m→\x1b[m check_diff", flush=True)
    applied = call(3, "check_diff", request_id=answered["request_id"])
    print(f"\x1b[36m←\x1b[m {applied['status']}", flush=True)
    print("\x1b[32m●\x1b[m Done. The total is not rounded, as you wanted.", flush=True)
    sys.stdin.readline()
    relay.stdin.close()
    relay.wait()


@define
class Screen:
    """A program in a terminal of tmux: its own server, so that no terminal is another's parent."""

    socket: Path
    command: list[str]
    environ: dict[str, str]
    rows: int
    columns: int = _COLUMNS

    def __enter__(self) -> Screen:
        size = ["-x", str(self.columns), "-y", str(self.rows)]
        self._tmux("new-session", "-d", *size, *self.command)
        self._tmux("set-option", "-g", "status", "off")
        self._tmux("resize-window", *size)
        return self

    def __exit__(self, *_raised: object) -> None:
        if self._is_open():
            self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        return self._run(*words, check=True).stdout

    def _run(self, *words: str, check: bool) -> subprocess.CompletedProcess[str]:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *words]
        environ = {**self.environ, "TERM": "xterm-256color"}
        return subprocess.run(command, env=environ, check=check, capture_output=True, text=True)

    def _is_open(self) -> bool:
        """Whether the program runs: with it, its terminal and tmux end."""
        return self._run("has-session", check=False).returncode == 0

    def until_ended(self) -> None:
        """Wait until the program has ended by itself."""
        deadline = time.monotonic() + _PATIENCE
        while self._is_open():
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.command} did not end")
            time.sleep(0.1)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until(self, *texts: str) -> list[Text]:
        """Return the lines of the screen once all of these texts are on it."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            # A style goes on from one line to the next.
            drawn = list(AnsiDecoder().decode(self._tmux("capture-pane", "-e", "-p")))[: self.rows]
            whole = "\n".join(line.plain for line in drawn)
            if all(text in whole for text in texts):
                return drawn
            if time.monotonic() > deadline:
                raise SystemExit(f"{texts} never came on this screen:\n{whole}")
            time.sleep(0.1)


@frozen
class Frame:
    """What both terminals show for some seconds; `said` is the line below them, `key` what the person types."""

    agent: list[Text]
    inbox: list[Text]
    said: str
    seconds: float
    key: str = ""


def record() -> list[Frame]:
    """Return the frames: an agent asks, a person approves one hunk of two, the agent applies it."""
    if shutil.which("tmux") is None:
        raise SystemExit("tmux is not on PATH, and the moving picture needs it")
    frames: list[Frame] = []
    with ExitStack() as stack:
        home = stack.enter_context(user_home(""))
        root = home.root
        workspace = root / "shapes"
        workspace.mkdir()
        (workspace / _FILE).write_text(_BEFORE)
        environ = {**home.environ, "PYTHONPATH": str(ROOT)}
        stack.enter_context(home.serving())
        here = [sys.executable, "-m", "tests.cli.inbox_pictures", "--agent", str(workspace)]
        asks = stack.enter_context(Screen(root / "tmux-agent", here, environ, _AGENT_ROWS))
        inbox = stack.enter_context(Screen(root / "tmux-inbox", _CTL, environ, _INBOX_ROWS))

        def frame(told: str, seconds: float, shown: str, asked: str, key: str = "") -> None:
            frames.append(Frame(asks.until(asked), inbox.until(shown), told, seconds, key))

        frame("An agent works. The inbox is empty.", 2, "nothing waits", "An area must not")
        asks.press("Enter")
        frame("It asks before it changes a file. Its call waits.", 3, "1 waiting", "check_clearance")
        inbox.press("Down")
        frame("You look at the change: it has two hunks.", 4, "f file  … ? help", "check_clearance", "↓")
        inbox.press("h")
        inbox.until("by number")
        _typed(inbox, "1")
        frame("You want the first, and not the second.", 3, "by number", "check_clearance", "h 1")
        inbox.press("Enter")
        frame("You see what will be written, and what the agent is told.", 4, "[y/N]", "check_clearance", "enter")
        inbox.press("y", "Enter")
        inbox.until("press enter")
        inbox.press("Enter")
        frame("The agent applies what you approved, and knows what you left out.", 5, "applied,", "Done.", "y")
        written = (workspace / _FILE).read_text()
        assert "is negative" in written
        assert "round" not in written
        # Otherwise its relay would start another server once this one ends.
        asks.press("Enter")
        asks.until_ended()
    return frames


def _typed(screen: Screen, text: str) -> None:
    """Type into a field: what is typed before it is there is discarded."""
    deadline = time.monotonic() + _PATIENCE
    while all(line.plain.strip() != text for line in screen.until("by number")) and time.monotonic() < deadline:
        screen.press(text)
        time.sleep(1)


_CELL, _LINE, _FONT = 12.2, 24.4, 20
_THEME = SVG_EXPORT_THEME


@define
class Film:
    """Frames as one SVG that moves by CSS alone. Each different line is drawn once, and used wherever it is shown."""

    frames: list[Frame]
    _lines: dict[str, str] = field(init=False, factory=dict)
    _styles: dict[str, str] = field(init=False, factory=dict)

    def svg(self) -> str:
        width = _COLUMNS * _CELL + 40
        agent_top, inbox_top = 46.0, 46 + _AGENT_ROWS * _LINE + 60
        bottom = inbox_top + _INBOX_ROWS * _LINE + 12
        height = bottom + 54
        drawn = [self._frame(each, agent_top, inbox_top, bottom) for each in self.frames]
        whole = sum(each.seconds for each in self.frames)
        rules, at = [], 0.0
        for number, each in enumerate(self.frames):
            begin, end = (100 * moment / whole for moment in (at, at + each.seconds))
            at += each.seconds
            last = "" if number == len(self.frames) - 1 else f"{end:.2f}%{{visibility:hidden}}"
            rules.append(f"@keyframes f{number}{{0%{{visibility:hidden}}{begin:.2f}%{{visibility:visible}}{last}}}")
            rules.append(f"#f{number}{{animation:f{number} {whole:g}s step-end infinite}}")
        rules += [f".{name}{{{style}}}" for style, name in self._styles.items()]
        # What does not move shows the frame with the change.
        still = 2
        groups = [
            f'<g id="f{number}" visibility="{"visible" if number == still else "hidden"}">{inner}</g>'
            for number, inner in enumerate(drawn)
        ]
        title = "An agent asks, a person approves one hunk of two in the inbox, and the agent applies it"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
                f"<title>{title}</title>",
                f"<style>text{{font:{_FONT}px 'Fira Code',Menlo,Consolas,monospace;white-space:pre;fill:{_hex(None)}}}",
                ".w{font:bold 18px Arial,sans-serif}.s{font:22px Arial,sans-serif;fill:#7f8c99}",
                *rules,
                "@media (prefers-reduced-motion:reduce){g{animation:none!important}}</style>",
                "<defs>",
                *(f'<g id="{name}">{line}</g>' for line, name in self._lines.items()),
                "</defs>",
                _window("the agent", width, 1, _AGENT_ROWS * _LINE + 50),
                _window("agent-intercom-ctl", width, inbox_top - 45, _INBOX_ROWS * _LINE + 53),
                *groups,
                "</svg>",
                "",
            ]
        )

    def _frame(self, frame: Frame, agent_top: float, inbox_top: float, bottom: float) -> str:
        parts = []
        for top, lines in ((agent_top, frame.agent), (inbox_top, frame.inbox)):
            for row, line in enumerate(lines):
                if name := self._line(line):
                    parts.append(f'<use href="#{name}" x="20" y="{top + row * _LINE:g}"/>')
        x = 20.0
        for key in frame.key.split():
            wide = 24 + 12 * len(key)
            parts.append(f'<rect x="{x:g}" y="{bottom + 8:g}" width="{wide}" height="36" rx="7" fill="#d0b344"/>')
            parts.append(
                f'<text class="w" x="{x + wide / 2:g}" y="{bottom + 33:g}" text-anchor="middle" style="fill:#292929">'
                f"{escape(key)}</text>"
            )
            x += wide + 10
        parts.append(
            f'<text class="s" x="{x + 4:g}" y="{bottom + 34:g}" style="fill:#7f8c99">{escape(frame.said)}</text>'
        )
        return "".join(parts)

    def _line(self, line: Text) -> str:
        """Return the name of a line, which is drawn on the baseline of the first row; empty for a blank line."""
        back, front = [], []
        column = 0
        for text, style in _runs(line):
            x, wide = column * _CELL, len(text) * _CELL
            column += len(text)
            fore, ground = _colours(style)
            if ground is not None:
                back.append(f'<rect x="{x:g}" width="{wide:g}" height="{_LINE + 0.3:g}" fill="{ground}"/>')
            if text.strip():
                rule = f"fill:{fore}" + (";font-weight:bold" if style.bold else "")
                name = self._styles.setdefault(rule, f"c{len(self._styles)}")
                shown = escape(text).replace(" ", "\u00a0")
                front.append(f'<text class="{name}" x="{x:g}" y="19" textLength="{wide:g}">{shown}</text>')
        drawn = "".join([*back, *front])
        return self._lines.setdefault(drawn, f"l{len(self._lines)}") if drawn else ""


def _window(title: str, width: float, top: float, height: float) -> str:
    dots = "".join(
        f'<circle cx="{26 + 22 * number}" cy="{top + 22:g}" r="7" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<rect x="1" y="{top:g}" width="{width - 2:g}" height="{height:g}" rx="8" fill="#292929" stroke="#5b5b5b"/>'
        f'{dots}<text class="w" x="{width / 2:g}" y="{top + 27:g}" text-anchor="middle">{title}</text>'
    )


def _runs(line: Text) -> Iterator[tuple[str, Style]]:
    """Yield the parts of a line that have one style."""
    plain = line.plain[:_COLUMNS]
    styles = [line.style if isinstance(line.style, Style) else Style() for _ in plain]
    for span in line.spans:
        for at in range(span.start, min(span.end, len(plain))):
            styles[at] += span.style if isinstance(span.style, Style) else Style.parse(span.style)
    start = 0
    for at in range(1, len(plain) + 1):
        if at == len(plain) or styles[at] != styles[start]:
            yield plain[start:at], styles[start]
            start = at


def _hex(colour: Color | None, *, foreground: bool = True) -> str:
    if colour is None or colour.is_default:
        return (_THEME.foreground_color if foreground else _THEME.background_color).hex
    return colour.get_truecolor(_THEME).hex


def _colours(style: Style) -> tuple[str, str | None]:
    """Return the colour of the text, and of what is behind it if that is not the window's own."""
    fore, back = _hex(style.color), _hex(style.bgcolor, foreground=False)
    if style.reverse:
        fore, back = back, fore
    if style.dim:
        fore = blend_rgb(Color.parse(fore).get_truecolor(), Color.parse(back).get_truecolor(), 0.4).hex
    return fore, None if back == _hex(None, foreground=False) else back


def main() -> None:
    made: dict[str, Callable[[], str]] = {name: lambda name=name: asyncio.run(picture(name)) for name in PICTURES}
    made[MOVING] = lambda: Film(record()).svg()
    line = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    line.add_argument("names", nargs="*", metavar="NAME", help=f"of the pictures, else all: {', '.join(made)}")
    line.add_argument("--into", type=Path, default=ROOT / "docs" / "images")
    line.add_argument("--agent", metavar="DIRECTORY", help="be the agent of the moving picture instead")
    options = line.parse_args()
    if options.agent:
        agent(options.agent)
        return
    for name in options.names or made:
        (options.into / f"{name}.svg").write_text(made[name]())


if __name__ == "__main__":
    main()
