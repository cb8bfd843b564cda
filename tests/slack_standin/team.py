"""What a Slack team holds: people, channels with their messages, files, modals, and what may be used only so often.

Messages, files and views are kept as the JSON that goes over the wire. Time is Trio's (virtual under a mock clock),
counted from the moment the stand-in started.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable
from typing import Any, TypeVar

import trio
from attrs import define, field, frozen

from tests.slack_standin import limits

Json = dict[str, Any]
T = TypeVar("T")

_SCOPES = (
    "channels:history channels:join channels:read chat:write commands files:read files:write groups:history "
    "groups:read users:read"
)
BOT_SCOPES = frozenset(_SCOPES.split())
APP_SCOPES = frozenset({"connections:write"})


class SlackRefuses(Exception):
    """The Web API answers `ok: false` with this word, and perhaps more."""

    def __init__(self, error: str, **more: Any) -> None:
        super().__init__(error)
        self.body: Json = {"ok": False, "error": error, **more}


@frozen
class User:
    id: str
    name: str
    real_name: str


@define
class Channel:
    id: str
    name: str
    is_member: bool = True  # the app's bot, that is
    is_private: bool = False
    is_archived: bool = False
    messages: dict[str, Json] = field(factory=dict)  # by ts, in order


@define
class Trigger:
    user: str
    expires: float
    used: bool = False


@define
class ResponseUrl:
    channel: str
    user: str
    expires: float
    left: int


@define
class Upload:
    file: Json
    length: int
    url: str
    data: bytes | None = None
    completed: bool = False


@define
class Modal:
    """A modal on somebody's screen; `errors` are shown beside its inputs, by block_id."""

    user: str
    view: Json
    errors: dict[str, str] = field(factory=dict)


class Team:
    """The state of one Slack team with one app installed."""

    def __init__(self, *, app_token: str, bot_token: str, epoch: float | None = None) -> None:
        self.app_token, self.bot_token = app_token, bot_token
        self.bot_scopes, self.app_scopes = BOT_SCOPES, APP_SCOPES
        self.revoked: dict[str, str] = {}  # a token that is good no more -> the error it gets
        self.socket_mode = True
        self.id, self.domain, self.app_id = "T0TEAM001", "standin", "A0APP0001"
        self.bot_user, self.bot_id, self.bot_name = "U0BOT0001", "B0BOT0001", "intercom"
        self.users: dict[str, User] = {self.bot_user: User(self.bot_user, self.bot_name, "Intercom")}
        self.channels: dict[str, Channel] = {}
        self.ephemerals: list[Json] = []
        self.uploads: dict[str, Upload] = {}
        self.modals: dict[str, Modal] = {}
        self.triggers: dict[str, Trigger] = {}
        self.response_urls: dict[str, ResponseUrl] = {}
        self.base_url = ""
        self.version = 0
        self._changed = trio.Event()
        self._counter = itertools.count(1)
        self._started, self._epoch = trio.current_time(), time.time() if epoch is None else epoch
        self._last_ts = 0

    # Time and names

    def now(self) -> float:
        """Seconds since the epoch, by Trio's clock."""
        return self._epoch + trio.current_time() - self._started

    def stamp(self) -> str:
        """A new message timestamp: unique and rising."""
        self._last_ts = max(self._last_ts + 100, int(self.now() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def name(self, prefix: str) -> str:
        """A new id such as Slack gives."""
        return f"{prefix}0{next(self._counter):08d}"

    # Changes

    def change(self) -> None:
        """Wake whoever waits for something to be so."""
        self.version += 1
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for(self, predicate: Callable[[], T], seconds: float = 30) -> T:
        """The first true answer of `predicate`, asked again after every change; TimeoutError after `seconds`."""
        with trio.move_on_after(seconds):
            while True:
                changed = self._changed
                if found := predicate():
                    return found
                await changed.wait()
        if found := predicate():
            return found
        raise TimeoutError(f"not so within {seconds} s: {predicate}")

    # Looking things up, as a method does it

    def channel(self, name: Any, *, member: bool = False, writable: bool = False) -> Channel:
        """The channel of this id or name.

        Raises:
            SlackRefuses: channel_not_found, not_in_channel (if `member`), is_archived (if `writable`).
        """
        if not name:
            raise SlackRefuses("invalid_arguments", response_metadata={"messages": ["[ERROR] missing required field"]})
        found = self.channels.get(str(name))
        if found is None:
            found = next((one for one in self.channels.values() if one.name == str(name).removeprefix("#")), None)
        if found is None or (found.is_private and not found.is_member):
            raise SlackRefuses("channel_not_found")
        if writable and found.is_archived:
            raise SlackRefuses("is_archived")
        if member and not found.is_member:
            raise SlackRefuses("not_in_channel")
        return found

    def trigger(self, user: str) -> str:
        """A new trigger_id for what this person did: good once and for three seconds."""
        name = f"{next(self._counter)}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"
        self.triggers[name] = Trigger(user, trio.current_time() + limits.TRIGGER_LIVES)
        return name

    def spend(self, trigger_id: Any) -> str:
        """Use a trigger_id up; returns whose act it came of.

        Raises:
            SlackRefuses: it is unknown, expired or used already.
        """
        trigger = self.triggers.get(str(trigger_id))
        if trigger is None:
            raise SlackRefuses("invalid_trigger_id")
        if trigger.used:
            raise SlackRefuses("exchanged_trigger_id")
        if trio.current_time() > trigger.expires:
            raise SlackRefuses("expired_trigger_id")
        trigger.used = True
        return trigger.user

    def response_url(self, channel: str, user: str) -> str:
        """A new response_url for what this person did here."""
        key = secrets.token_hex(12)
        lives = trio.current_time() + limits.RESPONSE_URL_LIVES
        self.response_urls[key] = ResponseUrl(channel, user, lives, limits.RESPONSE_URL_USES)
        return f"{self.base_url}/response/{key}"
