"""Connects clients and disconnects them: the entry for the server, the permission hooks, the permission to call its
tools, the permanent instructions, and the record of all.

What an entry and a hook look like is in the client's own module (`intercom.agents.clients`). Other keys of an older
entry stay, and so does a number that the person raised. Other hooks stay, and older ones of ours are replaced.

All files of a client change, or none. `init --remove` takes out what the record says, and no more. Without a record it
takes out every entry and hook of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import attrs
from attrs import field, frozen

from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import (
    HOOK_MARGIN_SECONDS,
    HOOK_SECONDS,
    SERVER_NAME,
    STOP_HOOK_SECONDS,
    Client,
    Hooks,
    Location,
)
from intercom.cli.init_files import ClientFile, DocumentFile, Unmergeable, describe, glance, parse, table
from intercom.cli.init_instructions import InstructionsFile, instructions_file
from intercom.cli.init_permissions import joined, own_tools_file, permissions_file
from intercom.local.file_replacement import Change, backup_name, commit, missing_directories, read
from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.errors import ConfigError, WorkspaceRefused
from intercom.model.json_types import Json, JsonObject
from intercom.model.limits import is_agent_name
from intercom.model.server_view import DEFAULT_PORT, ClientEntry, local_base
from intercom.workspace.files import check_workspace, version_control_root

#: Keys of each transport besides those that a client's module writes, which would confuse the other.
_STDIO_KEYS = frozenset({"env", "environment", "cwd"})
_HTTP_KEYS = frozenset({"headers", "http_headers"})
#: Stands for the address, to find the key that has it: clients call it differently.
_URL = "URL"

#: An entry runs `agent-intercom hook CLIENT` through the client's shell. If that fails, also because the command cannot
#: be started, this denies with exit code 2, which every client understands.
_FALLBACK = "|| { echo 'agent-intercom: the hook failed, so this is denied' >&2; exit 2; }"
_OURS = re.compile(r"(agent-intercom|intercom\.cli\.main)\S*\s(.*\s)?hook\s")


@frozen
class EntryFile(DocumentFile):
    """The file in which a client names its servers, with Intercom's entry in it. Keys in `without` are removed from an
    older entry. `inputs` are prompts at the top of the file, identified by their `id`."""

    client: Client
    project: Path
    entry: JsonObject = field(factory=dict)
    without: Set[str] = frozenset()
    inputs: tuple[JsonObject, ...] = ()
    note: str = ""

    @property
    def title(self) -> str:
        return self.client.title

    @property
    def location(self) -> Location:
        return self.client.entry.file

    @property
    def mode(self) -> int:
        return 0o644 if self.location.is_in_project else 0o600

    def put(self, document: JsonObject) -> None:
        before = table(document, self.client.entry.table, SERVER_NAME)
        if self.inputs:
            known = [each.get("id") for each in _inputs(document) if isinstance(each, dict)]
            missing = [each for each in self.inputs if each["id"] not in known]
            document["inputs"] = [*_inputs(document), *missing]
        kept = {key: value for key, value in before.items() if key not in self.without}
        wanted = {key: self._wanted(key, before.get(key), value) for key, value in self.entry.items()}
        servers = table(document, self.client.entry.table)
        document[self.client.entry.table] = {**servers, SERVER_NAME: {**kept, **wanted}}

    def _wanted(self, key: str, old: Json, new: Json) -> Json:
        if isinstance(new, dict) and isinstance(old, dict):
            return {**old, **new}
        if key in self.client.entry.open_lists and isinstance(old, list) and isinstance(new, list):
            return [*old, *(each for each in new if each not in old)]
        return max(old, new) if type(new) is int and isinstance(old, int) else new

    def take(self, document: JsonObject, before: JsonObject | None) -> None:
        servers = table(document, self.client.entry.table)
        if SERVER_NAME not in servers:
            return
        del servers[SERVER_NAME]
        if before is not None:
            servers[SERVER_NAME] = dict(before)
        if not servers:
            del document[self.client.entry.table]
        ours = [each["id"] for each in self.client.entry.inputs]
        if ours and isinstance(inputs := document.get("inputs"), list):
            kept = [each for each in inputs if not (isinstance(each, dict) and each.get("id") in ours)]
            document["inputs"] = kept
            if not kept:
                del document["inputs"]

    def entry_of(self, document: JsonObject) -> JsonObject | None:
        return table(document, self.client.entry.table, SERVER_NAME)

    def is_empty(self, document: JsonObject) -> bool:
        return not document


def _inputs(document: JsonObject) -> list[Json]:
    found = document.get("inputs", [])
    if not isinstance(found, list):
        raise Unmergeable("has something other than a list at inputs")
    return found


@frozen
class HooksFile(DocumentFile):
    """The file with a client's hooks, in the form of `EntryFile`. `start` is the command that ours begin with."""

    client: Client
    hooks: Hooks
    project: Path
    start: tuple[str, ...] = (SERVER_NAME,)

    @property
    def title(self) -> str:
        return f"{self.client.title}'s hooks"

    @property
    def location(self) -> Location:
        return self.hooks.file

    @property
    def note(self) -> str:
        return self.hooks.note

    @property
    def scope(self) -> str:
        """Where the hooks apply."""
        return "in this project only" if self.location.is_in_project else "in all your projects"

    def put(self, document: JsonObject) -> None:
        for name, value in self.hooks.head.items():
            document.setdefault(name, value)
        events = _events(document)
        wanted = self.entries()
        for event in {**events, **wanted}:
            entries = [*_of_others(events.get(event, [])), *([wanted[event]] if event in wanted else [])]
            if entries or event in events:
                events[event] = entries

    def entries(self) -> dict[str, JsonObject]:
        """Return Intercom's entry for each event."""
        found = {}
        for event in self.hooks.events:
            asks = event in self.hooks.asks
            line = shlex.join([*self.start, "hook", self.client.name, "--event", event])
            if asks:
                line = f"{line} --wait {HOOK_SECONDS - HOOK_MARGIN_SECONDS} {_FALLBACK}"
            found[event] = self.hooks.entry(line, HOOK_SECONDS if asks else STOP_HOOK_SECONDS, asks=asks)
        return found

    def take(self, document: JsonObject, before: JsonObject | None) -> None:
        events = _events(document) if "hooks" in document else {}
        ours = [event for event, entries in events.items() if _of_others(entries) != entries]
        for event in ours:
            events[event] = _of_others(events[event])
            if not events[event]:
                del events[event]
        if ours and not events:
            del document["hooks"]

    def is_empty(self, document: JsonObject) -> bool:
        return document in ({}, dict(self.hooks.head))

    def installed(self) -> tuple[str, ...]:
        """Return the events for which the file has our entry; none if it cannot be read."""
        try:
            events = parse(glance(path_of(self)), toml=False).get("hooks")
        except Unmergeable:
            return ()
        found = {event: events.get(event) for event in self.hooks.events} if isinstance(events, dict) else {}
        lists = {event: entries for event, entries in found.items() if isinstance(entries, list)}
        return tuple(event for event, entries in lists.items() if _of_others(entries) != entries)


def _events(document: JsonObject) -> dict[str, list[Json]]:
    events = document.setdefault("hooks", {})
    if not isinstance(events, dict) or not all(isinstance(entries, list) for entries in events.values()):
        raise Unmergeable("has something other than lists of hooks at hooks")
    return events


def _of_others(entries: Iterable[Json]) -> list[Json]:
    """Return these entries without our commands, and without an entry of which nothing is left."""
    kept = []
    for entry in entries:
        if not isinstance(entry, dict):
            kept.append(entry)
        elif isinstance(entry.get("hooks"), list):
            commands = [each for each in entry["hooks"] if not _is_ours(each)]
            if commands or not entry["hooks"]:
                kept.append({**entry, "hooks": commands})
        elif not _is_ours(entry):
            kept.append(entry)
    return kept


def _is_ours(handler: Json) -> bool:
    commands = [handler.get(name) for name in ("command", "bash")] if isinstance(handler, dict) else []
    return any(isinstance(command, str) and _OURS.search(command) for command in commands)


def path_of(file: ClientFile) -> Path:
    """Return the file's path."""
    return file.location.file(file.project)


def put_into(file: ClientFile, text: str) -> str:
    """Return the file's text with what is Intercom's; `text` itself if it says so already. Raises Unmergeable."""
    return file.merged(text)


def snippet(file: ClientFile) -> str:
    """Return what is Intercom's as the whole text of a new file."""
    return put_into(file, "")


# --- what an entry should be -----------------------------------------------------------------------------------------


def project_at(directory: Path) -> Path:
    """Return the project of a directory: what is under version control above it, else the directory itself."""
    here = directory.resolve()
    found = version_control_root(here)
    with contextlib.suppress(WorkspaceRefused):
        return check_workspace(found) if found is not None else here
    return here


def entry_file(
    client: Client, project: Path, config: Path | None, http: Config | None, agent: str | None = None
) -> EntryFile:
    """Return what a client's entry should be: over HTTP if `http` is the configuration of the server there, else over
    stdio with the configuration file `config` (None for the default one). `agent` names its agent permanently; without
    it, a name in the older entry stays."""
    older = entry_of(client, project)
    if http is None:
        return _over_stdio(client, project, config, agent or _agent_in(older))
    (key,) = (key for key, value in client.entry.http(_URL, True).items() if value == _URL)
    base = local_base(http.http_host, http.http_port or DEFAULT_PORT)
    url = address(base, client.name, str(older.get(key, "")), agent)
    return _over_http(client, project, config, url, token=http.http_token_required)


def _over_stdio(client: Client, project: Path, config: Path | None, agent: str | None) -> EntryFile:
    """Return an entry over stdio. Raises ConfigError as `command` does."""
    entry = client.entry
    start = command(config, shared=entry.file.is_in_project)
    stdio = entry.stdio([*start, "--agent", agent] if agent else start)
    without = (entry.http(_URL, True).keys() | _HTTP_KEYS) - stdio.keys()
    return EntryFile(client, project, stdio, without, (), entry.note)


def _over_http(client: Client, project: Path, config: Path | None, url: str, *, token: bool) -> EntryFile:
    """Return an entry over HTTP, for a server at `url`."""
    entry = client.entry
    of_stdio = entry.stdio(command(config, shared=entry.file.is_in_project)).keys() | _STDIO_KEYS
    without = of_stdio - entry.http(_URL, True).keys()
    note = f"{entry.token_note} {entry.note}" if token else entry.note
    return EntryFile(client, project, entry.http(url, token), without, entry.inputs if token else (), note)


def new_entries(config: Path | None, base: str, *, token: bool) -> tuple[ClientEntry, ...]:
    """Return what `init` writes for each client that has no entry yet: over stdio with the configuration file `config`
    (None for the default one), and over HTTP for a server at `base`. Reads no file of a client."""
    return tuple(_new_entry(client, config, base, token=token) for client in CLIENTS.values())


def _new_entry(client: Client, config: Path | None, base: str, *, token: bool) -> ClientEntry:
    anywhere, fault, stdio = Path("/"), "", ""
    try:
        stdio = snippet(_over_stdio(client, anywhere, config, None))
    except ConfigError as error:
        fault = error.message
    # Over HTTP no configuration is named.
    over_http = _over_http(client, anywhere, None, address(base, client.name, ""), token=token)
    where, is_in_project = client.entry.file, client.entry.file.is_in_project
    file = where.path if is_in_project else _shortened(where.file(anywhere))
    note, other, its_note = client.entry.note, snippet(over_http), over_http.note
    return ClientEntry(client.name, client.title, file, is_in_project, stdio, note, other, its_note, fault)


def _shortened(file: Path) -> str:
    """Return a path for people: `~` for their home directory."""
    home = Path.home()
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


def hooks_file(client: Client, project: Path, config: Path | None = None) -> HooksFile | None:
    """Return what a client's hooks should be; None if it has no hooks."""
    if client.hooks is None:
        return None
    return HooksFile(client, client.hooks, project, tuple(command(config, shared=False)))


def entry_of(client: Client, project: Path) -> JsonObject:
    """Return the existing entry; empty if there is none, or if the file cannot be read."""
    try:
        document = parse(glance(client.entry.file.file(project)), toml=client.entry.file.is_toml)
        return table(document, client.entry.table, SERVER_NAME)
    except Unmergeable:
        return {}


def names_us(client: Client, project: Path) -> bool:
    """Whether a file of a client has our entry: the one that `init` writes, or one that `gateway import` reads."""
    if SERVER_NAME in glance(client.entry.file.file(project)):
        return True
    # Imported lazily: only doctor asks.
    from intercom.gateway import client_files

    home = Path(os.environ.get("HOME") or Path.home())
    others = (each.path for each in client_files.locate(home, project, os.environ) if each.dialect.value == client.name)
    # Claude Code's own file has its history, too, so the name alone says nothing.
    return any(re.search(rf'"{SERVER_NAME}"\s*:', glance(each)) for each in others)


def found(project: Path) -> list[str]:
    """Return the names of the clients of which something is on this machine or in the project: a file or directory of
    theirs, or their program."""
    return [name for name, client in CLIENTS.items() if _is_here(client, project)]


def _is_here(client: Client, project: Path) -> bool:
    file = client.entry.file.file(project)
    is_own_directory = file.parent not in (project, Path.home())
    program = client.probe.program if client.probe is not None else client.name
    return file.exists() or (is_own_directory and file.parent.is_dir()) or shutil.which(program) is not None


def command(config: Path | None, *, shared: bool) -> list[str]:
    """Return the command that starts the shim, for a client's file.

    A file of the user gets an absolute path, because a client started from a desktop has another PATH. A shared file
    gets the bare name, and `~` for the home directory, so that it has no path of this machine. `config` is None for the
    default file. Raises ConfigError for a shared file if `config` is not in the home directory.
    """
    if shared:
        return [SERVER_NAME, *(["--config", _from_home(config)] if config else [])]
    start = [installed(SERVER_NAME)] if installed(SERVER_NAME) else [sys.executable, "-m", "intercom.cli.main"]
    return [*start, "--config", str(config)] if config else start


def installed(name: str) -> str:
    """Return the absolute path of a command of this installation, as the PATH names it if it finds that one; empty if
    there is none."""
    script = Path(sys.executable).parent / name
    if is_on_path(name):
        return os.path.abspath(str(shutil.which(name)))
    return str(script) if script.is_file() else ""


def is_on_path(name: str) -> bool:
    """Whether the PATH finds a command, and no other installation's."""
    found, script = shutil.which(name), Path(sys.executable).parent / name
    return found is not None and (not script.is_file() or os.path.realpath(found) == os.path.realpath(script))


def _from_home(file: Path) -> str:
    home = Path.home()
    if not file.is_relative_to(home):
        raise ConfigError(
            f"a file that a project shares cannot name {file}, a path of this machine: use a configuration in {home} or"
            " the default one"
        )
    return f"~/{file.relative_to(home)}"


def _agent_in(entry: JsonObject) -> str | None:
    """Return the permanent name in an entry over stdio. Clients call the key of the command line differently."""
    for words in entry.values():
        if isinstance(words, list) and "--agent" in words[:-1]:
            name = words[words.index("--agent") + 1]
            return name if isinstance(name, str) and is_agent_name(name) else None
    return None


def address(base: str, client: str, before: str, agent: str | None = None) -> str:
    """Return the URL at which this client finds the server at `base`. Its `agent` key names the agent permanently:
    without `agent`, a key in the URL `before` is kept, so that the agent's session continues."""
    known = agent or parse_qs(before.partition("?")[2]).get("agent", [""])[0]
    return f"{base}/mcp?{urlencode({'agent': known or f'{client}-{secrets.token_hex(8)}'})}"


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
    wrote: JsonObject | None = None
    before: JsonObject | None = None
    directories: tuple[str, ...] = ()

    def is_text(self, text: str | None) -> bool:
        """Whether this is the text that `init` wrote."""
        return text is not None and _digest(text) == self.digest


def record_file() -> Path:
    return Path(places().state_dir) / "init.json"


def backup_directory() -> Path:
    """Return the directory of the old texts: outside of every project, where no commit picks them up."""
    return Path(places().state_dir) / "init-backups"


def backup_of(file: Path) -> Path:
    """Return the path for a file's old text."""
    return backup_name(file, backup_directory())


def recorded() -> dict[str, Written]:
    """Return the record by file; empty if there is none, or if it cannot be read."""
    try:
        found = json.loads(read(record_file()) or "{}")["files"]
        known = {each.name for each in attrs.fields(Written)}
        kept = {path: {name: each[name] for name in known & each.keys()} for path, each in found.items()}
        return {path: Written(**each | {"directories": tuple(each["directories"])}) for path, each in kept.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _saved(entries: Mapping[str, Written]) -> Change:
    """Return the change that makes this the record."""
    text = json.dumps({"version": 1, "files": {path: attrs.asdict(each) for path, each in entries.items()}}, indent=2)
    return Change(record_file(), read(record_file()), f"{text}\n" if entries else None)


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
    record = recorded()
    entries = dict(record)
    changes = []
    for each in files:
        real, before, after = _edited(each, partial(put_into, each))
        known = record.get(str(real))
        is_ours = known is not None and known.is_text(before)
        backup = None if before is None or is_ours or after == before else backup_of(real)
        change = Change(real, before, after, each.mode, backup)
        changes.append((each, change))
        if change.changes:
            entries[str(real)] = _written(client, each, change, known)
    record_change = [_saved(entries)] if entries != record else []
    commit([*(change for _, change in changes), *record_change])
    return changes


def _written(client: Client, file: ClientFile, change: Change, known: Written | None) -> Written:
    """Return the record of a change. `known` is what was recorded before."""
    wrote = file.entry_in(change.after or "")
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
        before=file.entry_in(change.before or "") or None,
        directories=tuple(map(str, missing_directories(change.file))),
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
    for path, entry in recorded().items():
        if entry.client in names and os.path.exists(path):
            lines.append(f"still in {path}: run init --remove --client {entry.client} --workspace on that project")
    if not lines and not faults:
        lines.append("nothing  of Intercom is in these clients' files")
    return lines, faults


def _remove(client: Client, workspace: Path) -> list[str]:
    record = recorded()
    entries = dict(record)
    parts: list[DocumentFile] = [EntryFile(client, workspace)]
    if client.hooks is not None:
        parts.append(HooksFile(client, client.hooks, workspace))
    if (permissions := permissions_file(client, workspace)) is not None:
        parts.append(permissions)
    files: list[ClientFile] = [*joined(parts)]
    lines: list[str] = []
    instructions = instructions_file(client, workspace)
    if instructions is not None:
        real, other = os.path.realpath(instructions.path), _other_reader(instructions)
        if other is None:
            files.append(instructions)
        else:
            lines.append(f"kept     {instructions.path}, which {other.title} reads too")
            if real in entries:
                entries[real] = attrs.evolve(entries[real], client=other.name)
    changes: list[Change] = []
    directories: list[str] = []
    for each in files:
        entry = entries.pop(os.path.realpath(path_of(each)), None)
        found, line = _removal(each, entry)
        changes += found
        lines += [line] if line else []
        directories += entry.directories if entry is not None else ()
    commit([*changes, *([_saved(entries)] if entries != record else [])])
    rules = own_tools_file(client, workspace)
    if rules is not None and changes and rules.is_installed():
        lines.append(f"kept     {rules.title}, in {path_of(rules)}: without them, these write and run without asking")
    for directory in [*reversed(directories), str(backup_directory())]:
        # Only an empty one goes.
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return lines


def _other_reader(file: InstructionsFile) -> Client | None:
    """Return another connected client whose instructions are in the same file, by a link; None if there is none."""
    real = os.path.realpath(file.path)
    for client in CLIENTS.values():
        other = instructions_file(client, file.project)
        is_same = other is not None and client != file.client and os.path.realpath(other.path) == real
        if is_same and entry_of(client, file.project):
            return client
    return None


def _removal(file: ClientFile, entry: Written | None) -> tuple[list[Change], str]:
    """Return what has to change, first in the file itself, and a line about it; both empty if nothing has to."""

    before = entry.before if entry is not None else None
    real, text, after = _edited(file, lambda text: file.removed_from(text, before))
    if text is None:
        return [], ""
    if entry is not None and entry.is_text(text) and not entry.created:
        old = read(Path(entry.backup)) if entry.backup is not None else None
        if old is not None:
            changes = [Change(real, text, old), Change(Path(str(entry.backup)), old, None)]
            return changes, f"restored {real} as it was  ({file.title})"
    is_left = after == text or not file.is_bare(after)
    if entry is not None and entry.created and (entry.is_text(text) or not is_left):
        return [Change(real, text, None)], f"deleted  {real}, which init had made  ({file.title})"
    if after == text:
        return [], ""
    backup = backup_of(real)
    line = f"removed  from {real}  ({file.title})\n         its old text: {backup}"
    own = _own_keys(file.entry_in(text), entry)
    return [Change(real, text, after, backup=backup)], line + own


def _own_keys(found: JsonObject | None, entry: Written | None) -> str:
    """Return a line about the person's own keys in our entry, which are removed with it; empty if there are none."""
    if not found or entry is None or entry.wrote is None:
        return ""
    own = [key for key, value in found.items() if entry.wrote.get(key) != value]
    return f"\n         you had set in its entry: {', '.join(own)}" if own else ""
