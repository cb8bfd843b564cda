"""The table of commands: name, arguments and help. The help texts and the reference page are generated from it."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from attrs import frozen

from intercom.model.errors import NotFound
from intercom.operators.commands.table import COMMANDS

if TYPE_CHECKING:
    from intercom.operators.slack.commands.call import Call
    from intercom.operators.slack.draw.blocks import Drawn

    Handler = Callable[[Call], Awaitable[Drawn | str | None]]

#: The name of the slash command, as in the app's manifest.
SLASH = "/intercom"


class Category(StrEnum):
    """The topic of a command; `help` accepts these names."""

    SESSIONS = "session"
    CHECKPOINTS = "checkpoint"
    FILES = "files"
    CUSTOM = "custom"
    HELP = "help"


_ID = "the beginning of its id"

TITLES: dict[Category, str] = {
    Category.SESSIONS: "Sessions",
    Category.CHECKPOINTS: "Checkpoints",
    Category.FILES: "Files",
    Category.CUSTOM: "Custom commands",
    Category.HELP: "Help",
}


@frozen
class Parameter:
    """A positional argument. With `takes_rest` it takes the rest of the text unchanged."""

    name: str
    doc: str
    required: bool = False
    takes_rest: bool = False

    @property
    def shape(self) -> str:
        return f"<{self.name}>" if self.required else f"[{self.name}]"


@frozen
class Option:
    """A named argument; `value` is the placeholder of its value."""

    name: str
    value: str
    doc: str

    @property
    def shape(self) -> str:
        return f"[{self.name} {self.value}]"


@frozen
class Entry:
    """A command.

    `summary` is a phrase, `details` are whole sentences. With `owner_only`, only the owner of a session may use it.
    With `acts` it changes something, and is recorded before it runs. The handler's answer goes to the person only: a
    drawn message, a sentence, or None.
    """

    name: str
    category: Category
    summary: str
    details: str
    example: str
    handler: Handler
    parameters: tuple[Parameter, ...] = ()
    options: tuple[Option, ...] = ()
    owner_only: bool = False
    acts: bool = False

    @property
    def args(self) -> str:
        """The arguments in help's notation: `[path] [--depth N]`."""
        return " ".join(shape for shape, _ in self.arguments)

    @property
    def arguments(self) -> tuple[tuple[str, str], ...]:
        """Each argument's notation and description."""
        places = [(each.shape, each.doc) for each in self.parameters]
        return (*places, *((each.shape, each.doc) for each in self.options))

    @property
    def usage(self) -> str:
        return f"{SLASH} {self.name} {self.args}".rstrip()


def of_command(
    command: str,
    name: str,
    category: Category,
    handler: Handler,
    *,
    details: str,
    example: str,
    options: tuple[Option, ...] = (),
    owner_only: bool = False,
) -> Entry:
    """Return the entry of an operator command. Its summary, its arguments and whether it acts are those of its row.

    A session comes first and may be left out, because a person in a channel names it seldom. `options` are those that
    only Slack has, or describes in its own way.
    """
    row = COMMANDS[command]
    places = [
        Parameter(each.placeholder.lower(), each.help or _ID, not each.shape.startswith("["), each.takes_rest)
        for each in row.arguments
        if each.is_positional and each.field != "session"
    ]
    if any(each.field == "session" and each.sent for each in row.arguments):
        text = next((each.name for each in places if each.takes_rest), None)
        places.insert(0, Parameter("session", _ID if text is None else f"{_ID}, four characters or more"))
        if text is not None:
            options += (
                Option("--session", "ID", f"the session, if its id could be taken for the first word of the {text}"),
            )
    return Entry(
        name, category, row.help, details, f"{SLASH} {example}", handler, tuple(places), options, owner_only, row.acts
    )


@frozen
class Table:
    """The commands by name, in the order help shows them."""

    entries: tuple[Entry, ...]

    def find(self, name: str) -> Entry:
        """Return the command of this name; its case is ignored if the name stays unique. Raises NotFound with the
        nearest names."""
        exact = [each for each in self.entries if each.name == name]
        alike = [each for each in self.entries if each.name.casefold() == name.casefold()]
        # A custom command runs a program, so it needs its exact name.
        found = exact or [each for each in alike if each.category is not Category.CUSTOM]
        if len(found) == 1:
            return found[0]
        raise NotFound(f"there is no command {name[:40]!r}; {self._nearest(name)}")

    def categories(self) -> dict[Category, tuple[Entry, ...]]:
        """Return the non-empty categories with their commands."""
        kept = {each: tuple(entry for entry in self.entries if entry.category is each) for each in Category}
        return {category: entries for category, entries in kept.items() if entries}

    def _nearest(self, name: str) -> str:
        names = {each.name.casefold(): each.name for each in self.entries}
        near = difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.5)
        near += [each for each in names if each.startswith(name.casefold()) and each not in near]
        if not near:
            return f"{SLASH} help lists what there is"
        return f"did you mean {either(f'{SLASH} {names[each]}' for each in near[:3])}?"


def either(names: Iterable[str]) -> str:
    """Join names: `a`, `a or b`, `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def custom(commands: Mapping[str, str], handler: Handler, taken: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return an entry for each alias of `[commands]`, except aliases that name a built-in command."""
    names = {each.name for each in taken}
    session = Option("--session", "ID", "run it in this session's workspace")
    return tuple(
        Entry(
            name=alias,
            category=Category.CUSTOM,
            summary=f"run {command}",
            details="Runs exactly what the configuration says, in the workspace; takes no arguments of its own.",
            example=f"{SLASH} {alias}",
            handler=handler,
            options=(session,),
            acts=True,
        )
        for alias, command in commands.items()
        if alias not in names
    )
