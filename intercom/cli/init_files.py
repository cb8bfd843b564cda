"""Files of somebody else's that `init` changes: with a backup, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path


def read(file: Path) -> str:
    """The file's text; empty where there is none. Raises OSError and UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8") if file.exists() else ""


def glance(file: Path) -> str:
    """The file's text as far as it can be read; empty where it can not."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def put(file: Path, before: str, after: str, mode: int, title: str, note: str) -> None:
    """Write a client's file, if it changes: with a backup of the one that is there, whose mode it keeps."""
    if after == before:
        print(f"has it   {file}")
        return
    if file.exists():
        mode = file.stat().st_mode & 0o777
        print(f"backup   {back_up(file)}")
    replace(file, after, mode=mode)
    print(f"merged   {file}  ({title})\n         {note}")


def back_up(file: Path) -> Path:
    """Copy the file beside itself, under a name that says when."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    backup = file.with_name(f"{file.name}.{stamp}.bak")
    shutil.copy2(file, backup)
    return backup


def replace(file: Path, text: str, *, mode: int) -> None:
    """All of `text` or nothing: whoever reads the file meanwhile, or after a crash, finds the old one or the new."""
    target = Path(os.path.realpath(file))
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def said(error: Exception) -> str:
    """What was wrong, for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}: {error.filename}"
    return str(error)


def indented(text: str) -> str:
    """Text to be shown among other lines."""
    return "".join(f"  {line}\n" for line in text.splitlines())
