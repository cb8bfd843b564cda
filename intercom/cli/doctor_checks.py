"""What doctor finds about agents, the gateway, hooks, HTTP, operator keys, clients and Slack."""

from __future__ import annotations

import http.client
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from actors import Info
from intercom.agents.clients import CLIENTS, longest_call_wait
from intercom.agents.clients.client import Client
from intercom.cli import client_timeout_probe
from intercom.cli.ctl_table import age
from intercom.cli.ctl_text import count
from intercom.cli.init_clients import entry_of, hooks_file, names_us
from intercom.cli.init_files import Unmergeable, glance, parse
from intercom.local import daemon, operator_keys, own_files, wire
from intercom.local.places import SYSTEM_OPERATOR_KEYS, Places, peek
from intercom.model.chat_status import ChatStatus, ConnectionState
from intercom.model.config import Config
from intercom.model.errors import ConfigError, IntercomError, IpcError
from intercom.model.json_types import Json
from intercom.operators.commands.json_forms import read
from intercom.operators.ctl.client import NoServer, Refusal, request
from intercom.sessions.processes.agent_process import find_program
from intercom.workspace.command_runner import environment


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAULT = "fault"


@frozen
class Finding:
    """What a check found about `subject`. `advice` says what to do if `text` does not."""

    subject: str
    state: State
    text: str
    advice: str = ""


def examine_agents(config: Config, project: Path) -> Finding:
    """Look for `host_cli` as a server with this environment would. Without one, suggest a client that is connected in
    `project`."""
    subject = "agents to start"
    if config.host_cli is None:
        known = (each.probe.program for each in CLIENTS.values() if each.probe is not None and names_us(each, project))
        program = next(known, None)
        advice = "to let ctl, Slack and the page start them, set host_cli in the configuration"
        advice = "" if program is None else f'{advice} (host_cli = "{program}")'
        return Finding(subject, State.OK, "no host_cli is set: agents are started by hand only", advice)
    try:
        program = find_program(config.host_cli, environment(os.environ))
    except ConfigError as fault:
        return Finding(subject, State.FAULT, str(fault))
    missing = [name for name in config.spawn.environment if name not in os.environ]
    if missing:
        text = f"{program}; not set here, though [spawn] environment passes it on: {', '.join(missing)}"
        return Finding(subject, State.WARN, text, "set it where the server is started, unless it is set there already")
    return Finding(subject, State.OK, " ".join((program, *config.host_cli_args)))


def examine_hooks(project: Path) -> Finding:
    """Check which clients that know Intercom have its permission hooks. This cannot see whether a client has its hooks
    turned on, or trusts them."""
    held, partly, free, missing, others = [], [], [], [], []
    for client in CLIENTS.values():
        hooks = hooks_file(client, project)
        if hooks is None:
            if names_us(client, project):
                others.append(client.title)
            continue
        found = hooks.installed()
        if set(found) >= set(hooks.hooks.asks):
            held.append(client.title)
        elif found:
            partly.append(f"{client.title} has only {', '.join(found)}")
            missing.append(client.name)
        elif names_us(client, project):
            free.append(client.title)
            missing.append(client.name)
    options = "".join(f" --client {name}" for name in missing)
    advice = f"agent-intercom init --write --hooks{options}, in the project"
    if partly:
        return Finding("hooks", State.WARN, f"hooks are missing: {'; '.join(partly)}", advice)
    if free:
        text = f"{', '.join(free)} may write and run without asking: no permission hook is set up"
        return Finding("hooks", State.WARN, text, advice)
    said = [f"{', '.join(held)} must ask"] if held else []
    said += [f"Intercom has none for {', '.join(others)}"] if others else []
    return Finding("hooks", State.OK, "; ".join(said) or "none installed, no client connected")


def examine_own_tools(project: Path) -> Iterator[Finding]:
    """Warn of each connected client without hooks of ours whose own tools write and run without asking."""
    for client in CLIENTS.values():
        own, file = client.own_tools, client.entry.file.file(project)
        if own is None or not names_us(client, project):
            continue
        try:
            are_restricted = own.are_restricted(parse(glance(file), toml=client.entry.file.is_toml))
        except Unmergeable:
            # The check of its entry reports the file.
            continue
        if not are_restricted:
            text = f"{client.title}'s own tools write and run without asking: Intercom sees only what the agent brings"
            advice = f"let agent-intercom init --write --client {client.name} add rules in your terminal"
            yield Finding("own tools", State.WARN, text, f"{advice}, or put {json.dumps(own.deny)[1:-1]} into {file}")


def examine_gateway(config: Config, where: Places) -> Iterator[Finding]:
    """Check the files of the gateway, and what they name. Yields nothing if it is off and has no files."""
    # Imported lazily: few servers have a gateway.
    from intercom.gateway.config_directory_check import examine_directory, examine_sign_ins, sign_in_text
    from intercom.gateway.credentials import CredentialStore
    from intercom.model.gateway_view import LintFinding, LintLevel

    directory = config.gateway.directory or Path(where.gateway_directory)
    settings, found = examine_directory(directory, daemon.for_server(os.environ))
    if not config.gateway.enabled:
        if settings.configs:
            text = f"{count(len(settings.configs), 'MCP server')} in {directory}, but the gateway is off"
            advice = (
                "delete their files if you do not need them any more; or write enabled = true under [gateway] in the"
                " configuration, and run agent-intercom stop"
            )
            yield Finding("gateway", State.WARN, text, advice)
        return
    if not settings.configs and not found:
        text = f"it is on, and no MCP server is in {directory}"
        yield Finding("gateway", State.WARN, text, "agent-intercom gateway import moves those that your agents have")
        return
    if unrecorded := _unrecorded_directories(where):
        text = f"a server that an agent starts has no gateway: {unrecorded} not recorded as yours"
        yield Finding("gateway", State.FAULT, text, _RECORD)
        return
    unsigned = examine_sign_ins(settings, CredentialStore(Path(where.gateway_credentials)), time.time())
    if (known := _unsigned_in_server(where)) is not None:
        # It has asked them. A file that cannot be used is a fault all the same.
        faults = [each for each in unsigned if each.level is LintLevel.FAULT]
        unsigned = (*faults, *(LintFinding(LintLevel.WARNING, sign_in_text(name)) for name in known))
    found = (*found, *unsigned)
    for each in found:
        state = State.FAULT if each.level is LintLevel.FAULT else State.WARN
        yield Finding("gateway", state, each.text)
    if all(each.level is not LintLevel.FAULT for each in found):
        text = (
            f"{count(len(settings.configs), 'MCP server')}, {count(len(settings.roles.roles), 'role')} in {directory}"
        )
        yield Finding("gateway", State.OK, text)


def _unsigned_in_server(where: Places) -> list[str] | None:
    """Return the downstreams that need a sign-in, as a running server knows them; None if none can be asked."""
    try:
        known = request(where, "gateway-list", {}, patience=0.0)
    except (NoServer, Refusal, OSError):
        return None
    return [str(each["name"]) for each in known["downstreams"] if each["needs_sign_in"]]


#: What records the directories of this environment as the user's own.
_RECORD = "agent-intercom init --write in a terminal of your own, then agent-intercom stop"


def examine_own_directories(where: Places) -> Iterator[Finding]:
    """Warn of a running server's directories that are not recorded as the user's own. Yields nothing if they are."""
    if _runs(where) and (unrecorded := _unrecorded_directories(where)):
        text = (
            f"{unrecorded} not recorded as yours in {own_files.directories_file()}: a server that an agent starts takes"
            " no operators' settings there"
        )
        yield Finding("own directories", State.WARN, text, _RECORD)


def _unrecorded_directories(where: Places) -> str:
    """Name the directories from which a server that an agent starts takes no operators' settings, with "is" or "are";
    empty if none."""
    own = own_files.own_directories()[0]
    directories = (os.path.dirname(where.config_file), where.state_dir)
    found = [each for each in directories if not own_files.is_own(each, own)]
    return f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'}" if found else ""


#: Seconds that a running server has to answer.
_PATIENCE = 2.0


def examine_http(config: Config, where: Places) -> Iterator[Finding]:
    """Check the port and the token. Yields nothing if HTTP is off."""
    if config.http_port is None:
        return
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.http_host, config.http_host)
    port = config.http_port or _told(where.http_address_file)
    yield _port(host, port, runs=_runs(where))
    if config.http_token_required and os.path.lexists(where.http_token_file):
        yield _http_token(where.http_token_file)


def _port(host: str, port: int, *, runs: bool) -> Finding:
    if not port:
        return Finding("http", State.OK, "a server that runs will take any free port")
    at = f"{f'[{host}]' if ':' in host else host}:{port}"
    listens = _listens(host, port)
    if listens is None and runs:
        advice = "its log says why; if the configuration has changed since it started, start it again"
        return Finding("http", State.FAULT, f"a server runs, but nothing listens at {at}", advice)
    if listens is None:
        text = f"agents will be served at http://{at}/mcp by a server that runs; they start none"
        return Finding("http", State.OK, text)
    if not listens or not runs:
        advice = "stop that program, or set another http_port and write the clients' entries again (init --http)"
        return Finding("http", State.FAULT, f"another program listens at {at}", advice)
    return Finding("http", State.OK, f"agents are served at http://{at}/mcp")


def _listens(host: str, port: int) -> bool | None:
    """Tell whether a server of ours listens there: False for another program, None if nothing listens."""
    line = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    try:
        line.request("GET", "/doctor")
        said = json.loads(line.getresponse().read(10_000))
        return "error_code" in said["error"]["data"]
    except ConnectionRefusedError:
        return None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return False
    finally:
        line.close()


def _runs(where: Places) -> bool:
    try:
        wire.connect(where.ctl_socket, timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def _told(file: str) -> int:
    """Return the port that a server has recorded, or 0 if there is none."""
    try:
        with open(file, encoding="ascii") as told:
            return int(told.read(100).strip().rpartition(":")[2])
    except (OSError, ValueError):
        return 0


def _http_token(path: str) -> Finding:
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        advice = f"rm {path}; the next server makes a new one, which the clients need"
        return Finding("http token", State.FAULT, f"{path} is not a file of yours alone", advice)
    return Finding("http token", State.OK, path)


NO_KEY = (
    "none: a decision counts when it comes from a terminal without an agent. A process of your account that types"
    " into such a terminal (tmux), or writes the database, can decide in your place"
)


def examine_keys(where: Places, system_file: str = SYSTEM_OPERATOR_KEYS, owner: int = 0) -> Finding:
    """Check the keys, and ask a running server which of them count."""
    finding = partial(Finding, "operator key")
    try:
        listed = operator_keys.read_public(Path(where.operator_keys_file))
        private = operator_keys.private_keys(where)
    except ConfigError as fault:
        return finding(State.FAULT, fault.message)
    try:
        known = request(where, "keys", {}, patience=0.0)
    except (NoServer, Refusal, OSError):
        known = None
    if (unsafe := _unsafe(system_file, owner)) is not None:
        return Finding(
            "operator key", State.FAULT, unsafe, f"sudo chown root: {system_file}; sudo chmod 0644 {system_file}"
        )
    if known is None:
        if not listed and not private:
            return finding(State.WARN, NO_KEY, "agent-intercom-ctl key create")
        return Finding(
            "operator key", State.OK, f"{count(len(listed), 'key')} listed; no server runs that could say which count"
        )
    counting = [each for each in known["keys"] if each["counts"]]
    others = [f"{each['key_id']}: {each['why']}" for each in known["keys"] if not each["counts"]]
    new = [each["key_id"] for each in known["keys"] if each.get("can_be_first")]
    if len(known["keys"]) == 1 and new and new[0] in listed.keys() & {each.key.id for each in private}:
        # It was made while no server ran, as init does. Of several keys, another program may have put one there.
        text = f"decisions have to be signed; the first one that you sign enrols your key {new[0]}"
        return finding(State.OK, text, "to enrol it now: agent-intercom-ctl key enrol")
    if known["required"] and not known["keys"] and (unrecorded := _unrecorded_directories(where)):
        # A server that an agent's client started here asks for the keys in the user's own directories.
        listed_in = own_files.directories_file()
        text = f"decisions have to be signed, and no key counts: {unrecorded} not recorded as yours in {listed_in}"
        return finding(State.FAULT, text, _RECORD)
    if others or (known["required"] and not counting):
        text = "; ".join(others) or "decisions have to be signed, and no key counts"
        return Finding(
            "operator key", State.FAULT, text, "see docs/how-to/operator-key.md, and agent-intercom-ctl key list"
        )
    if not counting:
        return finding(State.WARN, NO_KEY, "agent-intercom-ctl key create")
    if unsigned := known.get("unsigned_settings"):
        # A server of an older version gives both in one sentence only.
        text = str(known.get("unsigned_settings_text") or unsigned)
        return finding(State.WARN, text, known.get("unsigned_settings_advice") or "")
    if unsigned := known.get("unsigned_policies"):
        return finding(State.WARN, str(unsigned), "agent-intercom stop, and agent-intercom-ctl policy list afterwards")
    anchor = "root's list" if os.path.exists(system_file) else "your list"
    ids = ", ".join(each["key_id"] for each in counting)
    text = f"decisions are signed; {count(len(counting), 'key')} in {anchor}: {ids}"
    if os.path.exists(system_file):
        return finding(State.OK, text)
    return finding(
        State.OK,
        text,
        f"let only root change it: sudo install -D -o root -g root -m 0644 {where.operator_keys_file} {system_file}",
    )


def _unsafe(system_file: str, owner: int) -> str | None:
    """Say why root's key list is not safe, so that no key counts; None if it is safe or missing."""
    try:
        found = [os.stat(system_file, follow_symlinks=False), os.stat(os.path.dirname(system_file))]
    except OSError:
        return None
    if any(each.st_uid != owner or each.st_mode & 0o022 for each in found) or not stat.S_ISREG(found[0].st_mode):
        return f"{system_file} and its directory must be root's, and writable by nobody else: no key counts"
    return None


def examine_client(name: str, config: Config, project: Path, seconds: float | None) -> list[Finding]:
    """Check what a client's file says. With `seconds`, also run it to see how long it lets a call wait, at most so
    long."""
    client = CLIENTS[name]
    entry = entry_of(client, project)
    findings = [_settings(client, config, entry, project)]
    if seconds is not None:
        findings.append(_probe(client, config, entry, seconds))
    return findings


def judged(patience: float | None, limit: float | None) -> tuple[State, str, str]:
    """Judge a client's limit (None: unknown) against our longest wait (None: unlimited), in seconds: state, text,
    advice."""
    waits = "as long as it takes" if patience is None else f"at most {patience:g} s"
    if limit is None:
        return State.OK, f"Intercom lets a call wait {waits}", ""
    cut = f"the client ends a call after {limit:g} s, and Intercom lets one wait {waits}"
    if patience is not None and patience < limit:
        return State.OK, cut, ""
    return State.WARN, cut, f"set its call_wait_seconds below {limit:g}, under [clients] in the configuration"


def _settings(client: Client, config: Config, entry: Mapping[str, Json], project: Path) -> Finding:
    if not entry:
        advice = f"agent-intercom init --write --client {client.name}"
        return Finding(client.name, State.WARN, f"does not know Intercom ({client.entry.file.file(project)})", advice)
    state, text, advice = judged(longest_call_wait(client, config), _limit(client, entry))
    return Finding(client.name, state, f"{text} ({client.entry.file.file(project)})", advice)


def _limit(client: Client, entry: Mapping[str, Json]) -> float | None:
    """Return the client's own limit for a call in seconds; None if it is unknown."""
    limit = client.entry.timeout
    if limit is None:
        return None
    value = entry.get(limit.key)
    return value * limit.unit if isinstance(value, int | float) and not isinstance(value, bool) else limit.default


def _probe(client: Client, config: Config, entry: Mapping[str, Json], seconds: float) -> Finding:
    try:
        found = client_timeout_probe.run(client, entry, seconds)
    except (client_timeout_probe.ProbeFailed, OSError) as fault:
        advice = "docs/reference/clients.md says what is known about it"
        return Finding("probe", State.WARN, f"not probed: {fault}", advice)
    reports = "with" if found.progress else "without"
    if found.how == "held":
        text = f"a call of {found.seconds:.0f} s {reports} reports of progress was not ended by the client"
        return Finding("probe", State.OK, text)
    state, _, advice = judged(longest_call_wait(client, config), round(found.seconds, 1))
    said = "ended it by cancelling" if found.how == "cancelled" else "closed the connection"
    return Finding("probe", state, f"after {found.seconds:.1f} s {reports} reports the client {said}", advice)


#: Seconds for each request to Slack.
_SLACK_PATIENCE = 10.0

#: The actor that a server has if it uses Slack.
_CONNECTION = "slack/connection"


def examine_slack(config: Config, where: Places, config_file: str) -> Iterator[Finding]:
    """Check what Slack needs. Without a channel in the configuration, neither Slack nor the keychain is asked."""
    if config.slack.channel_id is None:
        if config.slack.workspace_channels:
            text = "[slack] workspace_channels is set, and without channel_id there is no Slack"
            yield Finding("slack", State.FAULT, text, f"write channel_id under [slack] in {config_file}")
        else:
            yield _without_channel(where, config_file)
        return
    from intercom.operators.slack import credentials
    from intercom.operators.slack import settings as slack_settings
    from intercom.operators.slack.credentials import Source

    file = credentials.file_in(where.state_dir)
    looked = credentials.look(os.environ, file=file, patience=_SLACK_PATIENCE)
    parts = _running(where)
    in_slack = parts is not None and _CONNECTION in parts
    option = "" if looked.has_keychain else " --file, as this machine has no keychain"
    for fault in looked.unread:
        yield Finding("slack tokens", State.FAULT if looked.missing and not in_slack else State.WARN, fault)
    if in_slack:
        yield from _status(where)
    if looked.missing and in_slack:
        yield _tokens_elsewhere()
        return
    if looked.missing:
        names = " and ".join(f"the {kind.title}" for kind in looked.missing)
        text = f"{names} {'was' if len(looked.missing) == 1 else 'were'} not found: a server starts without Slack"
        yield Finding("slack tokens", State.FAULT, text, f"agent-intercom slack login{option}")
        return
    try:
        settled = slack_settings.settle(config, os.environ, file=file, patience=_SLACK_PATIENCE)
    except IntercomError as fault:
        # The running server has found better ones.
        state = State.WARN if in_slack else State.FAULT
        yield Finding("slack tokens", state, str(fault), "agent-intercom slack login")
        return
    assert settled is not None, "a channel is configured"
    sources = {credential.source for credential in looked.found.values() if credential.kind.needed}
    yield from _tokens(sources == {Source.FILE}, Source.ENVIRONMENT in sources, in_slack, str(file))
    if parts is not None and not in_slack:
        text = "the running server is not in Slack: it started before this was set up, or did not find the tokens"
        # The next server that an agent starts would not find tokens that only this environment has.
        in_environment = Source.ENVIRONMENT in sources
        do = "serve --replace, with this environment" if in_environment else "stop (or restart your service)"
        advice = f"agent-intercom {do}; nothing pending is lost"
        yield Finding("slack server", State.WARN, text, advice)
    if not in_slack:
        yield from _members(config_file)
    yield from _asked(settled, in_slack)
    yield from _unsigned_decisions(config, where)


def _tokens_elsewhere() -> Finding:
    """Return the finding of a shell without the tokens that the running server has."""
    text = (
        "the running server has its own tokens. They were not all found from this shell, which needs none while that"
        " server runs; so nothing was asked of Slack from here (agent-intercom-ctl slack shows the server's status)"
    )
    return Finding("slack tokens", State.OK, text)


def _unsigned_decisions(config: Config, where: Places) -> Iterator[Finding]:
    """Warn that the server refuses answers from Slack, because there is a key and it has not signed the setting."""
    try:
        keys = operator_keys.read_public(Path(where.operator_keys_file))
        signed = operator_keys.read(Path(where.signed_settings_file))
    except ConfigError:
        # The check of the keys reports a damaged file.
        return
    beyond = operator_keys.Allowed.by(config).beyond(operator_keys.NOTHING if signed is None else signed.allowed)
    if keys and (unsigned := [line for line in beyond if "slack" in line]):
        text = f"you have an operator key, and it has not signed {unsigned[0]}: answers from Slack are refused"
        yield Finding("slack decisions", State.WARN, text, "agent-intercom-ctl key settings, in a terminal of your own")


def _status(where: Places) -> Iterator[Finding]:
    """Report the Slack status that the running server gives."""
    answer = _answer(where, "slack")
    if answer is None or answer["slack"] is None:
        # The server has stopped meanwhile, or its version does not support this request.
        return
    subject, again = "slack server", "it is tried again; agent-intercom-ctl slack shows its status"
    try:
        status = read(ChatStatus, answer, "slack")
    except IpcError as unread:
        yield Finding(subject, State.WARN, unread.message)
        return
    connection, outbox = status.connection, status.outbox
    if connection is None or outbox is None:
        yield Finding(subject, State.WARN, "a part of the running server is restarting", again)
        return
    waiting = sum(outbox.waiting.values()) + outbox.updates
    rest = f"{waiting or 'no'} {'message' if waiting == 1 else 'messages'} to be posted or updated"
    since = age(connection.since, datetime.now(UTC))
    if connection.state is ConnectionState.UP:
        told = f"the running server is connected for {since}, in channel {status.channel}; {rest}"
        yield Finding(subject, State.OK, told)
    else:
        why = f": {connection.last_error}" if connection.last_error else ""
        text = f"the running server is not connected ({connection.state}) for {since}{why}; {rest}"
        # Slack keeps refusing until a person changes something.
        yield Finding(subject, State.FAULT if connection.state is ConnectionState.REFUSED else State.WARN, text, again)
    for channel, fault in outbox.faults.items():
        yield Finding(subject, State.WARN, f"{channel}: {fault}")


def _without_channel(where: Places, config_file: str) -> Finding:
    """Return the finding without a channel. The keychain is not asked, because it may ask for a password."""
    from intercom.operators.slack import credentials

    kept = credentials.file_in(where.state_dir).exists()
    if kept or any(os.environ.get(kind.variable) for kind in credentials.KINDS if kind.needed):
        text = "there are tokens, but no channel to post in: a server starts without Slack"
        advice = f"invite the app into a channel, and write its id as channel_id under [slack] in {config_file}"
        return Finding("slack", State.WARN, text, advice)
    text = f"not set up: no channel_id under [slack] in {config_file}; begin with agent-intercom slack manifest"
    return Finding("slack", State.OK, text)


def _tokens(in_file: bool, in_environment: bool, in_slack: bool, file: str) -> Iterator[Finding]:
    if in_environment and not in_slack:
        text = "in this environment, which a server that an agent starts does not see"
        advice = (
            "agent-intercom slack login --from-env keeps them; or agent-intercom serve --replace, with this environment"
        )
        yield Finding("slack tokens", State.WARN, text, advice)
    else:
        place = "this environment" if in_environment else file if in_file else "the keychain"
        yield Finding("slack tokens", State.OK, f"found in {place}")


def _members(config_file: str) -> Iterator[Finding]:
    """Warn about member ids that only this environment sets, because the next server may not see them."""
    if not os.environ.get("SLACK_MEMBER_IDS"):
        return
    try:
        table = peek(config_file).get("slack")
    except IntercomError:
        return
    if not (isinstance(table, Mapping) and table.get("authorized_user_ids")):
        text = "SLACK_MEMBER_IDS is set in this environment, which a server that an agent starts does not see"
        yield Finding(
            "slack members", State.WARN, text, f"write them under [slack] authorized_user_ids in {config_file}"
        )


def _asked(settled: Any, in_slack: bool) -> Iterator[Finding]:
    import trio

    from intercom.operators.slack import settings as slack_settings

    # A second socket would receive some of the interactions that belong to the server.
    ask = partial(slack_settings.prove, settled, socket=not in_slack, patience=_SLACK_PATIENCE)
    for proof in trio.run(ask):
        yield Finding(proof.subject, State(proof.outcome.value), proof.text, proof.advice)


def _running(where: Places) -> frozenset[str] | None:
    """Return the names of the running server's parts, or None if no server of this version answers."""
    answer = _answer(where, "tree")
    try:
        return None if answer is None else frozenset(_names(read(Info, answer, "tree")))
    except IpcError:
        return None


def _answer(where: Places, verb: str) -> Any:
    """Return the running server's answer, or None if there is none."""
    try:
        return request(where, verb, {}, patience=_PATIENCE)
    except (IntercomError, Refusal, NoServer, OSError, EOFError):
        return None


def _names(node: Info) -> Iterator[str]:
    yield node.name
    for child in node.children:
        yield from _names(child)


def config_file_of(config: str | None, where: Places) -> str:
    """Return the configuration file that people should edit."""
    return str(Path(config).absolute()) if config is not None else where.config_file
