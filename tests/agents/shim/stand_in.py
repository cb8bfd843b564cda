"""A bare SDK server behind the shim's wire, run as a process of its own and conducted by a test.

It tells the test, over the socket that --conductor names, which calls arrive, and answers none before the test says
so. With --slow, it is not ready before that either. Run as `python stand_in.py --background --ready-fd N`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import mcp_types as types
import trio
from mcp.server import Server
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage

from intercom.local.lock import DatabaseLocked, acquire
from intercom.local.places import places, private_directory
from intercom.local.server_socket import listen

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

LIFE = os.urandom(16).hex()


class Conductor:
    """The test's end: `tell` it something, and wait until it lets a call go."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._sending = trio.Lock()
        self._answers: dict[str, str] = {}
        self._changed = trio.Event()

    async def tell(self, **what: object) -> None:
        async with self._sending:
            await self._stream.send_all(json.dumps({"pid": os.getpid(), **what}).encode() + b"\n")

    async def listen(self) -> None:
        rest = b""
        async for data in self._stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._answers |= json.loads(line)
            self._changed.set()
            self._changed = trio.Event()

    async def verdict(self, question: str) -> str:
        while question not in self._answers:
            await self._changed.wait()
        return self._answers[question]


def server(conductor: Conductor) -> Server:
    async def list_tools(ctx: object, params: object) -> types.ListToolsResult:
        text = {"type": "object", "properties": {"question": {"type": "string"}}}
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=text) for name in ("echo", "ask")])

    async def call_tool(ctx: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        question = str((params.arguments or {}).get("question"))
        call = (ctx.meta or {}).get("intercom/call")  # type: ignore[attr-defined]
        if params.name == "ask":
            await ctx.session.report_progress(1.0, message="asked")  # type: ignore[attr-defined]
            await conductor.tell(arrived=question, call=call)
            question = await conductor.verdict(question)
        text = types.TextContent(type="text", text=question)
        return types.CallToolResult(content=[text], structured_content={"text": question, "call": call})

    return Server("stand-in", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_shim(stream: trio.SocketStream, low: Server, conductor: Conductor) -> None:
    into, inside = create_context_streams[SessionMessage | Exception](0)
    outside, out_of = create_context_streams[SessionMessage](0)
    sending = trio.Lock()

    async def send(value: object) -> None:
        async with sending:
            await stream.send_all(json.dumps(value).encode() + b"\n")

    async def pump_in() -> None:
        rest = bytearray()
        greeted = False
        async with into:
            async for data in stream:
                rest += data
                while (end := rest.find(b"\n")) >= 0:
                    message = json.loads(rest[:end])
                    del rest[: end + 1]
                    if "intercom" not in message:
                        await into.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message)))
                    elif greeted:
                        await conductor.tell(**message["intercom"])
                        await send({"intercom": {"recorded": message["intercom"]["delivered"]}})
                    else:
                        greeted = True
                        await conductor.tell(**message["intercom"])
                        await send({"intercom": {"welcome": {"wire": 1, "version": "0", "life": LIFE}}})

    async def pump_out() -> None:
        async with out_of:
            async for item in out_of:
                answered = getattr(item.message, "result", None)
                if isinstance(answered, dict) and (call := (answered.get("structuredContent") or {}).get("call")):
                    await send({"intercom": {"receipt": {"call": call, "text": call}}})
                await send(item.message.model_dump(mode="json", by_alias=True, exclude_unset=True))

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump_in)
            nursery.start_soon(pump_out)
            await low.run(inside, outside, low.create_initialization_options())
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def main(ready: int | None, private: int | None) -> None:
    stream = await trio.open_unix_socket(arguments.conductor)
    conductor = Conductor(stream)
    low = server(conductor)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.listen)
        if private is not None:
            pair = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=private)))
            await serve_shim(pair, low, conductor)
            nursery.cancel_scope.cancel()
            return
        where = places()
        if arguments.slow:
            await conductor.tell(starting=True)
            await conductor.verdict("start")
        try:
            lock = acquire(os.path.join(private_directory(where.state_dir), "db"), version="0")
        except DatabaseLocked as locked:
            say(ready, {"error": {"code": locked.error_code, "message": locked.message, "retry": True}})
            await conductor.tell(lost=True)
            nursery.cancel_scope.cancel()
            return
        with lock:
            listener = listen(where.mcp_socket)
            if arguments.claim_fd is not None:
                os.close(arguments.claim_fd)
            await conductor.tell(up=True)
            say(ready, {"ready": True})
            await trio.serve_listeners(lambda each: serve_shim(each, low, conductor), [listener])


def say(ready: int | None, what: object) -> None:
    if ready is not None:
        # The relay that started this may have ended.
        with suppress(BrokenPipeError):
            os.write(ready, json.dumps(what).encode() + b"\n")
        os.close(ready)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--conductor")
    parser.add_argument("--background", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--claim-fd", type=int)
    parser.add_argument("--started-by", type=int)
    parser.add_argument("--private-fd", type=int)
    parser.add_argument("--config")
    parser.add_argument("--ipc-name")
    arguments = parser.parse_args()
    trio.run(main, arguments.ready_fd, arguments.private_fd)
