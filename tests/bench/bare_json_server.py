"""The same web server doing nothing: reads the body of each request, and answers a small JSON object."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import trio

from intercom.web_server.server import Connection, HttpServer

_ANSWER = json.dumps(
    {"message_id": "4f5b1a7e-9a54-4f0e-8b0e-0d1a2b3c4d5e", "cursor": 1, "at": "2026-11-25T12:00:00.000000+00:00"}
).encode()
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]


async def app(_scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    json.loads(body or b"{}")
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


async def main(port: int) -> None:
    server = HttpServer(app)

    async def serve(stream: trio.SocketStream) -> None:
        # A client that is gone already has no address.
        with suppress(OSError):
            connection = Connection(stream, number=0)
            connection.authenticated = True
            await server.serve(connection)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        await trio.serve_tcp(serve, port, host="127.0.0.1")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
