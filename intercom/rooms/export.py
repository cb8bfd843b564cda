"""A room as one file, to keep or to send: as markdown for people, or as a bundle for programs. Pure.

Neither holds a token, the hash of one, or a passcode's. In the markdown, what teams wrote is in code fences that it
cannot close, or escaped: it cannot pass for the server's own words, nor become HTML. Invisible characters are written
as their codes there. The bundle has each text as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from attrs import frozen

from intercom.model.clock import to_text
from intercom.model.json_types import Json, JsonObject
from intercom.model.room import Ack, DocumentVersion, LinkedEvidence, Message, MessageType, Room, Team, TeamRole
from intercom.model.visible_text import one_line, visible
from intercom.rooms.roster import SERVER_LABEL, labelled

FORMAT: Final = "intercom-room"
VERSION: Final = 1

_MARKS: Final = re.compile(r"([\\`*_{}\[\]()<>#+\-=.!|~&@:$])")
_BACKTICKS: Final = re.compile("`+")


@frozen
class Export:
    """A room as one long text. `parts` yields it piece by piece, so that nobody holds the whole of a large room."""

    media_type: str
    parts: AsyncGenerator[str, None]


@frozen
class Form:
    """How a room is written. `begin` writes what is before its messages. `page` writes some of them, in their order;
    its second argument says whether they are the first. `between` follows them. `evidence` writes linked evidence in
    the same way, one by one. `end` is the rest. The parts make up the file."""

    media_type: str
    begin: Callable[[Room, DocumentVersion | None, Sequence[Team], datetime], str]
    page: Callable[[Sequence[Message], bool], str]
    between: str
    evidence: Callable[[LinkedEvidence, bool], str]
    end: str


# --- the bundle ------------------------------------------------------------------------------------------------------

_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _bundle_begin(room: Room, document: DocumentVersion | None, teams: Sequence[Team], now: datetime) -> str:
    """Begin a JSON object with everything a reader of the room can see. Times are ISO 8601 in UTC."""
    facts: JsonObject = {
        "format": FORMAT,
        "version": VERSION,
        "exported_at": to_text(now),
        "session": {
            "session_id": room.id,
            "title": room.title,
            "description": room.description,
            "status": room.status.value,
            "created_by_team_id": room.created_by_team_id,
            "created_at": to_text(room.created_at),
            "updated_at": to_text(room.updated_at),
            "closed_at": _time(room.closed_at),
            "paused_at": _time(room.paused_at),
            "paused_by": room.paused_by,
            "pause_reason": room.pause_reason,
            "session_doc_version": room.session_doc_version,
            "last_cursor": room.last_sequence,
            "conclusion": room.conclusion,
        },
        "document": None if document is None else _document(document),
        "participants": [_team(team) for team in teams],
    }
    return _to_json(facts)[:-1] + ',"messages":['


def _bundle_page(messages: Sequence[Message], is_first: bool) -> str:
    return ("" if is_first or not messages else ",") + ",".join([_to_json(_message(each)) for each in messages])


def _bundle_evidence(linked: LinkedEvidence, is_first: bool) -> str:
    written: JsonObject = {
        "evidence_id": linked.evidence_id,
        "linked_by": linked.author,
        "linked_by_team_id": linked.linked_by_team_id,
        "linked_at": to_text(linked.linked_at),
        "record": linked.record,
    }
    return ("" if is_first else ",") + _to_json(written)


BUNDLE: Final = Form("application/json", _bundle_begin, _bundle_page, '],"evidence":[', _bundle_evidence, "]}\n")


def _document(document: DocumentVersion) -> JsonObject:
    return {
        "version": document.version,
        "content": document.content or "",
        "written_by_team_id": document.written_by_team_id,
        "author": document.author,
        "written_at": to_text(document.written_at),
    }


def _team(team: Team) -> JsonObject:
    return {
        "team_id": team.team_id,
        "team_name": team.team_name,
        "role": team.role.value,
        "joined_at": to_text(team.joined_at),
        "last_seen_at": to_text(team.last_seen_at),
        "cursor": team.cursor,
        "left_at": _time(team.left_at),
        "dropped_at": _time(team.dropped_at),
    }


def _message(message: Message) -> JsonObject:
    return {
        "cursor": message.sequence,
        "message_id": message.id,
        "type": message.type.value,
        "content": message.content,
        "posted_by_team_id": message.posted_by_team_id,
        "team": message.author,
        "role": None if message.role is None else message.role.value,
        "posted_at": to_text(message.posted_at),
        "acks": [_ack(ack) for ack in message.acks],
    }


def _ack(ack: Ack) -> JsonObject:
    return {"team_id": ack.team_id, "team_name": ack.team_name, "at": to_text(ack.at)}


def _time(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)


# --- markdown --------------------------------------------------------------------------------------------------------


def _markdown_begin(room: Room, document: DocumentVersion | None, teams: Sequence[Team], now: datetime) -> str:
    return "\n".join(_first_lines(room, document, teams, now)) + "\n"


def _markdown_page(messages: Sequence[Message], _is_first: bool) -> str:
    return "".join([f"\n{line}\n" for line in map("\n".join, map(_message_lines, messages))])


def _markdown_evidence(linked: LinkedEvidence, is_first: bool) -> str:
    what = f"{linked.record.get('mcp_tool_name')}.{linked.record.get('mcp_method')}"
    lines = ["", "## Evidence"] if is_first else []
    lines += ["", f"### {_inline(f'evidence:{linked.evidence_id}')}", ""]
    lines += [f"{_inline(what)}, linked by {_inline(linked.author)}, {_stamp(linked.linked_at)}", ""]
    lines += _fenced(json.dumps(linked.record, indent=2, ensure_ascii=False), "json")
    return "\n".join(lines) + "\n"


MARKDOWN: Final = Form("text/markdown; charset=utf-8", _markdown_begin, _markdown_page, "", _markdown_evidence, "")


def _first_lines(room: Room, document: DocumentVersion | None, teams: Sequence[Team], now: datetime) -> Iterator[str]:
    names = {team.team_id: team.team_name for team in teams}
    convener = names.get(room.created_by_team_id)
    yield f"# {_inline(room.title)}"
    yield ""
    yield f"- Session: `{room.id}`"
    yield f"- Status: {room.status.value}" + (f" since {_stamp(room.closed_at)}" if room.closed_at else "")
    yield f"- Created: {_stamp(room.created_at)}" + (f" by {_inline(convener)}" if convener else "")
    yield f"- Exported: {_stamp(now)}"
    if room.description.strip():
        yield ""
        yield "## Description"
        yield ""
        yield from _fenced(room.description)
    yield ""
    yield "## Teams"
    yield ""
    for team in teams:
        yield _team_line(team)
    yield ""
    if document is None or not document.content:
        yield "## Document"
        yield ""
        yield "The document is empty."
    else:
        yield f"## Document, version {document.version}"
        yield ""
        yield from _fenced(document.content, "markdown")
    yield ""
    yield "## Feed"


def _team_line(team: Team) -> str:
    facts = [] if team.role is TeamRole.MEMBER else [team.role.value]
    facts.append(f"joined {_stamp(team.joined_at)}")
    if team.left_at is not None:
        facts.append(f"left {_stamp(team.left_at)}")
    elif team.dropped_at is not None:
        facts.append(f"gone since {_stamp(team.last_seen_at)}")
    return f"- {_inline(team.team_name)}: {', '.join(facts)}"


def _message_lines(message: Message) -> Iterator[str]:
    if message.type is MessageType.SYSTEM:
        event, facts = message.content.get("event"), {**message.content}
        facts.pop("event", None)
        yield _heading(message, f"{SERVER_LABEL} {event}")
        if facts:
            yield ""
            yield from _fenced("\n".join(_facts(facts)))
    else:
        yield _heading(message, labelled(message.author or "unknown", message.role))
        yield ""
        yield from _fenced(str(message.content.get("text", "")))
    if message.acks:
        yield ""
        yield f"Read by {', '.join(_inline(ack.team_name) for ack in message.acks)}."


def _heading(message: Message, what: str) -> str:
    return f"### {message.sequence}. {_inline(what)}, {_stamp(message.posted_at)}"


def _facts(facts: Mapping[str, Json]) -> Iterator[str]:
    """Return the fields of a system message, each on a line."""
    for name, value in facts.items():
        yield f"{name}: {one_line(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"


def _fenced(text: str, language: str = "") -> Iterator[str]:
    """Return a text in a code fence that is longer than any run of backticks in it."""
    text = visible(text).strip("\n")
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    yield fence + language
    if text:
        yield text
    yield fence


def _inline(text: str) -> str:
    """Return a text on one line, in which no character has a meaning in markdown."""
    return _MARKS.sub(r"\\\1", one_line(text))


def _stamp(at: datetime) -> str:
    return to_text(at)[:19].replace("T", " ") + " UTC"
