"""The tables that ctl prints, whose columns share the width of the terminal, and the texts and times in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from intercom.cli.ctl_text import clean


def print_table(on: Console, columns: Iterable[str], rows: Sequence[Iterable[Text | str]], otherwise: str) -> None:
    """Draw a table, or print a sentence if it has no rows."""
    if not rows:
        on.print(otherwise)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    cells = [[Text(each) if isinstance(each, str) else each for each in row] for row in rows]
    headings = tuple(columns)
    widths = _widths(headings, cells, on.width)
    for column, width in zip(headings, widths, strict=True):
        # A text that a person has to read is folded, and other long ones are cut with an ellipsis.
        is_folded = column in FOLDED
        table.add_column(column, no_wrap=not is_folded, overflow="fold" if is_folded else "ellipsis", max_width=width)
    for row in cells:
        table.add_row(*row)
    if on.is_terminal:
        on.print(table)
        return
    for line in on.render_lines(table, pad=False):
        # The table pads the last column too, to its longest text.
        on.print("".join(segment.text for segment in line).rstrip(), soft_wrap=True)


#: The columns with texts of any length, which give way on a narrow terminal; ids, times and numbers stay whole. Those
#: without a heading, and what a grant lets pass, are read in full.
FOLDED = frozenset({"", "lets pass", "limits", "left", "state"})
CUT = frozenset(
    {
        "title",
        "workspace",
        "label",
        "who",
        "by",
        "from",
        "for",
        "team",
        "last tool",
        "command",
        "name",
        "tool",
        "rule",
    }
)
#: Columns between two columns of a table.
_GAP = 2


def _widths(headings: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """Return the widths of a table's columns in `width` columns of the terminal: the long texts share what is left."""
    found = [
        max(cell_len(heading), *(max(map(cell_len, cell.plain.split("\n"))) for cell in cells))
        for heading, cells in zip(headings, zip(*rows, strict=True), strict=True)
    ]
    long = sorted((at for at, name in enumerate(headings) if name in FOLDED | CUT), key=found.__getitem__)
    left = width - _GAP * (len(found) - 1) - sum(found) + sum(found[at] for at in long)
    for number, at in enumerate(long):
        # The shortest first: what it does not need is for the others.
        found[at] = max(1, min(found[at], left // (len(long) - number)))
        left -= found[at]
    return found


def safe_text(text: str, style: str = "") -> Text:
    return Text(clean(text), style)


def age(since: datetime, until: datetime) -> str:
    """Return the time since an instant, in its two largest units."""
    seconds = max(0, int((until - since).total_seconds()))
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit} {rest} {below}" if rest and size > 60 else f"{seconds // size} {unit}"
    return f"{seconds} s"


def timestamp(at: datetime | None) -> str:
    """Return an instant to the second, in UTC, for people; empty if there is none. The column's heading names UTC."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
