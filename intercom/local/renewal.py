"""Renewal of files that a running server needs, because cleaners of temporary directories remove them.

Each check recreates what is missing and reports it. A repeated failure is reported once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from intercom.model.errors import IntercomError

log = logging.getLogger("intercom")

#: Seconds between two checks.
RENEWAL_SECONDS = 1.0

#: Recreates what is missing. Returns a message, or None if there was nothing to do. Raises IntercomError or OSError.
Check = Callable[[], str | None]
#: Notifies people: a message and its level.
Tell = Callable[[str, str], object]


class Renewal:
    """Runs checks one after the other, and reports each new result."""

    def __init__(self, tell: Tell, *checks: Check) -> None:
        self._tell = tell
        self._checks = checks
        self._faults: dict[int, str] = {}

    def run(self) -> None:
        """Run every check. Never raises."""
        for number, check in enumerate(self._checks):
            try:
                renewed = check()
            except (IntercomError, OSError) as error:
                self._failed(number, _why(error))
                continue
            self._faults.pop(number, None)
            if renewed is not None:
                log.warning("%s", renewed)
                self._tell(renewed, "warning")

    def _failed(self, number: int, why: str) -> None:
        if self._faults.get(number) != why:
            self._faults[number] = why
            log.error("%s", why)
            self._tell(why, "error")


def _why(error: IntercomError | OSError) -> str:
    if isinstance(error, IntercomError):
        return error.message
    return f"{error.filename or 'a file of the server'} cannot be made again ({(error.strerror or str(error)).lower()})"
