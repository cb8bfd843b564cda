"""What ctl prints for people: cards with their diff in colour, tables, the tree.

Text that an agent wrote goes through `clean` into a `Text`, never through markup. There is no colour without a terminal
or with NO_COLOR set. Without a terminal, no line is wrapped.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import TYPE_CHECKING

from attrs import frozen
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from intercom.cli.ctl_table import age, print_table, safe_text, timestamp
from intercom.cli.ctl_text import clean, count, one_line, short
from intercom.model import signing
from intercom.model.audit import AuditEntry, LogEntry
from intercom.model.card import AGENTS, Card, CardKind, CardState
from intercom.model.card_hunks import hunks_of, new_line_numbers
from intercom.model.checkpoint import CheckpointLine, LeftOut
from intercom.model.client_titles import title_of
from intercom.model.decision import PAST, Signature
from intercom.model.errors import InvalidArguments
from intercom.model.json_types import Json, JsonObject
from intercom.model.process import Origin
from intercom.model.request import FileChange, RiskLevel
from intercom.model.room import Room
from intercom.model.session import Instruction, Session, SessionStatus
from intercom.operators.commands.command_table import (
    COMMANDS,
    HOW_TO_AMEND,
    HOW_TO_ANSWER,
    HOW_TO_CHOOSE,
    HOW_TO_PERMIT,
)
from intercom.operators.commands.json_forms import read

if TYPE_CHECKING:
    pass

PROGRAM = "agent-intercom-ctl"

#: Prints an answer of the server; ages are relative to the time.
Drawing = Callable[[Console, Json, datetime], None]

#: The most lines of a diff that `pending` shows; `show` shows all.
PENDING_LINES = 60

RISK_STYLE = {"low": "black on green", "high": "black on yellow", "critical": "bold white on red"}
STATE_STYLE = {"pending": "yellow", "approved": "green", "applied": "green", "rejected": "red", "expired": "red"}
_HEADERS = ("diff ", "--- ", "+++ ", "rename ", "new ")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
#: The most remarks on a diff that `pending` draws; `show` draws all.
PENDING_REMARKS = 6
#: The statuses that only repeat the decision. A later status is not an act of the person who decided.
VERDICT = (CardState.APPROVED, CardState.REJECTED, CardState.ANSWERED)
LEVEL_STYLE = {"success": "green", "warning": "yellow", "error": "red"}
TEAM_STYLE = {"active": "green", "idle": "yellow"}


class _Console(Console):
    """A console that leaves it to the caller what follows if its reader has gone: rich's own ends with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Return the console for all drawing: standard output, without rich's markup, emoji and highlighting."""
    # Without a terminal, there is no width to wrap lines at.
    width = None if sys.stdout.isatty() else 1000
    return _Console(markup=False, emoji=False, highlight=False, width=width)


def show(
    command: str, data: Json, on: Console | None = None, at: datetime | None = None, *, is_full: bool = False
) -> None:
    """Draw the server's answer to a command whose row says how; with `is_full`, cards with their diffs instead of a
    line each. Ages are relative to `at`. Raises IpcError if the answer is of another version."""
    name = COMMANDS[command].draws
    draw = (drawing(f"{name}_in_full") if is_full else None) or drawing(name)
    assert draw is not None, "each row that is drawn names a drawing"
    draw(on or console(), data, at or now())


def drawing(name: str) -> Drawing | None:
    """Return the drawing of this name, of this module or of `ctl_draw_server`; None if there is none."""
    found: Drawing | None = globals().get(f"draw_{name}")
    if found is None:
        from intercom.cli import ctl_draw_server

        found = getattr(ctl_draw_server, f"draw_{name}", None)
    return found


def show_by_page(command: str, data: Json) -> bool:
    """Draw as `show` does with `is_full`: on a terminal that is too short for it, by the pager that $PAGER names, or
    `less`. Returns whether a pager showed it. Raises IpcError as `show` does."""
    on = console()
    pager = shlex.split(os.environ.get("PAGER") or "less")
    if not on.is_terminal or on.is_dumb_terminal or pager == ["cat"] or shutil.which(pager[0]) is None:
        show(command, data, on, is_full=True)
        return False
    with on.capture() as drawn:
        show(command, data, on, is_full=True)
    text = drawn.get()
    if len(on.render_lines(Text.from_ansi(text), pad=False)) < on.height:
        on.file.write(text)
        return False
    # As git does: less shows colours, ends if all is on one page, and leaves it on the screen.
    program = subprocess.Popen(pager, stdin=subprocess.PIPE, text=True, env={"LESS": "FRX", **os.environ})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # The person may leave before the end.
        with contextlib.suppress(BrokenPipeError):
            program.communicate(text)
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def now() -> datetime:
    return datetime.now(UTC)


@frozen
class _Process:
    """The process of a session whose agent a person started."""

    label: str | None = None


@frozen
class _SessionFacts:
    """What `list` says of a session besides the session."""

    waiting: int = 0
    process: _Process | None = None


def draw_sessions(on: Console, data: Json, at: datetime) -> None:
    """Draw the sessions. The label is the person's name for the agent, or else its client's title."""
    sessions = read(list[Session], data, "sessions")
    rows = [
        (
            short(session.id),
            safe_text(session.status, STATE_STYLE.get(session.status, "")),
            safe_text(str(facts.waiting or "-"), "yellow" if facts.waiting else ""),
            safe_text(one_line((facts.process and facts.process.label) or title_of(session.client_name) or "-")),
            safe_text(session.mode),
            safe_text(session.workspace_root),
            safe_text(session.last_tool or "-"),
            age(session.updated_at, at),
        )
        for session, facts in zip(sessions, read(list[_SessionFacts], data, "sessions"), strict=True)
    ]
    columns = ("session", "status", "waiting", "label", "mode", "workspace", "last tool", "active")
    print_table(on, columns, rows, "no sessions: none of your agents is connected")
    if on.is_terminal and any(each.status is SessionStatus.INTERRUPTED for each in sessions):
        # To a newcomer it reads like a fault, also after an agent that finished its work.
        text = "interrupted: its agent has gone; the session goes on when the agent comes back"
        on.print(safe_text(text, "dim"), soft_wrap=True)


def draw_pending(on: Console, data: Json, at: datetime) -> None:
    cards = read(list[Card], data)
    rows = [
        (
            short(card.id),
            safe_text((card.risk or "-").upper(), RISK_STYLE.get(card.risk or "", "")),
            safe_text(card.kind),
            safe_text(one_line(card.title)),
            age(card.created_at, at),
            short(card.session_id),
        )
        for card in cards
    ]
    print_table(on, ("id", "risk", "kind", "title", "age", "session"), rows, "nothing waits for you")
    if rows and on.is_terminal:
        on.print(safe_text(f"{PROGRAM} show ID shows one in full, and how to answer it", "dim"), soft_wrap=True)


def draw_pending_in_full(on: Console, data: Json, at: datetime) -> None:
    cards = read(list[Card], data)
    if not cards:
        on.print("nothing waits for you")
    for index, card in enumerate(cards):
        if index:
            on.print()
        print_card(on, card, at, lines=PENDING_LINES)


def draw_card(on: Console, data: Json, at: datetime) -> None:
    print_card(on, read(Card, data), at)


def print_card(on: Console, card: Card, at: datetime, lines: int | None = None, *, hints: bool = True) -> None:
    """Draw one card: badge and title, origin, text, diff (at most `lines` lines), and the commands that answer it."""
    for line in card_lines(card, at, lines, width=on.width if on.is_terminal else None):
        # Prose wraps at words on a terminal. A line of a patch stays one line, so that it can be copied.
        for row in _marked_rows(on, line) if line.plain.startswith((_BAR, _FROM)) else (line,):
            on.print(row, soft_wrap=bool(line.no_wrap) or not on.is_terminal)
    commands = answers(card, whole=lines is None) if hints else []
    permits = [each for each in commands if each in _permits(card)]
    for command in commands:
        if permits and command == permits[0]:
            on.print(safe_text("  or let requests like it pass without you, in this session for a while, or for good:"))
        on.print(safe_text(f"  {command}", "cyan"), soft_wrap=True)


def is_whole(card: Card, lines: int | None) -> bool:
    """Tell whether `print_card` with this limit shows all of a card."""
    if card.diff_omitted:
        return False
    if lines is None:
        return True
    count = (card.diff or "").removesuffix("\n").count("\n") + 1
    return count <= lines and len(card.remarks) <= PENDING_REMARKS


def card_lines(card: Card, at: datetime, lines: int | None = None, *, width: int | None = None) -> Iterable[Text]:
    """Yield the lines of a card, top to bottom. In a `width` that has room for it, the new files' lines are numbered
    beside the diff of a proposal that waits, so that a person can comment on them."""
    head = Text()
    if card.risk:
        head.append(f" {card.risk.upper()} ", RISK_STYLE.get(card.risk, "reverse")).append(" ")
    if card.kind is CardKind.APPROVAL:
        head.append("Agent asks: ")
    head.append(one_line(card.title), "bold")
    yield head
    facts = [card.kind, card.id if lines is None else short(card.id), f"{age(card.created_at, at)} ago"]
    if card.expires_at and card.state is CardState.PENDING:
        facts.append(f"expires in {age(at, card.expires_at)}")
    facts += [f"session {short(card.session_id)}", card.workspace_root]
    yield safe_text(" · ".join(one_line(fact) for fact in facts), "dim")
    if card.state is not CardState.PENDING:
        first, *others = _state_text(card).split("\n")
        yield safe_text(one_line(first), STATE_STYLE.get(card.state, ""))
        # Indented, so that no line of a person's text looks like one of the card's own.
        yield from (safe_text(f"    {one_line(line)}") for line in others if line.strip())
        if card.decided and card.decided.origin and (source := card.decided.origin.describe()):
            yield safe_text(one_line(f"from {source}"), "dim")
        if card.decided and card.decided.signature:
            yield safe_text(one_line(_signed(card.decided.signature)), "dim")
    if card.away:
        yield safe_text("the agent does not wait any more; your answer reaches it when it comes back", "yellow")
    if card.body:
        yield from _agents(card.body) if card.kind in AGENTS else (safe_text(card.body),)
    # A proposal's detail is its path, which the list of files shows with more facts.
    if card.detail and card.detail not in [change.path for change in card.files]:
        yield safe_text(card.detail)
    if card.note:
        yield safe_text(card.note, "italic")
    for change in card.files:
        yield _change(change)
    yield from _remarks(card, None if lines is None else PENDING_REMARKS)
    yield from _diff(card, lines, width)


#: What stands before an agent's text, and before each line of one that has several.
_FROM = "from the agent:"
_BAR = "│ "


def _agents(text: str) -> Iterable[Text]:
    """Yield an agent's text, marked so that no line of it looks like Intercom's own."""
    lines = clean(text).strip("\n").split("\n")
    label = Text(_FROM, "dim")
    if len(lines) == 1:
        yield label.append(" ").append(lines[0], "not dim")
        return
    yield label
    for line in lines:
        yield Text(_BAR, "dim").append(line, "not dim")


def _marked_rows(on: Console, text: Text) -> Iterable[Text]:
    """Yield the rows that an agent's text takes, with a mark before each but the first. Where a terminal wraps a line
    by itself, what follows has no mark."""
    first, *rest = text.wrap(on, max(on.width - len(_BAR), 1)) if on.is_terminal else text.split("\n", allow_blank=True)
    yield first
    for row in rest:
        yield Text(_BAR, "dim").append_text(row)


def answers(card: Card, *, whole: bool = False) -> list[str]:
    """List the commands that answer an open card. With `whole` also those for a part of a proposal, and those that let
    requests like it pass in advance."""
    commands = HOW_TO_ANSWER.get(card.kind, ()) if card.state is CardState.PENDING else ()
    hunks, line = "", "LINE" if len(card.files) == 1 else "FILE:LINE"
    if commands and card.amendable and whole:
        numbers = [*_hunk_numbers(card).values()]
        # The first and the last of three, as an example; of two, one.
        hunks = "" if not numbers else "1" if len(numbers) < 3 else "1,3"
        commands += ((HOW_TO_CHOOSE,) if hunks else ()) + HOW_TO_AMEND
    named = [f"{PROGRAM} {each.format(id=short(card.id), hunks=hunks, line=line)}" for each in commands]
    # What is critical always needs a person.
    if commands and whole and card.kind is CardKind.APPROVAL and card.risk is not RiskLevel.CRITICAL:
        named += _permits(card)
    return named


def _permits(card: Card) -> list[str]:
    """List the commands that let requests like an approval's pass in advance."""
    return [f"{PROGRAM} {each.format(id=short(card.id))}" for each in HOW_TO_PERMIT]


def print_notice(on: Console, entry: JsonObject) -> None:
    # Further lines are marked: an agent's text may look like a card.
    text = safe_text(str(entry["text"]), LEVEL_STYLE.get(str(entry.get("level")), ""))
    for row in _marked_rows(on, Text("• ").append_text(text)):
        on.print(row, soft_wrap=True)


def draw_instructions(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            short(told.id),
            safe_text(told.kind),
            safe_text(f"{told.status} {timestamp(told.delivered_at)}".rstrip()),
            safe_text(short(told.session_id) if told.session_id else told.workspace_root or ""),
            safe_text(told.by),
            age(told.at, at),
            safe_text(one_line(told.text)),
        )
        for told in read(list[Instruction], data, "words")
    ]
    columns = ("id", "kind", "status (UTC)", "for", "from", "age", "")
    print_table(on, columns, rows, "nothing: no messages or tasks for an agent")


def draw_checkpoints(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            short(each.id),
            safe_text(one_line(each.label or "-")),
            short(each.session_id),
            str(each.files),
            str(each.kept),
            str(each.size),
            f"{age(each.created_at, at)} ago",
            safe_text(each.workspace_root),
        )
        for each in read(list[CheckpointLine], data, "checkpoints")
    ]
    columns = ("checkpoint", "label", "session", "files", "kept", "bytes", "taken", "workspace")
    print_table(on, columns, rows, "no checkpoints yet: agent-intercom-ctl checkpoint takes one")


def draw_taken(on: Console, data: Json, at: datetime) -> None:
    taken = read(CheckpointLine, data)
    name = f"{taken.id} ({taken.label})" if taken.label else taken.id
    line = f"checkpoint {name}: {count(taken.files, 'file')}, {count(taken.size, 'byte')}, {taken.kept} can be put back"
    for each in read(list[LeftOut], data, "left_out"):
        some = f": {', '.join(each.examples)}" if each.examples else ""
        line += f"; left out: {each.count} {each.why}{some}"
    on.print(safe_text(one_line(line)), soft_wrap=True)


@frozen
class _TeamLine:
    """A team of `rooms-show`."""

    team_name: str
    role: str
    status: str
    unread: int
    last_seen_at: datetime
    left_at: datetime | None


@frozen
class _Match:
    """A place of `rooms-search`."""

    room_id: str
    title: str
    where: str
    cursor: int | None
    excerpt: str


@frozen
class _Document:
    """The document of `rooms-show`."""

    document: str


def draw_rooms(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            short(room.id),
            safe_text(_room_state(room), "yellow" if room.is_paused else ""),
            str(room.last_sequence),
            str(room.session_doc_version),
            age(room.updated_at, at),
            safe_text(one_line(room.title)),
        )
        for room in read(list[Room], data, "rooms")
    ]
    columns = ("room", "status", "messages", "document", "changed", "")
    print_table(on, columns, rows, "no open rooms: an agent makes one with create_session; rooms url says where")


def draw_room(on: Console, data: Json, at: datetime) -> None:
    room, teams = read(Room, data), read(list[_TeamLine], data, "teams")
    on.print(safe_text(one_line(room.title), "bold"), soft_wrap=True)
    facts = [
        f"room {room.id}",
        _room_state(room),
        f"{age(room.created_at, at)} old",
        count(room.last_sequence, "message"),
        f"document version {room.session_doc_version}",
    ]
    on.print(safe_text(" · ".join(facts), "dim"), soft_wrap=True)
    if room.is_paused:
        reason = f": {room.pause_reason}" if room.pause_reason else ""
        on.print(safe_text(one_line(f"paused by {room.paused_by}{reason}"), "yellow"), soft_wrap=True)
    if room.description:
        on.print(safe_text(room.description), soft_wrap=not on.is_terminal)
    on.print()
    rows = [
        (
            safe_text(one_line(team.team_name)),
            safe_text(team.role),
            safe_text("left" if team.left_at is not None else team.status, TEAM_STYLE.get(team.status, "dim")),
            str(team.unread),
            age(team.last_seen_at, at),
        )
        for team in teams
    ]
    print_table(on, ("team", "role", "status", "unread", "seen"), rows, "nobody has joined")
    on.print()
    document = read(_Document, data).document
    on.print(safe_text(document.strip("\n") or "(the document is empty)", "" if document else "dim"), soft_wrap=True)
    for act in _room_commands(room):
        on.print(safe_text(f"  {PROGRAM} rooms {act} {short(room.id)}", "cyan"), soft_wrap=True)


def _room_state(room: Room) -> str:
    return "paused" if room.is_paused and not room.is_closed else room.status


def _room_commands(room: Room) -> tuple[str, ...]:
    """Return the commands that come next for a room, without its id."""
    if room.is_closed:
        return ("tail", "reopen", "export")
    return ("tail -f", "resume" if room.is_paused else "pause", "export")


def draw_found(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            short(each.room_id),
            safe_text(each.where if each.cursor is None else f"message {each.cursor}"),
            safe_text(one_line(each.title)),
            safe_text(one_line(each.excerpt)),
        )
        for each in read(list[_Match], data, "matches")
    ]
    print_table(on, ("room", "where", "", ""), rows, "nothing found")


def draw_grants(on: Console, data: Json, at: datetime) -> None:
    from intercom.model.grant import GrantEntry

    rows = [
        (
            short(each.grant_id),
            short(each.session_id),
            safe_text(each.covers),
            f"{each.used} of {each.uses}",
            safe_text(timestamp(each.until)),
            safe_text(f"{each.granted_by} ({each.channel})"),
            safe_text(each.state, "red" if each.over else "yellow" if each.is_away else "green"),
        )
        for each in read(list[GrantEntry], data, "grants")
    ]
    columns = ("grant", "session", "lets pass", "used", "until (UTC)", "by", "state")
    print_table(on, columns, rows, "no grant is in force: grant ID permits requests like that of a card")


def draw_log(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            safe_text(timestamp(entry.at)),
            safe_text(entry.kind),
            safe_text(entry.who or "-"),
            short(entry.session_id or "-"),
            safe_text(log_text(entry)),
        )
        for entry in read(list[LogEntry], data, "entries")
    ]
    print_table(on, ("when (UTC)", "what", "who", "session", ""), rows, "the log is empty")


def log_text(entry: LogEntry) -> str:
    """Return what a log entry says: the id and the title of the request that it is about, if any, and what happened."""
    said, id, title = summary_of(entry), (entry.data or {}).get("request_id"), entry.title or ""
    if not isinstance(id, str):
        return said
    said = said.replace(f": {id}", "")
    if title and said.startswith(title):
        return f"{short(id)} {said}"
    return f"{short(id)} {title}: {said}" if title else f"{short(id)}: {said}"


def draw_history(on: Console, data: Json, at: datetime) -> None:
    rows = [
        (
            safe_text(timestamp(card.created_at)),
            short(card.id),
            safe_text(card.kind),
            short(card.session_id),
            safe_text(one_line(f"{card.title}: {_state_text(card)}")),
        )
        for card in read(list[Card], data, "requests")
    ]
    columns = ("asked (UTC)", "request", "kind", "session", "")
    print_table(on, columns, rows, "no past request, or none with these words")


def summary_of(entry: AuditEntry) -> str:
    """Return what a log entry says. What is known and not part of that already follows: the rule or the grant by which
    something passed, and where a person acted. Of an act that was refused or is unusual, it is the process."""
    data = entry.data or {}
    if entry.kind == "auto_approved" and isinstance(rule := data.get("matched_rule"), str):
        from intercom.model.grant import grant_of_rule

        grant = grant_of_rule(rule)
        return f"{entry.summary} (by {rule if grant is None else f'grant {short(grant)}'})"
    summary = entry.summary
    if entry.kind == "decided" and data.get("changes"):
        summary += " with changes"
    elif entry.kind == "decided" and isinstance(data.get("comments"), int):
        summary += f" with {count(data['comments'], 'comment')}"
    try:
        origin = Origin.of(data.get("origin"))
    except ValueError:
        return summary
    if entry.kind != "security" and (place := _place(origin)):
        return f"{summary} ({place})"
    source, process = origin.describe(), f"process {origin.pid}"
    if not source or source in summary:
        return summary
    if process in summary.split(": ", 1)[-1]:
        return f"{summary} ({source.replace(f' ({process})', '', 1)})"
    return f"{summary} (from {source})"


def _place(origin: Origin) -> str:
    """Say where a person acted, in words; empty if only the process tells. `show` and JSON name the process."""
    if origin.channel == "ctl":
        return f"in a terminal, {origin.terminal}" if origin.terminal else ""
    return _PLACES.get(origin.channel, "")


#: Where a person acts, by the channel.
_PLACES = {
    "slack": "from Slack",
    "web": "in the browser",
    "elicitation": "in the agent's own client",
    "embed": "in a program that embeds Intercom",
}


def _signed(signature: Signature) -> str:
    """Say which key signed a decision, and how."""
    if signature.method == signing.CHANNEL:
        return f"signed by the server for its channel, key {signature.key_id}"
    how = {
        signing.PIN: "with its PIN",
        signing.TICKET: "by the terminal that had it unlocked",
        signing.PASSKEY: "a passkey in the browser",
    }
    return f"signed with key {signature.key_id}, {how.get(signature.method, '')}"


#: What a channel is called where its name alone would not say it.
_WAYS = {"elicitation": "over the agent's own connection"}
#: What decided if no person did, by the channel.
_IN_ADVANCE = {"policy": "the workspace's policy", "grant": "a grant, which a person gave in advance"}


def _state_text(card: Card) -> str:
    """Say who made which decision, and the status since then: a person approves a change, then the agent applies it."""
    state, decided = card.state.value, card.decided
    if decided is None:
        return state
    verdict = PAST.get(decided.decision, decided.decision)
    at = f"at {decided.at:%Y-%m-%d %H:%M:%S} UTC"
    if decided.channel == "timeout":
        return f"{state} {at}: nobody answered in time, so it was {verdict}"
    way = _WAYS.get(decided.channel, decided.channel)
    who = _IN_ADVANCE.get(decided.channel) or f"{decided.by} ({way})"
    since = (", delivered" if card.delivered else "") if card.state in VERDICT else f", {state}"
    return f"{verdict} by {who} {at}{since}" + (f": {decided.text}" if decided.text else "")


def _change(change: FileChange) -> Text:
    name = f"{change.old_path} -> {change.path}" if change.old_path else change.path
    line = Text("  ").append(f"{change.kind:<7}").append(one_line(name), "bold")
    return line.append(f"  +{change.added}", "green").append(f" -{change.removed}", "red")


def _diff(card: Card, limit: int | None, width: int | None) -> Iterable[Text]:
    if card.diff_omitted:
        yield safe_text(f"  (the diff is long: {PROGRAM} show {short(card.id)})", "dim")
        return
    if not card.diff:
        return
    # Split at line feeds only: other line ends of Python are text here, and shown as codes.
    lines = card.diff.removesuffix("\n").split("\n")
    numbers: dict[int, int] = {}
    if card.diff_from_agent:
        # A list with '-' in an agent's text must not look like removed lines.
        yield safe_text("the agent's own text, not a diff made from the files:", "yellow")
        styles: Iterable[str] = repeat("")
    else:
        styles = diff_styles(lines)
    numbers = _hunk_numbers(card)
    beside = _line_numbers(card, lines, width)
    for at, (line, style) in enumerate(zip(lines[:limit], styles, strict=False)):
        shown = Text(no_wrap=True).append(beside[at], "dim") if beside else Text(no_wrap=True)
        shown.append(clean(line), style)
        if at in numbers:
            shown.append(f" hunk {numbers[at]}", "dim")
        # Marked, so that no line of an agent's text looks like Intercom's own.
        yield Text("│ ", no_wrap=True).append_text(shown) if card.diff_from_agent else shown
    if limit is not None and len(lines) > limit:
        yield safe_text(f"  ({limit} of {len(lines)} lines; all: {PROGRAM} show {short(card.id)})", "dim")


def _line_numbers(card: Card, lines: Sequence[str], width: int | None) -> Sequence[str]:
    """Return what stands before each line of a diff: its number in the new file. Empty if there is nothing to comment
    on, or if a line would not fit any more."""
    if width is None or not card.amendable or card.state is not CardState.PENDING:
        return ()
    numbers = new_line_numbers(card.diff or "")
    digits = max((len(str(each)) for each in numbers if each is not None), default=0)
    if not digits or len(numbers) != len(lines):
        return ()
    # What is too long would go on below, where an agent's text could look like a number.
    indent, hunks = " " * (digits + 1), _hunk_numbers(card)
    ends = (f" hunk {hunks[at]}" if at in hunks else "" for at in range(len(lines)))
    if max(cell_len(f"{indent}{clean(line)}{end}".expandtabs()) for line, end in zip(lines, ends, strict=True)) > width:
        return ()
    return [f"{'' if each is None else each:>{digits}} " for each in numbers]


def _hunk_numbers(card: Card) -> dict[int, int]:
    """Return the number of the hunk that begins at a line of the card's diff, if a person can choose among several."""
    if not card.amendable or card.state is not CardState.PENDING or card.diff is None:
        return {}
    try:
        hunks = hunks_of(card.diff, card.files)
    except InvalidArguments:
        return {}
    return {each.line: each.number for each in hunks} if len(hunks) > 1 else {}


def _remarks(card: Card, limit: int | None) -> Iterable[Text]:
    """Yield the remarks about what the diff does not show, or shows badly."""
    for remark in card.remarks[:limit]:
        about = f"{remark.path}: " if remark.path else ""
        yield safe_text(one_line(f"  ! {about}{remark.text}"), "yellow")
    if limit is not None and len(card.remarks) > limit:
        rest = len(card.remarks) - limit
        yield safe_text(f"  ! and {rest} more: {PROGRAM} show {short(card.id)}", "yellow")


def diff_styles(lines: Iterable[str]) -> Iterator[str]:
    """Yield the style of each line of a diff. A hunk's line counts tell its lines from headers: a removed line may
    begin with `--`."""
    old = new = 0
    for line in lines:
        if old > 0 or new > 0:
            old, new = old - line.startswith((" ", "-")), new - line.startswith((" ", "+"))
            yield {"+": "green", "-": "red"}.get(line[:1], "")
            continue
        hunk = _HUNK.match(line)
        if hunk:
            old, new = (int(count or 1) for count in hunk.groups())
        yield "cyan" if hunk else "bold" if line.startswith(_HEADERS) else ""
