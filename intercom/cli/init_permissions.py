"""What `agent-intercom init` writes into a client's settings so that the client starts Intercom's server and lets its
tools pass: they ask a person anyway, and a question of the client's own would come before the card.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from intercom.agents.clients.client import SERVER_NAME, Client, Location, OwnTools, Permissions, ProjectRecord
from intercom.cli.init_files import DocumentFile, Unmergeable, describe, parse, table
from intercom.local.file_replacement import read
from intercom.model.json_types import Json, JsonObject


@frozen
class PermissionsFile(DocumentFile):
    """The settings of a client that permit Intercom's server and its tools in one project.

    The tools are not permitted if a rule of the person's denies them all, or makes the client ask about all. Such a
    rule for one tool stays, and counts more. The server is permitted also if the person had refused it: `init` connects
    it at their word. The variables in `env` are for all servers of the project.
    """

    client: Client
    permissions: Permissions
    project: Path

    @property
    def title(self) -> str:
        return f"{self.client.title}'s permission to call these tools"

    @property
    def location(self) -> Location:
        return self.permissions.file

    @property
    def scope(self) -> str:
        return "in this project only"

    @property
    def note(self) -> str:
        return self.permissions.note

    def put(self, document: JsonObject) -> None:
        rules = table(document, "permissions")
        about_all = {self.permissions.rule, f"{self.permissions.rule}__*"}
        if not about_all.intersection(self.restricting(document)) and self.permissions.rule not in _list(
            rules, "allow"
        ):
            document["permissions"] = {**rules, "allow": [*_list(rules, "allow"), self.permissions.rule]}
        _drop(document, self.permissions.refused_servers, SERVER_NAME)
        accepted = _list(document, self.permissions.accepted_servers)
        if SERVER_NAME not in accepted:
            document[self.permissions.accepted_servers] = [*accepted, SERVER_NAME]
        if self.permissions.environ:
            document["env"] = {**self.permissions.environ, **table(document, "env")}

    def take(self, document: JsonObject, before: JsonObject | None) -> None:
        rules = table(document, "permissions")
        if self.permissions.rule in _list(rules, "allow"):
            _drop(rules, "allow", self.permissions.rule)
            if not rules:
                del document["permissions"]
        _drop(document, self.permissions.accepted_servers, SERVER_NAME)
        variables = table(document, "env")
        ours = {name for name, value in self.permissions.environ.items() if variables.get(name) == value}
        if ours:
            document["env"] = {name: value for name, value in variables.items() if name not in ours}
            if not document["env"]:
                del document["env"]

    def is_empty(self, document: JsonObject) -> bool:
        return not document

    def restricting(self, document: JsonObject) -> list[str]:
        """Return the person's own rules that deny our tools, or ask about them."""
        rules = table(document, "permissions")
        found = [rule for rule in (*_list(rules, "deny"), *_list(rules, "ask")) if isinstance(rule, str)]
        ours = self.permissions.rule
        return [rule for rule in found if rule == ours or rule.startswith(f"{ours}__")]


@frozen
class OwnToolsFile(DocumentFile):
    """The rules that restrict a client's own tools, in the file of its entry.

    A rule of the person's for one of these tools stays. `init --remove` leaves the rules in a file that has changed
    since: what an agent may do does not grow by the way.
    """

    client: Client
    own_tools: OwnTools
    project: Path

    @property
    def title(self) -> str:
        return f"{self.client.title}'s rules on its own tools"

    @property
    def location(self) -> Location:
        return self.client.entry.file

    @property
    def scope(self) -> str:
        return "in this project only" if self.location.is_in_project else "in all your projects"

    def put(self, document: JsonObject) -> None:
        for name, rules in self.own_tools.deny.items():
            assert isinstance(rules, dict)
            own = table(document, name)
            # Where the last rule that matches counts, ours is behind one for all tools.
            document[name] = {**own, **{tool: rule for tool, rule in rules.items() if tool not in own}}

    def take(self, document: JsonObject, before: JsonObject | None) -> None:
        pass

    def is_empty(self, document: JsonObject) -> bool:
        return not document

    def is_missing(self) -> bool:
        """Whether nothing restricts these tools. False for a file that cannot be read."""
        document = self._document()
        return document is not None and not self.own_tools.are_restricted(document)

    def can_be_added(self) -> bool:
        """Whether the rules are missing, and would restrict these tools."""
        document = self._document()
        if document is None or not self.is_missing():
            return False
        try:
            self.put(document)
        except Unmergeable:
            return False
        return self.own_tools.are_restricted(document)

    def is_installed(self) -> bool:
        """Whether the file has these very rules, perhaps among others."""
        document = self._document() or {}
        return all(
            isinstance(rules, dict) and isinstance(found := document.get(name), dict) and rules.items() <= found.items()
            for name, rules in self.own_tools.deny.items()
        )

    def _document(self) -> JsonObject | None:
        """Return what the file says; None if it cannot be read."""
        file = self.location.file(self.project)
        try:
            return parse(file.read_text(errors="replace") if file.exists() else "", toml=self.location.is_toml)
        except (Unmergeable, OSError):
            return None


@frozen
class SettingsFile(DocumentFile):
    """One file of a client in which several parts of it are Intercom's."""

    client: Client
    project: Path
    parts: tuple[DocumentFile, ...]

    @property
    def title(self) -> str:
        return " and ".join(part.title for part in self.parts)

    @property
    def location(self) -> Location:
        return self.parts[0].location

    @property
    def scope(self) -> str:
        return self.parts[0].scope

    @property
    def mode(self) -> int:
        return self.parts[0].mode

    @property
    def note(self) -> str:
        return " ".join(filter(None, (part.note for part in self.parts)))

    def put(self, document: JsonObject) -> None:
        for part in self.parts:
            part.put(document)

    def take(self, document: JsonObject, before: JsonObject | None) -> None:
        for part in self.parts:
            part.take(document, before)

    def entry_of(self, document: JsonObject) -> JsonObject | None:
        return next((entry for part in self.parts if (entry := part.entry_of(document)) is not None), None)

    def is_empty(self, document: JsonObject) -> bool:
        return any(part.is_empty(document) for part in self.parts)


def permissions_file(client: Client, project: Path) -> PermissionsFile | None:
    """Return what a client's settings should permit; None if it needs no permission there."""
    return None if client.permissions is None else PermissionsFile(client, client.permissions, project)


def own_tools_file(client: Client, project: Path) -> OwnToolsFile | None:
    """Return the rules that restrict a client's own tools; None if it needs none, or has none."""
    return None if client.own_tools is None else OwnToolsFile(client, client.own_tools, project)


def joined(files: Sequence[DocumentFile]) -> list[DocumentFile]:
    """Return these files of one client, with those at one place as one file."""
    found: dict[Location, DocumentFile] = {}
    for file in files:
        earlier = found.get(file.location)
        parts = () if earlier is None else earlier.parts if isinstance(earlier, SettingsFile) else (earlier,)
        found[file.location] = SettingsFile(file.client, file.project, (*parts, file)) if parts else file
    return list(found.values())


@frozen
class Refusal:
    """What one file of a client says against our server: `key` names the list that refuses it, if one does, and `rules`
    are those that deny its tools, or ask about them. `fault` says why the file could not be read. `remedy` is how the
    person takes a refusal back, where `init` does not."""

    path: Path
    key: str = ""
    rules: tuple[str, ...] = ()
    fault: str = ""
    remedy: str = ""


def refusals(file: PermissionsFile) -> list[Refusal]:
    """Look into every file of a client that may refuse our server in this project: of the project, of the person and of
    the organisation. Returns one for each that exists; what `init` writes comes first."""
    found = []
    for location in (file.location, *file.permissions.also):
        path = location.file(file.project)
        try:
            text = read(path)
            if text is None:
                continue
            document = parse(text, toml=False)
            refused = file.permissions.refused_servers
            key = refused if SERVER_NAME in _texts(document, refused) else ""
            remedy = "" if location == file.location else f"take {SERVER_NAME} out of {refused} in {path}"
            found.append(Refusal(path, key, tuple(file.restricting(document)), remedy=remedy))
        except (Unmergeable, OSError, UnicodeDecodeError) as fault:
            found.append(Refusal(path, fault=describe(fault)))
    record = file.permissions.record
    if record is not None:
        found += _recorded(record, file.project)
    return found


def _recorded(record: ProjectRecord, project: Path) -> list[Refusal]:
    path = record.file.file(project)
    try:
        text = read(path)
        if text is None:
            return []
        document = parse(text, toml=False)
        names = {str(project), os.path.realpath(project)}
        off = any(SERVER_NAME in _texts(table(document, record.table, name), record.switched_off) for name in names)
    except (Unmergeable, OSError, UnicodeDecodeError) as fault:
        return [Refusal(path, fault=describe(fault))]
    return [Refusal(path, record.switched_off if off else "", remedy=record.remedy)]


def _texts(document: JsonObject, name: str) -> list[Json]:
    """Return a list, as a client reads it: one text alone is a list of it."""
    found = document.get(name, [])
    return [found] if isinstance(found, str) else _list(document, name)


def _list(document: JsonObject, name: str) -> list[Json]:
    found = document.get(name, [])
    if not isinstance(found, list):
        raise Unmergeable(f"has something other than a list at {name}")
    return found


def _drop(document: JsonObject, name: str, value: str) -> None:
    """Remove a value from a list, and the list if nothing else is in it."""
    found = _list(document, name)
    if value in found:
        document[name] = [each for each in found if each != value]
        if not document[name]:
            del document[name]
