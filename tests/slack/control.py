"""Driving the stand-in over HTTP: `POST /_control/<verb>` with a JSON object, for tests with processes of their own.

Every answer is JSON: what the verb gives, or `{"error": ...}` with status 400. The verbs and their arguments are the
functions of `VERBS`; those that make the app hear of something answer at once unless `"wait": true` is given, and then
with the ack's payload, or `{"unanswered": true}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.slack.envelopes import Envelope, Unanswered
from tests.slack.people import CannotDo
from tests.slack.team import Json, SlackRefuses

if TYPE_CHECKING:
    from tests.slack.standin import Standin


def _state(slack: Standin) -> Json:
    sockets = [{"name": one.name, "open": one.open} for one in slack.socket_mode.sockets]
    counts: dict[str, int] = {}
    for call in slack.calls:
        counts[call.method] = counts.get(call.method, 0) + 1
    sent = {
        "envelopes": len(slack.envelopes),
        "unanswered": len(slack.unanswered),
        "strange": slack.socket_mode.strange,
    }
    return {"version": slack.team.version, "sockets": sockets, "calls": counts, **sent}


def _set_scopes(slack: Standin, bot: list[str] | None = None, app: list[str] | None = None) -> None:
    if bot is not None:
        slack.team.bot_scopes = frozenset(bot)
    if app is not None:
        slack.team.app_scopes = frozenset(app)


def _down(slack: Standin, seconds: float) -> None:
    slack.later(0.05, slack.go_down)  # after this is answered
    slack.later(0.05 + seconds, slack.come_up)


def _sockets(slack: Standin, deny: int = 0, double: int = 0, reorder: int = 0, deaf: int = 0) -> None:
    slack.faults.deny_connects, slack.faults.double = deny, double
    slack.faults.reorder, slack.faults.deaf = reorder, deaf


def _revoke(slack: Standin, token: str, error: str = "token_revoked") -> None:
    slack.team.revoked[token] = error


def _channel(slack: Standin, channel: str, **state: bool) -> None:
    for name, value in state.items():
        setattr(slack.team.channels[channel], name, value)


def _files(slack: Standin) -> list[Json]:
    return [{**one.file, "text": (one.data or b"").decode(errors="replace")} for one in slack.files if one.completed]


def _calls(slack: Standin, method: str | None = None) -> list[Json]:
    kept = [one for one in slack.calls if method in (None, one.method)]
    return [{"method": one.method, "args": one.args, "at": one.at, "answer": one.answer} for one in kept]


VERBS: dict[str, Callable[..., Any]] = {
    "state": _state,
    "messages": lambda slack, channel: slack.messages(channel),
    "thread": lambda slack, channel, ts: slack.thread(channel, ts),
    "ephemerals": lambda slack, user: slack.ephemerals(user),
    "views": lambda slack, user: slack.views(user),
    "view_errors": lambda slack, user: slack.view_errors(user),
    "files": _files,
    "calls": _calls,
    "tap": lambda slack, **act: slack.tap(**act),
    "submit": lambda slack, **act: slack.submit(**act),
    "close_view": lambda slack, **act: slack.close_view(**act),
    "command": lambda slack, **act: slack.command(**act),
    "say": lambda slack, **act: slack.say(**act),
    "edit": lambda slack, **act: slack.edit(**act),
    "remove": lambda slack, ts: slack.remove(ts),
    "drop": lambda slack, how="clean": slack.drop_sockets(how),
    "refresh": lambda slack, warned=10.0: slack.refresh(warned=warned),
    "disable": lambda slack: slack.socket_mode.disable(),
    "plan": lambda slack, **fault: slack.plan(**fault),
    "sockets": _sockets,
    "clear": lambda slack: slack.faults.clear(),
    "rates": lambda slack, rates: slack.rates.rates.update({name: tuple(rate) for name, rate in rates.items()}),
    "scopes": _set_scopes,
    "revoke": _revoke,
    "channel": _channel,
    "down": _down,
}


def routes(slack: Standin) -> list[Route]:
    """The routes of the control API of this stand-in."""

    async def control(request: Request) -> Response:
        verb = request.path_params["verb"]
        body = await request.body()
        try:
            args: Json = json.loads(body) if body.strip() else {}
            wait = args.pop("wait", False)
            if verb == "wait":
                return JSONResponse(await _changed(slack, **args))
            answer = VERBS[verb](slack, **args)
            if isinstance(answer, Envelope):
                answer = await _answered(answer) if wait else {"envelope_id": answer.id}
        except (CannotDo, SlackRefuses, KeyError, TypeError, ValueError) as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 400)
        return JSONResponse(answer)

    return [Route("/_control/{verb}", control, methods=["POST"])]


async def _answered(envelope: Envelope) -> Json:
    try:
        return {"envelope_id": envelope.id, "payload": await envelope.answer()}
    except Unanswered:
        return {"envelope_id": envelope.id, "unanswered": True}


async def _changed(slack: Standin, since: int, seconds: float = 20) -> Json:
    try:
        await slack.wait_for(lambda: slack.team.version > since, seconds)
    except TimeoutError:
        pass
    return _state(slack)
