"""A service manager: keeps a server in the foreground running, whatever ends it, and lets nobody else start one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from attrs import define, field

from intercom.local.daemon import server_environment
from intercom.local.places import Places, private_directory
from tests.support.server_forks import Starts


def main(words: list[str]) -> int:
    """The program that it keeps running."""
    # In the processes of servers only.
    from intercom.operators.slack import sender
    from tests.support import program_with_faults

    # The stand-in for Slack carries out a call at once or never, so the sender need not wait half a minute to know.
    sender.SETTLING, sender.LOOK_AGAIN = 6.0, 2.0
    return program_with_faults.main(words)


@define
class ServiceManager:
    """Runs `serve` with this environment; what it prints goes to `errors`. Shims find its server, or wait for it."""

    starts: Starts
    places: Places
    environment: Mapping[str, str]
    errors: Path
    lives: int = 0
    _over: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread | None = None
    _held: int = -1

    def start(self) -> None:
        """Start the first server, and from here on whenever there is none."""
        private_directory(self.places.runtime_dir)
        self._held = os.open(self.places.start_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._thread = threading.Thread(target=self._keep, name="service manager")
        self._thread.start()

    def stop(self) -> None:
        """Stop the server in good order, and keep it no longer."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(40)
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _keep(self) -> None:
        while not self._over.is_set():
            self.lives += 1
            with open(self.errors, "ab") as errors:
                # The variable stands in the example of a unit, too.
                environ = {**self.environment, "GLIBC_TUNABLES": server_environment({})["GLIBC_TUNABLES"]}
                server = self.starts.start(
                    ["serve"], environ, stdout=errors.fileno(), stderr=errors.fileno(), cwd="/", program=__name__
                )
            while server.poll() is None and not self._over.wait(0.02):
                pass
            if server.poll() is None:
                server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
