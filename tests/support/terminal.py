"""A real terminal: a process that has a pseudo terminal as its controlling one, and a hand that types there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios
from collections.abc import AsyncIterator, Mapping, Sequence

import trio

from intercom.cli.inbox import first_frame


class Terminal:
    """A process on a pseudo terminal of its own, which leads the session there."""

    def __init__(self, process: trio.Process, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._seen = ""

    async def until(self, *texts: str) -> str:
        """What was printed up to and with the first of these texts, from where the last one ended. The inbox takes no
        key while its first frame is shown, so that frame is left out."""
        while not (found := [text for text in texts if text in self._counting()]):
            try:
                more = await self._read()
            except trio.Cancelled:
                print(f"waited for {' or '.join(map(repr, texts))}; it printed {self._seen[-900:]!r}")
                raise
            assert more, f"it ended without {' or '.join(map(repr, texts))}; it printed {self._seen[-900:]!r}"
            self._seen += more
        self._seen = self._counting()
        first = min(found, key=self._seen.index)
        before, _, self._seen = self._seen.partition(first)
        return before + first

    async def raw(self, text: str) -> str:
        """All that was printed and not told of yet, once this text is in it, with the inbox's first frame."""
        while text not in self._seen:
            more = await self._read()
            assert more, f"it ended without {text!r}; it printed {self._seen[-900:]!r}"
            self._seen += more
        return self._seen

    def _counting(self) -> str:
        """What was printed, without a first frame: it lasts until the inbox itself takes the whole terminal."""
        before, _, shown = self._seen.partition(first_frame.ENTER)
        return before if before == self._seen else before + "".join(shown.partition("\x1b[?1049h")[1:])

    async def rest(self) -> str:
        """What is printed until nothing holds the terminal any more."""
        await self._read_on()
        return self._seen

    async def ended(self) -> int:
        """Its exit code, once it has ended. What it prints until then is read: it would wait for a full terminal."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_on)
            code = await self.process.wait()
            nursery.cancel_scope.cancel()
        return code

    async def _read_on(self) -> None:
        while more := await self._read():
            self._seen += more

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    async def press(self, keys: str, *texts: str, again: float = 5) -> str:
        """Type keys every `again` seconds until one of these texts is printed, and return what `until` does. A program
        that discards what was typed before its screen was there may discard them: they must do no harm a second
        time."""
        while True:
            self.type(keys)
            with trio.move_on_after(again):
                return await self.until(*texts)

    async def _read(self) -> str:
        await trio.lowlevel.wait_readable(self._descriptor)
        try:
            return os.read(self._descriptor, 65536).decode(errors="replace")
        except OSError:
            # Linux says so when the other side was closed.
            return ""


def _as_from_a_shell() -> None:
    """Take the terminal, and no signal as one that is ignored: who started the tests may have made them ignore some."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)


@contextlib.asynccontextmanager
async def on_terminal(command: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Run a command whose controlling terminal is a new one; it is killed at the end."""
    ours, theirs = pty.openpty()
    # What is longer than the terminal is printed as in a pipe, unless a test names a pager.
    env = {"PAGER": "cat", **environ, "TERM": "xterm", "COLUMNS": "200"}
    try:
        try:
            process = await trio.lowlevel.open_process(
                list(command),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=env,
                start_new_session=True,
                preexec_fn=_as_from_a_shell,
            )
        finally:
            os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            await process.wait()
    finally:
        os.close(ours)
