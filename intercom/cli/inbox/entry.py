"""The field in which a person types a text. It is imported once one is asked for: Textual's `Input` loads slowly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import events
from textual.widgets import Input

from intercom.cli.ctl_text import one_line

if TYPE_CHECKING:
    from intercom.cli.inbox.app import Inbox


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
