"""Makes text of agents and people safe for Slack.

Nothing in the result pings, formats, hides or reorders, and it never exceeds Slack's limits. Pure. It reads no further
than the limit, so a megabyte takes no longer than a line.
"""

from __future__ import annotations

from datetime import UTC, datetime

from intercom.model.visible import one_line, visible

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
    return len(text) + sum(character > "\uffff" for character in text) if not text.isascii() else len(text)


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
