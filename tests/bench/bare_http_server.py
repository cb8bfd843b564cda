"""The named peer over HTTP: a bare SDK server with one tool that echoes, on hypercorn and Starlette."""

from __future__ import annotations

import sys

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from tests.bench.bare_server import call_tool, list_tools


async def main(port: int) -> None:
    server = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)  # type: ignore[var-annotated]
    manager = StreamableHTTPSessionManager(server)
    app = Starlette(routes=[Route("/mcp", StreamableHTTPASGIApp(manager))], lifespan=lambda _app: manager.run())
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    config.keep_alive_timeout = 300
    config.keep_alive_max_requests = 1_000_000
    await serve(app, config)  # type: ignore[arg-type]


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
