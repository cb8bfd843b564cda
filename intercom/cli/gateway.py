"""Runs `agent-intercom gateway`: moves the MCP servers that clients have behind the gateway, and puts them back.

`sign-in` and `sign-out` are in `gateway_sign_in`, `secret` is in `gateway_secret`.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

import tomlkit
from attrs import evolve
from tomlkit.exceptions import TOMLKitError

from intercom.agents.clients import CLIENTS
from intercom.cli import gateway_secret, init_clients
from intercom.cli.ctl_text import agreed, at_words, clean, count, one_line
from intercom.cli.gateway_secret import SET
from intercom.cli.server_settings import record_or_explain
from intercom.gateway import client_files, client_import, import_receipt
from intercom.gateway.catalog import exposed_name
from intercom.gateway.client_entries import Dialect, Note
from intercom.gateway.client_file_diff import (
    MASKED,
    Secrets,
    looks_secret,
    masked_value,
    masked_variable,
    secret_arguments,
)
from intercom.gateway.client_files import ClientFile
from intercom.gateway.client_import import ImportPlan, Move, literal_secrets
from intercom.gateway.config_directory_check import missing_program
from intercom.gateway.downstream_config import DownstreamConfig, Transport, references
from intercom.gateway.downstream_file import to_json
from intercom.gateway.health_report import target_of
from intercom.gateway.import_receipt import Kind, Outcome, Receipt, Undone, UndoReport
from intercom.gateway.variables import Source
from intercom.local import config_file, daemon, file_replacement, own_files
from intercom.local.file_replacement import Change
from intercom.local.places import Places, places
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IntercomError
from intercom.model.json_types import JsonObject
from intercom.model.visible_text import visible_line

PROGRAM = "agent-intercom"
#: The clients whose files are read.
CLIENT_NAMES = tuple(dialect.value for dialect in Dialect)
#: The gateway's own files in the state directory.
STATE_FILES = ("gateway-calls.jsonl", "gateway-arguments.key")
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
        if options.action == "secret":
            return gateway_secret.run(options, where, config)
        # Imported lazily: HTTP and OAuth take half a second.
        from intercom.cli import gateway_sign_in

        return gateway_sign_in.run(options, where, config)
    except _Interrupted:
        print("nothing was changed")
        return 130
    except ConfigError as fault:
        print(f"{PROGRAM}: {one_line(fault.message)}", file=sys.stderr)
        return 2 if options.action.startswith("sign-") or options.action == "secret" else 1
    except IntercomError as fault:
        print(f"{PROGRAM}: {one_line(fault.message)}", file=sys.stderr)
        return 1


class _Interrupted(Exception):
    """A person has interrupted a question. Nothing was changed by then."""


def _agreed(question: str) -> bool:
    """Ask the person. Raises _Interrupted."""
    try:
        return agreed(question)
    except KeyboardInterrupt:
        print()
        raise _Interrupted from None


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
    if not options.workspace:
        workspace = project_of(workspace, Path(os.environ.get("HOME") or Path.home()))
    if not workspace.is_dir():
        print(f"{PROGRAM}: {one_line(str(workspace))} is no directory: give --workspace a project", file=sys.stderr)
        return 2
    directory = config.gateway.directory or Path(where.gateway_directory)
    from_project = bool(getattr(options, "project", False))
    found = files_of(options.client, workspace, file if options.config else None, from_project=from_project)
    take = None if not from_project else _take_shown if options.apply else _take_all
    planned = client_import.plan(found, directory, names=options.server, take_from_project=take)
    for name in options.server or ():
        if name not in planned.known:
            print(f"{PROGRAM}: {_unknown_server(name, planned.known)}", file=sys.stderr)
            return 2
    if from_project and options.apply:
        print()
    enabling = None if config.gateway.enabled else enable_change(file)
    lines = plan_lines(planned, directory, enabling)
    if not from_project and any(each.workspace is not None for each in found):
        said = f"servers of the files of {_written(_short_path(workspace))} are only moved with --project"
        lines += ["", at_words(said)]
    unrecorded = _unrecorded(where)
    if planned.moves and unrecorded:
        said = f"and {unrecorded} are recorded as yours, because a server that an agent starts uses no others"
        lines += ["", at_words(said)]
    if not planned.moves:
        named = f" called {', '.join(map(one_line, options.server))}" if options.server else ""
        why = f"no client has an MCP server{named} that the gateway may take"
        if not from_project and any(each.workspace is not None for each in found):
            why = f"no client has another MCP server{named}; those of the project's files need --project"
        lines += ["", at_words(f"nothing to move: {why}")]
    print("\n".join(lines).lstrip("\n"))
    if not planned.moves:
        return 1 if any(client_import.REFUSED in each.reasons for each in planned.left) else 0
    if not options.apply:
        print("\nnothing was changed: add --apply to do this")
        return 0
    if not options.yes and not _agreed(f"\nMove {count(len(planned.moves), 'server')} behind the gateway?"):
        print("nothing was changed")
        return 1
    # A server that an agent starts would not use what this writes.
    if refused := record_or_explain(where, config_file.database_path(config, where)):
        print(
            f"{PROGRAM}: {one_line(refused)}, so it would have no gateway; nothing was changed: run this in a terminal"
            " of your own, where no agent runs",
            file=sys.stderr,
        )
        return 1
    earlier = len(import_receipt.receipts(Path(where.state_dir)))
    receipt = client_import.carry_out(planned, Path(where.state_dir), datetime.now(UTC), enabling)
    print("\n".join(done_lines(planned, receipt, restarts=enabling is not None, earlier=earlier)))
    if options.config and not own_files.is_own_config(str(file), own_files.own_directories()[0]):
        print(
            f"\n{one_line(str(file))} is not in your own directories, so a server that an agent starts takes no gateway"
            f" from it: start the server with {PROGRAM} serve --config {shlex.quote(str(file))}"
        )
    return 0


def project_of(directory: Path, home: Path) -> Path:
    """Return the project that a directory is in: the nearest directory upwards that has a client's file for projects,
    or else is the root of a repository. It is the directory itself if there is none below the home directory."""
    for each in (directory, *directory.parents):
        if each == home or each == each.parent:
            break
        if any((each / name).is_file() for name in client_files.OF_PROJECT) or (each / ".git").exists():
            return each
    return directory


def _unknown_server(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known) or 'none'}"
    return one_line(f"no client has an MCP server called {name}: {hint}")


def _unrecorded(where: Places) -> str:
    """Name the directories that would have to be recorded as the user's own; empty if there are none."""
    own = own_files.own_directories()[0]
    directories = (os.path.dirname(where.config_file), where.state_dir)
    named = [_short_path(Path(each)) for each in directories if not own_files.is_own(each, own)]
    return one_line(" and ".join(named))


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
    return _agreed(question)


def files_of(
    names: Sequence[str] | None, workspace: Path, config: Path | None, *, from_project: bool = True
) -> list[ClientFile]:
    """Return the clients' files that exist, each with the entry of ours that may replace what is moved. `config` is the
    configuration file if it is not the default one. Nothing is moved from the project's files unless `from_project`.
    Raises ConfigError if a shared file cannot name `config`."""
    home = Path(os.environ.get("HOME") or Path.home())
    found = []
    for each in client_files.locate(home, workspace, os.environ):
        if names and each.dialect.value not in names:
            continue
        if each.workspace is not None and not from_project:
            found.append(each)
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


def plan_lines(planned: ImportPlan, directory: Path, enabling: Change | None) -> list[str]:
    """Return what an import would do, for people: the servers, what stays, each file with its changes, and the role."""
    lines: list[str] = []
    if planned.moves:
        lines.append(f"{count(len(planned.moves), 'MCP server')} can be moved behind the gateway:")
    shared = _shared_notes(planned.moves)
    for move in planned.moves:
        lines += _move_lines(move, shared)
    for note, moves in shared.items():
        lines.append(at_words(f"note about {', '.join(each.name for each in moves)}: {_noted(note)}", "  "))
    if planned.left:
        lines += ["", "these stay as they are:"]
        for left in planned.left:
            name = "the whole file" if left.name is None else left.name
            lines.append(at_words(f"{name} in {_short_path(left.file)}: {'; '.join(left.reasons)}", "  "))
    for rewrite in planned.rewrites:
        lines += [
            "",
            one_line(f"changes of {_short_path(rewrite.client.path)} (secrets are masked, and long lines are cut):"),
        ]
        lines += [f"  {clean(line)}" for line in rewrite.diff.splitlines()]
        lines += [at_words(f"note: {note}", "  ") for note in rewrite.notes]
    new = [*planned.created, *([planned.roles] if planned.roles is not None else [])]
    if new:
        lines += ["", "new files, which only you can read:"]
        lines += [one_line(f"  {_short_path(each.file)}") for each in new]
    if planned.roles is not None:
        lines.append(f"  (the role {one_line(planned.role)} has all their tools, and every agent has this role)")
    if planned.to_add:
        wanted = ", ".join(f'"{each}"' for each in planned.to_add)
        text = f"the role {planned.role} in {_short_path(directory / 'roles.json')} does not have them: add {wanted}"
        lines += ["", at_words(text)]
    if enabling is not None and planned.moves:
        lines += ["", one_line(f"and enabled = true under [gateway] in {_short_path(enabling.file)}")]
    return lines


def _shared_notes(moves: Sequence[Move]) -> Mapping[Note, Sequence[Move]]:
    """Return the notes that are about several servers: they are said once."""
    about: dict[Note, list[Move]] = {}
    for move in moves:
        for note in move.notes:
            if note.text != client_import.LITERAL:
                about.setdefault(note, []).append(move)
    return {note: found for note, found in about.items() if len(found) > 1}


def _move_lines(move: Move, shared: Collection[Note] = ()) -> Iterator[str]:
    renamed = "" if move.config.name == move.name else f", here called {move.config.name}"
    title = CLIENTS[move.client.dialect.value].title
    owner = " of the project" if move.client.workspace is not None else ""
    yield one_line(
        f"  {move.name}{renamed}: {_kind(move.config)}; from {title}, {_short_path(move.client.path)}{owner}"
    )
    yield from setting_lines(move.config, of_project=move.client.workspace is not None)
    if (missing := missing_program(move.config, os.environ)) is not None:
        yield at_words(f"missing: {missing}", "    ")
    for note in move.notes:
        if note not in shared:
            yield at_words(f"note: {_noted(note)}", "    ")


def _kind(config: DownstreamConfig) -> str:
    return f"{config.transport}, {target_of(config)}"


def setting_lines(config: DownstreamConfig, *, of_project: bool) -> Iterator[str]:
    """Yield all that a downstream starts or sends, one line each, every character visible and nothing left out.

    Variables and headers are masked where they have secrets. So is a word after an option such as `--api-key` in the
    user's own entries. A project's entry may be hostile: whatever looks like a secret in its command may be what is
    run, so that is never masked, and only those variables are that cannot decide what runs.
    """
    written = to_json(config)
    if config.transport is Transport.STDIO:
        args = list(config.args) if of_project else _masked_arguments(config.args)
        yield f"    starts: {' '.join(map(_written, [config.command or '', *args]))}"
    else:
        address = Secrets.of([{"url": config.base_url}]).mask(config.base_url or "")
        yield f"    address: {_written(address)}"
    for name, value in config.env.items():
        shown = masked_variable(name, value) if of_project else masked_value(name, value)
        yield f"    variable {_written(name)}: {_written(shown)}"
    for name, value in config.headers.items():
        yield f"    header {_written(name)}: {_written(masked_value(name, value))}"
    for key, other in written.items():
        if key not in _SHOWN_OTHERWISE and other != [f"{config.name}.*"]:
            yield f"    {key}: {_written(_masked_setting(key, other))}"


def _masked_arguments(args: Sequence[str]) -> list[str]:
    """Mask the secrets in arguments. What has a blank may be a command, and is shown."""
    secrets = [each for each in secret_arguments(args) if not re.search(r"\s", each)]
    shown = list(args)
    for secret in sorted(secrets, key=len, reverse=True):
        shown = [each.replace(secret, MASKED) for each in shown]
    return shown


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


def done_lines(planned: ImportPlan, receipt: Receipt, *, restarts: bool, earlier: int = 0) -> list[str]:
    """Return what was done, and the commands that come next. `earlier` is how many imports there were before."""
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
        steps.append(f"{SET} {shlex.quote(name)}{asked}")
    steps += _secret_steps(planned)
    if restarts:
        steps.append(f"{PROGRAM} stop   # the next agent starts the server again, with the gateway")
    steps += _renamed_tools(planned)
    first = planned.moves[0].config.name
    steps += [
        "start your coding agents again: they read their servers when they start",
        "agent-intercom-ctl gateway list   # each should be ready",
        f"agent-intercom-ctl gateway test {shlex.quote(first)}   # if one is not, this says why",
    ]
    lines += [
        "",
        "next:",
        *(at_words(step, "  ") for step in steps),
        "",
        f"{PROGRAM} gateway undo puts {'this import' if earlier else 'everything'} back"
        + (f"; run it again for the {count(earlier, 'import')} before it" if earlier else ""),
    ]
    return lines


def _renamed_tools(planned: ImportPlan) -> Iterator[str]:
    """Yield what to do about clients' own rules, which name tools as they were called before."""
    move = planned.moves[0]
    yield (
        f"permission rules of your clients, such as mcp__{move.name}__*, do not match any more: agents see a tool of"
        f" {move.config.name} as {exposed_name(move.config.name, 'TOOL')} of {client_import.OWN_NAME}, which Claude"
        f" Code calls mcp__{client_import.OWN_NAME}__{exposed_name(move.config.name, 'TOOL')}; roles say who may call"
        " it"
    )


def _secret_steps(planned: ImportPlan) -> Iterator[str]:
    """Yield what to do about variables that a server would not have, and about secrets that are in files."""
    # An agent's environment does not reach the server.
    environ = daemon.for_server(os.environ)
    unset = []
    for move in planned.moves:
        name = move.config.name
        file = _short_path(move.file) if move.file is not None else f"the file of {name}"
        for reference in references(move.config):
            if reference.source is not Source.ENVIRONMENT or reference.name in environ:
                continue
            unset.append(reference.name)
            secret = f"{name}/{reference.name}"
            yield (
                f"{SET} {shlex.quote(secret)}   # then write ${{keychain:{secret}}} for ${{{reference.name}}} in {file}"
            )
        has_argument = any(note.key == "args" and note.text == client_import.LITERAL for note in move.notes)
        for variable in (*literal_secrets(move.config), *(["an argument"] if has_argument else [])):
            secret = f"{name}/{_secret_name(variable)}"
            yield (
                f"{SET} {shlex.quote(secret)}   # {variable} in {file} may be a secret: leave it there, which only you"
                f" can read, or store it so and write ${{keychain:{secret}}} for it"
            )
    if unset:
        yield (
            f"or start the server yourself, where {', '.join(dict.fromkeys(unset))} is set: {PROGRAM} serve"
            "   # one that an agent starts does not get it"
        )


def _secret_name(variable: str) -> str:
    """Return a variable's or a header's name as one in the keychain."""
    return re.sub(r"[^A-Za-z0-9_.@-]", "-", variable) or "secret"


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
    previews = {each.file: import_receipt.preview(each.file) for each in found}
    # What cannot be undone, because it was changed since, must not stop an earlier import from being undone.
    receipt = next((each for each in reversed(found) if _does_something(previews[each.file])), None)
    if receipt is None:
        for each in previews[found[-1].file].files:
            print("\n".join(_file_lines(each, _DOES)))
        print("there is nothing more to put back; delete what you do not need of the files that are left as they are")
        return 0
    servers = [each.path[-1] for each in receipt.entries if each.downstream is not None]
    print(one_line(f"the last import, of {receipt.at[:16].replace('T', ' ')} UTC, moved {', '.join(servers)}"))
    if not options.yes:
        for each in previews[receipt.file].files:
            print("\n".join(_file_lines(each, _DOES)))
    question = "Put everything back?"
    if (before := found.index(receipt)) > 0:
        earlier = count(before, "earlier import")
        print(f"only this import is undone now; {earlier} can be undone after it: run this again")
        question = "Put this import back?"
    if not options.yes and not _agreed(f"\n{question}"):
        print("nothing was changed")
        return 1
    report = import_receipt.undo(receipt.file)
    print("\n".join(undone_lines(report, _record_files(state_dir), _signed_in(where, receipt))))
    return 1 if any(each.outcome is Outcome.LEFT for each in report.files) else 0


def _does_something(report: UndoReport) -> bool:
    """Whether an undo would change a file, or at least forget an import of which nothing is left."""
    return report.complete or any(each.outcome not in (Outcome.UNCHANGED, Outcome.LEFT) for each in report.files)


def _record_files(state_dir: Path) -> list[Path]:
    """Return the files of the gateway that an undo leaves."""
    return [each for each in map(state_dir.joinpath, STATE_FILES) if os.path.lexists(each)]


def _signed_in(where: Places, receipt: Receipt) -> list[str]:
    """Return the downstreams of an import whose file is gone, and whose sign-in is stored."""
    files = [Path(each.path) for each in receipt.files if each.kind is Kind.DOWNSTREAM]
    return [each.stem for each in files if not each.exists() and Path(where.gateway_credentials, each.name).exists()]


_DONE: Mapping[Outcome, str] = {
    Outcome.RESTORED: "is as it was before the import",
    Outcome.DELETED: "is deleted",
    Outcome.PUT_BACK: "has its servers back",
    Outcome.UNCHANGED: "was as before already",
    Outcome.LEFT: "was left as it is",
}
_DOES: Mapping[Outcome, str] = {
    Outcome.RESTORED: "gets its old text back",
    Outcome.DELETED: "is deleted",
    Outcome.PUT_BACK: "gets its servers back",
    Outcome.UNCHANGED: "is as before already",
    Outcome.LEFT: "is left as it is",
}


def _file_lines(each: Undone, said: Mapping[Outcome, str]) -> list[str]:
    what = said[each.outcome]
    if each.kind is Kind.CONFIG and each.outcome is Outcome.PUT_BACK:
        what = f"{what.partition(' ')[0]} the gateway's enabled back"
    lines = [one_line(f"  {_short_path(each.path)} {what}")]
    return [*lines, *(one_line(f"    note: {note}") for note in each.notes)]


def undone_lines(report: UndoReport, kept: Sequence[Path], signed_in: Sequence[str]) -> list[str]:
    """Return what an undo did, and what a person has to do. `kept` are files of the gateway that stay, and `signed_in`
    are downstreams whose sign-in stays."""
    lines = [line for each in report.files for line in _file_lines(each, _DONE)]
    if not report.complete:
        lines.append(f"the old texts of the clients' files stay in {report.directory}")
    if kept:
        listed = ", ".join(_short_path(each) for each in kept)
        lines.append(one_line(f"these stay, too, because they belong to the record of calls: {listed}"))
    lines += [f"{PROGRAM} gateway sign-out {shlex.quote(each)}   # its token stays until then" for each in signed_in]
    if any(each.kind is Kind.CONFIG and each.outcome in _DISABLES for each in report.files):
        lines.append(f"{PROGRAM} stop   # the next agent starts the server again, without the gateway")
    return [*lines, "start your coding agents again: they read their servers when they start"]


_DISABLES: Collection[Outcome] = (Outcome.RESTORED, Outcome.DELETED, Outcome.PUT_BACK)
