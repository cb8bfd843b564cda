"""What people do in Slack's own apps: press, fill in, write, type a command."""

from __future__ import annotations

import copy
import html
import re
from typing import Any

from tests.slack_standin import chat, modals
from tests.slack_standin.sockets import Envelope, SocketMode
from tests.slack_standin.team import Channel, Json, Modal, SlackRefuses, Team, User

TROUBLE = "We had some trouble connecting. Try again?"


class CannotDo(Exception):
    """Slack's own app does not let a person do this: there is no such button, a field is missing or too long."""


class People:
    """Everybody but the app. An act returns the Envelope that tells the app; `await envelope.answer()` for its ack."""

    def __init__(self, team: Team, socket_mode: SocketMode) -> None:
        self._team, self._sockets = team, socket_mode

    def tap(self, user: str, message: Json | str, action_id: str) -> Envelope:
        """Press a button of a message.

        Args:
            message: its ts, or the message as somebody's phone still shows it: a stale copy has its old buttons.

        Raises:
            CannotDo: the message shows no such button.
        """
        channel, kept, ephemeral = self._find(message if isinstance(message, str) else message["ts"])
        seen = kept if isinstance(message, str) else message
        action = _action(seen, action_id)
        payload = block_actions(self._team, self._user(user), channel, kept or seen, action, ephemeral=ephemeral)
        return self._sockets.send("interactive", payload, accepts_response=False)

    def submit(self, user: str, view: Json | str, values: dict[str, str] | None = None) -> Envelope:
        """Fill in a modal and send it.

        Args:
            view: it, or its id or callback_id.
            values: what goes into the inputs, by block_id or action_id; others keep what they were given. For check
                boxes it is the values of those that are ticked, with commas between.

        Raises:
            CannotDo: it is not on this person's screen, an input that is wanted is empty, or a text is too long.
        """
        modal = self._modal(user, view)
        if modal.view["submit"] is None:
            raise CannotDo("this modal has no button to submit it")
        state = _filled(modal.view, dict(values or {}))
        sent = copy.deepcopy(modal.view)
        sent["state"] = {"values": state}
        modal.errors = {}
        payload = view_submission(self._team, self._user(user), sent)
        return self._sockets.send(
            "interactive",
            payload,
            accepts_response=True,
            honour=lambda answer: self._submitted(modal, answer),
            shown_error=lambda: modal.errors.update({"": TROUBLE}),
        )

    def close_view(self, user: str, view: Json | str) -> None:
        """Put a modal away."""
        del self._team.modals[self._modal(user, view).view["id"]]
        self._team.change()

    def command(self, user: str, channel: str, text: str, command: str = "/intercom") -> Envelope:
        """Type a slash command."""
        place = self._team.channel(channel)
        payload = slash_command(self._team, self._user(user), place, command, html.escape(text, quote=False))
        return self._sockets.send(
            "slash_commands",
            payload,
            accepts_response=True,
            honour=lambda answer: self._commanded(place, user, answer),
            shown_error=lambda: self._failed(place, user, command),
        )

    def say(self, user: str, channel: str, text: str, thread_ts: str | None = None) -> Json:
        """Write a message, or a reply; returns it as kept. The app is told if it is in the channel."""
        place = self._team.channel(channel)
        message: Json = {"type": "message", "user": self._user(user).id, "text": _typed(text), "team": self._team.id}
        message["client_msg_id"] = self._team.name("msg-")
        if thread_ts is not None:
            message["thread_ts"] = thread_ts
        kept = chat.put(self._team, place, message)
        self.tell(place, chat.shown(kept))
        return kept

    def tell(self, channel: Channel, event: Json) -> Envelope | None:
        """Let the app know of a message, if it may know."""
        scope = "groups:history" if channel.is_private else "channels:history"
        if not channel.is_member or scope not in self._team.bot_scopes:
            return None
        payload = event_callback(self._team, channel, event)
        return self._sockets.send("events_api", payload, accepts_response=False)

    # What the app answers

    def _submitted(self, modal: Modal, answer: Json | None) -> None:
        team, what = self._team, (answer or {}).get("response_action")
        try:
            if what == "errors":
                inputs = {block["block_id"] for block in modal.view["blocks"] if block["type"] == "input"}
                errors = dict((answer or {}).get("errors") or {})
                if not errors or set(errors) - inputs:
                    raise SlackRefuses("errors name no input of this view")
                modal.errors = errors
            elif what == "update":
                modals.replace(team, modal, modals.checked_view((answer or {}).get("view")))
            elif what is None and not answer:
                team.modals.pop(modal.view["id"], None)
            else:
                raise SlackRefuses(f"unknown response_action: {what}")
        except SlackRefuses as refusal:
            modal.errors = {"": f"{TROUBLE} ({refusal})"}
            self._sockets.strange.append(dict(answer or {}))
        team.change()

    def _commanded(self, channel: Channel, user: str, answer: Json | None) -> None:
        if not answer:
            return
        try:
            respond(self._team, channel, user, answer)
        except SlackRefuses as refusal:
            self._sockets.strange.append({**answer, "error": str(refusal)})

    def _failed(self, channel: Channel, user: str, command: str) -> None:
        said = {"user": "USLACKBOT", "text": f'{command} failed with the error "operation_timeout"'}
        chat.add_ephemeral(self._team, channel.id, user, said)

    # Looking things up

    def _user(self, user: str) -> User:
        found = self._team.users.get(user)
        if found is None:
            raise CannotDo(f"there is no user {user}")
        return found

    def _find(self, ts: str) -> tuple[Channel, Json, bool]:
        for channel in self._team.channels.values():
            if ts in channel.messages:
                return channel, channel.messages[ts], False
        for ephemeral in self._team.ephemerals:
            if ephemeral["ts"] == ts:
                return self._team.channels[ephemeral["channel"]], ephemeral, True
        raise CannotDo(f"there is no message {ts}")

    def _modal(self, user: str, view: Json | str) -> Modal:
        wanted = view if isinstance(view, str) else view["id"]
        for modal in reversed(list(self._team.modals.values())):
            if modal.user == user and wanted in (modal.view["id"], modal.view["callback_id"]):
                return modal
        raise CannotDo(f"{user} sees no modal {wanted}")


def respond(team: Team, channel: Channel, user: str, body: Json) -> None:
    """Do what an app says through a response_url, or in the ack of a command.

    Raises:
        SlackRefuses: no_text, invalid_blocks and so on.
    """
    content: Json = {"text": str(body.get("text") or "")}
    if body.get("blocks") is not None:
        content["blocks"] = chat.checked_blocks(body["blocks"])
    if not content["text"] and not content.get("blocks"):
        raise SlackRefuses("no_text")
    chat.add_ephemeral(team, channel.id, user, content)


def _typed(text: str) -> str:
    return re.sub(r"https?://[^\s<>|]+", lambda url: f"<{url[0]}>", html.escape(text, quote=False))


def _action(message: Json, action_id: str) -> Json:
    for block in message.get("blocks", []):
        for element in block.get("elements", []):
            if element.get("action_id") == action_id:
                told = {name: element[name] for name in ("text", "value", "style", "url") if name in element}
                shape = {"action_id": action_id, "block_id": block["block_id"], "type": element["type"]}
                return {**shape, **copy.deepcopy(told)}
    raise CannotDo(f"message {message['ts']} shows no {action_id}: {message.get('text')}")


def _filled(view: Json, values: dict[str, str]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for block in view["blocks"]:
        if block["type"] != "input":
            continue
        element = block["element"]
        action_id = element.setdefault("action_id", "input")
        if element["type"] == "checkboxes":
            ticked = values.pop(block["block_id"], None)
            chosen = element.get("initial_options", []) if ticked is None else _ticked(element["options"], ticked)
            if not chosen and not block.get("optional"):
                raise CannotDo(f"{block['block_id']}: please complete this required field")
            state.setdefault(block["block_id"], {})[action_id] = {"type": "checkboxes", "selected_options": chosen}
            continue
        given = values.pop(block["block_id"], values.pop(action_id, None))
        value = element.get("initial_value") if given is None else given
        if not value and not block.get("optional"):
            raise CannotDo(f"{block['block_id']}: please complete this required field")
        if len(value or "") > element.get("max_length", 3000):
            raise CannotDo(f"{block['block_id']}: too long")
        state.setdefault(block["block_id"], {})[action_id] = {"type": "plain_text_input", "value": value or None}
    if values:
        raise CannotDo(f"this modal has no input {', '.join(values)}")
    return state


def _ticked(options: list[Json], values: str) -> list[Json]:
    """The options with these values, which have commas between them."""
    wanted = {value for value in values.split(",") if value}
    if unknown := wanted - {option["value"] for option in options}:
        raise CannotDo(f"there is no check box {', '.join(sorted(unknown))}")
    return [option for option in options if option["value"] in wanted]


# What Slack tells an app when somebody does something: the payloads of envelopes, in Slack's shapes

TOKEN = "verification-token-nobody-uses"


def block_actions(team: Team, user: User, channel: Channel, message: Json, action: Json, *, ephemeral: bool) -> Json:
    container = {"type": "message", "message_ts": message["ts"], "channel_id": channel.id, "is_ephemeral": ephemeral}
    if message.get("thread_ts"):
        container["thread_ts"] = message["thread_ts"]
    url = team.response_url(channel.id, user.id)
    where = {
        "container": container,
        "channel": {"id": channel.id, "name": channel.name},
        "message": chat.shown(message),
    }
    what = {"actions": [{**action, "action_ts": team.stamp()}], "state": {"values": {}}, "response_url": url}
    return {"type": "block_actions", **_from(team, user), **where, **what}


def view_submission(team: Team, user: User, view: Json) -> Json:
    return {"type": "view_submission", **_from(team, user), "view": view, "response_urls": []}


def slash_command(team: Team, user: User, channel: Channel, command: str, text: str) -> Json:
    who = {"team_id": team.id, "team_domain": team.domain, "user_id": user.id, "user_name": user.name}
    where = {"channel_id": channel.id, "channel_name": channel.name}
    what = {"command": command, "text": text, "api_app_id": team.app_id, "is_enterprise_install": "false"}
    back = {"response_url": team.response_url(channel.id, user.id), "trigger_id": team.trigger(user.id)}
    return {"token": TOKEN, **who, **where, **what, **back}


def event_callback(team: Team, channel: Channel, inner: Json) -> Json:
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
