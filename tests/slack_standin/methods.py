"""Every Web API method the stand-in knows: what does it, and what a token needs for it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from tests.slack_standin import chat, conversations, files, modals
from tests.slack_standin.team import Json, SlackRefuses, Team


@frozen
class Method:
    do: Callable[[Team, Json], Json]
    scopes: frozenset[str] = frozenset()  # one of them is enough
    app: bool = False  # called with the app's token, not the bot's


def auth_test(team: Team, args: Json) -> Json:
    bot = {"user": team.bot_name, "user_id": team.bot_user, "bot_id": team.bot_id}
    where = {"url": f"https://{team.domain}.slack.com/", "team": "The stand-in", "team_id": team.id}
    return {"ok": True, **where, **bot, "is_enterprise_install": False}


def bot_info(team: Team, args: Json) -> Json:
    if args.get("bot") != team.bot_id:
        raise SlackRefuses("bot_not_found")
    return {"ok": True, "bot": {"id": team.bot_id, "app_id": team.app_id, "name": team.bot_name, "deleted": False}}


def _method(do: Callable[[Team, Json], Json], *scopes: str) -> Method:
    return Method(do, frozenset(scopes))


_HISTORY, _READ = ("channels:history", "groups:history"), ("channels:read", "groups:read")

METHODS: dict[str, Method] = {
    "auth.test": _method(auth_test),
    "bots.info": _method(bot_info, "users:read"),
    "chat.postMessage": _method(chat.post_message, "chat:write"),
    "chat.update": _method(chat.update, "chat:write"),
    "chat.postEphemeral": _method(chat.post_ephemeral, "chat:write"),
    "conversations.history": _method(conversations.history, *_HISTORY),
    "conversations.replies": _method(conversations.replies, *_HISTORY),
    "conversations.info": _method(conversations.info, *_READ),
    "users.info": _method(conversations.user_info, "users:read"),
    "views.open": _method(modals.open_view),
    "files.getUploadURLExternal": _method(files.get_upload_url, "files:write"),
    "files.completeUploadExternal": _method(files.complete_upload, "files:write"),
    "files.info": _method(files.info, "files:read"),
}
