"""The settings of the Slack channel, determined once at the server's start."""

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
    """The settings of Slack. `api_url` is the address of the Web API. `proxy` is the proxy for it, and `ca_file`
    replaces the usual trusted certificates."""

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
    """Return the setup from configuration, keychain and environment; None if the configuration names no channel.

    Blocks on the keychain for at most `patience` seconds. Raises SlackError if a channel is named and the rest is
    missing or unusable. The sentence says what to do, and a server starts without Slack.
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
    """Create a client of Slack's Web API for this setup."""
    return WebApi(setup.tokens, base_url=setup.api_url, proxy=setup.proxy, ca_file=setup.ca_file)
