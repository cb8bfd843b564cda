"""`init --remove`: removes what `init` put into the clients' files, and leaves what the person put there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from intercom.cli import init_files, init_hooks, init_merge, init_record
from intercom.cli.init_clients import CLIENTS, SERVER_NAME, Client
from intercom.cli.init_files import Change, backup_name, read, said
from intercom.cli.init_hooks import HOOKS
from intercom.cli.init_http import VSCODE_INPUT
from intercom.cli.init_merge import Unmergeable
from intercom.cli.init_record import Entry


@frozen
class Report:
    """What was done, in lines, and what could not be done."""

    lines: tuple[str, ...]
    faults: tuple[str, ...] = ()


def remove(names: Sequence[str], workspace: Path) -> Report:
    """Disconnect these clients: change all files of a client, or none."""
    lines: list[str] = []
    faults: list[str] = []
    for name in names:
        try:
            lines += [line for line in _remove(CLIENTS[name], workspace) if line]
        except (Unmergeable, OSError, UnicodeDecodeError) as error:
            by_hand = f"take out by hand what is named {SERVER_NAME}"
            faults.append(f"{CLIENTS[name].title}: {said(error)}; nothing of it was changed: {by_hand}")
    for path, entry in init_record.load().items():
        if entry.client in names and os.path.exists(path):
            lines.append(f"still in {path}: run init --remove --client {entry.client} --workspace on that project")
    if not lines and not faults:
        lines.append("nothing  of Intercom is in these clients' files")
    return Report(tuple(lines), tuple(faults))


def _remove(client: Client, workspace: Path) -> list[str]:
    record = init_record.load()
    lines: list[str] = []
    changes: list[Change] = []
    directories: list[Path] = []
    kept = dict(record)
    for file, is_hooks in _files(client, workspace):
        entry = kept.pop(str(file), None)
        change, line, extra = _change(client, file, entry, is_hooks=is_hooks)
        lines.append(line)
        changes += [change, *extra]
        if change.after is None and entry is not None:
            directories += [Path(each) for each in entry.directories]
    if kept != record:
        changes.append(init_record.change(kept))
    init_files.commit(changes)
    for directory in reversed(directories):
        try:
            directory.rmdir()
        except OSError:
            continue
    return lines


def _files(client: Client, workspace: Path) -> list[tuple[Path, bool]]:
    found = [(Path(os.path.realpath(client.file(workspace))), False)]
    if client.name in HOOKS:
        found.append((Path(os.path.realpath(HOOKS[client.name].file(workspace))), True))
    return found


def _change(
    client: Client, file: Path, entry: Entry | None, *, is_hooks: bool
) -> tuple[Change, str, tuple[Change, ...]]:
    """Return the change of a file, a line about it (or an empty one), and further changes."""
    text = read(file)
    what = f"{HOOKS[client.name].title}" if is_hooks else client.title
    if text is None:
        return Change(file, None, None), "", ()
    if entry is not None and init_record.digest_of(text) == entry.digest:
        if entry.created:
            return Change(file, text, None), f"deleted  {file}, which init had made  ({what})", ()
        old = read(Path(entry.backup)) if entry.backup is not None else None
        if old is not None:
            backup = Change(Path(str(entry.backup)), old, None)
            return Change(file, text, old), f"restored {file} as it was  ({what})", (backup,)
    if is_hooks:
        hooks = HOOKS[client.name]
        after = init_hooks.without(hooks, text)
        empty = init_hooks.is_empty(hooks, after)
    else:
        after = _without_entry(client, text, entry)
        empty = init_merge.is_empty(client.format, after)
    if after == text:
        return Change(file, text, text), "", ()
    if entry is not None and entry.created and empty:
        return Change(file, text, None), f"deleted  {file}, which init had made  ({what})", ()
    backup_file = backup_name(file)
    own = "" if is_hooks else _own(client, text, entry)
    line = f"removed  from {file}  ({what})\n         its old text: {backup_file}"
    return Change(file, text, after, backup=backup_file), line + own, ()


def _without_entry(client: Client, text: str, entry: Entry | None) -> str:
    if entry is not None and entry.before is not None:
        # An entry of this name existed before `init`: restore it.
        out = init_merge.without(client.format, text, client.table, SERVER_NAME, [str(VSCODE_INPUT["id"])])
        return init_merge.merge(client.format, out, init_merge.Wish(client.table, SERVER_NAME, entry.before))
    return init_merge.without(client.format, text, client.table, SERVER_NAME, [str(VSCODE_INPUT["id"])])


def _own(client: Client, text: str, entry: Entry | None) -> str:
    """Return a line about the person's own keys in our entry, which are removed with it; empty if there are none."""
    if entry is None or entry.wrote is None:
        return ""
    now: dict[str, Any] = dict(init_merge.present(client.format, text, client.table, SERVER_NAME))
    own = [key for key, value in now.items() if entry.wrote.get(key) != value]
    return f"\n         you had set in its entry: {', '.join(own)}" if own else ""
