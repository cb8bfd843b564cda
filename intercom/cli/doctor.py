"""`agent-intercom doctor`: looks at everything Intercom depends on, and says what to do about each fault."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import sqlite3
import stat
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
from rich.console import Console
from rich.text import Text

from intercom._version import __version__, version_tuple
from intercom.agents.clients import CLIENTS
from intercom.agents.shim import launch
from intercom.cli import ctl_draw, ctl_sign, doctor_checks, doctor_clients
from intercom.cli.ctl_text import clean, count
from intercom.cli.doctor_checks import Finding, State
from intercom.cli.init_clients import names_us, project_at
from intercom.local import config_file, lock, wire
from intercom.local.places import Places, places
from intercom.model.config import Config
from intercom.model.errors import IntercomError, WorkspaceRefused
from intercom.model.policy import describe
from intercom.operators.ctl.client import NoServer, Refusal, request
from intercom.sessions.audit_signatures import verify_log
from intercom.store import audit_chain
from intercom.store.database import check, damaged_copies
from intercom.workspace import files, policy_file

#: Bytes that must be free in the state and runtime directories.
_ROOM = 100 * 1024 * 1024

#: Seconds that a running server has to answer.
_PATIENCE = 2.0

#: Seconds to wait for a server that is being started.
START_SECONDS = 10.0


def examine(config: str | None, ipc_name: str | None, workspace: str | None, cwd: str) -> list[Finding]:
    """Run every check, in the order in which a start needs them. Arguments are as on the command line.

    After a fault in the configuration, the other checks use the defaults.
    """
    findings = [_installation()]
    settled, where, found = configuration(config, ipc_name)
    findings += found
    if where is None:
        return findings
    _await_server(where)
    findings += _directories(where)
    findings += doctor_checks.examine_own_directories(where)
    database = config_file.database_path(settled, where)
    findings.append(_database(database))
    findings += _audit(where, database)
    findings += _server(where, database)
    findings.append(doctor_checks.examine_keys(where))
    findings += doctor_checks.examine_http(settled, where)
    if any(each.subject == "configuration" and each.state is State.FAULT for each in found):
        # Slack has no useful defaults to check.
        findings.append(Finding("slack", State.WARN, "not checked: the configuration has a fault"))
    else:
        findings += doctor_checks.examine_slack(settled, where, doctor_checks.config_file_of(config, where))
    findings += doctor_checks.examine_gateway(settled, where)
    project = _project(workspace, cwd)
    findings.append(doctor_checks.examine_agents(settled, project))
    findings.append(_policy(settled, workspace, cwd))
    findings.append(_clients(project))
    findings += doctor_clients.examine_entries(project, settled)
    findings.append(doctor_checks.examine_hooks(project))
    findings += doctor_checks.examine_own_tools(project)
    findings.append(doctor_clients.examine_terminal(settled, database, has_key=ctl_sign.has_key(where)))
    return findings


def _await_server(where: Places) -> None:
    """Wait for a server that is being started or replaced at this moment. Until it is ready, the checks would judge
    what is missing, or the server that it replaces."""
    if not launch.is_claimed(where):
        return
    print(f"a server is starting: waiting for it, at most {START_SECONDS:.0f} s", file=sys.stderr)
    launch.wait_until_started(where, START_SECONDS)


def _installation() -> Finding:
    text = f"agent-intercom {__version__}, Python {sys.version.split()[0]} ({sys.executable})"
    again = "install it again, in a clone of the repository: uv tool install --force . (or pipx install --force .)"
    try:
        needed = importlib.metadata.requires("agent-intercom") or []
    except importlib.metadata.PackageNotFoundError:
        return Finding("installation", State.WARN, f"{text}; run from a directory, not installed", again)
    unfit = list(_unfit(needed))
    if unfit:
        return Finding("installation", State.FAULT, f"{text}: {', '.join(unfit)}", again)
    return Finding("installation", State.OK, text)


def _unfit(needed: list[str]) -> Iterator[str]:
    for line in needed:
        name = re.match(r"[\w.-]+", line)
        if name is None or "extra ==" in line:
            continue
        try:
            version = importlib.metadata.version(name[0])
        except importlib.metadata.PackageNotFoundError:
            yield f"{name[0]} is missing"
            continue
        least = re.search(r">=\s*([\d.]+)", line)
        if least is not None and version_tuple(version) < version_tuple(least[1]):
            yield f"{name[0]} is {version}, and {least[1]} or newer is needed"


def configuration(config: str | None, ipc_name: str | None) -> tuple[Config, Places | None, list[Finding]]:
    """Return the configuration (the default one if faulty), the places (None if unusable), and the findings."""
    try:
        own = Path(places(ipc_name or "agent-intercom").config_file)
        path = Path(config).absolute() if config is not None else own if own.exists() else None
    except IntercomError as fault:
        return Config(), None, [Finding("configuration", State.FAULT, str(fault))]
    found = Finding("configuration", State.OK, f"no file at {own}: the defaults apply")
    settled = Config()
    try:
        if path is not None:
            found = Finding("configuration", State.OK, str(path))
        settled = config_file.load(path)
    except IntercomError as fault:
        found = Finding("configuration", State.FAULT, str(fault))
    try:
        return settled, places(ipc_name or settled.ipc_name), [found]
    except IntercomError as fault:
        return settled, None, [found, Finding("sockets", State.FAULT, str(fault))]


def _directories(where: Places) -> Iterator[Finding]:
    for name, path in (("state files", where.state_dir), ("runtime files", where.runtime_dir)):
        yield _directory(name, path)


def _directory(subject: str, path: str) -> Finding:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return _creation(subject, path)
    except OSError as error:
        return Finding(subject, State.FAULT, f"{path} cannot be reached: {(error.strerror or '').lower()}")
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        return Finding(subject, State.FAULT, f"{path} is a link or a file, not a directory", "remove it")
    if found.st_uid != os.geteuid():
        return Finding(subject, State.FAULT, f"{path} belongs to uid {found.st_uid}, not to you", "remove it")
    if found.st_mode & 0o077:
        return Finding(
            subject,
            State.FAULT,
            f"{path} is open to other users (mode {found.st_mode & 0o777:o})",
            f"chmod 700 {path}",
        )
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding(subject, State.FAULT, f"{path} cannot be written", f"chmod 700 {path}")
    free = shutil.disk_usage(path).free
    if free < _ROOM:
        left = f"{path} has {free // (1024 * 1024)} MiB left"
        return Finding(subject, State.WARN, left, "free some space there: without it no change is accepted")
    return Finding(subject, State.OK, path)


def _creation(subject: str, path: str | Path) -> Finding:
    """Say of a missing file or directory whether it can be created."""
    parent = next(each for each in Path(path).parents if os.path.lexists(each))
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return Finding(subject, State.OK, f"{path} will be created when it is needed")
    text = f"{path} does not exist, and cannot be created"
    if not parent.is_dir():
        return Finding(subject, State.FAULT, f"{text}: {parent} is not a directory", f"remove {parent}")
    return Finding(subject, State.FAULT, text, f"let this user write to {parent}")


def _database(path: Path) -> Finding:
    found = check(path)
    if found.fault is not None:
        return Finding("database", State.FAULT, found.fault)
    if not found.exists:
        return _creation("database", path)
    text = f"{path}, {found.size / 1024:.0f} KiB, schema {found.version}, sound"
    if (found.version or 0) < found.latest:
        text += f"; the next server brings it to schema {found.latest}, and keeps a copy"
    else:
        text += f"; {found.requests} waiting in {count(found.sessions, 'session')}"
    if copies := damaged_copies(path):
        kept = ", ".join(str(each) for each in copies[-3:])
        text += f"; {len(copies)} damaged, moved aside: {kept}"
        return Finding("database", State.WARN, text, "look at them, and remove what you do not need")
    if path.stat().st_mode & 0o077:
        return Finding("database", State.WARN, f"{text}; readable by other users", f"chmod 600 {path}")
    return Finding("database", State.OK, text)


def _audit(where: Places, database: Path) -> Iterator[Finding]:
    """Verify the audit log with its signatures, if this program can read it."""
    about = check(database)
    if about.fault is not None or not about.exists or (about.version or 0) < about.latest:
        return
    advice = "agent-intercom-ctl audit verify tells more; keep the database and the anchor file as they are"
    try:
        found = verify_log(database, where)
    except (audit_chain.AnchorError, sqlite3.Error) as fault:
        yield Finding("audit log", State.FAULT, str(fault), advice)
        return
    if found.faults:
        first = found.faults[0]
        entry = "" if first.entry is None else f"entry {first.entry}: "
        more = f"; and {len(found.faults) - 1 + found.more} more" if len(found.faults) > 1 else ""
        yield Finding("audit log", State.FAULT, f"{entry}{first.text}{more}", advice)
        return
    head = "" if found.head is None else f", head {found.head.hash[:16]}"
    yield Finding(
        "audit log", State.OK, f"{count(found.entries, 'entry', 'entries')}, each follows the one before{head}"
    )


def _server(where: Places, database: Path) -> Iterator[Finding]:
    try:
        holder = lock.holder(database)
    except OSError as error:
        yield Finding("server", State.FAULT, f"{database}.lock cannot be read: {(error.strerror or '').lower()}")
        return
    pid = 0
    try:
        with wire.connect(where.ctl_socket, timeout=_PATIENCE) as line:
            pid = wire.peer_of(line).pid
        version = str(request(where, "version", {}, patience=_PATIENCE)["version"])
        up = time.time() - float(request(where, "tree", {}, patience=_PATIENCE)["tree"]["started_at"] or time.time())
    except (IntercomError, Refusal) as fault:
        if isinstance(fault, Refusal) and fault.code == "unauthorized":
            yield from _stranger(where, pid)
        else:
            yield Finding("server", State.FAULT, str(fault))
        return
    except (NoServer, OSError, EOFError):
        yield _silent(where, holder)
        return
    yield _running(where, holder, pid, version, up)
    yield _token(where)


def _silent(where: Places, holder: lock.Holder | None) -> Finding:
    if holder is None:
        return Finding("server", State.OK, "none is running; the next agent starts it")
    if holder.pid is None:
        return Finding("server", State.WARN, "one is starting at this moment", "run agent-intercom doctor again")
    return Finding(
        "server",
        State.FAULT,
        f"process {holder.pid} (version {holder.version}) has the database, and does not answer at {where.ctl_socket}",
        "if another program of yours embeds Intercom, or it has another ipc_name, this is correct; otherwise run"
        f" agent-intercom stop, and if that does not help, kill {holder.pid}",
    )


def _stranger(where: Places, pid: int) -> Iterator[Finding]:
    token = _token(where)
    if token.state is not State.OK:
        yield Finding("server", State.FAULT, f"process {pid} answers at {where.ctl_socket}; its token cannot be used")
    else:
        text = f"process {pid} answers at {where.ctl_socket}, and the token there is not its own"
        advice = f"another server has the same ipc_name: give it another, or stop process {pid} if it should not run"
        yield Finding("server", State.FAULT, text, advice)
    yield token


def _running(where: Places, holder: lock.Holder | None, pid: int, version: str, up: float) -> Finding:
    text = f"running as process {pid}, version {version}, for {_span(up)}, at {where.ctl_socket}"
    restart = "agent-intercom stop; the next agent starts it again, and nothing pending is lost"
    if holder is None or (pid and holder.pid != pid):
        return Finding("server", State.WARN, f"{text}; it uses another database than this configuration names", restart)
    if version != __version__:
        return Finding("server", State.WARN, f"{text}; this program is version {__version__}", restart)
    return Finding("server", State.OK, text)


def _token(where: Places) -> Finding:
    path = where.token_file
    try:
        found = os.lstat(path)
    except OSError:
        advice = "run agent-intercom stop; the next server writes a new one"
        return Finding("token", State.FAULT, f"the server runs, but its token {path} does not exist", advice)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        advice = f"rm {path} and run agent-intercom stop; the next server writes a new one"
        return Finding("token", State.FAULT, f"{path} is not a file of yours alone", advice)
    return Finding("token", State.OK, path)


def _policy(config: Config, workspace: str | None, cwd: str) -> Finding:
    try:
        root = Path(files.choose_workspace(workspace, (), cwd, config.default_workspace_root))
    except WorkspaceRefused as refused:
        state = State.FAULT if workspace is not None else State.OK
        text = str(refused) if workspace is not None else "no project here; name one with --workspace DIR"
        return Finding("policy", state, text)
    loaded = policy_file.load(root)
    if loaded.fault is not None:
        every = [] if loaded.text is None else [f"{loaded.source}, {each}" for each in policy_file.faults(loaded.text)]
        text = "\n".join([f"{root}: {(every or [loaded.fault])[0]}", *every[1:]])
        advice = f"correct {'it' if len(every) < 2 else 'them'}: until then every request waits for a person"
        return Finding("policy", State.FAULT, text, advice)
    if loaded.source is None:
        return Finding("policy", State.OK, f"{root} has none: every request waits for a person")
    if not loaded.policy.grants:
        return Finding("policy", State.OK, f"{root / loaded.source} grants nothing: every request waits for a person")
    ask = f"agent-intercom-ctl policy show {root}"
    text = f"{root / loaded.source} grants {describe(loaded.policy)}, as far as a person has accepted it: {ask}"
    return Finding("policy", State.OK, text)


def _project(workspace: str | None, cwd: str) -> Path:
    """Return the directory whose clients' files count, as `init` chooses it."""
    return Path(workspace).expanduser() if workspace else project_at(Path(cwd))


def _clients(project: Path) -> Finding:
    knowing = [client.title for client in CLIENTS.values() if names_us(client, project)]
    if knowing:
        return Finding("clients", State.OK, f"{', '.join(knowing)} {'knows' if len(knowing) == 1 else 'know'} Intercom")
    return Finding(
        "clients",
        State.WARN,
        f"no client's file names Intercom, for {project}",
        "agent-intercom init --write --client NAME, in the project",
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


_STYLE = {State.OK: "green", State.WARN: "yellow", State.FAULT: "bold red"}
_INDENT = 23


def run(options: argparse.Namespace) -> int:
    """Print one finding after another, or with `--json` one JSON value. Nothing is changed.

    Returns 0 without faults (warnings are allowed), 1 with faults, 2 if the options do not fit together.
    """
    if options.client is not None and options.client not in CLIENTS:
        print(f"no client is called {options.client}: choose from {', '.join(CLIENTS)}", file=sys.stderr)
        return 2
    if options.client is None and options.probe is not None:
        print("--probe needs a client: add --client codex, for example", file=sys.stderr)
        return 2
    if options.client is None:
        findings = examine(options.config, options.ipc_name, options.workspace, os.getcwd())
    else:
        config, _, findings = configuration(options.config, options.ipc_name)
        project = _project(options.workspace, os.getcwd())
        findings += doctor_checks.examine_client(options.client, config, project, options.probe)
    faults = sum(finding.state is State.FAULT for finding in findings)
    if options.json:
        print(json.dumps({"ok": not faults, "version": __version__, "findings": [attrs.asdict(f) for f in findings]}))
        return 1 if faults else 0
    console = ctl_draw.console()
    for finding in findings:
        _draw(console, finding)
    warnings = sum(finding.state is State.WARN for finding in findings)
    console.print()
    console.print(_summary(faults, warnings))
    return 1 if faults else 0


def _draw(console: Console, finding: Finding) -> None:
    head = Text(f"{finding.state:<6}", _STYLE[finding.state]).append(f" {finding.subject:<16}", "bold")
    lines = _wrapped(console, finding.text)
    console.print(head.append(lines[0]), soft_wrap=True)
    for line in lines[1:]:
        console.print(Text(" " * _INDENT + line), soft_wrap=True)
    for number, line in enumerate(_wrapped(console, finding.advice, 3) if finding.advice else ()):
        arrow = "-> " if number == 0 else "   "
        console.print(Text(" " * _INDENT + arrow + line, "cyan"), soft_wrap=True)


def _wrapped(console: Console, text: str, more: int = 0) -> list[str]:
    width = max(30, console.width - _INDENT - more)
    return [
        line
        for paragraph in clean(text).splitlines() or [""]
        for line in textwrap.wrap(
            paragraph, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        or [""]
    ]


def _summary(faults: int, warnings: int) -> Text:
    if not faults and not warnings:
        return Text("all is well", "green")
    counted = [count(number, word) for number, word in ((faults, "fault"), (warnings, "warning")) if number]
    return Text(", ".join(counted), "bold red" if faults else "yellow")
