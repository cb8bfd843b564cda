"""The answers to commands: lists, help, directories, files, output. What is too long for a message becomes a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from intercom.model.card import Card
from intercom.model.checkpoint import CheckpointLine
from intercom.model.client_titles import title_of
from intercom.model.session import Session
from intercom.model.visible_text import one_line, visible
from intercom.operators.slack.draw import blocks as draw_blocks
from intercom.operators.slack.draw.blocks import (
    Block,
    Drawn,
    FileDrawn,
    Mask,
    Masking,
    amount,
    bounded,
    code,
    context,
    cut,
    divider,
    drawn_to_fit,
    fence,
    file_stem,
    fits,
    fitted,
    header,
    joined,
    line_count,
    moment,
    mrkdwn,
    plain,
    section,
    short,
)
from intercom.operators.slack.draw.cards import KINDS, RISKS, STATUSES

if TYPE_CHECKING:
    from intercom.operators.slack.commands.slash_command_table import Category, Entry

_LISTED = 20


def session_list(sessions: Sequence[Session], masker: Mask, *, now: datetime) -> Drawn:
    """Return the sessions, as many as fit; `now` is the time of the list."""
    return drawn_to_fit(partial(_sessions, sessions, masker, now))


def _sessions(sessions: Sequence[Session], masker: Mask, now: datetime, scale: float) -> Drawn:
    masking = Masking(masker)
    blocks: list[Block] = [header("📋 Sessions")]
    shown = sessions[: int(_LISTED * scale)]
    for session in shown:
        icon, status = STATUSES[session.status]
        name = code(masking(title_of(session.client_name) or "agent", 60), 60)
        lines = [
            f"{icon} {code(short(session.id), 80)} {status} · {session.mode.value} · {name}",
            code(masking(session.workspace_root, 120), 120),
            f"last tool {code(masking(session.last_tool or '-', 60), 60)} · active {moment(session.updated_at)}",
        ]
        blocks.append(section(mrkdwn("\n".join(lines))))
    if not sessions:
        blocks.append(section(plain("No session: none of your agents is connected.")))
    rest = len(sessions) - len(shown)
    foot = f"{amount(len(sessions), 'session')} at {moment(now)}" + (f"; {rest} not shown" if rest else "")
    blocks += [context(mrkdwn(foot)), *masking.line()]
    return Drawn(amount(len(sessions), "session"), tuple(blocks))


def pending_list(cards: Sequence[Card], masker: Mask, *, now: datetime) -> Drawn:
    """Return the open cards in the given order, one each line, as many as fit; `now` is the time of the list."""
    return drawn_to_fit(partial(_pending, cards, masker, now))


def _pending(cards: Sequence[Card], masker: Mask, now: datetime, scale: float) -> Drawn:
    masking = Masking(masker)
    blocks: list[Block] = [header("⏳ Pending")]
    shown = cards[: int(_LISTED * scale)]
    for card in shown:
        icon = RISKS[card.risk] if card.risk else KINDS[card.kind]
        facts = [f"{icon} {code(short(card.id), 80)} {card.kind.value}", f"since {moment(card.created_at)}"]
        facts += [f"session {code(short(card.session_id), 80)}"] if card.session_id else []
        # An agent may have written the title: it is a code span, which formats nothing.
        blocks.append(section(mrkdwn(f"{' · '.join(facts)}\n{code(masking(card.title, 200), 200)}")))
    if not cards:
        blocks.append(section(plain("Nothing waits for you.")))
    rest = len(cards) - len(shown)
    foot = f"{amount(len(cards), 'request')} at {moment(now)}" + (f"; {rest} not shown" if rest else "")
    blocks += [context(mrkdwn(foot)), *masking.line()]
    return Drawn(amount(len(cards), "request"), tuple(blocks))


def checkpoint_list(checkpoints: Sequence[CheckpointLine], masker: Mask) -> Drawn:
    """Return the checkpoints in the given order, as many as fit."""
    return drawn_to_fit(partial(_checkpoints, checkpoints, masker))


def _checkpoints(checkpoints: Sequence[CheckpointLine], masker: Mask, scale: float) -> Drawn:
    masking = Masking(masker)
    blocks: list[Block] = [header("📌 Checkpoints")]
    shown = checkpoints[: int(_LISTED * scale)]
    for each in shown:
        label = code(masking(each.label or "(no label)", 120), 120)
        facts = [f"session {code(short(each.session_id), 80)}", moment(each.created_at), amount(each.files, "file")]
        blocks.append(section(mrkdwn(f"{code(short(each.id), 80)} {label}\n{' · '.join(facts)}")))
    if not checkpoints:
        blocks.append(section(plain("No checkpoint yet.")))
    if len(checkpoints) > len(shown):
        blocks += [divider(), context(plain(f"and {len(checkpoints) - len(shown)} more"))]
    return Drawn(amount(len(checkpoints), "checkpoint"), (*blocks, *masking.line()))


_COMMAND = "/intercom"
_ICONS: Final = {
    "files": "📁",
    "session": "🔄",
    "checkpoint": "📌",
    "permission": "🔁",
    "custom": "⚙️",
    "help": "💡",
}
_HELP_ROOM = 1_500


def command_help(
    groups: Mapping[Category, Sequence[Entry]], titles: Mapping[Category, str], category: Category | None = None
) -> Drawn:
    """List the commands by category; with a `category`, only its commands, each with an example."""
    groups = {name: groups[name] for name in sorted(groups, key=list(_ICONS).index)}
    wanted = groups if category is None else {category: groups[category]}
    room = 2_800 if category is not None else _HELP_ROOM // (1 + len(wanted) // 4)
    blocks: list[Block] = [header("📖 Commands")]
    for name, entries in wanted.items():
        if len(blocks) > 1:
            blocks.append(divider())
        lines, rest = joined((_described(entry, category is not None) for entry in entries), room)
        more = f"\nand {rest} more: `{_COMMAND} help {name}`" if rest else ""
        blocks.append(section(mrkdwn(f"*{_ICONS[name]} {titles[name]}*\n{lines}{more}")))
    names = ", ".join(code(name, 40) for name in groups)
    blocks.append(context(mrkdwn(f"💡 `{_COMMAND} help CATEGORY` shows examples. Categories: {names}")))
    return Drawn("Commands", tuple(blocks))


def _described(command: Entry, long: bool) -> str:
    # Text of a configuration: a backtick in it must not open a code span.
    line = f"{code(command.usage, 160)} {fitted(command.summary, 200, flat=True).replace('`', 'ˋ')}"
    return f"{line}\n      for example {code(command.example, 160)}" if long else line


# --- directories and files -------------------------------------------------------------------------------------------

#: Slack's name of a snippet's language, by file suffix; any other suffix is text.
SNIPPET_TYPES: Final = {
    "bash": "shell", "c": "c", "cc": "cpp", "cfg": "ini", "clj": "clojure", "coffee": "coffeescript", "conf": "ini",
    "cpp": "cpp", "cs": "csharp", "css": "css", "csv": "csv", "dart": "dart",
    "diff": "diff", "dockerfile": "dockerfile", "erl": "erlang", "ex": "elixir", "exs": "elixir",
    "fs": "fsharp", "go": "go", "groovy": "groovy", "h": "c",
    "hpp": "cpp", "hs": "haskell", "htm": "html", "html": "html", "ini": "ini", "java": "java", "jl": "julia",
    "js": "javascript", "json": "json", "jsx": "javascript", "kt": "kotlin", "lisp": "lisp", "lua": "lua",
    "m": "objc", "markdown": "markdown", "md": "markdown", "ml": "ocaml", "patch": "diff", "php": "php", "pl": "perl",
    "ps1": "powershell", "py": "python", "pyi": "python", "r": "r", "rb": "ruby", "rs": "rust", "scala": "scala",
    "scm": "scheme", "sh": "shell", "sql": "sql", "svg": "xml", "swift": "swift", "tex": "latex", "toml": "ini",
    "ts": "typescript", "tsx": "typescript", "vb": "vb", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zsh": "shell",
}  # fmt: skip


def tree(
    path: str, text: str, directories: int, files: int, depth: int, masker: Mask
) -> tuple[Drawn, FileDrawn | None]:
    """Draw a directory tree, given as `text`. If it is too long for the message, the second result is a file."""
    masking = Masking(masker)
    name = masking(one_line(path[:4096]) or ".", 500)
    name = "the workspace" if name == "." else name
    shown = visible(masking(text, draw_blocks.SNIPPET))
    counted = f"{directories:,} {'directory' if directories == 1 else 'directories'}"
    facts = f"📊 {counted}, {amount(files, 'file')} · depth {depth}"
    body, beside = fence(shown, draw_blocks.SECTION), None
    if shown.strip() and not fits(shown, draw_blocks.TREE_LINES, draw_blocks.SECTION - 100):
        body = f"The tree ({amount(line_count(shown), 'line')}) follows as a file."
        beside = FileDrawn("tree.txt", cut(name, 200, escape=False), "text", bounded(shown))
        facts += " · `--depth N` to see less"
    blocks = [header(f"📁 {name}"), section(mrkdwn(body)), context(mrkdwn(facts)), *masking.line()]
    return Drawn(fitted(f"📁 {name}", 300, flat=True), tuple(blocks)), beside


def file(
    path: str,
    text: str,
    nbytes: int,
    modified: datetime,
    masker: Mask,
    *,
    lines: tuple[int, int] | None = None,
    total: int | None = None,
    masked: Sequence[str] = (),
) -> tuple[Drawn, FileDrawn | None]:
    """Draw a file's text, or the lines `lines` of it (first and last, from 1, of `total`).

    `nbytes` is the size of the whole file. `masked` lists the kinds of secrets that are already masked in `text`. If
    the text is too long for the message (30 lines, 2 KB), the second result is a file.
    """
    masking = Masking(masker)
    masking.kinds.update(masked)
    name = masking(one_line(path[:4096]), 500) or "file"
    shown = visible(masking(text, draw_blocks.SNIPPET))
    count = amount(line_count(text) if total is None else total, "line")
    if lines is not None:
        count = f"lines {lines[0]}–{lines[1]} of {count}"
    facts = [f"📊 {count}", amount(nbytes, "byte"), f"modified {moment(modified)}"]
    body, beside = fence(shown, draw_blocks.SECTION), None
    is_small = len(text.encode(errors="replace")) <= draw_blocks.FILE_BYTES
    if shown.strip() and not (is_small and fits(shown, draw_blocks.FILE_LINES, draw_blocks.SECTION - 100)):
        body = "It is too long for a message and follows as a file."
        filename = cut(_filename(name), 120, nothing="file", escape=False)
        beside = FileDrawn(filename, cut(name, 200, escape=False), snippet_type(path), bounded(shown))
        if lines is None:
            facts.append("`--lines 10:50` to see a part")
    blocks = [header(f"📄 {name}"), section(mrkdwn(body)), context(mrkdwn(" · ".join(facts))), *masking.line()]
    return Drawn(fitted(f"📄 {name}", 300, flat=True), tuple(blocks)), beside


def snippet_type(path: str) -> str:
    """Return Slack's name of a file's language, by the file name."""
    return SNIPPET_TYPES.get(_filename(path).lower().rpartition(".")[2], "text")


def _filename(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


# --- output ----------------------------------------------------------------------------------------------------------


class Run(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


ICONS: Final = {
    Run.RUNNING: "⏳",
    Run.DONE: "✅",
    Run.FAILED: "❌",
    Run.TIMED_OUT: "⌛",
    Run.STOPPED: "🛑",
}
_ROOM = 2_600


def output(
    command: str,
    text: str,
    run: Run,
    masker: Mask,
    *,
    code_: int | None = None,
    seconds: float | None = None,
    truncated: bool = False,
) -> Drawn:
    """Draw the end of a command's output so far. `truncated` says that the output limit was reached, so `text` is
    incomplete. `code_` is the exit code, `seconds` the run time."""
    facts = [f"{ICONS[run]} {run.value}"]
    facts += [f"exit code {code_}"] if code_ is not None else []
    facts += [f"{seconds:.1f} s"] if seconds is not None else []
    facts += ["✂️ the output limit was reached"] if truncated else []
    return drawn_to_fit(partial(_output, command, text, run, masker, facts))


def output_file(command: str, text: str, masker: Mask) -> FileDrawn | None:
    """Return the whole output as a file; None if the message shows all of it, or nothing of it can be seen."""
    if len(text) <= _ROOM // 2 or not text.strip():
        return None
    masking = Masking(masker)
    shown = visible(masking(text, draw_blocks.SNIPPET))
    title = masking(command, 200).strip()[:200] or "output"
    return FileDrawn(f"{file_stem(title)[:40]}.txt", visible(title), "text", bounded(shown))


def _output(command: str, text: str, run: Run, masker: Mask, facts: list[str], scale: float) -> Drawn:
    masking = Masking(masker)
    room = int(_ROOM * scale)
    name = masking(command, 300)
    # Masked first and cut afterwards, so that no part of a secret is shown.
    shown = visible(masking(text))
    last = _tail(shown, room)
    if len(last) < len(shown):
        facts = [*facts, "✂️ only the end is shown"]
    body = mrkdwn(fence(last, draw_blocks.SECTION)) if last.strip() else plain("(no output)")
    blocks = [section(mrkdwn(f"{ICONS[run]} {code(name, 300)}")), section(body)]
    blocks += [context(mrkdwn(" · ".join(facts))), *masking.line()]
    return Drawn(fitted(f"{ICONS[run]} {name}: {run.value}", 300, flat=True), tuple(blocks))


def _tail(text: str, room: int) -> str:
    """Return the last whole lines of `text` that fit in `room` once escaped; if the last line is too long, its end."""
    worth = text[-room:]
    extra = 4 * sum(map(worth.count, "&<>")) + 2 * worth.count("``") + sum(letter > "\uffff" for letter in worth)
    last = worth[max(0, extra - (room - len(worth))) :] if len(worth) + extra > room else worth
    if len(last) == len(text):
        return text
    return last[last.find("\n") + 1 :] if "\n" in last[:-1] else last
