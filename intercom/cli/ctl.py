"""The `agent-intercom-ctl` command: shows what waits for a person and sends the person's answers.

Its parser is made from the table of operator commands, and from `LOCAL`. The module starts on the standard library
alone. It imports the drawing code only if there is something to draw.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intercom._version import __version__
from intercom.cli.command_examples import CTL_EXAMPLES, examples
from intercom.cli.parser import USAGE, JsonParser, Parser, asks_help, complete, is_completing
from intercom.operators.commands.command import Access, Argument, OperatorCommand
from intercom.operators.commands.command_table import COMMANDS, FIELDS, SUBJECTS, WATCH, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from intercom.local.places import Places
    from intercom.model.json_types import Json, JsonObject

PROGRAM = "agent-intercom-ctl"

#: Exit codes.
DONE, REFUSED, NO_SERVER = 0, 1, 3

#: Seconds that a command waits for a server that is being started.
START_SECONDS = 10.0
#: Seconds between two requests for more of an agent's output.
_OUTPUT_PAUSE = 0.25

#: Options that are allowed anywhere on the line, and whether each takes a value.
ANYWHERE = {"--json": False, "--ipc-name": True, "--session": True, "--config": True}

_KEY = Argument("[KEY]", "id", "which one; default: the only one")

#: Commands that ctl carries out itself, most of them without a server.
LOCAL = {
    row.name: row
    for row in (
        OperatorCommand(
            WATCH,
            Access.ANYONE,
            "open the inbox: what waits for you, on the whole screen, answered with a key",
            (Argument("--plain", help="print line by line instead, as without a terminal"),),
        ),
        OperatorCommand(
            "audit-verify",
            Access.ANYONE,
            "verify that nothing was changed, removed or added; works without a server",
            (Argument("[FILE]", "file", "what audit export wrote (default: the database)"),),
        ),
        OperatorCommand(
            "audit-export",
            Access.ANYONE,
            "print every entry as a JSON line, and the head as the last one; works without a server",
        ),
        OperatorCommand(
            "key-create",
            Access.OPERATOR,
            "create a key, under a PIN that you choose",
            (Argument("--name TEXT", "name", "what it is called (default: you and this machine)"),),
        ),
        OperatorCommand("key-list", Access.OPERATOR, "list the keys"),
        OperatorCommand(
            "key-unlock",
            Access.OPERATOR,
            "keep a key unlocked in this terminal, until it is not used for a while",
            (_KEY,),
        ),
        OperatorCommand("key-lock", Access.OPERATOR, "lock the key in every terminal"),
        OperatorCommand("key-enrol", Access.OPERATOR, "make this machine's key count for the running server", (_KEY,)),
        OperatorCommand(
            "key-add",
            Access.OPERATOR,
            "let a passkey count that you have made on the page",
            (Argument("CODE", "id", "what the page shows"),),
        ),
        OperatorCommand("key-revoke", Access.OPERATOR, "revoke a key", (Argument("KEY", "id"),)),
        OperatorCommand(
            "key-settings",
            Access.OPERATOR,
            "sign your settings that allow decisions without the key, so that they count",
            (_KEY._replace(help="which key signs; default: the only one"),),
        ),
        OperatorCommand("key-change-pin", Access.OPERATOR, "choose another PIN for a key", (_KEY,)),
    )
}

#: The commands that decide one request or several.
_DECIDES = ("approve", "reject")

#: Commands of two words: the first word, and its help.
GROUPS = {
    "policy": "the policies of the workspaces, and what was accepted of them",
    "audit": "the audit log: whether it was tampered with, and all of it as JSON lines",
    "key": "operator keys, with which you sign your decisions",
    "rooms": "rooms, in which teams of agents work together",
    "token": "tokens with which programs use the API of the page",
    "push": "messages to browsers while the page is closed",
    "people": "who may use the page, and who is signed in there",
    "gateway": "other MCP servers, which agents reach through this one",
}

#: What is typed, one word or two, and its row.
TYPED: dict[tuple[str, ...], OperatorCommand] = {
    (tuple(row.name.split("-", 1)) if row.name.partition("-")[0] in GROUPS else (row.verb or row.name,)): row
    for row in (*COMMANDS.values(), *LOCAL.values())
    if row.is_typed
}

#: Other words that are typed for a command.
ALIASES = {word: row for row in TYPED.values() for word in row.aliases}

#: The options with a value of commands that end with a text.
_VALUED = frozenset(
    word
    for row in COMMANDS.values()
    if any(each.takes_rest for each in row.arguments)
    for each in row.arguments
    if each.placeholder
    for word in each.options
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0 if done, 1 if the server refused, 2 for wrong usage, 3 for no server, 130 on ^C."""
    words = asks_help(hoist(sys.argv[1:] if argv is None else argv))
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    if sys.stderr is None or (sys.stderr is sys.__stderr__ and not _is_read(2)):
        # What is said there must not end the command.
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    # Characters that the terminal's encoding lacks are written as escapes instead of raising an error.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if is_completing():
        complete(parser(), _ids)
    words = words if as_json else _or_watch(words)
    word = next((word for word, is_free in zip(words, _free(words, ()), strict=True) if is_free), "")
    options = parser(as_json=as_json, word=word).parse_args(words)
    code = DONE
    try:
        code = _run(options)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python would complain again when it closes the stream.
        stream, code = (sys.stderr, REFUSED) if _is_read(sys.stdout.fileno()) else (sys.stdout, code)
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return code


def _is_read(descriptor: int) -> bool:
    """Whether what is written there may still have a reader."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(events & select.POLLERR for _, events in poll.poll(0))


def _or_watch(words: Sequence[str]) -> list[str]:
    """Add the command that opens the inbox to a line without a command, if a person sits at a terminal."""
    has_command = any(_free(words)) or {"-h", "--help", "--"} & set(words)
    return [*words, *([] if has_command or not (sys.stdin.isatty() and sys.stdout.isatty()) else [WATCH])]


def hoist(words: Sequence[str]) -> list[str]:
    """Move the options that are allowed anywhere to the front of the words. Nothing after `--` moves. Nothing inside a
    text moves either: it may be part of the text, and the parser refuses it there."""
    front: list[str] = []
    rest: list[str] = []
    line = list(words)
    end = line.index("--") if "--" in line else len(line)
    free = [at for at, is_free in enumerate(_free(line[:end])) if is_free]
    # The positions of the text's first and last word.
    typed = tuple(line[each] for each in free[:2])
    command = typed if typed in TYPED else typed[:1]
    row = TYPED.get(command) or ALIASES.get("".join(command))
    begins = None if row is None else _text_at(row, len(command))
    first = free[begins] if begins is not None and begins < len(free) else end
    last = free[-1] if free else -1
    at = 0
    while at < end:
        name, equals, _ = line[at].partition("=")
        size = 2 if ANYWHERE.get(name) and not equals else 1
        amid = first < at < last or (first < at and name == "--session" and not (row and _is_about_session(row)))
        (front if name in ANYWHERE and not amid else rest).extend(line[at : min(at + size, end)])
        at += size
    return front + rest + line[end:]


def _free(line: Sequence[str], valued: Collection[str] = _VALUED) -> list[bool]:
    """Tell for each word whether it is neither an option nor the value of one that is allowed anywhere or `valued`."""
    found: list[bool] = []
    is_value = False
    for word in line:
        found.append(not is_value and not word.startswith("-"))
        is_value = not is_value and (ANYWHERE.get(word, False) or word in valued)
    return found


def _text_at(row: OperatorCommand, words: int) -> int | None:
    """Return the number of words before the text that ends the line; None if no text ends it. The command itself has
    `words` words."""
    places = [each.takes_rest for each in row.arguments if each.is_positional]
    return words + places.index(True) if True in places else None


def _is_about_session(row: OperatorCommand) -> bool:
    """Tell whether only --session names the session that the command is about."""
    return any(each.field == "session" and not each.shape for each in row.arguments)


#: Where the ids come from that complete a command's argument: the command that lists them, and the field that has them.
_LISTED = {"session": ("list", "session_id"), "checkpoint": ("checkpoints", "checkpoint_id")}
_LISTED_OF_GROUP = {
    "rooms": ("rooms-list", "room_id"),
    "gateway": ("gateway-list", "name"),
    "push": ("push-list", "push_id"),
    "people": ("people-list", "browser_id"),
}
#: Seconds that a completion waits for the server.
_COMPLETION_PATIENCE = 0.5


def _ids(argument: str, options: argparse.Namespace) -> list[str]:
    """Return what may complete an argument, from the running server; nothing if there is none."""
    try:
        row = row_of(options)
        fields = {each.wire: each for each in row.arguments if each.is_positional}
        taken = fields[argument]
        kind = "checkpoint" if taken.shape == "CHECKPOINT" else taken.field
        listed, key = _LISTED_OF_GROUP.get(options.command) or _LISTED.get(kind) or ("pending", "request_id")
        if argument not in ("id", "session"):
            return []
        from intercom.cli.ctl_text import SHORT
        from intercom.operators.ctl.client import request

        data = request(_places(options), listed, {}, patience=_COMPLETION_PATIENCE)
        lists = [data] if isinstance(data, list) else [each for each in data.values() if isinstance(each, list)]
        entries = next(each for each in lists if any(key in entry for entry in each))
        return [str(each[key])[:SHORT] if key.endswith("_id") else str(each[key]) for each in entries]
    except Exception:
        # Nothing may be written into the line that the person types.
        return []


class _BySubject(argparse.HelpFormatter):
    """Lists the commands by what they are about: one on a line, with its help, they do not fit a terminal."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        width = max(map(len, SUBJECTS)) + 2
        return "".join(f"  {subject:<{width}}{' '.join(words)}\n" for subject, words in SUBJECTS.items())


def parser(*, as_json: bool = False, word: str | None = None) -> argparse.ArgumentParser:
    """Build the command line. With the first `word` of a line it has only the commands that begin with it, which takes
    a tenth of the time, but all if none does. For a line without a word ("") it has none: the help names them by
    subject. With `as_json` its errors are JSON."""
    made = JsonParser if as_json else Parser
    top = made(
        prog=PROGRAM,
        description="See what your coding agents ask, and answer them.",
        formatter_class=_BySubject,
        epilog="Without a COMMAND, on a terminal, it opens the inbox, as watch does. "
        "The options above may also follow the command; put -- before a text that contains one. "
        "The shortest unique start of an id is enough. "
        "Exit codes: 0 done, 1 refused by the server, 2 wrong usage, 3 no server.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    top.add_argument("--json", action="store_true", help="print one JSON value and nothing else")
    top.add_argument("--ipc-name", metavar="NAME", help="which server: its ipc_name (default: the configured one)")
    top.add_argument("--config", metavar="FILE", help="read ipc_name from this configuration file")
    top.add_argument(
        "--session", metavar="ID", help=f"which session, or only this one ({', '.join(_taking_session())})"
    )
    verbs = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=made, title="commands (COMMAND --help says more)"
    )
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    named = {typed: row for typed, row in TYPED.items() if word == typed[0] or word in row.aliases}
    for (first, *rest), row in ({} if word == "" else named or TYPED).items():
        if rest and first not in groups:
            acts = "|".join(act for group, *act_ in TYPED if group == first for act in act_)
            group = verbs.add_parser(first, help=GROUPS[first], description=GROUPS[first], allow_abbrev=False)
            groups[first] = group.add_subparsers(dest="act", metavar=acts, required=True, parser_class=made)
        where, name = (groups[first], rest[0]) if rest else (verbs, first)
        _add_arguments(
            where.add_parser(
                name,
                aliases=row.aliases,
                help=row.help,
                description=row.help,
                epilog=examples(PROGRAM, CTL_EXAMPLES, " ".join((first, *rest))),
                formatter_class=argparse.RawDescriptionHelpFormatter,
                allow_abbrev=False,
            ),
            row,
        )
    return top


def _add_arguments(to: argparse.ArgumentParser, row: OperatorCommand) -> None:
    flags = [each.field for each in row.arguments if each.options and not each.placeholder and each.field]
    exclusive = to.add_mutually_exclusive_group() if len(set(flags)) < len(flags) else to
    for each in row.arguments:
        if each.is_positional:
            nargs = {"[...]": "*", "...": "+", "[]": "?"}.get("".join(char for char in each.shape if char in "[.]"))
            named: dict[str, Any] = {"choices": each.choices} if each.choices else {"metavar": each.placeholder}
            to.add_argument(each.wire, nargs=nargs, help=each.help, type=_type_of(each), **named)
        elif " " in each.placeholder:
            values = tuple(each.placeholder.split(" "))
            to.add_argument(*each.options, metavar=values, nargs=len(values), action="append", help=each.help)
        elif each.placeholder:
            to.add_argument(*each.options, metavar=each.placeholder, type=_type_of(each), help=each.help)
        elif each.options:
            where = exclusive if flags.count(each.field) > 1 else to
            where.add_argument(*each.options, action="store_true", help=each.help)


def row_of(options: argparse.Namespace) -> OperatorCommand:
    """Return the row of a parsed command line."""
    words = (options.command, options.act) if options.command in GROUPS else (options.command,)
    return TYPED.get(words) or ALIASES[options.command]


def fields_of(options: argparse.Namespace) -> tuple[str, JsonObject]:
    """Translate a parsed command line into the request's command and fields."""
    row = row_of(options)
    fields: JsonObject = {}
    for each in row.arguments:
        if not each.field or not each.shape:
            continue
        value = getattr(options, each.options[-1].strip("-").replace("-", "_") if each.options else each.wire)
        if each.takes_rest:
            value = " ".join(value) or None
        elif each.options and not each.placeholder:
            value = each.value if value else None
        if value is None and options.session is None:
            value = each.default
        if value is not None:
            fields[each.wire] = os.path.abspath(value) if each.wire == "workspace" else value
    if options.session is not None:
        fields["session"] = options.session
    if options.command == "policy":
        from intercom.cli.ctl_policy import policy_subject

        fields |= policy_subject(fields.pop("id", None))
    return row.name, fields


def _taking_session() -> list[str]:
    return sorted(name for name, row in COMMANDS.items() if row.takes_session)


def _run(options: argparse.Namespace) -> int:
    from intercom.model.errors import IntercomError
    from intercom.operators.ctl.client import MAY_BE_DONE, NoServer, Refusal

    is_all = options.command in _DECIDES and options.all
    if options.session is not None and not row_of(options).takes_session and not is_all:
        sentence = f"--session is not for {options.command}; it is for {', '.join(_taking_session())}"
        return _complain(options, sentence, "invalid_arguments", USAGE)
    try:
        where = _places(options)
    except IntercomError as error:
        return _complain(options, error.message, error.error_code, USAGE)
    is_local = options.command in ("audit", "key")
    try:
        if is_local:
            return _local(where, options)
        if options.command != WATCH:
            _await_start(where)
        return _carry_out(where, options)
    except NoServer as none:
        if options.command == "rooms":
            starts = "start one with 'agent-intercom rooms', or set enabled under [rooms] in a server's configuration"
        else:
            starts = "an agent that uses Intercom starts one, and so does 'agent-intercom serve'"
        begun = f"; {MAY_BE_DONE}" if none.may_be_done else ""
        return _complain(options, f"no server answers at {where.ctl_socket}{begun}; {starts}", "ipc", NO_SERVER)
    except Refusal as refusal:
        return _complain(options, str(refusal), refusal.code, REFUSED, refusal.details)
    except IntercomError as error:
        # Without a server it is the command's own refusal. Else the process that listens there is not this user's
        # server, or no server at all.
        return _complain(options, error.message, error.error_code, REFUSED if is_local else NO_SERVER)
    except BrokenPipeError:
        # Of standard output: the client tells its own apart.
        raise
    except OSError as error:
        if is_local:
            raise
        return _complain(options, f"the socket failed: {error.strerror or error}", "ipc", NO_SERVER)


def _local(where: Places, options: argparse.Namespace) -> int:
    """Carry out a command that needs no server."""
    if options.command == "audit":
        from intercom.cli.ctl_audit import audit

        return audit(where, options)
    from intercom.cli.ctl_key import key

    return key(where, options)


def _await_start(where: Places) -> None:
    """Wait for a server that is being started. Only before the command: it may have several requests, and must not be
    repeated once a server has carried out the first."""
    from intercom.local.wire import connect
    from intercom.model.errors import IntercomError

    try:
        connect(where.ctl_socket).close()
    except (FileNotFoundError, ConnectionRefusedError):
        from intercom.agents.shim import launch

        if launch.is_claimed(where):
            print(f"{PROGRAM}: a server is starting: waiting for it, at most {START_SECONDS:.0f} s", file=sys.stderr)
            launch.wait_until_started(where, START_SECONDS)
    except (IntercomError, OSError):
        # The command says so.
        return


def _carry_out(where: Places, options: argparse.Namespace) -> int:
    """Send a command, and show the answer. Raises what `send` raises."""
    from intercom.cli.ctl_sign import send

    if options.command == "answer" and options.decision == "refine" and not options.text:
        return _complain(options, "refine needs the text that the agent should follow", "invalid_arguments", USAGE)
    if options.command == WATCH:
        from intercom.cli.ctl_watch import watch

        return watch(where, plain=options.plain, as_json=options.json)
    if options.command == "tree" and options.watch:
        from intercom.cli.ctl_watch import watch_tree

        return watch_tree(where, as_json=options.json)
    command, fields = fields_of(options)
    if command in _DECIDES and bool(options.id) is options.all:
        return _complain(
            options, "give the ids of requests (see pending), or --all, and not both", "invalid_arguments", USAGE
        )
    if command == "logs":
        return _logs(where, fields, follow=options.follow, as_json=options.json)
    if command == "web":
        from intercom.cli.browser import web

        return web(where, fields, prints=options.print, as_json=options.json)
    if command == "restore":
        from intercom.cli.ctl_restore import restore

        return restore(where, fields, yes=options.yes, as_json=options.json)
    if options.command == "policy":
        from intercom.cli.ctl_policy import policy

        yes = options.act == "accept" and options.yes
        return policy(where, options.act, fields, yes=yes, as_json=options.json)
    if options.command == "allow":
        from intercom.cli.ctl_policy import allow

        return allow(where, fields, yes=options.yes, as_json=options.json)
    if options.command == "grant":
        from intercom.cli.ctl_grant import grant

        return grant(where, fields, yes=options.yes, as_json=options.json)
    if options.command == "rooms":
        from intercom.cli.ctl_rooms import rooms

        is_chosen = options.ipc_name is not None or options.config is not None
        if options.act == "url" and options.url is not None and options.clear:
            return _complain(options, "give an address or --clear, not both", "invalid_arguments", USAGE)
        follow = options.act == "tail" and options.follow
        return rooms(where, command, fields, is_chosen=is_chosen, follow=follow, as_json=options.json)
    if options.command == "gateway":
        from intercom.cli.ctl_gateway import gateway

        follow = options.act == "tail" and options.follow
        words = options.text if options.act == "call" else ()
        return gateway(where, command, fields, words=words, config=options.config, follow=follow, as_json=options.json)
    if command == "changes" or (command in _DECIDES and _needs_preview(options)):
        from intercom.cli.ctl_amend import decide

        return decide(where, command, fields, options)
    data = send(where, command, fields)
    if options.json:
        print(json.dumps(data))
    else:
        _show(where, COMMANDS[command], data, is_full=command == "show" or (command == "pending" and options.full))
    return DONE


def _needs_preview(options: argparse.Namespace) -> bool:
    """Tell whether a decision is about several cards, or about a part of one: then what will happen is shown first."""
    return len(options.id) != 1 or (options.command == "approve" and (options.edit or options.hunks is not None))


def _show(where: Places, row: OperatorCommand, data: Any, *, is_full: bool) -> None:
    """Print an answer for people. With `is_full` it is of cards with their diffs."""
    if not row.draws:
        from intercom.cli.ctl_text import done_line

        print(done_line(data))
        return
    if row.name == "pending" and data:
        from intercom.cli.ctl_sign import say_without_key
        from intercom.operators.ctl.client import NoServer, Refusal

        with contextlib.suppress(NoServer, Refusal):
            say_without_key(where)
    from intercom.cli import ctl_draw

    if not is_full:
        ctl_draw.show(row.name, data)
    elif not ctl_draw.show_by_page(row.name, data) and sys.stdout.isatty():
        # By a pager a person may have seen the first page only.
        from intercom.cli.ctl_sign import note_shown
        from intercom.model.card import Card
        from intercom.operators.commands.json_forms import read

        lines = ctl_draw.PENDING_LINES if row.name == "pending" else None
        cards = data if row.name == "pending" else [data]
        note_shown(where, [card for card in cards if ctl_draw.is_whole(read(Card, card), lines)])


def _logs(where: Places, fields: JsonObject, *, follow: bool, as_json: bool) -> int:
    """Print an agent's output, with `follow` until the agent has ended. If the server goes away, each request waits for
    it as usual. Raises what `request` raises."""
    from intercom.operators.ctl.client import request

    piece = request(where, "logs", fields)
    _print_output(piece, as_json)
    while follow and (piece["is_going"] or piece["text"]):
        if not piece["text"]:
            time.sleep(_OUTPUT_PAUSE)
        rest = {name: value for name, value in fields.items() if name != "limit"}
        before, piece = piece["end"], request(where, "logs", {**rest, "start": piece["end"]})
        if piece["start"] > before and not as_json:
            print(f"[{piece['start'] - before} bytes are gone: more was written than is kept]", file=sys.stderr)
        if piece["text"]:
            _print_output(piece, as_json)
    if follow and not as_json and piece["exit"] is not None:
        print(f"[ended: {piece['exit']}]", file=sys.stderr)
    return DONE


def _print_output(piece: JsonObject, as_json: bool) -> None:
    if as_json:
        print(json.dumps(piece), flush=True)
        return
    from intercom.cli.ctl_text import clean

    # An agent wrote this; it must not control the terminal.
    sys.stdout.write(clean(str(piece["text"]).replace("\r\n", "\n")))
    sys.stdout.flush()


def _places(options: argparse.Namespace) -> Places:
    from intercom.local.places import recorded

    where = _named_places(options)
    # The server may have been started in another environment.
    return where if os.path.exists(where.ctl_socket) else recorded(where, options.config) or where


def _named_places(options: argparse.Namespace) -> Places:
    from intercom.local.places import ipc_name_in, places

    if options.ipc_name is not None:
        return places(options.ipc_name)
    if options.config is not None and not os.path.exists(options.config):
        from intercom.model.errors import ConfigError

        raise ConfigError(f"there is no configuration file at {options.config}")
    return places(ipc_name_in(options.config or places().config_file))


def _complain(options: argparse.Namespace, sentence: str, code: str, exit_code: int, details: Json = None) -> int:
    if options.json:
        reply = {"ok": False, "error": sentence, "error_code": code}
        print(json.dumps(reply if details is None else {**reply, "details": details}))
        return exit_code
    from intercom.cli.ctl_text import clean

    print(f"{PROGRAM}: {clean(sentence)}", file=sys.stderr)
    return exit_code


def _type_of(argument: Argument) -> Callable[[str], str | int]:
    """Return what reads the value of an argument."""
    return {Kind.NUMBER: number, Kind.OFFSET: _offset}.get(FIELDS.get(argument.wire, Kind.TEXT), str)


def _offset(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return number


def number(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 10_000:
        raise argparse.ArgumentTypeError("must be from 1 to 10000")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
