"""Moves the MCP servers that clients have behind the gateway, and back: what `gateway import` does, without printing.

`plan` only reads. `carry_out` writes each downstream's file and the role, and takes the entries out of the clients'
files: all of that or nothing. `undo` puts back what was there. What an import did is in its directory in the state
directory: a receipt, which has no secret, and the old texts of the clients' files. Only the user can read these.

The files of a project may come with a repository that somebody else wrote, and what they start would run for all agents
in all projects. So each of their entries is moved only if the caller has taken exactly this one.

Texts for people have no secrets, but may have any characters of a client's file: show them with `visible_text`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from attrs import define, evolve, field, frozen

from intercom.gateway import client_files
from intercom.gateway.client_entries import ClientEntry, Dialect, Note, read_entry
from intercom.gateway.client_file_diff import Secrets, diff, is_named_secret, looks_secret, secret_arguments
from intercom.gateway.client_files import ClientFile, KeyPath, Unmergeable, read_text
from intercom.gateway.config_directory import FILE_BYTES, ROLES_FILE, directory_fault, read_directory, read_roles
from intercom.gateway.downstream_config import NAME_LENGTH, DownstreamConfig, Transport
from intercom.gateway.downstream_file import check, to_json
from intercom.gateway.import_receipt import (
    IMPORTS,
    RECEIPT,
    Kind,
    Receipt,
    ReceiptEntry,
    ReceiptFile,
    commit_all,
    digest_of,
    parse_receipt,
    receipt_text,
    value_digest,
)
from intercom.gateway.json_settings import Place, plain
from intercom.local.file_replacement import Change, missing_directories
from intercom.model.errors import ConfigError
from intercom.model.json_types import JsonObject

#: The name of our own entry in clients' files.
OWN_NAME: Final = "agent-intercom"
#: The role that an import creates.
DEFAULT_ROLE: Final = "default"
#: The longest entry of a project's file, as a downstream's file (characters): a person reads all of it before a yes.
LONGEST_OF_PROJECT: Final = 8_000
#: The largest receipt, in bytes: that of some hundred servers.
_RECEIPT_BYTES: Final = 250_000
#: The name of the configuration's old text.
_CONFIG: Final = "config.toml"
#: The note about a value that is stored as it is.
LITERAL: Final = "the value may be a secret, and is in the file, which only you can read; it can be in the keychain"

_OURS: Final = re.compile(r"(?:^|[/\\])agent-intercom(?:\.exe)?$|^intercom\.cli\.main$")


#: Why an entry of a project is left that was not taken.
REFUSED: Final = "you said no"
#: Decides whether an entry of a project's file is taken: its file, its name there, and the downstream. It is asked once
#: for each usable entry. The downstream may get another name afterwards.
TakeFromProject: TypeAlias = Callable[[ClientFile, str, DownstreamConfig], bool]


# --- what a plan says ------------------------------------------------------------------------------------------------


@frozen
class Move:
    """An entry that becomes a downstream. `file` is None if the same downstream is there already.

    `shown` is the text of the downstream's file, masked. `secrets` are names in the keychain that must be stored before
    it can be started, with VS Code's questions.
    """

    client: ClientFile
    path: KeyPath
    config: DownstreamConfig
    file: Path | None
    shown: str
    notes: tuple[Note, ...] = ()
    secrets: Mapping[str, str] = field(factory=dict)

    @property
    def name(self) -> str:
        """The entry's name in the client."""
        return self.path[-1]


@frozen
class Left:
    """An entry, or a whole file, that stays as it is: the name is None for a file. `reasons` are clauses."""

    file: Path
    name: str | None
    reasons: tuple[str, ...]


@frozen
class Rewrite:
    """The change of a client's file. `diff` is masked. `adds` are the paths of our own entries that it adds."""

    client: ClientFile
    change: Change
    diff: str
    adds: tuple[KeyPath, ...] = ()
    notes: tuple[str, ...] = ()


@frozen
class ImportPlan:
    """What an import would do. Nothing is done yet.

    `created` are the downstreams' files. `roles` is the change that makes roles.json, or None. If there is one already,
    `to_add` are the capabilities that a person has to add to it, for the role `role`. `known` are the names of all
    servers in the files, also of those that were not asked for.
    """

    moves: tuple[Move, ...]
    left: tuple[Left, ...]
    rewrites: tuple[Rewrite, ...]
    created: tuple[Change, ...]
    roles: Change | None = None
    to_add: tuple[str, ...] = ()
    role: str = DEFAULT_ROLE
    known: tuple[str, ...] = ()

    @property
    def secrets(self) -> Mapping[str, str]:
        """All names in the keychain that must be stored, with VS Code's questions."""
        return {name: text for move in self.moves for name, text in move.secrets.items()}


@frozen
class _Candidate:
    """An entry that was read, and where it is."""

    client: ClientFile
    path: KeyPath
    raw: object = field(repr=False)
    place: Place
    inputs: object = field(repr=False)
    workspace: Path | None
    entry: ClientEntry = field(init=False)

    @entry.default
    def _entry(self) -> ClientEntry:
        return self.named(None)

    def named(self, downstream: str | None) -> ClientEntry:
        """Read the entry, for a downstream of this name. Raises RecursionError."""
        return read_entry(
            self.client.dialect,
            self.path[-1],
            self.raw,
            self.place,
            inputs=self.inputs,
            workspace=self.workspace,
            downstream=downstream,
        )


@define
class _Source:
    """A client's file that was read: its real path, its text, and what was found in it."""

    client: ClientFile
    real: Path
    text: str = field(repr=False)
    document: JsonObject = field(repr=False)
    candidates: list[_Candidate] = field(factory=list)
    #: The projects (None for the user) for which our own entry is there.
    own: set[Path | None] = field(factory=set)


# --- plan ------------------------------------------------------------------------------------------------------------


def plan(
    files: Iterable[ClientFile],
    gateway: Path,
    *,
    names: Collection[str] | None = None,
    take_from_project: TakeFromProject | None = None,
) -> ImportPlan:
    """Plan to move the servers in these files behind the gateway. Changes nothing.

    `gateway` is the directory with the downstreams' files and roles.json; it need not exist. `names` are the servers to
    move, by their names in the clients; None for all. `take_from_project` is asked for each entry of a project's file;
    None leaves all of them. What is carried out is what it has seen: the files are read once.

    Raises ConfigError if nothing in `gateway` would count. Faults of the clients' files are in `left`.
    """
    if (fault := directory_fault(gateway)) is not None:
        raise ConfigError(str(fault))
    left: list[Left] = []
    # A file may be given under two names.
    by_path = {os.path.realpath(each.path): each for each in reversed(list(files))}
    sources = [source for each in reversed(by_path.values()) if (source := _read_source(each, left)) is not None]
    naming = _Naming(Path(os.path.realpath(gateway)))
    moves: list[Move] = []
    rewrites: list[Rewrite] = []
    # The user's files first: our entry in one serves all projects of this client.
    for source in sorted(sources, key=lambda each: each.client.workspace is not None):
        wanted = [each for each in source.candidates if names is None or each.path[-1] in names]
        usable = [each for each in wanted if not _faults_of(each, left) and _is_taken(each, take_from_project, left)]
        if not usable:
            continue
        tables = [table for table, _ in client_files.tables(source.client.dialect, source.document)]
        # Also of entries that stay, which the difference may show.
        secrets = Secrets.of(
            entry for table in tables for entry in client_files.table_at(source.document, table).values()
        )
        try:
            rewrite = _rewrite(source, usable, sources, secrets)
        except Unmergeable as fault:
            left.append(Left(source.client.path, None, (f"{fault}: move its servers by hand",)))
            continue
        rewrites.append(rewrite)
        moves += [naming.move(each, secrets) for each in usable]
    new_roles, to_add, role = _roles_for(moves, naming.gateway / ROLES_FILE)
    names_there = (each.path[-1] for source in sources for each in source.candidates)
    known = tuple(dict.fromkeys((*names_there, *(each.name for each in left if each.name is not None))))
    return ImportPlan(tuple(moves), tuple(left), tuple(rewrites), tuple(naming.changes), new_roles, to_add, role, known)


def _read_source(client: ClientFile, left: list[Left]) -> _Source | None:
    real = Path(os.path.realpath(client.path))
    try:
        text = read_text(real)
        if text is None:
            return None
        source = _Source(client, real, text, client_files.parse(client.dialect, text))
    except (OSError, Unmergeable) as fault:
        reason = f"cannot be read ({fault.strerror})" if isinstance(fault, OSError) else str(fault)
        left.append(Left(client.path, None, (reason,)))
        return None
    inputs = source.document.get("inputs")
    for table, project in client_files.tables(client.dialect, source.document):
        workspace = Path(project) if project is not None else client.workspace
        for name, raw in client_files.table_at(source.document, table).items():
            path = (*table, name)
            if _is_ours(name, raw):
                source.own.add(workspace)
            elif project is not None and not (Path(project).is_absolute() and Path(project).is_dir()):
                left.append(Left(client.path, name, ("is for a project that does not exist any more",)))
            else:
                place = Place(str(client.path), ".".join(plain(each) or "..." for each in path))
                try:
                    source.candidates.append(_Candidate(client, path, raw, place, inputs, workspace))
                except RecursionError:
                    left.append(Left(client.path, name, ("is nested too deeply",)))
    return source


def _is_ours(name: str, raw: object) -> bool:
    """Whether an entry is for agent-intercom itself: by its name, or by what it starts."""
    if name == OWN_NAME:
        return True
    if not isinstance(raw, Mapping):
        return False
    args, command = raw.get("args"), raw.get("command")
    words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else [])]
    return any(isinstance(word, str) and _OURS.search(word) for word in words)


def _faults_of(candidate: _Candidate, left: list[Left]) -> bool:
    """Whether an entry cannot be moved; then it is left."""
    config, name = candidate.entry.config, candidate.path[-1]
    reasons = [each.sentence for each in candidate.entry.faults]
    if config is not None:
        # What our own reader does not accept must not be written.
        text = _config_text(config)
        read, faults = check(text, name)
        reasons += [each.sentence for each in faults]
        if not faults and read != config:
            reasons.append("cannot be written as a downstream's file")
        if len(text.encode()) > FILE_BYTES:
            reasons.append(f"is larger than {FILE_BYTES} bytes")
        elif candidate.client.workspace is not None and len(text) > LONGEST_OF_PROJECT:
            reasons.append(f"is longer than {LONGEST_OF_PROJECT} characters, which nobody reads before a yes")
    if reasons:
        left.append(Left(candidate.client.path, name, tuple(reasons)))
    return bool(reasons)


def _is_taken(candidate: _Candidate, take: TakeFromProject | None, left: list[Left]) -> bool:
    """Whether a usable entry is to be moved. One of a project's file that is not taken is left."""
    client, name = candidate.client, candidate.path[-1]
    if client.workspace is None:
        return True
    if take is None:
        left.append(Left(client.path, name, ("is of the project, and the author of its files chose what it starts",)))
        return False
    assert candidate.entry.config is not None
    if not take(client, name, candidate.entry.config):
        left.append(Left(client.path, name, (REFUSED,)))
        return False
    return True


def _config_text(config: DownstreamConfig) -> str:
    return json.dumps(to_json(config), indent=2, ensure_ascii=True) + "\n"


class _Naming:
    """Gives downstreams valid and unique names, and finds those that are there already."""

    def __init__(self, gateway: Path) -> None:
        self.gateway = gateway
        self.changes: list[Change] = []
        self._known = {name.lower(): each for name, each in read_directory(gateway).configs.items()}
        self._existing = frozenset(self._known)
        # A file with faults, whatever name it has, must not be written over.
        files = (each.stem.lower() for each in gateway.glob("*.json"))
        self._taken = {*self._known, *files, OWN_NAME, Path(ROLES_FILE).stem}

    def move(self, candidate: _Candidate, secrets: Secrets) -> Move:
        notes = list(candidate.entry.notes)
        config, secret_names, is_new = self._named(candidate, notes)
        text, file = _config_text(config), self.gateway / f"{config.name}.json"
        if is_new:
            self._taken.add(config.name.lower())
            self._known[config.name.lower()] = config
            self.changes.append(Change(file, None, text, 0o600))
        if config.transport is Transport.STDIO and config.cwd is None and candidate.workspace is None:
            notes.append(Note("cwd", "it starts in the gateway's directory, not in a session's project"))
        notes += _literal_notes(config)
        shown = secrets.mask(text)
        return Move(
            candidate.client, candidate.path, config, file if is_new else None, shown, tuple(notes), secret_names
        )

    def _named(self, candidate: _Candidate, notes: list[Note]) -> tuple[DownstreamConfig, Mapping[str, str], bool]:
        """Return the configuration with a free name, or the one that is there already; the names of its secrets in the
        keychain; and whether it is new."""
        assert candidate.entry.config is not None
        first, conflict = candidate.entry.config.name, ""
        for name in _candidate_names(first, candidate.workspace):
            known = self._known.get(name.lower())
            # The names of its secrets depend on its own.
            entry = candidate.named(known.name if known is not None else name)
            config = entry.config
            assert config is not None
            if known is not None and _is_same(known, config, candidate):
                apart = "" if known.cwd == config.cwd else f", started in {known.cwd or 'the directory of the gateway'}"
                notes.append(Note("", f"the server {known.name} is the same{apart}: both use it"))
                return known, entry.secrets, False
            if name.lower() not in self._taken:
                if name != first:
                    notes.append(Note("", f"it is called {name} here: {conflict}"))
                return config, entry.secrets, True
            where = "there is" if name.lower() in self._existing else "this import has"
            conflict = conflict or f"{where} another server {first} already"
        raise AssertionError("names are endless")


def _is_same(known: DownstreamConfig, config: DownstreamConfig, candidate: _Candidate) -> bool:
    """Whether an entry is for the server `known`: it starts or reaches the same with the same settings. A directory
    counts only if the entry names one, not if it is only where the client starts its servers. What a person has added
    to the file of `known`, such as a budget, makes it no other server; but what the entry forbids must be forbidden."""

    def reached(each: DownstreamConfig) -> tuple[object, ...]:
        started = (each.transport, each.command, each.args, dict(each.env), each.env_vars, each.env_file)
        return *started, each.base_url, dict(each.headers), each.oauth, each.enabled

    if reached(known) != reached(config):
        return False
    names_directory = isinstance(candidate.raw, Mapping) and bool(candidate.raw.get("cwd"))
    if known.cwd != config.cwd and names_directory:
        return False
    offers_all = config.capabilities == (f"{config.name}.*",) or config.capabilities == known.capabilities
    return offers_all and set(config.disabled_tools) <= set(known.disabled_tools)


def _candidate_names(name: str, workspace: Path | None) -> Iterator[str]:
    yield name
    project = re.sub(r"[^A-Za-z0-9]+", "-", workspace.name).strip("-") if workspace is not None else ""
    if project:
        yield f"{name}-{project}"[:NAME_LENGTH].rstrip("-")
    number = 2
    while True:
        end = f"-{number}"
        yield name[: NAME_LENGTH - len(end)].rstrip("-") + end
        number += 1


def literal_secrets(config: DownstreamConfig) -> tuple[str, ...]:
    """Return the variables and headers whose values may be secrets that the file has as they are."""
    return tuple(name for found in _literal_secrets(config).values() for name in found)


def _literal_secrets(config: DownstreamConfig) -> Mapping[str, list[str]]:
    def may_be_secret(name: str, value: str) -> bool:
        return looks_secret(value) or is_named_secret(name, value)

    tables = {"env": config.env, "headers": config.headers}
    return {key: [name for name, value in found.items() if may_be_secret(name, value)] for key, found in tables.items()}


def _literal_notes(config: DownstreamConfig) -> Iterator[Note]:
    for key, found in _literal_secrets(config).items():
        if found:
            listed = ", ".join(plain(name) or "..." for name in found)
            yield Note(key, f"{listed}: {LITERAL}")
    if any(secret_arguments(config.args)):
        yield Note("args", LITERAL)


# --- the clients' files ----------------------------------------------------------------------------------------------


def _rewrite(source: _Source, moved: Sequence[_Candidate], sources: Iterable[_Source], secrets: Secrets) -> Rewrite:
    """Return the change of a client's file. Raises Unmergeable."""
    client = source.client
    text = client_files.remove(client.dialect, source.text, [each.path for each in moved])
    adds: dict[KeyPath, JsonObject] = {}
    added: set[Path | None] = set()
    if client.own_entry is not None:
        served = {workspace for each in sources if each.client.dialect is client.dialect for workspace in each.own}
        # A table of the user before those of projects: our entry there serves them, too.
        for candidate in sorted(moved, key=lambda each: each.workspace is not None):
            if not (served | added) & {None, candidate.workspace}:
                adds[(*candidate.path[:-1], OWN_NAME)] = client.own_entry
                added.add(candidate.workspace)
        text = client_files.put(client.dialect, text, adds) if adds else text
        source.own |= added
    notes = []
    if client.workspace is not None:
        notes.append("it may belong to the project's repository: others have these servers only if they import, too")
    if source.real.name == ".claude.json":
        notes.append("Claude Code writes this file while it runs: end it before the import")
    allowed = client_files.value_at(source.document, ("mcp", "allowed"))
    of_gemini = client.dialect in (Dialect.GEMINI_CLI, Dialect.QWEN_CODE)
    if adds and of_gemini and isinstance(allowed, list) and OWN_NAME not in allowed:
        notes.append(f"its list mcp.allowed says which servers it starts: add {OWN_NAME}")
    if client.dialect is Dialect.VSCODE and "inputs" in source.document:
        notes.append("its inputs stay, also those that no server needs any more")
    change = Change(source.real, source.text, text)
    return Rewrite(client, change, diff(source.text, text, secrets), tuple(adds), tuple(notes))


# --- roles -----------------------------------------------------------------------------------------------------------


def _roles_for(moves: Sequence[Move], file: Path) -> tuple[Change | None, tuple[str, ...], str]:
    """Return the change that makes roles.json, or None; and the capabilities that the default role of an existing one
    does not grant, and this role's name."""
    wanted = tuple(dict.fromkeys(f"{each.config.name}.*" for each in moves))
    if wanted and not os.path.lexists(file):
        role = {"role": DEFAULT_ROLE, "capabilities": list(wanted)}
        text = json.dumps({"defaultRole": DEFAULT_ROLE, "roles": [role]}, indent=2) + "\n"
        return Change(file, None, text, 0o600), (), DEFAULT_ROLE
    if not wanted or not file.is_file():
        return None, wanted, DEFAULT_ROLE
    # A file with faults grants nothing.
    roles, assignments, _ = read_roles(file, {})
    name = assignments.default_role or DEFAULT_ROLE
    known = roles.roles.get(name) if assignments.default_role is not None else None
    granted = {each.name for each in known.capabilities} if known is not None else set()
    return None, tuple(each for each in wanted if each not in granted and "*.*" not in granted), name


# --- carry out -------------------------------------------------------------------------------------------------------


def carry_out(planned: ImportPlan, state_dir: Path, now: datetime, enabling: Change | None = None) -> Receipt:
    """Do what was planned, all of it or nothing, and return the receipt, which is in `state_dir` then.
    `enabling` is the change of the configuration that enables the gateway; None if it is enabled.

    Raises ConfigError if there is nothing to do, and FileError if a file has changed since the plan, or cannot be
    written; then everything is as it was. If the process is killed meanwhile, `undo` of the receipt restores all.
    """
    if not planned.moves:
        raise ConfigError("there is no server to move: nothing was changed")
    directory = state_dir / IMPORTS / now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    receipt = _receipt_of(planned, directory / RECEIPT, now, enabling)
    content = receipt_text(receipt)
    if len(content) > _RECEIPT_BYTES:
        raise ConfigError("these are too many servers for one import: move those of one client at a time")
    # Nothing is done that could not be undone.
    if parse_receipt(content, receipt.file) != receipt:
        raise ConfigError("the receipt of this import could not be read again: nothing was changed")
    backups = {entry.path: entry.backup for entry in receipt.files}
    changes = [
        # The receipt first, which makes all else reversible, and the clients' files last.
        Change(receipt.file, None, content),
        *planned.created,
        *([planned.roles] if planned.roles is not None else []),
        *([_with_backup(enabling, directory)] if enabling is not None else []),
        *(evolve(each.change, backup=directory / str(backups[str(each.change.file)])) for each in planned.rewrites),
    ]
    commit_all(changes, "nothing was changed")
    return receipt


def _with_backup(enabling: Change, directory: Path) -> Change:
    return enabling if enabling.before is None else evolve(enabling, backup=directory / _CONFIG)


def _receipt_of(planned: ImportPlan, file: Path, now: datetime, enabling: Change | None) -> Receipt:
    created = [*planned.created, *([planned.roles] if planned.roles is not None else [])]
    files = [
        ReceiptFile(
            str(each.file), Kind.ROLES if each is planned.roles else Kind.DOWNSTREAM, None, digest_of(each.after or "")
        )
        for each in created
    ]
    if enabling is not None:
        before = None if enabling.before is None else digest_of(enabling.before)
        after, backup = digest_of(enabling.after or ""), None if before is None else _CONFIG
        files.append(ReceiptFile(str(enabling.file), Kind.CONFIG, before, after, backup))
    entries = [ReceiptEntry(os.path.realpath(each.client.path), each.path, each.config.name) for each in planned.moves]
    for at, rewrite in enumerate(planned.rewrites):
        change = rewrite.change
        name = f"{at}-{change.file.name.lstrip('.')}"
        before, after = digest_of(change.before or ""), digest_of(change.after or "")
        files.append(ReceiptFile(str(change.file), Kind.CLIENT, before, after, name, rewrite.client.dialect))
        own = value_digest(rewrite.client.own_entry)
        entries += [ReceiptEntry(str(change.file), path, None, own) for path in rewrite.adds]
    written = [*created, *([enabling] if enabling is not None else [])]
    directories = {str(directory) for each in written for directory in missing_directories(each.file)}
    return Receipt(file, now.astimezone(UTC).isoformat(), tuple(files), tuple(entries), tuple(sorted(directories)))
