"""What doctor finds about the entries and hooks in clients' files, and about the terminal that it runs in.

An entry is proven by starting its command. A file that a project shares may come from anybody, so of these only a
command that is this very program is started.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen

from intercom._version import __version__
from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import SERVER_NAME, Client
from intercom.cli.doctor_checks import Finding, State
from intercom.cli.init_clients import HooksFile, entry_of, hooks_file, installed, path_of
from intercom.cli.init_files import Unmergeable, glance, parse
from intercom.cli.init_permissions import permissions_file, refusals
from intercom.local import processes
from intercom.local.places import places
from intercom.local.processes import Who
from intercom.model.config import Config
from intercom.model.json_types import Json, JsonObject
from intercom.store import processes as known_processes

#: Seconds that a command has to print its version.
START_SECONDS = 20.0
#: The most bytes of its output that are read.
_MOST_OUTPUT = 10_000


#: The arguments with which Python starts the relay.
_MODULE = ("-m", "intercom.cli.main")


@frozen
class Command:
    """A command of a client's file. `program` is the path of the program, None if there is none. `options` are those
    that name the server: the configuration file, the ipc_name."""

    words: tuple[str, ...]
    project: Path
    program: str | None = field(init=False)
    options: dict[str, str] = field(init=False)

    @program.default
    def _find(self) -> str | None:
        # A client starts it in the project.
        name = os.path.expanduser(self.words[0])
        found = shutil.which(os.path.join(self.project, name) if "/" in name else name)
        return None if found is None else os.path.abspath(found)

    @options.default
    def _read(self) -> dict[str, str]:
        found = {}
        words = [part for word in self.words for part in (word.split("=", 1) if word.startswith("--") else [word])]
        for name, value in itertools.pairwise(words):
            if name == "--config":
                file = os.path.join(self.project, os.path.expanduser(value))
                if file != places().config_file:
                    found[name] = file
            elif name == "--ipc-name":
                found[name] = value
        return found

    @property
    def is_this_program(self) -> bool:
        """Whether it is the relay of this very installation."""
        if self.program is None:
            return False
        if (own := installed(SERVER_NAME)) and os.path.realpath(self.program) == os.path.realpath(own):
            return True
        # The Python of another environment may be a link to the same file, so links are not followed here.
        return self.program == os.path.abspath(sys.executable) and self.words[1:3] == _MODULE

    def version(self) -> tuple[str, str]:
        """Start it to print its version. Returns the version and "", or "" and what was wrong."""
        line = [*self.words, "--version"] if self.program is not None else []
        if self.is_this_program:
            # Its other arguments do not matter, and a project's file may have any. Nor may the project's directory
            # bring a package along.
            line = [sys.executable, "-I", *_MODULE, "--version"]
        try:
            done = subprocess.run(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=START_SECONDS,
                cwd=self.project,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "", f"it printed no version within {START_SECONDS:.0f} s"
        except OSError as error:
            return "", f"it cannot be started ({(error.strerror or '').lower()})"
        said = done.stdout[:_MOST_OUTPUT].decode("utf-8", "replace").strip()
        found = re.search(rf"^{SERVER_NAME} (\S+)$", said, re.MULTILINE)
        if done.returncode == 0 and found is not None:
            return found[1], ""
        last = said.splitlines()[-1][:200] if said else "nothing"
        return "", f"it ends with code {done.returncode} and says: {last}"


def examine_entries(project: Path, config: Config) -> Iterator[Finding]:
    """Check for each connected client that its entry's command exists and starts, or that its address is the server's,
    and that the hooks name the same server. Yields nothing for clients without an entry or hook."""
    for client in CLIENTS.values():
        entry = entry_of(client, project)
        command = _command(entry, project)
        found: list[Finding] = []
        if command is not None:
            found.append(_start(client, command, _entry_path(client, project)))
        elif entry:
            found.append(_address(client, entry, config))
        found += _hooks(client, command, project)
        if entry:
            found += _permissions(client, project)
        yield from found


def _entry_path(client: Client, project: Path) -> Path:
    return client.entry.file.file(project)


def _command(entry: JsonObject, project: Path) -> Command | None:
    """Return the command of an entry; None if it has none."""
    first, rest = entry.get("command"), entry.get("args", [])
    if isinstance(first, list) and first:
        # opencode has the whole command line in one list.
        first, rest = first[0], first[1:]
    if not isinstance(first, str) or not first or not isinstance(rest, list):
        return None
    return Command((first, *(str(each) for each in rest)), project)


def _again(client: Client, *, hooks: bool = False) -> str:
    return f"agent-intercom init --write{' --hooks' if hooks else ''} --client {client.name}, in the project"


def _start(client: Client, command: Command, file: Path) -> Finding:
    if command.program is None:
        text = f"its entry starts {command.words[0]}, which is not found ({file})"
        advice = _again(client)
        if "/" not in command.words[0]:
            own = installed(command.words[0])
            where = os.path.dirname(own) if own else "the directory of your agent-intercom"
            advice = f"add {where} to the PATH with which the client is started"
        return Finding(client.name, State.FAULT, text, advice)
    if client.entry.file.is_in_project and not command.is_this_program:
        text = f"its entry starts {command.program}, which is not this program, so it was not tried ({file})"
        return Finding(client.name, State.WARN, text, f"read the file; {_again(client)} names this program")
    version, fault = command.version()
    if fault:
        text = f"its entry's command does not start: {shlex.join(command.words)}: {fault} ({file})"
        return Finding(client.name, State.FAULT, text, _again(client))
    if version != __version__:
        text = f"its entry starts version {version} ({command.program}); this program is version {__version__}"
        return Finding(client.name, State.WARN, text, _again(client))
    missing = command.options.get("--config")
    if missing is not None and not os.path.exists(missing):
        text = f"its entry names the configuration {missing}, which does not exist ({file})"
        return Finding(client.name, State.FAULT, text, _again(client))
    return Finding(client.name, State.OK, f"its entry starts {command.program}, version {version}")


def _address(client: Client, entry: JsonObject, config: Config) -> Finding:
    """Compare the address of an entry over HTTP with the configured port."""
    urls = [value for value in entry.values() if isinstance(value, str) and value.startswith(("http://", "https://"))]
    if not urls:
        return Finding(client.name, State.FAULT, "its entry has neither a command nor an address", _again(client))
    try:
        parts = urlsplit(urls[0])
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return Finding(client.name, State.FAULT, "its entry's address cannot be read", f"{_again(client)} --http")
    if host not in ("127.0.0.1", "localhost", "::1"):
        return Finding(client.name, State.OK, f"its entry leads to {host}, which is not looked at here")
    if config.http_port is None or port != config.http_port:
        here = "no http_port" if config.http_port is None else f"http_port {config.http_port}"
        text = f"its entry leads to port {port} of this machine, and the configuration has {here}"
        return Finding(client.name, State.FAULT, text, f"agent-intercom init --http --write --client {client.name}")
    return Finding(client.name, State.OK, f"its entry leads to port {port}, as the configuration has it")


def _permissions(client: Client, project: Path) -> Iterator[Finding]:
    """Check that the client's settings neither refuse our server nor restrict its tools, wherever they are."""
    file = permissions_file(client, project)
    if file is None:
        return
    found, subject = refusals(file), f"{client.name} settings"
    for each in found:
        if each.fault:
            text = f"{each.path} {each.fault}, so it is not known whether it refuses the server"
            yield Finding(subject, State.WARN, text, "correct the file")
        if each.key:
            text = f"it does not use the server: {each.key} has {SERVER_NAME} ({each.path})"
            advice = f"{each.remedy or _again(client)}; then restart {client.title}"
            yield Finding(subject, State.FAULT, text, advice)
        if each.rules:
            rule, named = "rule" if len(each.rules) == 1 else "rules", " and ".join(each.rules)
            text = f"its {rule} {named} in deny or ask: {client.title} follows it before a card can be shown"
            yield Finding(subject, State.WARN, text, f"take the {rule} out of {each.path}, if you do not want that")
    if found and not any(each.fault or each.key for each in found):
        looked = ", ".join(str(each.path) for each in found)
        yield Finding(subject, State.OK, f"its settings do not refuse the server (looked into {looked})")


# --- hooks -----------------------------------------------------------------------------------------------------------


def _hooks(client: Client, entry: Command | None, project: Path) -> Iterator[Finding]:
    """Check the commands of a client's hooks, and compare them with its entry."""
    file = hooks_file(client, project)
    if file is None:
        return
    subject, advice = f"{client.name} hooks", _again(client, hooks=True)
    starts = list(dict.fromkeys(hook_commands(file)))
    for start in starts:
        command = Command(start, project)
        if command.program is None:
            text = f"they start {start[0]}, which is not found: the client is denied everything ({path_of(file)})"
            yield Finding(subject, State.FAULT, text, advice)
        elif entry is not None and command.options != entry.options:
            text = f"they ask the server of {_server(command)}, and its entry is connected to that of {_server(entry)}"
            yield Finding(subject, State.FAULT, text, advice)
        elif entry is not None and entry.program is not None and command.program != entry.program:
            text = f"they start {command.program}, and its entry starts {entry.program}"
            yield Finding(subject, State.WARN, text, advice)


def _server(command: Command) -> str:
    return " ".join(f"{name} {value}" for name, value in sorted(command.options.items())) or "the default configuration"


def hook_commands(file: HooksFile) -> Iterator[tuple[str, ...]]:
    """Return the commands with which our hooks in a client's file begin, up to the word `hook`."""
    try:
        document = parse(glance(path_of(file)), toml=False)
    except Unmergeable:
        return
    for line in _texts(document.get("hooks")):
        try:
            words = shlex.split(line)
        except ValueError:
            continue
        at = next((at for at, word in enumerate(words) if word == "hook" and at), None)
        if at is not None and words[at + 1 : at + 2] == [file.client.name]:
            yield tuple(words[:at])


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


# --- this terminal ---------------------------------------------------------------------------------------------------


def examine_terminal(config: Config, database: Path, *, has_key: bool, pid: int | None = None) -> Finding:
    """Tell whether a server would accept answers from this process, by the rule and the records that the server uses.
    `pid` replaces the pid of this process."""
    subject = "this terminal"
    if config.ctl.trust_agent_processes:
        return Finding(subject, State.OK, "answers are accepted from every process: trust_agent_processes is set")
    try:
        known = processes.known_agents(known_processes.recorded_in(database))
    except sqlite3.Error as error:
        return Finding(subject, State.WARN, f"not checked: the database {database} cannot be read ({error})")
    found = processes.recognise(os.getpid() if pid is None else pid, known)
    if found.who is Who.OPERATOR:
        return Finding(subject, State.OK, f"answers are accepted here ({found.origin.terminal})")
    advice = "answer in a terminal window of your own, in which no agent was started"
    if has_key:
        advice += ", or type your PIN for each answer"
    return Finding(subject, State.WARN, f"answers are refused here: {found.why}", advice)
