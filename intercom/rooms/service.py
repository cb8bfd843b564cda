"""The service behind the rooms' tools: what each call of a team does, the same for MCP and plain HTTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

import trio
from attrs import AttrsInstance, define, field

from actors import ChildSpec, DynamicSupervisor, System
from intercom.model.card import Card
from intercom.model.config import RoomsSettings
from intercom.model.errors import InvalidArguments
from intercom.model.rate_limit import RateLimit
from intercom.model.room import (
    Message,
    MessageType,
    Room,
    RoomErrorCode,
    RoomEvent,
    RoomId,
    RoomRefused,
    RoomStatus,
    Team,
    new_token,
    no_such_room,
    not_a_member,
    team_of,
    token_hash,
)
from intercom.rooms import operations, roster, transactions
from intercom.rooms.cards import RoomCards
from intercom.rooms.concluding_agent import Concluder, ConcluderActor, StartAgent
from intercom.rooms.evidence_links import EvidenceLinks, EvidenceSource
from intercom.rooms.export import Export
from intercom.rooms.message_budget import Budget
from intercom.rooms.messages import (
    CONCLUDER,
    DIRECTORY,
    AddPost,
    Conclude,
    Identify,
    ReadRoster,
    Roster,
    Wait,
    Withdraw,
    room_name,
)
from intercom.rooms.room import RoomDeps, fitting
from intercom.rooms.room_actors import ANSWER_SECONDS, RoomActors
from intercom.rooms.room_directory import RoomDirectory
from intercom.rooms.roster import Thresholds
from intercom.rooms.tools.directory import (
    CreateSession,
    ExportSession,
    FoundIn,
    FoundPlace,
    ListedSession,
    ListSessions,
    SearchResult,
    SearchSessions,
    SessionCreated,
    SessionList,
)
from intercom.rooms.tools.document import (
    AppendToSessionDoc,
    DocWritten,
    ListedVersion,
    ReadSessionDoc,
    SessionDoc,
    UpdateSessionDoc,
)
from intercom.rooms.tools.evidence import EvidenceRead, ReadEvidence
from intercom.rooms.tools.feed import (
    CURSOR_NOTICE,
    PEER_NOTICE,
    STOP_ADVICE,
    Acknowledge,
    Acknowledged,
    GetHistory,
    HistoryPage,
    NewMessages,
    Posted,
    PostMessage,
    WaitForMessages,
    message_json,
    peer_notice,
)
from intercom.rooms.tools.membership import (
    Joined,
    JoinSession,
    LeaveSession,
    Left,
    ListParticipants,
    Participant,
    Participants,
)
from intercom.rooms.tools.metadata import (
    Concluded,
    ConcludeSession,
    GetSession,
    MetadataUpdated,
    Reopened,
    ReopenSession,
    SessionInfo,
    UpdateSessionMetadata,
)
from intercom.rooms.tools.tool import RoomCaller, RoomTool
from intercom.rooms.transactions import Rules, team_author
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase, RoomStore

#: The supervisor of the rooms' actors.
_GROUP = "rooms"
#: The versions that one answer lists.
_LISTED_VERSIONS = 100
#: How many attempts at a room's passcode one machine has in a minute.
_ATTEMPTS = 10


@define(eq=False)
class RoomService:
    """The rooms of one server: their actors, and what the tools in `intercom.rooms.tools` do in them.

    The methods of the tools raise RoomRefused.

    `settings` are those of `[rooms]`. `own_url` returns the address that the server listens on, None without HTTP.
    `tell` (text, level) tells people what they may want to hear of: a conclusion, a team that waits in vain. `show`
    shows them a card. `start_agent` starts the agents that conclude rooms; None if this server starts none. `evidence`
    is where the evidence of this server's agents is; None if it has no gateway. With `has_secret`, agents show one.
    """

    settings: RoomsSettings
    store: RoomStore
    system: System
    now: Callable[[], datetime]
    own_url: Callable[[], str | None]
    tell: Callable[[str, str], object]
    show: Callable[[Card], object] = lambda _card: None
    start_agent: StartAgent | None = None
    evidence: EvidenceSource | None = None
    has_secret: bool = False
    room_actors: RoomActors = field(init=False)
    people: operations.RoomPeople = field(init=False)
    cards: RoomCards = field(init=False)
    links: EvidenceLinks = field(init=False)
    _stored_url: str | None = field(default=None, init=False)
    _limits: RateLimit = field(factory=RateLimit, init=False)

    def __attrs_post_init__(self) -> None:
        self.room_actors = RoomActors(self.system, self.store)
        self.cards = RoomCards(self.room_actors, self.now, self.show)
        self.links = EvidenceLinks(self.room_actors, self.evidence)
        self.people = operations.RoomPeople(
            self.room_actors,
            self.now,
            self.rules,
            self.thresholds,
            self.default_url,
            self._url_read,
            self.cards,
            self.links,
            self.has_secret,
        )

    def children(self) -> Sequence[ChildSpec]:
        """Return the actors of the rooms in start order: the store's, the rooms, and their directory."""
        deps = RoomDeps(
            store=self.store,
            now=self.now,
            rules=self.rules,
            thresholds=self.thresholds,
            posts_per_minute=lambda: self.settings.posts_per_minute,
            directory=self.system.named(DIRECTORY),
            changed=self._changed,
            deserted=self._have_concluded,
        )
        directory = partial(RoomDirectory, deps, self.system.named(_GROUP), self._url_read, self.cards.show_pending)
        return (
            *self.store.children(),
            ChildSpec(_GROUP, DynamicSupervisor, shutdown=None),
            ChildSpec(DIRECTORY, directory),
            *self._concluder(),
        )

    def _concluder(self) -> tuple[ChildSpec, ...]:
        if self.start_agent is None:
            return ()
        concluder = Concluder(self.room_actors, self.rules, self.now, self.start_agent, self.tell)
        return (ChildSpec(CONCLUDER, partial(ConcluderActor, concluder)),)

    def _have_concluded(self, room: Room) -> None:
        if self.start_agent is not None:
            self.system.named(CONCLUDER).tell(Conclude(room))

    def rules(self) -> Rules:
        """Return what writes need of the settings."""
        settings = self.settings
        return Rules(
            Budget(settings.loop_budget),
            self.thresholds(),
            convener_only_conclude=settings.convener_only_conclude,
            convener_only_metadata=settings.convener_only_metadata,
            one_room_at_a_time=settings.one_room_at_a_time,
            metadata_interval_seconds=settings.metadata_interval_seconds,
        )

    def thresholds(self) -> Thresholds:
        """Return after how long a team counts as idle, and as disconnected."""
        settings = self.settings
        return roster.for_pace(settings.pace.value, settings.active_seconds, settings.disconnected_seconds)

    def _changed(self, room: Room, messages: tuple[Message, ...], is_own: bool) -> None:
        """Tell people what they may want to hear of. What another node has written, it tells its own people itself."""
        for message in messages:
            if message.type is not MessageType.SYSTEM:
                continue
            self.cards.changed(room, message)
            if is_own and message.content.get("event") == RoomEvent.CONCLUDED:
                how = f"agent-intercom-ctl rooms show {room.id[:8]}"
                by = message.content.get("by")
                self.tell(f"the room {room.title!r} was concluded by {by}: {how}", "success")

    def public_url(self) -> str | None:
        """Return the address at which teams reach the rooms: the one that a person set, or that of the settings."""
        return self._stored_url or self.settings.public_url

    def default_url(self) -> str | None:
        """Return the address that holds if no person has set one."""
        return self.settings.public_url or self.own_url()

    def _url_read(self, stored: str | None) -> None:
        """Take over the address that the database has. Any node may have changed it."""
        self._stored_url = stored

    async def call(self, tool: RoomTool, arguments: AttrsInstance, caller: RoomCaller) -> Any:
        """Return the tool's answer: a value of its class `result`."""
        return await tool.handle(self, arguments, caller)

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def create(self, asked: CreateSession, caller: RoomCaller) -> SessionCreated:
        if asked.has_concluder and self.start_agent is None:
            raise RoomRefused(
                RoomErrorCode.FORBIDDEN, "this server starts no agents that conclude sessions: leave has_concluder out"
            )
        now, token = self.now(), new_token(_id_of("team", caller))
        passcode = None if asked.passcode is None else await trio.to_thread.run_sync(_hash, asked.passcode)
        room = Room(
            id=RoomId(_id_of("room", caller)),
            title=asked.title,
            description=asked.description,
            created_by_team_id=team_of(token),
            created_at=now,
            updated_at=now,
            passcode_hash=passcode,
            has_concluder=asked.has_concluder,
        )
        name = roster.team_name(asked.creator_team_name)
        convener = Team(room.id, team_of(token), name, token_hash(token), now, now)
        work = partial(transactions.open_room, room=room, convener=convener, rules=self.rules(), now=now)
        await self.room_actors.transact(room.id, work)
        return SessionCreated(room.id, token, 0, room.title, room.description, name)

    async def list(self, asked: ListSessions, caller: RoomCaller) -> SessionList:
        read = partial(rooms.list_rooms, status=asked.status, limit=asked.limit + 1, before=_page_of(asked.before))
        found = await self.room_actors.read(read)
        page, has_more = found[: asked.limit], len(found) > asked.limit
        following = f"{page[-1].created_at.isoformat()}/{page[-1].id}" if has_more else None
        listed = tuple([_listed(room) for room in page])
        return SessionList(listed, following, has_more, PEER_NOTICE if listed else None)

    async def search(self, asked: SearchSessions, caller: RoomCaller) -> SearchResult:
        found = await self.room_actors.read(partial(rooms.search, words=asked.query, limit=asked.limit))
        return SearchResult(
            tuple(
                FoundPlace(
                    place.room.id,
                    place.room.title,
                    place.room.status,
                    FoundIn(place.where),
                    place.excerpt,
                    place.sequence,
                )
                for place in found
            ),
            PEER_NOTICE if found else None,
        )

    async def export(self, asked: ExportSession, caller: RoomCaller) -> Export:
        room_id, _ = await self._team(asked.session_id, caller)
        return await operations.exported(self.room_actors, room_id, asked.format.value, self.now())

    async def room(self, asked: GetSession, caller: RoomCaller) -> SessionInfo:
        room_id, team = await self._team(asked.session_id, caller)

        def read(db: RoomsDatabase) -> tuple[Room, Sequence[Team]]:
            room = rooms.get(db, room_id)
            if room is None:
                raise no_such_room(room_id)
            return room, rooms.members(db, room_id)

        room, teams = await self.room_actors.read(read)
        names = {each.team_id: each.team_name for each in teams}
        return SessionInfo(
            session_id=room.id,
            title=room.title,
            description=room.description,
            status=room.status,
            created_at=room.created_at,
            updated_at=room.updated_at,
            closed_at=room.closed_at,
            session_doc_version=room.session_doc_version,
            cursor=room.last_sequence,
            convener=names.get(room.created_by_team_id, ""),
            paused_by=room.paused_by,
            pause_reason=room.pause_reason,
            notice=_notice_of_others(teams, team),
        )

    async def metadata(self, asked: UpdateSessionMetadata, caller: RoomCaller) -> MetadataUpdated:
        work = partial(
            transactions.metadata,
            title=asked.title,
            description=asked.description,
            reason=asked.reason,
            rules=self.rules(),
        )
        room = await self._change(*await self._team(asked.session_id, caller), caller, work)
        return MetadataUpdated(room.title, room.description, room.updated_at)

    async def conclude(self, asked: ConcludeSession, caller: RoomCaller) -> Concluded:
        room_id, team = await self._team(asked.session_id, caller)
        evidence = await self.links.of_caller(room_id, asked.summary_section, caller)
        work = partial(transactions.conclude, summary=asked.summary_section, rules=self.rules(), evidence=evidence)
        done = await self._change(room_id, team, caller, work)
        links = await self.links.told(room_id, asked.summary_section)
        return Concluded(asked.session_id, RoomStatus.CLOSED, done.closed_at, done.doc_version, *links)

    async def reopen(self, asked: ReopenSession, caller: RoomCaller) -> Reopened:
        room = await self._change(
            *await self._team(asked.session_id, caller), caller, partial(transactions.reopen, reason=asked.reason)
        )
        return Reopened(room.id, room.status, room.last_sequence)

    # --- teams -------------------------------------------------------------------------------------------------------

    async def join(self, asked: JoinSession, caller: RoomCaller) -> Joined:
        room_id = RoomId(asked.session_id)
        token = asked.team_id or caller.token
        if token is None:
            await self._check_passcode(room_id, asked.passcode, caller)
        work = partial(
            transactions.join,
            room_id=room_id,
            name=roster.team_name(asked.team_name),
            token=token,
            new_token=new_token(_id_of("team", caller)),
            rules=self.rules(),
            now=self.now(),
            replay_from=asked.replay_from,
        )
        joined = await self.room_actors.change(room_id, work)
        found = await self.room_actors.ask(room_id, ReadRoster(or_known=True))
        return Joined(
            session_id=room_id,
            team_id=joined.token,
            team_name=joined.team.team_name,
            role=joined.team.role,
            cursor=joined.cursor,
            participants=self._participants(found, joined.team),
            title=found.room.title,
            description=found.room.description,
            session_doc_version=found.room.session_doc_version,
            session_closed=found.room.is_closed,
            resumed=joined.resumed,
            notice=_notice_of_others(found.teams, joined.team),
        )

    async def _check_passcode(self, room_id: RoomId, passcode: str | None, caller: RoomCaller) -> None:
        room = await self.room_actors.read(partial(rooms.get, id=room_id))
        if room is None:
            raise no_such_room(room_id)
        if room.passcode_hash is None:
            return
        if passcode is None:
            raise _wrong_passcode("needs its passcode")
        # Only wrong ones count, but attempts at the same time do not go past the limit.
        key = f"passcode {room_id} {_network(caller.remote)}"
        wait = self._limits.allow(key, trio.current_time(), _ATTEMPTS, 60.0)
        if wait is not None:
            raise _too_often("too many attempts at the passcode", wait)
        if not await trio.to_thread.run_sync(_fits, passcode, room.passcode_hash):
            raise _wrong_passcode("has another passcode")
        self._limits.give_back(key, _ATTEMPTS, 60.0)

    async def leave(self, asked: LeaveSession, caller: RoomCaller) -> Left:
        now = self.now()
        room_id, token = RoomId(asked.session_id), _token(asked, caller)
        team = await self._member(room_id, token, has_left=True)
        if asked.conclude:
            await self._check_concluder(room_id, team)
        work = partial(
            transactions.leave, room_id=room_id, author=team_author(team), rules=self.rules(), now=now, act=_act(caller)
        )
        left = await self.room_actors.change(room_id, work)
        # The room's actor reads the roster: the feed does not name each team that leaves.
        room = (await self.room_actors.ask(room_id, ReadRoster(or_known=True))).room
        if asked.conclude:
            self._have_concluded(room)
        return Left(room_id, left.team_name, left.left_at or now)

    async def _check_concluder(self, room_id: RoomId, team: Team) -> None:
        """Raise RoomRefused unless this team may have the server's agent conclude the room."""
        room = (await self.room_actors.ask(room_id, ReadRoster())).room
        if self.start_agent is None or not room.has_concluder:
            why = "the session was created without an agent that concludes it: call conclude_session yourself"
            raise RoomRefused(RoomErrorCode.FORBIDDEN, why)
        if team.team_id != room.created_by_team_id:
            why = "only the convener may have the session concluded: leave without conclude"
            raise RoomRefused(RoomErrorCode.FORBIDDEN, why)
        # A convener that has left asks again after a lost answer.
        started = partial(transactions.is_conclusion_started, room_id=room_id)
        if team.left_at is None and await self.room_actors.read(started):
            why = (
                "the server has started its agent to conclude the session already, and starts no other until the"
                " session is reopened: leave without conclude, or call conclude_session yourself"
            )
            raise RoomRefused(RoomErrorCode.CONFLICT, why)

    async def participants(self, asked: ListParticipants, caller: RoomCaller) -> Participants:
        room_id, team = await self._team(asked.session_id, caller)
        return Participants(self._participants(await self.room_actors.ask(room_id, ReadRoster()), team))

    def _participants(self, found: Roster, you: Team) -> tuple[Participant, ...]:
        now, thresholds = self.now(), self.thresholds()
        return tuple(
            Participant(
                team_id=team.team_id,
                team_name=team.team_name,
                role=team.role,
                joined_at=team.joined_at,
                last_seen_at=team.last_seen_at,
                status=roster.presence(team, now, thresholds, polling=team.team_id in found.polling),
                cursor=team.cursor,
                unread=roster.unread(team, found.room),
                is_convener=team.team_id == found.room.created_by_team_id,
                is_you=team.team_id == you.team_id,
                left_at=team.left_at,
            )
            for team in found.teams
        )

    # --- the feed ----------------------------------------------------------------------------------------------------

    async def wait(self, asked: WaitForMessages, caller: RoomCaller) -> NewMessages:
        room_id, token = RoomId(asked.session_id), _token(asked, caller)
        seconds = min(asked.timeout, self.settings.max_wait_seconds)
        # Not the call's name: a call that is repeated while it waits is a wait of its own.
        ticket = uuid.uuid4().hex
        message = Wait(token, asked.since_cursor, seconds, ticket)
        try:
            page = await self.room_actors.ask(room_id, message, timeout=seconds + ANSWER_SECONDS)
        except trio.Cancelled:
            self.room_actors.system.named(room_name(room_id)).tell(Withdraw(ticket))
            raise
        team_id = team_of(token)
        limit = self.settings.idle_polls
        stops = bool(limit) and page.empty_polls >= limit and not page.is_closed
        if stops and page.empty_polls == limit:
            await self._tell_idle(room_id, token)
        comes_again = asked.since_cursor is None and bool(page.messages) and not page.is_closed
        notices = (peer_notice(page.messages, team_id), CURSOR_NOTICE if comes_again else None)
        return NewMessages(
            messages=tuple([message_json(each, team_id, token) for each in page.messages]),
            next_cursor=page.next_cursor,
            session_closed=page.is_closed,
            unread=page.unread or None,
            stop=True if stops else None,
            advice=STOP_ADVICE if stops else None,
            notice="; ".join(filter(None, notices)) or None,
        )

    async def _tell_idle(self, room_id: RoomId, token: str) -> None:
        found = await self.room_actors.ask(room_id, ReadRoster(or_known=True))
        for team in found.teams:
            if team.team_id == team_of(token):
                how = f"agent-intercom-ctl rooms show {room_id[:8]}"
                text = f"{team.team_name} has waited in vain for a while in the room {found.room.title!r}: {how}"
                self.tell(text, "info")

    async def post(self, asked: PostMessage, caller: RoomCaller) -> Posted:
        room_id = RoomId(asked.session_id)
        evidence = await self.links.of_caller(room_id, asked.text, caller)
        # The room puts in the author, whom it knows by the token.
        post = transactions.Post(_act(caller), transactions.person(""), asked.text, asked.key, evidence)
        message = await self.room_actors.ask(room_id, AddPost(_token(asked, caller), post))
        links = await self.links.told(room_id, asked.text)
        return Posted(message.id, message.sequence, message.posted_at, *links)

    async def history(self, asked: GetHistory, caller: RoomCaller) -> HistoryPage:
        token = _token(asked, caller)
        room_id, team = await self._team(asked.session_id, caller)
        read = partial(rooms.before, room_id=room_id, sequence=asked.before_cursor, limit=asked.limit + 1)
        found = await self.room_actors.read(read)
        page = found[-asked.limit :]
        page = page[len(page) - fitting(reversed(page)) :]
        has_more = len(page) < len(found)
        return HistoryPage(
            tuple([message_json(each, team.team_id, token) for each in page]),
            page[0].sequence if has_more else None,
            has_more,
            peer_notice(page, team.team_id),
        )

    async def ack(self, asked: Acknowledge, caller: RoomCaller) -> Acknowledged:
        room_id, team = await self._team(asked.session_id, caller)
        work = partial(transactions.ack, room_id=room_id, author=team_author(team), cursor=asked.cursor, now=self.now())
        message = await self.room_actors.change(room_id, work)
        return Acknowledged(message.id, message.sequence, len(message.acks))

    # --- the document ------------------------------------------------------------------------------------------------

    async def document(self, asked: ReadSessionDoc, caller: RoomCaller) -> SessionDoc:
        room_id, _ = await self._team(asked.session_id, caller)

        def read(db: RoomsDatabase) -> SessionDoc:
            found = rooms.document(db, room_id, asked.version)
            if found is None:
                raise RoomRefused(
                    RoomErrorCode.NOT_FOUND, f"the document has no version {asked.version}: leave version out"
                )
            versions = rooms.document_history(db, room_id, _LISTED_VERSIONS) if asked.history else ()
            listed = tuple([ListedVersion(each.version, each.author, each.written_at) for each in versions])
            is_empty = found.version == 0
            return SessionDoc(
                content=found.content or "",
                version=found.version,
                author=None if is_empty else found.author,
                written_at=None if is_empty else found.written_at,
                history=listed if asked.history else None,
                # It may have parts of every team.
                notice=PEER_NOTICE if found.content else None,
            )

        return await self.room_actors.read(read)

    async def update(self, asked: UpdateSessionDoc, caller: RoomCaller) -> DocWritten:
        work = partial(
            transactions.update,
            content=asked.content,
            expected_version=asked.expected_version,
            section=asked.section,
        )
        return await self._write(asked.session_id, caller, work, asked.content)

    async def append(self, asked: AppendToSessionDoc, caller: RoomCaller) -> DocWritten:
        work = partial(transactions.append, text=asked.text, section=asked.section)
        return await self._write(asked.session_id, caller, work, asked.text)

    async def _write(
        self, session_id: str, caller: RoomCaller, work: Callable[..., transactions.Written[Any]], text: str
    ) -> DocWritten:
        room_id, team = await self._team(session_id, caller)
        most = self.settings.document_writes_per_minute
        wait = self._limits.allow(f"document {team.team_id}", trio.current_time(), most, 60.0)
        if wait is not None:
            raise _too_often(f"this team may write the document {most} times a minute", wait)
        evidence = await self.links.of_caller(room_id, text, caller)
        written = await self._change(room_id, team, caller, partial(work, rules=self.rules(), evidence=evidence))
        links = await self.links.told(room_id, text)
        return DocWritten(written.version, written.written_at, *links)

    # --- evidence ----------------------------------------------------------------------------------------------------

    async def read_evidence(self, asked: ReadEvidence, caller: RoomCaller) -> EvidenceRead:
        room_id, _ = await self._team(asked.session_id, caller)
        found = await self.links.read(room_id, asked.evidence_id)
        return EvidenceRead(found.evidence_id, found.record, found.author, found.linked_at)

    # --- parts -------------------------------------------------------------------------------------------------------

    async def _change(
        self, room_id: RoomId, team: Team, caller: RoomCaller, work: Callable[..., transactions.Written[Any]]
    ) -> Any:
        """Run a change as this team."""
        author = team_author(team)
        return await self.room_actors.change(
            room_id, partial(work, room_id=room_id, author=author, now=self.now(), act=_act(caller))
        )

    async def _team(self, session_id: str, caller: RoomCaller) -> tuple[RoomId, Team]:
        """Return the room and the caller's team in it."""
        room_id = RoomId(session_id)
        return room_id, await self.room_actors.ask(room_id, Identify(caller.token or ""))

    async def _member(self, room_id: RoomId, token: str, *, has_left: bool = False) -> Team:
        """Return the team of a token; with `has_left`, also one that has left."""
        try:
            return await self.room_actors.ask(room_id, Identify(token))
        except RoomRefused as refused:
            if not has_left or refused.room_code is not RoomErrorCode.UNAUTHORIZED:
                raise
        team = await self.room_actors.read(partial(rooms.team, room_id=room_id, team_id=team_of(token)))
        if team is None or team.token_hash != token_hash(token):
            raise not_a_member()
        return team


def _token(asked: Any, caller: RoomCaller) -> str:
    return caller.token or asked.team_id or ""


def _id_of(what: str, caller: RoomCaller) -> str:
    """Return the id of what a call makes: a repeated call makes nothing new."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"rooms/{what}/{caller.act}"))


def _act(caller: RoomCaller) -> str:
    """Return the id under which a call is recorded: a UUID, always the same for one call."""
    try:
        return str(uuid.UUID(caller.act))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"rooms/call/{caller.act}"))


def _notice_of_others(teams: Sequence[Team], you: Team) -> str | None:
    """Return the notice about a room's title and description, which any of its teams may have written."""
    return PEER_NOTICE if any(each.team_id != you.team_id for each in teams) else None


def _listed(room: Room) -> ListedSession:
    return ListedSession(
        room.id,
        room.title,
        room.description,
        room.status,
        room.created_at,
        room.closed_at,
        room.passcode_hash is not None,
    )


def _page_of(text: str | None) -> tuple[datetime, str] | None:
    """Return the place in a list that `next_before` names."""
    if text is None:
        return None
    at, _, id = text.partition("/")
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise InvalidArguments("before is no next_before of an earlier page: leave it out to begin with the newest")
    return time, id


def _wrong_passcode(what: str) -> RoomRefused:
    return RoomRefused(
        RoomErrorCode.FORBIDDEN, f"the session {what}: ask the team that created it, and join with passcode"
    )


def _network(remote: str) -> str:
    """Return what stands for a client's machine: its address, or of IPv6 the network, in which it has any it wants."""
    try:
        address = ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    return remote if address.version == 4 else str(ip_network((address, 64), strict=False))


def _too_often(what: str, wait: float) -> RoomRefused:
    seconds = max(1, round(wait + 0.5))
    return RoomRefused(RoomErrorCode.RATE_LIMITED, f"{what}: try again in {seconds} s", retry_after=seconds)


# scrypt with the cost that is usual for interactive log-ins: about 50 ms.
_COST = {"n": 2**14, "r": 8, "p": 1}


def _hash(passcode: str) -> str:
    salt = os.urandom(16)
    digest = hashlib.scrypt(passcode.encode("utf-8", "surrogatepass"), salt=salt, **_COST)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _fits(passcode: str, stored: str) -> bool:
    _, salt, digest = stored.split("$")
    found = hashlib.scrypt(passcode.encode("utf-8", "surrogatepass"), salt=base64.b64decode(salt), **_COST)
    return hmac.compare_digest(found, base64.b64decode(digest))
