"""A stand-in for the model behind a coding agent: it says what a script tells it, over the wire of the real one.

The agent is the real program. It is told by configuration that its model is here; it sends the conversation so far and
gets the next step: a tool to call, or words.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import hypercorn.trio
import trio
from attrs import field, frozen
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.clients import wires


@frozen
class Call:
    """Call this tool of ours."""

    tool: str
    arguments: dict[str, Any] = field(factory=dict)


@frozen
class Use:
    """Use this tool of the agent's own."""

    tool: str
    arguments: dict[str, Any] = field(factory=dict)


@frozen
class Say:
    """Say this, and end the turn."""

    text: str


Step = Call | Use | Say
#: Yields steps; is sent what each call was answered, as the agent told its model.
Script = AsyncGenerator[Step, str]


class Model:
    """What the agent has asked so far, and the script that answers."""

    def __init__(self, script: Script, server: str, prefix: str | None, own: str | None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.tools: set[str] = set()
        self.answers: list[str] = []
        self._script = script
        self._server = server
        self._prefix = prefix
        self._own = own
        self._lock = trio.Lock()

    def named(self, wire: wires.Wire) -> str:
        """How this agent names our server to its model."""
        return self._prefix or wire.server(self._server)

    async def step(self, request: dict[str, Any], wire: wires.Wire) -> Step:
        """What comes next. Whoever asks without our tools or its own at hand is not the conversation: it makes titles
        or the like."""
        self.requests.append(request)
        tools = set(wire.tools(request))
        offered = {name for name in tools if name.startswith(self.named(wire))}
        if not offered and self._own not in tools:
            return Say("ok")
        self.tools |= offered
        async with self._lock:
            told = wire.last_result(request)
            try:
                if told is None:
                    return await self._script.__anext__()
                self.answers.append(told)
                return await self._script.asend(told)
            except StopAsyncIteration:
                return Say("done")


@asynccontextmanager
async def serving(
    script: Script, server: str = "agent-intercom", prefix: str | None = None, own: str | None = None
) -> AsyncIterator[tuple[Model, str]]:
    """The model, and the address it listens at, for as long as this lasts. `prefix` is what the agent puts before our
    tools' names, where it is not what its wire's own agent puts there. `own` is a tool of the agent's own: it tells the
    conversation where our tools are not there from the start."""
    model = Model(script, server, prefix, own)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = Config()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    # The server takes the descriptor over.
    config.bind = [f"fd://{listening.detach()}"]
    config.errorlog = None
    config.graceful_timeout = 0.1
    ended = trio.Event()
    app = Starlette(routes=[Route(path, _answer(model, wire), methods=["POST"]) for path, wire in wires.PATHS.items()])
    app.router.routes.append(Route("/{rest:path}", _nothing, methods=["GET", "HEAD", "POST"]))
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await hypercorn.trio.serve(app, config, shutdown_trigger=ended.wait, mode="asgi")  # type: ignore[arg-type]

        nursery.start_soon(serve)
        try:
            yield model, address
        finally:
            ended.set()
            nursery.cancel_scope.cancel()


def _answer(model: Model, wire: wires.Wire) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        asked = await request.json()
        step = await model.step(asked, wire)
        if isinstance(step, Call):
            events = wire.call(asked, model.named(wire), step.tool, step.arguments)
        elif isinstance(step, Use):
            events = wire.call(asked, "", step.tool, step.arguments)
        else:
            events = wire.say(asked, step.text)
        if not asked.get("stream") and not request.url.path.endswith(":streamGenerateContent"):
            return JSONResponse(wire.whole(events))
        return StreamingResponse(_lines(events), media_type="text/event-stream")

    return answer


async def _lines(events: list[tuple[str, dict[str, Any]]]) -> AsyncIterator[str]:
    for name, data in events:
        named = f"event: {name}\n" if name else ""
        yield f"{named}data: {json.dumps(data)}\n\n"


async def _nothing(_request: Request) -> Response:
    return JSONResponse({"error": {"message": "there is nothing here"}}, status_code=404)
