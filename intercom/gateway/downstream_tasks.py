"""The background tasks of a downstream's actor: they hold its connections, and check that it answers.

A task touches no state of the actor. It reports what has happened with a message.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final

import trio
from attrs import define, field, frozen

from intercom.gateway import pins
from intercom.gateway.breaker import Failure
from intercom.gateway.budgets import Usage
from intercom.gateway.connection import Connection, Listener
from intercom.gateway.downstream_config import DownstreamConfig, MissingVariables
from intercom.gateway.downstream_lists import DownstreamLists, read_lists
from intercom.gateway.handshake import HandshakeError
from intercom.gateway.messages import (
    AgentPeer,
    CallFailed,
    OfferChanged,
    ResourcesChanged,
    RpcError,
)
from intercom.gateway.pins import Changes, Mark, Pin
from intercom.gateway.resource_watchers import LONGEST_ADDRESS
from intercom.model.errors import ConfigError
from intercom.model.json_types import JsonObject
from intercom.store.store_and_reader import STORE_FAULTS

log = logging.getLogger("intercom.gateway")

#: How long a check of the connection, or the end of an old one, may take (seconds).
CHECK_TIMEOUT_SECONDS: Final = 10.0
#: How long all lists may take (seconds).
LIST_SECONDS: Final = 60.0
#: How often a downstream's announcements of changed lists are passed on at most (seconds).
ANNOUNCED_SECONDS: Final = 0.1
#: How long after the end of a stream of changes it is opened again at the earliest, and at the latest (seconds).
LISTEN_AGAIN_SECONDS: Final = 5.0
LISTEN_AGAIN_MAX_SECONDS: Final = 600.0
#: The most resources that are noted as changed until the actor takes them.
MOST_CHANGED: Final = 10_000
#: The longest line of a process that is shown as the reason of its end, in characters.
_SAID: Final = 300

#: Makes a connection: the configuration is expanded, the version is the one used last, if any.
Opener = Callable[[DownstreamConfig, "str | None", Listener], AbstractAsyncContextManager[Connection]]
#: Tells the actor.
Tell = Callable[[object], object]


@frozen
class ToolsPinned:
    """The tools of a downstream are pinned for the first time, because a person has just configured it."""

    name: str
    pins: tuple[Pin, ...]


@frozen
class ToolsChanged:
    """A downstream offers other tools than are pinned. `changes.is_none` if it no longer does."""

    name: str
    changes: Changes


@frozen
class DownstreamDeps:
    """What the actor of a downstream needs.

    `connect` makes a connection, `expand` replaces references in a configuration (in a thread: a keychain may ask).
    `recall` returns the pins, or None if the downstream was never pinned, what it has used today, and whether a person
    has disabled it. `log_level` returns the least severe log messages that any agent wants, None if none has said.
    `publish` tells the gateway `OfferChanged`, `ToolsPinned`, `ToolsChanged` and `ResourcesChanged`.
    `tell` (text, level) tells people. `forget` (downstream) makes all its results that are known old.
    """

    connect: Opener
    expand: Callable[[DownstreamConfig], DownstreamConfig]
    recall: Callable[[str], Awaitable[Recalled]]
    publish: Callable[[OfferChanged | ToolsPinned | ToolsChanged | ResourcesChanged], object]
    tell: Callable[[str, str], object]
    now: Callable[[], datetime]
    random: Callable[[], float]
    log_level: Callable[[], str | None] = lambda: None
    forget: Callable[[str], object] = lambda _name: None


@frozen
class Recalled:
    """What the store remembers of a downstream: its pins, None if it was never pinned, its usage of today, and who has
    disabled it. `faults` are sentences for people about what does not count of it, each told once."""

    pins: tuple[Pin, ...] | None
    usage: Usage
    disabled_by: str | None = None
    faults: tuple[str, ...] = ()


# --- what tasks report -----------------------------------------------------------------------------------------------


@frozen
class Connected:
    """The connection with this number is made, and its lists are read."""

    number: int
    connection: Connection
    lists: DownstreamLists


@frozen
class NotConnected:
    """The connection could not be made. `reason` continues "the connection ..."; `detail` is what it said itself."""

    number: int
    reason: str
    detail: str = ""


@frozen
class Lost:
    number: int
    reason: str


@frozen
class Listed:
    """The lists were read again; None if that failed."""

    number: int
    lists: DownstreamLists | None


@frozen
class ListsChanged:
    """The downstream says that one of its lists has changed."""


@define(eq=False)
class ResourcesUpdated:
    """The downstream says that resources have changed. Until the actor takes `addresses`, more are added."""

    addresses: set[str] = field(factory=set)


@frozen
class Watched:
    """The downstream tells of changes of the resources with these addresses, as far as it does that at all."""

    number: int
    addresses: frozenset[str]


@frozen
class Checked:
    number: int
    failure: Failure | None


@frozen
class Marked:
    """The marks of these pins, by the names of the tools that have any."""

    pins: tuple[Pin, ...]
    marks: Mapping[str, tuple[Mark, ...]]


@frozen
class AgentConnected:
    """The connection of one agent, the one with this number, is made."""

    agent: str
    number: int
    connection: Connection


@frozen
class AgentDisconnected:
    """The connection of one agent has ended, or could not be made. `reason` is as in `NotConnected`."""

    agent: str
    number: int
    reason: str


@frozen
class AgentConnectionOver:
    """The connection of an agent with this number is over: its process has ended."""

    number: int


# --- connections -----------------------------------------------------------------------------------------------------


async def hold_connection(
    deps: DownstreamDeps,
    config: DownstreamConfig,
    number: int,
    version: str | None,
    tell: Tell,
    after: trio.Event,
    over: trio.Event,
) -> None:
    """Make a connection, read the lists, and hold the connection until it is lost or this is cancelled. It begins when
    the connection before is over (`after`), whose process may hold locks; at its own end it sets `over`."""
    try:
        with trio.move_on_after(CHECK_TIMEOUT_SECONDS):
            await after.wait()
        await _hold(deps, config, number, version, tell)
    finally:
        # If this was cancelled before it began, the one before may still be ending.
        with trio.move_on_after(CHECK_TIMEOUT_SECONDS, shield=True):
            await after.wait()
        over.set()


async def _hold(deps: DownstreamDeps, config: DownstreamConfig, number: int, version: str | None, tell: Tell) -> None:
    try:
        expanded = await trio.to_thread.run_sync(deps.expand, config, abandon_on_cancel=True)
        async with deps.connect(expanded, version, _Tells(tell)) as connection:
            try:
                with trio.fail_after(config.startup_seconds):
                    lists = await read_lists(connection)
            except (RpcError, CallFailed, trio.TooSlowError) as failed:
                what = "it took too long" if isinstance(failed, trio.TooSlowError) else str(failed)
                raise HandshakeError("could not be used: its tools could not be listed", what) from failed
            tell(Connected(number, connection, lists))
            # Told at once: to end a process may take seconds.
            tell(Lost(number, await connection.wait_lost()))
    except HandshakeError as failed:
        tell(NotConnected(number, failed.reason, failed.detail or _last_line(failed.carrier.stderr)))
    except MissingVariables as missing:
        what = "could not be made: variables of its configuration have no value"
        tell(NotConnected(number, what, str(missing)))
    except ConfigError as fault:
        tell(NotConnected(number, "could not be made: its configuration has a fault", str(fault)))


async def hold_agent_connection(
    deps: DownstreamDeps, config: DownstreamConfig, agent: str, number: int, version: str | None, tell: Tell
) -> None:
    """Make the connection of one agent, and hold it until it is lost or this is cancelled."""
    try:
        await _hold_for_agent(deps, config, agent, number, version, tell)
    finally:
        tell(AgentConnectionOver(number))


async def _hold_for_agent(
    deps: DownstreamDeps, config: DownstreamConfig, agent: str, number: int, version: str | None, tell: Tell
) -> None:
    try:
        expanded = await trio.to_thread.run_sync(deps.expand, config, abandon_on_cancel=True)
        async with deps.connect(expanded, version, _Tells(lambda _message: None)) as connection:
            tell(AgentConnected(agent, number, connection))
            tell(AgentDisconnected(agent, number, await connection.wait_lost()))
    except HandshakeError as failed:
        tell(AgentDisconnected(agent, number, failed.reason))
    except MissingVariables:
        what = "could not be made: variables of its configuration have no value"
        tell(AgentDisconnected(agent, number, what))
    except ConfigError:
        tell(AgentDisconnected(agent, number, "could not be made: its configuration has a fault"))


async def recall_again(deps: DownstreamDeps, name: str, tell: Tell) -> None:
    """Recall once more what people have allowed. If the store does not answer, the next start does it."""
    try:
        tell(await deps.recall(name))
    except STORE_FAULTS as fault:
        log.warning("what is allowed of %s could not be recalled: %s", name, fault)


async def read_again(connection: Connection, number: int, tell: Tell) -> None:
    """Read the lists again."""
    lists: DownstreamLists | None = None
    try:
        with trio.fail_after(LIST_SECONDS):
            lists = await read_lists(connection)
    except (RpcError, CallFailed, trio.TooSlowError) as failed:
        log.warning("the lists of a downstream could not be read: %s", type(failed).__name__)
    tell(Listed(number, lists))


async def check(connection: Connection, number: int, tell: Tell) -> None:
    """Check with a request of the protocol that the downstream answers; an error is an answer too."""
    failure: Failure | None = None
    try:
        with trio.fail_after(CHECK_TIMEOUT_SECONDS):
            await connection.check()
    except RpcError:
        pass
    except trio.TooSlowError:
        failure = Failure.TIMEOUT
    except CallFailed as failed:
        if connection.is_lost:
            return
        failure = failed.failure
    tell(Checked(number, failure))


async def set_log_level(connection: Connection, level: str) -> None:
    """Ask for log messages of this severity and above. A downstream may refuse it."""
    try:
        with trio.fail_after(CHECK_TIMEOUT_SECONDS):
            await connection.request("logging/setLevel", {"level": level}, call=f"logging/setLevel {level}")
    except (RpcError, CallFailed, trio.TooSlowError) as failed:
        log.info("a downstream did not take the log level: %s", type(failed).__name__)


async def subscribe(
    connection: Connection, number: int, before: frozenset[str], wanted: frozenset[str], tell: Tell
) -> None:
    """Have a downstream of an older version tell of changes of the resources in `wanted`, and not of the others in
    `before`. It may refuse some."""
    methods = [("resources/subscribe", each) for each in sorted(wanted - before)]
    methods += [("resources/unsubscribe", each) for each in sorted(before - wanted)]
    for method, address in methods:
        try:
            with trio.fail_after(CHECK_TIMEOUT_SECONDS):
                await connection.request(method, {"uri": address}, call=method)
        except (RpcError, CallFailed, trio.TooSlowError) as failed:
            log.info("a downstream did not take %s: %s", method, type(failed).__name__)
            if connection.is_lost:
                return
    tell(Watched(number, wanted))


async def listen(connection: Connection, addresses: frozenset[str], tell: Tell) -> None:
    """Hold the stream on which a downstream of 2026-07-28 tells of changes: of its lists, and of these resources. A
    stream that ends is opened again, unless the downstream refuses it."""
    wanted: JsonObject = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
    if addresses:
        wanted["resourceSubscriptions"] = sorted(addresses)
    wait = LISTEN_AGAIN_SECONDS
    while not connection.is_lost:
        began = trio.current_time()
        try:
            await connection.request("subscriptions/listen", {"notifications": wanted}, call="subscriptions/listen")
        except RpcError as refused:
            log.info("a downstream does not tell of changes: it got the error %d", refused.code)
            return
        except CallFailed as failed:
            log.info("the stream of changes of a downstream has ended: %s", failed.reason)
        # A stream that always ends at once must not become a poll.
        wait = LISTEN_AGAIN_SECONDS if trio.current_time() - began > 60 else min(2 * wait, LISTEN_AGAIN_MAX_SECONDS)
        await trio.sleep(wait)
        # What has changed meanwhile was told to nobody.
        tell(ListsChanged())


async def find_marks(found: tuple[Pin, ...], tell: Tell) -> None:
    """Look for marks in definitions. This takes up to 3 s for each megabyte of text, so a thread does it."""
    tell(Marked(found, await trio.to_thread.run_sync(_marks, found, abandon_on_cancel=True)))


def _marks(found: tuple[Pin, ...]) -> dict[str, tuple[Mark, ...]]:
    return {each.name: marks for each in found if (marks := pins.marks(each))}


@define(eq=False)
class _Tells:
    """Tells the actor what the downstream announces outside of calls. A flood of announcements is one: the actor reads
    the lists later than the last one that is left out here."""

    tell: Tell = field(repr=False)
    _told_at: float = field(default=-math.inf, init=False)
    _updated: ResourcesUpdated = field(factory=ResourcesUpdated, init=False)

    def notified(self, method: str, params: JsonObject, agent: AgentPeer | None) -> None:
        if method.startswith("notifications/") and method.endswith("/list_changed"):
            now = trio.current_time()
            if now - self._told_at >= ANNOUNCED_SECONDS:
                self._told_at = now
                self.tell(ListsChanged())
        elif method == "notifications/resources/updated" and isinstance(address := params.get("uri"), str):
            addresses = self._updated.addresses
            if not addresses:
                self.tell(self._updated)
            if len(addresses) < MOST_CHANGED and len(address) <= LONGEST_ADDRESS:
                addresses.add(address)

    def junk(self, text: str) -> None:
        pass


def _last_line(text: str) -> str:
    """Return the last line that is not empty: what a process said before it ended."""
    return next((line.strip()[:_SAID] for line in reversed(text.splitlines()) if line.strip()), "")
