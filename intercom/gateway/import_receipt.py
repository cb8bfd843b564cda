"""What an import did, so that it can be undone: its receipt, and `undo`.

An import has a directory in the state directory, which only the user can read: the receipt, which has no secret, and
the old texts of the clients' files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tomllib
from collections.abc import Mapping, MutableMapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import tomlkit
from attrs import define, evolve, field, frozen
from tomlkit.exceptions import TOMLKitError

from intercom.gateway import client_files
from intercom.gateway.client_entries import Dialect
from intercom.gateway.client_files import KeyPath, Unmergeable, read_text
from intercom.gateway.json_settings import plain
from intercom.local.file_replacement import Change, commit
from intercom.local.own_files import read_own
from intercom.model.errors import ConfigError, FileError, IntercomError
from intercom.model.json_types import Json

#: The directory of all imports, in the state directory, and the receipt in an import's directory.
IMPORTS: Final = "gateway-imports"
RECEIPT: Final = "receipt.json"
#: The beginning of the names of texts that an undo replaced.
_UNDONE: Final = "undone-"
_KEEPS: Final = "it was changed since the import, and keeps these changes"


class Kind(StrEnum):
    """What a file of an import is."""

    DOWNSTREAM = "downstream"
    ROLES = "roles"
    CLIENT = "client"
    #: The configuration, in which the import has enabled the gateway.
    CONFIG = "config"


@frozen
class ReceiptFile:
    """A file that an import wrote. `before` and `after` are the SHA-256 of its texts, `before` None if it was created.
    `backup` is the name of the old text's file in the import's directory."""

    path: str
    kind: Kind
    before: str | None
    after: str
    backup: str | None = None
    dialect: Dialect | None = None


@frozen
class ReceiptEntry:
    """An entry that was moved to `downstream`, or our own that was added (None). `digest` is the SHA-256 of our own."""

    file: str
    path: KeyPath
    downstream: str | None
    digest: str | None = None


@frozen
class Receipt:
    """What an import did. `file` is where it is stored. `directories` were made for the downstreams' files."""

    file: Path
    at: str
    files: tuple[ReceiptFile, ...]
    entries: tuple[ReceiptEntry, ...]
    directories: tuple[str, ...] = ()
    undone: bool = False

    @property
    def directory(self) -> Path:
        return self.file.parent


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def value_digest(value: object) -> str:
    return digest_of(json.dumps(value, sort_keys=True, default=repr))


def receipt_text(receipt: Receipt) -> str:
    files = [
        {
            "path": each.path,
            "kind": each.kind,
            "before": each.before,
            "after": each.after,
            "backup": each.backup,
            "dialect": each.dialect,
        }
        for each in receipt.files
    ]
    entries = [
        {"file": each.file, "path": list(each.path), "downstream": each.downstream, "digest": each.digest}
        for each in receipt.entries
    ]
    whole = {
        "version": 1,
        "at": receipt.at,
        "undone": receipt.undone,
        "directories": list(receipt.directories),
        "files": files,
        "entries": entries,
    }
    return json.dumps(whole, indent=2) + "\n"


def read_receipt(file: Path) -> Receipt:
    """Read a receipt. Raises ConfigError if there is none, if others can write it, or if it is damaged."""
    try:
        return parse_receipt(read_own(file, private=True), file)
    except FileNotFoundError:
        raise ConfigError(f"there is no receipt {file}") from None


def parse_receipt(content: str | bytes, file: Path) -> Receipt:
    """Return the receipt that is stored in `file`. Raises ConfigError if it is damaged."""
    try:
        raw = json.loads(content)
        files = tuple(_receipt_file(each) for each in raw["files"])
        entries = tuple(_receipt_entry(each) for each in raw["entries"])
        directories = tuple(map(_text, raw["directories"]))
        if raw["version"] != 1:
            raise ValueError
        return Receipt(file, _text(raw["at"]), files, entries, directories, raw["undone"] is True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConfigError(
            f"{file} is not a receipt of an import: the old texts of clients' files are beside it"
        ) from None


def _receipt_file(raw: Mapping[str, object]) -> ReceiptFile:
    kind, before, backup = Kind(_text(raw["kind"])), _text_or_none(raw["before"]), _text_or_none(raw["backup"])
    dialect = None if raw["dialect"] is None else Dialect(_text(raw["dialect"]))
    path = _text(raw["path"])
    if not os.path.isabs(path) or "\0" in path or "/" in (backup or ""):
        raise ValueError
    if kind is Kind.CLIENT and None in (before, backup, dialect):
        raise ValueError
    if kind is Kind.CONFIG and (before is None) is not (backup is None):
        raise ValueError
    return ReceiptFile(path, kind, before, _text(raw["after"]), backup, dialect)


def _receipt_entry(raw: Mapping[str, object]) -> ReceiptEntry:
    path = raw["path"]
    if not isinstance(path, list) or len(path) < 2:
        raise ValueError
    downstream, digest = _text_or_none(raw["downstream"]), _text_or_none(raw["digest"])
    return ReceiptEntry(_text(raw["file"]), tuple(map(_text, path)), downstream, digest)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def receipts(state_dir: Path) -> tuple[Receipt, ...]:
    """Return the imports that were not undone, the oldest first. Damaged receipts are passed over."""
    found = []
    for file in sorted((state_dir / IMPORTS).glob(f"*/{RECEIPT}")):
        with contextlib.suppress(IntercomError):
            receipt = read_receipt(file)
            if not receipt.undone:
                found.append(receipt)
    return tuple(found)


# --- undo ------------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """What an undo did with a file: restored as it was, deleted, entries put back into its present text, nothing to do,
    or left because it is not as the import left it."""

    RESTORED = "restored"
    DELETED = "deleted"
    PUT_BACK = "put back"
    UNCHANGED = "unchanged"
    LEFT = "left"


@frozen
class Undone:
    """What an undo did with one file, and what a person should know about it."""

    path: Path
    kind: Kind
    outcome: Outcome
    notes: tuple[str, ...] = ()


@frozen
class UndoReport:
    """What an undo did, or would do. `complete` says that everything is as it was before the import; then its directory
    with the old texts is gone. Otherwise they stay in `directory`."""

    files: tuple[Undone, ...]
    complete: bool
    directory: Path


@define
class _Undo:
    """Works out the changes of an undo. `needed` are the downstreams, and `shared` the files, of other imports. It only
    reads."""

    receipt: Receipt
    needed: set[str] = field(factory=set)
    shared: set[str] = field(factory=set)
    changes: list[Change] = field(factory=list)
    done: list[Undone] = field(factory=list)

    def file(self, file: ReceiptFile) -> None:
        path = Path(file.path)
        try:
            text = read_text(path)
        except (OSError, Unmergeable) as fault:
            reason = f"cannot be read ({fault.strerror})" if isinstance(fault, OSError) else str(fault)
            self._note(file, Outcome.LEFT, f"it {reason}")
            return
        digest = None if text is None else digest_of(text)
        if digest == file.before:
            self._note(file, Outcome.UNCHANGED)
        elif file.kind in (Kind.DOWNSTREAM, Kind.ROLES):
            self._created_file(path, file, text, digest)
        elif text is None:
            old = "" if file.backup is None else f"; its old text is {self.receipt.directory / file.backup}"
            self._note(file, Outcome.LEFT, f"it was deleted since the import{old}")
        elif file.kind is Kind.CONFIG:
            self._config_file(path, file, text, digest)
        else:
            self._client_file(path, file, text, digest)

    def _created_file(self, path: Path, file: ReceiptFile, text: str | None, digest: str | None) -> None:
        if digest != file.after:
            self._note(file, Outcome.LEFT, "it was changed since the import: delete it if it is not needed")
        elif file.kind is Kind.DOWNSTREAM and path.stem in self.needed:
            self._note(file, Outcome.LEFT, "another import needs it")
        else:
            self.changes.append(Change(path, text, None))
            self._note(file, Outcome.DELETED)

    def _config_file(self, path: Path, file: ReceiptFile, text: str, digest: str | None) -> None:
        """Make `enabled` of the gateway what it was. All else in the configuration stays."""
        old = self._old_text(file) if file.backup is not None else ""
        if self.needed:
            self._note(file, Outcome.LEFT, "another import needs the gateway")
        elif old is None:
            pass
        elif digest == file.after:
            self.changes.append(Change(path, text, None if file.before is None else old))
            self._note(file, Outcome.DELETED if file.before is None else Outcome.RESTORED)
        else:
            try:
                new = with_earlier_enabled(text, old)
            except ValueError:
                self._note(file, Outcome.LEFT, "remove enabled = true under [gateway] there, if no server is left")
                return
            if new is None and file.before is not None:
                # There was a file before, too.
                new = ""
            self.changes.append(Change(path, text, new))
            self._note(file, Outcome.PUT_BACK if new != text else Outcome.UNCHANGED, _KEEPS)

    def _old_text(self, file: ReceiptFile) -> str | None:
        """Return what a file had before the import. If that is gone, note that the file is left, and return None."""
        backup = self.receipt.directory / str(file.backup)
        try:
            old = read_text(backup)
        except (OSError, Unmergeable):
            old = None
        if old is None or digest_of(old) != file.before:
            self._note(file, Outcome.LEFT, f"its old text {backup} is gone or was changed")
            return None
        return old

    def _client_file(self, path: Path, file: ReceiptFile, text: str, digest: str | None) -> None:
        old = self._old_text(file)
        if old is None:
            return
        if digest == file.after:
            self._client_change(path, file, text, old)
            self._note(file, Outcome.RESTORED)
            return
        try:
            new, notes = self._put_back(file, text, old)
        except Unmergeable as fault:
            backup = self.receipt.directory / str(file.backup)
            self._note(file, Outcome.LEFT, f"it {fault}: put the servers back by hand from {backup}")
            return
        self._client_change(path, file, text, new)
        self._note(file, Outcome.PUT_BACK if new != text else Outcome.LEFT, _KEEPS, *notes)

    def _client_change(self, path: Path, file: ReceiptFile, text: str, new: str) -> None:
        """Change a client's file. Its present text is kept with the others, not in the project."""
        backup = self.receipt.directory / f"{_UNDONE}{digest_of(text)[:16]}-{file.backup}"
        self.changes.append(Change(path, text, new, backup=None if backup.exists() else backup))

    def _put_back(self, file: ReceiptFile, text: str, old: str) -> tuple[str, list[str]]:
        """Return the present text with the moved entries, and notes. Raises Unmergeable."""
        dialect = file.dialect
        assert dialect is not None
        before, now = client_files.parse(dialect, old), client_files.parse(dialect, text)
        notes, gone, back = [], [], {}
        for entry in self.receipt.entries:
            if entry.file != file.path:
                continue
            there = client_files.value_at(now, entry.path)
            name = plain(entry.path[-1]) or "a server"
            if entry.downstream is not None:
                value = client_files.value_at(before, entry.path)
                if there is None:
                    back[entry.path] = value
                elif there != value:
                    notes.append(f"{name} is there again, with another content, and stays as it is")
            elif there is not None and value_digest(there) != entry.digest:
                notes.append(f"{name} was changed, and stays")
            elif there is not None and file.path in self.shared:
                notes.append(f"{name} is needed by another import, and stays")
            elif there is not None:
                gone.append(entry.path)
        new = client_files.remove(dialect, text, gone) if gone else text
        new = client_files.put(dialect, new, back) if back else new
        if notes:
            return new, notes
        return self._as_it_was(file, text, old, new, {path: client_files.value_at(now, path) for path in gone}), notes

    def _as_it_was(self, file: ReceiptFile, text: str, old: str, new: str, own: Mapping[KeyPath, Json]) -> str:
        """Return what `new` says, with the entries where and as they were, if the lines around them are as the import
        left them; otherwise `new`. `own` are our own entries in `text`."""
        dialect = file.dialect
        assert dialect is not None
        moved = [each.path for each in self.receipt.entries if each.file == file.path and each.downstream is not None]
        try:
            after = client_files.remove(dialect, old, moved)
            after = client_files.put(dialect, after, own) if own else after
        except (Unmergeable, KeyError):
            return new
        if digest_of(after) != file.after:
            return new
        merged = client_files.with_change_undone(text, after, old)
        return merged if merged is not None and client_files.says_the_same(dialect, merged, new) else new

    def _note(self, file: ReceiptFile, outcome: Outcome, *notes: str) -> None:
        self.done.append(Undone(Path(file.path), file.kind, outcome, notes))


def with_earlier_enabled(text: str, old: str) -> str | None:
    """Return a configuration's text with `enabled` of the gateway as in its old text, and all else as it is; None if
    nothing is left. A gateway that is not enabled any more stays so. Raises ValueError if it cannot be edited."""
    try:
        present, before = tomllib.loads(text), tomllib.loads(old)
        if not isinstance(present.get("gateway"), dict) or present["gateway"].get("enabled") is not True:
            return text
        document = tomlkit.parse(text)
        table, earlier = document["gateway"], before.get("gateway")
        if not isinstance(table, MutableMapping):
            raise ValueError("the gateway's settings are no table")
        if isinstance(earlier, dict) and "enabled" in earlier:
            table["enabled"] = present["gateway"]["enabled"] = earlier["enabled"]
        else:
            del table["enabled"], present["gateway"]["enabled"]
        if not present["gateway"] and earlier is None:
            del document["gateway"], present["gateway"]
        new = tomlkit.dumps(document)
        if tomllib.loads(new) != present:
            raise ValueError("it is laid out in a way that cannot be edited safely")
    except (TOMLKitError, RecursionError):
        raise ValueError("it cannot be edited") from None
    return new if new.strip() else None


def undo(receipt_file: Path) -> UndoReport:
    """Put back what an import changed, and say for each file what was done.

    A file that is as the import left it gets its old text, and one that the import created is deleted. A client's file
    that was changed since gets its entries back into its present text. All other files that differ are left.

    Raises ConfigError if the receipt cannot be read, or FileError if a file cannot be written; then nothing changed.
    Repeating it is harmless.
    """
    state, report = _work_out(read_receipt(receipt_file))
    receipt = state.receipt
    undone = all(each.outcome is not Outcome.LEFT for each in state.done)
    if undone and not receipt.undone:
        marked = evolve(receipt, undone=True)
        state.changes.append(Change(receipt.file, receipt_text(receipt), receipt_text(marked)))
    commit_all(state.changes, "nothing was put back")
    if report.complete:
        _forget(receipt)
    for directory in sorted(receipt.directories, key=len, reverse=True):
        # Only an empty one goes.
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return report


def preview(receipt_file: Path) -> UndoReport:
    """Return what an undo would do now. Changes nothing. Raises ConfigError if the receipt cannot be read."""
    return _work_out(read_receipt(receipt_file))[1]


def _work_out(receipt: Receipt) -> tuple[_Undo, UndoReport]:
    others = [each for each in receipts(receipt.directory.parent.parent) if each.file != receipt.file]
    needed = {entry.downstream for each in others for entry in each.entries if entry.downstream is not None}
    state = _Undo(receipt, needed, {file.path for each in others for file in each.files})
    # The clients first, so that no server is missing if the process is killed in between.
    for file in reversed(receipt.files):
        state.file(file)
    complete = all(each.outcome in (Outcome.RESTORED, Outcome.DELETED, Outcome.UNCHANGED) for each in state.done)
    return state, UndoReport(tuple(state.done), complete, receipt.directory)


def _forget(receipt: Receipt) -> None:
    """Delete an import's directory, of which nothing is needed any more. The receipt goes last."""
    with contextlib.suppress(OSError):
        for file in receipt.files:
            if file.backup is not None:
                (receipt.directory / file.backup).unlink(missing_ok=True)
        for kept in receipt.directory.glob(f"{_UNDONE}*"):
            kept.unlink(missing_ok=True)
        receipt.file.unlink(missing_ok=True)
        receipt.directory.rmdir()
        receipt.directory.parent.rmdir()


# --- shared with `carry_out` ------------------------------------------------------------------------------------------


def commit_all(changes: Sequence[Change], outcome: str) -> None:
    """Carry out the changes. Raises FileError with a sentence that ends with the outcome."""
    try:
        for each in changes:
            # The engine would wait for the writer of a pipe.
            if os.path.lexists(each.file) and not each.file.is_file():
                raise FileError(f"{each.file} is not a regular file: remove it, and run the command again; {outcome}")
        commit(changes)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.strerror else str(error)
        raise FileError(f"{what[:1].lower()}{what[1:]}; {outcome}") from None
    except UnicodeError:
        raise FileError(f"a file is not UTF-8 text any more; {outcome}") from None
