"""The `rooms` commands of ctl: rooms in which teams of agents work together.

They are sent to the usual server. If that has no rooms, or none runs, they go to the server of `agent-intercom rooms`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from intercom.cli.ctl_text import clean, one_line, short
from intercom.local.places import ROOMS_IPC_NAME, Places, places
from intercom.model.json_types import Json, JsonObject
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.ctl.client import NoServer, Refusal, request
from intercom.rooms.roster import SERVER_LABEL, labelled

#: Seconds between two requests for more messages.
_PAUSE = 0.5
_INDENT = "    "


class _Message(TypedDict):
    """A message of a room, as the server sends it. A system message has no author."""

    cursor: int
    at: str
    type: str
    author: str
    role: str
    content: Mapping[str, Json]


class _Piece(TypedDict):
    """A part of a room's feed, as the server sends it."""

    room_id: str
    is_closed: bool
    messages: list[_Message]


class _Address(TypedDict):
    """The address of the rooms, as the server sends it. `is_set` says that a person chose it."""

    url: str | None
    is_set: bool


def rooms(
    where: Places, command: str, fields: JsonObject, *, is_chosen: bool, follow: bool = False, as_json: bool = False
) -> int:
    """Run one of the commands. `is_chosen` says that the user named the server, so no other is asked. Raises what
    `request` raises."""
    server = _Server(where, is_chosen)
    if command == "rooms-tail":
        return _tail(server, fields, follow=follow, as_json=as_json)
    if command == "rooms-url" and "url" not in fields:
        command = "rooms-url-show"
    if command == "rooms-export":
        fields = {**fields, "format": "json" if as_json else "markdown"}
    data = server.ask(command, fields)
    if as_json:
        print(json.dumps(data["content"] if command == "rooms-export" else data))
    elif COMMANDS[command].draws:
        from intercom.cli import ctl_draw

        ctl_draw.show(command, data)
    else:
        _say(command, data)
    return 0


class _Server:
    """The server that has the rooms."""

    def __init__(self, where: Places, is_chosen: bool) -> None:
        self._where = where
        self._other = None if is_chosen or where.ipc_name == ROOMS_IPC_NAME else places(ROOMS_IPC_NAME)

    def ask(self, command: str, fields: JsonObject) -> Any:
        """Send a command. Raises what `request` raises."""
        try:
            return request(self._where, command, fields)
        except NoServer:
            if self._other is None or not os.path.exists(self._other.ctl_socket):
                raise
        except Refusal as refusal:
            if refusal.code != "no_rooms" or self._other is None or not os.path.exists(self._other.ctl_socket):
                raise
        self._where, self._other = self._other, None
        return request(self._where, command, fields)


def _tail(server: _Server, fields: JsonObject, *, follow: bool, as_json: bool) -> int:
    """Print the newest messages of a room; with `follow`, new ones until the room is closed."""
    piece: _Piece = server.ask("rooms-tail", fields)
    _print_messages(piece, as_json)
    cursor = _cursor(piece, 0)
    while follow and not (piece["is_closed"] and not piece["messages"]):
        if not piece["messages"]:
            time.sleep(_PAUSE)
        piece = server.ask("rooms-tail", {"id": piece["room_id"], "start": cursor})
        cursor = _cursor(piece, cursor)
        if piece["messages"]:
            _print_messages(piece, as_json)
    if follow and not as_json:
        print(f"[{short(piece['room_id'])} is closed: agent-intercom-ctl rooms show has its document]", file=sys.stderr)
    return 0


def _cursor(piece: _Piece, otherwise: int) -> int:
    return piece["messages"][-1]["cursor"] if piece["messages"] else otherwise


def _print_messages(piece: _Piece, as_json: bool) -> None:
    if as_json:
        print(json.dumps(piece), flush=True)
        return
    for message in piece["messages"]:
        # An agent wrote this; it must not control the terminal, nor look like another message.
        head = f"#{message['cursor']} {message['at'][11:19]}"
        if message["type"] == "system":
            print(one_line(f"{head} {SERVER_LABEL} {event_line(message['content'])}"))
            continue
        who = labelled(message["author"], message["role"])
        text = clean(str(message["content"].get("text", ""))).strip("\n")
        lines = text.split("\n")
        first = one_line(f"{head} {who}:")
        print(f"{first} {text}" if len(lines) == 1 else "\n".join([first, *(f"{_INDENT}{line}" for line in lines)]))
    sys.stdout.flush()


#: The event of a system message, and what it says of it. A word in braces is a field of the message.
_EVENTS = {
    "session_created": "{by} opened the room",
    "team_joined": "{team} joined",
    "team_left": "{team} left",
    "team_dropped": "{team} is gone: it does not call any more",
    "team_rejoined": "{team} is back",
    "session_metadata_updated": "{by} changed {changes}",
    "message_pinned": "{by} pinned message {cursor}",
    "message_unpinned": "{by} took the pin of message {cursor} away",
    "loop_warning": "many messages without progress: the room is paused soon",
    "session_paused": "{by} paused the room",
    "session_resumed": "{by} let the teams continue",
    "session_concluded": "{by} concluded the room",
    "session_reopened": "{by} opened the room again",
}


def event_line(content: Mapping[str, Json]) -> str:
    """Say what a system message says, as a line for people."""
    event = str(content.get("event", "?"))
    known = _EVENTS.get(event)
    if known is None:
        line = event.replace("_", " ")
    else:
        said = dict.fromkeys(("team", "by", "changes", "cursor"), "somebody")
        line = known.format_map(said | {name: _word(value) for name, value in content.items()})
    reason = content.get("reason") or content.get("advice")
    return f"{line}: {reason}" if reason else line


def _word(value: Json) -> str:
    return ", ".join(str(each) for each in value) if isinstance(value, list | dict) else str(value)


def _say(command: str, data: Any) -> None:
    """Print the answer to a command that is not drawn."""
    match command:
        case "rooms-export":
            _print_text(data["content"])
        case "rooms-doc":
            _print_text(data.get("diff", data["content"]))
        case "rooms-instructions":
            _print_text(data["text"])
        case "rooms-versions":
            for each in data["versions"]:
                print(
                    one_line(
                        f"version {each['version']}, {each['written_at'][:19].replace('T', ' ')}, {each['author']}"
                    )
                )
        case "rooms-url" | "rooms-url-show":
            _say_address(data)
        case "rooms-token":
            print(data["token"])
            about = f"a token for {data['title']}: send it as X-Team-ID, or as team_id over MCP; it is shown only now"
            print(one_line(about), file=sys.stderr)
        case "rooms-post":
            print(f"posted message {data['cursor']} to {short(data['room_id'])}")
        case _:
            print(one_line(f"{data['status']} {short(data['room_id'])}: {data['title']}"))


def _print_text(text: str) -> None:
    """Print the teams' words, made safe for a terminal; in a file they are as they were written."""
    sys.stdout.write(clean(text) if sys.stdout.isatty() else text)


def _say_address(data: _Address) -> None:
    if data["url"] is None:
        print("no address: this server has no HTTP port; set http_port in its configuration")
        return
    how = "set by a person; --clear takes that of the settings" if data["is_set"] else "rooms url URL changes it"
    print(one_line(f"teams reach the rooms at {data['url']} ({how})"))
    print(one_line(f"  instructions for agents: {data['url'].rstrip('/')}/agents.md"))
