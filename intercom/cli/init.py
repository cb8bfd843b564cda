"""`agent-intercom init`: writes a configuration, and connects the MCP clients to Intercom."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from intercom.cli import ctl_key, ctl_sign, init_files, init_hooks, init_policy, init_record, init_remove
from intercom.cli.init_clients import CLIENTS, SERVER_NAME, Client, command
from intercom.cli.init_config import render
from intercom.cli.init_files import Change, backup_name
from intercom.cli.init_hooks import HOOKS, Hooks
from intercom.cli.init_http import DEFAULT_PORT, HTTP, HTTP_KEYS, STDIO_KEYS, TOKEN_VARIABLE, address, with_port
from intercom.cli.init_merge import Unmergeable, Wish, merge, present, snippet
from intercom.cli.settings import record_or_explain
from intercom.local import config_file, http_token
from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IntercomError
from intercom.operators.ctl.client import Refusal

#: What a person must know before hooks are installed.
HOOKS_SAY = """\
Permission hooks make a client ask Intercom before its own tools write or run
anything. They hold:
{where}
If agent-intercom cannot be started (it was removed, or moved), an installed
hook denies every such use: before you remove the program, run
'agent-intercom init --remove'."""


#: What a person must know to decide about an operator key.
KEY_SAYS = """
With an operator key, only what you sign with a PIN is approved. Without one, a
process of your account that types into your terminals (tmux, an editor's), or
writes the database, could approve in your place. Recommended."""


def run(args: argparse.Namespace) -> int:
    """Carry out the options of `agent-intercom init`, then report on stdout.

    Without `--write` and `--remove` nothing is changed. Returns 0 if all was done. Returns 1 if a file could not be
    written or merged: each is named on stderr, and no client is half changed. Returns 2 if the options do not fit
    together.
    """
    report = _Report()
    code = _run(args, report)
    # Printed last and at once: a reader that closes the pipe cannot stop the work half-way.
    code = report.print(code)
    if args.write and code == 0 and not args.no_key:
        _offer_key()
    return code


def _offer_key() -> None:
    """Offer an operator key to a person without one: no process of theirs can sign in their place."""
    where = places()
    if ctl_sign.has_key(where) or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    print(KEY_SAYS)
    try:
        if input("Make an operator key? [Y/n] ").strip().casefold() in ("", "y", "yes"):
            ctl_key.create(where, None)
    except (EOFError, KeyboardInterrupt):
        print("\nno key was made; agent-intercom-ctl key create makes one")
    except (IntercomError, OSError, Refusal) as fault:
        print(init_files.said(fault) if isinstance(fault, IntercomError | OSError) else str(fault), file=sys.stderr)


def _run(args: argparse.Namespace, report: _Report) -> int:
    unknown = [name for name in args.client or () if name not in (*CLIENTS, "all")]
    if unknown:
        report.fault(f"no client is called {unknown[0]}: choose from {', '.join(CLIENTS)}, or all")
        return 2
    workspace = (args.workspace or Path()).expanduser().absolute().resolve()
    if not workspace.is_dir():
        report.fault(f"{workspace} is not a directory: give --workspace an existing project")
        return 2
    if args.remove:
        return _remove(args, workspace, report)
    try:
        own = Path(places().config_file)
        config = args.config.expanduser().absolute() if args.config else own
        port = None if args.http is None else args.http or DEFAULT_PORT
        settings = _configure(config, workspace if args.workspace else None, port, args, report)
        opened = None if args.http is None else settings
        token_file = None if opened is None else _token_file(opened, write=args.write)
    except (IntercomError, OSError) as error:
        report.fault(init_files.said(error))
        return 1
    if args.write:
        where = places(args.ipc_name or settings.ipc_name)
        if not_recorded := record_or_explain(where, config_file.database_path(settings, where)):
            report.say(not_recorded)
    named = config if config != own else None
    chosen = _chosen(args.client) if args.client or not args.write else []
    plans = [_plan(CLIENTS[name], workspace, named, opened) for name in chosen]
    if args.write:
        with_hooks = _wants_hooks(args, plans)
        done = [_write(plan, report, hooks=with_hooks) for plan in plans]
        if not chosen:
            report.say("no client was connected: add --client codex, say, or --client all")
    else:
        done = [_show(plan, report, hooks=not args.no_hooks) for plan in plans]
    if token_file is not None:
        report.say(f"\nThe token stands in {token_file}, and in no other file. Where the client is started:\n")
        report.say(f'  export {TOKEN_VARIABLE}="$(cat {shlex.quote(token_file)})"')
    if args.policy:
        done.append(_policy(workspace, args.ipc_name or settings.ipc_name, report, write=args.write))
    if not args.write:
        report.say("\nnothing was changed: add --write, and --client NAME or --client all")
    return 0 if all(done) else 1


def _policy(workspace: Path, ipc_name: str, report: _Report, *, write: bool) -> bool:
    """Write a policy if the workspace has none, and have it accepted. Returns False if that failed."""
    if not write:
        report.say(init_policy.plan(workspace))
        return True
    try:
        wrote = init_policy.write(workspace)
        if wrote is not None:
            report.say(wrote)
        done, more = init_policy.accept(workspace, ipc_name)
    except (IntercomError, OSError) as error:
        report.fault(f"{workspace}: {init_files.said(error)}")
        return False
    if more is not None:
        (report.say if done else report.fault)(more)
    return done


def _remove(args: argparse.Namespace, workspace: Path, report: _Report) -> int:
    done = init_remove.remove(_chosen(args.client), workspace)
    for line in done.lines:
        report.say(line)
    for fault in done.faults:
        report.fault(fault)
    report.say(f"kept     Intercom's own files: {places().config_file}, and {places().state_dir}")
    return 1 if done.faults else 0


def _chosen(named: list[str] | None) -> list[str]:
    return list(CLIENTS) if not named or "all" in named else list(dict.fromkeys(named))


class _Report:
    """The report at the end: lines for stdout, faults for stderr."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._faults: list[str] = []

    def say(self, line: str) -> None:
        self._lines.append(line)

    def fault(self, line: str) -> None:
        self._faults.append(line)

    def print(self, code: int) -> int:
        """Print everything. Returns `code`, or 1 instead of 0 if stdout fails for another reason than a closed pipe."""
        for stream, lines in ((sys.stdout, self._lines), (sys.stderr, self._faults)):
            try:
                print("".join(f"{line}\n" for line in lines), end="", file=stream, flush=True)
            except OSError as error:
                # Without this, Python would complain again when it closes the stream.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                    self.fault(f"what was done could not be printed: {error.strerror}")
                    code = code or 1
        return code


# --- the configuration -----------------------------------------------------------------------------------------------


def _configure(
    file: Path, default_workspace_root: Path | None, http_port: int | None, args: argparse.Namespace, report: _Report
) -> Config:
    """Write the configuration if there is none (or again with `--force`), with the requested port. Without `--write`,
    only report it. Returns the settings. Raises ConfigError and OSError."""
    if default_workspace_root in (Path("/"), Path.home().resolve()):
        raise ConfigError(f"{default_workspace_root} can not be a workspace: give --workspace a project")
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: give --config a file in it")
    real = Path(os.path.realpath(file))
    is_there = file.exists() or file.is_symlink()
    before = init_files.read(real)
    if is_there and not args.force:
        settings = config_file.load(file) if args.http is not None else Config()
        wanted = args.http or settings.http_port or DEFAULT_PORT
        if args.http is None or wanted == settings.http_port:
            report.say(f"kept     {file} (--force writes it anew)")
            return settings
        changed = with_port(before or "", wanted)
        if tomllib.loads(changed) != {**tomllib.loads(before or ""), "http_port": wanted}:
            raise ConfigError(f"{file} can not be edited safely as it is laid out: set http_port = {wanted} in it")
        said = f"http_port = {wanted} in {file} (agent-intercom stop ends a server without it)"
        settings = evolve(settings, http_port=wanted)
    else:
        changed, said, settings = render(default_workspace_root, http_port), str(file), Config(http_port=http_port)
    backup = None if before is None else backup_name(real)
    verb = "set     " if is_there and not args.force else "wrote   "
    if args.write:
        init_files.commit([Change(real, before, changed, 0o600, backup)])
        if backup is not None:
            report.say(f"backup   {backup}")
        report.say(f"{verb} {said}")
    else:
        report.say(f"would {'set' if verb.startswith('set') else 'write'} {said}")
    return settings


def _token_file(config: Config, *, write: bool) -> str | None:
    """Return the token's file, or None if no token is required. With `write`, create a missing token."""
    if not config.http_token_required:
        return None
    where = places(config.ipc_name)
    if write:
        http_token.token(where)
    return where.http_token_file


# --- the clients' files ----------------------------------------------------------------------------------------------


@frozen
class Plan:
    """What one client's files should say. `start` is the command that its hooks begin with."""

    client: Client
    workspace: Path
    wish: Wish
    note: str
    start: list[str]

    @property
    def hooks(self) -> Hooks | None:
        return HOOKS.get(self.client.name)

    @property
    def has_hooks(self) -> bool:
        """Whether all hooks are installed; installed hooks are kept up to date."""
        hooks = self.hooks
        if hooks is None:
            return False
        return set(init_hooks.installed(hooks, init_files.glance(hooks.file(self.workspace)))) == set(hooks.events)


def _plan(client: Client, workspace: Path, config: Path | None, opened: Config | None) -> Plan:
    wish, note = _over_stdio(client, config) if opened is None else _over_http(client, workspace, opened)
    return Plan(client, workspace, wish, note, command(config, shared=False))


def _over_stdio(client: Client, config: Path | None) -> tuple[Wish, str]:
    entry = client.entry(command(config, shared=client.shared))
    return Wish(client.table, SERVER_NAME, entry, HTTP_KEYS), client.note


def _over_http(client: Client, workspace: Path, config: Config) -> tuple[Wish, str]:
    port = config.http_port or DEFAULT_PORT
    http, token = HTTP[client.name], config.http_token_required
    before = present(client.format, init_files.glance(client.file(workspace)), client.table, SERVER_NAME)
    entry = http.entry(address(config.http_host, port, client.name, before), token=token)
    return Wish(client.table, SERVER_NAME, entry, STDIO_KEYS, http.inputs if token else ()), http.notes(token=token)


def _wants_hooks(args: argparse.Namespace, plans: list[Plan]) -> bool:
    """Tell whether to install hooks: only if a person says so, by an option or at the prompt."""
    if args.hooks or args.no_hooks:
        return bool(args.hooks)
    missing = [plan for plan in plans if plan.hooks is not None and not plan.has_hooks]
    if not missing or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    print(HOOKS_SAY.format(where="\n".join(f"  {_where(plan)}" for plan in missing)))
    try:
        return input("Install these hooks? [y/N] ").strip().casefold() in ("y", "yes")
    except EOFError:
        print()
        return False


def _where(plan: Plan) -> str:
    assert plan.hooks is not None, "only clients with hooks are asked about"
    return f"{plan.client.title}: {plan.hooks.scope}\n    {plan.hooks.file(plan.workspace)}"


def _show(plan: Plan, report: _Report, *, hooks: bool) -> bool:
    """Report what would be written."""
    report.say(f"\n{plan.client.title}: in {plan.client.file(plan.workspace)}\n")
    report.say(init_files.indented(snippet(plan.client.format, plan.wish)).rstrip("\n"))
    report.say(f"  {plan.note}")
    if plan.hooks is not None and hooks:
        report.say(f"\n{plan.hooks.title}, {plan.hooks.scope}, with --hooks: in {plan.hooks.file(plan.workspace)}\n")
        report.say(init_files.indented(init_hooks.merge(plan.hooks, "", plan.start)).rstrip("\n"))
        report.say(f"  {plan.hooks.note}".rstrip())
    return True


def _write(plan: Plan, report: _Report, *, hooks: bool) -> bool:
    """Write a client's files, all or none. Returns False if that failed."""
    file = plan.client.file(plan.workspace)
    changes: list[tuple[Change, str, str]] = []
    wrote: list[tuple[Change, Any, Any]] = []
    wants_hooks = plan.hooks is not None and (hooks or plan.has_hooks)
    try:
        known = init_record.load()
        entry = _change(file, lambda text: merge(plan.client.format, text, plan.wish), known, shared=plan.client.shared)
        stood = present(plan.client.format, entry.before or "", plan.client.table, SERVER_NAME)
        now = present(plan.client.format, entry.after or "", plan.client.table, SERVER_NAME)
        changes.append((entry, plan.client.title, plan.note))
        wrote.append((entry, now, stood))
        if plan.hooks is not None and wants_hooks:
            own, start = plan.hooks, plan.start
            file = own.file(plan.workspace)
            hooked = _change(file, lambda text: init_hooks.merge(own, text, start), known, shared=False)
            changes.append((hooked, f"{own.title}, {own.scope}", own.note))
            wrote.append((hooked, None, None))
        made = {each.file: init_files.missing_directories(each.file) for each, _, _ in changes}
        record = init_record.after(known, plan.client.name, wrote, made)
        extra = [init_record.change(record)] if record != known else []
        file = Path("the client's files")
        init_files.commit([*(each for each, _, _ in changes), *extra])
    except (Unmergeable, OSError, UnicodeDecodeError) as error:
        where = "" if isinstance(error, OSError) else f"{file} "
        report.fault(f"{plan.client.title}: {where}{init_files.said(error)}; nothing of it was changed")
        if not isinstance(error, OSError):
            report.fault("add this by hand:\n")
            report.fault(init_files.indented(snippet(plan.client.format, plan.wish)))
            if plan.hooks is not None and wants_hooks:
                report.fault(f"and in {plan.hooks.file(plan.workspace)}:\n")
                report.fault(init_files.indented(init_hooks.merge(plan.hooks, "", plan.start)))
        return False
    for each, title, note in changes:
        if not each.changes:
            report.say(f"has it   {each.file}")
            continue
        if each.backup is not None:
            report.say(f"backup   {each.backup}")
        report.say(f"merged   {each.file}  ({title})" + (f"\n         {note}" if note else ""))
    if plan.hooks is not None and not wants_hooks:
        report.say(f"no hooks {plan.client.title} may use its own tools without asking (--hooks installs them)")
    return True


def _change(file: Path, merged: Any, known: Mapping[str, init_record.Entry], *, shared: bool) -> Change:
    # A link into a dotfiles repository stays a link: only its target changes.
    real = Path(os.path.realpath(file))
    before = init_files.read(real)
    after = merged(before or "")
    ours = before is not None and str(real) in known and init_record.digest_of(before) == known[str(real)].digest
    backup = None if before is None or ours or after == before else backup_name(real)
    return Change(real, before, after, 0o644 if shared else 0o600, backup)
