"""An app on the whole terminal, in its own colours, which hands the terminal over to what asks for a PIN.

It ends on signals with the exit codes of other commands. It does in threads what waits for a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import TypeVar

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from intercom.cli.ctl_text import discard_typed
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal

#: The exit code after ^C, as of other commands.
INTERRUPTED = 130
_ENDING = {signal.SIGTERM: 143, signal.SIGINT: INTERRUPTED, signal.SIGHUP: 129}

#: Seconds in which the loop reads what it was told of signals.
_SIGNALLED = 0.1

_Result = TypeVar("_Result")


class _Driver(LinuxDriver):
    """Textual's, with one thread that reads the terminal. Textual itself starts one more whenever the process is
    continued, even if it had not stopped, as when a terminal hangs up. One that is left over would read the end of the
    terminal without a pause, and Python waits for it before it exits."""

    def start_application_mode(self) -> None:
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
            # The screen has been left, so the app has to draw it again.
            self._must_signal_resume = True
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """Let all such threads end."""
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        self.exit_event.set()


class TerminalApp(App[int], inherit_bindings=False):
    """An app without keys of its own. A subclass shows a sentence with `say`, and draws again in `has_terminal`.
    `run_to_end` runs it."""

    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(_Driver, ansi_color=True)

    def run_to_end(self) -> int:
        """Run until the person leaves. Returns the exit code, also if the app has failed; it has said so then."""
        try:
            code = self.run()
        finally:
            if isinstance(self._driver, _Driver):
                self._driver.end()
        return code or self.return_code or 0

    def begin(self) -> None:
        """Prepare for signals. Call this once the app is mounted."""
        for number in _ENDING:
            self._end_on(number)
        self.app_resume_signal.subscribe(self, lambda _: self._is_back())

    def _end_on(self, number: signal.Signals) -> None:
        # Only the main thread takes signals.
        with contextlib.suppress(ValueError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(number, self.exit, _ENDING[number])

    def say(self, sentence: str, style: str = "") -> None:
        """Show a sentence to the person."""
        raise NotImplementedError

    def has_terminal(self) -> None:
        """Draw everything: the app has the terminal again."""
        raise NotImplementedError

    def with_terminal(self, work: Callable[[], _Result]) -> _Result:
        """Do work that may ask the person for something, while the terminal is not the app's. Returns its result. ^C
        raises KeyboardInterrupt in the work, which has to take it."""
        loop = asyncio.get_running_loop()
        with self.suspend():
            # What an earlier step left there is about another card.
            print("\x1b[H\x1b[J", end="", flush=True)
            with contextlib.suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
            try:
                result = work()
            finally:
                # Later: the loop has been told of the work's ^C, and must have read that by then.
                loop.call_later(_SIGNALLED, self._end_on, signal.SIGINT)
            # What was typed there is not for the app.
            discard_typed()
        self._is_back()
        return result

    def _is_back(self) -> None:
        # The terminal has forgotten what was on the screen.
        self.refresh(layout=True)
        for widget in self.screen.walk_children():
            widget.refresh()
        self.has_terminal()

    def in_background(self, work: Callable[[], None]) -> None:
        """Do what waits for the server in a thread. A refusal is shown."""

        def guarded() -> None:
            try:
                work()
            except NoServer:
                pass
            except (Refusal, IntercomError, OSError) as fault:
                self.call_from_thread(self.say, str(fault), "red")

        self.run_worker(guarded, thread=True)
