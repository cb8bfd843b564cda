"""Directories, files and command output: in the message if they are small, else beside it as a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final

from intercom.model.visible_text import one_line, visible
from intercom.operators.slack.draw import blocks as draw_blocks
from intercom.operators.slack.draw.blocks import (
    Block,
    Drawn,
    FileDrawn,
    Mask,
    Masking,
    amount,
    code,
    context,
    cut,
    drawn_to_fit,
    fence,
    fitted,
    header,
    moment,
    mrkdwn,
    plain,
    section,
    size,
)
from intercom.operators.slack.draw.cards import bounded, file_stem

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
    facts = f"📊 {_count(directories, 'directory', 'directories')}, {amount(files, 'file')} · depth {depth}"
    shown = visible(masking(text, draw_blocks.SNIPPET))
    inline = _fits(shown, draw_blocks.TREE_LINES, draw_blocks.SECTION - 100)
    beside = None if inline else FileDrawn("tree.txt", cut(name, 200, escape=False), "text", bounded(shown))
    body = fence(shown, draw_blocks.SECTION) if inline else f"The tree ({_lines(shown)}) follows as a file."
    hint = "" if inline else " · `--depth N` to see less"
    blocks = [header(f"📁 {name}"), section(mrkdwn(body)), context(mrkdwn(facts + hint)), *masking.line()]
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
    inline = len(text.encode(errors="replace")) <= draw_blocks.FILE_BYTES and _fits(
        shown, draw_blocks.FILE_LINES, draw_blocks.SECTION - 100
    )
    stem = name.replace("\\", "/").rpartition("/")[2]
    beside = None
    if not inline:
        beside = FileDrawn(
            cut(stem, 120, nothing="file", escape=False),
            cut(name, 200, escape=False),
            snippet_type(path),
            bounded(shown),
        )
    count = amount(_line_count(text), "line") if total is None else amount(total, "line")
    if lines is not None:
        count = f"lines {lines[0]}–{lines[1]} of {count}"
    facts = [f"📊 {count}", f"{nbytes:,} bytes", f"modified {moment(modified)}"]
    if not inline and lines is None:
        facts.append("`--lines 10:50` to see a part")
    body = fence(shown, draw_blocks.SECTION) if inline else "It is too long for a message and follows as a file."
    blocks = [header(f"📄 {name}"), section(mrkdwn(body)), context(mrkdwn(" · ".join(facts))), *masking.line()]
    return Drawn(fitted(f"📄 {name}", 300, flat=True), tuple(blocks)), beside


def snippet_type(path: str) -> str:
    """Return Slack's name of a file's language, by the file name."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    return SNIPPET_TYPES.get(name.rpartition(".")[2], "text")


def _fits(text: str, lines: int, room: int) -> bool:
    head = text[: room + 1]
    return len(head) <= room and _line_count(head) <= lines and _escaped_size(head) <= room


def _escaped_size(text: str) -> int:
    return size(text) + 4 * sum(map(text.count, "&<>")) + text.count("``") * 2


def _line_count(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1 if text else 0


def _lines(text: str) -> str:
    return amount(_line_count(text), "line")


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


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
    return drawn_to_fit(partial(_output, command, text, run, masker, code_, seconds, truncated))


def output_file(command: str, text: str, masker: Mask) -> FileDrawn | None:
    """Return the whole output as a file; None if the message shows all of it, or nothing of it can be seen."""
    if len(text) <= _ROOM // 2 or not text.strip():
        return None
    masking = Masking(masker)
    shown = visible(masking(text, draw_blocks.SNIPPET))
    title = masking(command, 200).strip()[:200] or "output"
    return FileDrawn(f"{file_stem(title)[:40]}.txt", visible(title), "text", bounded(shown))


def _output(
    command: str,
    text: str,
    run: Run,
    masker: Mask,
    code_: int | None,
    seconds: float | None,
    truncated: bool,
    scale: float,
) -> Drawn:
    masking = Masking(masker)
    room = int(_ROOM * scale)
    name = masking(command, 300)
    facts = [f"{ICONS[run]} {run.value}"]
    facts += [f"exit code {code_}"] if code_ is not None else []
    facts += [f"{seconds:.1f} s"] if seconds is not None else []
    facts += ["✂️ the output limit was reached"] if truncated else []
    # Masked first and cut afterwards, so that no part of a secret is shown.
    shown = visible(masking(text))
    last = _tail(shown, room)
    if len(last) < len(shown):
        facts.append("✂️ only the end is shown")
    blocks: list[Block] = [section(mrkdwn(f"{ICONS[run]} {code(name, 300)}"))]
    blocks.append(section(mrkdwn(fence(last, draw_blocks.SECTION)) if last.strip() else plain("(no output)")))
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
