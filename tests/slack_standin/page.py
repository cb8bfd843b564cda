"""The page a person sees: the channel, drawn, with buttons that work.

It acts by `POST /_control/<verb>` with a JSON object, the arguments of the act. The answer is JSON: what the act gives,
or `{"error": ...}` with status 400. With `"wait": true` it has the ack's payload, or `{"unanswered": true}`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from tests.slack_standin.people import CannotDo
from tests.slack_standin.sockets import Envelope, Unanswered
from tests.slack_standin.team import Json, SlackRefuses

if TYPE_CHECKING:
    from tests.slack_standin.standin import Standin

VERBS = ("tap", "submit", "close_view", "command", "say")


def routes(slack: Standin) -> list[Route]:
    """The page, what it draws, and what it does."""

    async def page(request: Request) -> Response:
        return FileResponse(Path(__file__).with_name("page.html"), media_type="text/html")

    async def seen(request: Request) -> Response:
        query = request.query_params
        since, seconds = int(query.get("since", -1)), 20.0
        try:
            await slack.wait_for(lambda: slack.team.version > since, seconds)
        except TimeoutError:
            pass
        return JSONResponse(_seen(slack, query.get("user", ""), query.get("channel", "")))

    async def control(request: Request) -> Response:
        try:
            args: Json = await request.json()
            wait, verb = args.pop("wait", False), request.path_params["verb"]
            if verb not in VERBS:
                raise CannotDo(f"there is no {verb}")
            answer = getattr(slack, verb)(**args)
            if isinstance(answer, Envelope):
                answer = await _answered(answer) if wait else {"envelope_id": answer.id}
        except (CannotDo, SlackRefuses, KeyError, TypeError, ValueError) as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, 400)
        return JSONResponse(answer)

    return [Route("/", page), Route("/_page/seen", seen), Route("/_control/{verb}", control, methods=["POST"])]


async def _answered(envelope: Envelope) -> Json:
    try:
        return {"envelope_id": envelope.id, "payload": await envelope.answer()}
    except Unanswered:
        return {"envelope_id": envelope.id, "unanswered": True}


def _seen(slack: Standin, user: str, channel: str) -> Json:
    team = slack.team
    people = [one for one in team.users.values() if one.id != team.bot_user]
    user = user if user in team.users else people[0].id
    channel = channel if channel in team.channels else next(iter(team.channels))
    files = {name: (one.data or b"").decode(errors="replace") for name, one in team.uploads.items() if one.completed}
    modals = [{"view": one.view, "errors": one.errors} for one in team.modals.values() if one.user == user]
    ephemeral = [one for one in slack.ephemerals(user) if one["channel"] == channel]
    return {
        "version": team.version,
        "user": user,
        "users": [{"id": one.id, "name": one.name, "real_name": one.real_name} for one in team.users.values()],
        "bot": team.bot_user,
        "channel": channel,
        "channels": [{"id": one.id, "name": one.name} for one in team.channels.values() if one.is_member],
        "messages": slack.messages(channel),
        "ephemerals": ephemeral,
        "modals": modals,
        "files": files,
        "connected": len(slack.socket_mode.live()),
    }
