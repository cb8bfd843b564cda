"""Doctor's checks: one function for each subject. No check changes anything."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from intercom._version import __version__, version_tuple
from intercom.agents import workspaces
from intercom.cli import doctor_agents, doctor_hooks, doctor_http, doctor_keys, doctor_slack
from intercom.cli.finding import Finding, State
from intercom.cli.init_clients import CLIENTS, names_us
from intercom.local import config_file, dial, lock
from intercom.local.places import Places, places
from intercom.model.config import Config
from intercom.model.errors import IntercomError, WorkspaceRefused
from intercom.model.policy import describe
from intercom.operators.ctl.client import NoServer, Refusal, request
from intercom.store import audit_anchor, disturbance, health
from intercom.workspace import policy_file

#: Bytes that must be free in the state and runtime directories.
_ROOM = 100 * 1024 * 1024

#: Seconds that a running server has to answer.
_PATIENCE = 2.0


def examine(config: str | None, ipc_name: str | None, workspace: str | None, cwd: str) -> list[Finding]:
    """Run every check, in the order in which a start needs them. Arguments are as on the command line.

    After a fault in the configuration, the other checks use the defaults.
    """
    findings = [_installation()]
    settled, where, found = configuration(config, ipc_name)
    findings += found
    if where is None:
        return findings
    findings += _directories(where)
    database = config_file.database_path(settled, where)
    findings.append(_database(database))
    findings += _audit(where, database)
    findings += _server(where, database)
    findings.append(doctor_keys.examine(where))
    findings += doctor_http.examine(settled, where)
    if any(each.subject == "configuration" and each.state is State.FAULT for each in found):
        # Slack has no useful defaults to check.
        findings.append(Finding("slack", State.WARN, "not looked at: what is set up stands in the configuration"))
    else:
        findings += doctor_slack.examine(settled, where, doctor_slack.config_file_of(config, where))
    findings.append(doctor_agents.examine(settled))
    findings.append(_policy(settled, workspace, cwd))
    findings.append(_clients(workspace, cwd))
    findings.append(doctor_hooks.examine(Path(workspace or cwd).expanduser()))
    return findings


def _installation() -> Finding:
    text = f"agent-intercom {__version__}, Python {sys.version.split()[0]} ({sys.executable})"
    again = "install it again: pip install --force-reinstall agent-intercom"
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
    found = Finding("configuration", State.OK, f"no file at {own}: the defaults hold")
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
        parent = Path(path).parent
        while not parent.exists():
            parent = parent.parent
        if os.access(parent, os.W_OK | os.X_OK):
            return Finding(subject, State.OK, f"{path} will be made when it is needed")
        return Finding(
            subject, State.FAULT, f"{path} is not there, and can not be made", f"let this user write to {parent}"
        )
    except OSError as error:
        return Finding(subject, State.FAULT, f"{path} can not be reached: {(error.strerror or '').lower()}")
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
        return Finding(subject, State.FAULT, f"{path} can not be written", f"chmod 700 {path}")
    free = shutil.disk_usage(path).free
    if free < _ROOM:
        left = f"{path} has {free // (1024 * 1024)} MiB left"
        return Finding(subject, State.WARN, left, "free some space there: a change is not taken when there is none")
    return Finding(subject, State.OK, path)


def _database(path: Path) -> Finding:
    found = health.examine(path)
    if found.fault is not None:
        return Finding("database", State.FAULT, found.fault)
    if not found.exists:
        return Finding("database", State.OK, f"{path} will be made when it is needed")
    text = f"{path}, {found.size / 1024:.0f} KiB, schema {found.version}, sound"
    if (found.version or 0) < found.latest:
        text += f"; the next server brings it to schema {found.latest}, and keeps a copy"
    else:
        text += f"; {found.requests} waiting in {found.sessions} sessions"
    if copies := disturbance.kept_copies(path):
        kept = ", ".join(str(each) for each in copies[-3:])
        text += f"; {len(copies)} that had to be moved aside: {kept}"
        return Finding("database", State.WARN, text, "look at them, and remove what you do not need")
    if path.stat().st_mode & 0o077:
        return Finding("database", State.WARN, f"{text}; readable by other users", f"chmod 600 {path}")
    return Finding("database", State.OK, text)


def _audit(where: Places, database: Path) -> Iterator[Finding]:
    """Verify the audit log, if this program can read it."""
    about = health.examine(database)
    if about.fault is not None or not about.exists or (about.version or 0) < about.latest:
        return
    advice = "agent-intercom-ctl audit verify tells more; keep the database and the anchor file as they are"
    try:
        found = audit_anchor.examine(database, Path(where.audit_anchor_file))
    except (audit_anchor.AnchorError, sqlite3.Error) as fault:
        yield Finding("audit log", State.FAULT, str(fault), advice)
        return
    if found.faults:
        first = found.faults[0]
        entry = "" if first.entry is None else f"entry {first.entry}: "
        more = f"; and {len(found.faults) - 1 + found.more} more" if len(found.faults) > 1 else ""
        yield Finding("audit log", State.FAULT, f"{entry}{first.text}{more}", advice)
        return
    head = "" if found.head is None else f", head {found.head.hash[:16]}"
    yield Finding("audit log", State.OK, f"{found.entries} entries, each follows the one before{head}")


def _server(where: Places, database: Path) -> Iterator[Finding]:
    try:
        holder = lock.holder(database)
    except OSError as error:
        yield Finding("server", State.FAULT, f"{database}.lock can not be read: {(error.strerror or '').lower()}")
        return
    pid = 0
    try:
        with dial.connect(where.ctl_socket, timeout=_PATIENCE) as line:
            pid = dial.peer_of(line).pid
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
    return Finding(
        "server",
        State.FAULT,
        f"process {holder.pid} (version {holder.version}) has the database, and does not answer at {where.ctl_socket}",
        "if another program of yours embeds Intercom, or it has another ipc_name, that is as it should be; else run"
        f" agent-intercom stop, and if that does not help, kill {holder.pid}",
    )


def _stranger(where: Places, pid: int) -> Iterator[Finding]:
    token = _token(where)
    if token.state is not State.OK:
        yield Finding("server", State.FAULT, f"process {pid} answers at {where.ctl_socket}, and nobody can ask it")
    else:
        text = f"process {pid} answers at {where.ctl_socket}, and the token there is not its own"
        advice = f"another server has the same ipc_name: give it one of its own, or stop process {pid} if it is astray"
        yield Finding("server", State.FAULT, text, advice)
    yield token


def _running(where: Places, holder: lock.Holder | None, pid: int, version: str, up: float) -> Finding:
    text = f"running as process {pid}, version {version}, for {_span(up)}, at {where.ctl_socket}"
    restart = "agent-intercom stop; the next agent starts it again, and nothing that waits is lost"
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
        advice = "run agent-intercom stop; the next server writes it anew"
        return Finding("token", State.FAULT, f"the server runs, and its token {path} is not there", advice)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        advice = f"rm {path} and run agent-intercom stop; the next server writes it anew"
        return Finding("token", State.FAULT, f"{path} is not a file of yours alone", advice)
    return Finding("token", State.OK, path)


def _policy(config: Config, workspace: str | None, cwd: str) -> Finding:
    try:
        root = Path(workspaces.choose(workspace, (), cwd, config.default_workspace_root))
    except WorkspaceRefused as refused:
        state = State.FAULT if workspace is not None else State.OK
        text = str(refused) if workspace is not None else "no project here; name one with --workspace DIR"
        return Finding("policy", state, text)
    loaded = policy_file.load(root)
    if loaded.fault is not None:
        advice = "put it right: until then every request waits for a person"
        return Finding("policy", State.FAULT, f"{root}: {loaded.fault}", advice)
    if loaded.source is None:
        return Finding("policy", State.OK, f"{root} has none: every request waits for a person")
    if not loaded.policy.grants:
        return Finding("policy", State.OK, f"{root / loaded.source} grants nothing: every request waits for a person")
    ask = f"agent-intercom-ctl policy show {root}"
    text = f"{root / loaded.source} grants {describe(loaded.policy)}, as far as a person has accepted it: {ask}"
    return Finding("policy", State.OK, text)


def _clients(workspace: str | None, cwd: str) -> Finding:
    project = Path(workspace or cwd).expanduser()
    knowing = [client.title for client in CLIENTS.values() if names_us(client.file(project))]
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
