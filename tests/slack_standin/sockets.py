"""Socket Mode: the WebSockets, the envelopes that go out by any of them, the acks that come back."""

from __future__ import annotations

import json
import math
import uuid
from collections import deque
from collections.abc import Callable, Sequence

import trio
from attrs import define, field
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.slack_standin import limits
from tests.slack_standin.faults import Faults
from tests.slack_standin.listening import WIRE, Wire
from tests.slack_standin.team import Json, SlackRefuses, Team


class Unanswered(Exception):
    """Slack delivered something as often as it does, and had no ack in time. A person saw an error."""


@define(eq=False)
class Envelope:
    """Something that happened, on its way to the app. `missed` counts the times nobody acked within three seconds."""

    id: str
    kind: str
    payload: Json
    accepts_response: bool
    honour: Callable[[Json | None], None] | None = None
    shown_error: Callable[[], None] | None = None
    attempts: int = 0
    missed: int = 0
    acks: list[Json] = field(factory=list)  # every one that came, in time or not
    response: Json | None = None
    sent_by: list[str] = field(factory=list)
    waiting: bool = False
    acked: trio.Event = field(factory=trio.Event)
    over: trio.Event = field(factory=trio.Event)  # acked, or given up

    async def answer(self) -> Json | None:
        """The payload of the ack, once it has come in time.

        Raises:
            Unanswered: the last delivery was not acked either.
        """
        await self.over.wait()
        if not self.acked.is_set():
            raise Unanswered(f"{self.kind}: no ack after {self.attempts} deliveries")
        return self.response


@define(eq=False)
class Socket:
    name: str
    websocket: WebSocket
    wire: Wire
    open: bool = True

    async def send(self, message: Json) -> None:
        try:
            await self.websocket.send_text(json.dumps(message))
        except (WebSocketDisconnect, RuntimeError, OSError):
            self.open = False


class SocketMode:
    """`redeliver`: seconds to wait before each delivery of the same (the first goes at once); then it is given up."""

    def __init__(
        self, team: Team, faults: Faults, nursery: trio.Nursery, *, ack_within: float, redeliver: Sequence[float]
    ) -> None:
        self._team, self._faults, self._nursery = team, faults, nursery
        self.ack_within, self.redeliver = ack_within, tuple(redeliver)
        self.lifetime: float | None = None
        self.sockets: list[Socket] = []
        self.opened = 0
        self.envelopes: list[Envelope] = []
        self.pending: set[Envelope] = set()  # neither acked nor given up
        self._by_id: dict[str, Envelope] = {}
        self.unanswered: list[Envelope] = []  # missed at least once: the person saw an error
        self.strange: list[Json | str] = []  # what came over a socket and is no ack of anything sent
        self._tickets: dict[str, float] = {}
        self._waiting: deque[Envelope] = deque()  # to be sent as soon as there is a socket, in order
        self._held: list[tuple[Envelope, Json]] = []
        self._turn = 0

    # Connections

    def open_connection(self, base_url: str) -> Json:
        """apps.connections.open: a URL good for one socket."""
        if not self._team.socket_mode:
            raise SlackRefuses("socket_mode_disabled")  # Slack's own word for it is not published
        ticket = str(uuid.uuid4())
        self._tickets[ticket] = trio.current_time() + limits.TICKET_LIVES
        url = f"{base_url.replace('http', 'ws', 1)}/link/?ticket={ticket}&app_id={self._team.app_id}"
        return {"ok": True, "url": url}

    async def connect(self, websocket: WebSocket) -> None:
        """The life of one socket."""
        expires = self._tickets.pop(websocket.query_params.get("ticket", ""), 0.0)
        denied = self._faults.spend("deny_connects") or trio.current_time() > expires
        if not self._faults.step("connecting", websocket) or denied:
            await websocket.send_denial_response(PlainTextResponse("no", status_code=403))
            return
        await websocket.accept()
        self.opened += 1
        socket = Socket(f"socket-{self.opened}", websocket, WIRE.get())
        if len(self.live()) >= limits.CONNECTIONS:
            await socket.send(self._disconnect("too_many_websockets"))
            await websocket.close()
            return
        self.sockets.append(socket)
        await socket.send(self._hello())
        self._faults.step("connected", socket)
        self._team.change()
        if self.lifetime is not None:
            self._nursery.start_soon(self._retire, socket, self.lifetime)
        try:
            while True:
                self._heard(socket, await websocket.receive_text())
        except (WebSocketDisconnect, RuntimeError, KeyError):
            pass
        finally:
            socket.open = False
            self.sockets.remove(socket)
            self._team.change()

    def live(self) -> list[Socket]:
        return [one for one in self.sockets if one.open]

    def drop(self, how: str = "clean", which: Socket | None = None) -> int:
        """Lose the sockets (or one): `clean` with a close frame, `abrupt` with a reset, `freeze` without a sign."""
        chosen = self.live() if which is None else [which]
        for socket in chosen:
            if how == "freeze":
                socket.wire.freeze()
            elif how == "abrupt":
                socket.open = False
                socket.wire.cut()
            elif how == "clean":
                socket.open = False
                self._nursery.start_soon(_close, socket)
            else:
                raise ValueError(f"no such way to lose a socket: {how}")
        self._team.change()
        return len(chosen)

    def refresh(self, *, warned: float = limits.WARNED_BEFORE) -> None:
        """Take the present sockets away as Slack does every hour or so: a warning, then `refresh_requested`."""
        for socket in self.live():
            self._nursery.start_soon(self._retire, socket, warned, warned)

    async def _retire(self, socket: Socket, after: float, warned: float = limits.WARNED_BEFORE) -> None:
        await trio.sleep(max(0.0, after - warned))
        if socket.open:
            await socket.send(self._disconnect("warning"))
            await trio.sleep(min(after, warned))
        if socket.open:
            await self._say_goodbye(socket, "refresh_requested")

    async def _say_goodbye(self, socket: Socket, reason: str) -> None:
        await socket.send(self._disconnect(reason))
        socket.open = False
        self._team.change()
        # Slack leaves it to the app to close; it closes for it in the end.
        await trio.sleep(limits.WARNED_BEFORE)
        await _close(socket)

    def _hello(self) -> Json:
        debug = {"host": "applink-standin", "build_number": 1, "approximate_connection_time": 3600}
        info: Json = {"connection_info": {"app_id": self._team.app_id}, "num_connections": len(self.live())}
        return {"type": "hello", **info, "debug_info": debug}

    def _disconnect(self, reason: str) -> Json:
        return {"type": "disconnect", "reason": reason, "debug_info": {"host": "applink-standin"}}

    # Envelopes

    def send(
        self,
        kind: str,
        payload: Json,
        *,
        accepts_response: bool,
        honour: Callable[[Json | None], None] | None = None,
        shown_error: Callable[[], None] | None = None,
    ) -> Envelope:
        """Deliver this until it is acked.

        Args:
            honour: told the payload of the ack.
            shown_error: called when the first delivery was not acked in time, for what the person sees then.
        """
        envelope = Envelope(str(uuid.uuid4()), kind, payload, accepts_response, honour, shown_error)
        self.envelopes.append(envelope)
        self.pending.add(envelope)
        self._by_id[envelope.id] = envelope
        self._waiting.append(envelope)
        self._nursery.start_soon(self._deliver, envelope)
        self._team.change()
        return envelope

    async def pump(self) -> None:
        """Send what waits, first come first served, for ever."""
        while True:
            await self._team.wait_for(lambda: self._waiting and self.live(), seconds=math.inf)
            envelope = self._waiting.popleft()
            self._faults.step("envelope", envelope)
            if not self.live():
                self._waiting.appendleft(envelope)
                continue
            envelope.attempts += 1
            await self._transmit(envelope, self._message(envelope))

    async def again(self, envelope: Envelope) -> None:
        """Deliver once more what was delivered already, whether or not it was acked."""
        envelope.attempts += 1
        await self._transmit(envelope, self._message(envelope))

    async def _deliver(self, envelope: Envelope) -> None:
        for number, pause in enumerate(self.redeliver):
            if number:
                await trio.sleep(pause)
                self._waiting.append(envelope)
                self._team.change()
            envelope.waiting = True
            with trio.move_on_after(self.ack_within):
                await envelope.acked.wait()
            envelope.waiting = False
            if envelope.acked.is_set():
                break
            if envelope in self._waiting:
                self._waiting.remove(envelope)
            envelope.missed += 1
            if envelope.missed == 1:
                self.unanswered.append(envelope)
                if envelope.shown_error is not None:
                    envelope.shown_error()
            self._bury(envelope)
            self._team.change()
        envelope.over.set()
        self.pending.discard(envelope)
        self._team.change()

    def _message(self, envelope: Envelope) -> Json:
        message: Json = {"envelope_id": envelope.id, "type": envelope.kind, "payload": envelope.payload}
        message["accepts_response_payload"] = envelope.accepts_response
        if envelope.kind == "events_api":
            again = envelope.attempts - 1
            message |= {"retry_attempt": again, "retry_reason": "timeout" if again else ""}
        return message

    async def _transmit(self, envelope: Envelope, message: Json) -> None:
        self._held.append((envelope, message))
        if len(self._held) < self._faults.reorder:
            return
        held, self._held = self._held, []
        for each, text in reversed(held):
            for _ in range(2 if self._faults.spend("double") else 1):
                if live := self.live():
                    self._turn += 1
                    socket = live[self._turn % len(live)]
                    each.sent_by.append(socket.name)
                    await socket.send(text)
                    self._faults.step("sent", each)

    def _bury(self, envelope: Envelope) -> None:
        # A frozen socket is found out by what it did not ack, or it would get its share for ever.
        for socket in self.live():
            if socket.wire.frozen and socket.name in envelope.sent_by:
                self.drop("abrupt", socket)

    def _heard(self, socket: Socket, text: str) -> None:
        try:
            ack = json.loads(text)
            envelope = self._by_id[ack["envelope_id"]]
        except (ValueError, KeyError, TypeError):
            self.strange.append(text)
            return
        if self._faults.spend("deaf") or not self._faults.step("ack", envelope):
            return
        if ack.get("payload") and not envelope.accepts_response:
            self.strange.append(ack)
        envelope.acks.append(ack)
        if envelope.waiting and not envelope.acked.is_set():
            envelope.response = ack.get("payload")
            envelope.acked.set()
            if envelope.honour is not None:
                envelope.honour(envelope.response)
        self._team.change()


async def _close(socket: Socket) -> None:
    try:
        with trio.move_on_after(1):
            await socket.websocket.close()
    except (RuntimeError, OSError, trio.BusyResourceError):
        # It is on its way out as it is, or gone.
        pass
