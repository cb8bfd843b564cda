"""`agent-intercom init`: writes a configuration and a policy, and connects the MCP clients to Intercom."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from attrs import evolve, frozen

from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import SERVER_NAME, TOKEN_VARIABLE
from intercom.cli import ctl_key, ctl_policy, ctl_sign, init_clients
from intercom.cli.ctl_text import agreed, at_words
from intercom.cli.init_clients import (
    EntryFile,
    HooksFile,
    entry_file,
    hooks_file,
    path_of,
    project_at,
    snippet,
)
from intercom.cli.init_files import ClientFile, DocumentFile, Unmergeable, describe, indented
from intercom.cli.init_instructions import TEXT as INSTRUCTIONS
from intercom.cli.init_instructions import InstructionsFile, instructions_file
from intercom.cli.init_permissions import (
    OwnToolsFile,
    PermissionsFile,
    joined,
    own_tools_file,
    permissions_file,
    refusals,
)
from intercom.cli.parser import close
from intercom.cli.server_settings import record_or_explain
from intercom.local import config_file, file_replacement, own_files
from intercom.local.file_replacement import Change
from intercom.local.places import places
from intercom.model.config import Config
from intercom.model.config_tables import Setting, tables
from intercom.model.errors import ConfigError, IntercomError
from intercom.model.json_types import JsonObject
from intercom.model.policy import POLICY_FILE
from intercom.model.server_view import DEFAULT_PORT
from intercom.operators.ctl.client import NoServer, Refusal
from intercom.workspace.files import check_workspace, version_control_root

#: What a person must know before hooks are installed: a sentence, where, and another one.
HOOKS_NOTICE = (
    "Permission hooks make a client ask Intercom before its own tools write or run anything. They apply:",
    "If agent-intercom cannot be started (it was removed, or moved), an installed hook denies every such use: before"
    " you remove the program, run 'agent-intercom init --remove'.",
)

#: What a person must know before rules restrict a client's own tools: a sentence for each client, and the question.
OWN_TOOLS_NOTICE = (
    "{title}'s own tools write and run without asking, and Intercom has no hooks for it. With these rules it brings its"
    " changes to Intercom, and asks you itself about what is 'ask'. They apply {scope}, in {file}:"
)

#: What a person must know before the section is added to their own file.
INSTRUCTIONS_NOTICE = (
    "These clients give their model permanent instructions from a file of yours. A section at its end can say how to"
    " use Intercom's tools; the rest of the file stays as it is, and 'agent-intercom init --remove' takes the section"
    " out again:"
)

#: What a person must know to decide about an operator key.
KEY_NOTICE = (
    "With an operator key, only what you sign with a PIN is approved: you type it when you answer, and a terminal can"
    " keep the key unlocked for a while. In the browser a passkey takes its place. Without a key, a process of your"
    " account that types into your terminals (tmux, an editor's), or writes the database, could approve in your place."
    " Recommended."
)
NO_KEY = "no key was made: agent-intercom-ctl key create makes one"


def run(args: argparse.Namespace) -> int:
    """Carry out the options of `agent-intercom init`, then report on stdout.

    Without `--write` and `--remove` nothing is changed. Returns 0 if all was done. Returns 1 if a file could not be
    written or merged: each is named on stderr, and no client is half changed. Returns 2 if the options do not fit
    together.
    """
    report = Report()
    code = _run(args, report)
    # Printed last and at once: a reader that closes the pipe cannot stop the work half-way.
    code = report.print(code)
    if args.write and code == 0 and not args.no_key:
        _offer_key()
    last = Report()
    last.lines = report.next_steps if code == 0 else []
    return last.print(code)


def _offer_key() -> None:
    """Offer an operator key to a person without one: no process of theirs can sign in their place."""
    where = places()
    if ctl_sign.has_key(where) or not _is_terminal():
        return
    print("\n" + at_words(KEY_NOTICE, more=""))
    try:
        if input("Make an operator key? [Y/n] ").strip().casefold() in ("", "y", "yes"):
            ctl_key.create(where, None)
    except (EOFError, KeyboardInterrupt):
        print(f"\n{NO_KEY}")
    except (IntercomError, OSError, Refusal) as fault:
        print(at_words(describe(fault), stream=sys.stderr), file=sys.stderr)
        if not ctl_sign.has_key(where):
            print(NO_KEY, file=sys.stderr)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _run(args: argparse.Namespace, report: Report) -> int:
    unknown = [name for name in args.client or () if name not in (*CLIENTS, "all")]
    if unknown:
        near = close(unknown[0], CLIENTS)
        meant = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(CLIENTS)}, or all"
        report.fault(f"no client is called {unknown[0]}: {meant}")
        return 2
    if args.agent and (len(args.client or ()) != 1 or args.client == ["all"]):
        report.fault("--agent names one agent: give one --client with it")
        return 2
    workspace = args.workspace.expanduser().absolute().resolve() if args.workspace else project_at(Path.cwd())
    if not workspace.is_dir():
        report.fault(f"{workspace} is not a directory: give --workspace an existing project")
        return 2
    if args.remove:
        return _remove(args, workspace, report)
    chosen = _chosen(args.client) if args.client else [] if args.write else init_clients.found(workspace)
    own = Path(places().config_file)
    file = args.config.expanduser().absolute() if args.config else own
    named = file if file != own else None
    try:
        if args.write:
            _require_project(chosen, workspace, named)
        root = workspace if args.workspace else None
        lines, settings = configure(file, root, args.http, write=args.write, force=args.force)
        report.say(*lines)
        token_file = _token_file(settings, write=args.write) if args.http is not None else None
    except (IntercomError, OSError) as error:
        report.fault(describe(error))
        return 1
    if args.write:
        where = places(args.ipc_name or settings.ipc_name)
        before = own_files.own_directories()[0]
        if not_recorded := record_or_explain(where, config_file.database_path(settings, where)):
            report.say(not_recorded)
        if added := sorted(own_files.own_directories()[0] - before):
            report.say(
                f"recorded {' and '.join(added)} as your own directories, in {own_files.directories_file()}: a server"
                " that an agent starts takes your settings and keys only from these and the default ones, because an"
                " agent could set XDG_CONFIG_HOME, for example, to a directory of its own. To take one back, remove its"
                " line there and run agent-intercom stop"
            )
    if chosen or args.policy:
        report.say(f"project  {workspace}{_why(workspace, given=args.workspace is not None)}")
    if chosen and settings.default_workspace_root is None and version_control_root(workspace) is None:
        report.say(
            "         under no version control: Intercom refuses an agent there if its client does not say in which"
            " project it is. Run git init there, or set default_workspace_root"
        )
    served = settings if args.http is not None else None
    plans = [_plan(name, workspace, named, served, args.agent) for name in chosen]
    if args.write:
        wanted = Wanted(
            hooks=_wants_hooks(args, plans),
            own_tools=_wants_rules(args, plans),
            instructions=_wants_instructions(args, plans),
        )
        done = [_write(plan, report, wanted) for plan in plans]
    else:
        wanted = Wanted(hooks=not args.no_hooks, own_tools=None, instructions=not args.no_instructions)
        done = [_show(plan, report, wanted) for plan in plans]
        _show_instructions(plans, report, wanted)
    if not args.write and not chosen:
        report.say(f"\nno client was found here; add one of these after --client:\n  {'  '.join(CLIENTS)}")
    if args.write and not chosen:
        report.say("no client was connected: add --client codex, for example, or --client all")
    if token_file is not None:
        report.say(f"\nThe token is in {token_file}, and in no other file. Where the client is started:\n")
        report.show(f'  export {TOKEN_VARIABLE}="$(cat {shlex.quote(token_file)})"')
    if args.write and all(done):
        report.next_steps = next_steps(plans, named, http=args.http is not None)
    if args.policy:
        done.append(_policy(workspace, args.ipc_name or settings.ipc_name, report, write=args.write))
    if not args.write:
        more = "" if args.client else ", and --client NAME or --client all"
        report.say(f"\nnothing was changed: add --write{more}")
    return 0 if all(done) else 1


def _why(project: Path, *, given: bool) -> str:
    """Say why this is the project, if a person may not expect it."""
    return "" if given or project == Path.cwd().resolve() else "  (the root of this repository; else give --workspace)"


def _require_project(names: list[str], project: Path, config: Path | None) -> None:
    """Raise an IntercomError if files of these clients in the project cannot be written as they should be."""
    entries = [CLIENTS[name] for name in names if CLIENTS[name].entry.file.is_in_project]
    if entries:
        check_workspace(project)
        init_clients.command(config, shared=True)


def next_steps(plans: Sequence[Plan], config: Path | None, *, http: bool) -> list[str]:
    """Return the lines about what to do after the clients were connected; none without clients."""
    if not plans:
        return []
    lines: list[str] = []
    shared = [plan.title for plan in plans if plan.entry.location.is_in_project]
    if shared and not http and not init_clients.is_on_path(SERVER_NAME):
        program = init_clients.installed(SERVER_NAME)
        lines += broken(
            f"\n{' and '.join(shared)}: the project's file names {SERVER_NAME} without its directory, as others share"
            f" it, and your PATH does not find it: add {os.path.dirname(program or sys.executable)} to it."
        )
    options = ["--config", str(config)] if config else []

    def typed(name: str, *words: str) -> str:
        program = name if init_clients.is_on_path(name) else init_clients.installed(name) or name
        return shlex.join([program, *options, *words])

    ctl = f"{SERVER_NAME}-ctl"
    titles = [plan.title for plan in plans]
    named = titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"
    first = ["Let the server run, which clients over HTTP do not start:", typed(SERVER_NAME, "serve")] if http else []
    steps = [*first, f"Restart {named}. Then answer what it asks, in a terminal of your own:", typed(ctl)]
    # The commands stay whole, to be copied.
    lines += [f"  {step}" if number % 2 else f"\n{at_words(step)}\n" for number, step in enumerate(steps)]
    return [*lines, f"\nin the browser: {typed(ctl, 'web')}", f"check the setup: {typed(SERVER_NAME, 'doctor')}"]


def _policy(workspace: Path, ipc_name: str, report: Report, *, write: bool) -> bool:
    """Write a policy if the workspace has none, and have it accepted. Returns False if that failed."""
    if not write:
        report.say(plan_policy(workspace))
        return True
    try:
        wrote = write_policy(workspace)
        if wrote is not None:
            report.say(wrote)
        done, more = accept_policy(workspace, ipc_name)
    except (IntercomError, OSError) as error:
        report.fault(f"{workspace}: {describe(error)}")
        return False
    if more is not None:
        (report.say if done else report.fault)(more)
    return done


def _remove(args: argparse.Namespace, workspace: Path, report: Report) -> int:
    lines, faults = init_clients.remove(_chosen(args.client), workspace)
    report.say(*lines, f"kept     Intercom's own files: {places().config_file}, and {places().state_dir}")
    report.fault(*faults)
    return 1 if faults else 0


def _chosen(named: list[str] | None) -> list[str]:
    return list(CLIENTS) if not named or "all" in named else list(dict.fromkeys(named))


def _token_file(config: Config, *, write: bool) -> str | None:
    """Return the token's file, or None if no token is required. With `write`, create a missing token."""
    if not config.http_token_required:
        return None
    where = places(config.ipc_name)
    if write:
        own_files.http_token(where)
    return where.http_token_file


class Report:
    """The report at the end: lines for stdout, faults for stderr. `next_steps` are the last lines of all."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.faults: list[str] = []
        self.next_steps: list[str] = []

    def say(self, *texts: str) -> None:
        """Add sentences to stdout."""
        for text in texts:
            self.lines += broken(text)

    def show(self, text: str) -> None:
        """Add a text to stdout whose lines are not broken: what goes into a file, or is copied."""
        self.lines.append(text)

    def fault(self, *texts: str) -> None:
        """Add sentences to stderr."""
        for text in texts:
            self.faults += broken(text, sys.stderr)

    def show_fault(self, text: str) -> None:
        self.faults.append(text)

    def print(self, code: int) -> int:
        """Print everything. Returns `code`, or 1 instead of 0 if stdout fails for another reason than a closed pipe."""
        for stream, lines in ((sys.stdout, self.lines), (sys.stderr, self.faults)):
            try:
                print("".join(f"{line}\n" for line in lines), end="", file=stream, flush=True)
            except OSError as error:
                # Without this, Python would complain again when it closes the stream.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                    self.fault(f"what was done could not be printed: {error.strerror}")
                    code = code or 1
        return code


#: The word at the beginning of a line that says what was done. What follows it is in one column.
_LABEL = re.compile(r"(?=.{8} )[a-z]+(?: [a-z]+)? +")


def broken(text: str, stream: TextIO | None = None) -> list[str]:
    """Return the lines of a text, each as `at_words` breaks it."""
    found = []
    for line in text.split("\n"):
        label = _LABEL.match(line)
        start = len(label[0]) if label is not None and label.end() == 9 else len(line) - len(line.lstrip(" "))
        found.append(at_words(line[start:], line[:start], " " * start, stream) if line else "")
    return found


# --- the clients' files ----------------------------------------------------------------------------------------------


@frozen
class Wanted:
    """What a person wants beside a client's entry."""

    hooks: bool
    #: None if nobody was asked.
    own_tools: bool | None
    instructions: bool


@frozen
class Plan:
    """What one client's files should say."""

    entry: EntryFile
    hooks: HooksFile | None
    instructions: InstructionsFile | None
    permissions: PermissionsFile | None
    own_tools: OwnToolsFile | None

    @property
    def title(self) -> str:
        return self.entry.title

    @property
    def misses_hooks(self) -> bool:
        """Whether the client has permission hooks that are not all installed."""
        return self.hooks is not None and set(self.hooks.installed()) != set(self.hooks.hooks.events)

    @property
    def misses_instructions(self) -> bool:
        """Whether the client reads permanent instructions to which our section could be added."""
        file = self.instructions
        return file is not None and file.hides is None and not file.is_installed()

    def has_hooks(self, wanted: Wanted) -> bool:
        """Whether the client has hooks afterwards: what is installed is kept."""
        return self.hooks is not None and (wanted.hooks or not self.misses_hooks)

    def files(self, wanted: Wanted) -> list[ClientFile]:
        """Return the files to write. What is installed is kept up to date."""
        parts: list[DocumentFile] = [self.entry]
        if self.has_hooks(wanted) and self.hooks is not None:
            parts.append(self.hooks)
        if self.permissions is not None:
            parts.append(self.permissions)
        if wanted.own_tools and self.own_tools is not None and self.own_tools.can_be_added():
            parts.append(self.own_tools)
        found: list[ClientFile] = [*joined(parts)]
        file = self.instructions
        if file is not None and file.hides is None and (wanted.instructions or file.is_installed()):
            found.append(file)
        return found


def _plan(name: str, workspace: Path, config: Path | None, http: Config | None, agent: str | None) -> Plan:
    client = CLIENTS[name]
    entry = entry_file(client, workspace, config, http, agent)
    return Plan(
        entry,
        hooks_file(client, workspace, config),
        instructions_file(client, workspace),
        permissions_file(client, workspace),
        own_tools_file(client, workspace),
    )


def _wants_hooks(args: argparse.Namespace, plans: list[Plan]) -> bool:
    """Tell whether to install hooks: only if a person says so, by an option or at the prompt."""
    missing = [plan.hooks for plan in plans if plan.hooks is not None and plan.misses_hooks]
    if args.hooks or args.no_hooks or not missing or not _is_terminal():
        return bool(args.hooks)
    before, after = HOOKS_NOTICE
    print("\n".join([at_words(before, more=""), *_places(missing), at_words(after, more="")]))
    return agreed("Install these hooks?")


def _wants_rules(args: argparse.Namespace, plans: list[Plan]) -> bool | None:
    """Tell whether to restrict the own tools of clients without hooks: only if a person says so at the prompt. None if
    nobody was asked."""
    files = [plan.own_tools for plan in plans if plan.own_tools is not None and plan.own_tools.can_be_added()]
    if args.no_hooks or not files or not _is_terminal():
        return None
    for each in files:
        print(at_words(OWN_TOOLS_NOTICE.format(title=each.client.title, scope=each.scope, file=path_of(each)), more=""))
        print(indented(json.dumps(each.own_tools.deny, indent=2)), end="")
    return agreed("Add these rules?")


def _wants_instructions(args: argparse.Namespace, plans: list[Plan]) -> bool:
    """Tell whether to write the section of instructions: only if a person says so, by an option or at the prompt."""
    missing = [plan.instructions for plan in plans if plan.instructions is not None and plan.misses_instructions]
    if args.instructions or args.no_instructions or not missing or not _is_terminal():
        return bool(args.instructions)
    print("\n".join([at_words(INSTRUCTIONS_NOTICE, more=""), *_places(missing)]))
    return agreed("Write these instructions?")


def _places(files: Sequence[ClientFile]) -> list[str]:
    """Return lines that say where files apply, and where they are."""
    return [line for each in files for line in (f"  {each.client.title}: {each.scope}", f"    {path_of(each)}")]


def _show(plan: Plan, report: Report, wanted: Wanted) -> bool:
    """Report what would be written."""
    report.say(f"\n{plan.title}: in {path_of(plan.entry)}\n")
    report.show(indented(snippet(plan.entry)).rstrip())
    report.say(f"  {plan.entry.note}")
    if plan.hooks is not None and wanted.hooks:
        report.say(f"\n{plan.hooks.title}, {plan.hooks.scope}, with --hooks: in {path_of(plan.hooks)}\n")
        report.show(indented(snippet(plan.hooks)).rstrip())
        if plan.hooks.note:
            report.say(f"  {plan.hooks.note}")
    if plan.permissions is not None:
        report.say(f"\n{plan.permissions.title}, {plan.permissions.scope}: in {path_of(plan.permissions)}\n")
        report.show(indented(snippet(plan.permissions)).rstrip())
    _show_denial(plan, report, wanted, "\n")
    return True


def _show_instructions(plans: Sequence[Plan], report: Report, wanted: Wanted) -> None:
    """Report which instructions would be written: they are the same for every client."""
    files = [plan.instructions for plan in plans if plan.instructions is not None and plan.instructions.hides is None]
    if files and wanted.instructions:
        report.say("\nInstructions, in all your projects, with --instructions: in a section of\n")
        report.say(*(f"  {each.path}  ({each.client.title})" for each in files))
        report.show(f"\n{indented(INSTRUCTIONS)}".rstrip())


def _write(plan: Plan, report: Report, wanted: Wanted) -> bool:
    """Write a client's files, all or none. Returns False if that failed."""
    files = plan.files(wanted)
    try:
        changes = init_clients.connect(plan.entry.client, files)
    except (Unmergeable, OSError) as error:
        report.fault(f"{plan.title}: {describe(error)}; nothing of it was changed")
        if isinstance(error, Unmergeable):
            for each in files:
                report.fault(f"add by hand to {path_of(each)}:\n")
                report.show_fault(indented(snippet(each)))
        return False
    for each, change in changes:
        if not change.changes:
            edited = isinstance(each, InstructionsFile) and each.is_edited(change.before)
            report.say(f"kept     {change.file}: you edited its section" if edited else f"has it   {change.file}")
            continue
        if change.backup is not None:
            report.say(f"backup   {change.backup}")
        scope = f", {each.scope}" if each.scope else ""
        did = "wrote   " if change.before is None else "merged  "
        report.say(f"{did} {change.file}  ({each.title}{scope})" + (f"\n         {each.note}" if each.note else ""))
    if plan.permissions is not None:
        found = refusals(plan.permissions)
        for rule in dict.fromkeys(rule for refusal in found for rule in refusal.rules):
            report.say(f"kept     your rule {rule}: {plan.title} follows it for these tools, before a card is shown")
        for refusal in found:
            if refusal.key:
                report.say(f"refused  {refusal.key} of {refusal.path} has {SERVER_NAME}: {refusal.remedy}")
    if plan.hooks is not None and not plan.has_hooks(wanted):
        report.say(f"hooks    none: {plan.title} may use its own tools without asking (--hooks installs them)")
    _show_denial(plan, report, wanted, "hooks    none: ")
    if plan.instructions is not None and plan.instructions not in files:
        why = _why_none(plan.instructions)
        report.say(f"text     none: {plan.title} is given no instructions on these tools ({why})")
    return True


def _show_denial(plan: Plan, report: Report, wanted: Wanted, label: str) -> None:
    """Say how the person restricts the own tools of a client without hooks, if that is necessary."""
    file = plan.own_tools
    if file is None or not file.is_missing():
        return
    if wanted.own_tools is False and file.can_be_added():
        # The person has just read them, and declined.
        report.say(f"{label}no rules were added for {plan.title}'s own tools (init --write asks again)")
        return
    asks = ", or let init --write ask you on a terminal" if file.can_be_added() else ""
    report.say(
        f"{label}{plan.title}'s own tools write and run without asking, and Intercom has no hooks for it. To restrict"
        f" them, add to {path_of(file)}{asks}:\n"
    )
    report.show(indented(json.dumps(file.own_tools.deny, indent=2)).rstrip())


def _why_none(file: InstructionsFile) -> str:
    """Say why a client's instructions were not written."""
    if file.hides is None:
        return "--instructions writes them"
    return f"{file.path} would hide {file.hides} from it: make it first, a link to that for example"


#: Examples for settings whose default is to have no value.
EXAMPLES = {
    "gateway.directory": '"/home/me/.config/agent-intercom/gateway"',
    "default_workspace_root": '"~/projects/mine"',
    "host_cli": '"claude"',
    "http_port": "3000",
    "http_allowed_hosts": '["intercom.example.com"]',
    "http_allowed_origins": '["https://intercom.example.com"]',
    "database.path": '"data/agent-rc.db"',
    "slack.channel_id": '"C0123456789"',
    "slack.workspace_channels": '{ "~/projects/web" = "C0123456789" }',
    "slack.proxy": '"http://proxy.example.org:3128"',
    "slack.ca_file": '"/etc/ssl/certs/proxy.pem"',
    "slack.authorized_user_ids": '["U0123456789"]',
    "timeouts.prompt_by_type": '{ error_recovery = "stop" }',
    # The address of a proxy needs a port that stays the same.
    "web.port": "4321",
    "web.public_url": '"https://intercom.example.org"',
    "web.members": '{ "kim@example.org" = "operator" }',
    "web.proxy_secret_file": '"proxy.secret"',
    "web.push_contact": '"mailto:you@example.org"',
    "rooms.database": '"data/rooms.db"',
    "rooms.database_url_env": '"DATABASE_URL"',
    "rooms.public_url": '"https://rooms.example.org"',
    "rooms.active_seconds": "30",
    "rooms.disconnected_seconds": "120",
    "rooms.secret_file": '"rooms.secret"',
    'clients."NAME".call_wait_seconds': "240",
    "logging.file": '"intercom.log"',
}
#: Example entries for the tables whose keys the user chooses.
OWN_NAMES = {"commands": ['status = "git status"'], "clients": ['[clients."codex"]']}

HEAD = """\
Intercom's configuration. Everything here is optional: a line that is commented out shows the default, or an example
where the default is to have none. Relative paths count from this file's directory.

Slack's tokens are never in this file. 'agent-intercom slack login' keeps them in the keychain; otherwise they come from
SLACK_APP_TOKEN and SLACK_BOT_TOKEN in the server's environment.

After a change, stop the server (the next agent starts it again). 'agent-intercom doctor' checks this file.
"""


def configure(file: Path, root: Path | None, http: int | None, *, write: bool, force: bool) -> tuple[list[str], Config]:
    """Write the configuration `file` if there is none, or again with `force`.

    `root` becomes the default workspace. `http` is the port to open: None for no HTTP, 0 for the configured or the
    default port. An existing file gets the port alone. Without `write` nothing is changed. Returns the lines of the
    report, and the settings. Raises ConfigError and OSError.
    """
    if root in (Path("/"), Path.home().resolve()):
        raise ConfigError(f"{root} cannot be a workspace: give --workspace a project")
    if file.is_dir():
        raise ConfigError(f"{file} is a directory: give --config a file in it")
    real = Path(os.path.realpath(file))
    before = file_replacement.read(real)
    if force or not (file.exists() or file.is_symlink()):
        port = None if http is None else http or DEFAULT_PORT
        after, settings, verb, what = render(root, port), Config(http_port=port), "write", str(file)
    else:
        settings = config_file.load(file) if http is not None else Config()
        port = http or settings.http_port or DEFAULT_PORT
        if http is None or port == settings.http_port:
            return [f"kept     {file} (--force writes it again)"], settings
        after, settings, verb = with_port(before or "", port), evolve(settings, http_port=port), "set"
        if tomllib.loads(after) != {**tomllib.loads(before or ""), "http_port": port}:
            raise ConfigError(f"{file} cannot be edited safely as it is laid out: set http_port = {port} in it")
        what = f"http_port = {port} in {file} (agent-intercom stop ends a server without it)"
    if not write:
        return [f"would {verb} {what}"], settings
    backup = None if before is None else init_clients.backup_of(real)
    file_replacement.commit([Change(real, before, after, 0o600, backup)])
    done = "wrote" if verb == "write" else verb
    return [*([f"backup   {backup}"] if backup is not None else []), f"{done:<8} {what}"], settings


def with_port(text: str, port: int) -> str:
    """Return a configuration file's text with `http_port` set, and everything else as it was.

    Uses the line that `init` wrote, if it is there. Raises `tomllib.TOMLDecodeError` if the text is not TOML.
    """
    tomllib.loads(text)
    line = f"http_port = {port}"
    top, table, rest = text.partition("\n[") if not text.startswith("[") else ("", "", text)
    for pattern in (r"^http_port[ \t]*=.*$", r"^# http_port = .*$"):
        changed, count = re.subn(pattern, line, top, count=1, flags=re.MULTILINE)
        if count:
            return changed + table + rest
    return f"{line}\n{text}"


def render(default_workspace_root: Path | None = None, http_port: int | None = None) -> str:
    """Return the text of a configuration file in which only the given settings are set."""
    given: dict[str, object] = {} if http_port is None else {"http_port": http_port}
    if default_workspace_root is not None:
        given["default_workspace_root"] = str(default_workspace_root)
    lines = _comment(HEAD)
    for table in tables():
        lines.append("")
        if table.name:
            lines += _comment(table.doc)
        if table.name and not table.free:
            lines.append(f"[{table.name}]")
        for own in OWN_NAMES.get(table.name, ()):
            if not own.startswith("["):
                lines.append(f"[{table.name}]")
            lines.append(f"# {own}")
        for setting in table.settings:
            lines += ["", *_comment(setting.doc)]
            if not table.name and setting.name in given:
                lines.append(f"{setting.name} = {json.dumps(given[setting.name], ensure_ascii=False)}")
            else:
                lines.append(f"# {setting.name} = {_value(setting)}")
    return "\n".join(lines) + "\n"


def _value(setting: Setting) -> str:
    dotted = f"{setting.table}.{setting.name}".lstrip(".")
    return EXAMPLES.get(dotted) or setting.default or ""


def _comment(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [f"## {line}" for line in textwrap.wrap(" ".join(paragraph.split()), 116)] + ["##"]
    return lines[:-1]


#: It grants reading, and two commands that only show something: this is safe for any project.
STARTER = """\
{
  "$schema": "urn:agent-intercom:workspace-settings:1",
  "enabled": true,
  "commands": ["git status", "git diff --stat"],
  "tools": [],
  "file_patterns": {
    "write": [],
    "read": ["**"]
  },
  "risk_level_threshold": "low",
  "log_auto_approved": true,
  "summary_interval_seconds": 300
}
"""


def plan_policy(workspace: Path) -> str:
    """Say in one line what would be done."""
    file = workspace / POLICY_FILE
    if file.exists() or file.is_symlink():
        return f"policy   {file} is there: it would be shown, and accepted if you say so"
    return f"policy   {file} would be written, shown, and accepted if you say so"


def write_policy(workspace: Path) -> str | None:
    """Write the policy file if there is none. Returns a line that says so, or None. Raises OSError."""
    file = workspace / POLICY_FILE
    if file.exists() or file.is_symlink():
        return None
    file_replacement.commit([Change(file, None, STARTER, mode=0o644)])
    return f"wrote    {file}"


def accept_policy(workspace: Path, ipc_name: str) -> tuple[bool, str | None]:
    """Ask the server to accept the policy, like `agent-intercom-ctl policy accept`; it refuses an agent's own
    processes. Returns whether that was done or can wait, and a message if there is one."""
    by_hand = f"agent-intercom-ctl policy accept {workspace}"
    try:
        fields: JsonObject = {"workspace": str(workspace)}
        done = ctl_policy.policy(places(ipc_name), "accept", fields, yes=False, as_json=False) == 0
    except NoServer:
        return True, f"the policy is not accepted yet, as no server runs: {by_hand}"
    except Refusal as refusal:
        if refusal.code == "not_found":
            return True, f"policy   {refusal}"
        return False, f"the policy was not accepted: {refusal}"
    return True, None if done else f"the policy was not accepted; when you want to: {by_hand}"
