"""Runs `agent-intercom gateway`: moves the MCP servers that clients have behind the gateway, and puts them back.

`sign-in` and `sign-out` are in `gateway_sign_in`.

It needs no server. A running one notices the new files by itself. What `import` would do is shown first; nothing is
changed without `--apply` and a yes. Servers of the project's own files are only moved with `--project`, after a
question for each: these files may come with a repository that somebody else wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import tomlkit
from attrs import evolve
from tomlkit.exceptions import TOMLKitError

from intercom.agents.clients import CLIENTS
from intercom.cli import init_clients
from intercom.cli.ctl_text import agreed, clean, count, one_line
from intercom.gateway import client_files, client_import, import_receipt
from intercom.gateway.client_entries import Dialect, Note
from intercom.gateway.client_files import ClientFile
from intercom.gateway.client_import import ImportPlan, Move
from intercom.gateway.downstream_config import DownstreamConfig, Transport, references, to_json
from intercom.gateway.health_report import target_of
from intercom.gateway.import_receipt import Outcome, Receipt, UndoReport
from intercom.gateway.masked_diff import MASKED, Secrets, looks_secret, masked_value, masked_variable
from intercom.gateway.service import KEYCHAIN_SERVICE
from intercom.gateway.variables import Source
from intercom.local import config_file, file_replacement
from intercom.local.file_replacement import Change
from intercom.local.places import Places, places
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IntercomError
from intercom.model.json_types import JsonObject
from intercom.model.visible_text import visible_line

PROGRAM = "agent-intercom"
#: The clients whose files are read.
CLIENT_NAMES = tuple(dialect.value for dialect in Dialect)
#: A word of a command that is shown without quotes.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
#: Settings of a downstream that are shown in a form of their own, or say nothing about what it does.
_SHOWN_OTHERWISE = frozenset({"name", "transport", "schemaVersion", "command", "args", "env", "headers", "baseURL"})


def run(options: argparse.Namespace) -> int:
    """Carry out an action. Returns 0 if it was done or nothing was to be done, 1 if it failed or the person said no, 2
    for a faulty configuration or wrong options, 130 if the person interrupted it."""
    try:
        where, file, config = _settings(options)
    except IntercomError as fault:
        print(f"{PROGRAM}: {one_line(fault.message)}", file=sys.stderr)
        return 2
    try:
        if options.action == "import":
            return _import(options, where, file, config)
        if options.action == "undo":
            return _undo(options, where)
        # Imported lazily: HTTP and OAuth take half a second.
        from intercom.cli import gateway_sign_in

        return gateway_sign_in.run(options, where, config)
    except ConfigError as fault:
        print(f"{PROGRAM}: {one_line(fault.message)}", file=sys.stderr)
        return 2 if options.action.startswith("sign-") else 1
    except IntercomError as fault:
        print(f"{PROGRAM}: {one_line(fault.message)}", file=sys.stderr)
        return 1


def _settings(options: argparse.Namespace) -> tuple[Places, Path, Config]:
    own = Path(places().config_file)
    file = Path(options.config).expanduser().absolute() if options.config else own
    config = config_file.load(file if options.config or file.exists() else None)
    return places(options.ipc_name or config.ipc_name), file, config


# --- import ----------------------------------------------------------------------------------------------------------


def _import(options: argparse.Namespace, where: Places, file: Path, config: Config) -> int:
    unknown = [name for name in options.client or () if name not in CLIENT_NAMES]
    if unknown:
        print(
            f"{PROGRAM}: no client is called {one_line(unknown[0])}: choose from {', '.join(CLIENT_NAMES)}",
            file=sys.stderr,
        )
        return 2
    workspace = Path(options.workspace or ".").expanduser().resolve()
    directory = config.gateway.directory or Path(where.gateway_directory)
    found = files_of(options.client, workspace, file if options.config else None)
    from_project = bool(getattr(options, "project", False))
    take = None if not from_project else _take_shown if options.apply else _take_all
    planned = client_import.plan(found, directory, names=options.server, take_from_project=take)
    if from_project and options.apply:
        print()
    enabling = None if config.gateway.enabled else enable_change(file)
    print("\n".join(plan_lines(planned, directory, enabling)))
    if not from_project and any(each.workspace is not None for each in found):
        print(f"\nservers of the files of {_written(_short_path(workspace))} are only moved with --project")
    if not planned.moves:
        named = f" called {', '.join(map(one_line, options.server))}" if options.server else ""
        print(f"\nnothing to move: no client has an MCP server{named} that the gateway may take")
        return 1 if any(client_import.REFUSED in each.reasons for each in planned.left) else 0
    if not options.apply:
        print("\nnothing was changed: add --apply to do this")
        return 0
    if not options.yes and not agreed(f"\nMove {count(len(planned.moves), 'server')} behind the gateway?"):
        print("nothing was changed")
        return 1
    if enabling is not None:
        _write_config(enabling)
    receipt = client_import.carry_out(planned, Path(where.state_dir), datetime.now(UTC))
    print("\n".join(done_lines(planned, receipt, restarts=enabling is not None)))
    return 0


def _take_all(_file: ClientFile, _name: str, _config: DownstreamConfig) -> bool:
    """Take each server of a project, to show it."""
    return True


def _take_shown(file: ClientFile, name: str, config: DownstreamConfig) -> bool:
    """Show all that a server of a project starts and sends, and ask for it. `--yes` is no answer to this."""
    print()
    print(one_line(f"{_short_path(file.path)} belongs to a project, and has {name}: {_kind(config)}"))
    print("\n".join(setting_lines(config, of_project=True)))
    question = f"Let Intercom start {config.name} for every agent, in every project?"
    if config.transport is not Transport.STDIO:
        question = f"Let Intercom connect to {config.name} for every agent, in every project?"
    return agreed(question)


def files_of(names: Sequence[str] | None, workspace: Path, config: Path | None) -> list[ClientFile]:
    """Return the clients' files that exist, each with the entry of ours that may replace what is moved. `config` is the
    configuration file if it is not the default one."""
    home = Path(os.environ.get("HOME") or Path.home())
    found = []
    for each in client_files.locate(home, workspace, os.environ):
        if names and each.dialect.value not in names:
            continue
        command = init_clients.command(config, shared=each.workspace is not None)
        found.append(evolve(each, own_entry=CLIENTS[each.dialect.value].entry.stdio(command)))
    return found


def enable_change(file: Path) -> Change:
    """Return the change of the configuration file that enables the gateway. Everything else in it stays. Raises
    ConfigError if it cannot be edited."""
    try:
        before = file_replacement.read(file)
        document = tomlkit.parse(before or "")
        table = document.get("gateway")
        if isinstance(table, dict):
            table["enabled"] = True
            after = tomlkit.dumps(document)
        else:
            start = f"{before.rstrip()}\n\n" if before and before.strip() else ""
            after = f"{start}[gateway]\nenabled = true\n"
        if tomlkit.parse(after).unwrap().get("gateway", {}).get("enabled") is not True:
            raise ValueError
    except (OSError, ValueError, TOMLKitError):
        raise ConfigError(
            f"{file} cannot be edited: write enabled = true under [gateway] there, and try again"
        ) from None
    return Change(Path(os.path.realpath(file)), before, after)


def _write_config(change: Change) -> None:
    try:
        file_replacement.commit([change])
    except OSError as error:
        raise ConfigError(f"{change.file} cannot be written ({error.strerror}); nothing was changed") from None


def plan_lines(planned: ImportPlan, directory: Path, enabling: Change | None) -> list[str]:
    """Return what an import would do, for people: the servers, what stays, each file with its changes, and the role."""
    lines: list[str] = []
    if planned.moves:
        lines.append(f"{count(len(planned.moves), 'MCP server')} can be moved behind the gateway:")
    for move in planned.moves:
        lines += _move_lines(move)
    if planned.left:
        lines += ["", "these stay as they are:"]
        for left in planned.left:
            name = "the whole file" if left.name is None else left.name
            lines.append(one_line(f"  {name} in {_short_path(left.file)}: {'; '.join(left.reasons)}"))
    for rewrite in planned.rewrites:
        lines += [
            "",
            one_line(
                f"changes of {_short_path(rewrite.client.path)} (secrets are masked here, and long lines are cut):"
            ),
        ]
        lines += [f"  {clean(line)}" for line in rewrite.diff.splitlines()]
        lines += [one_line(f"  note: {note}") for note in rewrite.notes]
    new = [*planned.created, *([planned.roles] if planned.roles is not None else [])]
    if new:
        lines += ["", "new files, which only you can read:"]
        lines += [one_line(f"  {_short_path(each.file)}") for each in new]
    if planned.roles is not None:
        lines.append(f"  (the role {one_line(planned.role)} has all their tools, and every agent has this role)")
    if planned.to_add:
        wanted = ", ".join(f'"{each}"' for each in planned.to_add)
        text = f"the role {planned.role} in {_short_path(directory / 'roles.json')} does not have them: add {wanted}"
        lines += ["", one_line(text)]
    if enabling is not None and planned.moves:
        lines += ["", one_line(f"and enabled = true under [gateway] in {_short_path(enabling.file)}")]
    return lines


def _move_lines(move: Move) -> Iterator[str]:
    renamed = "" if move.config.name == move.name else f", here called {move.config.name}"
    title = CLIENTS[move.client.dialect.value].title
    owner = " of the project" if move.client.workspace is not None else ""
    yield one_line(
        f"  {move.name}{renamed}: {_kind(move.config)}; from {title}, {_short_path(move.client.path)}{owner}"
    )
    yield from setting_lines(move.config, of_project=move.client.workspace is not None)
    for note in move.notes:
        yield one_line(f"    note: {_noted(note)}")


def _kind(config: DownstreamConfig) -> str:
    return f"{config.transport}, {target_of(config)}"


def setting_lines(config: DownstreamConfig, *, of_project: bool) -> Iterator[str]:
    """Yield all that a downstream starts or sends, one line each, every character visible and nothing left out.

    The command and its arguments are never masked: whatever looks like a secret there may be what is run. Variables and
    headers are masked where they have secrets; of a project's entry, which may be hostile, only those that cannot
    decide what runs.
    """
    written = to_json(config)
    if config.transport is Transport.STDIO:
        yield f"    starts: {' '.join(map(_written, [config.command or '', *config.args]))}"
    else:
        address = Secrets.of([{"url": config.base_url}]).mask(config.base_url or "")
        yield f"    address: {_written(address)}"
    for name, value in config.env.items():
        shown = masked_variable(name, value) if of_project else masked_value(value)
        yield f"    variable {_written(name)}: {_written(shown)}"
    for name, value in config.headers.items():
        yield f"    header {_written(name)}: {_written(masked_value(value))}"
    for key, other in written.items():
        if key not in _SHOWN_OTHERWISE and other != [f"{config.name}.*"]:
            yield f"    {key}: {_written(_masked_setting(key, other))}"


def _masked_setting(key: str, value: object) -> object:
    """Mask the one secret that other settings may have."""
    if key == "oauth" and isinstance(value, Mapping):
        secret = value.get("clientSecret")
        hidden: JsonObject = {"clientSecret": MASKED} if isinstance(secret, str) and looks_secret(secret) else {}
        return {**value, **hidden}
    return value


def _written(value: object) -> str:
    """Write a value so that its end and each of its characters can be seen."""
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value):
        return value
    # Line ends and quotes have an escape in JSON.
    return visible_line(json.dumps(value, ensure_ascii=False))


def _noted(note: Note) -> str:
    return f"{note.key}: {note.text}" if note.key else note.text


def done_lines(planned: ImportPlan, receipt: Receipt, *, restarts: bool) -> list[str]:
    """Return what was done, and the commands that come next."""
    lines = ["", f"moved {count(len(planned.moves), 'server')}; the old texts of the files are in {receipt.directory}"]
    steps: list[str] = []
    if planned.to_add:
        wanted = ", ".join(f'"{each}"' for each in planned.to_add)
        directory = next((_short_path(each.file.parent) for each in planned.created), "the gateway's directory")
        steps.append(f"add {wanted} to the role {planned.role} in {directory}/roles.json: no agent may use it yet")
    targets = {name: target_of(move.config) for move in planned.moves for name in move.secrets}
    for name, question in planned.secrets.items():
        # The question is the words of the author of the file, so what gets the answer is said too.
        asked = f'   # {targets[name]} gets it, and asks: "{one_line(question)}"'
        steps.append(f"python -m keyring set {KEYCHAIN_SERVICE} {shlex.quote(name)}{asked}")
    variables = sorted(
        {
            reference.name
            for move in planned.moves
            for reference in references(move.config)
            if reference.source is Source.ENVIRONMENT and reference.name not in os.environ
        }
    )
    if variables:
        they = "they are" if len(variables) > 1 else "it is"
        steps.append(f"set {', '.join(variables)} where the server is started: {they} not set here")
    if restarts:
        steps.append(f"{PROGRAM} stop   # the next agent starts the server again, with the gateway")
    first = planned.moves[0].config.name
    steps += [
        "start your coding agents again: they read their servers when they start",
        "agent-intercom-ctl gateway list   # each should be ready",
        f"agent-intercom-ctl gateway test {shlex.quote(first)}   # if one is not, this says why",
    ]
    lines += [
        "",
        "next:",
        *(one_line(f"  {step}") for step in steps),
        "",
        f"{PROGRAM} gateway undo puts everything back",
    ]
    return lines


def _short_path(path: Path) -> str:
    home = os.environ.get("HOME")
    return f"~{str(path)[len(home) :]}" if home and str(path).startswith(f"{home}/") else str(path)


# --- undo ------------------------------------------------------------------------------------------------------------


def _undo(options: argparse.Namespace, where: Places) -> int:
    state_dir = Path(where.state_dir)
    found = import_receipt.receipts(state_dir)
    if not found:
        print("nothing to undo: no import is recorded")
        return 0
    receipt = found[-1]
    servers = [each.path[-1] for each in receipt.entries if each.downstream is not None]
    print(one_line(f"the last import, of {receipt.at[:16].replace('T', ' ')} UTC, moved {', '.join(servers)}"))
    for file in () if options.yes else receipt.files:
        does = "gets its servers back" if file.before is not None else "is deleted"
        print(one_line(f"  {_short_path(Path(file.path))} {does}"))
    if not options.yes and not agreed("\nPut everything back?"):
        print("nothing was changed")
        return 1
    report = import_receipt.undo(receipt.file)
    print("\n".join(undone_lines(report)))
    if len(found) > 1:
        print(f"{count(len(found) - 1, 'earlier import')} can be undone, too: run this again")
    return 1 if any(each.outcome is Outcome.LEFT for each in report.files) else 0


_DONE: Mapping[Outcome, str] = {
    Outcome.RESTORED: "is as it was before the import",
    Outcome.DELETED: "is deleted",
    Outcome.PUT_BACK: "has its servers back",
    Outcome.UNCHANGED: "was as before already",
    Outcome.LEFT: "was left as it is",
}


def undone_lines(report: UndoReport) -> list[str]:
    """Return what an undo did, and what a person has to do."""
    lines = []
    for each in report.files:
        lines.append(one_line(f"  {_short_path(each.path)} {_DONE[each.outcome]}"))
        lines += [one_line(f"    note: {note}") for note in each.notes]
    if not report.complete:
        lines.append(f"the old texts of the clients' files stay in {report.directory}")
    return [*lines, "start your coding agents again: they read their servers when they start"]
