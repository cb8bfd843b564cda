"""views.*: modals on people's screens."""

from __future__ import annotations

import copy
import json
import secrets
from typing import Any

from tests.slack_standin import blocks
from tests.slack_standin.chat import with_ids
from tests.slack_standin.team import Json, Modal, SlackRefuses, Team


def open_view(team: Team, args: Json) -> Json:
    view = checked_view(args.get("view"))
    user = team.spend(args.get("trigger_id"))
    for name in [name for name, modal in team.modals.items() if modal.user == user]:
        del team.modals[name]
    return {"ok": True, "view": shown(show(team, user, view))}


def checked_view(view: Any) -> Json:
    """A view as sent, JSON text or object.

    Raises:
        SlackRefuses: invalid_arguments with Slack's complaints, view_too_large.
    """
    if isinstance(view, str):
        try:
            view = json.loads(view)
        except ValueError:
            view = None
    complaints = blocks.faults_of_view(view)
    if any("view_too_large" in one for one in complaints):
        raise SlackRefuses("view_too_large")
    if complaints:
        told = {"messages": [f"[ERROR] {one}" for one in complaints]}
        raise SlackRefuses("invalid_arguments", response_metadata=told)
    return dict(view)


def show(team: Team, user: str, view: Json) -> Json:
    """Put a modal on somebody's screen."""
    kept = _kept(team, view, team.name("V"))
    team.modals[kept["id"]] = Modal(user, kept)
    team.change()
    return kept


def replace(team: Team, modal: Modal, view: Json) -> None:
    """Another view in the place of this one, under its id."""
    kept = _kept(team, view, modal.view["id"])
    modal.view.clear()
    modal.view.update(kept)
    modal.errors = {}
    team.change()


def shown(view: Json) -> Json:
    return copy.deepcopy(view)


def _kept(team: Team, view: Json, name: str) -> Json:
    usual: Json = {"submit": None, "close": None, "private_metadata": "", "callback_id": "", "external_id": ""}
    usual |= {"clear_on_close": False, "notify_on_close": False}
    mine = {"id": name, "team_id": team.id, "app_id": team.app_id, "bot_id": team.bot_id, "state": {"values": {}}}
    linked = {"root_view_id": name, "previous_view_id": None, "app_installed_team_id": team.id}
    stamped = f"{int(team.now())}.{secrets.token_hex(4)}"
    return {**usual, **view, "blocks": with_ids(view["blocks"]), **mine, **linked, "hash": stamped}
