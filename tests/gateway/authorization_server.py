"""A downstream that wants a sign-in, with its authorization server, on the loopback; and a person's browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from tests.gateway.http_servers import Request, scripted

GREET = {
    "name": "greet",
    "description": "Greets",
    "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


async def answer(request: Request) -> None:
    """Answer as an MCP server of an older protocol version does."""
    message = request.json if request.method == "POST" else {}
    match message.get("method"):
        case "initialize":
            server = {"name": "far", "version": "1"}
            result: object = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
        case "ping":
            result = {}
        case "tools/list":
            result = {"tools": [GREET]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"hello {message['params']['arguments']['name']}"}]}
        case _ if "id" not in message:
            await request.respond(202 if message else 405)
            return
        case _:
            error = {"code": -32601, "message": "no such method"}
            await request.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
    await request.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


class Provider:
    """A downstream with the tool `greet`, and its authorization server, at one address. Its page agrees at once.

    `now` is the time of the clients, whose clock may be `ahead` by some seconds. `valid` are the tokens that are
    accepted, `revoked` those that were ended.
    """

    def __init__(self) -> None:
        self.base = ""
        self.now = 1_000_000.0
        self.ahead = 0.0
        self.expires_in: object = 3600
        self.count = 0
        self.valid: set[str] = set()
        self.grants: list[dict[str, str]] = []
        self.registered: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.override: Callable[[Request], Awaitable[bool]] | None = None
        self.asks = True
        self.revoked: list[str] = []

    async def __call__(self, request: Request) -> None:
        if self.override is not None and await self.override(request):
            return
        path = urlsplit(request.path).path
        if path == "/.well-known/oauth-protected-resource/mcp":
            await request.json_response({"resource": f"{self.base}/mcp", "authorization_servers": [self.base]})
        elif path == "/.well-known/oauth-authorization-server":
            await request.json_response(self.description())
        elif path == "/register":
            self.registered.append(request.json)
            client = {"client_id": f"client-{len(self.registered)}", "token_endpoint_auth_method": "none"}
            await request.json_response({**request.json, **client}, status=201)
        elif path == "/oauth/token":
            self.grants.append(request.form)
            await self.grant(request)
        elif path == "/mcp" and (not self.asks or request.headers.get("authorization", "")[7:] in self.valid):
            await answer(request)
        elif path == "/authorize":
            query = {"code": "the-code", "state": request.query["state"]}
            await request.respond(302, location=f"{request.query['redirect_uri']}?{urlencode(query)}")
        elif path == "/revoke":
            self.revoked.append(request.form["token"])
            self.valid = set()
            await request.respond(200)
        elif path == "/mcp":
            await request.respond(401, www_authenticate="Bearer")
        else:
            await request.respond(404)

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/oauth/token",
            "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["read", "write"],
            **self.metadata,
        }

    async def grant(self, request: Request) -> None:
        self.count += 1
        token = f"token-{self.count}"
        self.valid = {token}
        answer = {"access_token": token, "token_type": "bearer", "refresh_token": f"refresh-{self.count}"}
        await request.json_response({**answer, "expires_in": self.expires_in})

    def clock(self) -> float:
        return self.now + self.ahead

    def steady(self) -> float:
        return self.now


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    found = Provider()
    async with scripted(found) as server:
        found.base = server.url.removesuffix("/mcp")
        yield found


async def visit(address: str, **changes: str) -> int:
    """Open the address as a person's browser that accepts everything. Returns the status of the last page."""
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    answer = {"code": "the-code", "state": query["state"], **changes}
    answer = {name: value for name, value in answer.items() if value}
    async with httpx2.AsyncClient(trust_env=False) as browser:
        return (await browser.get(f"{query['redirect_uri']}?{urlencode(answer)}")).status_code
