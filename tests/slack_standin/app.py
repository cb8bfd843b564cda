"""The smallest app there can be, to test the stand-in with: a Web API client and one socket, in the test's own loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

from tests.slack_standin.standin import Standin
from tests.slack_standin.team import Json


class App:
    """`heard` is every message that came over its sockets."""

    def __init__(self, slack: Standin, http: httpx2.AsyncClient) -> None:
        self.slack, self.http = slack, http
        self.heard: list[Json] = []
        self.answer: Callable[[Json], Json | None] = lambda envelope: None
        self.acks = True

    async def call(self, method: str, token: str | None = None, **args: Any) -> Json:
        """Call a method with a JSON body; the answer, whatever it is."""
        response = await self.post(method, token, **args)
        return dict(response.json())

    async def post(self, method: str, token: str | None = None, **args: Any) -> httpx2.Response:
        headers = {"authorization": f"Bearer {token or self.slack.bot_token}"}
        return await self.http.post(self.slack.api_url + method, json=args, headers=headers)

    async def url(self) -> str:
        return str((await self.call("apps.connections.open", self.slack.app_token))["url"])

    @asynccontextmanager
    async def socket(self) -> AsyncIterator[WebSocketConnection]:
        """An open socket that acks whatever comes, with what `answer` says, while `acks` is true."""
        async with trio.open_nursery() as nursery, open_websocket_url(await self.url(), disconnect_timeout=1) as socket:
            self.heard.append(json.loads(await socket.get_message()))
            nursery.start_soon(self._serve, socket)
            yield socket
            nursery.cancel_scope.cancel()

    async def _serve(self, socket: WebSocketConnection) -> None:
        try:
            while True:
                message = json.loads(await socket.get_message())
                self.heard.append(message)
                if self.acks and "envelope_id" in message:
                    ack = {"envelope_id": message["envelope_id"]}
                    if payload := self.answer(message):
                        ack["payload"] = payload
                    await socket.send_message(json.dumps(ack))
        except ConnectionClosed:
            pass


@asynccontextmanager
async def app_of(slack: Standin) -> AsyncIterator[App]:
    async with httpx2.AsyncClient(timeout=None) as http:
        yield App(slack, http)


def button(action_id: str = "go", value: str = "1") -> Json:
    return {"type": "button", "action_id": action_id, "value": value, "text": {"type": "plain_text", "text": "Go"}}


def section(text: str = "hello") -> Json:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def modal(**more: Any) -> Json:
    label, element = {"type": "plain_text", "text": "Reason"}, {"type": "plain_text_input", "action_id": "text"}
    block = {"type": "input", "block_id": "reason", "label": label, "element": element}
    title, submit = {"type": "plain_text", "text": "Reject"}, {"type": "plain_text", "text": "Send"}
    return {"type": "modal", "callback_id": "why", "title": title, "submit": submit, "blocks": [block], **more}
