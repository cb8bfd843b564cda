"""The settings of Slack, the proof that they work, and the manifest of the app. Nothing here asks a person."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trio
from attrs import field, frozen

from intercom.model.config import Config
from intercom.model.errors import SlackError
from intercom.operators.slack import credentials
from intercom.operators.slack.credentials import PATIENCE
from intercom.operators.slack.socket_mode import SocketLimits, open_socket
from intercom.operators.slack.web_api import (
    SLACK,
    RateLimited,
    SlackApiError,
    SlackRefused,
    SlackTokens,
    Unreachable,
    WebApi,
    api_base,
)


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


NAME = "Intercom"
COMMAND = "/intercom"

#: Every method of the Web API that is called, with the scopes the bot's token needs for it. A method with a channel
#: needs the scope of each kind of channel: public (`channels:`) and private (`groups:`).
METHODS: dict[str, tuple[str, ...]] = {
    "apps.connections.open": (),  # the app-level token's, with connections:write
    "auth.test": (),
    "bots.info": ("users:read",),
    "chat.postEphemeral": ("chat:write",),
    "chat.postMessage": ("chat:write",),
    "chat.update": ("chat:write",),
    "conversations.history": ("channels:history", "groups:history"),
    "conversations.info": ("channels:read", "groups:read"),
    "conversations.replies": ("channels:history", "groups:history"),
    "files.completeUploadExternal": ("files:write",),
    "files.getUploadURLExternal": ("files:write",),
    "files.info": ("files:read",),
    "users.info": ("users:read",),
    "views.open": (),
}

#: The events of channels, replies in sessions' threads, with their scopes.
EVENTS: dict[str, tuple[str, ...]] = {
    "message.channels": ("channels:history",),
    "message.groups": ("groups:history",),
}

#: The scope of the app-level token.
APP_SCOPE = "connections:write"


def scopes() -> tuple[str, ...]:
    """Return the bot's scopes, sorted."""
    needed = {"commands"}  # the slash command
    for each in (*METHODS.values(), *EVENTS.values()):
        needed.update(each)
    return tuple(sorted(needed))


def manifest(name: str = NAME) -> dict[str, Any]:
    """Return the app's manifest. `name` is the display name, at most 35 characters."""
    return {
        "_metadata": {"major_version": 1, "minor_version": 1},
        "display_information": {
            "name": name,
            "description": "Coding agents ask here, and you answer",
            "background_color": "#1f2933",
        },
        "features": {
            "bot_user": {"display_name": name, "always_online": False},
            "slash_commands": [
                {
                    "command": COMMAND,
                    "description": "Look after your coding agents",
                    "usage_hint": "help | sessions | list-files | show-file PATH",
                    # People type paths and names; Slack would turn some of them into links.
                    "should_escape": False,
                }
            ],
        },
        "oauth_config": {"scopes": {"bot": list(scopes())}},
        "settings": {
            "event_subscriptions": {"bot_events": list(EVENTS)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            # Tokens that expire every twelve hours would have to be stored again each time.
            "token_rotation_enabled": False,
        },
    }


def as_json(name: str = NAME) -> str:
    """Return the manifest as text to paste."""
    return json.dumps(manifest(name), indent=2, ensure_ascii=False)


def link(name: str = NAME) -> str:
    """Return the address of Slack's page for a new app with this manifest."""
    text = json.dumps(manifest(name), separators=(",", ":"))
    return f"https://api.slack.com/apps?new_app=1&manifest_json={quote(text, safe='')}"


#: Seconds our clock may differ from Slack's, because messages are searched by time.
_SKEW = 30.0
#: Seconds for each call, and for Slack's hello on a socket.
_PATIENCE = 10.0
#: How many people are looked up; a longer list would take too long.
_PEOPLE = 20

_AGAIN = "make a new one in the app's settings (api.slack.com/apps), and run agent-intercom slack login"
_NETWORK = "check the network, or the proxy"
_REINSTALL = (
    "in the app's settings (api.slack.com/apps) replace App Manifest by what agent-intercom slack manifest prints, then"
    " Install App > Reinstall to Workspace"
)
_SWITCH_ON = "switch Socket Mode on in the app's settings (api.slack.com/apps)"
_WHY = {
    "invalid_auth": "slack does not know it",
    "not_authed": "slack does not know it",
    "token_revoked": "it was revoked, or the app was removed",
    "account_inactive": "the app was removed from the team",
    "token_expired": "it has expired; set the app up without token rotation",
    "not_allowed_token_type": "it is a token of another kind",
}


class Outcome(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAULT = "fault"


@frozen
class Proof:
    """The result of a check of `subject`. `advice` says what to do if `text` does not."""

    subject: str
    outcome: Outcome
    text: str
    advice: str = ""


@frozen
class _Bot:
    team_id: str
    bot_id: str
    name: str


async def prove(setup: SlackSetup, *, socket: bool = True, patience: float = _PATIENCE) -> tuple[Proof, ...]:
    """Check everything that the setup depends on, without posting anything.

    With `socket`, open a socket until Slack says hello. Do not use it while a server is connected, because Slack would
    send some events to this socket instead. `patience` is the time limit of each call, in seconds. If Slack cannot be
    reached, the result is one warning only.
    """
    async with web_api(setup) as web:
        proofs, bot = await _tokens(web, setup.tokens, patience, socket=socket)
        if bot is not None:
            for channel in dict.fromkeys((setup.channel_id, *setup.workspace_channels.values())):
                proofs.append(await _channel(web, channel, bot, patience))
            proofs.append(await _people(web, setup, patience))
        return tuple(proofs)


async def verify(
    tokens: SlackTokens,
    api_url: str,
    *,
    proxy: str | None = None,
    ca_file: Path | None = None,
    patience: float = _PATIENCE,
) -> tuple[tuple[Proof, ...], str]:
    """Check the tokens and scopes only. Returns the proofs and the bot's team, "" if it is not known. Posts nothing and
    opens no socket."""
    async with WebApi(tokens, base_url=api_url, proxy=proxy, ca_file=ca_file) as web:
        proofs, bot = await _tokens(web, tokens, patience, socket=False)
        return tuple(proofs), bot.team_id if bot is not None else ""


async def _tokens(
    web: WebApi, tokens: SlackTokens, patience: float, *, socket: bool
) -> tuple[list[Proof], _Bot | None]:
    """Check both tokens. Return the proofs, the bot token's own first, and the bot."""
    subject = "slack bot"
    bot: _Bot | None = None
    try:
        said = await web.call("auth.test", timeout=patience)
    except Unreachable as fault:
        return [Proof(subject, Outcome.WARN, f"{fault}; a server keeps trying", _NETWORK)], None
    except SlackApiError as fault:
        proofs = [_token_refused(subject, "bot token", fault)]
    else:
        team = f"{said.get('team', '?')} ({said.get('team_id', '?')})"
        if tokens.team_id and tokens.team_id != said.get("team_id"):
            text = f"the bot token is of the team {team}, and the team id kept with it is {tokens.team_id}"
            proofs = [Proof(subject, Outcome.FAULT, text, "agent-intercom slack login, with tokens of one team")]
        else:
            bot = _Bot(str(said.get("team_id", "")), str(said.get("bot_id", "")), str(said.get("user", "the app")))
            proofs = [Proof(subject, Outcome.OK, f"@{bot.name} in {team}"), _scopes(web)]
            skew = _skew(web)
            if abs(skew) > _SKEW:
                text = f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} Slack's"
                proofs.append(Proof("clock", Outcome.WARN, text, "set the clock: messages are searched by time"))
    if proofs[0].outcome is not Outcome.WARN:
        proofs.append(await _connection(web, tokens, bot, patience, socket=socket))
    return proofs, bot


def _scopes(web: WebApi) -> Proof:
    subject = "slack scopes"
    given = {each.strip() for each in web.heard.get("x-oauth-scopes", "").split(",") if each.strip()}
    missing = [each for each in scopes() if each not in given]
    if not given:
        return Proof(subject, Outcome.WARN, "slack does not say what the bot may do")
    if missing:
        return Proof(subject, Outcome.FAULT, f"the bot lacks permissions: {', '.join(missing)}", _REINSTALL)
    more = sorted(given.difference(scopes()))
    text = f"all {len(scopes())} that are needed" + (f", and {', '.join(more)}, which are not" if more else "")
    return Proof(subject, Outcome.OK, text)


def _skew(web: WebApi) -> float:
    """Return by how many seconds this clock is ahead of Slack's."""
    try:
        return time.time() - parsedate_to_datetime(web.heard.get("date", "")).timestamp()
    except ValueError:
        return 0.0


async def _connection(web: WebApi, tokens: SlackTokens, bot: _Bot | None, patience: float, *, socket: bool) -> Proof:
    subject = "slack socket"
    try:
        url = str((await web.call("apps.connections.open", app=True, timeout=patience))["url"])
    except SlackRefused as fault:
        match fault.error:
            case "missing_scope" | "not_allowed_token_type":
                text = f"the app-level token may not open a socket ({fault.error})"
                again = _AGAIN.replace("a new one", f"one with the scope {APP_SCOPE}")
                return Proof(subject, Outcome.FAULT, text, again)
            case "socket_mode_disabled" | "forbidden_team" | "not_enabled":
                return Proof(subject, Outcome.FAULT, f"slack refuses a socket ({fault.error})", _SWITCH_ON)
        return _token_refused(subject, "app-level token", fault)
    except SlackApiError as fault:
        return Proof(subject, Outcome.WARN, f"{fault}; a server keeps trying", _NETWORK)
    apps = await _apps(web, tokens, bot, patience)
    if apps is not None:
        return Proof(subject, Outcome.FAULT, apps, "take both tokens from the same app, and log in again")
    if not socket:
        return Proof(subject, Outcome.OK, "the app-level token may open one")
    try:
        with trio.fail_after(patience):
            async with open_socket(web, url, SocketLimits()) as opened:
                first = await opened.next()
    except (SlackApiError, trio.TooSlowError) as fault:
        text = f"a socket could not be opened: {str(fault) or f'slack said nothing for {patience:g} s'}"
        return Proof(subject, Outcome.FAULT, text, "let this machine reach wss-primary.slack.com, port 443")
    if first is None or first.get("type") != "hello":
        return Proof(subject, Outcome.FAULT, "slack opened a socket and did not say hello", _SWITCH_ON)
    return Proof(subject, Outcome.OK, "opened, and slack said hello")


async def _apps(web: WebApi, tokens: SlackTokens, bot: _Bot | None, patience: float) -> str | None:
    """Return a sentence if the tokens belong to two apps: then cards would be posted, but no button action would
    arrive."""
    parts = tokens.app.split("-")
    if bot is None or not bot.bot_id or len(parts) < 4 or not parts[2].startswith("A"):
        return None
    try:
        said = await web.call("bots.info", timeout=patience, bot=bot.bot_id)
    except SlackApiError:
        return None
    theirs = str(said.get("bot", {}).get("app_id") or "")
    if theirs in ("", parts[2]):
        return None
    return f"the bot token is of the app {theirs}, the app-level token of {parts[2]}"


async def _channel(web: WebApi, channel_id: str, bot: _Bot, patience: float) -> Proof:
    subject = "slack channel"
    invite = f"write /invite @{bot.name} in the channel"
    try:
        channel = (await web.call("conversations.info", timeout=patience, channel=channel_id))["channel"]
    except SlackRefused as fault:
        if fault.error == "missing_scope":
            return Proof(subject, Outcome.FAULT, f"the bot may not look at {channel_id} (missing_scope)", _REINSTALL)
        text = f"the bot does not see {channel_id} ({fault.error}): no such channel, or a private one without it"
        return Proof(subject, Outcome.FAULT, text, f"compare the id with the channel's details in Slack; {invite}")
    except SlackApiError as fault:
        return Proof(subject, Outcome.WARN, f"{channel_id} could not be looked at: {fault}", "try again")
    if channel.get("is_im") or channel.get("is_mpim"):
        text = f"{channel_id} is a direct message: replies there are not received"
        return Proof(subject, Outcome.FAULT, text, "take a channel; it may be private")
    named = f"#{channel.get('name', '?')} ({channel_id})"
    if channel.get("is_archived"):
        return Proof(subject, Outcome.FAULT, f"{named} is archived", "unarchive it, or configure another")
    if not channel.get("is_member"):
        return Proof(subject, Outcome.FAULT, f"the bot is not in {named}", invite)
    return Proof(subject, Outcome.OK, f"{named}, and the bot is in it")


async def _people(web: WebApi, setup: SlackSetup, patience: float) -> Proof:
    subject = "slack people"
    where = "write your member id under [slack] authorized_user_ids (in Slack: your profile > ⋮ > Copy member ID)"
    if not setup.authorized:
        return Proof(subject, Outcome.FAULT, "nobody may answer from Slack", where)
    names, wrong = [], []
    for id in sorted(setup.authorized)[:_PEOPLE]:
        try:
            user = (await web.call("users.info", timeout=patience, user=id))["user"]
        except SlackRefused as fault:
            if fault.error == "missing_scope":
                text = f"{len(setup.authorized)} may answer; who they are cannot be looked up"
                return Proof(subject, Outcome.WARN, text, _REINSTALL)
            wrong.append(f"{id} is not a member here ({fault.error})")
            continue
        except SlackApiError as fault:
            return Proof(subject, Outcome.WARN, f"{id} could not be looked up: {fault}", "try again")
        name = f"{user.get('real_name') or user.get('name') or '?'} ({id})"
        if user.get("deleted") or user.get("is_bot"):
            wrong.append(f"{name} {'has left' if user.get('deleted') else 'is a bot'}")
        else:
            names.append(name)
    more = len(setup.authorized) - _PEOPLE
    told = ", ".join(names) + (f" and {more} more" if more > 0 else "")
    if wrong:
        return Proof(subject, Outcome.FAULT, "; ".join(([told] if told else []) + wrong), where)
    return Proof(subject, Outcome.OK, f"{told} may answer")


def _token_refused(subject: str, token: str, fault: SlackApiError) -> Proof:
    if isinstance(fault, RateLimited):
        return Proof(subject, Outcome.WARN, str(fault), "try again then")
    word = fault.error if isinstance(fault, SlackRefused) else str(fault)
    text = f"the {token} is not valid: {_WHY.get(word, 'slack refuses it')} ({word})"
    return Proof(subject, Outcome.FAULT, text, _AGAIN)
