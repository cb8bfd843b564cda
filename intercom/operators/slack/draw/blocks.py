"""Blocks and texts, each valid for any input, and masked: cut to its limit, never empty.

Text of agents and people goes into `plain`, which Slack shows literally. `mrkdwn` is for Intercom's own text and for
spans of `text.code`.

Lengths are in characters; we count UTF-16 units, which are never fewer.

Nothing in the result pings, formats, hides or reorders, and it never exceeds Slack's limits. Pure. It reads no further
than the limit, so a megabyte takes no longer than a line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from attrs import asdict, frozen

from intercom.masking import Masked
from intercom.model.visible_text import one_line, visible
from intercom.operators.slack.buttons import Button, CommandButton, SessionButton

# Messages
BLOCKS: Final = 50
#: Of the plain text. chat.postMessage cuts at 40,000, but chat.update refuses more than 4,000.
TEXT: Final = 3_000
#: Of all blocks together, as JSON. Undocumented: `msg_blocks_too_long` occurred from about 11,300 characters of text.
ALL_BLOCKS: Final = 10_000

# Blocks
HEADER: Final = 150
SECTION: Final = 3_000
FIELDS: Final = 10
CONTEXT_ELEMENTS: Final = 10

# Buttons
BUTTON_TEXT: Final = 75
BUTTON_VALUE: Final = 2_000

# Modals
MODAL_TITLE: Final = 24
MODAL_BUTTON: Final = 24
LABEL: Final = 2_000
PLACEHOLDER: Final = 150
INPUT: Final = 3_000
#: The text of a check box.
OPTION: Final = 75

# Files. Slack does not show a snippet over one megabyte as text.
SNIPPET: Final = 1_000_000

# Our own limits: what is shown in the message, and what becomes a file.
DIFF_LINES: Final = 20
TREE_LINES: Final = 40
FILE_LINES: Final = 30
FILE_BYTES: Final = 2_048

#: The text in place of an empty one: Slack refuses text that is empty or blank.
NOTHING = "(empty)"
CUT = "…"

#: How many characters of an id are shown; ctl shows as many and accepts them.
SHORT = 8

#: The longest grapheme cluster to respect; a longer one was made on purpose.
_CLUSTER = 64

_FENCE = "```"


def escaped(text: str) -> str:
    """Replace the three characters of Slack's markup by entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def size(text: str) -> int:
    """Return the length of `text` for Slack: its UTF-16 units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def fitted(text: str, limit: int, *, nothing: str = NOTHING, flat: bool = False) -> str:
    """Make `text` visible, escape it, and cut it to `limit` units; `nothing` if it is blank. Cut text ends in an
    ellipsis, never within an entity or a grapheme cluster. `flat` puts it on one line."""
    return escaped(cut(text, limit, nothing=nothing, flat=flat))


def cut(text: str, limit: int, *, nothing: str = NOTHING, flat: bool = False, escape: bool = True) -> str:
    """Make `text` visible and cut it, so that it fits `limit` units once it is escaped. Without `escape` the limit
    applies to the text itself: for fields that Slack takes literally, such as the value of an input."""
    # Both steps only lengthen the text (except white space), so the part beyond cannot become visible.
    head = text[: 4 * limit + 16]
    shown = one_line(head) if flat else visible(head).strip("\n")
    if not shown.strip():
        return nothing
    end = _room(shown, limit, escape)
    if end == len(shown) and len(head) == len(text):
        return shown
    end = _boundary(shown, min(end, _room(shown, limit - 1, escape)))
    kept = shown[:end].rstrip()
    return kept + CUT


def is_cut(text: str, limit: int) -> bool:
    """Return whether `fitted` would cut `text`."""
    head = visible(text[: 4 * limit + 16]).strip("\n")
    return len(text) > 4 * limit + 16 or _room(head, limit, True) < len(head)


def code(text: str, limit: int = 200) -> str:
    """Return `text` as a code span on one line, in at most `limit` units. A backtick in it is replaced."""
    return f"`{fitted(text, limit - 2, flat=True).replace('`', 'ˋ')}`"


def fence(text: str, limit: int) -> str:
    """Return `text` in a code fence, in at most `limit` units in total. A zero-width space breaks up whatever would
    close the fence."""
    room = limit - 2 * len(_FENCE) - 2
    # The break-up may double the length, so only text with a fence loses room.
    if "``" in text[: 4 * limit + 16]:
        room //= 2
    body = fitted(text, room).replace("``", "`\u200b`").replace("``", "`\u200b`")
    return f"{_FENCE}\n{body}\n{_FENCE}"


def short(name: str) -> str:
    """Return the beginning of an id, long enough for ctl. A name that is no plain id is shown whole; so is a word
    prefix such as `policy-`."""
    word, dash, rest = name.partition("-")
    kept = len(word + dash) if dash and word.isalpha() and len(word) < SHORT and len(rest) > SHORT else 0
    return name[: kept + SHORT] if len(name) > 2 * SHORT else name


def moment(at: datetime) -> str:
    """Return an instant in Slack's date form, which each reader sees in their own time zone."""
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    plain = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{plain}>"


def amount(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `2 lines`, `1,200 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _room(text: str, limit: int, escape: bool) -> int:
    """Return how many characters of `text` fit in `limit` units."""
    used = 0
    for index, character in enumerate(text[: limit + 1]):
        if escape and character in "&<>":
            used += 5 if character == "&" else 4
        else:
            used += 2 if character > "\uffff" else 1
        if used > limit:
            return index
    return min(len(text), limit + 1)


def _boundary(text: str, end: int) -> int:
    """Return the last boundary between grapheme clusters at or before `end`."""
    if end <= 0 or end >= len(text) or text[end - 1 : end + 1].isascii():
        return max(0, min(end, len(text)))
    import grapheme  # type: ignore[import-untyped]

    start = max(0, end - _CLUSTER)
    found: int = grapheme.safe_split_index(text[start : end + 1], end - start)
    # A cluster that fills the whole window was made on purpose; it is cut at the limit.
    return start + found if found or start == 0 else end


Block = dict[str, Any]


def plain(text: str, limit: int = SECTION) -> Block:
    """Return a text object for foreign text."""
    return {"type": "plain_text", "text": fitted(text, limit), "emoji": False}


def mrkdwn(text: str) -> Block:
    """Return a text object for Intercom's own text; the caller keeps it within its limit."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def header(text: str) -> Block:
    return {"type": "header", "text": plain(" ".join(text[: 4 * HEADER].split()), HEADER)}


def section(text: Block) -> Block:
    return {"type": "section", "text": text}


def fields(texts: Sequence[Block]) -> Block:
    """Return a section in two columns."""
    return {"type": "section", "fields": list(texts[:FIELDS])}


def context(*texts: Block) -> Block:
    """Return a line in small type."""
    return {"type": "context", "elements": list(texts[:CONTEXT_ELEMENTS])}


def divider() -> Block:
    return {"type": "divider"}


def label(text: str, limit: int = SECTION) -> Block:
    """Return a text object for a text of Intercom's own without markup."""
    return {"type": "plain_text", "text": cut(text, limit)}


def button(row: Button | CommandButton | SessionButton, value: str) -> Block:
    """Return a button of a card or a session; `value` comes back with a click on it."""
    text = {**label(f"{row.icon} {row.label}".strip(), BUTTON_TEXT), "emoji": True}
    element: Block = {"type": "button", "text": text, "action_id": row.action_id, "value": value[:BUTTON_VALUE]}
    if row.style is not None:
        element["style"] = row.style
    if row.confirm is not None:
        said = {"title": row.confirm.title, "text": row.confirm.text, "confirm": row.confirm.label, "deny": "Cancel"}
        element["confirm"] = {**{name: label(text) for name, text in said.items()}, "style": "danger"}
    return element


def line_count(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1 if text else 0


def fits(text: str, lines: int, room: int) -> bool:
    """Return whether `text` has at most so many lines, and fits `room` units in a code fence."""
    if len(text) > room or line_count(text) > lines:
        return False
    return size(text) + 4 * sum(map(text.count, "&<>")) + 2 * text.count("``") <= room


def bounded(text: str, lines: int | None = None) -> str:
    """Cut `text` at a line end, so that Slack still shows it as text. The last line says how many lines of how many are
    shown (`lines`, if `text` is incomplete)."""
    raw = text.encode()
    if len(raw) <= SNIPPET:
        return text
    head = raw[: SNIPPET - 100].decode(errors="ignore")
    kept = head[: head.rfind("\n") + 1] or head + "\n"
    return f"{kept}\n… {line_count(kept):,} of {line_count(text) if lines is None else lines:,} lines are shown"


def file_stem(name: str) -> str:
    """Return `name` as the beginning of a file name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)[:64] or "card"


def joined(lines: Iterable[str], limit: int) -> tuple[str, int]:
    """Join as many lines as fit in `limit` units; return the text and the number of lines omitted."""
    kept: list[str] = []
    room = limit
    rest = 0
    for line in lines:
        room -= size(line) + 1
        if rest or room < -1:
            rest += 1
        else:
            kept.append(line)
    return "\n".join(kept), rest


@frozen
class Drawn:
    """A message. `text` is for notifications and for clients without blocks; it is escaped, as the blocks are."""

    text: str
    blocks: tuple[Block, ...]

    def content(self) -> dict[str, Any]:
        """Return the message as an outbox row stores it."""
        return {"text": self.text, "blocks": list(self.blocks)}


@frozen
class FileDrawn:
    """A file to upload. `text` is masked and cut; `snippet_type` is Slack's name of its language."""

    filename: str
    title: str
    snippet_type: str
    text: str

    def content(self) -> dict[str, Any]:
        """Return the file as an outbox row stores it."""
        return asdict(self)


def weight(blocks: Sequence[Block]) -> int:
    """Return how much of Slack's limit for a whole message the blocks take."""
    return size(json.dumps(blocks, ensure_ascii=False))


def drawn_to_fit(draw: Callable[[float], Drawn]) -> Drawn:
    """Return the message at the largest scale that fits. `draw` gets the scale: the share of their usual room that
    texts may take."""
    for scale in (1.0, 0.5, 0.2):
        made = draw(scale)
        if weight(made.blocks) <= ALL_BLOCKS:
            break
    return made


#: Characters examined beyond the cut, so that a secret that crosses it is seen whole. No secret is longer.
_BEYOND = 64 * 1024


_MASK = re.compile(r"\[masked: ([A-Za-z0-9 -]{1,40})\]")


class Mask(Protocol):
    """Hides secrets; implemented by `intercom.masking.Masker`."""

    def mask(self, text: str, /) -> Masked: ...


class Masking:
    """The masking of one message."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self.kinds: Counter[str] = Counter()

    def __call__(self, text: str, limit: int | None = None) -> str:
        """Return `text` without its secrets. With a `limit`, only about as much as will be shown is examined and
        returned."""
        whole = limit is None or len(text) <= limit + _BEYOND
        found = self._mask.mask(text if limit is None else text[: limit + _BEYOND])
        self.kinds.update(found.kinds)
        return found.text if whole else found.text + CUT

    def count(self, text: str) -> None:
        """Count the secrets that are already masked in `text`."""
        self.kinds.update(_MASK.findall(text))

    @property
    def said(self) -> str:
        """How many secrets of which kinds were masked, as text; empty if none was."""
        if not self.kinds:
            return ""
        kinds = ", ".join(f"{kind} ×{count}" if count > 1 else kind for kind, count in sorted(self.kinds.items()))
        return f"🔒 {amount(self.kinds.total(), 'secret')} masked ({kinds})"

    def line(self, card_id: str | None = None, *, cut: bool = False) -> list[Block]:
        """Return the line that says what was masked, that text was cut (`cut`), and which command shows the original.
        No block if nothing was masked or cut."""
        whole = f"{code(f'agent-intercom-ctl show {short(card_id)}')} shows the original" if card_id else ""
        parts = [escaped(self.said[:600]), "✂️ shortened" if cut else "", whole if self.kinds or cut else ""]
        text = "; ".join(part for part in parts if part)
        return [context(mrkdwn(text))] if text else []
