"""Edits files that other programs own: only what is asked for changes, in all files or in none, with backups.

`init` first works out what to write, and only reads. `commit` then writes, and restores everything if a step fails.
Nothing is printed meanwhile, so a reader that closes the pipe cannot stop it half-way.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomlkit
from attrs import frozen
from tomlkit.exceptions import TOMLKitError

from intercom.model.json_types import Json, JsonObject


@frozen
class Change:
    """A change of one file, given by its real path. `before` and `after` are its text, None if there is no file. An
    existing file keeps its mode, and its old text stays as `backup` if that is given. A new file gets `mode`."""

    file: Path
    before: str | None
    after: str | None
    mode: int = 0o600
    backup: Path | None = None

    @property
    def changes(self) -> bool:
        return self.before != self.after


def read(file: Path) -> str | None:
    """Return the file's text, or None if there is no file. Raises OSError and UnicodeDecodeError."""
    return file.read_bytes().decode("utf-8") if file.exists() else None


def glance(file: Path) -> str:
    """Return the file's text as far as it can be read; empty if it cannot."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def backup_name(file: Path) -> Path:
    """Return the path for a file's old text: in the same directory, with a time stamp in its name."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return file.with_name(f"{file.name}.{stamp}.bak")


def missing_directories(file: Path) -> tuple[Path, ...]:
    """Return the directories above a file that do not exist yet, outermost first."""
    return tuple(reversed([each for each in file.parents if not each.exists()]))


# --- all files or none -----------------------------------------------------------------------------------------------


def commit(changes: Sequence[Change]) -> None:
    """Carry out all of these changes or none. Raises OSError if one fails; then every file is as it was.

    Each file is replaced by a rename. If the process is killed in between, some files are new and some old, each of
    them whole, and the old text is beside each.
    """
    wanted = [each for each in changes if each.changes]
    for each in wanted:
        if read(each.file) != each.before:
            raise OSError(f"{each.file} has changed in the meantime; run init again")
    copies: dict[Path, Path] = {}
    with contextlib.ExitStack() as undo:
        staged = [(each, _stage(each, undo)) for each in wanted]
        for each in wanted:
            if each.before is not None:
                copies[each.file] = each.backup or backup_name(each.file)
                undo.callback(copies[each.file].unlink, missing_ok=True)
                shutil.copy2(each.file, copies[each.file])
        for each, new in staged:
            # Noted first: an interrupt may come between the change and its note.
            undo.callback(_restore, each.file, copies.get(each.file))
            if new is None:
                os.unlink(each.file)
            else:
                os.replace(new, each.file)
        undo.pop_all()
    for each in wanted:
        if each.backup is None and each.file in copies:
            copies[each.file].unlink(missing_ok=True)


def _stage(change: Change, undo: contextlib.ExitStack) -> str | None:
    """Write the new text to a file beside the old one. Returns its path; None if the file is to be deleted."""
    for directory in missing_directories(change.file):
        directory.mkdir(mode=0o700)
        undo.callback(_remove_directory, directory)
    if not change.file.parent.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(change.file.parent))
    if change.after is None:
        return None
    mode = change.mode if change.before is None else change.file.stat().st_mode & 0o777
    handle, new = tempfile.mkstemp(dir=change.file.parent, prefix=f".{change.file.name}.")
    undo.callback(Path(new).unlink, missing_ok=True)
    with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(change.after)
        stream.flush()
        os.fsync(stream.fileno())
    return new


def _remove_directory(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _restore(file: Path, copied: Path | None) -> None:
    if copied is None:
        file.unlink(missing_ok=True)
    else:
        # A rename works even if the disk is full.
        os.rename(copied, file)


# --- JSON and TOML that somebody else wrote --------------------------------------------------------------------------


class Unmergeable(Exception):
    """Raised if the file cannot be changed safely; the message says why."""


def parse(text: str, *, toml: bool) -> JsonObject:
    """Return the document in a text; empty for an empty text. Raises Unmergeable if it is not plain JSON or TOML."""
    try:
        found = tomllib.loads(text) if toml else json.loads(text.strip() or "{}", object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        if toml:
            raise Unmergeable(f"is not TOML ({error})") from None
        raise Unmergeable(f"is not plain JSON ({error}); comments and trailing commas cannot be kept") from None
    if not isinstance(found, dict):
        raise Unmergeable("is not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Json]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def table(document: JsonObject, *names: str) -> JsonObject:
    """Return the table at these names; empty if there is none. Raises Unmergeable if there is another value."""
    found = document
    for at, name in enumerate(names, 1):
        inner = found.get(name, {})
        if not isinstance(inner, dict):
            raise Unmergeable(f"has something other than a table at {'.'.join(names[:at])}")
        found = inner
    return found


def edit(text: str, change: Callable[[JsonObject], None], *, toml: bool) -> str:
    """Return the text after `change` has changed its document.

    Everything else stays: in TOML the comments and the layout, in JSON the order and the indentation. Returns `text`
    itself if the document stays the same. Raises Unmergeable if the text cannot be read, or cannot be edited safely.
    """
    before = parse(text, toml=toml)
    after = copy.deepcopy(before)
    change(after)
    if after == before:
        return text
    return _toml_text(text, before, after) if toml else _json_text(text, after)


def _json_text(text: str, document: JsonObject) -> str:
    indent = re.search(r"\n([ \t]+)\S", text)
    end = "\n" if text.endswith("\n") or text.strip() in ("", "{}") else ""
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + end


def _toml_text(text: str, before: JsonObject, after: JsonObject) -> str:
    try:
        document = tomlkit.parse(text)
        _amend(document, before, after)
        new = tomlkit.dumps(document)
        # The editing library gets some layouts wrong.
        if tomllib.loads(new) == after:
            return new
    except (ValueError, TOMLKitError, RecursionError):
        pass
    raise Unmergeable("is laid out in a way that cannot be edited safely")


def _amend(document: Any, before: Mapping[str, Json], after: Mapping[str, Json]) -> None:
    """Make a TOML document say `after` instead of `before`."""
    for key in before.keys() - after.keys():
        del document[key]
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _amend(document[key], old, value)
        elif value != old:
            document[key] = value


# --- for people ------------------------------------------------------------------------------------------------------


def describe(error: Exception) -> str:
    """Describe the error for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}: {error.filename}"
    return str(error)


def indented(text: str) -> str:
    """Indent text that is shown among other lines."""
    return "".join(f"  {line}\n" for line in text.splitlines())
