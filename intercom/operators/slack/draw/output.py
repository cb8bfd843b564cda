"""The output of a command, during and after its run."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Final

from intercom.model.visible import visible
from intercom.operators.slack.draw import limits
from intercom.operators.slack.draw.blocks import Block, context, mrkdwn, plain, section
from intercom.operators.slack.draw.diffs import bounded, file_stem
from intercom.operators.slack.draw.drawn import Drawn, FileDrawn, drawn_to_fit
from intercom.operators.slack.draw.masks import Mask, Masking
from intercom.operators.slack.draw.text import code, fence, fitted


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
    """Return the whole output as a file; None if the message shows all of it."""
    if len(text) <= _ROOM // 2:
        return None
    masking = Masking(masker)
    shown = visible(masking(text, limits.SNIPPET))
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
    blocks.append(section(mrkdwn(fence(last, limits.SECTION)) if last.strip() else plain("(no output)")))
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
