"""The record of what `init` put into which file, so that `init --remove` takes out exactly that."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from intercom.cli.init_files import Change, read
from intercom.local.places import places


@frozen
class Entry:
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


def file() -> Path:
    return Path(places().state_dir) / "init.json"


def load() -> dict[str, Entry]:
    """Return the recorded entries by file; empty if there is no record, or if it cannot be read."""
    try:
        found = json.loads(read(file()) or "{}")["files"]
        known = {field.name for field in attrs.fields(Entry)}
        return {
            path: Entry(
                **{**{name: each[name] for name in known & each.keys()}, "directories": tuple(each["directories"])}
            )
            for path, each in found.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def change(entries: Mapping[str, Entry]) -> Change:
    """Return the change that makes these entries the record."""
    before = read(file())
    text = json.dumps({"version": 1, "files": {path: attrs.asdict(each) for path, each in entries.items()}}, indent=2)
    return Change(file(), before, f"{text}\n" if entries else None)


def after(
    entries: Mapping[str, Entry],
    client: str,
    changes: Iterable[tuple[Change, Mapping[str, Any] | None, Mapping[str, Any] | None]],
    directories: Mapping[Path, tuple[Path, ...]],
) -> dict[str, Entry]:
    """Return the record after these changes. Each comes with the server's entry that it writes and the old one."""
    found = dict(entries)
    for each, wrote, stood in changes:
        if each.after is None:
            found.pop(str(each.file), None)
            continue
        known = found.get(str(each.file))
        if not each.changes:
            continue
        digest = digest_of(each.after)
        if known is None:
            found[str(each.file)] = Entry(
                client,
                digest,
                created=each.before is None,
                backup=None if each.backup is None or each.before is None else str(each.backup),
                wrote=wrote,
                before=stood or None,
                directories=tuple(str(directory) for directory in directories.get(each.file, ())),
            )
        else:
            same = each.before is not None and digest_of(each.before) == known.digest
            found[str(each.file)] = attrs.evolve(
                known,
                digest=digest,
                created=known.created or each.before is None,
                backup=known.backup if same else None,
                wrote=wrote,
            )
    return found


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
