"""The Web API as it goes over HTTP: tokens, scopes, limits, form and JSON bodies, and the faults planned."""

from __future__ import annotations

import json
import secrets
from typing import Any

import trio
from attrs import define
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tests.slack_standin import files
from tests.slack_standin.faults import Fault, Faults
from tests.slack_standin.limits import Rates
from tests.slack_standin.listening import WIRE
from tests.slack_standin.methods import METHODS
from tests.slack_standin.people import People, respond
from tests.slack_standin.sockets import SocketMode
from tests.slack_standin.team import Json, SlackRefuses, Team

OPEN_CONNECTION = "apps.connections.open"


@define(eq=False)
class Call:
    """A call of the Web API. `answer` is what its work came to, whether or not that reached the caller."""

    method: str
    args: Json
    at: float  # Trio's clock
    answer: Json | None = None
    fault: Fault | None = None

    @property
    def ok(self) -> bool:
        return bool(self.answer and self.answer["ok"])


class WebApi:
    """Answers `/api/<method>`, `/upload/...` and `/response/...`."""

    def __init__(
        self, team: Team, faults: Faults, rates: Rates, socket_mode: SocketMode, people: People, *, echo: bool
    ) -> None:
        self._team, self._faults, self._rates = team, faults, rates
        self._sockets, self._people, self._echo = socket_mode, people, echo
        self.calls: list[Call] = []

    async def api(self, request: Request) -> Response:
        method = request.path_params["method"]
        try:
            args, unread = await _arguments(request), None
        except SlackRefuses as refusal:
            args, unread = {}, refusal.body
        token = _token(request, args)
        call = Call(method, args, trio.current_time())
        self.calls.append(call)
        self._faults.step("call", call)
        call.fault = fault = self._faults.of_call(method)
        early = await self._before(call, fault)
        if early is not None:
            self._team.change()
            return early
        wait = self._rates.wait(method, args)
        if wait:
            call.answer = {"ok": False, "error": "ratelimited"}
            self._team.change()
            return JSONResponse(call.answer, 429, {"Retry-After": str(wait)})
        call.answer = unread or self._answer(method, args, token)
        self._faults.step("called", call)
        self._team.change()
        if late := await self._after(request, fault):
            return late
        done = BackgroundTask(self._answered, call)
        return JSONResponse(call.answer, headers=self._headers(method, token), background=done)

    async def _answered(self, call: Call) -> None:
        self._faults.step("answered", call)
        self._team.change()

    def _answer(self, method: str, args: Json, token: str | None) -> Json:
        try:
            self._allowed(method, token)
            if method == OPEN_CONNECTION:
                return self._sockets.open_connection(self._team.base_url)
            answer = METHODS[method].do(self._team, args)
        except SlackRefuses as refusal:
            return refusal.body
        self._tell(method, answer, answer.pop("_event", None))
        return answer

    def _tell(self, method: str, answer: Json, changed: Json | None) -> None:
        # Slack tells an app of its own messages too.
        if not self._echo:
            return
        if changed is not None:
            channel = self._team.channels[changed.pop("channel")]
            self._people.tell(channel, {"type": "message", **changed})
        elif method == "chat.postMessage":
            said = {name: value for name, value in answer["message"].items() if name != "metadata"}
            self._people.tell(self._team.channels[answer["channel"]], said)

    def _allowed(self, method: str, token: str | None) -> None:
        team = self._team
        if method not in METHODS and method != OPEN_CONNECTION:
            raise SlackRefuses("unknown_method", req_method=method)
        if not token:
            raise SlackRefuses("not_authed")
        if token in team.revoked:
            raise SlackRefuses(team.revoked[token])
        if token not in (team.app_token, team.bot_token):
            raise SlackRefuses("invalid_auth")
        if (method == OPEN_CONNECTION) != (token == team.app_token) and method != "auth.test":
            raise SlackRefuses("not_allowed_token_type")
        needed = frozenset({"connections:write"}) if method == OPEN_CONNECTION else METHODS[method].scopes
        held = team.app_scopes if token == team.app_token else team.bot_scopes
        if needed and not needed & held:
            raise SlackRefuses("missing_scope", needed=",".join(sorted(needed)), provided=",".join(sorted(held)))

    def _headers(self, method: str, token: str | None) -> dict[str, str]:
        headers = {"x-slack-req-id": secrets.token_hex(8), "cache-control": "private, no-cache, no-store"}
        if token in (self._team.app_token, self._team.bot_token):
            held = self._team.app_scopes if token == self._team.app_token else self._team.bot_scopes
            headers["x-oauth-scopes"] = ",".join(sorted(held))
            if method in METHODS:
                headers["x-accepted-oauth-scopes"] = ",".join(sorted(METHODS[method].scopes))
        return headers

    async def _before(self, call: Call, fault: Fault | None) -> Response | None:
        match fault:
            case Fault(how="cut"):
                return _cut()
            case Fault(how="stall"):
                await trio.sleep(fault.seconds)
            case Fault(how="status", done=False):
                return PlainTextResponse("upstream", fault.status)
            case Fault(how="limit"):
                call.answer = {"ok": False, "error": "ratelimited"}
                return JSONResponse(call.answer, 429, {"Retry-After": str(int(fault.seconds))})
            case Fault(how="refuse"):
                call.answer = {"ok": False, "error": fault.error}
                return JSONResponse(call.answer)
        return None

    async def _after(self, request: Request, fault: Fault | None) -> Response | None:
        match fault:
            case Fault(how="lose"):
                return _cut()
            case Fault(how="status", done=True):
                return PlainTextResponse("upstream", fault.status)
            case Fault(how="swallow"):
                while (await request.receive())["type"] != "http.disconnect":
                    pass
                return _cut()
            case Fault(how="delay"):
                await trio.sleep(fault.seconds)
        return None

    async def upload(self, request: Request) -> Response:
        """The bytes of a file, as they are or as a form's `file`."""
        fault = self._faults.of_call("upload")
        call = Call("upload", {"url": str(request.url)}, trio.current_time(), fault=fault)
        self.calls.append(call)
        early = await self._before(call, fault)
        if early is not None:
            return early
        if request.headers.get("content-type", "").startswith("multipart/"):
            form = await request.form()
            parts = [part for part in form.values() if not isinstance(part, str)]
            data = await parts[0].read() if parts else b""
        else:
            data = await request.body()
        status, text = files.receive(self._team, f"{self._team.base_url}{request.url.path}", data)
        call.answer = {"ok": status == 200, "text": text}
        return await self._after(request, fault) or PlainTextResponse(text, status)

    async def response(self, request: Request) -> Response:
        """What an app says through a response_url: five times at most, within half an hour."""
        fault = self._faults.of_call("response_url")
        url = self._team.response_urls.get(request.path_params["key"])
        try:
            body = json.loads(await request.body())
        except ValueError:
            return JSONResponse({"ok": False, "error": "invalid_payload"}, 400)
        call = Call("response_url", body, trio.current_time(), fault=fault)
        self.calls.append(call)
        early = await self._before(call, fault)
        if early is not None:
            return early
        if url is None or trio.current_time() > url.expires:
            call.answer = {"ok": False, "error": "expired_url"}
        elif url.left == 0:
            call.answer = {"ok": False, "error": "used_url"}
        else:
            url.left -= 1
            try:
                respond(self._team, self._team.channels[url.channel], url.user, body)
                call.answer = {"ok": True}
            except SlackRefuses as refusal:
                call.answer = refusal.body
        self._team.change()
        status = 200 if call.ok else 404 if call.answer["error"].endswith("_url") else 400
        return await self._after(request, fault) or JSONResponse(call.answer, status)


def _cut() -> Response:
    WIRE.get().cut()
    return Response(status_code=500)  # nobody hears it


def _token(request: Request, args: Json) -> str | None:
    given = args.pop("token", None)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else given


async def _arguments(request: Request) -> Json:
    args: dict[str, Any] = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind == "application/json":
        body = await request.body()
        # The SDK calls apps.connections.open with this type and no body at all.
        try:
            args |= json.loads(body) if body.strip() else {}
        except (ValueError, TypeError):
            raise SlackRefuses("invalid_json") from None
    elif kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        args |= {name: value for name, value in (await request.form()).items() if isinstance(value, str)}
    elif kind and await request.body():
        raise SlackRefuses("invalid_post_type")
    return args
