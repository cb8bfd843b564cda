"""Help, generated from the command table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from intercom.operators.slack.draw.blocks import Block, context, divider, header, joined, mrkdwn, section
from intercom.operators.slack.draw.drawn import Drawn
from intercom.operators.slack.draw.text import code, fitted

#: The title of each category, in display order.
CATEGORIES: Final = {
    "files": "📁 Files",
    "session": "🔄 Sessions",
    "checkpoint": "📌 Checkpoints",
    "custom": "⚙️ Custom commands",
    "help": "💡 Help",
}
_COMMAND = "/intercom"
_ROOM = 1_500


class Described(Protocol):
    """The properties of a command that help shows."""

    @property
    def name(self) -> str: ...
    @property
    def args(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def example(self) -> str: ...


def command_help(commands: Sequence[Described], category: str | None = None) -> Drawn:
    """List the commands by category; with a `category`, only its commands, each with an example. An empty or unknown
    category lists all commands."""
    groups: dict[str, list[Described]] = {name: [] for name in CATEGORIES}
    for command in commands:
        groups.setdefault(command.category, []).append(command)
    groups = {name: entries for name, entries in groups.items() if entries}
    wanted = {category: groups[category]} if category in groups else groups
    blocks: list[Block] = [header("📖 Commands")]
    for name, entries in list(wanted.items())[:8]:
        if len(blocks) > 1:
            blocks.append(divider())
        room = 2_800 if category in groups else _ROOM
        lines, rest = joined((_line(entry, category in groups) for entry in entries), room // (1 + len(wanted) // 4))
        more = f"\nand {rest} more: `{_COMMAND} help {_words(name, 40)}`" if rest else ""
        title = CATEGORIES.get(name, _words(name, 60))
        blocks.append(section(mrkdwn(f"*{title}*\n{lines}{more}")))
    names = ", ".join(code(name, 40) for name in list(groups)[:12])
    blocks.append(context(mrkdwn(f"💡 `{_COMMAND} help CATEGORY` shows examples. Categories: {names or 'none'}")))
    return Drawn("Commands", tuple(blocks))


def _line(command: Described, long: bool) -> str:
    usage = f"{_COMMAND} {command.name} {command.args}".strip()
    line = f"{code(usage, 160)} {_words(command.summary, 200)}"
    return f"{line}\n      for example {code(command.example, 160)}" if long and command.example else line


def _words(text: str, limit: int) -> str:
    """Escape text of a configuration: a backtick in it must not open a code span."""
    return fitted(text, limit, flat=True).replace("`", "ˋ")
