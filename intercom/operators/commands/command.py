"""What an operator command is: who may send it, its arguments, and how ctl types and draws it.

The module uses the standard library alone, and its values are NamedTuples: ctl reads the table of commands at every
start, and importing attrs would double its start time.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from intercom.model.web_role import WebRole


class Access(Enum):
    """Who may send a command, and what their signature covers if there is an operator key."""

    #: Anyone, also an agent's own processes: it only shows something.
    ANYONE = "anyone"
    #: A person: it changes something, or shows what is private. It needs no signature: it only pauses, ends, asks,
    #: tests or shows, it is about a room, which decides nothing of this machine, or it brings its own.
    OPERATOR = "operator"
    #: A person, who signs what the card shows that the command answers.
    SIGNED_CARD = "signed card"
    #: A person, who signs the fields of the command. Sent again, it is answered as before, and does nothing.
    SIGNED = "signed"


class Argument(NamedTuple):
    """One argument of a command.

    `shape` is how it is typed on ctl: `ID`, `[ID]`, `TEXT...` and `[TEXT...]` are positional, and `...` takes the rest
    of the line; `--all`, `-f/--follow` and `--limit N` are options, and one with two values may be repeated; an empty
    shape is not typed. `field` is the name of the handler's argument; it is empty for an option of ctl alone. `sent` is
    its name on the wire, if that is another. A flag sends `value`. A value must be one of `choices`, if there are any.
    `default` is sent if neither the option nor --session is given. `missing` says what to give.
    """

    shape: str
    field: str = ""
    help: str | None = None
    choices: tuple[str, ...] = ()
    sent: str = ""
    value: str | bool = True
    default: str | None = None
    missing: str = ""

    @property
    def wire(self) -> str:
        """The name of its field in a request; empty if it is not sent."""
        return self.sent or self.field

    @property
    def options(self) -> list[str]:
        """The spellings of an option; empty for a positional argument, and for one that is not typed."""
        return self.shape.split(" ")[0].split("/") if self.shape.startswith("-") else []

    @property
    def is_positional(self) -> bool:
        return bool(self.shape) and not self.options

    @property
    def takes_rest(self) -> bool:
        return self.is_positional and "..." in self.shape

    @property
    def placeholder(self) -> str:
        """What stands for its value; empty for a flag."""
        return self.shape.partition(" ")[2] if self.options else self.shape.strip("[].")


class OperatorCommand(NamedTuple):
    """One row. `access` says who may send it.

    With `for_agent` the command has a message for an agent, whose kind is the command's name; what was signed is stored
    with it, and checked again before delivery. With `is_typed` false only programs send it.
    `decision` is the decision about a card that it always makes. `draws` names the function of `intercom.cli.ctl_draw`
    or `ctl_draw_server` that draws its answer, without `draw_`; if it is empty, ctl prints one line. `only_shows` says
    that it changes nothing, though only a person may send it. `verb` is what people type for it, if that is not its
    name; the name is an alias then. `alias` is another word for it. With `for_admins` it manages keys, tokens or
    settings. With `in_terminal` it is for people at a terminal alone: what it makes lets somebody act for a person.
    With `in_browser` no program with a token sends it: what it makes would outlive the token. With `keeps_answer` its
    answer is recorded without a signature too: sent again it would be refused, because what it ended is gone.
    """

    name: str
    access: Access
    help: str
    arguments: tuple[Argument, ...] = ()
    for_agent: bool = False
    is_typed: bool = True
    decision: str = ""
    draws: str = ""
    only_shows: bool = False
    verb: str = ""
    alias: str = ""
    for_admins: bool = False
    in_terminal: bool = False
    in_browser: bool = False
    keeps_answer: bool = False

    @property
    def aliases(self) -> tuple[str, ...]:
        """The other words that people may type for it."""
        return tuple(word for word in (self.name if self.verb else "", self.alias) if word)

    @property
    def least_role(self) -> WebRole | None:
        """The least role that may send it from the page; None if none may."""
        if self.in_terminal:
            return None
        if self.for_admins:
            return WebRole.ADMIN
        return WebRole.VIEWER if self.access is Access.ANYONE or self.only_shows else WebRole.OPERATOR

    @property
    def acts(self) -> bool:
        """Whether it changes something: then it carries an id that makes a repetition safe."""
        return self.access is not Access.ANYONE

    @property
    def takes_session(self) -> bool:
        """Whether `--session` names the session that it is about."""
        return any(each.field == "session" for each in self.arguments)
