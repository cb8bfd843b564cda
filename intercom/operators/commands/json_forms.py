"""The JSON form of what commands return: what ctl prints with `--json`, and what a watch sends. Names never change.

Above a function that makes an object by hand stands what the object holds; `answer_schemas` makes schemas of it. ctl
loads this at each start, so there are no attrs classes here: each takes half a millisecond to make.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from intercom.model.amendment import Amendment, Comment
from intercom.model.card import CHOICES, Card, CardState, Notice
from intercom.model.card_hunks import HunkOfCard, numbers_in
from intercom.model.checkpoint import CheckpointLine, Divergence, DivergenceSummary, Restore
from intercom.model.clock import from_text, to_text
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments, IpcError
from intercom.model.json_types import Json, JsonObject
from intercom.model.process import AgentProcess
from intercom.model.room import DocumentVersion, Message, Presence, Room, Team
from intercom.model.room_view import DocumentView, Match, RoomTail, RoomView, TeamView
from intercom.model.session import Instruction, Session

if TYPE_CHECKING:
    # ctl reads these forms too, and would load the sessions with it.
    from intercom.sessions.amendments import AmendedCard
    from intercom.store.audit_chain import Verification

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

#: How many characters of diffs one listing carries; further diffs are omitted and marked as such.
LISTED_DIFFS = 4 * 1024 * 1024

#: A diff longer than this many characters is omitted from the card that a watch sends; `show` has it.
WATCHED_DIFF = 128 * 1024

_MAX_DEPTH = 32


class Form(Generic[T]):
    """The JSON form of the values of a class: some attributes, by their names in JSON, and constants."""

    def __init__(self, kind: type[T], attributes: Mapping[str, str], constants: Mapping[str, str]) -> None:
        self.kind = kind
        self.attributes = attributes
        self.constants = constants

    def __call__(self, value: T) -> JsonObject:
        return {**{name: plain(getattr(value, each)) for name, each in self.attributes.items()}, **self.constants}


def form(kind: type[T], *names: str, **more: str) -> Form[T]:
    """Return the JSON form of values of a class: these attributes of it, and `more`. `name=attribute` gives an
    attribute another name. Raises TypeError for an attribute that the class does not have."""
    attributes = {name.partition("=")[0]: name.rpartition("=")[2] for name in names}
    if missing := [each for each in attributes.values() if not hasattr(kind, each)]:
        raise TypeError(f"{kind.__name__} has no {', '.join(missing)}")
    return Form(kind, attributes, more)


class Under:
    """The form of an answer that is one value under a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: object) -> JsonObject:
        return {self.name: plain(value)}


def under(name: str) -> Under:
    """Return the form of an answer that is one value under this name."""
    return Under(name)


# --- what functions return, for the schemas of `answer_schemas` -------------------------------------------------------


class Shape(NamedTuple):
    """What an object looks like that a function makes by hand. It has the properties of the `merged` forms, and its
    own. Its schema has a name if others refer to it.

    What a property holds is said by a type; by a form, a function or a shape; by a list of one of these, for a list; by
    a tuple, for one of several; by None; by a text, which it is always; or by a JSON Schema. `NotRequired` says that it
    may be absent.
    """

    name: str
    merged: tuple[Callable[..., JsonObject], ...]
    properties: Mapping[str, object]


def shape(*merged: str | Callable[..., JsonObject], **properties: object) -> Shape:
    """Return the shape of an object with the properties of the `merged` forms and with these. A text among the forms is
    the name of its schema."""
    name = "".join(each for each in merged if isinstance(each, str))
    return Shape(name, tuple(each for each in merged if not isinstance(each, str)), properties)


_RETURNED: dict[Callable[..., object], object] = {}


def returns(part: object) -> Callable[[F], F]:
    """Say of a function which JSON value it returns: a shape, or what may stand in one."""

    def tie(function: F) -> F:
        _RETURNED[function] = part
        return function

    return tie


def returned_by(function: Callable[..., object]) -> object:
    """Return what was said of a function. Raises TypeError if nothing was."""
    if function not in _RETURNED:
        raise TypeError(f"nothing says what {function.__name__} returns: add returns(shape(...)) above it")
    return _RETURNED[function]


# --- the forms --------------------------------------------------------------------------------------------------------

session_entry = form(
    Session,
    *("session_id=id", "status", "mode", "workspace_root", "last_tool", "created_at", "updated_at", "client_name"),
    *("prompt", "paused_by", "paused_at", "progress_snapshot"),
)
checkpoint_entry = form(
    CheckpointLine,
    *("checkpoint_id=id", "session_id", "label", "workspace_root", "created_at", "files", "bytes=size", "kept"),
)
notice_entry = form(Notice, "text", "level", "at", "session_id", "event", "grant_id", "by")
room_entry = form(
    Room,
    *("room_id=id", "title", "description", "status", "created_by_team_id", "created_at", "updated_at", "closed_at"),
    *("messages=last_sequence", "document_version=session_doc_version", "paused_by", "paused_at", "pause_reason"),
    *("messages_since_progress", "has_concluder"),
)
room_message_entry = form(
    Message,
    *("room_id=session_id", "cursor=sequence", "message_id=id", "type", "author", "role", "content", "at=posted_at"),
    "acks",
)
_team = form(Team, "team_id", "team_name", "role", "joined_at", "last_seen_at", "cursor", "left_at")
_version = form(DocumentVersion, "room_id=session_id", "version", "author", "written_by_team_id", "written_at")
_WHERE = Literal["feed", "document", "title"]
_MATCH = shape("RoomMatch", room_id=str, title=str, where=_WHERE, cursor=int | None, excerpt=str)
_process = form(AgentProcess, "state", "label", "started_by", "run")
_card = form(
    Card,
    *("request_id=id", "kind", "status=state", "title", "session_id", "workspace_root", "created_at", "expires_at"),
    *("description=body", "detail", "risk_level=risk", "files", "diff_from_agent", "remarks", "decided", "away"),
    *("note", "proposal_hash", "diff", "diff_omitted", "prompt_type", "amendable", "amended", "delivered"),
)
_hunk = form(HunkOfCard, "number", "path", "range", "added", "removed", "line")
_queued = form(Card, "request_id=id", "workspace_root", "status=state", "note")
_instruction = form(
    Instruction,
    *("request_id=id", "kind", "text", "by", "channel", "session_id", "workspace_root", "created_at=at", "taken_at"),
    *("delivered_at", "closed_at", "status"),
)
_restore = form(
    Restore,
    *("restore_id=id", "state", "checkpoint_id", "label", "session_id", "successor_id", "workspace_root", "files"),
    *("safety_checkpoint_id=safety_id", "asked_by", "asked_via", "note", "expires_at", "decided"),
    *("created_at", "updated_at"),
)


@returns(shape("AgentProcess", _process, pid=int | None, exit=str | None))
def process_entry(process: AgentProcess) -> JsonObject:
    """Return the state of an agent process, for `list`."""
    pid = None if process.process is None else process.process.pid
    return {**_process(process), "pid": pid, "exit": None if process.exit is None else str(process.exit)}


_CONVERTER = cattrs.Converter(detailed_validation=False)
_CONVERTER.register_structure_hook(datetime, lambda text, _: from_text(text))


def reads(kind: type[attrs.AttrsInstance], assumed: Mapping[str, Json], **names: str) -> None:
    """Teach `read` the entries of a class: what one may lack, and the attributes that have another name there."""

    # Made at the first use: it takes a millisecond for each class.
    def hook(_: object) -> Callable[[Mapping[str, Json], object], object]:
        renamed: dict[str, Any] = {attribute: override(rename=name) for attribute, name in names.items()}
        of_entry = make_dict_structure_fn(kind, _CONVERTER, **renamed)
        return lambda entry, _: of_entry({**assumed, **entry}, kind)

    _CONVERTER.register_structure_hook_factory(lambda wanted: wanted is kind, hook)


# A diff that does not say whose text it is counts as the agent's own.
reads(Card, {"diff_from_agent": True}, id="request_id", state="status", body="description", risk="risk_level")
reads(Session, {"owner_user_id": ""}, id="session_id")
reads(CheckpointLine, {}, id="checkpoint_id", size="bytes")
reads(Instruction, {}, id="request_id", at="created_at")
reads(Restore, {}, id="restore_id", safety_id="safety_checkpoint_id")
reads(Room, {}, id="room_id", last_sequence="messages", session_doc_version="document_version")


def read(kind: type[T], data: Json, under: str = "") -> T:
    """Return the value of this class that an answer is, or holds under a name. Keys that the class does not have are
    ignored. Raises IpcError if there is no such value of this version."""
    try:
        return _CONVERTER.structure(data.get(under) if under and isinstance(data, Mapping) else data, kind)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise IpcError("the answer is not of this protocol: check that ctl and server have the same version") from None


def read_divergence(data: Mapping[str, Json]) -> DivergenceSummary:
    """Return what differs from a checkpoint, from the entry of a restore or of a refused one. Raises as `read` does."""
    return read(DivergenceSummary, {**data, "first": data.get("diverged")})


def read_restore(data: Mapping[str, Json]) -> Restore:
    """Return the restore of an entry. Raises as `read` does."""
    return attrs.evolve(read(Restore, data), divergence=read_divergence(data))


def watch_entry(shown: Card | Notice) -> tuple[str, JsonObject]:
    """Return the name and the data of the event with which a watch shows a card or a notice."""
    if isinstance(shown, Notice):
        return "notice", notice_entry(shown)
    return "card", card_entry(shown if len(shown.diff or "") <= WATCHED_DIFF else shown.without_diff())


@returns(shape("Card", _card, file_path=str | None, choices=[Decision]))
def card_entry(card: Card) -> JsonObject:
    """Return the entry of a card in `pending`, `show` and `watch`."""
    return {
        **_card(card),
        "file_path": card.files[0].path if card.files else None,
        "choices": [choice.value for choice in CHOICES[card.kind]] if card.state is CardState.PENDING else [],
    }


@returns([card_entry])
def card_entries(cards: Iterable[Card], budget: int = LISTED_DIFFS) -> list[JsonObject]:
    """Return entries in the given order; diffs are included while they fit `budget` characters together."""
    entries = []
    for card in cards:
        size = len(card.diff or "")
        fits = size <= budget
        entries.append(card_entry(card if fits else card.without_diff()))
        budget -= size if fits else 0
    return entries


@returns(shape(card=card_entry, hunks=[_hunk], text=str | None, contents=dict[str, str]))
def amended_entry(found: AmendedCard) -> JsonObject:
    """Return the answer of `amend`: the card as it would be approved, the hunks of the proposal, and what the agent
    would be told."""
    return {
        "card": card_entry(found.card),
        "hunks": [_hunk(each) for each in found.hunks],
        "text": found.text,
        "contents": dict(found.contents),
    }


def amendment_in(hunks: str | None, edit: str | None, shown: str | None) -> Amendment | None:
    """Read an amendment from the fields of a request: numbers of hunks as in `1,3-5`, or a JSON object of new contents
    by path. Returns None if there is neither. Raises InvalidArguments."""
    if hunks is None and edit is None:
        return None
    if hunks is not None and edit is not None:
        raise InvalidArguments("hunks and edit are two ways to change a proposal: give one of them")
    if shown is None:
        raise InvalidArguments("an amendment needs shown: the proposal_hash of the card that the person saw")
    if hunks is not None:
        return Amendment(shown, numbers_in(hunks))
    texts = _json(edit or "", "edit")
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise InvalidArguments("edit must be a JSON object: the new content of each edited file, by path")
    return Amendment(shown, texts=tuple((path, str(text)) for path, text in texts.items()))


def comments_in(text: str | None) -> tuple[Comment, ...]:
    """Read the comments of a request: a JSON list of objects with `path`, `text` and maybe `line`. Raises
    InvalidArguments."""
    found = _json(text or "[]", "comments")
    try:
        return tuple(_CONVERTER.structure(found, list[Comment]))
    except (KeyError, ValueError, TypeError, AttributeError):
        raise InvalidArguments("comments must be a JSON list of objects with path, text and maybe line") from None


def _json(text: str, name: str) -> Json:
    try:
        found: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidArguments(f"{name} is not JSON") from None
    return found


@returns(shape(_queued, session_id=str | None))
def queued_entry(card: Card) -> JsonObject:
    """Return the form of a message or a task that was queued."""
    return {**_queued(card), "session_id": card.session_id or None}


@returns(shape(words=[_instruction]))
def instruction_entries(found: Sequence[Instruction]) -> JsonObject:
    """Return the answer of `steering` and `tasks`."""
    return {"words": [_instruction(each) for each in found]}


@returns(shape("Restore", _restore, modified=int, deleted=int, added=int, diverged=[Divergence], remarks=[str]))
def restore_entry(restore: Restore) -> JsonObject:
    """Return the form of a restore. `successor_id` is the session that follows, set from `handed_over` on."""
    found = restore.divergence
    return {
        **_restore(restore),
        "modified": found.modified,
        "deleted": found.deleted,
        "added": found.added,
        "diverged": [{"path": each.path, "kind": each.kind.value} for each in found.first],
        "remarks": list(found.remarks),
    }


@returns(shape(rooms=[room_entry]))
def room_entries(found: Sequence[Room]) -> JsonObject:
    """Return the answer of `rooms-list`."""
    return {"rooms": [room_entry(each) for each in found]}


@returns(shape(teams=[shape("Team", _team, status=Presence, unread=int)]))
def teams_entry(teams: Sequence[TeamView]) -> JsonObject:
    """Return the form of a roster. A team's `status` is how recently it has polled."""
    return {"teams": [{**_team(each.team), "status": each.presence.value, "unread": each.unread} for each in teams]}


@returns(shape(room_entry, teams_entry, document=str, pinned=[room_message_entry]))
def room_view_entry(view: RoomView) -> JsonObject:
    """Return the form of a room with its teams, its document and its pinned messages."""
    pinned = [room_message_entry(each) for each in view.pinned]
    return {**room_entry(view.room), **teams_entry(view.teams), "document": view.document, "pinned": pinned}


@returns(shape(_version, content=str, diff=NotRequired[str]))
def document_entry(view: DocumentView) -> JsonObject:
    """Return the answer of `rooms-doc`. There is a `diff` only if it was asked for."""
    told: JsonObject = {**_version(view.version), "content": view.version.content or ""}
    return told if view.diff is None else {**told, "diff": view.diff}


@returns(shape(versions=[_version]))
def version_entries(found: Sequence[DocumentVersion]) -> JsonObject:
    """Return the answer of `rooms-versions`."""
    return {"versions": [_version(each) for each in found]}


@returns(shape(room_id=str, title=str, is_closed=bool, messages=[room_message_entry]))
def room_tail_entry(tail: RoomTail) -> JsonObject:
    """Return the answer of `rooms-tail`."""
    messages = [room_message_entry(each) for each in tail.messages]
    return {"room_id": tail.room.id, "title": tail.room.title, "is_closed": tail.is_closed, "messages": messages}


@returns(shape(matches=[_MATCH]))
def match_entries(found: Sequence[Match]) -> JsonObject:
    """Return the answer of `rooms-search`."""
    return {
        "matches": [
            {
                "room_id": each.room.id,
                "title": each.room.title,
                "where": each.where,
                "cursor": each.sequence,
                "excerpt": each.excerpt,
            }
            for each in found
        ]
    }


@returns(
    shape(
        ok=bool,
        entries=int,
        before_the_chain=int,
        decisions=int,
        anchors=int,
        anchors_begun_again=[shape(entry=int, at=str)],
        head=(shape(sequence=int, hash=str, at=str), None),
        faults=[shape(entry=int | None, text=str)],
        more_faults=int,
    )
)
def verification_entry(found: Verification) -> JsonObject:
    """Return the result of a verification of the audit log: of `audit-verify`, and of ctl's `audit verify`."""
    newest = found.head
    return {
        "ok": not found.faults,
        "entries": found.entries,
        "before_the_chain": found.unchained,
        "decisions": found.decisions,
        "anchors": found.anchors,
        "anchors_begun_again": [{"entry": entry, "at": at} for entry, at in found.begun_again],
        "head": None if newest is None else {"sequence": newest.sequence, "hash": newest.hash, "at": newest.at},
        "faults": [{"entry": fault.entry, "text": fault.text} for fault in found.faults],
        "more_faults": found.more,
    }


def plain(value: Any, depth: int = 0) -> Json:
    """Turn a value of attrs classes, enums, instants and containers into what JSON can hold. A value without a JSON
    form becomes its text. A value nested too deep becomes three dots."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or (isinstance(value, str | bool | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return plain(value.value, depth)
    if isinstance(value, datetime):
        return to_text(value) if value.tzinfo is not None else value.isoformat()
    if isinstance(value, type):
        return value.__name__
    if depth >= _MAX_DEPTH and not isinstance(value, PurePath | BaseException):
        return "..."
    if attrs.has(type(value)) and not isinstance(value, BaseException):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in attrs.fields(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    return str(value)
