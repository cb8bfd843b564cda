"""The same web server doing nothing: reads the body of each request, and answers a small JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

_ANSWER = json.dumps(
    {"message_id": "4f5b1a7e-9a54-4f0e-8b0e-0d1a2b3c4d5e", "cursor": 1, "at": "2026-11-25T12:00:00.000000+00:00"}
).encode()
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for done in ("lifespan.startup.complete", "lifespan.shutdown.complete"):
            await receive()
            await send({"type": done})
        return
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
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    config.keep_alive_timeout = 300
    config.keep_alive_max_requests = 1_000_000
    await serve(app, config)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
