"""Connects clients and disconnects them, with a record of what was put into which file.

All files of a client change, or none. `init --remove` takes out what the record says, and no more. Without a record it
takes out every entry and hook of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import SERVER_NAME, Client
from intercom.cli import init_files
from intercom.cli.init_clients import ClientFile, EntryFile, HooksFile, path_of, put_into
from intercom.cli.init_files import Change, Unmergeable, backup_name, describe, edit, parse, read
from intercom.local.places import places


@frozen
class Written:
    """What was done to one file. `digest` is the SHA-256 of the text that `init` wrote. While the file has this text,
    `backup` is the path of its old text. That is None if `init` made the file, or if others changed it after the
    backup. `wrote` and `before` are the server's entry that was written, and the old one. `directories` were made for
    it."""

    client: str
    digest: str
    created: bool = False
    backup: str | None = None
    wrote: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    directories: tuple[str, ...] = ()

    def is_text(self, text: str | None) -> bool:
        """Whether this is the text that `init` wrote."""
        return text is not None and _digest(text) == self.digest


def file() -> Path:
    return Path(places().state_dir) / "init.json"


def load() -> dict[str, Written]:
    """Return the record by file; empty if there is none, or if it cannot be read."""
    try:
        found = json.loads(read(file()) or "{}")["files"]
        known = {each.name for each in attrs.fields(Written)}
        kept = {path: {name: each[name] for name in known & each.keys()} for path, each in found.items()}
        return {path: Written(**each | {"directories": tuple(each["directories"])}) for path, each in kept.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _saved(entries: Mapping[str, Written]) -> Change:
    """Return the change that makes this the record."""
    text = json.dumps({"version": 1, "files": {path: attrs.asdict(each) for path, each in entries.items()}}, indent=2)
    return Change(file(), read(file()), f"{text}\n" if entries else None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _edited(file: ClientFile, edited: Callable[[str], str]) -> tuple[Path, str | None, str]:
    """Return a file's real path, its text and the text after `edited`. Raises Unmergeable, with the file's name.

    A link into a dotfiles repository stays a link: only its target changes.
    """
    real = Path(os.path.realpath(path_of(file)))
    try:
        before = read(real)
        return real, before, edited(before or "")
    except (Unmergeable, UnicodeDecodeError) as fault:
        raise Unmergeable(f"{path_of(file)} {describe(fault)}") from None


# --- connect ---------------------------------------------------------------------------------------------------------


def connect(client: Client, files: Sequence[ClientFile]) -> list[tuple[ClientFile, Change]]:
    """Write a client's files and the record of them, all or none. Returns the changes. Raises Unmergeable and
    OSError; then nothing was changed."""
    record = load()
    entries = dict(record)
    changes = []
    for each in files:
        real, before, after = _edited(each, partial(put_into, each))
        known = record.get(str(real))
        is_ours = known is not None and known.is_text(before)
        backup = None if before is None or is_ours or after == before else backup_name(real)
        change = Change(real, before, after, each.mode, backup)
        changes.append((each, change))
        if change.changes:
            entries[str(real)] = _written(client, each, change, known)
    record_change = [_saved(entries)] if entries != record else []
    init_files.commit([*(change for _, change in changes), *record_change])
    return changes


def _written(client: Client, file: ClientFile, change: Change, known: Written | None) -> Written:
    """Return the record of a change. `known` is what was recorded before."""
    toml = file.location.is_toml
    wrote = file.entry_in(parse(change.after or "", toml=toml))
    is_new, digest = change.before is None, _digest(change.after or "")
    if known is not None:
        backup = known.backup if known.is_text(change.before) else None
        return attrs.evolve(known, digest=digest, created=known.created or is_new, backup=backup, wrote=wrote)
    return Written(
        client.name,
        digest,
        created=is_new,
        backup=None if change.backup is None else str(change.backup),
        wrote=wrote,
        before=file.entry_in(parse(change.before or "", toml=toml)) or None,
        directories=tuple(map(str, init_files.missing_directories(change.file))),
    )


# --- disconnect ------------------------------------------------------------------------------------------------------


def remove(names: Sequence[str], workspace: Path) -> tuple[list[str], list[str]]:
    """Disconnect these clients: change all files of a client, or none. Returns what was done, and what could not be
    done, in lines."""
    lines: list[str] = []
    faults: list[str] = []
    for name in names:
        client = CLIENTS[name]
        try:
            lines += _remove(client, workspace)
        except (Unmergeable, OSError, UnicodeDecodeError) as error:
            by_hand = f"remove by hand what is named {SERVER_NAME}"
            faults.append(f"{client.title}: {describe(error)}; none of its files was changed: {by_hand}")
    for path, entry in load().items():
        if entry.client in names and os.path.exists(path):
            lines.append(f"still in {path}: run init --remove --client {entry.client} --workspace on that project")
    if not lines and not faults:
        lines.append("nothing  of Intercom is in these clients' files")
    return lines, faults


def _remove(client: Client, workspace: Path) -> list[str]:
    record = load()
    entries = dict(record)
    files: list[ClientFile] = [EntryFile(client, workspace)]
    if client.hooks is not None:
        files.append(HooksFile(client, client.hooks, workspace))
    lines: list[str] = []
    changes: list[Change] = []
    directories: list[str] = []
    for each in files:
        entry = entries.pop(os.path.realpath(path_of(each)), None)
        found, line = _removal(each, entry)
        changes += found
        lines += [line] if line else []
        directories += entry.directories if entry is not None else ()
    init_files.commit([*changes, *([_saved(entries)] if entries != record else [])])
    for directory in reversed(directories):
        # Only an empty one goes.
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return lines


def _removal(file: ClientFile, entry: Written | None) -> tuple[list[Change], str]:
    """Return what has to change, first in the file itself, and a line about it; both empty if nothing has to."""

    def without(text: str) -> str:
        before = entry.before if entry is not None else None
        return edit(text, lambda document: file.take(document, before), toml=file.location.is_toml)

    real, text, after = _edited(file, without)
    if text is None:
        return [], ""
    if entry is not None and entry.is_text(text) and not entry.created:
        old = read(Path(entry.backup)) if entry.backup is not None else None
        if old is not None:
            changes = [Change(real, text, old), Change(Path(str(entry.backup)), old, None)]
            return changes, f"restored {real} as it was  ({file.title})"
    document = parse(after, toml=file.location.is_toml)
    if entry is not None and entry.created and (entry.is_text(text) or (after != text and file.is_bare(document))):
        return [Change(real, text, None)], f"deleted  {real}, which init had made  ({file.title})"
    if after == text:
        return [], ""
    backup = backup_name(real)
    line = f"removed  from {real}  ({file.title})\n         its old text: {backup}"
    own = _own_keys(file.entry_in(parse(text, toml=file.location.is_toml)), entry)
    return [Change(real, text, after, backup=backup)], line + own


def _own_keys(found: Mapping[str, Any] | None, entry: Written | None) -> str:
    """Return a line about the person's own keys in our entry, which are removed with it; empty if there are none."""
    if not found or entry is None or entry.wrote is None:
        return ""
    own = [key for key, value in found.items() if entry.wrote.get(key) != value]
    return f"\n         you had set in its entry: {', '.join(own)}" if own else ""
