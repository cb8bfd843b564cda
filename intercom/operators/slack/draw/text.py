"""Text that agents and people wrote, made fit for Slack: nothing in it pings, formats, hides or reorders, and nothing
is longer than Slack takes. Pure, and as fast on a megabyte as on a line: nobody reads further than the limit."""

from __future__ import annotations

from datetime import UTC, datetime

from intercom.model.visible import one_line, visible

#: Stands where nothing else would: Slack refuses text that is empty or blank.
NOTHING = "(empty)"
CUT = "…"

#: How much of an id is shown: as much as ctl shows, and knows an id by.
SHORT = 8

#: Further back than this no grapheme cluster is looked for: one that is longer was made to be.
_CLUSTER = 64

_FENCE = "```"


def escaped(text: str) -> str:
    """`text` with the three characters that Slack reads as markup as entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def size(text: str) -> int:
    """How long Slack may find `text`: its UTF-16 units."""
    return len(text) + sum(character > "\uffff" for character in text) if not text.isascii() else len(text)


def fitted(text: str, limit: int, *, nothing: str = NOTHING, flat: bool = False) -> str:
    """`text` made visible and escaped, in at most `limit` units; `nothing` when it is blank.

    What is cut ends in an ellipsis, never within an entity or a grapheme cluster. `flat` puts it on one line.
    """
    return escaped(cut(text, limit, nothing=nothing, flat=flat))


def cut(text: str, limit: int, *, nothing: str = NOTHING, flat: bool = False, escape: bool = True) -> str:
    """`text` made visible and cut so that it takes at most `limit` units once it is escaped (or, without `escape`, as
    it is). For where Slack takes text literally, as the value of an input."""
    # Making visible and escaping only ever lengthen (but for white space): what lies beyond cannot come to be seen.
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
    """Whether `fitted` would leave something of `text` away."""
    head = visible(text[: 4 * limit + 16]).strip("\n")
    return len(text) > 4 * limit + 16 or _room(head, limit, True) < len(head)


def code(text: str, limit: int = 200) -> str:
    """`text` as a span of code, on one line, in at most `limit` units. A backtick within becomes one that ends
    nothing."""
    return f"`{fitted(text, limit - 2, flat=True).replace('`', 'ˋ')}`"


def fence(text: str, limit: int) -> str:
    """`text` in a code fence, `limit` units with the fence; what would close the fence within is parted by a space that
    takes no room."""
    room = limit - 2 * len(_FENCE) - 2
    # Parting may double the length, so only what holds a fence pays for it.
    if "``" in text[: 4 * limit + 16]:
        room //= 2
    body = fitted(text, room).replace("``", "`\u200b`").replace("``", "`\u200b`")
    return f"{_FENCE}\n{body}\n{_FENCE}"


def short(name: str) -> str:
    """The start of an id, which is enough for ctl to know it by; what is no plain id is shown whole, and so is the word
    that some begin with (`policy-`)."""
    word, dash, rest = name.partition("-")
    kept = len(word + dash) if dash and word.isalpha() and len(word) < SHORT and len(rest) > SHORT else 0
    return name[: kept + SHORT] if len(name) > 2 * SHORT else name


def moment(at: datetime) -> str:
    """An instant in Slack's form, which every reader sees in their own time zone."""
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    plain = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{plain}>"


def amount(number: int, noun: str) -> str:
    """`1 line`, `2 lines`, `1,200 lines`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _room(text: str, limit: int, escape: bool) -> int:
    """How many characters of `text` go into `limit` units."""
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
    """The last boundary between grapheme clusters at or before `end`."""
    if end <= 0 or end >= len(text) or text[end - 1 : end + 1].isascii():
        return max(0, min(end, len(text)))
    import grapheme  # type: ignore[import-untyped]

    start = max(0, end - _CLUSTER)
    found: int = grapheme.safe_split_index(text[start : end + 1], end - start)
    # A cluster that fills the whole window was made to be one; it is cut where the room ends.
    return start + found if found or start == 0 else end
