"""files.*: the upload in three steps, and what became of a file."""

from __future__ import annotations

import copy
import json
import secrets
from typing import Any

from tests.slack_standin.chat import by_bot, put, shown
from tests.slack_standin.team import Json, SlackRefuses, Team, Upload

# The kinds of snippet Slack colours.
_SNIPPET_TYPES = (
    "auto text applescript boxnote c csharp cpp css csv clojure coffeescript cfm d dart diff dockerfile email erlang "
    "fsharp fortran go groovy html handlebars haskell haxe java javascript json kotlin latex lisp lua markdown matlab "
    "mumps objc ocaml pascal perl php pig post powershell puppet python r ruby rust sql sass scala scheme shell "
    "smalltalk swift tsv vb vbscript velocity verilog xml yaml"
)
SNIPPET_TYPES = frozenset(_SNIPPET_TYPES.split())


def get_upload_url(team: Team, args: Json) -> Json:
    name, length = args.get("filename"), str(args.get("length") or "")
    if not name or not length.isdigit() or int(length) < 1:
        told = [f"[ERROR] missing required field: {'length' if name else 'filename'}"]
        raise SlackRefuses("invalid_arguments", response_metadata={"messages": told})
    kind = args.get("snippet_type")
    if kind and kind not in SNIPPET_TYPES:
        raise SlackRefuses("unknown_snippet_type")
    file_id = team.name("F")
    url = f"{team.base_url}/upload/v1/{secrets.token_hex(8)}"
    about = {"id": file_id, "name": name, "title": name, "size": int(length), "user": team.bot_user}
    shape = {"mode": "snippet" if kind else "hosted", "filetype": kind or "text", "created": int(team.now())}
    shares: Json = {"channels": [], "groups": [], "ims": [], "shares": {}}
    team.uploads[file_id] = Upload({**about, **shape, **shares}, int(length), url)
    return {"ok": True, "upload_url": url, "file_id": file_id}


def receive(team: Team, url: str, data: bytes) -> tuple[int, str]:
    """The bytes of a file, sent to the URL it was given: HTTP status and text of the answer."""
    upload = next((one for one in team.uploads.values() if one.url == url), None)
    if upload is None or upload.data is not None:
        return 404, "not found"
    if len(data) != upload.length:
        return 400, f"expected {upload.length} bytes, got {len(data)}"
    upload.data = data
    team.change()
    return 200, f"OK - {len(data)}"


def complete_upload(team: Team, args: Json) -> Json:
    files = _array(args.get("files"))
    uploads = [team.uploads.get(str(one.get("id")) if isinstance(one, dict) else "") for one in files]
    if not files:
        raise SlackRefuses(
            "invalid_arguments", response_metadata={"messages": ["[ERROR] missing required field: files"]}
        )
    wanted = args.get("channel_id")
    channel = team.channel(wanted, member=True, writable=True) if wanted else None
    thread_ts = str(args["thread_ts"]) if args.get("thread_ts") else None
    if channel and thread_ts and thread_ts not in channel.messages:
        raise SlackRefuses("thread_not_found")
    sound = [one for one in uploads if one is not None and one.data is not None and not one.completed]
    if len(sound) != len(files):
        raise SlackRefuses("file_not_found")
    for said, upload in zip(files, sound, strict=True):
        upload.completed = True
        upload.file["title"] = said.get("title") or upload.file["name"]
    answer = [{"id": one.file["id"], "title": one.file["title"]} for one in sound]
    if channel is None:
        return {"ok": True, "files": answer}
    message = {**by_bot(team), "text": args.get("initial_comment") or "", "upload": True, "display_as_bot": False}
    if thread_ts:
        message["thread_ts"] = thread_ts
    message["files"] = [one.file for one in sound]
    put(team, channel, message)
    for one in sound:
        share: Json = {"ts": message["ts"], "channel_name": channel.name, "team_id": team.id}
        if thread_ts:
            share["thread_ts"] = thread_ts
        where = "private" if channel.is_private else "public"
        one.file["shares"].setdefault(where, {}).setdefault(channel.id, []).append(share)
        one.file["groups" if channel.is_private else "channels"].append(channel.id)
    return {"ok": True, "files": answer, "_event": {**shown(message), "subtype": "file_share", "channel": channel.id}}


def info(team: Team, args: Json) -> Json:
    upload = team.uploads.get(str(args.get("file")))
    if upload is None or not upload.completed:
        raise SlackRefuses("file_not_found")
    text = (upload.data or b"").decode(errors="replace")
    return {"ok": True, "file": copy.deepcopy(upload.file), "content": text, "is_truncated": False, "comments": []}


def _array(value: Any) -> list[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, list):
        raise SlackRefuses("invalid_arguments", response_metadata={"messages": ["[ERROR] must be an array [files]"]})
    return value
