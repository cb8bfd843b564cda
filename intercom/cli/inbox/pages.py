"""The text of the inbox's lists and pages, but for a card itself. The help is made from the tables of keys."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from intercom.cli import ctl_draw
from intercom.cli.ctl_table import age
from intercom.cli.ctl_text import count, one_line, short
from intercom.cli.inbox.board import (
    AMENDING,
    GRANTING,
    INBOX_KEYS,
    KEYS,
    NOTING,
    SESSION_KEYS,
    WEIGHTY_RISKS,
    Board,
    Key,
    keys_of,
    label,
    named,
)
from intercom.cli.inbox.card_rows import CardText
from intercom.cli.inbox.feed import Link
from intercom.model.audit import LogEntry
from intercom.model.card import Card, CardKind
from intercom.model.client_titles import title_of
from intercom.model.request import NEW_FILE
from intercom.model.session import Session
from intercom.operators.commands.command_table import COMMANDS

if TYPE_CHECKING:
    from intercom.model.grant import GrantEntry


class View(Enum):
    """What the screen shows, by the word on its tab."""

    INBOX = "Inbox"
    SESSIONS = "Sessions"
    LOG = "Log"
    HELP = "Help"


#: Below this many columns one pane is shown at a time.
TWO_PANES = 80
#: The tabs, in their order on the screen.
TABS = (View.INBOX, View.SESSIONS, View.LOG)

_LINK_STYLES = {Link.UP: "green", Link.REFUSED: "red"}
#: How keys are written for people, if not by the name that Textual gives them.
_SHOWN = {
    "down": "↓",
    "up": "↑",
    "left": "←",
    "right": "→",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "home": "Home",
    "end": "End",
    "escape": "esc",
    "slash": "/",
    "question_mark": "?",
    "ctrl+z": "^Z",
    "ctrl+d": "^D",
    "ctrl+c": "^C",
}
#: The kinds of card whose row also shows what the agent says.
_SAYS_MORE = (CardKind.PROMPT, CardKind.STANDBY)
_ON_APPROVALS = {
    "approve": "approve it, with a note that the agent gets",
    "grant": "permit requests like it in advance, for a time and a number of uses",
    "hunks": "approve only some hunks, by their numbers",
    "edit": "edit the new files in $EDITOR, and approve the result",
    "changes": "reject it with comments by line, written in $EDITOR",
}
#: The columns in which the help writes keys.
_KEY_COLUMNS = 12
#: The key of the help where other keys are left out of the line.
_MARKED_HELP = ("… ?", "help")
#: A larger file is not shown whole.
_LARGEST = 4 * 1024 * 1024


def tabs_line(board: Board, view: View, link: Link) -> Text:
    """Return the line at the top: the tabs, how many cards wait, and whether a server is connected."""
    total = f"{len(board.listed)} of {board.waiting}" if board.filtered_by else str(board.waiting)
    text = Text()
    for number, each in enumerate(TABS, 1):
        text.append(f" {number} {each.value} ", "reverse bold" if each is view else "dim")
    text.append(f" {total} waiting")
    if board.marked:
        text.append(f" · {len(board.marked)} marked", "yellow")
    if board.filtered_by:
        text.append(f" · filter: {one_line(board.filtered_by)}", "yellow")
    return text.append(" · ").append(link.value, _LINK_STYLES.get(link, "yellow"))


def status_line(board: Board, now: float) -> Text | None:
    """Return the line about decisions that can be undone; None if there are none. `now` is by the board's clock."""
    deciding = board.deciding
    if not deciding:
        return None
    last = max(waits.due for waits in deciding)
    is_one = len(deciding) == 1
    about = f"{label(deciding[0].act.word)} {deciding[0].act.name}" if is_one else count(len(deciding), "decision")
    undone = "it" if is_one else "them" if all(waits.due == last for waits in deciding) else "the last"
    return Text(one_line(f"{about}: sent in {max(0.0, last - now):.0f} s; u takes {undone} back"), "yellow")


def rows_that_act(board: Board, view: View, session: Session | None, *, is_open: bool) -> Sequence[Key]:
    """Return the keys that decide something now. `session` is the selected one; `is_open` is as in `keys_line`."""
    card = board.selected
    if view is View.SESSIONS:
        return SESSION_KEYS if session is not None and is_open else ()
    if view is not View.INBOX:
        return ()
    if board.marked:
        kinds = dict.fromkeys(each.kind for each in board.marked)
        return tuple(dict.fromkeys(row for kind in kinds for row in KEYS.get(kind, ())))
    is_free = card is not None and is_open and board.decision_on(card.id) is None
    return keys_of(card) if card is not None and is_free else ()


def keys_line(rows: Iterable[Key], board: Board, view: View, *, is_open: bool, width: int) -> Text:
    """Return the line at the bottom: the keys that are for the selected card or session, and the most used others.
    `is_open` says that it is on the screen. Others are left out until the line has at most `width` columns, and the
    help says so; it and the key that quits stay. If the line is longer all the same, it is padded so that it breaks
    between two keys, not within one."""
    parts = [_key_and_word(shown_key(row.key), row.shown) for row in rows]
    card = board.selected if view is View.INBOX and is_open else None
    if view is View.HELP:
        return Text().join([*parts, _key_and_word("esc", "back")])
    others = [("↑↓", "select"), ("space", "mark"), ("/", "filter"), ("tab", "next"), ("?", "help"), ("q", "quit")]
    if not is_open:
        others.insert(1, ("enter", "open"))
    if card is not None and card.kind == CardKind.APPROVAL and card.files:
        parts.append(_key_and_word("f", "file"))
    if view is not View.INBOX:
        others = others[:1] + others[-3:]
    if card is not None and (unseen := board.not_seen(card)):
        least = [_key_and_word(*_MARKED_HELP), _key_and_word(*others[-1])]
        text, lines = Text(f" ({unseen})", "yellow"), _lines([*parts, *least], width)
        # Seen lines change it all the time: it alone never makes another line.
        for room in range(text.cell_len - 1, -1, -1):
            if _lines([*parts, text, *least], width) <= lines:
                break
            text.truncate(room, overflow="ellipsis")
        parts.append(text)
    taken = sum(part.cell_len for part in parts)
    while len(others) > 2 and taken + sum(cell_len(f" {key} {word} ") for key, word in others) > width:
        others[-3:-1] = [_MARKED_HELP]
    return _broken_between([*parts, *(_key_and_word(key, word) for key, word in others)], width)


def _key_and_word(key: str, word: str) -> Text:
    return Text().append(f" {key}", "bold").append(f" {word} ")


def _broken_between(parts: Iterable[Text], width: int) -> Text:
    """Join parts, with spaces in front of each one that would reach over the end of a line of this width."""
    text = Text()
    for part in parts:
        at = text.cell_len % max(1, width)
        if at and at + part.cell_len > width >= part.cell_len:
            text.append(" " * (width - at))
        text.append_text(part)
    return text


def _lines(parts: Iterable[Text], width: int) -> int:
    return -(-cell_len(_broken_between(parts, width).plain.rstrip()) // max(1, width))


def shown_key(key: str) -> str:
    """Return a key as people write it."""
    return _SHOWN.get(key, key)


def help_lines(undo_time: float) -> list[Text]:
    """Return the page with all keys. `undo_time` is in seconds."""
    lines = [Text("Answers to a card, by its kind", "bold"), Text()]
    for kind, rows in KEYS.items():
        line = Text(f"  {kind:<{_KEY_COLUMNS}}")
        for row in rows:
            line.append(f"{row.key}", "bold cyan").append(f" {row.shown}   ")
        lines.append(line)
    lines += [Text(), Text("On a change of files", "bold"), Text()]
    lines += [_help_row(row.key, _ON_APPROVALS[row.word]) for row in AMENDING]
    lines += [Text(), Text("On any approval", "bold"), Text()]
    lines += [_help_row(row.key, _ON_APPROVALS[row.word]) for row in (*NOTING, *GRANTING)]
    lines += [Text(), Text("On a session (tab 2)", "bold"), Text()]
    lines += [_help_row(row.key, f"{row.shown}: {COMMANDS[row.word].help}") for row in SESSION_KEYS]
    lines += [Text(), Text("Moving about", "bold"), Text()]
    lines += [_help_row(keys, words) for keys, words in _grouped(INBOX_KEYS)]
    lines += [Text(), Text("What counts", "bold"), Text()]
    lines += [
        Text(f"  {sentence}")
        for sentence in (
            "A key decides only about what is on the screen, and only if you typed it after that was there.",
            "A high or critical risk, a policy, a restore, and whatever you have not seen whole ask for y first.",
            f"A decision is sent after {undo_time:g} s; until then u takes it back."
            if undo_time
            else "A decision is sent once you have typed your PIN.",
            "u also takes back the answer that was sent last, as long as no agent may know it.",
            "A decision whose card changes or closes before that is not sent.",
        )
    ]
    return lines


def _help_row(keys: str, words: str) -> Text:
    return Text("  ").append(f"{keys:<{_KEY_COLUMNS}}", "bold cyan").append(words)


def _grouped(rows: Iterable[Key]) -> Iterator[tuple[str, str]]:
    """Yield keys of the same action together, with what they do."""
    keys: list[str] = []
    words = ""
    for row in rows:
        if row.label and keys:
            yield " ".join(keys), words
            keys = []
        keys.append(shown_key(row.key))
        words = row.label or words or row.word
    yield " ".join(keys), words


def card_row(board: Board, card: Card, width: int, at: datetime) -> Text:
    """Return the row of a card in the list: its mark, risk, kind, title and age."""
    waits = board.decision_on(card.id)
    number, unit, *_ = age(card.created_at, at).split(" ")
    since = f" {number} {unit} "
    is_selected = board.selected is card
    row = Text().append("● " if board.is_marked(card) else "… " if waits else "  ", "" if is_selected else "yellow")
    row.append(f"{(card.risk or '')[:4].upper():<4}", ctl_draw.RISK_STYLE.get(card.risk or ""))
    row.append(f" {card.kind:<9}", "" if is_selected else "cyan")
    title = f"{label(waits.act.word)}: {one_line(card.title)}" if waits else one_line(card.title)
    style = "dim" if waits else "bold" if card.risk in WEIGHTY_RISKS else ""
    shown = Text(title, style)
    if card.kind in _SAYS_MORE and card.body:
        # Their titles are ours, and all the same.
        shown.append(f" {one_line(card.body[:width])}", "dim")
    shown.truncate(max(1, width - row.cell_len - len(since)), overflow="ellipsis", pad=True)
    row.append_text(shown).append(since, "dim")
    if is_selected:
        row.stylize("reverse")
    return row


def nothing_lines(waiting: int, link: Link) -> list[Text]:
    """Return what stands in place of a card if none is selected."""
    if link is Link.NONE_YET:
        return [Text("an agent that uses Intercom starts one; what it asks appears here", "dim")]
    if link is not Link.UP:
        # The line of tabs says what is wrong.
        return [Text("what waits for you appears here", "dim")]
    if not waiting:
        return [Text("nothing waits for you", "dim")]
    return [Text(f"{count(waiting, 'card')} waiting: ↓ selects one, ? shows the keys", "dim")]


def batch_lines(board: Board) -> list[Text]:
    """Say what will happen to each of the cards that a question is about."""
    asked = board.asked
    if asked is None:
        return []
    verb = label(asked.acts[0].word)
    cards = [act.card for act in asked.acts if act.card is not None]
    lines = [Text(f"{verb} {count(len(cards), 'card')}:", "bold"), Text()]
    for card in cards:
        line = Text("  ")
        if card.risk:
            line.append(f" {card.risk.upper()} ", ctl_draw.RISK_STYLE.get(card.risk, "reverse")).append(" ")
        lines.append(line.append(named(card, *board.doubts(card))))
    ids = {card.id for card in cards}
    others = [card for card in board.marked if card.id not in ids]
    if others:
        lines += [Text(), Text(f"stays open, because {verb} does not answer it:", "yellow")]
        lines += [Text(f"  {named(card)}") for card in others]
    if asked.text:
        lines += [Text(), Text(f"with the text: {one_line(asked.text)}")]
    return lines


def session_row(session: Session, waiting: int, width: int, *, grants: int = 0, is_selected: bool) -> Text:
    """Return the row of a session in the list. `grants` is how many permit something in it."""
    row = Text(f" {short(session.id):<9}")
    row.append(f"{session.status:<12}", "green" if session.status == "active" else "yellow")
    row.append(f"{waiting or '':>3} ", "bold yellow")
    granted = f" {count(grants, 'grant')}" if grants else ""
    # The agent first: what does not fit is cut at the end.
    parts = (title_of(session.client_name) or "", os.path.basename(session.workspace_root))
    place = Text(" · ".join(one_line(part) for part in parts if part))
    place.truncate(max(1, width - row.cell_len - len(granted)), overflow="ellipsis", pad=True)
    row.append_text(place).append(granted, "green")
    if is_selected:
        row.stylize("reverse")
    return row


def session_lines(
    session: Session, cards: Iterable[Card], at: datetime, grants: Iterable[GrantEntry] = ()
) -> list[Text]:
    """Return everything about a session, its grants, and the cards of it that wait."""
    facts = {
        "session": session.id,
        "status": session.status + (f", paused by {session.paused_by}" if session.paused_by else ""),
        "agent": title_of(session.client_name) or "-",
        "workspace": session.workspace_root,
        "mode": session.mode,
        "last tool": session.last_tool or "-",
        "active": f"{age(session.updated_at, at)} ago",
        "started": f"{age(session.created_at, at)} ago",
    }
    if session.prompt:
        facts["task"] = session.prompt
    lines = [Text(f"{name:<10} ", "dim").append(one_line(value), "not dim") for name, value in facts.items()]
    mine = [card for card in cards if card.session_id == session.id]
    if session.progress_snapshot:
        lines += [Text(), Text("progress", "bold")]
        lines += [Text(f"  {item.status:<12} {one_line(item.label)}") for item in session.progress_snapshot]
    lines += [Text(), Text(f"{count(len(mine), 'card')} waiting", "bold")]
    lines += [Text(f"  {card.kind} {named(card)}") for card in mine]
    granted = [each for each in grants if each.session_id == session.id]
    if granted:
        lines += [Text(), Text(f"permitted in advance ({ctl_draw.PROGRAM} revoke ID ends it)", "bold")]
        lines += [Text(f"{ctl_draw.PROGRAM} grants lists them all", "dim")]
    for each in granted:
        ends = f"{each.used} of {each.uses} used, until {each.until:%H:%M:%S} UTC"
        lines.append(Text(f"  {short(each.grant_id)} {one_line(each.covers)} ({each.state}; {ends})"))
    return lines


def no_use(key: str, board: Board) -> str:
    """Say that a key decides nothing in the inbox, and what does; empty if there is nothing to say."""
    card = board.selected
    if board.marked:
        return ""
    if card is None:
        return "nothing is selected: ↓ selects a card, then a key answers it" if board.waiting else ""
    if board.decision_on(card.id) is not None:
        return ""
    keys = ", ".join(f"{row.key} {row.shown}" for row in keys_of(card))
    return f"{key} does nothing on this {card.kind} card; its keys: {keys}"


def session_page(
    session: Session | None, total: int, cards: Iterable[Card], grants: Iterable[GrantEntry] = ()
) -> list[Text]:
    """Return the lines of the selected session, or what stands in their place if none of `total` is selected."""
    if session is not None:
        return session_lines(session, cards, ctl_draw.now(), grants)
    if not total:
        return [Text("no sessions: none of your agents is connected", "dim")]
    return [Text(f"{count(total, 'session')}: ↓ selects one", "dim")]


def waiting_by_session(cards: Iterable[Card]) -> Counter[str]:
    return Counter(card.session_id for card in cards)


def log_lines(entries: Sequence[LogEntry]) -> list[Text]:
    """Return the entries of the log, newest first."""
    lines = []
    for entry in sorted(entries, key=lambda each: -each.id):
        line = Text(f"{entry.at:%m-%d %H:%M:%S} ", "dim").append(f"{one_line(entry.kind):<14} ", "not dim cyan")
        line.append(f"{one_line(entry.who or '-')} ", "not dim").append(one_line(ctl_draw.log_text(entry)), "not dim")
        if entry.session_id:
            line.append(f"  {short(entry.session_id)}", "dim")
        lines.append(line)
    return [Text("times are UTC", "dim"), *lines] if lines else [Text("the log is empty", "dim")]


def whole_file(card: Card, shown: CardText, path: str) -> CardText | str:
    """Return a file of a card whole, with the change in place, or a sentence that says why that cannot be. `shown` is
    the text of the card."""
    change = next((each for each in card.files if each.path == path), None)
    if change is None:
        return "this part of the card is no file that could be shown"
    try:
        text = "" if change.before_hash == NEW_FILE else read_file(card.workspace_root, change.base_path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    whole = shown.in_file(path, text)
    return f"{path} is not what the change was made from, so only the change is shown" if whole is None else whole


def read_file(root: str, path: str) -> str:
    """Return a file of a workspace for a person to read. Raises OSError if it is missing, no file, or too large."""
    # A pipe must not stop the program.
    descriptor = os.open(os.path.join(root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        if found.st_size > _LARGEST:
            raise OSError(errno.EFBIG, f"it is larger than {_LARGEST} bytes")
        return file.read(_LARGEST).decode("utf-8", "surrogateescape")
