"""conversations.* and users.*: channels, what was said in them, and by whom."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from tests.slack_standin import limits
from tests.slack_standin.chat import shown
from tests.slack_standin.team import Channel, Json, SlackRefuses, Team


def history(team: Team, args: Json) -> Json:
    channel = team.channel(args.get("channel"), member=True)
    top = [one for one in channel.messages.values() if _on_top(one)]
    page, cursor = _page([one for one in reversed(top) if _between(one, args)], args, limits.PAGE, newest_first=True)
    answer = {"ok": True, "messages": _all_shown(page, args), "has_more": cursor is not None, "pin_count": 0}
    return answer | _next(cursor)


def replies(team: Team, args: Json) -> Json:
    channel = team.channel(args.get("channel"), member=True)
    root = channel.messages.get(str(args.get("ts")))
    if root is None:
        raise SlackRefuses("thread_not_found")
    thread: str = root.get("thread_ts") or root["ts"]
    root = channel.messages.get(thread, root)
    said = [one for one in channel.messages.values() if one.get("thread_ts") == thread and one is not root]
    page, cursor = _page([one for one in said if _between(one, args)], args, limits.PAGE_OF_REPLIES)
    answer = {"ok": True, "messages": _all_shown([root, *page], args), "has_more": cursor is not None}
    return answer | _next(cursor)


def info(team: Team, args: Json) -> Json:
    return {"ok": True, "channel": _channel(team, team.channel(args.get("channel")))}


def user_info(team: Team, args: Json) -> Json:
    user = team.users.get(str(args.get("user")))
    if user is None:
        raise SlackRefuses("user_not_found")
    profile = {"real_name": user.real_name, "display_name": user.name, "team": team.id}
    known = {"id": user.id, "team_id": team.id, "name": user.name, "deleted": False, "real_name": user.real_name}
    bot = user.id == team.bot_user
    return {"ok": True, "user": {**known, "profile": profile, "is_bot": bot, "is_app_user": False, "tz": "Etc/UTC"}}


def _channel(team: Team, channel: Channel) -> Json:
    kinds = {"is_channel": not channel.is_private, "is_group": channel.is_private, "is_im": False, "is_mpim": False}
    state = {"is_private": channel.is_private, "is_archived": channel.is_archived, "is_member": channel.is_member}
    named = {"id": channel.id, "name": channel.name, "name_normalized": channel.name, "is_general": False}
    return {**named, **kinds, **state, "context_team_id": team.id, "shared_team_ids": [team.id]}


def _on_top(message: Json) -> bool:
    return message.get("thread_ts", message["ts"]) == message["ts"] or message.get("subtype") == "thread_broadcast"


def _between(message: Json, args: Json) -> bool:
    moment, inclusive = _micros(message["ts"]), str(args.get("inclusive", "")).lower() in ("true", "1")
    oldest, latest = (_bound(args.get(name), f"invalid_ts_{name}") for name in ("oldest", "latest"))
    if inclusive:
        return (oldest is None or moment >= oldest) and (latest is None or moment <= latest)
    return (oldest is None or moment > oldest) and (latest is None or moment < latest)


def _bound(value: Any, error: str) -> int | None:
    if value in (None, "", 0, "0"):
        return None
    if not re.fullmatch(r"\d+(\.\d*)?", str(value)):
        raise SlackRefuses(error)
    return _micros(str(value))


def _micros(ts: str) -> int:
    seconds, _, fraction = ts.partition(".")
    return int(seconds) * 1_000_000 + int((fraction + "000000")[:6])


def _page(messages: list[Json], args: Json, usual: int, *, newest_first: bool = False) -> tuple[list[Json], str | None]:
    limit = str(args.get("limit") or usual)
    most = max(usual, limits.PAGE_MOST)
    if not limit.isdigit() or not 1 <= int(limit) <= most:
        raise SlackRefuses("invalid_limit")
    if args.get("cursor"):
        after = _from_cursor(str(args["cursor"]))
        messages = [
            one for one in messages if (_micros(one["ts"]) <= after if newest_first else _micros(one["ts"]) >= after)
        ]
    page, rest = messages[: int(limit)], messages[int(limit) :]
    return page, _cursor(rest[0]) if rest else None


def _cursor(message: Json) -> str:
    return base64.b64encode(f"next_ts:{_micros(message['ts'])}".encode()).decode()


def _from_cursor(cursor: str) -> int:
    try:
        named, _, micros = base64.b64decode(cursor, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise SlackRefuses("invalid_cursor") from None
    if named != "next_ts" or not micros.isdigit():
        raise SlackRefuses("invalid_cursor")
    return int(micros)


def _next(cursor: str | None) -> Json:
    return {"response_metadata": {"next_cursor": cursor}} if cursor else {}


def _all_shown(messages: list[Json], args: Json) -> list[Json]:
    everything = str(args.get("include_all_metadata", "")).lower() in ("true", "1")
    return [shown(one, with_metadata=everything) for one in messages]
