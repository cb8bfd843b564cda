"""What `init` puts into a client's files, and takes out again: the entry for the server, and the permission hooks.

What an entry and a hook look like is in the client's own module (`intercom.agents.clients`). Other keys of an older
entry stay, and so does a number that the person raised. Other hooks stay, and older ones of ours are replaced.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from attrs import field, frozen

from intercom.agents.clients.client import (
    HOOK_MARGIN_SECONDS,
    HOOK_SECONDS,
    SERVER_NAME,
    STOP_HOOK_SECONDS,
    Client,
    Hooks,
    Location,
)
from intercom.cli.init_files import Json, Unmergeable, edit, glance, parse, table
from intercom.model.config import Config

#: The port if the configuration names none.
DEFAULT_PORT = 3000

#: Keys of each transport besides those that a client's module writes, which would confuse the other.
_STDIO_KEYS = frozenset({"env", "cwd"})
_HTTP_KEYS = frozenset({"headers", "http_headers"})
#: Stands for the address, to find the key that has it: clients call it differently.
_URL = "URL"

#: An entry runs `agent-intercom hook CLIENT` through the client's shell. If that fails, also because the command cannot
#: be started, this denies with exit code 2, which every client understands.
_FALLBACK = "|| { echo 'agent-intercom: the hook failed, so this is denied' >&2; exit 2; }"
_OURS = re.compile(r"(agent-intercom|intercom\.cli\.main)\S*\s(.*\s)?hook\s")


@frozen
class EntryFile:
    """The file in which a client names its servers, with Intercom's entry in it. Keys in `without` are removed from an
    older entry. `inputs` are prompts at the top of the file, identified by their `id`."""

    client: Client
    project: Path
    entry: Mapping[str, Any] = field(factory=dict)
    without: Set[str] = frozenset()
    inputs: tuple[Json, ...] = ()
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

    def put(self, document: Json) -> None:
        """Change the document so that it has our entry."""
        before = table(document, self.client.entry.table, SERVER_NAME)
        if self.inputs:
            known = [each.get("id") for each in _inputs(document) if isinstance(each, dict)]
            missing = [each for each in self.inputs if each["id"] not in known]
            document["inputs"] = [*_inputs(document), *missing]
        kept = {key: value for key, value in before.items() if key not in self.without}
        wanted = {key: self._wanted(key, before.get(key), value) for key, value in self.entry.items()}
        document.setdefault(self.client.entry.table, {})[SERVER_NAME] = {**kept, **wanted}

    def _wanted(self, key: str, old: Any, new: Any) -> Any:
        if isinstance(new, dict) and isinstance(old, dict):
            return {**old, **new}
        if key in self.client.entry.open_lists and isinstance(old, list):
            return [*old, *(each for each in new if each not in old)]
        return max(old, new) if type(new) is int and isinstance(old, int) else new

    def take(self, document: Json, before: Mapping[str, Any] | None) -> None:
        """Take our entry out of the document. `before` is the entry of this name that was there earlier."""
        servers = table(document, self.client.entry.table)
        if SERVER_NAME not in servers:
            return
        del servers[SERVER_NAME]
        if before is not None:
            servers[SERVER_NAME] = dict(before)
        if not servers:
            del document[self.client.entry.table]
        ours = [each["id"] for each in self.client.entry.inputs]
        if ours and isinstance(document.get("inputs"), list):
            kept = [each for each in document["inputs"] if not (isinstance(each, dict) and each.get("id") in ours)]
            document["inputs"] = kept
            if not kept:
                del document["inputs"]

    def entry_in(self, document: Json) -> Json | None:
        """Return our entry in the document."""
        return table(document, self.client.entry.table, SERVER_NAME)

    def is_bare(self, document: Json) -> bool:
        """Whether nothing is left in the document."""
        return not document


def _inputs(document: Json) -> list[Any]:
    found = document.get("inputs", [])
    if not isinstance(found, list):
        raise Unmergeable("has something other than a list at inputs")
    return found


@frozen
class HooksFile:
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
    def mode(self) -> int:
        return 0o600

    @property
    def scope(self) -> str:
        """Where the hooks apply."""
        return "in this project only" if self.location.is_in_project else "in all your projects"

    def put(self, document: Json) -> None:
        """Change the document so that it has our hooks, in place of older ones of ours."""
        for name, value in self.hooks.head.items():
            document.setdefault(name, value)
        events = _events(document)
        wanted = self.entries()
        for event in {**events, **wanted}:
            entries = [*_of_others(events.get(event, [])), *([wanted[event]] if event in wanted else [])]
            if entries or event in events:
                events[event] = entries

    def entries(self) -> dict[str, Json]:
        """Return Intercom's entry for each event."""
        found = {}
        for event in self.hooks.events:
            asks = event in self.hooks.asks
            line = shlex.join([*self.start, "hook", self.client.name, "--event", event])
            if asks:
                line = f"{line} --wait {HOOK_SECONDS - HOOK_MARGIN_SECONDS} {_FALLBACK}"
            found[event] = self.hooks.entry(line, HOOK_SECONDS if asks else STOP_HOOK_SECONDS, asks=asks)
        return found

    def take(self, document: Json, _before: Mapping[str, Any] | None) -> None:
        """Take our hooks out of the document, and what becomes empty by that."""
        events = _events(document) if "hooks" in document else {}
        ours = [event for event, entries in events.items() if _of_others(entries) != entries]
        for event in ours:
            events[event] = _of_others(events[event])
            if not events[event]:
                del events[event]
        if ours and not events:
            del document["hooks"]

    def entry_in(self, _document: Json) -> Json | None:
        """Return None: hooks are known by their command."""
        return None

    def is_bare(self, document: Json) -> bool:
        """Whether no hook is left in the document, and nothing that a new file of ours would not have."""
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


def _events(document: Json) -> dict[str, list[Any]]:
    events = document.setdefault("hooks", {})
    if not isinstance(events, dict) or not all(isinstance(entries, list) for entries in events.values()):
        raise Unmergeable("has something other than lists of hooks at hooks")
    return events


def _of_others(entries: Iterable[Any]) -> list[Any]:
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


def _is_ours(handler: Any) -> bool:
    commands = [handler.get(name) for name in ("command", "bash")] if isinstance(handler, dict) else []
    return any(isinstance(command, str) and _OURS.search(command) for command in commands)


ClientFile = EntryFile | HooksFile


def path_of(file: ClientFile) -> Path:
    """Return the file's path."""
    return file.location.file(file.project)


def put_into(file: ClientFile, text: str) -> str:
    """Return the file's text with what is Intercom's; `text` itself if it says so already. Raises Unmergeable."""
    return edit(text, file.put, toml=file.location.is_toml)


def snippet(file: ClientFile) -> str:
    """Return what is Intercom's as the whole text of a new file."""
    return put_into(file, "")


# --- what an entry should be -----------------------------------------------------------------------------------------


def entry_file(client: Client, project: Path, config: Path | None, http: Config | None) -> EntryFile:
    """Return what a client's entry should be: over HTTP if `http` is the configuration of the server there, else over
    stdio with the configuration file `config` (None for the default one)."""
    entry = client.entry
    stdio, web = entry.stdio(command(config, shared=entry.file.is_in_project)), entry.http(_URL, True)
    if http is None:
        return EntryFile(client, project, stdio, (web.keys() | _HTTP_KEYS) - stdio.keys(), (), entry.note)
    token = http.http_token_required
    (key,) = (key for key, value in web.items() if value == _URL)
    known = str(entry_of(client, project).get(key, ""))
    url = address(http.http_host, http.http_port or DEFAULT_PORT, client.name, known)
    without = (stdio.keys() | _STDIO_KEYS) - web.keys()
    note = f"{entry.token_note} {entry.note}" if token else entry.note
    return EntryFile(client, project, entry.http(url, token), without, entry.inputs if token else (), note)


def hooks_file(client: Client, project: Path, config: Path | None = None) -> HooksFile | None:
    """Return what a client's hooks should be; None if it has no hooks."""
    if client.hooks is None:
        return None
    return HooksFile(client, client.hooks, project, tuple(command(config, shared=False)))


def entry_of(client: Client, project: Path) -> Json:
    """Return the existing entry; empty if there is none, or if the file cannot be read."""
    try:
        document = parse(glance(client.entry.file.file(project)), toml=client.entry.file.is_toml)
        return table(document, client.entry.table, SERVER_NAME)
    except Unmergeable:
        return {}


def names_us(client: Client, project: Path) -> bool:
    """Whether a client's file contains our entry's name."""
    return SERVER_NAME in glance(client.entry.file.file(project))


def command(config: Path | None, *, shared: bool) -> list[str]:
    """Return the command that starts the shim, for a client's file.

    A file of the user gets an absolute path, because a client started from a desktop has another PATH. A shared file
    gets the bare name if the PATH finds this very program, so that it works on other machines too. `config` is None for
    the default file.
    """
    script = Path(sys.executable).parent / SERVER_NAME
    found = shutil.which(SERVER_NAME)
    if script.is_file():
        same = found is not None and os.path.realpath(found) == os.path.realpath(script)
        start = [SERVER_NAME if shared and same else str(script)]
    else:
        start = [found] if found else [sys.executable, "-m", "intercom.cli.main"]
    return [*start, "--config", str(config)] if config else start


def address(host: str, port: int, client: str, before: str) -> str:
    """Return the URL at which this client finds a server that listens on `host`. Its `agent` key names the agent
    permanently: a key in the URL `before` is kept, so that the agent's session continues."""
    known = parse_qs(before.partition("?")[2]).get("agent", [""])[0]
    called = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    named = f"[{called}]" if ":" in called else called
    return f"http://{named}:{port}/mcp?{urlencode({'agent': known or f'{client}-{secrets.token_hex(8)}'})}"
