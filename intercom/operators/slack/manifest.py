"""The manifest of the Slack app, with exactly the scopes for the methods it calls and the events it receives."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

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
