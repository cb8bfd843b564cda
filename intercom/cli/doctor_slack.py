"""Doctor's check of Slack: what a server would find, and if that is complete, what Slack answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from intercom.cli.ctl_draw import age
from intercom.cli.doctor_findings import Finding, State
from intercom.local.places import Places, peek
from intercom.model.config import Config
from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal, request

#: Seconds for each request to the running server, and to Slack.
_PATIENCE = 2.0
_SLACK_PATIENCE = 10.0

#: The actor that a server has if it uses Slack.
_CONNECTION = "slack/connection"


def examine(config: Config, where: Places, config_file: str) -> Iterator[Finding]:
    """Check what Slack needs. Without a channel in the configuration, neither Slack nor the keychain is asked."""
    if config.slack.channel_id is None:
        if config.slack.workspace_channels:
            text = "[slack] workspace_channels is set, and without channel_id there is no Slack"
            yield Finding("slack", State.FAULT, text, f"write channel_id under [slack] in {config_file}")
        else:
            yield _without_channel(where, config_file)
        return
    from intercom.operators.slack import credentials, setup
    from intercom.operators.slack.credentials import Source

    file = credentials.file_in(where.state_dir)
    looked = credentials.look(os.environ, file=file, patience=_SLACK_PATIENCE)
    for fault in looked.unread:
        yield Finding("slack tokens", State.FAULT if looked.missing else State.WARN, fault)
    parts = _running(where)
    in_slack = parts is not None and _CONNECTION in parts
    if in_slack:
        yield from _status(where)
    if looked.missing and in_slack:
        text = "the running server has its own, which are not seen from here; so nothing was asked of Slack"
        yield Finding("slack tokens", State.OK, f"{text} (agent-intercom-ctl slack shows its status)")
        return
    if looked.missing:
        names = " and ".join(f"the {kind.title}" for kind in looked.missing)
        option = "" if looked.has_keychain else " --file, as this machine has no keychain"
        text = f"{names} {'was' if len(looked.missing) == 1 else 'were'} not found: a server starts without Slack"
        yield Finding("slack tokens", State.FAULT, text, f"agent-intercom slack login{option}")
        return
    try:
        settled = setup.settle(config, os.environ, file=file, patience=_SLACK_PATIENCE)
    except IntercomError as fault:
        yield Finding("slack tokens", State.FAULT, str(fault), "agent-intercom slack login")
        return
    assert settled is not None, "a channel is configured"
    sources = {credential.source for credential in looked.found.values() if credential.kind.needed}
    yield from _tokens(sources == {Source.FILE}, Source.ENVIRONMENT in sources, in_slack, str(file))
    if parts is not None and not in_slack:
        text = "the running server is not in Slack: it started before this was set up, or did not find the tokens"
        advice = "agent-intercom stop (or restart your service); nothing pending is lost"
        yield Finding("slack server", State.WARN, text, advice)
    if not in_slack:
        yield from _members(config_file)
    yield from _asked(settled, in_slack)


def _status(where: Places) -> Iterator[Finding]:
    """Report the Slack status that the running server gives."""
    status = _answer(where, "slack")
    status = None if status is None else status["slack"]
    if status is None:
        # The server has stopped meanwhile, or its version does not support this request.
        return
    connection, outbox = status["connection"], status["outbox"]
    subject, again = "slack server", "it is tried again; agent-intercom-ctl slack shows its status"
    if connection is None or outbox is None:
        yield Finding(subject, State.WARN, "a part of the running server is restarting", again)
        return
    waiting = sum(outbox["waiting"].values()) + outbox["updates"]
    rest = f"{waiting or 'no'} {'message' if waiting == 1 else 'messages'} to be posted or updated"
    since = age(connection["since"], datetime.now(UTC))
    if connection["state"] == "up":
        told = f"the running server is connected for {since}, in channel {status['channel']}; {rest}"
        yield Finding(subject, State.OK, told)
    else:
        why = f": {connection['last_error']}" if connection["last_error"] else ""
        text = f"the running server is not connected ({connection['state']}) for {since}{why}; {rest}"
        # Slack keeps refusing until a person changes something.
        yield Finding(subject, State.FAULT if connection["state"] == "refused" else State.WARN, text, again)
    for channel, trouble in outbox["troubles"].items():
        yield Finding(subject, State.WARN, f"{channel}: {trouble}")


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
        advice = "agent-intercom slack login --from-env keeps them; or run agent-intercom serve with this environment"
        yield Finding("slack tokens", State.WARN, text, advice)
    else:
        place = "this environment" if in_environment else file if in_file else "the keychain"
        yield Finding("slack tokens", State.OK, f"found in {place}")


def _members(config_file: str) -> Iterator[Finding]:
    """Warn about member ids that only this environment sets, because the next server may not see them."""
    if not os.environ.get("SLACK_MEMBER_IDS"):
        return
    try:
        table: Any = peek(config_file).get("slack")
    except IntercomError:
        return
    if not (isinstance(table, Mapping) and table.get("authorized_user_ids")):
        text = "SLACK_MEMBER_IDS is set in this environment, which a server that an agent starts does not see"
        yield Finding(
            "slack members", State.WARN, text, f"write them under [slack] authorized_user_ids in {config_file}"
        )


def _asked(settled: Any, in_slack: bool) -> Iterator[Finding]:
    import trio

    from intercom.operators.slack import setup

    # A second socket would receive some of the interactions that belong to the server.
    ask = partial(setup.prove, settled, socket=not in_slack, patience=_SLACK_PATIENCE)
    for proof in trio.run(ask):
        yield Finding(proof.subject, State(proof.outcome.value), proof.text, proof.advice)


def _running(where: Places) -> frozenset[str] | None:
    """Return the names of the running server's parts, or None if no server answers."""
    answer = _answer(where, "tree")
    return None if answer is None else frozenset(_parts(answer["tree"]))


def _answer(where: Places, verb: str) -> Any:
    """Return the running server's answer, or None if there is none."""
    try:
        return request(where, verb, {}, patience=_PATIENCE)
    except (IntercomError, Refusal, NoServer, OSError, EOFError):
        return None


def _parts(node: Mapping[str, Any]) -> Iterator[str]:
    yield str(node.get("name"))
    for child in node.get("children") or ():
        yield from _parts(child)


def config_file_of(config: str | None, where: Places) -> str:
    """Return the configuration file that people should edit."""
    return str(Path(config).absolute()) if config is not None else where.config_file
