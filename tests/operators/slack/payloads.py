"""Payloads as Slack sends them, with the fields its documentation shows."""

from __future__ import annotations

from typing import Any

from intercom.operators.slack.envelope_parser import form_metadata

ANNA = "U0ANNA"
BERT = "U0BERT"
MALLORY = "U0MALLORY"
NAMES = {ANNA: "anna", BERT: "bert", MALLORY: "mallory"}
TEAM = "T0TEAM"
CHANNEL = "C0CHANNEL"
ROOT = "1700000000.000100"
MESSAGE = "1700000001.000200"
BOT = "U0BOT"

Json = dict[str, Any]


def tap(action: str, card_id: str, user: str = ANNA, *, at: str = "1700000100.000001", root: str | None = ROOT) -> Json:
    """A `block_actions` payload; `root` None for a message that stands in the channel itself."""
    container: Json = {"type": "message", "message_ts": MESSAGE, "channel_id": CHANNEL, "is_ephemeral": False}
    if root is not None:
        container["thread_ts"] = root
    return {
        "type": "block_actions",
        "user": {"id": user, "username": NAMES[user], "name": NAMES[user], "team_id": TEAM},
        "api_app_id": "A0APP",
        "token": "verification",
        "container": container,
        "trigger_id": f"12321423423.333649436676.{at}",
        "team": {"id": TEAM, "domain": "team"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": CHANNEL, "name": "agents"},
        "message": {"type": "message", "user": BOT, "ts": MESSAGE, "text": "a card"},
        "state": {"values": {}},
        "response_url": "https://hooks.slack.com/actions/T0TEAM/1/x",
        "actions": [{"action_id": action, "block_id": "b1", "type": "button", "value": card_id, "action_ts": at}],
    }


def submitted(form: str, card_id: str, text: str | None, user: str = ANNA, *, view: str = "V0VIEW") -> Json:
    """A `view_submission` payload."""
    typed = {"words": {"type": "plain_text_input", "value": text}}
    return {
        "type": "view_submission",
        "team": {"id": TEAM, "domain": "team"},
        "user": {"id": user, "username": NAMES[user], "name": NAMES[user], "team_id": TEAM},
        "api_app_id": "A0APP",
        "trigger_id": "12321423423.333649436676.1",
        "view": {
            "id": view,
            "team_id": TEAM,
            "type": "modal",
            "callback_id": f"intercom_{form}",
            "private_metadata": form_metadata(card_id, CHANNEL, ROOT),
            "hash": "1700000100.x",
            "state": {"values": {"text": typed}},
        },
        "response_urls": [],
        "is_enterprise_install": False,
    }


def said(text: str, user: str = ANNA, *, ts: str = "1700000200.000300", root: str | None = ROOT, **more: Any) -> Json:
    """An `event_callback` payload with a message event; `root` None for a message outside of threads."""
    event: Json = {
        "type": "message",
        "user": user,
        "ts": ts,
        "client_msg_id": "x",
        "text": text,
        "team": TEAM,
        "channel": CHANNEL,
        "event_ts": ts,
        "channel_type": "channel",
    }
    if root is not None:
        event |= {"thread_ts": root, "parent_user_id": BOT}
    return {
        "token": "verification",
        "team_id": TEAM,
        "context_team_id": TEAM,
        "api_app_id": "A0APP",
        "event": event | more,
        "type": "event_callback",
        "event_id": f"Ev{ts}",
        "event_time": 1700000200,
        "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": BOT, "is_bot": True}],
        "is_ext_shared_channel": False,
    }


def command(text: str, user: str = ANNA, *, trigger: str = "1.2.3") -> Json:
    """A slash command's payload."""
    return {
        "token": "verification",
        "team_id": TEAM,
        "team_domain": "team",
        "channel_id": CHANNEL,
        "channel_name": "agents",
        "user_id": user,
        "user_name": NAMES[user],
        "command": "/intercom",
        "text": text,
        "api_app_id": "A0APP",
        "is_enterprise_install": "false",
        "response_url": "https://hooks.slack.com/commands/T0TEAM/1/x",
        "trigger_id": trigger,
    }
