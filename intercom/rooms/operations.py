"""What people do in rooms, from ctl and other channels."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from functools import partial

import trio
from attrs import frozen

from intercom.model.card import Card
from intercom.model.decision import Verdict
from intercom.model.errors import Ambiguous, InvalidArguments, InvalidState, NotFound
from intercom.model.json_types import JsonObject
from intercom.model.limits import is_base_url
from intercom.model.room import DocumentVersion, Message, Room, RoomId, RoomStatus, TeamId, TeamRole, new_token
from intercom.model.room_view import DocumentView, RoomAddress, RoomNews, RoomTail, RoomToken, RoomView, TeamView
from intercom.rooms import document, export, instructions, roster, transactions
from intercom.rooms.cards import Admit, RoomCards
from intercom.rooms.evidence_links import EvidenceLinks
from intercom.rooms.export import Export
from intercom.rooms.messages import PUBLIC_URL, AddPost, ReadRoster, Roster, Watch, Withdraw, room_name
from intercom.rooms.room_actors import ANSWER_SECONDS, RoomActors
from intercom.rooms.roster import Thresholds
from intercom.rooms.transactions import Rules, person
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase
from intercom.store.rooms import Found

#: The messages of an export that are in memory at once.
_PAGE = 50
#: The longest diff of two versions that people are shown, in characters: more than two whole documents.
_MOST_DIFF = 4 * 2**20
_FORMS = {"markdown": export.MARKDOWN, "json": export.BUNDLE}


def act_id(act: str | None) -> str:
    """Return the id under which an act is recorded: always the same for one act, new without one."""
    return str(uuid.uuid4() if act is None else uuid.uuid5(uuid.NAMESPACE_OID, f"rooms/{act}"))


@frozen
class RoomPeople:
    """The operations of `intercom.model.room_view.RoomOperations`.

    `rules` and `thresholds` return the present settings, `default_url` the address without a stored one. `url_read`
    gets the stored one. `links` finds the evidence that people's texts link. With `has_secret`, agents show one.
    """

    room_actors: RoomActors
    now: Callable[[], datetime]
    rules: Callable[[], Rules]
    thresholds: Callable[[], Thresholds]
    default_url: Callable[[], str | None]
    url_read: Callable[[str | None], object]
    room_cards: RoomCards
    links: EvidenceLinks
    has_secret: bool = False

    # --- reading -----------------------------------------------------------------------------------------------------

    async def list(self, *, everything: bool = False, limit: int = 50) -> Sequence[Room]:
        status = None if everything else RoomStatus.ACTIVE
        return await self.room_actors.read(partial(rooms.list_rooms, status=status, limit=limit))

    async def show(self, id: str) -> RoomView:
        found = await self.room_actors.ask(await self._id(id), ReadRoster())

        def read(db: RoomsDatabase) -> tuple[DocumentVersion | None, tuple[Message, ...]]:
            pinned = [
                transactions.message_at(db, found.room.id, number) for number in transactions.pins(db, found.room.id)
            ]
            return rooms.document(db, found.room.id), tuple(filter(None, pinned))

        document, pinned = await self.room_actors.read(read)
        return RoomView(found.room, self._teams(found), "" if document is None else document.content or "", pinned)

    def _teams(self, found: Roster) -> tuple[TeamView, ...]:
        now, thresholds = self.now(), self.thresholds()
        return tuple(
            [
                TeamView(
                    team,
                    roster.presence(team, now, thresholds, polling=team.team_id in found.polling),
                    roster.unread(team, found.room),
                )
                for team in found.teams
            ]
        )

    async def tail(self, id: str, *, start: int | None = None, before: int | None = None, limit: int = 50) -> RoomTail:
        room_id = await self._id(id)

        def read(db: RoomsDatabase) -> RoomTail:
            room = rooms.get(db, room_id)
            assert room is not None, "rooms are never deleted"
            if start is None:
                found = rooms.before(db, room_id, before, limit)
            else:
                found = rooms.after(db, room_id, start, limit)
            end = found[-1].sequence if found else (start or 0)
            return RoomTail(room, found, room.is_closed and end >= room.last_sequence)

        return await self.room_actors.read(read)

    async def news(self, id: str, after: int, known: Room | None, seconds: float) -> RoomNews:
        room_id, ticket = await self._id(id) if known is None else known.id, uuid.uuid4().hex
        asked = Watch(after, known, seconds, ticket)
        try:
            found = await self.room_actors.ask(room_id, asked, timeout=seconds + ANSWER_SECONDS)
        except trio.Cancelled:
            self.room_actors.system.named(room_name(room_id)).tell(Withdraw(ticket))
            raise
        return RoomNews(found.room, self._teams(found), found.messages)

    async def document(self, id: str, version: int | None = None, *, diff: bool = False) -> DocumentView:
        room_id = await self._id(id)

        def read(db: RoomsDatabase) -> tuple[DocumentVersion | None, DocumentVersion | None]:
            found = rooms.document(db, room_id, version)
            return found, rooms.document(db, room_id, found.version - 1) if diff and found and found.version else None

        found, earlier = await self.room_actors.read(read)
        if found is None:
            raise NotFound(f"the document has no version {version}: see rooms versions")
        if not diff:
            return DocumentView(found)
        before = "" if earlier is None else earlier.content or ""
        names = f"version {found.version - 1}", f"version {found.version}"
        made = await trio.to_thread.run_sync(document.diff, before, found.content or "", *names, _MOST_DIFF)
        return DocumentView(found, made)

    async def versions(self, id: str, limit: int = 50) -> Sequence[DocumentVersion]:
        return await self.room_actors.read(partial(rooms.document_history, room_id=await self._id(id), limit=limit))

    async def instructions(self) -> str:
        url = (await self.address()).url
        if url is None:
            raise InvalidState("agents have no address here: set http_port in the server's configuration")
        return instructions.agents_md(url, secret=self.has_secret)

    async def search(self, words: str, limit: int = 50) -> Sequence[Found]:
        return await self.room_actors.read(partial(rooms.search, words=words, limit=limit))

    async def export(self, id: str, format: str) -> str | JsonObject:
        made = await exported(self.room_actors, await self._id(id), format, self.now())
        text = "".join([part async for part in made.parts])
        if made.media_type != export.BUNDLE.media_type:
            return text
        bundle: JsonObject = await trio.to_thread.run_sync(json.loads, text)
        return bundle

    async def _id(self, prefix: str) -> RoomId:
        """Return the whole id of the only room whose id begins with `prefix`."""
        found = await self.room_actors.read(partial(rooms.with_prefix, prefix=prefix, limit=10))
        if prefix in found:
            return RoomId(prefix)
        if not found:
            raise NotFound(f"no room has an id that begins with {prefix[:80]!r}; see rooms list")
        if len(found) > 1:
            raise Ambiguous(f"{prefix!r} fits {len(found)} rooms ({', '.join(found[:5])}); give more of the id")
        return RoomId(found[0])

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(self, title: str, description: str, by: str, act: str | None = None) -> Room:
        now, act = self.now(), act_id(act)
        id = RoomId(str(uuid.uuid5(uuid.NAMESPACE_OID, f"rooms/room/{act}")))
        # No team has this id: people conclude and reopen the room, or any team if the settings allow that.
        room = Room(id, title, description, TeamId(act), created_at=now, updated_at=now)
        work = partial(transactions.open_by_person, room=room, author=person(by), now=now, act=act)
        return (await self.room_actors.transact(id, work)).answer

    async def post(self, id: str, text: str, by: str, act: str | None = None) -> Message:
        room_id = await self._id(id)
        evidence = await self.links.of_person(room_id, text)
        post = transactions.Post(act_id(act), person(by), text, evidence=evidence)
        return await self.room_actors.ask(room_id, AddPost(None, post))

    async def pin(self, id: str, message: int, by: str, act: str | None = None, *, remove: bool = False) -> Room:
        return await self._change(id, transactions.pin, by, act, number=message, remove=remove)

    async def pause(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room:
        return await self._change(id, transactions.pause, by, act, reason=reason or f"{by} wants to look at it")

    async def resume(self, id: str, by: str, act: str | None = None) -> Room:
        return await self._change(id, transactions.resume, by, act)

    async def reopen(self, id: str, reason: str | None, by: str, act: str | None = None) -> Room:
        return await self._change(id, transactions.reopen, by, act, reason=reason or f"{by} opens it again")

    async def conclude(self, id: str, summary: str, by: str, act: str | None = None) -> Room:
        room_id = await self._id(id)
        work = partial(
            transactions.conclude,
            room_id=room_id,
            author=person(by),
            summary=summary,
            rules=self.rules(),
            now=self.now(),
            act=act_id(act),
            evidence=await self.links.of_person(room_id, summary),
        )
        await self.room_actors.change(room_id, work)
        return (await self.room_actors.ask(room_id, ReadRoster(or_known=True))).room

    async def token(self, id: str, by: str, act: str | None = None) -> RoomToken:
        room_id = await self._id(id)
        work = partial(
            transactions.join,
            room_id=room_id,
            name=by,
            token=None,
            new_token=new_token(act_id(act)),
            rules=self.rules(),
            now=self.now(),
            role=TeamRole.OPERATOR,
        )
        joined = await self.room_actors.change(room_id, work)
        room = (await self.room_actors.ask(room_id, ReadRoster(or_known=True))).room
        return RoomToken(room.id, room.title, joined.team.team_id, joined.token)

    async def _change(
        self, id: str, change: Callable[..., transactions.Written[Room]], by: str, act: str | None, **more: object
    ) -> Room:
        room_id = await self._id(id)
        work = partial(change, room_id=room_id, author=person(by), now=self.now(), act=act_id(act), **more)
        return await self.room_actors.change(room_id, work)

    # --- the cards of paused rooms ------------------------------------------------------------------------------------

    async def cards(self) -> tuple[Card, ...]:
        return await self.room_cards.pending()

    async def find_card(self, prefix: str) -> Card | None:
        return await self.room_cards.find(prefix)

    async def decide_card(self, card: Card, verdict: Verdict, admit: Admit) -> Card:
        return await self.room_cards.decide(card, verdict, admit)

    # --- the public address ------------------------------------------------------------------------------------------

    async def address(self) -> RoomAddress:
        stored = await self.room_actors.read(partial(rooms.setting, name=PUBLIC_URL))
        self.url_read(stored)
        return RoomAddress(stored or self.default_url(), stored is not None)

    async def set_address(self, url: str | None, by: str) -> RoomAddress:
        if url is not None:
            url = base_url(url)
        await self.room_actors.transact(RoomId(""), partial(rooms.set_setting, name=PUBLIC_URL, value=url))
        return await self.address()


def base_url(text: str) -> str:
    """Return an address without its last slashes. Raises InvalidArguments for one that a configuration could not have
    either: it becomes part of commands and files that people and agents are told to use."""
    url = text.strip().rstrip("/")
    if not is_base_url(url):
        raise InvalidArguments(f"{text[:200]!r} is no address: give one like https://rooms.example.org")
    return url


async def exported(room_actors: RoomActors, room_id: RoomId, format: str, now: datetime) -> Export:
    """Return a whole room as it is now, as `markdown` or as the `json` bundle. Messages are never changed, so reading
    them page by page shows one moment; only their acks may be later. So are links to evidence."""
    if format not in _FORMS:
        raise InvalidArguments(f"a room is exported as markdown or json, not as {format[:40]!r}")
    form = _FORMS[format]

    def read(db: RoomsDatabase) -> tuple[str, int, tuple[str, ...]] | None:
        room = rooms.get(db, room_id)
        if room is None:
            return None
        begin = form.begin(room, rooms.document(db, room_id), rooms.members(db, room_id), now)
        return begin, room.last_sequence, rooms.linked_ids(db, room_id)

    found = await room_actors.read(read)
    if found is None:
        raise NotFound(f"no room has the id {room_id}")
    return Export(form.media_type, _parts(room_actors, room_id, form, *found))


async def _parts(
    room_actors: RoomActors, room_id: RoomId, form: export.Form, begin: str, end: int, evidence: Sequence[str]
) -> AsyncGenerator[str, None]:
    yield begin
    last = 0
    while last < end:
        limit = min(_PAGE, end - last)
        page = await room_actors.read(partial(rooms.after, room_id=room_id, sequence=last, limit=limit))
        yield form.page(page, last == 0)
        last = page[-1].sequence
    yield form.between
    # One by one: a record may be large.
    for place, id in enumerate(evidence):
        linked = await room_actors.read(partial(rooms.linked_evidence, room_id=room_id, id=id))
        assert linked is not None, "links are never deleted"
        yield form.evidence(linked, place == 0)
    yield form.end
