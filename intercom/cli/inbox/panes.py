"""The widgets of the inbox: a list of rows, a pane of wrapped lines, a bar of one or two lines, and a field for a text.

Each draws only what is on the screen, line by line, in the terminal's own colours. Only the field takes keys; the
others leave them to the app. None of them interprets text as markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from intercom.cli.ctl_text import one_line
from intercom.cli.inbox.card_rows import CardText, Rows, breaks

if TYPE_CHECKING:
    from intercom.cli.inbox.app import Inbox

#: Seconds for which a warning stays after the first key that is typed while it is there.
WARNED = 8.0

#: How the panes lie on the screen.
LAYOUT = """
Screen { layout: vertical; background: ansi_default; color: ansi_default; }
#panes { height: 1fr; }
#list { width: 2fr; max-width: 70; }
#card { width: 3fr; border-left: solid ansi_bright_black; }
.narrow #card { border-left: none; }
.narrow #list { width: 1fr; max-width: 100%; }
#keys { color: ansi_cyan; }
"""


class Pane(ScrollView, can_focus=False):
    """A pane that draws rows. A subclass says how many there are and returns one."""

    DEFAULT_CSS = """
    Pane {
        overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1;
        scrollbar-background: ansi_default; scrollbar-background-hover: ansi_default;
        scrollbar-background-active: ansi_default; scrollbar-color: ansi_bright_black;
        scrollbar-color-hover: ansi_white; scrollbar-color-active: ansi_white;
    }
    """
    ALLOW_SELECT = False

    @property
    def columns(self) -> int:
        """The width that rows are made for."""
        return max(1, self.scrollable_content_region.width)

    @property
    def visible_rows(self) -> range:
        """The numbers of the rows that are on the screen."""
        top = round(self.scroll_y)
        return range(top, min(top + min(self.size.height, self.region.height), self.count))

    @property
    def is_laid_out(self) -> bool:
        """Whether the pane has its place on the screen, or is not to be shown."""
        # A pane that was hidden has its former size until it has a region again.
        return not self.display or bool(self.region.area)

    @property
    def count(self) -> int:
        return 0

    def draw(self, row: int) -> Text:
        raise NotImplementedError

    def show_rows(self) -> None:
        """Draw again, after the rows have changed."""
        self.virtual_size = Size(self.columns, self.count)
        self.refresh()

    def go_to(self, row: int) -> None:
        self.scroll_to(y=row, animate=False, force=True)

    def page(self, by: int) -> None:
        """Scroll by pages, less one row, so that the reader keeps the place."""
        self.go_to(max(0, round(self.scroll_y) + by * max(1, self.size.height - 1)))

    def render_line(self, y: int) -> Strip:
        row = round(self.scroll_y) + y
        width = self.columns
        if row >= self.count:
            return Strip.blank(width, self.rich_style)
        text = self.draw(row)
        text.end = ""
        return Strip(text.render(self.app.console)).adjust_cell_length(width)


class ListPane(Pane):
    """A list with a selected row. `draw_row` makes a row for a width; a click on one posts `Picked`."""

    class Picked(Message):
        """A person clicked on a row."""

        def __init__(self, pane: ListPane, row: int, at: float) -> None:
            super().__init__()
            self.pane = pane
            self.row = row
            self.at = at

    def __init__(self, draw_row: Callable[[int, int], Text], id: str) -> None:
        super().__init__(id=id)
        self._draw_row = draw_row
        self._count = 0
        self._selected: int | None = None

    @property
    def count(self) -> int:
        return self._count

    def draw(self, row: int) -> Text:
        return self._draw_row(row, self.columns)

    def set_rows(self, count: int, selected: int | None) -> None:
        """Draw this many rows, and scroll to the selected one if it is not on the screen."""
        self._count, self._selected = count, selected
        self.show_rows()
        self._scroll_to_selected()

    def on_resize(self) -> None:
        self._scroll_to_selected()

    def _scroll_to_selected(self) -> None:
        selected = self._selected
        if selected is None or not self.size.height:
            return
        top = round(self.scroll_y)
        if not top <= selected < top + self.size.height:
            self.go_to(max(0, selected if selected < top else selected - self.size.height + 1))

    def on_click(self, event: events.Click) -> None:
        row = round(self.scroll_y) + event.y
        if row < self.count:
            self.post_message(self.Picked(self, row, event.time))


class TextPane(Pane):
    """Lines, wrapped at the pane's width: a card, a file, or the help."""

    class Scrolled(Message):
        """Other rows are on the screen."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Text] = ()
        self._card: CardText | None = None
        self._rows = Rows((), 1)
        #: The rows that were on the screen since the lines were set or wrapped, as bits.
        self._seen = 0

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def is_all_seen(self) -> bool:
        """Whether every row has been on the screen since the lines were set or wrapped."""
        return self._seen == (1 << self.count) - 1

    @property
    def top_line(self) -> int:
        """The number of the line at the top of the pane."""
        return max(0, self._rows.line_at(round(self.scroll_y))) if self.count else 0

    def set_lines(self, lines: Sequence[Text] | CardText, *, top: int | None = 0) -> None:
        """Show these lines, from the line with number `top` on; with None the pane stays where it is."""
        self._card = lines if isinstance(lines, CardText) else None
        self._lines = lines.lines if isinstance(lines, CardText) else lines
        self._wrap(top)

    def _wrap(self, top: int | None) -> None:
        self._rows = Rows(self._lines, self.columns)
        self._seen = 0
        self.show_rows()
        if top is not None:
            self.go_to(self._rows.span(top).start if top < len(self._lines) else 0)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Scrolled())

    def on_resize(self) -> None:
        if self._rows.width != Rows((), self.columns).width:
            self._wrap(self.top_line)

    def draw(self, row: int) -> Text:
        line = self._rows.line_at(row)
        return self._rows.row(row, self._lines[line] if self._card is None else self._card.styled(line))

    def seen_lines(self) -> list[int]:
        """Return the numbers of the lines of which every row has been on the screen, among those that are there now.
        The numbers are those of the card's own lines."""
        rows = self.visible_rows
        if not rows:
            return []
        self._seen |= ((1 << len(rows)) - 1) << rows.start
        lines = range(self._rows.line_at(rows.start), self._rows.line_at(rows.stop - 1) + 1)
        numbers = self._card.numbers if self._card is not None else ()
        return [
            number
            for line in lines
            if numbers and (number := numbers[line]) is not None and self._is_seen(self._rows.span(line))
        ]

    def _is_seen(self, rows: range) -> bool:
        bits = (1 << len(rows)) - 1
        return (self._seen >> rows.start) & bits == bits


class Said:
    """The sentence above the keys. A report has been read once a key is typed. A warning stays for some seconds of
    keys, so that it does not cover the screen until another one comes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.text = Text()
        self._is_warning = False
        self._goes_at: float | None = None

    def say(self, sentence: str, style: str, *, is_warning: bool) -> None:
        """Say another sentence."""
        self.text, self._is_warning, self._goes_at = Text(one_line(sentence), style), is_warning, None

    def typed(self) -> None:
        """Record that the person typed a key."""
        now = self._clock()
        if not self._is_warning or (self._goes_at is not None and now >= self._goes_at):
            self.text = Text()
        elif self._goes_at is None:
            self._goes_at = now + WARNED


class Bar(Widget, can_focus=False):
    """A bar with a sentence, on as many lines as it needs, at most `most`. What does not fit ends with an ellipsis."""

    DEFAULT_CSS = """
    Bar { height: 1; width: 1fr; }
    """
    ALLOW_SELECT = False

    class Clicked(Message):
        """A person clicked on a bar, at this column."""

        def __init__(self, bar: Bar, column: int) -> None:
            super().__init__()
            self.bar = bar
            self.column = column

    def __init__(self, id: str, *, most: int = 1) -> None:
        super().__init__(id=id)
        self._text = Text()
        self._most = most
        self._rows: tuple[Text, ...] = (Text(),)

    @property
    def plain(self) -> str:
        return self._text.plain

    def set_text(self, text: Text) -> None:
        if text != self._text or text.spans != self._text.spans:
            self._text = text
            self._wrap()

    def _wrap(self) -> None:
        width = max(1, self.size.width)
        ends = (0, *breaks(self._text.plain, width, at_words=True)[: self._most - 1], len(self._text.plain))
        self._rows = tuple(self._text[begin:end] for begin, end in pairwise(ends))
        if self._most > 1 and self.size.height != len(self._rows):
            self.styles.height = len(self._rows)
        self.refresh()

    def on_resize(self) -> None:
        self._wrap()

    def render_line(self, y: int) -> Strip:
        if y >= len(self._rows):
            return Strip.blank(self.size.width, self.rich_style)
        row = self._rows[y].copy()
        row.rstrip()
        row.truncate(self.size.width, overflow="ellipsis")
        row.end = ""
        return Strip(row.render(self.app.console)).adjust_cell_length(self.size.width)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(self, event.x))


class Entry(Input):
    """A line of text. `for_answer` tells an answer from the words of the filter. `on_ready` is called once it takes
    keys."""

    DEFAULT_CSS = """
    Entry { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    Entry:focus { border: none; }
    """

    def __init__(self, text: str, *, for_answer: bool, on_ready: Callable[[], None]) -> None:
        super().__init__(text, compact=True, select_on_focus=False)
        self.for_answer = for_answer
        self._on_ready = on_ready

    @property
    def _inbox(self) -> Inbox:
        from intercom.cli.inbox.app import Inbox

        assert isinstance(self.app, Inbox), "the field is the inbox's own"
        return self.app

    def on_mount(self) -> None:
        self.focus()

    def on_focus(self) -> None:
        self.call_after_refresh(self._on_ready)

    def _on_paste(self, event: events.Paste) -> None:
        # What is pasted may be an agent's text, and `Input` would write its control characters to the terminal.
        event.prevent_default()
        event.stop()
        start, end = sorted(self.selection)
        self.replace(one_line(event.text), start, end)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if not self.for_answer:
            self._inbox.typing(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._inbox.entered(event.value, for_answer=self.for_answer)
