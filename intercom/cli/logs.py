"""Logging: to stderr in the foreground, to a rotated file of mode 0600 in the background; text or JSON lines."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
from datetime import UTC, datetime
from pathlib import Path

import actors
from intercom.local.places import private_directory

_MEBIBYTE = 2**20

log = logging.getLogger("intercom")


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and the error if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(level: str, style: str, file: Path | None) -> None:
    """Send log lines of `level` and above to `file`, or to stderr; `style` is text or json."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        private_directory(str(file.parent))
        handler = _Private(file, maxBytes=10 * _MEBIBYTE, backupCount=3, encoding="utf-8")
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The libraries report each request they serve or send; what is worth a line is ours to say.
    for library in ("mcp", "httpx2", "httpcore2", "wsproto"):
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))


def of_actors(event: actors.Event) -> None:
    """Log what happens to actors: the hook for a system's events."""
    match event:
        case actors.ActorCrashed():
            log.error("%s", event, exc_info=event.reason)
        case actors.SupervisorGaveUp() | actors.StopOverran() | actors.MailboxOverflowed():
            log.error("%s", event)
        case actors.ActorRestarted() | actors.RestartDelayed() | actors.StepTooLong():
            log.warning("%s", event)
        case _:
            log.debug("%s", event)


class _Private(logging.handlers.RotatingFileHandler):
    """A rotating file that nobody else may read."""

    def _open(self):  # type: ignore[no-untyped-def]
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, self.mode, encoding=self.encoding)
