"""Logging: to stderr in the foreground, to a rotated file of mode 0600 in the background; as text or JSON lines."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
from datetime import UTC, datetime
from pathlib import Path

import actors
from intercom.local.places import private_directory
from intercom.masking import Masker
from intercom.model.errors import IpcError
from intercom.model.visible_text import visible

_MEBIBYTE = 2**20
#: The most characters of a record that are logged: a library's error may quote a whole message.
_LONGEST = 64 * 1024

log = logging.getLogger("intercom")


class TextLines(logging.Formatter):
    """A line of text, with the error below it, without secrets, because logs are sent to others. Further lines are
    indented, so that an agent's text cannot look like a log line."""

    def format(self, record: logging.LogRecord) -> str:
        return _masked(super().format(record)).replace("\n", "\n    ")


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, logger, message, and the error if there is one; without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _masked(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = _masked(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def _masked(text: str) -> str:
    # Libraries quote what they receive, and people read logs in terminals.
    return visible(Masker().mask(text[:_LONGEST]).text) + ("…" if len(text) > _LONGEST else "")


def set_up(level: str, style: str, file: Path | None) -> None:
    """Send log lines of `level` and above to `file`, or to stderr if it is None. `style` is text or json."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        private_directory(str(file.parent))
        handler = _Private(file, maxBytes=10 * _MEBIBYTE, backupCount=3, encoding="utf-8")
    text = TextLines("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if style == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # These libraries log every request that they serve or send; Intercom logs what matters itself.
    for library in ("mcp", "httpx2", "httpcore2", "wsproto"):
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))


def of_actors(event: actors.Event) -> None:
    """Log an event of the actor system."""
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
    """A rotating file that only its owner can read. If it was removed or replaced, the next line begins a new file."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and _is_elsewhere(self.baseFilename, self.stream.fileno()):
            try:
                private_directory(os.path.dirname(self.baseFilename))
                before, self.stream = self.stream, self._open()  # type: ignore[no-untyped-call]
            except (OSError, IpcError):
                pass  # keep writing to the old file
            else:
                before.close()
        super().emit(record)

    def _open(self):  # type: ignore[no-untyped-def]
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, self.mode, encoding=self.encoding)


def _is_elsewhere(path: str, descriptor: int) -> bool:
    """Tell whether an open file is no longer the one at `path`."""
    try:
        return not os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return True
    except OSError:
        return False
