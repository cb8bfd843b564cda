"""The table of commands, from which help and the reference page are generated; and the parser of what a person typed.

Phones change typed text: straight quotes become curved, two hyphens a dash, and file names links. The parser undoes
this. Quotes count only around a whole word, so an apostrophe stays an apostrophe. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from attrs import field, frozen

from intercom.model.errors import InvalidArguments, NotFound
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.slack.buttons import unescape

if TYPE_CHECKING:
    from intercom.operators.slack.commands.command_call import CommandCall
    from intercom.operators.slack.draw.blocks import Drawn

    Handler = Callable[[CommandCall], Awaitable[Drawn | str | None]]

#: The name of the slash command, as in the app's manifest.
SLASH = "/intercom"


class Category(StrEnum):
    """The topic of a command; `help` accepts these names."""

    SESSIONS = "session"
    CHECKPOINTS = "checkpoint"
    PERMISSIONS = "permission"
    FILES = "files"
    CUSTOM = "custom"
    HELP = "help"


_ID = "the beginning of its id"

TITLES: dict[Category, str] = {
    Category.SESSIONS: "Sessions",
    Category.CHECKPOINTS: "Checkpoints",
    Category.PERMISSIONS: "What you permit in advance",
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
    drawn message, a sentence, or None. `alias` is another name that it has.
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
    alias: str = ""

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
    alias: str = "",
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
        name,
        category,
        row.help,
        f"{details} It is also called {alias}." if alias else details,
        f"{SLASH} {example}",
        handler,
        tuple(places),
        options,
        owner_only,
        row.acts,
        alias,
    )


@frozen
class Table:
    """The commands by name, in the order help shows them."""

    entries: tuple[Entry, ...]

    def find(self, name: str) -> Entry:
        """Return the command of this name; its case is ignored if the name stays unique. Raises NotFound with the
        nearest names."""
        exact = [each for each in self.entries if name in (each.name, each.alias) and name]
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
            return f"{SLASH} help lists the commands"
        return f"did you mean {either(f'{SLASH} {names[each]}' for each in near[:3])}?"


def either(names: Iterable[str]) -> str:
    """Join names: `a`, `a or b`, `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def custom(commands: Mapping[str, str], handler: Handler, taken: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return an entry for each alias of `[commands]`, except aliases that name a built-in command."""
    names = {name for each in taken for name in (each.name, each.alias)}
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


# --- what was typed -------------------------------------------------------------------------------------------------

#: One character for one, so that positions in the text stay the same.
_QUOTES = str.maketrans(
    {
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u00a0\u202f\u2007", " "),
    }
)
_DASHES = re.compile(r"^[\u2013\u2014](?=[A-Za-z])")
_WORD = re.compile(
    r"(?P<option>--[A-Za-z][A-Za-z-]*=)?"
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"(?!\S)|'(?P<single>[^']*)'(?!\S)|(?P<plain>(?:[^\s\\]|\\.|\\$)+))""",
    re.DOTALL,
)
#: An option within a text, perhaps with its value, or the two hyphens that end the options.
_OPTION = re.compile(r"(?:--|[\u2013\u2014])(?:(?P<name>[A-Za-z][A-Za-z-]*)(?:=(?P<value>\S*))?)?")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@frozen
class Word:
    """A word without its quotes. A quoted word is never an option."""

    text: str
    quoted: bool = False


@frozen
class Typed:
    """The name of a command (empty if nothing was typed) and the text after it, with phone changes undone."""

    name: str
    text: str


@frozen
class Arguments:
    """The arguments of a command. `words` are the words that are no options, `options` the values by name. For a
    command with free text, `text` is that text as typed. `typed` is everything that was typed."""

    words: tuple[str, ...] = ()
    options: Mapping[str, str] = field(factory=dict)
    text: str = ""
    typed: str = ""


def read(text: str) -> Typed:
    """Return the command's name and the text after it, from Slack's text."""
    name, *rest = unescape(text).split(None, 1)[:2] or [""]
    return Typed(name, rest[0].strip() if rest else "")


def split(text: str) -> list[Word]:
    """Split a text into words. A backslash takes the next character literally. Raises InvalidArguments for a quote that
    opens before a word and does not close after one."""
    straight = text.translate(_QUOTES)
    words = []
    at = 0
    while (start := _next(straight, at)) < len(straight):
        found = _WORD.match(straight, start)
        assert found is not None, "every character that is no space begins a word"
        at = found.end()
        option, quoted = found["option"] or "", True
        if found["double"] is not None:
            value = _ESCAPED.sub(r"\1", found["double"])
        elif found["single"] is not None:
            value = found["single"]
        else:
            value, quoted = _ESCAPED.sub(r"\1", found["plain"]), False
            if found["plain"][0] in ('"', "'"):
                raise InvalidArguments(f"a quote is opened before {value[1:40]!r} and not closed; close it")
        if not option and not quoted:
            value = _DASHES.sub("--", value)
        words.append(Word(option + value, quoted and not option))
    return words


def parse(text: str, options: Mapping[str, str], *, most: int | None, takes_text: bool = False) -> Arguments:
    """Parse the arguments.

    `options` maps each known option to its placeholder. `most` limits the number of words (None: no limit). With
    `takes_text` the words are free text and stay as typed. Options may stand before, between and after them, and `--`
    ends the options. Raises InvalidArguments with a sentence for the person.
    """
    if takes_text:
        return _parse_text(text, options)
    words: list[str] = []
    given: dict[str, str] = {}
    found = split(text)
    ended = False
    while found:
        word = found.pop(0)
        if ended or word.quoted or not word.text.startswith("--"):
            words.append(word.text)
        elif word.text == "--":
            ended = True
        else:
            _take(word, found, options, given)
    if most is not None and len(words) > most:
        raise InvalidArguments(
            f"that is {_amount(len(words), 'argument')}, and this command takes {most or 'none'};"
            " put quotes around one that contains spaces"
        )
    return Arguments(tuple(words), given, typed=text)


def _parse_text(text: str, options: Mapping[str, str]) -> Arguments:
    # Split at white space only: in free text an apostrophe or a quote has no meaning.
    given: dict[str, str] = {}
    kept: list[str] = []
    rest = text.strip()
    while rest:
        word = rest.split(None, 1)[0]
        after = rest[len(word) :]
        space = after[: len(after) - len(after.lstrip())]
        option = _OPTION.fullmatch(word)
        name = None if option is None or option["name"] is None else f"--{option['name']}"
        hyphens = word.startswith("--")
        if option is not None and name is None and (hyphens or not kept):
            # Within free text the hyphens belong to it, and still end the options.
            kept.append(rest if kept else after.lstrip())
            break
        rest = after.lstrip()
        if option is None or name is None or not (hyphens or name in options):
            # A dash before a word is a dash, unless a phone made it from the hyphens of a known option.
            kept += [word, space]
        elif option["value"] is not None:
            _take(Word(f"{name}={option['value']}"), [], options, given)
        else:
            following = rest.split(None, 1)[:1]
            _take(Word(name), [Word(each) for each in following], options, given)
            rest = rest[len(following[0]) :].lstrip()
    words = "".join(kept).strip()
    return Arguments(tuple(words.split()), given, words, text)


def _take(word: Word, following: list[Word], options: Mapping[str, str], given: dict[str, str]) -> None:
    name, equals, value = word.text.partition("=")
    if name not in options:
        known = ", ".join(f"{each} {options[each]}" for each in options)
        raise InvalidArguments(
            f"there is no option {name}; "
            + (f"there is {known}" if known else "there are none here")
            + ". Put -- before a text that contains one"
        )
    if name in given:
        raise InvalidArguments(f"{name} is given twice; give it once")
    if not equals:
        if not following:
            raise InvalidArguments(f"{name} needs a value: {name} {options[name]}")
        value = following.pop(0).text
    given[name] = value


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _amount(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
