"""The Slack app that Intercom needs, made from the methods it calls and the events it hears, and nothing besides."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

NAME = "Intercom"
COMMAND = "/intercom"

#: Every method of the Web API that is called, and the scopes the bot's token needs for it. One that takes a channel
#: needs what its kind of channel asks for: public (`channels:`) or private (`groups:`).
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

#: What is heard of the channels, and the scopes for it: replies in sessions' threads.
EVENTS: dict[str, tuple[str, ...]] = {
    "message.channels": ("channels:history",),
    "message.groups": ("groups:history",),
}

#: What the app-level token must be made with.
APP_SCOPE = "connections:write"


def scopes() -> tuple[str, ...]:
    """The bot's scopes, sorted."""
    needed = {"commands"}  # the slash command
    for each in (*METHODS.values(), *EVENTS.values()):
        needed.update(each)
    return tuple(sorted(needed))


def manifest(name: str = NAME) -> dict[str, Any]:
    """The app's manifest. `name` is what people see; Slack takes up to 35 characters."""
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
                    # People write paths and names; Slack would turn some of them into links.
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
            # Tokens that expire every twelve hours would need a place to be written back to.
            "token_rotation_enabled": False,
        },
    }


def as_json(name: str = NAME) -> str:
    """The manifest as text to paste."""
    return json.dumps(manifest(name), indent=2, ensure_ascii=False)


def link(name: str = NAME) -> str:
    """An address that opens Slack's page for a new app with the manifest filled in."""
    text = json.dumps(manifest(name), separators=(",", ":"))
    return f"https://api.slack.com/apps?new_app=1&manifest_json={quote(text, safe='')}"
