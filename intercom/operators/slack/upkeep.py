"""The maintenance of a socket: it opens one, replaces it before its end, and waits after failures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen

from intercom.operators.slack.errors import SlackError, SocketLost, Unreachable
from intercom.operators.slack.handling import Handling
from intercom.operators.slack.messages import ConnectionState
from intercom.operators.slack.socket_mode import Socket, SocketLimits, open_socket
from intercom.operators.slack.trouble import Disconnected, Patience, is_for_people, sentence, wait_after
from intercom.operators.slack.web import WebApi

log = logging.getLogger(__name__)


@frozen
class News:
    """The state of the connection; `trouble` is a sentence about the error, None if there is none."""

    state: ConnectionState
    trouble: str | None = None


@define(eq=False)
class _Live:
    """A socket on which Slack said hello. `over` is set once it must be replaced; `trouble` says why."""

    socket: Socket
    since: float
    reading: trio.CancelScope = field(factory=trio.CancelScope)
    over: trio.Event = field(factory=trio.Event)
    trouble: Exception = field(factory=lambda: SocketLost("slack closed the socket"))

    def end(self, trouble: Exception | None = None) -> None:
        if not self.over.is_set():
            self.trouble = trouble or self.trouble
            self.over.set()


class Upkeep:
    """Keeps one socket open while `run` runs, and reports each change to `report`. `opened` counts the sockets so far.
    `random` returns a number from 0 to 1."""

    def __init__(
        self,
        web: WebApi,
        handling: Handling,
        report: Callable[[News], None],
        limits: SocketLimits,
        patience: Patience,
        random: Callable[[], float],
    ) -> None:
        self.opened = 0
        self._web = web
        self._handling = handling
        self._report = report
        self._limits = limits
        self._patience = patience
        self._random = random
        self._live: list[_Live] = []
        self._heard_at: float | None = None
        self._stopping = trio.Event()

    @property
    def heard_at(self) -> float | None:
        """When Slack last sent anything, by Trio's clock; None if it never did."""
        return max((live.socket.heard_at for live in self._live), default=self._heard_at)

    async def run(self) -> None:
        """Keep a socket open until cancelled; then give running handlers a short time to end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_shielded)
            try:
                await trio.sleep_forever()
            finally:
                self._stopping.set()

    async def _run_shielded(self) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                keeping = trio.CancelScope()
                nursery.start_soon(self._keep, keeping, nursery)
                await self._stopping.wait()
                keeping.cancel()
                with trio.move_on_after(self._patience.stop):
                    await self._handling.until_idle()
                with trio.move_on_after(self._limits.closing):
                    for live in self._live:
                        await _bid_farewell(live.socket)
                nursery.cancel_scope.cancel()

    async def _keep(self, scope: trio.CancelScope, nursery: trio.Nursery) -> None:
        failures = 0
        with scope:
            while True:
                for old in self._live[:-1]:
                    old.reading.cancel()
                try:
                    live: _Live = await nursery.start(self._attend, nursery)
                except (SlackError, Disconnected) as failed:
                    trouble: Exception = failed
                    failures += 1
                else:
                    for old in self._live[:-1]:
                        old.reading.deadline = trio.current_time() + self._patience.overlap
                    await live.over.wait()
                    trouble = live.trouble
                    failures = 1 if trio.current_time() - live.since >= self._patience.stable else failures + 1
                seconds = wait_after(trouble, failures, self._patience, self._random())
                log.info("slack's socket is opened anew in %.1f s: %s", seconds, sentence(trouble))
                if not self._live:
                    self._report(News(_state(trouble, seconds), sentence(trouble)))
                await trio.sleep(seconds)

    async def _attend(
        self, nursery: trio.Nursery, *, task_status: trio.TaskStatus[_Live] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Open a socket, report when Slack has said hello, and read it to its end."""
        url = (await self._web.call("apps.connections.open", app=True)).get("url")
        if not isinstance(url, str):
            raise Unreachable("slack gave no address for a socket", maybe_done=False)
        async with open_socket(self._web, url, self._limits) as socket:
            live = _Live(socket, trio.current_time())
            await self._greeted(live, nursery)
            self._live.append(live)
            self.opened += 1
            self._report(News(ConnectionState.UP))
            task_status.started(live)
            try:
                with live.reading:
                    await self._read(live, nursery)
                    live.end()
                with trio.move_on_after(self._limits.closing):
                    await _bid_farewell(socket)
                    await self._read(live, nursery)
            except SocketLost as lost:
                live.end(lost)
            finally:
                self._heard_at = socket.heard_at
                self._live.remove(live)
                if not self._live and not self._stopping.is_set():
                    self._report(News(_state(live.trouble, 0.0), sentence(live.trouble)))

    async def _greeted(self, live: _Live, nursery: trio.Nursery) -> None:
        with trio.move_on_after(self._limits.opening):
            while (message := await live.socket.next()) is not None:
                if message.get("type") == "hello":
                    return
                self._on(live, message, nursery)
                if live.over.is_set():
                    raise live.trouble
            raise SocketLost("slack closed the socket before it said hello")
        raise SocketLost(f"slack did not say hello within {self._limits.opening:g} s")

    async def _read(self, live: _Live, nursery: trio.Nursery) -> None:
        while (message := await live.socket.next()) is not None:
            self._on(live, message, nursery)

    def _on(self, live: _Live, message: dict[str, Any], nursery: trio.Nursery) -> None:
        match message.get("type"):
            case "hello":
                pass
            case "disconnect":
                live.end(Disconnected(str(message.get("reason"))))
            case _ if not self._stopping.is_set():
                self._handling.take(message, partial(self._acknowledge, live.socket), nursery)

    async def _acknowledge(self, came_by: Socket, answer: dict[str, Any]) -> None:
        # Slack accepts an acknowledgement on any of the app's sockets.
        others = [live.socket for live in reversed(self._live) if live.socket is not came_by]
        for socket in (came_by, *others):
            try:
                await socket.send(answer)
            except SocketLost:
                continue
            return
        log.info("no socket was up to acknowledge an envelope by; slack will send it again")


async def _bid_farewell(socket: Socket) -> None:
    try:
        await socket.say_goodbye()
    except SocketLost:
        pass


def _state(trouble: Exception, seconds: float) -> ConnectionState:
    if is_for_people(trouble):
        return ConnectionState.REFUSED
    return ConnectionState.WAITING if seconds else ConnectionState.CONNECTING
