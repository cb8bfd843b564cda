"""Links to evidence: what counts as one, and that a text and what it links are written together, in one room."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import DatabaseError
from intercom.model.json_types import JsonObject
from intercom.model.room import LinkedEvidence, RoomRefused
from intercom.rooms import transactions
from intercom.rooms.evidence_links import MOST_IDS, MOST_NEW, EvidenceLinks, ids_in
from intercom.rooms.export import BUNDLE, MARKDOWN
from intercom.rooms.tools.document import AppendToSessionDoc
from intercom.rooms.tools.evidence import ReadEvidence
from intercom.rooms.tools.feed import PostMessage
from intercom.rooms.tools.tool import RoomCaller
from intercom.store import rooms
from intercom.store.room_database import Dialect, RoomsDatabase
from tests.rooms.room_driver import SAM, START, RoomDriver, author
from tests.rooms.test_export import markdown
from tests.rooms.test_service import ROOMS, InRoom, create, join, refused
from tests.support.room_databases import room_database
from tests.support.virtual_server import VirtualServer

ID = "6d8d5b0e-1f0a-4a55-8f7e-5d7c3b1a2f00"
OTHER = "7d8d5b0e-1f0a-4a55-8f7e-5d7c3b1a2f00"


def record(id: str = ID, **more: Any) -> JsonObject:
    return {"id": id, "run_id": "s1", "mcp_tool_name": "files", "mcp_method": "read", "data": {"text": "x"}, **more}


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"evidence:{ID}", (ID,)),
        (f"see evidence:{ID}, evidence:{OTHER}. And evidence:{ID}!", (ID, OTHER)),
        (f"[it](evidence:{ID})\nEvidence:{OTHER}", (ID,)),
        (f"evidence: {ID} evidence:{ID.upper()} evidence:{ID[:-1]} evidence:{ID}a evidence:{ID}-b", ()),
        (f"no-evidence:{ID} xevidence:{ID} evidence::{ID} evidence:", ()),
        (ID, ()),
        ("", ()),
    ],
)
def test_a_link_is_the_word_and_a_whole_id(text: str, found: tuple[str, ...]) -> None:
    assert ids_in(text) == found


@given(st.lists(st.sampled_from(["evidence:", ID, OTHER, " ", "-", "a", "é", "\n"]), max_size=20).map("".join))
def test_what_is_found_is_in_the_text_as_a_link(text: str) -> None:
    for id in ids_in(text):
        assert f"evidence:{id}" in text


def test_a_text_full_of_links_is_read_in_part() -> None:
    assert len(ids_in(" ".join(f"evidence:{uuid.uuid4()}" for _ in range(MOST_IDS + 5)))) == MOST_IDS
    assert ids_in("evidence:" * 100_000) == ()


# --- writes, on both databases ---------------------------------------------------------------------------------------


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
def db(request: pytest.FixtureRequest) -> Iterator[RoomsDatabase]:
    with room_database(request.param) as made:
        yield made


def post(room: RoomDriver, by: Any, evidence: Mapping[str, JsonObject], id: str | None = None) -> None:
    answer = room.group(transactions.Post(id or str(uuid.uuid4()), author(by), "look", evidence=evidence)).answer[0]
    if isinstance(answer, RoomRefused):
        raise answer


def test_evidence_is_linked_with_the_message_once(db: RoomsDatabase) -> None:
    room = RoomDriver(db)
    bea = room.join()
    post(room, room.alex, {ID: record()})
    post(room, bea, {ID: record(forged=True), OTHER: record(OTHER)})
    found = rooms.linked_evidence(db, room.id, ID)
    assert found == LinkedEvidence(room.id, ID, record(), "Alex's Team", START, room.alex.team.team_id)
    assert rooms.linked_ids(db, room.id) == (ID, OTHER)
    assert rooms.linked_among(db, room.id, [OTHER, "nonsense", str(uuid.uuid4())]) == {OTHER}
    post(room, SAM, {(third := str(uuid.uuid4())): record(third)})
    by_person = rooms.linked_evidence(db, room.id, third)
    assert by_person is not None
    assert (by_person.author, by_person.linked_by_team_id) == ("sam", None)


def test_a_refused_text_links_nothing(db: RoomsDatabase) -> None:
    room = RoomDriver(db)
    bea = room.join()
    room.leave(bea)
    with pytest.raises(RoomRefused, match="not the token"):
        post(room, bea, {ID: record()})
    room.pause(SAM)
    with pytest.raises(RoomRefused, match="paused"):
        post(room, room.alex, {ID: record()})
    room.resume(SAM)
    room.conclude(room.alex)
    with pytest.raises(RoomRefused, match="closed"):
        post(room, room.alex, {ID: record()})
    with pytest.raises(RoomRefused, match="closed"):
        room.append(room.alex, "text", evidence={ID: record()})
    assert rooms.linked_ids(db, room.id) == ()


def test_the_document_and_its_conclusion_link_evidence(db: RoomsDatabase) -> None:
    room = RoomDriver(db)
    ids = [str(uuid.uuid4()) for _ in range(3)]
    room.append(room.alex, "text", evidence={ids[0]: record(ids[0])})
    room.update(room.alex, "new", 1, evidence={ids[1]: record(ids[1])})
    room.conclude(room.alex, evidence={ids[2]: record(ids[2])})
    assert {*rooms.linked_ids(db, room.id)} == {*ids}


def test_another_room_does_not_have_it(db: RoomsDatabase) -> None:
    one, other = RoomDriver(db), RoomDriver(db)
    post(one, one.alex, {ID: record()})
    assert rooms.linked_evidence(db, other.id, ID) is None
    assert rooms.linked_among(db, other.id, [ID]) == frozenset()
    for hostile in ("", "%", "' or true --", "x" * 10_000):
        assert rooms.linked_evidence(db, one.id, hostile) is None
        assert rooms.linked_among(db, hostile, [ID]) == frozenset()


def test_any_json_that_a_tool_returns_is_kept_as_it_is(db: RoomsDatabase) -> None:
    room = RoomDriver(db)
    made = record(data={"half": "\ud800", "nul": "a\0b", "deep": [[[{"é": 1.5, "big": 10**30}]]], "none": None})
    post(room, room.alex, {ID: made})
    found = rooms.linked_evidence(db, room.id, ID)
    assert found is not None
    assert found.record == made


# --- the service -----------------------------------------------------------------------------------------------------


@define
class Source:
    """Evidence of some sessions. `asked` are the ids and the session that was given; None for a person."""

    of: Mapping[str, str]
    asked: list[tuple[tuple[str, ...], str | None]] = field(factory=list)

    async def of_session(self, ids: Collection[str], session_id: str) -> Mapping[str, JsonObject]:
        self.asked.append((tuple(ids), session_id))
        return {id: record(id) for id in ids if self.of.get(id) == session_id}

    async def of_all(self, ids: Collection[str]) -> Mapping[str, JsonObject]:
        self.asked.append((tuple(ids), None))
        return {id: record(id) for id in ids if id in self.of}


@frozen
class Agent:
    """A team whose calls come over the connection of an agent's session."""

    team: InRoom
    session_id: str = "s1"

    @property
    def caller(self) -> RoomCaller:
        async def session() -> str:
            return self.session_id

        return RoomCaller(self.team.token, "127.0.0.1", uuid.uuid4().hex, session)

    async def post(self, text: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        asked = PostMessage(self.team.id, self.team.token, text)
        done = await self.team.service.post(asked, self.caller)
        return done.evidence, done.unlinked


async def room_with(server: VirtualServer, source: Source) -> InRoom:
    room = await create(server)
    room.service.links = EvidenceLinks(room.service.room_actors, source)
    return room


@ROOMS
async def test_a_text_without_links_asks_nobody(server: VirtualServer) -> None:
    source = Source({ID: "s1"})
    room = await room_with(server, source)
    assert await Agent(room).post(f"no link: {ID}") == (None, None)
    assert source.asked == []


@ROOMS
async def test_only_the_callers_own_session_is_asked_for(server: VirtualServer) -> None:
    source = Source({ID: "s1", OTHER: "s2"})
    room = await room_with(server, source)
    assert await Agent(room).post(f"evidence:{ID} evidence:{OTHER}") == ((ID,), (OTHER,))
    assert source.asked == [((ID, OTHER), "s1")]
    # What is linked is not asked for again.
    kim = await join(room)
    assert await Agent(kim, "s2").post(f"evidence:{ID} evidence:{OTHER}") == ((ID, OTHER), None)
    assert source.asked[1:] == [((OTHER,), "s2")]


@ROOMS
async def test_a_text_links_so_many_new_ones(server: VirtualServer) -> None:
    ids = [str(uuid.uuid4()) for _ in range(MOST_NEW + 1)]
    room = await room_with(server, Source(dict.fromkeys(ids, "s1")))
    text = " ".join(f"evidence:{id}" for id in ids)
    assert await Agent(room).post(text) == (tuple(ids[:MOST_NEW]), (ids[MOST_NEW],))
    assert await Agent(room).post(text) == (tuple(ids), None)


@ROOMS
async def test_a_team_that_is_not_in_the_room_learns_and_links_nothing(server: VirtualServer) -> None:
    room = await room_with(server, Source({ID: "s1"}))
    other = await create(server)
    stranger = Agent(InRoom(server, room.id, other.token))
    assert (await refused(lambda: stranger.post(f"evidence:{ID}"))).error_code == "unauthorized"
    read = ReadEvidence(room.id, room.token, ID)
    assert (await refused(lambda: room.service.read_evidence(read, room.caller))).error_code == "not_found"
    await Agent(room).post(f"evidence:{ID}")
    assert (await room.service.read_evidence(read, room.caller)).record == record()
    stolen = ReadEvidence(room.id, other.token, ID)
    assert (await refused(lambda: room.service.read_evidence(stolen, other.caller))).error_code == "unauthorized"


@ROOMS
@pytest.mark.parametrize("id", ["", "evidence:", "%", "' or 1=1 --", ID.upper(), ID[:8], "evidence:evidence:" + ID])
async def test_what_is_no_id_is_refused_like_one_that_does_not_exist(server: VirtualServer, id: str) -> None:
    room = await room_with(server, Source({ID: "s1"}))
    await Agent(room).post(f"evidence:{ID}")
    asked = ReadEvidence(room.id, room.token, id)
    assert (await refused(lambda: room.service.read_evidence(asked, room.caller))).error_code == "not_found"


@ROOMS
async def test_a_text_that_is_written_is_answered_if_its_links_cannot_be_read(
    server: VirtualServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its author would post it again."""
    room = await room_with(server, Source({ID: "s1"}))

    def fail(_db: object, **_asked: object) -> frozenset[str]:
        raise DatabaseError("the disk is full")

    # Over plain HTTP, this read comes after the text is written.
    monkeypatch.setattr(rooms, "linked_among", fail)
    done = await room.service.post(PostMessage(room.id, room.token, f"evidence:{ID}"), room.caller)
    assert (done.cursor, done.evidence, done.unlinked) == (1, None, None)
    # Before, it refuses.
    assert (await refused(lambda: Agent(room).post(f"evidence:{ID}"))).error_code == "unavailable"
    assert await room.events() == [f"evidence:{ID}"]


@ROOMS
async def test_a_person_links_the_evidence_of_any_session(server: VirtualServer) -> None:
    source = Source({ID: "s1"})
    room = await room_with(server, source)
    assert server.app.rooms is not None
    people = server.app.rooms.people
    object.__setattr__(people, "links", room.service.links)
    await people.post(room.id, f"look at evidence:{ID} and evidence:{OTHER}", "sam")
    assert source.asked == [((ID, OTHER), None)]
    found = await room.service.read_evidence(ReadEvidence(room.id, room.token, ID), room.caller)
    assert found.linked_by == "sam"


@ROOMS
async def test_the_export_has_the_evidence_and_ends_as_before(server: VirtualServer) -> None:
    room = await room_with(server, Source({ID: "s1", OTHER: "s1"}))
    caller = Agent(room).caller
    asked = AppendToSessionDoc(room.id, room.token, f"evidence:{ID} evidence:{OTHER}")
    assert (await room.service.append(asked, caller)).evidence == (ID, OTHER)
    bundle = await room.service.people.export(room.id, "json")
    assert isinstance(bundle, dict)
    linked: Any = bundle["evidence"]
    assert [(each["evidence_id"], each["record"]["id"]) for each in linked] == [(ID, ID), (OTHER, OTHER)]
    text = await room.service.people.export(room.id, "markdown")
    assert isinstance(text, str)
    assert text.count("## Evidence") == 1
    assert text.count("linked by Alex's Team") == 2


# --- the export ------------------------------------------------------------------------------------------------------


def test_a_record_cannot_leave_its_place_in_an_export() -> None:
    from tests.rooms.test_export import AT, MESSAGES, document, room, team

    hostile = record(mcp_method="x`\n# Heading\n<b>", data={"text": "```\n````\n# Heading\n\x1b[2J"})
    linked = LinkedEvidence(room().id, ID, hostile, "*A*\n# Heading", AT)
    about = (room(), document("d"), (team(room().created_by_team_id, "A"),), MESSAGES, AT, linked)
    text = markdown(*about)
    assert "\n# Heading" not in text.replace(text.partition("\n")[0], "", 1)
    assert "\x1b" not in text
    for form in (BUNDLE, MARKDOWN):
        assert form.evidence(linked, True) != form.evidence(linked, False)
    assert json.loads(BUNDLE.evidence(linked, True))["record"] == hostile
