"""What a server needs to be in Slack, settled once when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from intercom.model.config import Config
from intercom.model.errors import SlackError
from intercom.operators.slack import credentials
from intercom.operators.slack.addresses import SLACK, api_base
from intercom.operators.slack.credentials import PATIENCE
from intercom.operators.slack.web import SlackTokens, WebApi


@frozen
class SlackSetup:
    """Slack as it is set up: the tokens, who may answer, where to post, and where Slack is (`api_url`); by which
    proxy it is reached, and which certificates are trusted in place of the usual ones."""

    tokens: SlackTokens
    channel_id: str
    authorized: frozenset[str] = frozenset()
    workspace_channels: Mapping[Path, str] = field(factory=dict)
    api_url: str = SLACK
    proxy: str | None = None
    ca_file: Path | None = None


def settle(
    config: Config, env: Mapping[str, str], *, file: Path | None = None, patience: float = PATIENCE
) -> SlackSetup | None:
    """Slack as configuration, keychain and environment set it up; None where the configuration names no channel.

    Blocks while the keychain is asked, for `patience` seconds at most. Raises SlackError when a channel is named and
    the rest is missing or not usable: the sentence says what to do, and a server starts without Slack.
    """
    channel_id = config.slack.channel_id
    if channel_id is None:
        return None
    tokens = credentials.load(env, file=file, patience=patience)
    if tokens is None:
        raise SlackError("a Slack channel is configured, and there are no tokens: run agent-intercom slack login")
    try:
        api_url = api_base(env)
    except ValueError as fault:
        raise SlackError(str(fault)) from None
    authorized = credentials.authorized(config, env)
    return SlackSetup(
        tokens,
        channel_id,
        authorized,
        dict(config.slack.workspace_channels),
        api_url,
        config.slack.proxy,
        config.slack.ca_file,
    )


def web_api(setup: SlackSetup) -> WebApi:
    """A client of Slack's Web API for this set-up."""
    return WebApi(setup.tokens, base_url=setup.api_url, proxy=setup.proxy, ca_file=setup.ca_file)
