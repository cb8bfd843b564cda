"""What Slack tells an app when somebody does something: the payloads of envelopes, in Slack's shapes."""

from __future__ import annotations

from tests.slack.chat import shown
from tests.slack.team import Channel, Json, Team, User

TOKEN = "verification-token-nobody-uses"


def block_actions(team: Team, user: User, channel: Channel, message: Json, action: Json, *, ephemeral: bool) -> Json:
    container = {"type": "message", "message_ts": message["ts"], "channel_id": channel.id, "is_ephemeral": ephemeral}
    if message.get("thread_ts"):
        container["thread_ts"] = message["thread_ts"]
    url = team.response_url(channel.id, user.id, message["ts"], message.get("thread_ts"))
    where = {"container": container, "channel": {"id": channel.id, "name": channel.name}, "message": shown(message)}
    what = {"actions": [{**action, "action_ts": team.stamp()}], "state": {"values": {}}, "response_url": url}
    return {"type": "block_actions", **_from(team, user), **where, **what}


def view_submission(team: Team, user: User, view: Json) -> Json:
    return {"type": "view_submission", **_from(team, user), "view": view, "response_urls": []}


def view_closed(team: Team, user: User, view: Json) -> Json:
    said = {"type": "view_closed", **_from(team, user), "view": view, "is_cleared": False}
    del said["trigger_id"]
    return said


def slash_command(team: Team, user: User, channel: Channel, command: str, text: str) -> Json:
    who = {"team_id": team.id, "team_domain": team.domain, "user_id": user.id, "user_name": user.name}
    where = {"channel_id": channel.id, "channel_name": channel.name}
    what = {"command": command, "text": text, "api_app_id": team.app_id, "is_enterprise_install": "false"}
    back = {"response_url": team.response_url(channel.id, user.id), "trigger_id": team.trigger(user.id)}
    return {"token": TOKEN, **who, **where, **what, **back}


def event(team: Team, channel: Channel, inner: Json) -> Json:
    """An event of the Events API, of what happened in a channel."""
    at = inner.get("event_ts") or inner["ts"]
    about = {"channel": channel.id, "event_ts": at, "channel_type": "group" if channel.is_private else "channel"}
    installed = {"enterprise_id": None, "team_id": team.id, "user_id": team.bot_user, "is_bot": True}
    named = {"type": "event_callback", "event_id": team.name("Ev"), "event_time": int(float(at))}
    outer = {"token": TOKEN, "team_id": team.id, "context_team_id": team.id, "api_app_id": team.app_id, **named}
    more = {"authorizations": [{**installed, "is_enterprise_install": False}], "is_ext_shared_channel": False}
    return {**outer, "context_enterprise_id": None, "event": {**inner, **about}, **more}


def _from(team: Team, user: User) -> Json:
    who = {"id": user.id, "username": user.name, "name": user.name, "team_id": team.id}
    place = {"team": {"id": team.id, "domain": team.domain}, "enterprise": None, "is_enterprise_install": False}
    return {"user": who, "api_app_id": team.app_id, "token": TOKEN, "trigger_id": team.trigger(user.id), **place}
